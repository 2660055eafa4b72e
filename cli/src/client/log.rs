//! A job's output as it comes. One that is followed goes on over broken streams: it is read again from its beginning, and what was
//! handed on already is left out.
//!
//! Lines of several pods come in another order each time, so that what was handed on is counted pod by pod.

use super::{Client, Error, LogQuery};
use meridian_shared::backoff;
use meridian_shared::logs::ATTEMPT_HEADER;
use meridian_shared::time::Millis;
use reqwest::Response;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// The first pause after a stream broke.
const PAUSE_FIRST: Millis = Millis(250);
/// The longest pause between two tries.
const PAUSE_MAX: Millis = Millis::secs(10);
/// Tries in a row that may bring nothing new: about a minute, which a restart takes at most, and longer where an agent must be waited for.
const TRIES_MAX: u32 = 12;
/// A stream that lasted this long was well, even if it brought nothing.
const WELL_AFTER: Duration = Duration::from_secs(5);
/// Longest begin of a line that waits for its end: agents cut theirs far below.
const LINE_BYTES_MAX: usize = 1 << 20;

/// What comes of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LogPiece {
    /// What was printed.
    Bytes(Vec<u8>),
    /// What a person should know of what comes next.
    Note(String),
}

/// A job's output.
#[derive(Debug)]
pub(crate) struct LogStream {
    client: Client,
    namespace: String,
    job: String,
    query: LogQuery,
    stream: Option<(Response, Instant)>,
    /// Whose output it is.
    attempt: Option<String>,
    shown: Shown,
    over: bool,
    /// Tries in a row that brought nothing.
    failures: u32,
    seed: u64,
}

impl LogStream {
    pub(super) async fn start(
        client: Client,
        namespace: &str,
        job: &str,
        query: LogQuery,
    ) -> Result<Self, Error> {
        let response = client.open_log(namespace, job, query).await?;
        let attempt = attempt_of(&response);
        Ok(Self {
            client,
            namespace: namespace.to_owned(),
            job: job.to_owned(),
            query,
            stream: Some((response, Instant::now())),
            attempt,
            shown: Shown::new(query.pod.is_none()),
            over: false,
            failures: 0,
            seed: uuid::Uuid::new_v4().as_u64_pair().0,
        })
    }

    /// The next piece; `None` at the end. A log that isn't followed and breaks off is an error.
    pub(crate) async fn next(&mut self) -> Result<Option<LogPiece>, Error> {
        while !self.over {
            let Some((response, opened)) = &mut self.stream else {
                match self.again().await {
                    Ok(None) => {}
                    Ok(note) => return Ok(note.map(LogPiece::Note)),
                    Err(error) if error.is_passing() => self.pause(error.to_string()).await?,
                    Err(error) => return Err(error),
                }
                continue;
            };
            let chunk = response.chunk().await;
            if opened.elapsed() >= WELL_AFTER {
                self.failures = 0;
            }
            let fresh = match chunk {
                Ok(Some(chunk)) => self.shown.fresh(&chunk),
                Ok(None) => {
                    self.over = true;
                    std::mem::take(&mut self.shown.held)
                }
                Err(error) => {
                    tracing::info!(error = super::chain(&error), "the log broke off");
                    self.stream = None;
                    if !self.query.follow {
                        return Err(Error::LogBroken);
                    }
                    self.pause("it broke off".to_owned()).await?;
                    continue;
                }
            };
            if !fresh.is_empty() {
                self.failures = 0;
                return Ok(Some(LogPiece::Bytes(fresh)));
            }
        }
        Ok(None)
    }

    /// Opens it once more; what must be said before it goes on.
    async fn again(&mut self) -> Result<Option<String>, Error> {
        let response = self.client.open_log(&self.namespace, &self.job, self.query).await?;
        let attempt = attempt_of(&response);
        self.stream = Some((response, Instant::now()));
        if attempt != self.attempt {
            self.attempt = attempt;
            self.shown = Shown::new(self.query.pod.is_none());
            return Ok(Some("the job was started again: what follows is its new output".to_owned()));
        }
        if let Some(lines) = self.query.tail {
            // nobody knows where in the whole output its last lines were
            self.shown = Shown::new(self.query.pod.is_none());
            return Ok(Some(format!(
                "the log broke off: its last {lines} lines follow as they are now, some of them once more"
            )));
        }
        self.shown.read_again();
        Ok(None)
    }

