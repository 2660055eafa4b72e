//! YAML of generated files: block style, with short mappings and lists in one line.

use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};

/// Longest line. Longer text is folded at spaces; a word without spaces may be longer.
const COLUMNS_MAX: usize = 138;

/// Keys that come first, and keys that come last. All others are between them, by name.
const FIRST: [&str; 12] = [
    "apiVersion",
    "kind",
    "metadata",
    "name",
    "description",
    "type",
    "format",
    "rule",
    "message",
    "messageExpression",
    "group",
    "names",
];
const LAST: [&str; 7] = [
    "x-kubernetes-validations",
    "required",
    "properties",
    "items",
    "additionalProperties",
    "versions",
    "spec",
];

/// Shortest mapping, in one line, that is written once and referred to afterwards.
const ANCHORED_CHARS_MIN: usize = 300;

/// A document, without `---`. A large mapping that stands in it twice is an anchor at first and an alias
/// afterwards, so that the versions of a kind show how they differ.
pub(crate) fn document(value: &Value) -> String {
    let mut repeated = BTreeSet::new();
    find_repeated(value, &mut BTreeSet::new(), &mut repeated);
    let mut writer = Writer { out: String::new(), repeated, anchors: BTreeMap::new() };
    if let Value::Object(map) = value {
        writer.block_mapping(map, 0);
    }
    writer.out
}

/// Collects the largest mappings that stand in a document twice.
fn find_repeated(value: &Value, seen: &mut BTreeSet<String>, repeated: &mut BTreeSet<String>) {
    match value {
        Value::Object(map) => {
            let text = flow(value);
            if text.chars().count() >= ANCHORED_CHARS_MIN && !seen.insert(text.clone()) {
                repeated.insert(text);
                return;
            }
            for (_, inner) in in_reading_order(map) {
                find_repeated(inner, seen, repeated);
            }
        }
        Value::Array(items) => items.iter().for_each(|inner| find_repeated(inner, seen, repeated)),
        _ => {}
    }
}

struct Writer {
    out: String,
    /// Mappings that stand in the document twice, each in one line.
    repeated: BTreeSet<String>,
    /// Names of the anchors that were written.
    anchors: BTreeMap<String, String>,
}

/// Sorts the keys, because a feature of serde_json decides whether the map keeps the order of insertion.
fn in_reading_order(map: &Map<String, Value>) -> Vec<(&String, &Value)> {
    let place = |key: &str| {
        let first = FIRST.iter().position(|of| *of == key).map(|at| (0, at));
        let last = || LAST.iter().position(|of| *of == key).map(|at| (2, at));
        first.or_else(last).unwrap_or((1, 0))
    };
    let mut entries: Vec<(&String, &Value)> = map.iter().collect();
    entries.sort_by(|(a, _), (b, _)| place(a).cmp(&place(b)).then_with(|| a.cmp(b)));
    entries
}

impl Writer {
    fn block_mapping(&mut self, map: &Map<String, Value>, indent: usize) {
        for (key, value) in in_reading_order(map) {
            self.out.push_str(&" ".repeat(indent));
            self.entry(&format!("{}:", scalar(key)), value, indent);
        }
    }

    fn block_list(&mut self, items: &[Value], indent: usize) {
        for item in items {
            self.out.push_str(&" ".repeat(indent));
            let flow = flow(item);
            match item {
                Value::Object(map) if indent + 2 + flow.chars().count() > COLUMNS_MAX => {
                    // The first key stands beside the dash.
                    let at = self.out.len();
                    self.block_mapping(map, indent + 2);
                    self.out.replace_range(at..at + indent + 2, "- ");
                }
                Value::String(_) => self.entry("-", item, indent),
                _ => self.out.push_str(&format!("- {flow}\n")),
            }
        }
    }

