//! Splits Rust source into code, comments and string literals, so that a rule about code ignores text, and a
//! rule about text ignores code.
//!
//! This is a small lexer, not a parser. It knows nested comments, strings, raw strings, bytes, characters and
//! lifetimes.

/// How a comment is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommentKind {
    /// `///` or `/** */`.
    Doc,
    /// `//!` or `/*! */`.
    ModuleDoc,
    /// `//` or `/* */`.
    Plain,
}

/// One line of a comment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Comment {
    /// Line, from 1.
    pub line: usize,
    /// How the comment is written.
    pub kind: CommentKind,
    /// Text without the comment marks.
    pub text: String,
}

/// One source file, split into code, strings and comments.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Source {
    /// The code; comments and the contents of literals are replaced by spaces. Line breaks stay.
    pub code: String,
    /// String literals: line, from 1, and content as written.
    pub strings: Vec<(usize, String)>,
    /// Comments, one entry per line.
    pub comments: Vec<Comment>,
}

impl Source {
    /// Splits `text` into code, strings and comments.
    pub fn of(text: &str) -> Self {
        let mut lexer = Lexer { rest: text, line: 1, out: Self::default() };
        while lexer.step() {}
        lexer.out
    }

    /// Lines of code with their numbers, from 1.
    pub fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        (1..).zip(self.code.lines())
    }

    /// The code with every item behind `#[cfg(test)]` replaced by spaces.
    pub fn without_tests(&self) -> String {
        const MARK: &str = "#[cfg(test)]";
        let mut code = self.code.clone();
        let mut from = 0;
        while let Some(at) = code[from..].find(MARK).map(|at| from + at) {
            let end = item_end(&code, at + MARK.len());
            let blank: String = code[at..end].chars().map(|c| if c == '\n' { '\n' } else { ' ' }).collect();
            from = at + blank.len();
            code.replace_range(at..end, &blank);
        }
        code
    }

    /// String literals outside of items behind `#[cfg(test)]`: line, from 1, and content as written.
    pub fn strings_without_tests(&self) -> impl Iterator<Item = (usize, &str)> {
        let without = self.without_tests();
        let tests: Vec<bool> = self.code.lines().zip(without.lines()).map(|(a, b)| a != b).collect();
        let in_test = move |line: usize| tests.get(line - 1).is_some_and(|in_test| *in_test);
        let outside = self.strings.iter().filter(move |(line, _)| !in_test(*line));
        outside.map(|(line, text)| (*line, text.as_str()))
    }
}

/// The end of the item that begins at `from`: its first `;` outside of brackets, or the end of its first
/// block.
fn item_end(code: &str, from: usize) -> usize {
    let mut depth = 0_usize;
    for (at, c) in code[from..].char_indices() {
        match c {
            ';' if depth == 0 => return from + at + 1,
            '{' | '(' | '[' => depth += 1,
            '}' | ')' | ']' => {
                depth = depth.saturating_sub(1);
                if c == '}' && depth == 0 {
                    let after = &code[from + at + 1..];
                    return from + at + 1 + usize::from(after.starts_with(';'));
                }
            }
            _ => {}
        }
    }
    code.len()
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
            self.comment(rest.find('\n').unwrap_or(rest.len()));
        } else if rest.starts_with("/*") {
            self.comment(block_comment(rest));
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

    fn comment(&mut self, bytes: usize) {
        let taken = &self.rest[..bytes];
        let kind = match taken.as_bytes() {
            [b'/', b'/', b'/', b'/', ..] | [b'/', b'*', b'*', b'*', ..] => CommentKind::Plain,
            [b'/', b'/', b'/', ..] => CommentKind::Doc,
            [b'/', b'*', b'*', after, ..] if *after != b'/' => CommentKind::Doc,
            [b'/', b'/' | b'*', b'!', ..] => CommentKind::ModuleDoc,
            _ => CommentKind::Plain,
        };
        for (at, line) in taken.lines().enumerate() {
            let text = line.trim().trim_start_matches(['/', '*', '!']).trim_end_matches("*/").trim();
            self.out.comments.push(Comment { line: self.line + at, kind, text: text.to_owned() });
        }
        self.blank(bytes);
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

/// Length of an opening such as `r#"` or `br#"`, and its number of hashes.
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
    fn code_strings_and_comments_are_separated() {
        let text = "let a = \"x // \\\" y\"; // std::fs\n\
                    /* a /* b */ std::env */ let b: &'static str = r#\"raw \"std::net\" \"#; \
                    let c = '\"'; let d = '\\''; std::thread";
        let source = Source::of(text);
        for hidden in ["std::fs", "std::env", "std::net"] {
            assert!(!source.code.contains(hidden), "{}", source.code);
        }
        assert!(source.code.ends_with("std::thread"), "{}", source.code);
        assert!(source.code.contains("&'static str"), "{}", source.code);
        assert_eq!(source.strings, [(1, "x // \\\" y".to_owned()), (2, "raw \"std::net\" ".to_owned())]);
        assert_eq!(source.lines().count(), 2);
        let comments: Vec<&str> = source.comments.iter().map(|comment| &*comment.text).collect();
        assert_eq!(comments, ["std::fs", "a /* b */ std::env"]);
    }

    #[test]
    fn comment_kinds_follow_from_their_marks() {
        let source = Source::of("//! m\n/// d\n// p\n/** d */\n/* p */\n//// p\n/// two\n");
        let kinds: String = source
            .comments
            .iter()
            .map(|comment| match comment.kind {
                CommentKind::Doc => 'd',
                CommentKind::ModuleDoc => 'm',
                CommentKind::Plain => 'p',
            })
            .collect();
        assert_eq!(kinds, "mdpdppd");
        assert_eq!(source.comments[6].line, 7);
    }

    #[test]
    fn test_modules_are_blanked() {
        let source = Source::of("a();\n#[cfg(test)]\nmod tests {\n  fn b() { c([1; 2]); }\n}\nd();\n");
        assert_eq!(source.without_tests().split_whitespace().collect::<String>(), "a();d();");
        let one_line = Source::of("#[cfg(test)]\nuse x::{y, z};\nmod a;\n");
        assert_eq!(one_line.without_tests().trim(), "mod a;");
    }

    #[test]
    fn text_that_is_cut_short_ends_the_lexer() {
        for text in ["\"abc", "r#\"abc\"", "/* abc", "'", "b'\\", "'\\", "//", "#[cfg(test)]"] {
            let _ = Source::of(text).without_tests();
        }
    }
}
