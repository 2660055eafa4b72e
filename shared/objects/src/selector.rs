//! Label and field selectors in their text form, in API requests and after `-l`.
//!
//! Label selectors follow Kubernetes: `team=vision,tier!=test,zone in (a,b),!debug`; `>` and `<` compare
//! whole numbers. Field selectors are `FIELD=VALUE` and `FIELD!=VALUE`, joined by commas.

use meridian_shared::gang::{LabelSelector, Operator, Requirement};
use std::fmt::Write;

/// Longest selector, in bytes; users write a few dozen.
pub const SELECTOR_BYTES_MAX: usize = 8 * 1024;

/// Why a text is not a selector.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Longer than [`SELECTOR_BYTES_MAX`].
    #[error("a selector has more than {SELECTOR_BYTES_MAX} bytes")]
    TooLong,
    #[error(
        "`{text}` is not a label selector: {reason}; write for example `team=vision,tier!=test,zone in \
            (a,b),!debug`"
    )]
    Labels { text: String, reason: String },
    #[error("`{part}` in the field selector is not `FIELD=VALUE` or `FIELD!=VALUE`")]
    Fields { part: String },
    /// A field by which objects can't be selected.
    #[error("field label not supported: `{field}`; select by {}", known.join(" or "))]
    UnknownField { field: String, known: Vec<&'static str> },
}

/// Reads a label selector; empty text selects everything. Every term becomes an expression.
///
/// # Errors
/// The text is too long, or a term is not one of Kubernetes' forms.
pub fn parse_labels(text: &str) -> Result<LabelSelector, Error> {
    if text.len() > SELECTOR_BYTES_MAX {
        return Err(Error::TooLong);
    }
    let fail = |reason: String| Error::Labels { text: text.to_owned(), reason };
    let mut selector = LabelSelector::default();
    if text.trim().is_empty() {
        return Ok(selector);
    }
    for term in terms(text).map_err(&fail)? {
        selector.match_expressions.push(requirement(term.trim()).map_err(&fail)?);
    }
    Ok(selector)
}

/// The text form of a label selector, which [`parse_labels`] reads.
pub fn format_labels(selector: &LabelSelector) -> String {
    let mut terms: Vec<String> =
        selector.match_labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
    for Requirement { key, operator, values } in &selector.match_expressions {
        let mut term = String::new();
        let list = values.join(",");
        let written = match operator {
            Operator::In if values.len() == 1 => write!(term, "{key}={list}"),
            Operator::In => write!(term, "{key} in ({list})"),
            Operator::NotIn if values.len() == 1 => write!(term, "{key}!={list}"),
            Operator::NotIn => write!(term, "{key} notin ({list})"),
            Operator::Exists => write!(term, "{key}"),
            Operator::DoesNotExist => write!(term, "!{key}"),
            Operator::Gt => write!(term, "{key}>{list}"),
            Operator::Lt => write!(term, "{key}<{list}"),
        };
        written.expect("writing to a string can't fail");
        terms.push(term);
    }
    terms.join(",")
}

/// One term of a field selector.
#[derive(Clone, Debug, PartialEq, Eq)]
struct FieldTerm {
    field: &'static str,
    value: String,
    /// `false` for `!=`.
    equal: bool,
}

/// A field selector: every term must hold. The default selects everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldSelector(Vec<FieldTerm>);

impl FieldSelector {
    /// Reads a field selector over the fields `known`; empty text selects everything.
    ///
    /// # Errors
    /// The text is too long, a term has another form, or names another field.
    pub fn parse(text: &str, known: &[&'static str]) -> Result<Self, Error> {
        if text.len() > SELECTOR_BYTES_MAX {
            return Err(Error::TooLong);
        }
        let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
        parts.map(|part| FieldTerm::parse(part, known)).collect::<Result<_, _>>().map(Self)
    }

    /// Narrows the selector to objects with `value` in `field`.
    pub fn require(&mut self, field: &'static str, value: &str) {
        self.0.push(FieldTerm { field, value: value.to_owned(), equal: true });
    }

    /// The value that the selector requires of `field`, if any.
    pub fn required(&self, field: &str) -> Option<&str> {
        self.0.iter().find(|term| term.equal && term.field == field).map(|term| term.value.as_str())
    }

    /// Whether an object is selected; `value` gives its fields.
    pub fn matches<'v>(&self, value: impl Fn(&'static str) -> &'v str) -> bool {
        self.0.iter().all(|term| (value(term.field) == term.value) == term.equal)
    }
}

