//! YAML 1.2 (where `yes` is a string, not a boolean) into nodes with positions.

use super::syntax::{
    Key, MAX_DEPTH, MAX_DOCUMENTS, MAX_NODES, Position, SyntaxError, SyntaxNode, SyntaxValue,
};
use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::Number;
use serde_saphyr::budget::BudgetBreach;
use serde_saphyr::options::DuplicateKeyPolicy;
use serde_saphyr::{Error, Location, Options, Spanned};
use std::fmt;

/// Most values that aliases may repeat: enough for ordinary anchors, too few for an alias bomb.
const MAX_REPEATED_EVENTS: usize = 20_000;
/// Most aliases of one text.
const MAX_ALIASES: usize = 2_000;
/// Most anchors of one text.
const MAX_ANCHORS: usize = 1_000;
/// Most merge keys (`<<`) of one text.
const MAX_MERGE_KEYS: usize = 1_000;
/// Most bytes of text in all values of a file, and in all its comments.
const MAX_TEXT_BYTES: usize = 16 * 1024 * 1024;
/// Longest message of the YAML reader that is passed on, in characters. Bounded, because some messages quote
/// the text.
const MAX_MESSAGE_CHARS: usize = 200;

/// Reads the documents of a text; empty ones are left out. Fails at the first text that is not YAML.
pub(crate) fn read(text: &str) -> Result<Vec<SyntaxNode>, SyntaxError> {
    let read = serde_saphyr::from_multiple_with_options::<Spanned<Raw>>(text, options());
    match read {
        Ok(documents) => Ok(documents.into_iter().map(Raw::into_node).collect()),
        Err(error) => Err(broken(text, &error)),
    }
}

fn options() -> Options {
    serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_depth: MAX_DEPTH,
            flow_nesting_limit: MAX_DEPTH,
            max_documents: MAX_DOCUMENTS,
            max_nodes: MAX_NODES,
            max_events: 3 * MAX_NODES,
            max_aliases: MAX_ALIASES,
            max_anchors: MAX_ANCHORS,
            max_merge_keys: MAX_MERGE_KEYS,
            max_total_scalar_bytes: MAX_TEXT_BYTES,
            max_total_comment_bytes: MAX_TEXT_BYTES,
        },
        alias_limits: serde_saphyr::alias_limits! { max_total_replayed_events: MAX_REPEATED_EVENTS },
        duplicate_keys: DuplicateKeyPolicy::Error,
        strict_booleans: true,
        // `defaultMode: 0400` is 256, as kubectl reads it.
        legacy_octal_numbers: true,
        with_snippet: false,
        emit_comments: false,
    }
}

/// A value as parsed by the YAML reader.
enum Raw {
    Null,
    Bool(bool),
    Number(Number),
    Text(String),
    List(Vec<Spanned<Raw>>),
    Map(Vec<(Spanned<String>, Spanned<Raw>)>),
}

impl Raw {
    fn into_node(spanned: Spanned<Self>) -> SyntaxNode {
        let content = match spanned.value {
            Self::Null => SyntaxValue::Null,
            Self::Bool(flag) => SyntaxValue::Bool(flag),
            Self::Number(number) => SyntaxValue::Number(number),
            Self::Text(text) => SyntaxValue::Text(text),
            Self::List(items) => SyntaxValue::List(items.into_iter().map(Self::into_node).collect()),
            Self::Map(entries) => SyntaxValue::Map(
                entries
                    .into_iter()
                    .map(|(key, value)| {
                        (Key { at: at(key.referenced), text: key.value }, Self::into_node(value))
                    })
                    .collect(),
            ),
        };
        SyntaxNode { at: at(spanned.referenced), content }
    }
}

pub(crate) fn at(location: Location) -> Position {
    let clip = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
    Position { line: clip(location.line()), column: clip(location.column()) }
}

impl<'de> Deserialize<'de> for Raw {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(RawVisitor)
    }
}

struct RawVisitor;

