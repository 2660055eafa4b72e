//! `logs`: a job's output, escaped only for a terminal; with `-o json` one document per line.

use super::log_lines::LineSplitter;
use crate::args::LogsArgs;
use crate::client::{Client, LogEvent, LogQuery};
use crate::error::Error;
use crate::output::printable::StreamEscaper;
use crate::output::streams::{DocumentFormat, Streams};
use crate::session::Session;
use meridian_objects::Kind;
use serde_json::{Value, json};

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
    let query = LogQuery { follow: args.follow, pod: args.pod, tail: args.tail };
    let client = session.client()?;
    let mut stream = client.logs(&namespace, &args.name, query).await?;
    let mut is_empty = true;
    let mut writer = LogWriter::of(session, args.pod);
    let result = loop {
        match stream.next().await {
            Ok(Some(LogEvent::Output(chunk))) => {
                is_empty = false;
                writer.write(&mut session.out, &chunk)?;
                if args.follow {
                    session.out.flush()?;
                }
            }
            Ok(Some(LogEvent::Note(note))) => writer.note(&mut session.out, &note)?,
            Ok(None) => break Ok(()),
            Err(error) => break Err(error),
        }
    };
    writer.finish(&mut session.out)?;
    result?;
    match args.pod {
        // The log doesn't tell a silent pod from one that doesn't exist.
        Some(pod) if is_empty => check_pod_exists(&client, &namespace, &args.name, pod).await,
        _ => Ok(()),
    }
}

/// Fails if the job has no such pod.
async fn check_pod_exists(client: &Client, namespace: &str, name: &str, pod: u32) -> Result<(), Error> {
    // `name` may be a workload's; then the number of pods stays unchecked.
    let Ok(job) = client.get(Kind::Job, Some(namespace), name).await else { return Ok(()) };
    let count = |pointer| job.pointer(pointer).and_then(Value::as_u64);
    let pods = count("/spec/parallelism").unwrap_or(1).max(count("/spec/completions").unwrap_or(0));
    if u64::from(pod) < pods {
        return Ok(());
    }
    let known = if pods == 1 {
        "its only pod is 0".to_owned()
    } else {
        format!("its pods are 0 to {}", pods.saturating_sub(1))
    };
    Err(Error::Refused(format!("job `{name}` has no pod {pod}: {known}")))
}