    async fn pause(&mut self, why: String) -> Result<(), Error> {
        if self.failures >= TRIES_MAX {
            return Err(Error::LogLost { tries: self.failures, why });
        }
        tracing::info!(why, failures = self.failures, "the log is taken up again");
        let pause = backoff::wait(PAUSE_FIRST, PAUSE_MAX, self.failures, self.seed);
        self.failures += 1;
        tokio::time::sleep(Duration::from_millis(pause.0)).await;
        Ok(())
    }
}

fn attempt_of(response: &Response) -> Option<String> {
    response.headers().get(ATTEMPT_HEADER).and_then(|attempt| attempt.to_str().ok()).map(str::to_owned)
}

/// How much was handed on.
#[derive(Debug, Default)]
struct Shown {
    /// Whether lines begin with their pods' numbers.
    by_pod: bool,
    /// Lines of each pod; bytes where there is only one.
    counts: BTreeMap<Option<u32>, u64>,
    /// How much of that is still to come once more.
    skip: BTreeMap<Option<u32>, u64>,
    /// A line that isn't whole yet.
    held: Vec<u8>,
}

impl Shown {
    fn new(by_pod: bool) -> Self {
        Self { by_pod, ..Self::default() }
    }

    /// It comes from its beginning once more.
    fn read_again(&mut self) {
        self.skip = self.counts.clone();
        self.held.clear();
    }

    /// What of it is new.
    fn fresh(&mut self, piece: &[u8]) -> Vec<u8> {
        if !self.by_pod {
            let skip = self.skip.entry(None).or_default();
            let known = usize::try_from(*skip).unwrap_or(usize::MAX).min(piece.len());
            *skip -= known as u64;
            *self.counts.entry(None).or_default() += (piece.len() - known) as u64;
            return piece[known..].to_vec();
        }
        self.held.extend_from_slice(piece);
        let (mut fresh, mut from) = (Vec::new(), 0);
        while let Some(length) = line_length(&self.held[from..]) {
            let line = &self.held[from..from + length];
            let pod = pod_of(line);
            match self.skip.get_mut(&pod).filter(|left| **left > 0) {
                Some(left) => *left -= 1,
                None => {
                    fresh.extend_from_slice(line);
                    *self.counts.entry(pod).or_default() += 1;
                }
            }
            from += length;
        }
        self.held.drain(..from);
        fresh
    }
}

fn line_length(text: &[u8]) -> Option<usize> {
    let whole = text.iter().position(|byte| *byte == b'\n').map(|at| at + 1);
    whole.or((text.len() >= LINE_BYTES_MAX).then_some(text.len()))
}

/// The pod of a line that begins with `[POD] `.
fn pod_of(line: &[u8]) -> Option<u32> {
    let rest = line.strip_prefix(b"[")?;
    let digits = rest.iter().position(|byte| *byte == b']')?;
    std::str::from_utf8(&rest[..digits]).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(bytes: Vec<u8>) -> String {
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn what_was_shown_of_one_pod_is_left_out_byte_by_byte() {
        let mut shown = Shown::new(false);
        assert_eq!(text(shown.fresh(b"one\ntw")), "one\ntw");
        shown.read_again();
        assert_eq!(text(shown.fresh(b"one")), "");
        shown.read_again();
        assert_eq!(text(shown.fresh(b"one\ntwo\n")), "o\n");
        assert_eq!(text(shown.fresh(b"three")), "three");
    }

    #[test]
    fn what_was_shown_of_many_pods_is_left_out_in_whatever_order_it_comes() {
        let mut shown = Shown::new(true);
        assert_eq!(text(shown.fresh(b"[0] a\n[1] x\n[0] b\n[1] ha")), "[0] a\n[1] x\n[0] b\n");
        shown.read_again();
        assert_eq!(text(shown.fresh(b"[1] x\n[1] half\n[0] a\n[0] b\n[0] c\n")), "[1] half\n[0] c\n");
        assert!(shown.held.is_empty());
    }
}
