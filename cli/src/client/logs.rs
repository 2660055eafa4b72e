//! The output of one attempt of a job as a stream. A followed log resumes after a broken connection: it is
//! read again from the beginning, and output that was already returned is skipped.
//!
//! The order of lines of different pods changes with each read, so lines are counted and skipped per pod.

use super::endpoints::ROOT;
use super::error::{Error, with_causes};
use super::http::Client;
use super::job_name::JobName;
use super::retry::{HEALTHY_AFTER, Retry};
use meridian_shared::counted::counted_with;
use meridian_shared::logs::{ATTEMPT_HEADER, ATTEMPT_NUMBER_HEADER};
use reqwest::{Method, Response};
use std::collections::BTreeMap;
use std::time::Instant;

/// Longest unfinished line that is kept back; agents cut lines far below.
const LINE_BYTES_MAX: usize = 1 << 20;
/// Answers in a row that the cluster has no log, after which a followed log counts as lost. The caller knows
/// whether the job continued elsewhere.
const REFUSALS_MAX: u32 = 2;

/// Which part of a job's output to read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LogQuery {
    /// Whether to continue until the attempt ends.
    pub(crate) follow: bool,
    /// One pod by its index; `None` reads all pods.
    pub(crate) pod: Option<u32>,
    /// Only this many lines from the end.
    pub(crate) tail: Option<u64>,
    pub(crate) attempt: LogAttempt,
}

/// The attempt whose output is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum LogAttempt {
    #[default]
    Newest,
    /// The attempt before the newest one.
    Previous,
    /// Counted from 1.
    Number(u64),
}

/// An attempt as the manager names it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct AttemptId {
    /// Counted from 1.
    pub(crate) number: u64,
    pub(crate) fence: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LogEvent {
    Output(Vec<u8>),
    /// A remark on the output that follows, such as that some of it was printed before.
    Note(String),
}

/// The output of one attempt.
#[derive(Debug)]
pub(crate) struct LogStream {
    client: Client,
    namespace: String,
    job: JobName,
    query: LogQuery,
    stream: Option<(Response, Instant)>,
    /// Known once the log was opened.
    attempt: Option<AttemptId>,
    resume: ResumePoint,
    is_over: bool,
    refusals: u32,
    retry: Retry,
}

impl Client {
    /// A job's output; nothing is requested yet.
    pub(crate) fn log(&self, namespace: &str, job: &JobName, query: LogQuery) -> LogStream {
        LogStream {
            client: self.clone(),
            namespace: namespace.to_owned(),
            job: job.clone(),
            query,
            attempt: None,
            stream: None,
            resume: ResumePoint::new(query.pod.is_none()),
            is_over: false,
            refusals: 0,
            retry: Retry::new(),
        }
    }

    async fn open_log(&self, namespace: &str, job: &JobName, query: LogQuery) -> Result<Response, Error> {
        let mut url = self.url(ROOT.into_iter().chain(["logs", namespace, job.name()]));
        if query.follow {
            url.query_pairs_mut().append_pair("follow", "true");
        }
        if let Some(pod) = query.pod {
            url.query_pairs_mut().append_pair("pod", &pod.to_string());
        }
        if let Some(tail) = query.tail {
            url.query_pairs_mut().append_pair("tail", &tail.to_string());
        }
        match query.attempt {
            LogAttempt::Newest => {}
            LogAttempt::Previous => drop(url.query_pairs_mut().append_pair("previous", "true")),
            LogAttempt::Number(number) => {
                url.query_pairs_mut().append_pair("attempt", &number.to_string());
            }
        }
        job.add_kind(&mut url);
        self.send(self.request(Method::GET, url)).await
    }
}

impl LogStream {
    /// Opens the log. Fails if there is none; [`LogStream::next`] would try again.
    pub(crate) async fn open(&mut self) -> Result<(), Error> {
        self.reopen().await.map(|_| ())
    }

    pub(crate) fn query(&self) -> LogQuery {
        self.query
    }

    /// The attempt; `None` until its log was opened.
    pub(crate) fn attempt(&self) -> Option<&AttemptId> {
        self.attempt.as_ref()
    }

    /// The next output; `None` at the end. Fails if the log breaks and isn't followed, or can't be resumed:
    /// then a further call tries once more.
    pub(crate) async fn next(&mut self) -> Result<Option<LogEvent>, Error> {
        while !self.is_over {
            let Some((response, opened)) = &mut self.stream else {
                match self.reopen().await {
                    Ok(None) => {}
                    Ok(note) => return Ok(note.map(LogEvent::Note)),
                    Err(error) if error.is_temporary() => self.pause(&error).await?,
                    Err(error) => return Err(error),
                }
                continue;
            };
            let chunk = response.chunk().await;
            if opened.elapsed() >= HEALTHY_AFTER {
                self.retry.reset();
            }
            let new = match chunk {
                Ok(Some(chunk)) => self.resume.take_new(&chunk),
                Ok(None) => {
                    self.is_over = true;
                    std::mem::take(&mut self.resume.unfinished)
                }
                Err(error) => {
                    tracing::info!(error = with_causes(&error), "the log broke");
                    self.stream = None;
                    if !self.query.follow {
                        return Err(Error::LogBroken);
                    }
                    self.pause(&Error::LogBroken).await?;
                    continue;
                }
            };
            if !new.is_empty() {
                self.retry.reset();
                return Ok(Some(LogEvent::Output(new)));
            }
        }
        Ok(None)
    }

