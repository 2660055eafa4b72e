//! `logs`: a job's output, escaped only for a terminal; with `-o json` one document per line.
//!
//! A followed log continues with the job's next attempt: the end of an attempt is not the end of the job.

use super::attempts::{self, Afterwards};
use super::log_lines::LineSplitter;
use crate::args::LogsArgs;
use crate::client::{self, AttemptId, Client, JobName, LogAttempt, LogEvent, LogQuery, LogStream};
use crate::error::Error;
use crate::output::printable::StreamEscaper;
use crate::output::streams::{DocumentFormat, Streams};
use crate::session::Session;
use meridian_objects::job::JobKind;
use serde_json::{Value, json};
use std::time::Duration;

/// How soon after an attempt's end the manager is asked about the job; the pause doubles with each answer.
const ASK_FIRST: Duration = Duration::from_millis(250);
/// How soon a log that can't be read is tried again.
const ASK_LOST: Duration = Duration::from_secs(2);
/// The longest pause between two requests to the manager.
const ASK_AT_LEAST_EVERY: Duration = Duration::from_secs(5);
/// Requests in a row that may fail. With the pauses, they take about as long as the tries to resume a log.
const ASK_FAILURES_MAX: u32 = 20;

/// How output is written.
enum LogWriter {
    /// Bytes as they are.
    Raw,
    /// Escaped for a terminal.
    Terminal(StreamEscaper),
    /// One document per line.
    Documents(DocumentFormat, LineSplitter),
}

impl LogWriter {
    fn of(session: &Session, pod: Option<u32>) -> Self {
        match session.document_format() {
            Some(format) => Self::Documents(format, LineSplitter::new(pod)),
            None if session.out.answers_to_terminal => Self::Terminal(StreamEscaper::default()),
            None => Self::Raw,
        }
    }

    fn write(&mut self, out: &mut Streams, chunk: &[u8]) -> Result<(), Error> {
        match self {
            Self::Raw => out.raw(chunk),
            Self::Terminal(escaper) => out.raw(escaper.push(chunk).as_bytes()),
            Self::Documents(format, splitter) => {
                splitter.push(chunk).iter().try_for_each(|line| out.document(*format, line))
            }
        }
    }

    /// Writes the unfinished line.
    fn finish(&mut self, out: &mut Streams) -> Result<(), Error> {
        if let Self::Documents(format, splitter) = self
            && let Some(line) = splitter.finish()
        {
            out.document(*format, &line)?;
        }
        Ok(())
    }

    /// Writes a note to standard error, and into the documents.
    fn note(&mut self, out: &mut Streams, note: &str) -> Result<(), Error> {
        self.finish(out)?;
        if let Self::Documents(format, _) = self {
            out.document(*format, &json!({"note": note}))?;
        }
        out.note(note);
        Ok(())
    }
}

pub(in crate::commands) async fn run(session: &mut Session, args: LogsArgs) -> Result<(), Error> {
    let namespace = session.namespace()?;
    let attempt = match (args.attempt, args.previous) {
        (Some(number), _) => LogAttempt::Number(number),
        (None, true) => LogAttempt::Previous,
        (None, false) => LogAttempt::Newest,
    };
    let query = LogQuery { follow: args.follow, pod: args.pod, tail: args.tail, attempt };
    let client = session.client()?;
    let mut stream = client.log(&namespace, &args.name, query);
    stream.open().await?;
    let mut reader = LogReader {
        client: client.clone(),
        namespace: namespace.clone(),
        name: args.name.clone(),
        query,
        is_empty: true,
        writer: LogWriter::of(session, args.pod),
        noted: String::new(),
    };
    let result = reader.read(session, stream).await;
    reader.writer.finish(&mut session.out)?;
    result?;
    match args.pod {
        // The log doesn't distinguish a silent pod from a missing one.
        Some(pod) if reader.is_empty => check_pod_exists(&client, &namespace, &args.name, pod).await,
        _ => Ok(()),
    }
}

/// Reads a job's output, attempt by attempt if the job is followed.
struct LogReader {
    client: Client,
    namespace: String,
    name: JobName,
    query: LogQuery,
    /// Whether nothing was printed so far.
    is_empty: bool,
    writer: LogWriter,
    /// The last note on the attempts.
    noted: String,
}

