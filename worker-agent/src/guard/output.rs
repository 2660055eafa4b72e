//! The output of a pod: copied from its pipe into a file of bounded size, without ever blocking the pod.
//!
//! Standard output and error share one pipe, so their order is kept. Beyond the bound, and on a full disk,
//! output is read and dropped, and a notice in the file says so.

use std::fs::File;
use std::io::{self, PipeReader, Read as _, Write as _};

/// Bytes kept per try of a pod.
pub(super) const OUTPUT_BYTES_MAX: u64 = 16 << 20;
/// Most bytes read from one pod before the next pod's turn.
const TURN_BYTES_MAX: usize = 256 << 10;
const CHUNK_BYTES: usize = 16 << 10;

/// The output of one try of one pod.
#[derive(Debug)]
pub(super) struct Output {
    pipe: Option<PipeReader>,
    file: File,
    bytes_left: u64,
}

impl Output {
    /// Copies `pipe` into `file`. Fails if the pipe can't be made non-blocking.
    pub(super) fn new(pipe: PipeReader, file: File) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&pipe, true)?;
        Ok(Self { pipe: Some(pipe), file, bytes_left: OUTPUT_BYTES_MAX })
    }

    /// The pipe, for polling, while it is open.
    pub(super) fn pipe(&self) -> Option<&PipeReader> {
        self.pipe.as_ref()
    }

    /// Copies what is there, up to a bound per turn.
    pub(super) fn take(&mut self) {
        let mut chunk = [0; CHUNK_BYTES];
        let mut taken = 0;
        while taken < TURN_BYTES_MAX
            && let Some(pipe) = &mut self.pipe
        {
            match pipe.read(&mut chunk) {
                Ok(0) => self.pipe = None,
                Ok(n) => {
                    taken += n;
                    self.keep(&chunk[..n]);
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return,
                Err(_) => self.pipe = None,
            }
        }
    }

    /// Copies the rest of the pipe after the pod ended, which is at most the size of a pipe.
    pub(super) fn finish(mut self) {
        self.take();
    }

    fn keep(&mut self, bytes: &[u8]) {
        if self.bytes_left == 0 {
            return;
        }
        let fits = bytes.len().min(usize::try_from(self.bytes_left).unwrap_or(usize::MAX));
        self.bytes_left -= fits as u64;
        let kept = self.file.write_all(&bytes[..fits]);
        if kept.is_err() || self.bytes_left == 0 {
            self.bytes_left = 0;
            let why =
                kept.err().map_or_else(|| format!("more than {OUTPUT_BYTES_MAX} bytes"), |e| e.to_string());
            // If the notice can't be written either, it can't be reported anywhere.
            let _ = writeln!(self.file, "\n[meridian: output is cut here: {why}]");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_beyond_the_bound_is_dropped_with_one_notice() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("output.log");
        let (reader, mut writer) = io::pipe().unwrap();
        let mut output = Output::new(reader, File::create(&path).unwrap()).unwrap();
        output.bytes_left = 10;
        for _ in 0..3 {
            writer.write_all(b"12345678").unwrap();
            output.take();
        }
        drop(writer);
        output.finish();
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.starts_with("1234567812\n[meridian: output is cut here"), "{text}");
        assert_eq!(text.matches("meridian:").count(), 1);
    }
}
