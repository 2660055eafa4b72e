//! Rust source with its comments and the insides of its literals told apart, so that a word in a sentence isn't taken for code.
//!
//! A small lexer, not a parser: it knows comments (nested), strings, raw strings, bytes, characters and lifetimes.

/// One source file taken apart.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Source {
    /// The code, with comments and the insides of literals replaced by spaces. Line breaks stay.
    pub code: String,
    /// String literals: line (from 1) and content as written.
    pub strings: Vec<(usize, String)>,
}

impl Source {
    /// Takes `text` apart.
    pub fn of(text: &str) -> Self {
        let mut lexer = Lexer { rest: text, line: 1, out: Self::default() };
        while lexer.step() {}
        lexer.out
    }

    /// Lines (from 1) with code.
    pub fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        (1..).zip(self.code.lines())
    }
}

struct Lexer<'t> {
    rest: &'t str,
    line: usize,
    out: Source,
}

impl Lexer<'_> {
    fn step(&mut self) -> bool {
        let rest = self.rest;
        let Some(first) = rest.chars().next() else { return false };
        let after_word = self.out.code.chars().next_back().is_some_and(|c| c.is_alphanumeric() || c == '_');
        if rest.starts_with("//") {
            self.blank(rest.find('\n').unwrap_or(rest.len()));
        } else if rest.starts_with("/*") {
            self.blank(block_comment(rest));
        } else if let Some((open, hashes)) = (!after_word).then(|| raw_string(rest)).flatten() {
            let close = format!("\"{}", "#".repeat(hashes));
            let inside = rest[open..].find(&close).unwrap_or(rest.len() - open);
            self.string(open, inside, close.len());
        } else if first == '"' {
            self.string(1, string_length(&rest[1..]), 1);
        } else if first == '\'' {
            match character_length(rest) {
                Some(length) => self.blank(length),
                None => self.keep(1),
            }
        } else {
            self.keep(first.len_utf8());
        }
        true
    }

    fn keep(&mut self, bytes: usize) {
        let (taken, rest) = self.rest.split_at(bytes);
        self.line += taken.matches('\n').count();
        self.out.code.push_str(taken);
        self.rest = rest;
    }

    fn blank(&mut self, bytes: usize) {
        let (taken, rest) = self.rest.split_at(bytes.min(self.rest.len()));
        self.line += taken.matches('\n').count();
        self.out.code.extend(taken.chars().map(|c| if c == '\n' { '\n' } else { ' ' }));
        self.rest = rest;
    }

    fn string(&mut self, open: usize, inside: usize, close: usize) {
        self.out.strings.push((self.line, self.rest[open..open + inside].to_owned()));
        self.keep(open);
        self.blank(inside);
        self.keep(close.min(self.rest.len()));
    }
}

fn block_comment(text: &str) -> usize {
    let mut depth = 0_usize;
    let mut at = 0;
    while at < text.len() {
        if text[at..].starts_with("/*") {
            depth += 1;
            at += 2;
        } else if text[at..].starts_with("*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += text[at..].chars().next().map_or(1, char::len_utf8);
        }
    }
    text.len()
}

/// Length of `r#"` or `br#"`, and its hashes.
fn raw_string(text: &str) -> Option<(usize, usize)> {
    let after =
        text.strip_prefix("br").or_else(|| text.strip_prefix("cr")).or_else(|| text.strip_prefix('r'))?;
    let hashes = after.len() - after.trim_start_matches('#').len();
    after[hashes..].starts_with('"').then_some((text.len() - after.len() + hashes + 1, hashes))
}

fn string_length(inside: &str) -> usize {
    let mut escaped = false;
    for (at, c) in inside.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return at,
            _ => {}
        }
    }
    inside.len()
}

/// Length of a character literal; `None` for a lifetime.
fn character_length(text: &str) -> Option<usize> {
    let inside = &text[1..];
    if let Some(escape) = inside.strip_prefix('\\') {
        let first = escape.chars().next()?.len_utf8();
        return escape[first..].find('\'').map(|end| 2 + first + end + 1);
    }
    let first = inside.chars().next()?.len_utf8();
    inside[first..].starts_with('\'').then_some(first + 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_and_words_are_told_apart() {
        let text = "let a = \"x // \\\" y\"; // std::fs\n/* a /* b */ std::env */ let b: &'static str = r#\"raw \"std::net\" \"#; let c = '\"'; let d = '\\''; std::thread";
        let source = Source::of(text);
        assert!(
            !source.code.contains("std::fs")
                && !source.code.contains("std::env")
                && !source.code.contains("std::net"),
            "{}",
            source.code
        );
        assert!(
            source.code.ends_with("std::thread") && source.code.contains("&'static str"),
            "{}",
            source.code
        );
        assert_eq!(source.strings, [(1, "x // \\\" y".to_owned()), (2, "raw \"std::net\" ".to_owned())]);
        assert_eq!(source.lines().count(), 2);
    }

    #[test]
    fn what_is_cut_short_does_not_loop() {
        for text in ["\"abc", "r#\"abc\"", "/* abc", "'", "b'\\", "'\\", "//"] {
            let _ = Source::of(text);
        }
    }
}