    /// A key or a dash, and its value: in the same line if it fits.
    fn entry(&mut self, head: &str, value: &Value, indent: usize) {
        self.out.push_str(head);
        let flow = flow(value);
        let fits = indent + head.chars().count() + 1 + flow.chars().count() <= COLUMNS_MAX;
        match value {
            Value::Object(_) if self.repeated.contains(&flow) && self.anchors.contains_key(&flow) => {
                self.out.push_str(&format!(" *{}\n", self.anchors[&flow]));
            }
            Value::Object(map) if !map.is_empty() && (!fits || holds_mappings(map)) => {
                if self.repeated.contains(&flow) {
                    let name = self.anchor(head.trim_end_matches(':'));
                    self.out.push_str(&format!(" &{name}"));
                    self.anchors.insert(flow, name);
                }
                self.out.push('\n');
                self.block_mapping(map, indent + 2);
            }
            Value::Array(items) if !items.is_empty() && !fits => {
                self.out.push('\n');
                self.block_list(items, indent);
            }
            Value::String(text) if !fits && folds(text) => fold(text, indent + 2, &mut self.out),
            _ => self.out.push_str(&format!(" {flow}\n")),
        }
    }

    /// A new name for an anchor: that of its key, with a number if there are several.
    fn anchor(&self, key: &str) -> String {
        let used = |name: &String| self.anchors.values().any(|other| other == name);
        let numbered = (2..).map(|number| format!("{key}-{number}"));
        std::iter::once(key.to_owned()).chain(numbered).find(|name| !used(name)).expect("numbers don't end")
    }
}

/// Whether a mapping has several mappings in it: then each gets its own lines.
fn holds_mappings(map: &Map<String, Value>) -> bool {
    map.values().filter(|value| value.as_object().is_some_and(|inner| !inner.is_empty())).count() > 1
}

/// Whether a folded block gives the same text back.
fn folds(text: &str) -> bool {
    !text.contains('\n') && !text.contains("  ") && !text.starts_with(' ') && !text.ends_with(' ')
}

fn fold(text: &str, indent: usize, out: &mut String) {
    out.push_str(" >-\n");
    let mut line = " ".repeat(indent);
    for word in text.split(' ') {
        if line.len() > indent && line.chars().count() + 1 + word.chars().count() > COLUMNS_MAX {
            out.push_str(&line);
            out.push('\n');
            line = " ".repeat(indent);
        }
        if line.len() > indent {
            line.push(' ');
        }
        line.push_str(word);
    }
    out.push_str(&line);
    out.push('\n');
}

/// A value in one line.
fn flow(value: &Value) -> String {
    match value {
        Value::Object(map) => {
            let entries: Vec<String> = in_reading_order(map)
                .into_iter()
                .map(|(key, value)| format!("{}: {}", scalar(key), flow(value)))
                .collect();
            format!("{{{}}}", entries.join(", "))
        }
        Value::Array(items) => format!("[{}]", items.iter().map(flow).collect::<Vec<_>>().join(", ")),
        Value::String(text) => scalar(text),
        other => other.to_string(),
    }
}

/// A plain word where YAML reads it as this string, else JSON, whose strings are YAML's.
fn scalar(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '/' | '_');
    let begins = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '.');
    let reserved = ["true", "false", "null", "yes", "no", "on", "off", "y", "n", ".inf", ".nan"];
    if begins && text.chars().all(is_plain) && !reserved.contains(&text.to_lowercase().as_str()) {
        text.to_owned()
    } else {
        Value::String(text.to_owned()).to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_is_written_reads_back() {
        let long = "a sentence with `ticks`: and colons # and more, ".repeat(6);
        let value = json!({
            "plain": "word", "true": "yes", "empty": {}, "none": [], "number": 3, "text": long.trim_end(),
            "list": [{"a": 1, "b": long.trim_end()}, "x", long.trim_end(), {"c": {"d": "e: f"}}],
            "deep": {"one": {"type": "string"}, "two": {"type": "object", "x": ["NotIn", "In"]}},
            "first": {"same": {"one": {"text": long.trim_end()}, "two": 2}},
            "second": {"same": {"one": {"text": long.trim_end()}, "two": 2}, "other": {"same": {}}},
            "pattern": r"^[a-z]\.\p{Z}$", "leading": format!(" {long}"),
        });
        let text = document(&value);
        assert!(text.contains(" &same\n") && text.contains(" *same\n"), "{text}");
        assert_eq!(serde_saphyr::from_str::<Value>(&text).unwrap(), value, "{text}");
        let widest =
            text.lines().filter(|line| !line.contains("leading")).map(|line| line.chars().count()).max();
        assert!(widest <= Some(COLUMNS_MAX), "{text}");
    }
}
