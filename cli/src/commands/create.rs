//! `create`: one request per object, names made by the manager where a file leaves them open.
//!
//! A failure does not undo what was made before it; it is told, and the rest is tried all the same, as `kubectl` does.

use super::{apply, name_of, reference, remarks, show_done};
use crate::args::CreateArgs;
use crate::error::Error;
use crate::files;
use crate::session::Session;

pub(super) async fn run(session: &mut Session, args: CreateArgs) -> Result<(), Error> {
    let (parsed, texts) = files::objects_with_texts(&args.files, &mut session.stdin, &mut session.out)?;
    let said = remarks::said(&parsed);
    let objects = apply::place(session, parsed.objects)?;
    let client = session.client()?;
    let (mut documents, mut lines, mut warnings, mut failed) = (Vec::new(), Vec::new(), Vec::new(), false);
    for object in &objects {
        let (kind, namespace) = (object.value.kind, object.value.namespace_or_default());
        match client.create(kind, namespace, &object.value.stored).await {
            Ok(made) => {
                lines.push((reference(kind, name_of(&made.object)), "created".to_owned()));
                documents.push(made.object);
                warnings.extend(made.warnings.into_iter().map(|warning| (object, warning)));
            }
            Err(error) => {
                failed = true;
                session.out.note(format!("error: {}: `{}`: {error}", object.place, object.value.title()));
            }
        }
    }
    let found: Vec<_> = warnings.iter().map(|(object, warning)| (Some(*object), warning.as_str())).collect();
    remarks::show(session, &found, &texts, &said);
    if !documents.is_empty() {
        show_done(session, &documents, &lines)?;
    }
    if failed { Err(Error::Reported) } else { Ok(()) }
}
