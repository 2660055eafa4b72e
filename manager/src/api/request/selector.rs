//! `labelSelector` and `fieldSelector` of a list or a watch.

use crate::api::response::error::Error;
use meridian_manager_core::facts::key::Key;
use meridian_shared::gang::{LabelSelector, Operator, Requirement};
use serde_json::Value;
use std::collections::BTreeMap;

/// Longest selector in bytes; users write a few dozen.
const SELECTOR_BYTES_MAX: usize = 8 * 1024;
/// The supported fields.
const FIELDS: [&str; 2] = ["metadata.name", "metadata.namespace"];

/// Selects objects by labels, name and namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Selector {
    labels: LabelSelector,
    fields: Vec<FieldRequirement>,
}

/// The condition `FIELD=VALUE` or, if not `equal`, `FIELD!=VALUE`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct FieldRequirement {
    field: &'static str,
    equal: bool,
    value: String,
}

impl Selector {
    /// Reads both selectors; empty ones select everything. Fails if one is malformed or too long.
    pub(crate) fn parse(labels: &str, fields: &str) -> Result<Self, Error> {
        if labels.len().max(fields.len()) > SELECTOR_BYTES_MAX {
            return Err(Error::BadRequest(format!("a selector has more than {SELECTOR_BYTES_MAX} bytes")));
        }
        let mut selector = Self::default();
        let wrong =
            |why: String| Error::BadRequest(format!("unable to parse `labelSelector` `{labels}`: {why}"));
        if !labels.trim().is_empty() {
            for part in split(labels).map_err(&wrong)? {
                selector.labels.match_expressions.push(requirement(part.trim()).map_err(&wrong)?);
            }
        }
        for part in fields.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            selector.fields.push(field(part)?);
        }
        Ok(selector)
    }

    /// Narrows the selection to one name.
    pub(crate) fn restrict_to(&mut self, name: &str) {
        self.fields.push(FieldRequirement { field: FIELDS[0], equal: true, value: name.to_owned() });
    }

    /// The only name that is selected, if there is one.
    pub(crate) fn name(&self) -> Option<&str> {
        self.fields
            .iter()
            .find(|requirement| requirement.equal && requirement.field == FIELDS[0])
            .map(|requirement| requirement.value.as_str())
    }

    /// Whether a change of an object can change whether it is selected.
    pub(crate) fn by_labels(&self) -> bool {
        !self.labels.match_expressions.is_empty()
    }

    /// Whether this object is selected.
    pub(crate) fn selects(&self, key: &Key, value: &Value) -> bool {
        let field = |name: &str| {
            if name == FIELDS[0] { &*key.name } else { key.namespace.as_deref().unwrap_or_default() }
        };
        self.fields.iter().all(|r| (field(r.field) == r.value) == r.equal)
            && (!self.by_labels() || self.labels.matches(&labels_of(value)))
    }
}

fn labels_of(value: &Value) -> BTreeMap<String, String> {
    let labels = value.pointer("/metadata/labels").and_then(Value::as_object);
    labels
        .into_iter()
        .flatten()
        .filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())))
        .collect()
}

fn field(part: &str) -> Result<FieldRequirement, Error> {
    let signs = [("!=", false), ("==", true), ("=", true)];
    let (name, equal, value) = signs
        .into_iter()
        .find_map(|(sign, equal)| part.split_once(sign).map(|(name, value)| (name, equal, value)))
        .ok_or_else(|| {
            Error::BadRequest(format!("`{part}` in `fieldSelector` is not `FIELD=VALUE` or `FIELD!=VALUE`"))
        })?;
    let known = FIELDS.into_iter().find(|known| *known == name.trim());
    let known = known.ok_or_else(|| {
        Error::BadRequest(format!("field label not supported: `{name}`; select by {}", FIELDS.join(" or ")))
    })?;
    Ok(FieldRequirement { field: known, equal, value: value.trim().to_owned() })
}

