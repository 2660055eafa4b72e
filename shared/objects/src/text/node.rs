//! A tree of plain values with the line and column of each.

use crate::field::{FieldPath, Segment};
use serde_json::{Map, Number, Value};

/// Deepest nesting of lists and mappings. Real objects stay below twenty, and the readers recurse: an unoptimised build
/// needs some 40 KiB of stack per level, which must fit well into the 2 MiB of a worker thread.
pub(crate) const MAX_DEPTH: usize = 24;
/// Most documents or list elements of one text.
pub(crate) const MAX_DOCUMENTS: usize = 10_000;
/// Most values of one text.
pub(crate) const MAX_NODES: usize = 2_000_000;

/// A line and a column, from 1; columns count characters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct At {
    pub(crate) line: u32,
    pub(crate) column: u32,
}

/// A value and where it begins.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) at: At,
    pub(crate) content: Content,
}

/// What a node holds.
#[derive(Clone, Debug)]
pub(crate) enum Content {
    Null,
    Bool(bool),
    Number(Number),
    Text(String),
    List(Vec<Node>),
    Map(Vec<(Key, Node)>),
}

/// A key and where it stands.
#[derive(Clone, Debug)]
pub(crate) struct Key {
    pub(crate) at: At,
    pub(crate) text: String,
}

/// Why a text could not be read.
#[derive(Clone, Debug)]
pub(crate) struct Broken {
    pub(crate) at: At,
    pub(crate) message: String,
    pub(crate) remedy: String,
}

impl Node {
    /// Where `path` stands, or the nearest thing above it that is there.
    pub(crate) fn find(&self, path: &FieldPath) -> At {
        let mut node = self;
        let mut at = self.at;
        for segment in &path.0 {
            match (segment, &node.content) {
                (Segment::Key(key), Content::Map(entries)) => {
                    match entries.iter().find(|(known, _)| known.text == *key) {
                        // a mapping or list that begins on a later line is best shown at its key
                        Some((known, value)) => {
                            at = if value.at.line == known.at.line { value.at } else { known.at };
                            node = value;
                        }
                        None => return at,
                    }
                }
                (Segment::Index(index), Content::List(items)) => match items.get(*index) {
                    Some(item) => {
                        at = item.at;
                        node = item;
                    }
                    None => return at,
                },
                _ => return at,
            }
        }
        at
    }

    /// The path of the key or value that begins at a place: the innermost one.
    pub(crate) fn path_at(&self, at: At) -> Option<FieldPath> {
        let inner = match &self.content {
            Content::Map(entries) => entries.iter().find_map(|(key, value)| {
                let path = value.path_at(at).or_else(|| (key.at == at).then(FieldPath::default))?;
                Some(path.below(Segment::Key(key.text.clone())))
            }),
            Content::List(items) => items
                .iter()
                .enumerate()
                .find_map(|(index, item)| Some(item.path_at(at)?.below(Segment::Index(index)))),
            _ => None,
        };
        inner.or_else(|| (self.at == at).then(FieldPath::default))
    }

    /// The value without positions.
    pub(crate) fn into_value(self) -> Value {
        match self.content {
            Content::Null => Value::Null,
            Content::Bool(flag) => Value::Bool(flag),
            Content::Number(number) => Value::Number(number),
            Content::Text(text) => Value::String(text),
            Content::List(items) => Value::Array(items.into_iter().map(Self::into_value).collect()),
            Content::Map(entries) => Value::Object(
                entries.into_iter().map(|(key, value)| (key.text, value.into_value())).collect::<Map<_, _>>(),
            ),
        }
    }

    /// The value of a key of this mapping.
    pub(crate) fn get(&self, key: &str) -> Option<&Node> {
        match &self.content {
            Content::Map(entries) => {
                entries.iter().find(|(known, _)| known.text == key).map(|(_, value)| value)
            }
            _ => None,
        }
    }

    /// The text of a key of this mapping.
    pub(crate) fn text(&self, key: &str) -> Option<&str> {
        match &self.get(key)?.content {
            Content::Text(text) => Some(text),
            _ => None,
        }
    }
}
