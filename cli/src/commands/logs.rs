//! `logs`: a job's output as it is, made safe only where a terminal would obey it.

use crate::args::LogsArgs;
use crate::client::LogQuery;
use crate::error::Error;
use crate::printable;
use crate::session::Session;

pub(super) async fn run(session: &mut Session, args: LogsArgs) -> Result<(), Error> {
    let namespace = session.namespace()?;
    let query = LogQuery { follow: args.follow, pod: args.pod, tail: args.tail };
    let mut stream = session.client()?.logs(&namespace, &args.name, query).await?;
    let mut safe = session.out.answers_to_terminal.then(printable::Stream::default);
    while let Some(piece) = stream.next().await? {
        match &mut safe {
            Some(safe) => {
                let text = safe.push(&piece);
                session.out.raw(text.as_bytes())?;
            }
            None => session.out.raw(&piece)?,
        }
        if args.follow {
            session.out.flush()?;
        }
    }
    Ok(())
}
