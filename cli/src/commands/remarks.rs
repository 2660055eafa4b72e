//! What the manager remarks on objects that it takes, with the places of their fields in the files that they were read from.

use crate::files::Texts;
use crate::session::Session;
use meridian_objects::{Located, Object, Parsed, Place};

/// What was shown of the files already: the manager finds it again, and can't know the lines.
pub(super) fn said(parsed: &Parsed<Object>) -> Vec<String> {
    parsed.warnings.iter().map(|warning| warning.message.clone()).collect()
}

/// Shows the remarks: each on an object, or on none that is known here.
pub(super) fn show(
    session: &mut Session,
    remarks: &[(Option<&Located<Object>>, &str)],
    texts: &Texts,
    said: &[String],
) {
    let news: Vec<_> =
        remarks.iter().filter(|(_, text)| !said.iter().any(|known| text.contains(known.as_str()))).collect();
    let fields: Vec<(&Place, &str)> =
        news.iter().filter_map(|(object, text)| Some((&object.as_ref()?.place, field(text)))).collect();
    let mut places = texts.places_of(&fields).into_iter();
    for (object, text) in news {
        match (object, object.and_then(|_| places.next())) {
            (Some(object), Some(place)) => {
                session.out.warn(format!("{place}: `{}`: {text}", object.value.title()))
            }
            _ => session.out.warn(text),
        }
    }
}

/// The field that a remark begins with; nothing where it begins with words.
fn field(remark: &str) -> &str {
    let first = remark.split_once(": ").map_or("", |(first, _)| first);
    if first.contains(char::is_whitespace) || first.contains('`') { "" } else { first }
}
