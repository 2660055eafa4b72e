//! Turns output of pods into lines with the pod's index as prefix, and can keep only the last lines.
//!
//! Pure and bounded: a line longer than [`LINE_BYTES_MAX`] is cut into several, and a tail keeps at most
//! [`TAIL_BYTES_MAX`] bytes. The result does not depend on the pieces in which the output arrives, so that a
//! log can be read again from a line number.

use bytes::Bytes;
use meridian_agent_core::runtime::LogChunk;
use meridian_shared::logs::CHUNK_BYTES_MAX;
use std::collections::{BTreeMap, VecDeque};

/// Longest line; a longer one is cut.
const LINE_BYTES_MAX: usize = CHUNK_BYTES_MAX / 2;
/// Longest character in UTF-8.
const CHARACTER_BYTES_MAX: usize = 4;
/// Most bytes of a tail, which is more than people read.
const TAIL_BYTES_MAX: usize = 4 << 20;

/// The last lines of the output at the time of the request.
#[derive(Debug)]
struct Tail {
    lines_max: u64,
    kept: VecDeque<Vec<u8>>,
    bytes: usize,
}

/// The line processing of one stream.
#[derive(Debug)]
pub(super) struct Lines {
    prefixed: bool,
    incomplete: BTreeMap<(u32, u32), Vec<u8>>,
    tail: Option<Tail>,
}

impl Lines {
    /// Lines with or without the index of the pod, and only the last `tail_lines` of the present output.
    pub(super) fn new(prefixed: bool, tail_lines: Option<u64>) -> Self {
        Self {
            prefixed,
            incomplete: BTreeMap::new(),
            tail: tail_lines.map(|lines_max| Tail { lines_max, kept: VecDeque::new(), bytes: 0 }),
        }
    }

    /// Takes output and returns what can be sent now.
    pub(super) fn take(&mut self, chunk: LogChunk) -> Vec<Bytes> {
        if !self.prefixed && self.tail.is_none() {
            return vec![chunk.bytes.into()];
        }
        let key = (chunk.pod, chunk.attempt);
        let mut rest = self.incomplete.remove(&key).unwrap_or_default();
        rest.extend(chunk.bytes);
        let mut ready = Vec::new();
        let mut from = 0;
        while let Some(length) = line_length(&rest[from..]) {
            self.line(key.0, &rest[from..from + length], &mut ready);
            from += length;
        }
        rest.drain(..from);
        if !rest.is_empty() {
            self.incomplete.insert(key, rest);
        }
        cut(ready)
    }

    /// The present output was read: ends the tail. Later output is sent as it arrives.
    pub(super) fn caught_up(&mut self) -> Vec<Bytes> {
        let Some(mut tail) = self.tail.take() else { return Vec::new() };
        if !self.prefixed {
            // Later output is passed on unchanged, so an incomplete line must not wait for its end.
            std::mem::take(&mut self.incomplete).into_values().for_each(|incomplete| tail.push(incomplete));
        }
        cut(tail.kept.into_iter().flatten().collect())
    }

    /// The log has ended: returns the rest.
    pub(super) fn finish(&mut self) -> Vec<Bytes> {
        let mut ready = Vec::new();
        for ((pod, _), rest) in std::mem::take(&mut self.incomplete) {
            self.line(pod, &rest, &mut ready);
        }
        let mut all = self.caught_up();
        all.extend(cut(ready));
        all
    }

    fn line(&mut self, pod: u32, line: &[u8], ready: &mut Vec<u8>) {
        let mut text = if self.prefixed { format!("[{pod}] ").into_bytes() } else { Vec::new() };
        text.extend(line);
        if self.prefixed && line.last() != Some(&b'\n') {
            text.push(b'\n');
        }
        match &mut self.tail {
            None => ready.extend(text),
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

/// Length of the first line with its line feed; `None` if it is incomplete and not too long. A longer line is
/// cut between two characters if possible.
fn line_length(text: &[u8]) -> Option<usize> {
    let whole = text.iter().take(LINE_BYTES_MAX).position(|b| *b == b'\n').map(|at| at + 1);
    whole.or_else(|| {
        let next = text.get(LINE_BYTES_MAX - CHARACTER_BYTES_MAX..LINE_BYTES_MAX)?;
        let begins = |byte: &u8| *byte & 0b1100_0000 != 0b1000_0000;
        // The last character before the cut may continue after it.
        let last = next.iter().rposition(begins).unwrap_or(0);
        Some(LINE_BYTES_MAX - CHARACTER_BYTES_MAX + last)
    })
}

/// Cuts bytes into pieces that fit a frame.
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
    fn output_of_one_pod_is_unchanged() {
        let mut lines = Lines::new(false, None);
        assert_eq!(text(lines.take(chunk(0, "half a li"))), "half a li");
        assert_eq!(text(lines.finish()), "");
    }

    #[test]
    fn lines_of_several_pods_are_whole_and_prefixed() {
        let mut lines = Lines::new(true, None);
        assert_eq!(text(lines.take(chunk(0, "a\nb"))), "[0] a\n");
        assert_eq!(text(lines.take(chunk(1, "x\n"))), "[1] x\n");
        assert_eq!(text(lines.take(chunk(0, "c\n"))), "[0] bc\n");
        assert_eq!(text(lines.take(chunk(1, "end"))), "");
        assert_eq!(text(lines.finish()), "[1] end\n");
        let long = "y".repeat(3 * LINE_BYTES_MAX);
        let ready = text(lines.take(chunk(2, &long)));
        assert!(
            lines.incomplete.values().all(|b| b.len() < LINE_BYTES_MAX) && ready.len() >= 2 * LINE_BYTES_MAX
        );
    }

    #[test]
    fn lines_do_not_depend_on_pieces() {
        let printed = format!("a\n{}\nend", "y".repeat(2 * LINE_BYTES_MAX + 7));
        let ready = |piece: usize| {
            let mut lines = Lines::new(true, None);
            let pieces = printed.as_bytes().chunks(piece).map(|bytes| LogChunk {
                pod: 0,
                attempt: 0,
                bytes: bytes.to_vec(),
            });
            let ready: Vec<Bytes> = pieces.flat_map(|chunk| lines.take(chunk)).collect();
            text(ready) + &text(lines.finish())
        };
        let whole = ready(printed.len());
        assert!(
            whole.lines().count() == 5 && whole.lines().all(|line| line.starts_with("[0] ")),
            "{} lines",
            whole.lines().count()
        );
        assert!([1_000, LINE_BYTES_MAX, LINE_BYTES_MAX + 1].into_iter().all(|piece| ready(piece) == whole));
    }

    #[test]
    fn a_tail_has_the_last_lines_and_then_everything() {
        let mut lines = Lines::new(false, Some(2));
        assert_eq!(text(lines.take(chunk(0, "1\n2\n3\n4\n5"))), "");
        assert_eq!(text(lines.caught_up()), "4\n5");
        assert_eq!(text(lines.take(chunk(0, "!\n"))), "!\n", "output after a tail is raw");
        let mut ended = Lines::new(true, Some(1));
        ended.take(chunk(0, "a\nb"));
        assert_eq!(text(ended.finish()), "[0] b\n");
        let mut none = Lines::new(false, Some(0));
        none.take(chunk(0, "a\n"));
        assert_eq!(text(none.finish()), "");
    }
}