    /// Opens the log, again if it was open; returns a note if the next output doesn't simply continue.
    async fn reopen(&mut self) -> Result<Option<String>, Error> {
        let attempt = match &self.attempt {
            Some(attempt) => LogAttempt::Number(attempt.number),
            None => self.query.attempt,
        };
        let query = LogQuery { attempt, ..self.query };
        let response = self.client.open_log(&self.namespace, &self.job, query).await?;
        self.refusals = 0;
        let attempt = attempt_of(&response);
        self.stream = Some((response, Instant::now()));
        let Some(before) = std::mem::replace(&mut self.attempt, attempt) else { return Ok(None) };
        if self.attempt.as_ref() != Some(&before) {
            self.resume = ResumePoint::new(self.query.pod.is_none());
            return Ok(Some("another job has this name now: its output follows".to_owned()));
        }
        if let Some(lines) = self.query.tail {
            // The position of the last lines within the whole output is unknown.
            self.resume = ResumePoint::new(self.query.pod.is_none());
            let last = counted_with(lines, "line", "follows", "follow");
            return Ok(Some(format!("the log was interrupted: its last {last}, perhaps in part repeated")));
        }
        self.resume.restart();
        Ok(None)
    }

    async fn pause(&mut self, error: &Error) -> Result<(), Error> {
        let why = error.to_string();
        tracing::info!(why, "resuming the log");
        // A status comes from the manager, so only the cluster's agent can't be reached.
        self.refusals += u32::from(error.status().is_some());
        if self.refusals > REFUSALS_MAX {
            return Err(Error::LogLost { tries: self.refusals, why });
        }
        self.retry.pause().await.map_err(|tries| Error::LogLost { tries, why })
    }
}

fn attempt_of(response: &Response) -> Option<AttemptId> {
    let text = |name| response.headers().get(name).and_then(|value| value.to_str().ok());
    let number = text(ATTEMPT_NUMBER_HEADER)?.parse().ok()?;
    Some(AttemptId { number, fence: text(ATTEMPT_HEADER).unwrap_or_default().to_owned() })
}

/// How much of a log was returned.
#[derive(Debug, Default)]
struct ResumePoint {
    /// Whether lines begin with the index of their pod.
    by_pod: bool,
    /// Returned lines of each pod; returned bytes if the log is of one pod.
    returned: BTreeMap<Option<u32>, u64>,
    /// The rest of `returned` that is still to be skipped after a restart.
    to_skip: BTreeMap<Option<u32>, u64>,
    /// The beginning of a line; its end is still to come.
    unfinished: Vec<u8>,
}

impl ResumePoint {
    fn new(by_pod: bool) -> Self {
        Self { by_pod, ..Self::default() }
    }

    /// The log is read from its beginning again.
    fn restart(&mut self) {
        self.to_skip = self.returned.clone();
        self.unfinished.clear();
    }

    /// The part of the next chunk that wasn't returned before.
    fn take_new(&mut self, chunk: &[u8]) -> Vec<u8> {
        if !self.by_pod {
            let to_skip = self.to_skip.entry(None).or_default();
            let known = usize::try_from(*to_skip).unwrap_or(usize::MAX).min(chunk.len());
            *to_skip -= known as u64;
            *self.returned.entry(None).or_default() += (chunk.len() - known) as u64;
            return chunk[known..].to_vec();
        }
        self.unfinished.extend_from_slice(chunk);
        let (mut new, mut from) = (Vec::new(), 0);
        while let Some(length) = line_length(&self.unfinished[from..]) {
            let line = &self.unfinished[from..from + length];
            let pod = pod_of(line);
            match self.to_skip.get_mut(&pod).filter(|left| **left > 0) {
                Some(left) => *left -= 1,
                None => {
                    new.extend_from_slice(line);
                    *self.returned.entry(pod).or_default() += 1;
                }
            }
            from += length;
        }
        self.unfinished.drain(..from);
        new
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
    fn output_of_one_pod_is_skipped_byte_by_byte() {
        let mut resume = ResumePoint::new(false);
        assert_eq!(text(resume.take_new(b"one\ntw")), "one\ntw");
        resume.restart();
        assert_eq!(text(resume.take_new(b"one")), "");
        resume.restart();
        assert_eq!(text(resume.take_new(b"one\ntwo\n")), "o\n");
        assert_eq!(text(resume.take_new(b"three")), "three");
    }

    #[test]
    fn output_of_many_pods_is_skipped_in_any_order() {
        let mut resume = ResumePoint::new(true);
        assert_eq!(text(resume.take_new(b"[0] a\n[1] x\n[0] b\n[1] ha")), "[0] a\n[1] x\n[0] b\n");
        resume.restart();
        assert_eq!(text(resume.take_new(b"[1] x\n[1] half\n[0] a\n[0] b\n[0] c\n")), "[1] half\n[0] c\n");
        assert!(resume.unfinished.is_empty());
    }
}
