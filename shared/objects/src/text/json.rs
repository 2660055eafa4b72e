//! JSON (RFC 8259) into nodes with positions.
//!
//! The YAML reader accepts most JSON, but not its tabs and escaped surrogate pairs, and serde_json keeps no
//! positions. This reader finds numbers and strings, and serde_json decodes them.

use super::syntax::{
    Key, MAX_DEPTH, MAX_DOCUMENTS, MAX_NODES, Position, SyntaxError, SyntaxNode, SyntaxValue,
};
use serde_json::Number;

/// Reads one or several values of a text. Fails at the first text that is not JSON.
pub(crate) fn read(text: &str) -> Result<Vec<SyntaxNode>, SyntaxError> {
    let mut reader = Reader { rest: text, at: Position { line: 1, column: 1 }, nodes: 0 };
    let mut values = Vec::new();
    reader.skip_space();
    loop {
        values.push(reader.value(0)?);
        reader.skip_space();
        if reader.rest.is_empty() {
            return Ok(values);
        }
        if values.len() >= MAX_DOCUMENTS {
            return Err(reader.broken("there are too many values", "split the file"));
        }
    }
}

struct Reader<'t> {
    rest: &'t str,
    at: Position,
    nodes: usize,
}

impl<'t> Reader<'t> {
    fn broken(&self, message: &str, remedy: &str) -> SyntaxError {
        SyntaxError { at: self.at, message: message.to_owned(), remedy: remedy.to_owned() }
    }

