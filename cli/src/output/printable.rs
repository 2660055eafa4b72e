//! Untrusted text made safe for a terminal, and its width.
//!
//! Names, reasons and log lines come from agents and jobs. An escape sequence in one of them could move the
//! cursor, rename the window or paint a line that this program never wrote. So every control, formatting and
//! direction-changing character is replaced by a visible escape.

use std::borrow::Cow;
use std::fmt::Write;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Escapes a single line: control characters, line breaks included, become `\n`, `\t`, `\x1b` or `\u{202e}`.
pub(crate) fn line(text: &str) -> Cow<'_, str> {
    escape(text, |_| false)
}

/// Escapes text of several lines: as [`line`], but keeps line feeds and tabs.
pub(crate) fn lines(text: &str) -> Cow<'_, str> {
    escape(text, |c| matches!(c, '\n' | '\t'))
}

/// Terminal columns of `text`, which must be escaped already.
pub(crate) fn width(text: &str) -> usize {
    text.width()
}

/// Cuts `text` to `columns`, ending in `…` if something was cut off.
pub(crate) fn fit(text: &str, columns: usize) -> Cow<'_, str> {
    if width(text) <= columns {
        return Cow::Borrowed(text);
    }
    let mut used = 0;
    let available = columns.saturating_sub(1);
    let head: String = text
        .chars()
        .take_while(|c| {
            used += c.width().unwrap_or(0);
            used <= available
        })
        .collect();
    Cow::Owned(head + "…")
}

fn escape(text: &str, keep: fn(char) -> bool) -> Cow<'_, str> {
    if !text.chars().any(|c| is_unsafe(c) && !keep(c)) {
        return Cow::Borrowed(text);
    }
    let mut safe = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        if !is_unsafe(c) || keep(c) {
            safe.push(c);
            continue;
        }
        match c {
            '\n' => safe.push_str("\\n"),
            '\r' => safe.push_str("\\r"),
            '\t' => safe.push_str("\\t"),
            c if u32::from(c) < 0x100 => {
                write!(safe, "\\x{:02x}", u32::from(c)).expect("writing to a string can't fail")
            }
            c => write!(safe, "\\u{{{:x}}}", u32::from(c)).expect("writing to a string can't fail"),
        }
    }
    Cow::Owned(safe)
}

/// Controls (C0, DEL, C1), line and paragraph separators, and invisible or direction-changing format
/// characters.
fn is_unsafe(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// Replaces unsafe characters of JSON text by JSON escapes, so that it stays the same document.
pub(crate) fn json(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        // A raw line feed is layout: JSON strings hold none.
        if is_unsafe(c) && c != '\n' {
            let mut units = [0; 2];
            c.encode_utf16(&mut units).iter().for_each(|unit| safe.push_str(&format!("\\u{unit:04x}")));
        } else {
            safe.push(c);
        }
    }
    safe
}

/// Escapes a stream of bytes chunk by chunk; a character that is split over two chunks stays one.
///
/// A carriage return ends a line, so that a progress bar becomes lines and can't paint over earlier output.
#[derive(Debug, Default)]
pub(crate) struct StreamEscaper {
    pending: Vec<u8>,
    after_return: bool,
}

impl StreamEscaper {
    pub(crate) fn push(&mut self, bytes: &[u8]) -> String {
        self.pending.extend_from_slice(bytes);
        let bytes = std::mem::take(&mut self.pending);
        let mut safe = String::with_capacity(bytes.len());
        let mut rest = bytes.as_slice();
        loop {
            match std::str::from_utf8(rest) {
                Ok(text) => {
                    self.push_text(text, &mut safe);
                    return safe;
                }
                Err(error) => {
                    let (good, bad) = rest.split_at(error.valid_up_to());
                    self.push_text(std::str::from_utf8(good).expect("checked up to here"), &mut safe);
                    let Some(length) = error.error_len() else {
                        // The character's remaining bytes come with the next chunk.
                        self.pending = bad.to_vec();
                        return safe;
                    };
                    for byte in &bad[..length] {
                        write!(safe, "\\x{byte:02x}").expect("writing to a string can't fail");
                    }
                    rest = &bad[length..];
                }
            }
        }
    }

    fn push_text(&mut self, text: &str, safe: &mut String) {
        for piece in text.split_inclusive('\r') {
            let piece = if self.after_return { piece.strip_prefix('\n').unwrap_or(piece) } else { piece };
            if piece.is_empty() {
                // The line feed of `\r\n`: the carriage return has ended the line already.
                self.after_return = false;
                continue;
            }
            let body = piece.strip_suffix('\r');
            self.after_return = body.is_some();
            safe.push_str(&lines(body.unwrap_or(piece)));
            if body.is_some() {
                safe.push('\n');
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped() {
        let check = |text: &str, expect: &str| assert_eq!(line(text), expect);
        check("plain, ümlaut, 東京", "plain, ümlaut, 東京");
        check("\u{1b}[31mred\u{7}", "\\x1b[31mred\\x07");
        check("a\nb\tc\r", "a\\nb\\tc\\r");
        check("\u{9b}2J", "\\x9b2J");
        check("x\u{202e}gnp.exe\u{2066}", "x\\u{202e}gnp.exe\\u{2066}");
        check("zero\u{200b}width", "zero\\u{200b}width");
        assert_eq!(lines("a\n\tb\u{1b}c"), "a\n\tb\\x1bc");
    }

    #[test]
    fn json_stays_the_same_document() {
        let value = serde_json::json!({"a\u{9b}": ["\u{7f}\u{202e}x", "\u{e0001}", "ü\n"]});
        for text in [serde_json::to_string(&value).unwrap(), serde_json::to_string_pretty(&value).unwrap()] {
            let safe = json(&text);
            assert!(!safe.chars().any(|c| is_unsafe(c) && c != '\n') && safe.contains("ü"), "{safe}");
            assert_eq!(serde_json::from_str::<serde_json::Value>(&safe).unwrap(), value);
        }
    }

    #[test]
    fn width_counts_terminal_columns() {
        assert_eq!(width("東京"), 4);
        assert_eq!(fit("europe-west4", 8), "europe-…");
        assert_eq!(fit("東京大阪", 5), "東京…");
        assert_eq!(fit("eu", 8), "eu");
    }

    #[test]
    fn streams_keep_split_characters_and_escape_invalid_bytes() {
        let mut stream = StreamEscaper::default();
        let umlaut = "ü".as_bytes();
        assert_eq!(stream.push(&[b'a', umlaut[0]]), "a");
        assert_eq!(stream.push(&[umlaut[1], b'\n', 0xff, b'b']), "ü\n\\xffb");
        assert_eq!(stream.push(b"10%\r20%\r"), "10%\n20%\n");
        assert_eq!(stream.push(b"\ndone\r\n\x1b[2J"), "done\n\\x1b[2J");
    }
}
