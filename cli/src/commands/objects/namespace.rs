//! The namespace of objects from files.

use crate::error::Error;
use crate::session::Session;
use meridian_objects::{Located, Object};

/// Sets the namespace of objects that name none in their file. Fails if a file contradicts `--namespace`.
pub(in crate::commands) fn set_namespaces(
    session: &mut Session,
    mut objects: Vec<Located<Object>>,
) -> Result<Vec<Located<Object>>, Error> {
    for Located { place, value: object } in &mut objects {
        if !object.kind.namespaced() {
            continue;
        }
        match (&object.namespace, session.named_namespace()) {
            (Some(written), Some(named)) if written != named => {
                let title = object.title();
                return Err(Error::Refused(format!(
                    "{place}: `{title}` is in namespace `{written}`, not `{named}`: omit `--namespace`"
                )));
            }
            (Some(_), _) => {}
            (None, _) => object.set_namespace(&session.namespace()?),
        }
    }
    Ok(objects)
}
