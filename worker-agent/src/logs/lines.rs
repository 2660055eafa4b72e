//! Turns what pods printed into what is shown: whole lines with the pod's number before them, and only the last ones.
//!
//! Pure, and bounded: a line that is longer than [`LINE_BYTES_MAX`] is cut into several, a tail keeps at most
//! [`TAIL_BYTES_MAX`] bytes. What is shown of a pod doesn't depend on how its output came in pieces: whoever reads it again
//! counts on the same lines.

use crate::runner::LogChunk;
use bytes::Bytes;
use meridian_shared::logs::CHUNK_BYTES_MAX;
use std::collections::{BTreeMap, VecDeque};

/// Longest begin of a line that waits for its end.
const LINE_BYTES_MAX: usize = CHUNK_BYTES_MAX / 2;
/// Longest character of UTF-8.
const CHARACTER_BYTES_MAX: usize = 4;
/// Most bytes of a tail: what a person reads, not what a machine copies.
const TAIL_BYTES_MAX: usize = 4 << 20;

/// The last lines of what is there when somebody begins to look.
#[derive(Debug)]
struct Tail {
    lines_max: u64,
    kept: VecDeque<Vec<u8>>,
    bytes: usize,
}

/// What is done to one stream.
#[derive(Debug)]
pub(super) struct Lines {
    prefixed: bool,
    begun: BTreeMap<(u32, u32), Vec<u8>>,
    tail: Option<Tail>,
}

impl Lines {
    /// Lines with or without the pod's number, and only the last `tail_lines` of what is there at first.
    pub(super) fn new(prefixed: bool, tail_lines: Option<u64>) -> Self {
        Self {
            prefixed,
            begun: BTreeMap::new(),
            tail: tail_lines.map(|lines_max| Tail { lines_max, kept: VecDeque::new(), bytes: 0 }),
        }
    }

    /// Takes what was printed; gives what can be shown now.
    pub(super) fn take(&mut self, chunk: LogChunk) -> Vec<Bytes> {
        if !self.prefixed && self.tail.is_none() {
            return vec![chunk.bytes.into()];
        }
        let key = (chunk.pod, chunk.attempt);
        let mut rest = self.begun.remove(&key).unwrap_or_default();
        rest.extend(chunk.bytes);
        let mut shown = Vec::new();
        let mut from = 0;
        while let Some(length) = line_length(&rest[from..]) {
            self.line(key.0, &rest[from..from + length], &mut shown);
            from += length;
        }
        rest.drain(..from);
        if !rest.is_empty() {
            self.begun.insert(key, rest);
        }
        cut(shown)
    }

    /// All that was there is read: the tail is over, and what follows is shown as it comes.
    pub(super) fn caught_up(&mut self) -> Vec<Bytes> {
        let Some(mut tail) = self.tail.take() else { return Vec::new() };
        if !self.prefixed {
            // From here on bytes are passed on as they come, so a begun line must not wait for its end.
            std::mem::take(&mut self.begun).into_values().for_each(|begun| tail.push(begun));
        }
        cut(tail.kept.into_iter().flatten().collect())
    }

    /// Nothing more comes.
    pub(super) fn finish(&mut self) -> Vec<Bytes> {
        let mut shown = Vec::new();
        for ((pod, _), rest) in std::mem::take(&mut self.begun) {
            self.line(pod, &rest, &mut shown);
        }
        let mut all = self.caught_up();
        all.extend(cut(shown));
        all
    }

    fn line(&mut self, pod: u32, line: &[u8], shown: &mut Vec<u8>) {
        let mut text = if self.prefixed { format!("[{pod}] ").into_bytes() } else { Vec::new() };
        text.extend(line);
        if self.prefixed && line.last() != Some(&b'\n') {
            text.push(b'\n');
        }
        match &mut self.tail {
            None => shown.extend(text),
            Some(tail) => tail.push(text),
        }
    }
}

impl Tail {
    fn push(&mut self, line: Vec<u8>) {
        self.bytes += line.len();
        self.kept.push_back(line);
        while self.kept.len() as u64 > self.lines_max || self.bytes > TAIL_BYTES_MAX {
            let Some(oldest) = self.kept.pop_front() else { return };
            self.bytes -= oldest.len();
        }
    }
}

