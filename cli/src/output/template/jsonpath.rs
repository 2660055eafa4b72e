//! `-o jsonpath=…`: literal text with paths, quoted text and ranges in braces.

use super::path::Path;
use super::plain;
use serde_json::Value;

/// A part of a template.
#[derive(Clone, Debug)]
enum Part {
    Text(String),
    /// Everything at the path, separated by blanks.
    Path(Path),
    /// The parts once for everything at the path.
    Range(Path, Vec<Part>),
}

#[derive(Clone, Debug)]
pub(crate) struct JsonPathTemplate(Vec<Part>);

impl JsonPathTemplate {
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        if !text.contains('{') && text.starts_with(['.', '$', '[']) {
            return Ok(Self(vec![Part::Path(Path::parse(text)?)]));
        }
        // The parts of the template, and of each open range with its path.
        let (mut parts, mut open): (Vec<Part>, Vec<(Path, Vec<Part>)>) = (Vec::new(), Vec::new());
        let mut rest = text;
        while !rest.is_empty() {
            let (literal, after) =
                rest.split_once('{').map_or((rest, None), |(text, rest)| (text, Some(rest)));
            if !literal.is_empty() {
                parts.push(Part::Text(literal.to_owned()));
            }
            let Some(after) = after else { break };
            let end = closing_brace(after).ok_or_else(|| format!("`{{{after}` has no closing brace"))?;
            let inner = after[..end].trim();
            rest = &after[end + 1..];
            if let Some(path) = inner.strip_prefix("range ") {
                open.push((Path::parse(path)?, std::mem::take(&mut parts)));
            } else if inner == "end" {
                let (path, before) = open.pop().ok_or("`{end}` without `{range …}`")?;
                let inside = std::mem::replace(&mut parts, before);
                parts.push(Part::Range(path, inside));
            } else if let Some(quote) = inner.chars().next().filter(|c| matches!(c, '"' | '\'')) {
                parts.push(Part::Text(unquote(inner, quote)?));
            } else {
                parts.push(Part::Path(Path::parse(inner)?));
            }
        }
        if open.is_empty() { Ok(Self(parts)) } else { Err("`{range …}` without `{end}`".to_owned()) }
    }

    pub(super) fn show(&self, document: &Value) -> String {
        let mut text = String::new();
        show(&self.0, document, document, &mut text);
        text
    }
}

fn show(parts: &[Part], root: &Value, current: &Value, text: &mut String) {
    for part in parts {
        match part {
            Part::Text(literal) => text.push_str(literal),
            Part::Path(path) => {
                let found: Vec<String> = path.find(root, current).into_iter().map(plain).collect();
                text.push_str(&found.join(" "));
            }
            Part::Range(path, inside) => {
                path.find(root, current).into_iter().for_each(|item| show(inside, root, item, text));
            }
        }
    }
}

/// The place of the brace that ends an action; braces in quotes don't.
fn closing_brace(text: &str) -> Option<usize> {
    let (mut quote, mut escaped) = (None, false);
    for (at, c) in text.char_indices() {
        match (quote, c) {
            _ if escaped => escaped = false,
            (_, '\\') => escaped = true,
            (Some(open), c) if open == c => quote = None,
            (None, '"' | '\'') => quote = Some(c),
            (None, '}') => return Some(at),
            _ => {}
        }
    }
    None
}

/// The text in quotes, with `\n`, `\t`, `\r`, `\\` and quotes.
fn unquote(text: &str, quote: char) -> Result<String, String> {
    let wrong = || format!("`{text}` is not one text in quotes");
    let inner = text.strip_prefix(quote).and_then(|rest| rest.strip_suffix(quote)).ok_or_else(wrong)?;
    let (mut plain, mut chars) = (String::new(), inner.chars());
    while let Some(c) = chars.next() {
        match c {
            '\\' => plain.push(match chars.next().ok_or_else(wrong)? {
                'n' => '\n',
                't' => '\t',
                'r' => '\r',
                other => other,
            }),
            c if c == quote => return Err(wrong()),
            c => plain.push(c),
        }
    }
    Ok(plain)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn templates_have_text_paths_and_ranges() {
        let list = json!({"kind": "List", "items": [
            {
                "metadata": {"name": "a"}, "spec": {"n": 1, "on": true},
                "status": {"pods": [{"i": 0}, {"i": 1}]},
            },
            {"metadata": {"name": "b"}, "spec": {"n": 2}, "status": {}},
        ]});
        let check = |template: &str, expect: &str| {
            assert_eq!(JsonPathTemplate::parse(template).unwrap().show(&list), expect, "{template}");
        };
        check("{.items[*].metadata.name}", "a b");
        check(".items[*].metadata.name", "a b");
        check("plain", "plain");
        check("{.items[0].spec}", r#"{"n":1,"on":true}"#);
        check(r#"{range .items[*]}{.metadata.name}={.spec.n}{"\n"}{end}"#, "a=1\nb=2\n");
        check(
            r#"{range .items[*]}{@.metadata.name}:{range .status.pods[*]}<{.i} of {$.kind}>{end};{end}"#,
            "a:<0 of List><1 of List>;b:;",
        );
        check("{'it\\'s'} {.none}|{.items[?(@.spec.on==true)].metadata.name}", "it's |a");
        check(r#"{.items[?(@.metadata.name=="}")].spec}"#, "");
    }

    #[test]
    fn wrong_templates_are_refused() {
        let check = |template: &str, expect: &str| {
            let error = JsonPathTemplate::parse(template).unwrap_err();
            assert!(error.contains(expect), "{template}: {error}");
        };
        check("{.a", "no closing brace");
        check("{range .items[*]}{.a}", "without `{end}`");
        check("{end}", "without `{range …}`");
        check("{.a[}", "`]` is missing");
        check(r#"{"a" "b"}"#, "not one text in quotes");
    }
}
