//! Lines of an answer that is a stream.

use super::error::Error;
use super::http::Client;
use super::status::Status;
use reqwest::Response;

/// Largest line in bytes: an object of at most 1.5 MiB with its envelope, several times over.
const LINE_BYTES_MAX: usize = 16 << 20;

#[derive(Debug)]
pub(crate) struct StreamLines {
    response: Response,
    buffer: Vec<u8>,
    /// Length of the buffer's beginning that holds no line feed.
    scanned: usize,
}

impl StreamLines {
    pub(super) fn new(response: Response) -> Self {
        Self { response, buffer: Vec::new(), scanned: 0 }
    }

    /// The next line without its end; `None` once the manager ended the stream. An unfinished last line is
    /// reported by [`StreamLines::finish`]. Fails if the connection breaks.
    pub(crate) async fn next(&mut self, client: &Client) -> Result<Option<Vec<u8>>, Error> {
        loop {
            if let Some(at) = self.buffer[self.scanned..].iter().position(|byte| *byte == b'\n') {
                let rest = self.buffer.split_off(self.scanned + at + 1);
                let mut line = std::mem::replace(&mut self.buffer, rest);
                self.scanned = 0;
                line.pop();
                if line.last() == Some(&b'\r') {
                    line.pop();
                }
                return Ok(Some(line));
            }
            self.scanned = self.buffer.len();
            if self.buffer.len() > LINE_BYTES_MAX {
                return Err(self.malformed(format!("a line is longer than {} MiB", LINE_BYTES_MAX >> 20)));
            }
            match self.response.chunk().await {
                Ok(Some(chunk)) => self.buffer.extend_from_slice(&chunk),
                Ok(None) => return Ok(None),
                Err(error) => return Err(client.unreachable(&error)),
            }
        }
    }

    /// As [`StreamLines::next`], for a stream of documents. Also fails if the line is a `Status`: the manager
    /// can't continue, and says why.
    pub(crate) async fn next_document(&mut self, client: &Client) -> Result<Option<Vec<u8>>, Error> {
        let Some(line) = self.next(client).await? else { return Ok(None) };
        match Status::of_line(&line) {
            Some(status) => Err(Error::Status(Box::new(status))),
            None => Ok(Some(line)),
        }
    }

    /// Fails if the stream ended in the middle of a line: it was cut off.
    pub(crate) fn finish(self) -> Result<(), Error> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        Err(self.malformed("it ends in the middle of a line".to_owned()))
    }

    fn malformed(&self, why: String) -> Error {
        Error::Malformed { request: self.response.url().path().to_owned(), why }
    }
}
