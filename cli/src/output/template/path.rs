//! kubectl's paths, translated to RFC 9535.
//!
//! | kubectl | RFC 9535 |
//! |---|---|
//! | `.metadata.name`, `metadata.name` | `$['metadata']['name']` |
//! | `.metadata.labels.a\.b/c` | `$['metadata']['labels']['a.b/c']` |
//! | `.items[?(@.spec.queue-name=="x")]` | `$['items'][?(@['spec']['queue-name']=="x")]` |

use serde_json::Value;
use serde_json_path::JsonPath;
use std::iter::Peekable;
use std::str::Chars;

/// A path into a document.
#[derive(Clone, Debug)]
pub(crate) struct Path {
    path: JsonPath,
    /// Whether it begins at the document, even inside a range.
    from_root: bool,
}

impl Path {
    /// Reads a path, with or without a leading dot or braces. Fails with what is wrong with it.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let trimmed = text.trim();
        let inner =
            trimmed.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')).unwrap_or(trimmed).trim();
        let from_root = inner.starts_with('$');
        let rest = inner.strip_prefix(['$', '@']).unwrap_or(inner);
        let mut standard = "$".to_owned();
        let wrong = |why: String| format!("`{text}` is not a path: {why}");
        translate(&mut rest.chars().peekable(), &mut standard, false).map_err(wrong)?;
        let path = JsonPath::parse(&standard).map_err(|error| wrong(error.to_string()))?;
        Ok(Self { path, from_root })
    }

    /// Everything at the path: from `root` if the path begins with `$`, else from `current`.
    pub(crate) fn find<'v>(&self, root: &'v Value, current: &'v Value) -> Vec<&'v Value> {
        self.path.query(if self.from_root { root } else { current }).all()
    }
}

/// Translates segments up to the end of the text, or in a filter up to an operator.
fn translate(chars: &mut Peekable<Chars<'_>>, out: &mut String, in_filter: bool) -> Result<(), String> {
    while let Some(&next) = chars.peek() {
        match next {
            '[' => translate_brackets(chars, out)?,
            '.' => {
                chars.next();
                if chars.next_if_eq(&'.').is_some() {
                    out.push_str("..");
                    if chars.peek() == Some(&'[') {
                        continue;
                    }
                    let name = name(chars, in_filter)?;
                    out.push_str(if name == "*" { "*" } else { "" });
                    if name != "*" {
                        push_name(out, &name);
                    }
                } else if !matches!(chars.peek(), None | Some('[')) && !ends(chars.peek(), in_filter) {
                    let name = name(chars, in_filter)?;
                    push_name(out, &name);
                }
            }
            other if in_filter && is_operator(other) => return Ok(()),
            _ => {
                let name = name(chars, in_filter)?;
                push_name(out, &name);
            }
        }
    }
    Ok(())
}

fn push_name(out: &mut String, name: &str) {
    if name == "*" {
        out.push_str("[*]");
    } else {
        out.push_str("['");
        for c in name.chars() {
            if matches!(c, '\'' | '\\') {
                out.push('\\');
            }
            out.push(c);
        }
        out.push_str("']");
    }
}

fn ends(next: Option<&char>, in_filter: bool) -> bool {
    next.is_none_or(|next| in_filter && is_operator(*next))
}

fn is_operator(c: char) -> bool {
    c.is_whitespace() || matches!(c, '=' | '!' | '<' | '>' | '&' | '|' | '(' | ')' | ',')
}

/// A field's name; a backslash in front of a character takes it literally.
fn name(chars: &mut Peekable<Chars<'_>>, in_filter: bool) -> Result<String, String> {
    let mut name = String::new();
    while let Some(&next) = chars.peek() {
        if matches!(next, '.' | '[') || (in_filter && is_operator(next)) {
            break;
        }
        chars.next();
        match next {
            '\\' => name.push(chars.next().ok_or("it ends with a backslash")?),
            ']' | '{' | '}' => return Err(format!("`{next}` is not expected here")),
            c if c.is_whitespace() => return Err("a name has no blanks; write ['a b']".to_owned()),
            c => name.push(c),
        }
    }
    if name.is_empty() { Err("a name is missing".to_owned()) } else { Ok(name) }
}

/// `[…]`: an index, a slice, names, or a filter.
fn translate_brackets(chars: &mut Peekable<Chars<'_>>, out: &mut String) -> Result<(), String> {
    let mut depth = 0_u32;
    while let Some(c) = chars.next() {
        match c {
            '[' => depth += 1,
            ']' => depth -= 1,
            '\'' | '"' => {
                push_quoted(chars, c, out)?;
                continue;
            }
            '@' | '$' => {
                out.push(c);
                translate(chars, out, true)?;
                continue;
            }
            _ => {}
        }
        out.push(c);
        if depth == 0 {
            return Ok(());
        }
    }
    Err("`]` is missing".to_owned())
}

/// A quoted text. A backslash is needless in front of a dot or slash, and an error in RFC 9535.
fn push_quoted(chars: &mut Peekable<Chars<'_>>, quote: char, out: &mut String) -> Result<(), String> {
    out.push(quote);
    while let Some(c) = chars.next() {
        if c == '\\' {
            match chars.next().ok_or("a quote is missing")? {
                plain @ ('.' | '-' | '_') => out.push(plain),
                escaped => out.extend(['\\', escaped]),
            }
            continue;
        }
        out.push(c);
        if c == quote {
            return Ok(());
        }
    }
    Err(format!("`{quote}` is missing"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn kubectls_paths_are_understood() {
        let object = json!({
            "metadata": {"name": "a", "labels": {"kueue.x-k8s.io/queue-name": "gpus"}},
            "status": {"conditions": [{"type": "Ready", "status": "True", "n-1": 3}, {"type": "Old"}]},
        });
        let check = |path: &str, expect: Value| {
            let found = Path::parse(path).unwrap();
            let found: Vec<Value> = found.find(&object, &object).into_iter().cloned().collect();
            assert_eq!(Value::Array(found), expect, "{path}");
        };
        check(".metadata.name", json!(["a"]));
        check("metadata.name", json!(["a"]));
        check("{.metadata.name}", json!(["a"]));
        check("$.metadata['name']", json!(["a"]));
        check(r".metadata.labels.kueue\.x-k8s\.io/queue-name", json!(["gpus"]));
        check(r".metadata.labels['kueue\.x-k8s\.io/queue-name']", json!(["gpus"]));
        check(".status.conditions[*].type", json!(["Ready", "Old"]));
        check(".status.conditions[-1].type", json!(["Old"]));
        check(".status.conditions[0:1].type", json!(["Ready"]));
        check(r#".status.conditions[?(@.type=="Ready")].status"#, json!(["True"]));
        check(".status.conditions[?(@.n-1 > 2)].type", json!(["Ready"]));
        check(".status.conditions[?(@.status)].type", json!(["Ready"]));
        check("..type", json!(["Ready", "Old"]));
        check(".status.*[0].type", json!(["Ready"]));
        check(".nothing.here", json!([]));
        check(".", json!([object]));
    }

    #[test]
    fn wrong_paths_are_refused() {
        for path in [".items[", ".items]", ".a b", "..", ".items[?(@.x==)]", ".a['b]"] {
            let error = Path::parse(path).unwrap_err();
            assert!(error.starts_with(&format!("`{path}` is not a path: ")), "{error}");
        }
    }
}
