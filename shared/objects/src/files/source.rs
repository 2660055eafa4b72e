//! Positions for problems that are found after reading.

use super::problem::FilePosition;
use super::reader::{MAX_LIST_DEPTH, read};
use crate::fields::FieldPath;
use crate::text::syntax::{Position, SyntaxNode, SyntaxValue};

/// The text of a file, to find the position of a problem that is found in an object later, such as by the
/// API.
#[derive(Debug)]
pub struct SourceText(Vec<SyntaxNode>);

impl SourceText {
    /// Parses the text again. A text that can't be read has no positions.
    pub fn parse(text: &str) -> Self {
        Self(read(text.strip_prefix('\u{feff}').unwrap_or(text)).unwrap_or_default())
    }

    /// Position of a field of the object that begins at `object`, or of its nearest ancestor that is present.
    pub fn place_of(&self, object: &FilePosition, field: &FieldPath) -> FilePosition {
        let begins = Position { line: object.line, column: object.column };
        let at = self
            .0
            .iter()
            .find_map(|document| beginning_at(document, begins, 0))
            .map_or(begins, |node| node.find(field));
        FilePosition { file: object.file.clone(), line: at.line, column: at.column }
    }
}

/// The object that begins at a position, in a document or in a list of them.
fn beginning_at(node: &SyntaxNode, begins: Position, depth: usize) -> Option<&SyntaxNode> {
    let children = match &node.content {
        SyntaxValue::List(items) => items,
        SyntaxValue::Map(_) => match node.get("items").map(|items| &items.content) {
            Some(SyntaxValue::List(items)) if node.at != begins => items,
            _ => return Some(node).filter(|node| node.at == begins),
        },
        _ => return None,
    };
    children
        .iter()
        .filter(|_| depth < MAX_LIST_DEPTH)
        .find_map(|child| beginning_at(child, begins, depth + 1))
}
