//! Label selectors after `-l`: `team=vision,tier!=test,zone in (a,b),!debug`.
//!
//! They are parsed before anything is sent, so that a slip is a usage error and not an empty list.

use meridian_shared::gang::{LabelSelector, Operator, Requirement};
use std::fmt::Write;

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{text}` is not a label selector: {why}; write it like `team=vision,tier!=test,zone in (a,b),!debug`"
)]
pub(crate) struct Error {
    text: String,
    why: String,
}

/// Parses a selector; empty text selects everything. Fails where `kubectl` would.
pub(crate) fn parse(text: &str) -> Result<LabelSelector, Error> {
    let fail = |why: String| Error { text: text.to_owned(), why };
    let mut selector = LabelSelector::default();
    if text.trim().is_empty() {
        return Ok(selector);
    }
    for part in split(text).map_err(&fail)? {
        selector.match_expressions.push(requirement(part.trim()).map_err(&fail)?);
    }
    Ok(selector)
}

/// The selector as the value of the API's `labelSelector`.
pub(crate) fn to_query(selector: &LabelSelector) -> String {
    let mut parts: Vec<String> =
        selector.match_labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
    for Requirement { key, operator, values } in &selector.match_expressions {
        let mut part = String::new();
        let list = values.join(",");
        let written = match operator {
            Operator::In if values.len() == 1 => write!(part, "{key}={list}"),
            Operator::In => write!(part, "{key} in ({list})"),
            Operator::NotIn if values.len() == 1 => write!(part, "{key}!={list}"),
            Operator::NotIn => write!(part, "{key} notin ({list})"),
            Operator::Exists => write!(part, "{key}"),
            Operator::DoesNotExist => write!(part, "!{key}"),
            Operator::Gt => write!(part, "{key}>{list}"),
            Operator::Lt => write!(part, "{key}<{list}"),
        };
        written.expect("writing to a string can't fail");
        parts.push(part);
    }
    parts.join(",")
}

/// The parts between commas outside parentheses.
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
    if part.is_empty() {
        return Err("nothing between two commas".to_owned());
    }
    if let Some(absent) = part.strip_prefix('!') {
        return Ok(Requirement { key: key(absent)?, operator: Operator::DoesNotExist, values: Vec::new() });
    }
    if let Some(list) = part.strip_suffix(')') {
        return set_requirement(part, list);
    }
    // Longer operators first: `a!=b` and `a==b` contain `=` too.
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

fn set_requirement(part: &str, list: &str) -> Result<Requirement, String> {
    let (head, list) = list.split_once('(').ok_or_else(|| "`)` without `(`".to_owned())?;
    let mut words = head.split_whitespace();
    let (Some(left), Some(word), None) = (words.next(), words.next(), words.next()) else {
        return Err(format!("`{part}` is not `key in (a,b)` or `key notin (a,b)`"));
    };
    let operator = match word {
        "in" => Operator::In,
        "notin" => Operator::NotIn,
        other => return Err(format!("`{other}` is neither `in` nor `notin`")),
    };
    Ok(Requirement {
        key: key(left)?,
        operator,
        values: list.split(',').map(value).collect::<Result<_, _>>()?,
    })
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

/// Letters, digits, `-`, `_` and `.`, beginning and ending with a letter or digit; or nothing.
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

    #[test]
    fn selectors_round_trip() {
        let check = |text: &str, expect: &str| assert_eq!(to_query(&parse(text).unwrap()), expect);
        check("", "");
        check(" team = vision , tier!=test", "team=vision,tier!=test");
        check("a==b,c", "a=b,c");
        check("zone in (a, b),kind notin (x),!debug", "zone in (a,b),kind!=x,!debug");
        check("kueue.x-k8s.io/queue-name=q", "kueue.x-k8s.io/queue-name=q");
        check("n>3,n<9,empty=", "n>3,n<9,empty=");
    }

    #[test]
    fn selectors_match_labels() {
        let labels = BTreeMap::from([("team".to_owned(), "vision".to_owned())]);
        assert!(parse("team in (vision,nlp),!debug").unwrap().matches(&labels));
        assert!(!parse("team!=vision").unwrap().matches(&labels));
    }

    #[test]
    fn errors_name_the_wrong_part() {
        let check = |text: &str, why: &str| assert_eq!(parse(text).unwrap_err().why, why);
        check("a=b,,c", "nothing between two commas");
        check("zone in (a", "`(` without `)`");
        check("zone of (a)", "`of` is neither `in` nor `notin`");
        check("zone (a)", "`zone (a)` is not `key in (a,b)` or `key notin (a,b)`");
        check("a b", "`a b` is not a label key");
        check("a=b c", "`b c` is not a label value");
        check("n>x", "`x` after `>` is not a whole number");
        check("=x", "`` is not a label key");
    }
}
