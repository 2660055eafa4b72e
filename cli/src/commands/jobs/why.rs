//! `why`: the manager's explanation of a job.

use super::explanation::Explanation;
use crate::args::{Format, WhyArgs};
use crate::error::Error;
use crate::session::Session;

pub(in crate::commands) async fn run(session: &mut Session, args: WhyArgs) -> Result<(), Error> {
    let namespace = session.namespace()?;
    let answer = session.client()?.why(&namespace, &args.name).await?;
    match session.format() {
        Some(Format::Json) => session.out.json(&answer),
        Some(Format::Yaml) => session.out.yaml(&answer),
        Some(Format::Wide | Format::Name | Format::Text) | None => {
            let explanation = Explanation::parse(answer).map_err(|why| Error::render("text", why))?;
            let text = explanation.text(session.now(), session.out.colour);
            session.out.raw(text.as_bytes())
        }
    }
}
