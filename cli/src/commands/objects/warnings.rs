//! The manager's warnings about objects, with the file, line and column of the field that they name.

use crate::files::Texts;
use crate::session::Session;
use meridian_objects::{FilePosition, Located, Object, Parsed};

/// A warning of the manager. `object` is `None` if the warning is about the whole request.
pub(super) struct ManagerWarning<'a> {
    pub(super) object: Option<&'a Located<Object>>,
    pub(super) text: &'a str,
}

/// The messages that were printed while the files were read. The manager repeats them, without their lines.
pub(super) fn printed(parsed: &Parsed<Object>) -> Vec<String> {
    parsed.warnings.iter().map(|warning| warning.message.clone()).collect()
}

/// Prints the warnings that aren't among those `printed` already.
pub(super) fn show(
    session: &mut Session,
    warnings: &[ManagerWarning<'_>],
    texts: &Texts,
    printed: &[String],
) {
    let new: Vec<_> = warnings
        .iter()
        .filter(|warning| !printed.iter().any(|known| warning.text.contains(known.as_str())))
        .collect();
    let fields: Vec<(&FilePosition, &str)> =
        new.iter().filter_map(|warning| Some((&warning.object?.place, field(warning.text)))).collect();
    let mut places = texts.places_of(&fields).into_iter();
    for ManagerWarning { object, text } in new {
        match (object, object.and_then(|_| places.next())) {
            (Some(object), Some(place)) => {
                session.out.warn(format!("{place}: `{}`: {text}", object.value.title()))
            }
            _ => session.out.warn(text),
        }
    }
}

/// The field in front of a warning's text; empty if it names none.
fn field(warning: &str) -> &str {
    let first = warning.split_once(": ").map_or("", |(first, _)| first);
    if first.contains(char::is_whitespace) || first.contains('`') { "" } else { first }
}