impl LogReader {
    async fn read(&mut self, session: &mut Session, mut stream: LogStream) -> Result<(), Error> {
        loop {
            let lost = match self.copy(session, &mut stream).await {
                Ok(()) => None,
                Err(Error::Client(error @ client::Error::LogLost { .. })) => Some(error),
                Err(error) => return Err(error),
            };
            let attempt = stream.attempt().cloned().or_else(|| match stream.query().attempt {
                // An attempt that ended before its log was opened.
                LogAttempt::Number(number) => Some(AttemptId { number, fence: String::new() }),
                LogAttempt::Newest | LogAttempt::Previous => None,
            });
            let follows_job = self.query.follow && self.query.attempt == LogAttempt::Newest;
            let (true, Some(attempt)) = (follows_job, attempt) else {
                return lost.map_or(Ok(()), |error| Err(error.into()));
            };
            let Some(next) = self.next_attempt(session, &attempt, lost).await? else { return Ok(()) };
            if next != attempt.number {
                // `--tail` limits the first attempt only.
                let query = LogQuery { attempt: LogAttempt::Number(next), tail: None, ..self.query };
                stream = self.client.log(&self.namespace, &self.name, query);
            }
        }
    }

    /// Prints the output of one attempt.
    async fn copy(&mut self, session: &mut Session, stream: &mut LogStream) -> Result<(), Error> {
        while let Some(event) = stream.next().await? {
            match event {
                LogEvent::Output(chunk) => {
                    self.is_empty = false;
                    self.writer.write(&mut session.out, &chunk)?;
                    if self.query.follow {
                        session.out.flush()?;
                    }
                }
                LogEvent::Note(note) => self.writer.note(&mut session.out, &note)?,
            }
        }
        Ok(())
    }

    /// Waits until the job has a further attempt, or has finished: `None`. With `lost`, the attempt's log
    /// can't be read now: while the attempt continues, its own number is returned, to try again.
    async fn next_attempt(
        &mut self,
        session: &mut Session,
        attempt: &AttemptId,
        lost: Option<client::Error>,
    ) -> Result<Option<u64>, Error> {
        let mut pauses = if lost.is_some() { ASK_LOST } else { ASK_FIRST };
        let mut failures = 0;
        loop {
            let explained = match self.client.why(&self.namespace, &self.name).await {
                Ok(explained) => explained,
                Err(error) if error.is_not_found() => {
                    self.writer.note(&mut session.out, "the job was deleted")?;
                    return Ok(None);
                }
                Err(error) if error.is_temporary() && failures < ASK_FAILURES_MAX => {
                    // The tries to resume the lost log have already waited for the manager.
                    if let Some(lost) = lost {
                        return Err(lost.into());
                    }
                    failures += 1;
                    pause(&mut pauses).await;
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            failures = 0;
            match (attempts::after(&explained, attempt), &lost) {
                (Afterwards::Attempt { number, note }, lost) => {
                    let unread = lost.as_ref().map(|_| "; the rest of its output can't be read");
                    self.writer.note(&mut session.out, &format!("{note}{}", unread.unwrap_or_default()))?;
                    return Ok(Some(number));
                }
                (Afterwards::Finished, None) => return Ok(None),
                (Afterwards::Finished, Some(error)) => return Err(Error::Refused(error.to_string())),
                (Afterwards::Gone, _) => {
                    self.writer.note(&mut session.out, "the job was deleted")?;
                    return Ok(None);
                }
                (Afterwards::Pending { note }, lost) => {
                    let waits = match lost {
                        Some(error) if note.is_empty() => format!("waiting for the output: {error}"),
                        _ => note,
                    };
                    if !waits.is_empty() && self.noted != waits {
                        self.writer.note(&mut session.out, &waits)?;
                        self.noted = waits;
                    }
                    pause(&mut pauses).await;
                    if lost.is_some() {
                        return Ok(Some(attempt.number));
                    }
                }
            }
        }
    }
}

/// Waits before the manager is asked again, each time a little longer.
async fn pause(pauses: &mut Duration) {
    tokio::time::sleep(*pauses).await;
    *pauses = (*pauses * 2).min(ASK_AT_LEAST_EVERY);
}

/// Fails if the job has no such pod.
async fn check_pod_exists(client: &Client, namespace: &str, name: &JobName, pod: u32) -> Result<(), Error> {
    // `name` may be a workload's; then the number of pods stays unchecked.
    let mut found = None;
    for kind in JobKind::all().filter(|kind| name.kind().is_none_or(|named| named == kind.kind())) {
        if let Ok(job) = client.get(kind.kind(), Some(namespace), name.name()).await {
            found = Some((kind, job));
            break;
        }
    }
    let Some((kind, job)) = found else { return Ok(()) };
    let completions = kind.completions(&job).and_then(Value::as_u64).unwrap_or(0);
    let pods = u64::from(kind.pods(&job).unwrap_or(1)).max(completions);
    if u64::from(pod) < pods {
        return Ok(());
    }
    let known = if pods == 1 {
        "its only pod is 0".to_owned()
    } else {
        format!("its pods are 0 to {}", pods.saturating_sub(1))
    };
    Err(Error::Refused(format!("job `{}` has no pod {pod}: {known}", name.name())))
}
