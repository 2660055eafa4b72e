//! Prose broken into lines that fit a terminal.

use super::printable;

/// Columns of a page of text, as in `man`; also assumed where standard output is no terminal.
pub(crate) const PAGE_COLUMNS: usize = 80;

/// Breaks `text`, which must be escaped already, at spaces. A word that is longer than a line gets its own
/// line. The result has at least one line.
pub(crate) fn wrap(text: &str, columns: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    let mut used = 0;
    for word in text.split(' ') {
        let width = printable::width(word);
        let line = lines.last_mut().expect("begins with one line");
        if line.is_empty() {
            line.push_str(word);
            used = width;
        } else if used + 1 + width <= columns {
            line.push(' ');
            line.push_str(word);
            used += 1 + width;
        } else {
            lines.push(word.to_owned());
            used = width;
        }
    }
    lines
}

/// Wraps `text`; lines after the first are indented.
pub(crate) fn wrap_indented(text: &str, columns: usize, indent: usize) -> String {
    let lines = wrap(text, columns.saturating_sub(indent));
    lines.join(&format!("\n{}", " ".repeat(indent)))
}

/// `text` after `first`, further lines below its beginning.
pub(crate) fn hang(first: &str, text: &str, columns: usize) -> String {
    let indent = printable::width(first);
    let lines = wrap(text, columns.saturating_sub(indent));
    format!("{first}{}", lines.join(&format!("\n{}", " ".repeat(indent))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_break_at_spaces_and_long_words_stay_whole() {
        assert_eq!(wrap("no cluster has 3 free GPUs", 12), ["no cluster", "has 3 free", "GPUs"]);
        assert_eq!(wrap("a provreq.kueue.x-k8s.io b", 8), ["a", "provreq.kueue.x-k8s.io", "b"]);
        assert_eq!(wrap("東京 東京", 5), ["東京", "東京"]);
        assert_eq!(wrap("", 5), [""]);
        assert_eq!(wrap_indented("no cluster has room", 12, 2), "no cluster\n  has room");
        assert_eq!(hang("next: ", "a workload ends", 16), "next: a workload\n      ends");
    }
}
