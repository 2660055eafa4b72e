//! YAML (1.2 words, so `yes` is a word and not a boolean) into nodes.

use super::node::{At, Broken, Content, Key, MAX_DEPTH, MAX_DOCUMENTS, MAX_NODES, Node};
use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::Number;
use serde_saphyr::options::DuplicateKeyPolicy;
use serde_saphyr::{Location, Options, Spanned};
use std::fmt;

/// Most values that aliases may repeat: enough for any honest anchor, and too few for a bomb.
const MAX_REPEATED_EVENTS: usize = 20_000;
/// Most aliases of one text.
const MAX_ALIASES: usize = 2_000;
/// Most anchors of one text.
const MAX_ANCHORS: usize = 1_000;
/// Most merge keys (`<<`) of one text.
const MAX_MERGE_KEYS: usize = 1_000;

/// The documents of a text; empty ones are left out.
pub(crate) fn read(text: &str) -> Result<Vec<Node>, Broken> {
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
        },
        alias_limits: serde_saphyr::alias_limits! { max_total_replayed_events: MAX_REPEATED_EVENTS },
        duplicate_keys: DuplicateKeyPolicy::Error,
        strict_booleans: true,
        with_snippet: false,
        emit_comments: false,
    }
}

/// A value as the YAML reader hands it over.
enum Raw {
    Null,
    Bool(bool),
    Number(Number),
    Text(String),
    List(Vec<Spanned<Raw>>),
    Map(Vec<(Spanned<String>, Spanned<Raw>)>),
}

impl Raw {
    fn into_node(spanned: Spanned<Self>) -> Node {
        let content = match spanned.value {
            Self::Null => Content::Null,
            Self::Bool(flag) => Content::Bool(flag),
            Self::Number(number) => Content::Number(number),
            Self::Text(text) => Content::Text(text),
            Self::List(items) => Content::List(items.into_iter().map(Self::into_node).collect()),
            Self::Map(entries) => {
                Content::Map(entries.into_iter().map(|(key, value)| (Key { at: at(key.referenced), text: key.value }, Self::into_node(value))).collect())
            }
        };
        Node { at: at(spanned.referenced), content }
    }
}

fn at(location: Location) -> At {
    let clip = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
    At { line: clip(location.line()), column: clip(location.column()) }
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

/// What the YAML reader found, in words and with a remedy for the usual slips.
fn broken(text: &str, error: &serde_saphyr::Error) -> Broken {
    let at = error.location().map(at).unwrap_or_default();
    let full = error.to_string();
    // the reader ends its messages with the place, which we show ourselves
    let message = full.split(" at line ").next().unwrap_or(&full);
    let message: String = message.lines().next().unwrap_or_default().chars().take(200).collect();
    let line = (at.line as usize).checked_sub(1).and_then(|index| text.lines().nth(index)).unwrap_or_default();
    let remedy = match error.without_snippet() {
        serde_saphyr::Error::DuplicateMappingKey { .. } => "write the key once",
        serde_saphyr::Error::Budget { .. }
        | serde_saphyr::Error::AliasReplayLimitExceeded { .. }
        | serde_saphyr::Error::AliasReplayStackDepthExceeded { .. } => "write it out, or split the file",
        serde_saphyr::Error::UnknownAnchor { .. } => "define the anchor before it is used",
        _ if line.trim_start_matches(' ').starts_with('\t') => "indent with spaces, not with tabs",
        _ => "correct the YAML; the indentation of this line and the one above is the usual cause",
    };
    Broken { at, message, remedy: remedy.to_owned() }
}