impl<'de> Visitor<'de> for RawVisitor {
    type Value = Raw;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Raw, E> {
        Ok(Raw::Null)
    }

    fn visit_bool<E>(self, flag: bool) -> Result<Raw, E> {
        Ok(Raw::Bool(flag))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Raw, E> {
        Ok(Raw::Number(number.into()))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Raw, E> {
        Ok(Raw::Number(number.into()))
    }

    fn visit_f64<E: serde::de::Error>(self, number: f64) -> Result<Raw, E> {
        Number::from_f64(number).map(Raw::Number).ok_or_else(|| E::custom("the number is not finite"))
    }

    fn visit_str<E>(self, text: &str) -> Result<Raw, E> {
        Ok(Raw::Text(text.to_owned()))
    }

    fn visit_string<E>(self, text: String) -> Result<Raw, E> {
        Ok(Raw::Text(text))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Raw, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element::<Spanned<Raw>>()? {
            if items.len() >= MAX_NODES {
                return Err(A::Error::custom("the list is too long"));
            }
            items.push(item);
        }
        Ok(Raw::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Raw, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = map.next_entry::<Spanned<String>, Spanned<Raw>>()? {
            entries.push(entry);
        }
        Ok(Raw::Map(entries))
    }
}

/// The innermost cause of an error.
pub(crate) fn innermost(error: &Error) -> &Error {
    let mut inner = error;
    while let Error::AliasError { error, .. } | Error::WithSnippet { error, .. } = inner {
        inner = error;
    }
    inner
}

/// Error that the YAML reader found, with a remedy for the usual mistakes.
pub(crate) fn broken(text: &str, error: &Error) -> SyntaxError {
    let at = error.location().map(at).unwrap_or_default();
    let inner = innermost(error);
    let (message, remedy) = match inner {
        Error::DuplicateMappingKey { key: Some(key), .. } => {
            (format!("the key `{key}` appears twice"), "write the key once")
        }
        Error::DuplicateMappingKey { key: None, .. } => {
            ("a key appears twice".to_owned(), "write the key once")
        }
        Error::Budget { breach, .. } => too_much(breach),
        Error::AliasReplayLimitExceeded { .. }
        | Error::AliasReplayStackDepthExceeded { .. }
        | Error::AliasExpansionLimitExceeded { .. } => {
            (format!("aliases repeat more than {MAX_REPEATED_EVENTS} values"), "write the values out")
        }
        Error::RecursiveReferencesRequireWeakTypes { .. } => {
            ("an alias refers to itself".to_owned(), "write the values out")
        }
        Error::UnknownAnchor { .. } => (words(inner), "define the anchor before it is used"),
        Error::NonFiniteFloat { .. } => {
            ("this number is not finite".to_owned(), "write a finite number, or quote it")
        }
        Error::BinaryNotUtf8 { .. } => ("this binary value is not text".to_owned(), "write text"),
        _ if is_indented_by_tab(text, at) => (words(inner), "indent with spaces, not with tabs"),
        _ if has_placeholder(text, at) => {
            (words(inner), "this is a template: render it first, such as with `helm template`")
        }
        _ => (
            words(inner),
            "correct the YAML here or in the line above; indentation and quotes are the usual cause",
        ),
    };
    SyntaxError { at, message, remedy: remedy.to_owned() }
}

/// Message and remedy for an exceeded bound.
fn too_much(breach: &BudgetBreach) -> (String, &'static str) {
    const SPLIT: &str = "split the file";
    const WRITE_OUT: &str = "write the values out";
    match breach {
        BudgetBreach::Documents { .. } => {
            (format!("this file has more than {MAX_DOCUMENTS} documents"), SPLIT)
        }
        BudgetBreach::Depth { .. } => {
            (format!("lists and mappings are nested more than {MAX_DEPTH} deep here"), "write it flatter")
        }
        BudgetBreach::Nodes { .. } | BudgetBreach::Events { .. } => {
            (format!("this file has more than {MAX_NODES} values"), SPLIT)
        }
        BudgetBreach::Aliases { .. } => (format!("this file has more than {MAX_ALIASES} aliases"), WRITE_OUT),
        BudgetBreach::Anchors { .. } => (format!("this file has more than {MAX_ANCHORS} anchors"), WRITE_OUT),
        BudgetBreach::MergeKeys { .. } => {
            (format!("this file has more than {MAX_MERGE_KEYS} merge keys (`<<`)"), WRITE_OUT)
        }
        BudgetBreach::ScalarBytes { total_scalar_bytes: bytes }
        | BudgetBreach::CommentBytes { total_comment_bytes: bytes } => {
            (format!("this file has {bytes} bytes of text, at most {MAX_TEXT_BYTES} are read"), SPLIT)
        }
        _ => ("this file uses anchors or merge keys more than the YAML reader permits".to_owned(), WRITE_OUT),
    }
}

/// The YAML reader's own message, without its position.
fn words(error: &Error) -> String {
    let full = error.to_string();
    let first = full.lines().next().unwrap_or_default().split(" at line ").next().unwrap_or_default();
    first.chars().take(MAX_MESSAGE_CHARS).collect()
}

fn is_indented_by_tab(text: &str, at: Position) -> bool {
    line(text, at).is_some_and(|line| line.trim_start_matches(' ').starts_with('\t'))
}

/// Whether the line has a placeholder of Helm, Jinja or Argo, which YAML reads as nested mappings.
fn has_placeholder(text: &str, at: Position) -> bool {
    line(text, at).is_some_and(|line| line.contains("{{"))
}

fn line(text: &str, at: Position) -> Option<&str> {
    let index = (at.line as usize).checked_sub(1)?;
    text.lines().nth(index)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mistakes_have_a_position_a_message_and_a_remedy() {
        let check = |text: &str, line: u32, column: u32, message: &str, remedy: &str| {
            let broken = read(text).unwrap_err();
            assert_eq!(
                (broken.at.line, broken.at.column, broken.message.as_str()),
                (line, column, message),
                "{text}"
            );
            assert!(broken.remedy.contains(remedy), "{}", broken.remedy);
        };
        check("a: 1\na: 2\n", 2, 1, "the key `a` appears twice", "write the key once");
        check("a: &a [*a]\n", 1, 8, "an alias refers to itself", "write the values out");
        check("a: *b\n", 1, 4, "alias references unknown anchor", "define the anchor");
        check("a: .nan\n", 1, 4, "this number is not finite", "finite number");
        check("a: !!binary \"//79\"\n", 1, 13, "this binary value is not text", "write text");
        check(
            "a:\n\tb: 1\n",
            2,
            2,
            "tabs disallowed within this context (block indentation)",
            "indent with spaces",
        );
        check("a: {b: 1\n", 1, 4, "unclosed bracket '{'", "indentation and quotes");
        check("a:\n  name: {{ .Values.name }}\n", 2, 10, "expected string scalar", "render it first");
    }

    #[test]
    fn exceeded_bounds_are_named() {
        let shown = |text: &str| read(text).unwrap_err().message;
        assert_eq!(
            shown(&"---\na: 1\n".repeat(MAX_DOCUMENTS + 1)),
            "this file has more than 10000 \
            documents"
        );
        let deep: String = (0..=MAX_DEPTH).map(|depth| format!("{}a:\n", " ".repeat(depth))).collect();
        assert_eq!(
            shown(&format!("{deep}{}b: 1\n", " ".repeat(MAX_DEPTH + 1))),
            "lists and mappings are nested more than 24 deep here"
        );
        assert!(!shown(&"[".repeat(40)).contains("Depth"));
    }

    #[test]
    fn scalars_follow_yaml_1_2() {
        let nodes = read("a: yes\nb: true\nc: ~\nd: 1e3\ne: '1'\n").unwrap();
        assert_eq!(
            nodes[0].clone().into_value(),
            serde_json::json!({"a": "yes", "b": true, "c": null, "d": 1000.0, "e": "1"})
        );
    }
}
