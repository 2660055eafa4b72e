//! `logs`: a job's output as it is, made safe only where a terminal would obey it; or one document for each line.

use crate::args::LogsArgs;
use crate::client::{Client, LogPiece, LogQuery};
use crate::error::Error;
use crate::log_lines::Lines;
use crate::printable;
use crate::session::Session;
use meridian_objects::Kind;
use serde_json::{Value, json};

pub(super) async fn run(session: &mut Session, args: LogsArgs) -> Result<(), Error> {
    let namespace = session.namespace()?;
    let query = LogQuery { follow: args.follow, pod: args.pod, tail: args.tail };
    let client = session.client()?;
    let mut stream = client.logs(&namespace, &args.name, query).await?;
    let mut empty = true;
    let mut lines = session.stream().map(|format| (format, Lines::new(args.pod)));
    let mut safe = session.out.answers_to_terminal.then(printable::Stream::default);
    let broke_off = loop {
        let piece = match stream.next().await {
            Ok(Some(piece)) => piece,
            Ok(None) => break None,
            Err(error) => break Some(error),
        };
        let piece = match piece {
            LogPiece::Bytes(piece) => {
                empty = false;
                piece
            }
            LogPiece::Note(note) => {
                if let Some((format, lines)) = &mut lines {
                    if let Some(line) = lines.end() {
                        session.out.document(*format, &line)?;
                    }
                    session.out.document(*format, &json!({"note": note}))?;
                }
                session.out.note(note);
                continue;
            }
        };
        match (&mut lines, &mut safe) {
            (Some((format, lines)), _) => {
                for line in lines.push(&piece) {
                    session.out.document(*format, &line)?;
                }
            }
            (None, Some(safe)) => {
                let text = safe.push(&piece);
                session.out.raw(text.as_bytes())?;
            }
            (None, None) => session.out.raw(&piece)?,
        }
        if args.follow {
            session.out.flush()?;
        }
    };
    if let Some((format, mut lines)) = lines
        && let Some(line) = lines.end()
    {
        session.out.document(format, &line)?;
    }
    if let Some(error) = broke_off {
        return Err(error.into());
    }
    match args.pod {
        // a pod that printed nothing and one that never was look alike in the log
        Some(pod) if empty => is_there(&client, &namespace, &args.name, pod).await,
        _ => Ok(()),
    }
}

/// An error where the job never has such a pod.
async fn is_there(client: &Client, namespace: &str, name: &str, pod: u32) -> Result<(), Error> {
    // a workload's own name serves too, and there the number of pods is nobody's business here
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