    fn advance(&mut self, bytes: usize) -> &'t str {
        let (taken, rest) = self.rest.split_at(bytes);
        for c in taken.chars() {
            if c == '\n' {
                self.at = Position { line: self.at.line.saturating_add(1), column: 1 };
            } else {
                self.at.column = self.at.column.saturating_add(1);
            }
        }
        self.rest = rest;
        taken
    }

    fn skip_space(&mut self) {
        let end = self.rest.find(|c: char| !matches!(c, ' ' | '\t' | '\r' | '\n')).unwrap_or(self.rest.len());
        self.advance(end);
    }

    /// Takes `c` if it is next.
    fn take(&mut self, c: char) -> bool {
        let found = self.rest.starts_with(c);
        if found {
            self.advance(c.len_utf8());
        }
        found
    }

    fn value(&mut self, depth: usize) -> Result<SyntaxNode, SyntaxError> {
        self.nodes += 1;
        if self.nodes > MAX_NODES {
            return Err(self.broken("there are too many values", "split the file"));
        }
        if depth > MAX_DEPTH {
            return Err(
                self.broken(&format!("values are nested more than {MAX_DEPTH} deep"), "write it flatter")
            );
        }
        let at = self.at;
        let content = match self.rest.chars().next() {
            None => return Err(self.broken("the text ends in the middle of a value", "complete the file")),
            Some('{') => self.map(depth)?,
            Some('[') => self.list(depth)?,
            Some('"') => SyntaxValue::Text(self.string()?),
            Some(c) if c == '-' || c.is_ascii_digit() => SyntaxValue::Number(self.number()?),
            Some(_) => self.word()?,
        };
        Ok(SyntaxNode { at, content })
    }

    fn word(&mut self) -> Result<SyntaxValue, SyntaxError> {
        for (word, content) in [
            ("true", SyntaxValue::Bool(true)),
            ("false", SyntaxValue::Bool(false)),
            ("null", SyntaxValue::Null),
        ] {
            if self.rest.starts_with(word) {
                self.advance(word.len());
                return Ok(content);
            }
        }
        Err(self.broken("this is not a JSON value", "write a value, or put text into double quotes"))
    }

    fn number(&mut self) -> Result<Number, SyntaxError> {
        let end = self
            .rest
            .find(|c: char| !matches!(c, '0'..='9' | '-' | '+' | '.' | 'e' | 'E'))
            .unwrap_or(self.rest.len());
        let number: Number = serde_json::from_str(&self.rest[..end])
            .map_err(|_| self.broken("this is not a number", "correct it, or put it into double quotes"))?;
        self.advance(end);
        Ok(number)
    }

    fn string(&mut self) -> Result<String, SyntaxError> {
        let mut escaped = false;
        let end = self.rest.char_indices().skip(1).find(|(_, c)| {
            let ends = *c == '"' && !escaped;
            escaped = *c == '\\' && !escaped;
            ends
        });
        let Some((end, _)) = end else {
            return Err(self.broken("this string does not end", "close it with a double quote"));
        };
        let text: String = serde_json::from_str(&self.rest[..=end])
            .map_err(|_| self.broken("this string has a bad escape or a line break in it", "correct it"))?;
        self.advance(end + 1);
        Ok(text)
    }

    fn list(&mut self, depth: usize) -> Result<SyntaxValue, SyntaxError> {
        self.advance(1);
        let mut items = Vec::new();
        self.skip_space();
        if self.take(']') {
            return Ok(SyntaxValue::List(items));
        }
        loop {
            self.skip_space();
            items.push(self.value(depth + 1)?);
            self.skip_space();
            if self.take(']') {
                return Ok(SyntaxValue::List(items));
            }
            if !self.take(',') {
                return Err(self
                    .broken("expected `,` or `]`", "separate the elements with commas and close the list"));
            }
        }
    }

    fn map(&mut self, depth: usize) -> Result<SyntaxValue, SyntaxError> {
        self.advance(1);
        let mut entries: Vec<(Key, SyntaxNode)> = Vec::new();
        let mut known = std::collections::BTreeSet::new();
        self.skip_space();
        if self.take('}') {
            return Ok(SyntaxValue::Map(entries));
        }
        loop {
            self.skip_space();
            let at = self.at;
            if !self.rest.starts_with('"') {
                return Err(self.broken(
                    "expected a key in double quotes",
                    "quote the key, and put no comma before `}`",
                ));
            }
            let text = self.string()?;
            if !known.insert(text.clone()) {
                return Err(SyntaxError {
                    at,
                    message: format!("the key `{text}` appears twice"),
                    remedy: "write the key once".to_owned(),
                });
            }
            self.skip_space();
            if !self.take(':') {
                return Err(self.broken("expected `:`", "put a colon between key and value"));
            }
            self.skip_space();
            let value = self.value(depth + 1)?;
            entries.push((Key { at, text }, value));
            self.skip_space();
            if self.take('}') {
                return Ok(SyntaxValue::Map(entries));
            }
            if !self.take(',') {
                return Err(self.broken(
                    "expected `,` or `}`",
                    "separate the entries with commas and close the mapping",
                ));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fields::FieldPath;
    use serde_json::json;

    #[test]
    fn reads_json_with_places() {
        let node = read("{\"a\": [1,\n\t{\"b\": \"\\ud83d\\ude00\"}], \"c\": -1.5e3, \"d\": null}\r\n")
            .unwrap()
            .remove(0);
        assert_eq!(node.find(&FieldPath::of("a").index(1).key("b")), Position { line: 2, column: 8 });
        assert_eq!(node.find(&FieldPath::of("a").index(9)), Position { line: 1, column: 7 });
        assert_eq!(node.into_value(), json!({"a": [1, {"b": "😀"}], "c": -1.5e3, "d": null}));
    }

    #[test]
    fn reads_values_that_follow_one_another() {
        let values: Vec<_> =
            read("{\"a\": 1}\n{\"a\": 2} [3]").unwrap().into_iter().map(SyntaxNode::into_value).collect();
        assert_eq!(values, [json!({"a": 1}), json!({"a": 2}), json!([3])]);
        let broken = read(&"1 ".repeat(MAX_DOCUMENTS + 1)).unwrap_err();
        assert!(broken.message.contains("too many values"), "{}", broken.message);
    }

    #[test]
    fn refuses_what_is_not_json() {
        let check = |text: &str, line: u32, column: u32, expect: &str| {
            let broken = read(text).unwrap_err();
            assert_eq!((broken.at.line, broken.at.column), (line, column), "{text}: {}", broken.message);
            assert!(broken.message.contains(expect), "{}", broken.message);
        };
        check("{\"a\": 1,}", 1, 9, "expected a key");
        check("{\"a\": 1,\n \"a\": 2}", 2, 2, "appears twice");
        check("[1 2]", 1, 4, "expected `,` or `]`");
        check("{\"a\": \"x", 1, 7, "does not end");
        check("{\"a\"", 1, 5, "expected `:`");
        check("[1", 1, 3, "expected `,` or `]`");
        check("", 1, 1, "ends in the middle");
        check("[01]", 1, 2, "not a number");
        check("[nul]", 1, 2, "not a JSON value");
        check("{} }", 1, 4, "not a JSON value");
        check("[\"\\x\"]", 1, 2, "bad escape");
        check(&"[".repeat(1_000), 1, 26, "nested more than");
    }
}