/// The parts between commas outside of parentheses.
fn split(text: &str) -> Result<Vec<&str>, String> {
    let (mut parts, mut start, mut inside) = (Vec::new(), 0, false);
    for (at, c) in text.char_indices() {
        match c {
            '(' if inside => return Err("`(` inside `(`".to_owned()),
            ')' if !inside => return Err("`)` without `(`".to_owned()),
            '(' => inside = true,
            ')' => inside = false,
            ',' if !inside => {
                parts.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    if inside {
        return Err("`(` without `)`".to_owned());
    }
    parts.push(&text[start..]);
    Ok(parts)
}

fn requirement(part: &str) -> Result<Requirement, String> {
    if let Some(absent) = part.strip_prefix('!') {
        return Ok(Requirement { key: key(absent)?, operator: Operator::DoesNotExist, values: Vec::new() });
    }
    if let Some(list) = part.strip_suffix(')') {
        let (head, list) = list.split_once('(').ok_or("`)` without `(`")?;
        let operator = match head.split_whitespace().collect::<Vec<_>>()[..] {
            [_, "in"] => Operator::In,
            [_, "notin"] => Operator::NotIn,
            _ => return Err(format!("`{part}` is not `KEY in (A,B)` or `KEY notin (A,B)`")),
        };
        let name = head.split_whitespace().next().unwrap_or_default();
        return Ok(Requirement {
            key: key(name)?,
            operator,
            values: list.split(',').map(value).collect::<Result<_, _>>()?,
        });
    }
    // the longer operators first: `a!=b` and `a==b` contain `=` too
    for (sign, operator) in [
        ("!=", Operator::NotIn),
        ("==", Operator::In),
        ("=", Operator::In),
        (">", Operator::Gt),
        ("<", Operator::Lt),
    ] {
        if let Some((left, right)) = part.split_once(sign) {
            let right = value(right)?;
            if matches!(operator, Operator::Gt | Operator::Lt) && right.parse::<i64>().is_err() {
                return Err(format!("`{right}` after `{sign}` is not a whole number"));
            }
            return Ok(Requirement { key: key(left)?, operator, values: vec![right] });
        }
    }
    Ok(Requirement { key: key(part)?, operator: Operator::Exists, values: Vec::new() })
}

fn key(text: &str) -> Result<String, String> {
    let text = text.trim();
    let (prefix, name) = text.split_once('/').unwrap_or(("a", text));
    if !prefix.is_empty() && !name.is_empty() && is_word(prefix) && is_word(name) {
        Ok(text.to_owned())
    } else {
        Err(format!("`{text}` is not a label key"))
    }
}

fn value(text: &str) -> Result<String, String> {
    let text = text.trim();
    if is_word(text) { Ok(text.to_owned()) } else { Err(format!("`{text}` is not a label value")) }
}

/// Whether `text` is empty, or has only letters, digits, `-`, `_` and `.` with a letter or digit at both
/// ends.
fn is_word(text: &str) -> bool {
    let ends = |byte: Option<&u8>| byte.is_none_or(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    ends(bytes.first())
        && ends(bytes.last())
        && bytes.iter().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use meridian_objects::Kind;
    use serde_json::json;

    #[test]
    fn selectors_select() {
        let key = Key::namespaced(Kind::Job, "default", "train");
        let job =
            json!({"metadata": {"labels": {"team": "vision", "n": "7", "kueue.x-k8s.io/queue-name": "q"}}});
        let check = |labels: &str, fields: &str, expect: bool| {
            assert_eq!(
                Selector::parse(labels, fields).unwrap().selects(&key, &job),
                expect,
                "{labels} {fields}"
            );
        };
        for yes in [
            "",
            "team=vision",
            "team==vision,n>3",
            "team in (vision, nlp),!debug",
            "team!=x,absent!=x",
            "kueue.x-k8s.io/queue-name",
            "n notin (1,2),n<9",
        ] {
            check(yes, "", true);
        }
        for no in ["team=x", "debug", "!team", "team notin (vision)", "team in (a,b)", "n>7"] {
            check(no, "", false);
        }
        check("", "metadata.name=train", true);
        check("", "metadata.name!=train", false);
        check("team=vision", "metadata.name==train,metadata.namespace=default", true);
        check("", "metadata.namespace=other", false);
    }

    #[test]
    fn malformed_selectors_are_explained() {
        for (labels, fields, why) in [
            ("a=b,,c", "", "`` is not a label key"),
            ("a in (b", "", "`(` without `)`"),
            ("a of (b)", "", "is not `KEY in (A,B)`"),
            ("a=b c", "", "`b c` is not a label value"),
            ("n>x", "", "not a whole number"),
            ("", "status.phase=Running", "field label not supported: `status.phase`"),
            ("", "metadata.name", "is not `FIELD=VALUE`"),
            (&"a".repeat(SELECTOR_BYTES_MAX + 1), "", "more than"),
        ] {
            let error = Selector::parse(labels, fields).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
    }
}