impl FieldTerm {
    fn parse(part: &str, known: &[&'static str]) -> Result<Self, Error> {
        let signs = [("!=", false), ("==", true), ("=", true)];
        let (name, equal, value) = signs
            .into_iter()
            .find_map(|(sign, equal)| part.split_once(sign).map(|(name, value)| (name, equal, value)))
            .ok_or_else(|| Error::Fields { part: part.to_owned() })?;
        let field = known.iter().copied().find(|field| *field == name.trim());
        let field = field
            .ok_or_else(|| Error::UnknownField { field: name.trim().to_owned(), known: known.to_vec() })?;
        Ok(Self { field, value: value.trim().to_owned(), equal })
    }
}

/// The terms between commas, except commas within parentheses.
fn terms(text: &str) -> Result<Vec<&str>, String> {
    let (mut terms, mut start, mut inside) = (Vec::new(), 0, false);
    for (at, c) in text.char_indices() {
        match c {
            '(' if inside => return Err("`(` inside `(`".to_owned()),
            ')' if !inside => return Err("`)` without `(`".to_owned()),
            '(' => inside = true,
            ')' => inside = false,
            ',' if !inside => {
                terms.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    if inside {
        return Err("`(` without `)`".to_owned());
    }
    terms.push(&text[start..]);
    Ok(terms)
}

fn requirement(term: &str) -> Result<Requirement, String> {
    // Longer signs first, because `a!=b` and `a==b` also contain `=`.
    const SIGNS: [(&str, Operator); 5] = [
        ("!=", Operator::NotIn),
        ("==", Operator::In),
        ("=", Operator::In),
        (">", Operator::Gt),
        ("<", Operator::Lt),
    ];
    if term.is_empty() {
        return Err("there is nothing between two commas".to_owned());
    }
    if let Some(absent) = term.strip_prefix('!') {
        return Ok(Requirement { key: key(absent)?, operator: Operator::DoesNotExist, values: Vec::new() });
    }
    if let Some(list) = term.strip_suffix(')') {
        return set_requirement(term, list);
    }
    for (sign, operator) in SIGNS {
        let Some((left, right)) = term.split_once(sign) else { continue };
        let right = value(right)?;
        if matches!(operator, Operator::Gt | Operator::Lt) && right.parse::<i64>().is_err() {
            return Err(format!("`{right}` after `{sign}` is not a whole number"));
        }
        return Ok(Requirement { key: key(left)?, operator, values: vec![right] });
    }
    Ok(Requirement { key: key(term)?, operator: Operator::Exists, values: Vec::new() })
}

fn set_requirement(term: &str, list: &str) -> Result<Requirement, String> {
    let (head, list) = list.split_once('(').ok_or_else(|| "`)` without `(`".to_owned())?;
    let mut words = head.split_whitespace();
    let (Some(left), Some(word), None) = (words.next(), words.next(), words.next()) else {
        return Err(format!("`{term}` is not `key in (a,b)` or `key notin (a,b)`"));
    };
    let operator = match word {
        "in" => Operator::In,
        "notin" => Operator::NotIn,
        other => return Err(format!("`{other}` is neither `in` nor `notin`")),
    };
    let values = list.split(',').map(value).collect::<Result<_, _>>()?;
    Ok(Requirement { key: key(left)?, operator, values })
}

fn key(text: &str) -> Result<String, String> {
    let text = text.trim();
    let (prefix, name) = text.split_once('/').unwrap_or(("a", text));
    if is_word(prefix) && is_word(name) && !name.is_empty() && !prefix.is_empty() {
        Ok(text.to_owned())
    } else {
        Err(format!("`{text}` is not a label key"))
    }
}

fn value(text: &str) -> Result<String, String> {
    let text = text.trim();
    if is_word(text) { Ok(text.to_owned()) } else { Err(format!("`{text}` is not a label value")) }
}

/// Letters, digits, `-`, `_` and `.`, beginning and ending with a letter or digit; or nothing. Lengths are
/// not bounded: a longer key or value selects nothing.
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
    use std::collections::BTreeMap;

    const FIELDS: [&str; 2] = ["metadata.name", "metadata.namespace"];

    #[test]
    fn label_selectors_are_read_and_written() {
        let check =
            |text: &str, expect: &str| assert_eq!(format_labels(&parse_labels(text).unwrap()), expect);
        check("", "");
        check(" team = vision , tier!=test", "team=vision,tier!=test");
        check("a==b,c", "a=b,c");
        check("zone in (a, b),kind notin (x),!debug", "zone in (a,b),kind!=x,!debug");
        check("kueue.x-k8s.io/queue-name=q", "kueue.x-k8s.io/queue-name=q");
        check("n>3,n<9,empty=", "n>3,n<9,empty=");
    }

    #[test]
    fn label_selectors_select() {
        let labels: BTreeMap<String, String> =
            [("team", "vision"), ("n", "7"), ("kueue.x-k8s.io/queue-name", "q")]
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .into();
        for yes in [
            "",
            "team=vision",
            "team==vision,n>3",
            "team in (vision, nlp),!debug",
            "team!=x,absent!=x",
            "kueue.x-k8s.io/queue-name",
            "n notin (1,2),n<9",
        ] {
            assert!(parse_labels(yes).unwrap().matches(&labels), "{yes}");
        }
        for no in ["team=x", "debug", "!team", "team notin (vision)", "team in (a,b)", "n>7"] {
            assert!(!parse_labels(no).unwrap().matches(&labels), "{no}");
        }
    }

    #[test]
    fn mistakes_in_label_selectors_are_explained() {
        let check = |text: &str, expect: &str| match parse_labels(text).unwrap_err() {
            Error::Labels { reason, .. } => assert_eq!(reason, expect),
            other => panic!("{other}"),
        };
        check("a=b,,c", "there is nothing between two commas");
        check("zone in (a", "`(` without `)`");
        check("zone of (a)", "`of` is neither `in` nor `notin`");
        check("zone (a)", "`zone (a)` is not `key in (a,b)` or `key notin (a,b)`");
        check("a b", "`a b` is not a label key");
        check("a=b c", "`b c` is not a label value");
        check("n>x", "`x` after `>` is not a whole number");
        check("=x", "`` is not a label key");
        assert_eq!(parse_labels(&"a".repeat(SELECTOR_BYTES_MAX + 1)), Err(Error::TooLong));
    }

    #[test]
    fn field_selectors_select() {
        let check = |text: &str, expect: bool| {
            let selector = FieldSelector::parse(text, &FIELDS).unwrap();
            let field = |name| if name == FIELDS[0] { "train" } else { "default" };
            assert_eq!(selector.matches(field), expect, "{text}");
        };
        check("", true);
        check("metadata.name=train", true);
        check("metadata.name!=train", false);
        check("metadata.name==train, metadata.namespace=default,", true);
        check("metadata.namespace=other", false);
        let mut narrowed = FieldSelector::default();
        narrowed.require(FIELDS[0], "train");
        assert_eq!((narrowed.required(FIELDS[0]), narrowed.required(FIELDS[1])), (Some("train"), None));
    }

    #[test]
    fn mistakes_in_field_selectors_are_explained() {
        let error = |text: &str| FieldSelector::parse(text, &FIELDS).unwrap_err().to_string();
        assert_eq!(
            error("status.phase=Running"),
            "field label not supported: `status.phase`; select by metadata.name or metadata.namespace"
        );
        assert_eq!(
            error("metadata.name"),
            "`metadata.name` in the field selector is not `FIELD=VALUE` or `FIELD!=VALUE`"
        );
    }
}
