//! Trees of plain values with the line and column of each.

use crate::fields::{FieldPath, Segment};
use serde_json::{Map, Number, Value};

/// Deepest nesting of lists and mappings. Real objects stay below twenty. The readers recurse, and an
/// unoptimised build needs some 40 KiB of stack per level, which must fit well into the 2 MiB of a worker
/// thread.
pub(crate) const MAX_DEPTH: usize = 24;
/// Most documents or list elements of one text.
pub(crate) const MAX_DOCUMENTS: usize = 10_000;
/// Most values of one text.
pub(crate) const MAX_NODES: usize = 2_000_000;

/// A line and a column, from 1; columns count characters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Position {
    pub(crate) line: u32,
    pub(crate) column: u32,
}

/// A value and the position of its start.
#[derive(Clone, Debug)]
pub(crate) struct SyntaxNode {
    pub(crate) at: Position,
    pub(crate) content: SyntaxValue,
}

#[derive(Clone, Debug)]
pub(crate) enum SyntaxValue {
    Null,
    Bool(bool),
    Number(Number),
    Text(String),
    List(Vec<SyntaxNode>),
    Map(Vec<(Key, SyntaxNode)>),
}

#[derive(Clone, Debug)]
pub(crate) struct Key {
    pub(crate) at: Position,
    pub(crate) text: String,
}

/// Why a text can't be read, with the position and a remedy.
#[derive(Clone, Debug)]
pub(crate) struct SyntaxError {
    pub(crate) at: Position,
    pub(crate) message: String,
    pub(crate) remedy: String,
}

impl SyntaxNode {
    /// Position of the value at `path`, or of its nearest ancestor that is present.
    pub(crate) fn find(&self, path: &FieldPath) -> Position {
        let mut node = self;
        let mut at = self.at;
        for segment in &path.0 {
            match (segment, &node.content) {
                (Segment::Key(key), SyntaxValue::Map(entries)) => {
                    match entries.iter().find(|(known, _)| known.text == *key) {
                        // A mapping or list that begins on a later line is best shown at its key.
                        Some((known, value)) => {
                            at = if value.at.line == known.at.line { value.at } else { known.at };
                            node = value;
                        }
                        None => return at,
                    }
                }
                (Segment::Index(index), SyntaxValue::List(items)) => match items.get(*index) {
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

    /// Path of the innermost key or value that begins at a position.
    pub(crate) fn path_at(&self, at: Position) -> Option<FieldPath> {
        let inner = match &self.content {
            SyntaxValue::Map(entries) => entries.iter().find_map(|(key, value)| {
                let path = value.path_at(at).or_else(|| (key.at == at).then(FieldPath::default))?;
                Some(path.below(Segment::Key(key.text.clone())))
            }),
            SyntaxValue::List(items) => items
                .iter()
                .enumerate()
                .find_map(|(index, item)| Some(item.path_at(at)?.below(Segment::Index(index)))),
            _ => None,
        };
        inner.or_else(|| (self.at == at).then(FieldPath::default))
    }

    pub(crate) fn into_value(self) -> Value {
        match self.content {
            SyntaxValue::Null => Value::Null,
            SyntaxValue::Bool(flag) => Value::Bool(flag),
            SyntaxValue::Number(number) => Value::Number(number),
            SyntaxValue::Text(text) => Value::String(text),
            SyntaxValue::List(items) => Value::Array(items.into_iter().map(Self::into_value).collect()),
            SyntaxValue::Map(entries) => Value::Object(
                entries.into_iter().map(|(key, value)| (key.text, value.into_value())).collect::<Map<_, _>>(),
            ),
        }
    }

    pub(crate) fn get(&self, key: &str) -> Option<&SyntaxNode> {
        match &self.content {
            SyntaxValue::Map(entries) => {
                entries.iter().find(|(known, _)| known.text == key).map(|(_, value)| value)
            }
            _ => None,
        }
    }

    pub(crate) fn text(&self, key: &str) -> Option<&str> {
        match &self.get(key)?.content {
            SyntaxValue::Text(text) => Some(text),
            _ => None,
        }
    }
}