/// How long the first line is, with its end; `None` while it is not whole and not too long. A longer one is cut between two
/// characters, where it has such a place.
fn line_length(text: &[u8]) -> Option<usize> {
    let whole = text.iter().take(LINE_BYTES_MAX).position(|b| *b == b'\n').map(|at| at + 1);
    whole.or_else(|| {
        let next = text.get(LINE_BYTES_MAX - CHARACTER_BYTES_MAX..LINE_BYTES_MAX)?;
        let begins = |byte: &u8| *byte & 0b1100_0000 != 0b1000_0000;
        // The last character that begins there may go on after it.
        let last = next.iter().rposition(begins).unwrap_or(0);
        Some(LINE_BYTES_MAX - CHARACTER_BYTES_MAX + last)
    })
}

/// In pieces that fit the stream.
fn cut(bytes: Vec<u8>) -> Vec<Bytes> {
    let mut rest = Bytes::from(bytes);
    let mut pieces = Vec::new();
    while !rest.is_empty() {
        pieces.push(rest.split_to(rest.len().min(CHUNK_BYTES_MAX)));
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk(pod: u32, text: &str) -> LogChunk {
        LogChunk { pod, attempt: 0, bytes: text.as_bytes().to_vec() }
    }

    fn text(pieces: Vec<Bytes>) -> String {
        pieces.iter().map(|p| String::from_utf8(p.to_vec()).unwrap()).collect()
    }

    #[test]
    fn one_pod_is_passed_on_as_it_is() {
        let mut lines = Lines::new(false, None);
        assert_eq!(text(lines.take(chunk(0, "half a li"))), "half a li");
        assert_eq!(text(lines.finish()), "");
    }

    #[test]
    fn lines_of_several_pods_stay_whole_and_are_numbered() {
        let mut lines = Lines::new(true, None);
        assert_eq!(text(lines.take(chunk(0, "a\nb"))), "[0] a\n");
        assert_eq!(text(lines.take(chunk(1, "x\n"))), "[1] x\n");
        assert_eq!(text(lines.take(chunk(0, "c\n"))), "[0] bc\n");
        assert_eq!(text(lines.take(chunk(1, "end"))), "");
        assert_eq!(text(lines.finish()), "[1] end\n");
        let long = "y".repeat(3 * LINE_BYTES_MAX);
        let shown = text(lines.take(chunk(2, &long)));
        assert!(lines.begun.values().all(|b| b.len() < LINE_BYTES_MAX) && shown.len() >= 2 * LINE_BYTES_MAX);
    }

    #[test]
    fn lines_do_not_depend_on_the_pieces_that_they_came_in() {
        let printed = format!("a\n{}\nend", "y".repeat(2 * LINE_BYTES_MAX + 7));
        let shown = |piece: usize| {
            let mut lines = Lines::new(true, None);
            let pieces = printed.as_bytes().chunks(piece).map(|bytes| LogChunk {
                pod: 0,
                attempt: 0,
                bytes: bytes.to_vec(),
            });
            let shown: Vec<Bytes> = pieces.flat_map(|chunk| lines.take(chunk)).collect();
            text(shown) + &text(lines.finish())
        };
        let whole = shown(printed.len());
        assert!(
            whole.lines().count() == 5 && whole.lines().all(|line| line.starts_with("[0] ")),
            "{} lines",
            whole.lines().count()
        );
        assert!([1_000, LINE_BYTES_MAX, LINE_BYTES_MAX + 1].into_iter().all(|piece| shown(piece) == whole));
    }

    #[test]
    fn a_tail_shows_the_last_lines_and_then_everything() {
        let mut lines = Lines::new(false, Some(2));
        assert_eq!(text(lines.take(chunk(0, "1\n2\n3\n4\n5"))), "");
        assert_eq!(text(lines.caught_up()), "4\n5");
        assert_eq!(text(lines.take(chunk(0, "!\n"))), "!\n", "a tail is followed as raw text");
        let mut ended = Lines::new(true, Some(1));
        ended.take(chunk(0, "a\nb"));
        assert_eq!(text(ended.finish()), "[0] b\n");
        let mut none = Lines::new(false, Some(0));
        none.take(chunk(0, "a\n"));
        assert_eq!(text(none.finish()), "");
    }
}
