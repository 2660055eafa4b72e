//! A job's output as documents: `logs -o json` and `logs -o yaml`.
//!
//! Agents put `[POD] ` in front of each line of a log of all pods; the log of one pod comes as it was
//! printed.

use serde::Serialize;

/// A longer line is returned in parts.
const LINE_BYTES_MAX: usize = 1 << 20;

/// One line that a pod printed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct LogLine {
    /// The pod's index; `None` if the agent didn't send it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) pod: Option<u32>,
    /// The line without its end.
    pub(super) text: String,
    /// The line isn't UTF-8: invalid bytes are replaced.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(super) lossy: bool,
    /// The line has no end: it is the last one of the log, or its next part follows.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(super) partial: bool,
}

/// Splits chunks, cut anywhere, into lines.
#[derive(Debug)]
pub(super) struct LineSplitter {
    /// The pod, if the log is of one pod.
    only_pod: Option<u32>,
    unfinished: Vec<u8>,
    /// The pod of a line that `unfinished` continues: its first part was returned already.
    continued: Option<Option<u32>>,
}

impl LineSplitter {
    /// `only_pod` is the pod of a log of one pod.
    pub(super) fn new(only_pod: Option<u32>) -> Self {
        Self { only_pod, unfinished: Vec::new(), continued: None }
    }

    /// The lines that end in this chunk.
    pub(super) fn push(&mut self, chunk: &[u8]) -> Vec<LogLine> {
        let mut lines = Vec::new();
        for part in chunk.split_inclusive(|byte| *byte == b'\n') {
            self.unfinished.extend_from_slice(part);
            if self.unfinished.last() == Some(&b'\n') {
                self.unfinished.pop();
                lines.push(self.take(false));
            } else if self.unfinished.len() >= LINE_BYTES_MAX {
                // An incomplete character goes to the next part.
                let split = std::str::from_utf8(&self.unfinished)
                    .err()
                    .filter(|error| error.error_len().is_none())
                    .map(|error| error.valid_up_to());
                let rest = self.unfinished.split_off(split.unwrap_or(self.unfinished.len()));
                lines.push(self.take(true));
                self.unfinished = rest;
            }
        }
        lines
    }

    /// The unfinished line at the end of a log.
    pub(super) fn finish(&mut self) -> Option<LogLine> {
        let last = (!self.unfinished.is_empty()).then(|| self.take(true));
        self.continued = None;
        last
    }

    fn take(&mut self, partial: bool) -> LogLine {
        let bytes = std::mem::take(&mut self.unfinished);
        let (pod, text) = match (self.continued, self.only_pod) {
            (Some(pod), _) => (pod, &*bytes),
            (None, Some(pod)) => (Some(pod), &*bytes),
            (None, None) => split_pod(&bytes),
        };
        self.continued = partial.then_some(pod);
        let text = text.strip_suffix(b"\r").filter(|_| !partial).unwrap_or(text);
        match std::str::from_utf8(text) {
            Ok(text) => LogLine { pod, text: text.to_owned(), lossy: false, partial },
            Err(_) => LogLine { pod, text: String::from_utf8_lossy(text).into_owned(), lossy: true, partial },
        }
    }
}

/// Splits `[POD] text`.
fn split_pod(line: &[u8]) -> (Option<u32>, &[u8]) {
    let parse = || {
        let end = line.iter().take(12).position(|byte| *byte == b']')?;
        let pod = std::str::from_utf8(line.get(1..end)?).ok()?.parse().ok()?;
        let text = line.strip_prefix(b"[")?.get(end..)?;
        Some((Some(pod), text.strip_prefix(b" ").unwrap_or(text)))
    };
    parse().unwrap_or((None, line))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(pod: Option<u32>, chunks: &[&[u8]]) -> Vec<String> {
        let mut all = LineSplitter::new(pod);
        let mut out: Vec<LogLine> = chunks.iter().flat_map(|chunk| all.push(chunk)).collect();
        out.extend(all.finish());
        out.iter().map(|line| serde_json::to_string(line).unwrap()).collect()
    }

    #[test]
    fn lines_are_whole_wherever_chunks_are_cut() {
        let printed = "[0] a\n[12] [x] b\r\n[3] \nloose\n[0] caf\u{e9}";
        let whole = [
            r#"{"pod":0,"text":"a"}"#,
            r#"{"pod":12,"text":"[x] b"}"#,
            r#"{"pod":3,"text":""}"#,
            r#"{"text":"loose"}"#,
            r#"{"pod":0,"text":"café","partial":true}"#,
        ];
        for size in 1..printed.len() {
            let chunks: Vec<&[u8]> = printed.as_bytes().chunks(size).collect();
            assert_eq!(lines(None, &chunks), whole, "chunks of {size}");
        }
    }

    #[test]
    fn the_log_of_one_pod_has_no_prefixes() {
        assert_eq!(
            lines(Some(4), &[b"[0] a\n\xff\n"]),
            [
                r#"{"pod":4,"text":"[0] a"}"#,
                r#"{"pod":4,"text":"\u{fffd}","lossy":true}"#.replace("\\u{fffd}", "\u{fffd}").as_str()
            ]
        );
        assert_eq!(lines(None, &[]), Vec::<String>::new());
    }

    #[test]
    fn parts_of_a_long_line_split_between_characters() {
        let line = "x".to_owned() + &"é".repeat(LINE_BYTES_MAX);
        let mut all = LineSplitter::new(Some(0));
        let parts: Vec<LogLine> = line.as_bytes().chunks(4_097).flat_map(|chunk| all.push(chunk)).collect();
        let parts: Vec<LogLine> = parts.into_iter().chain(all.finish()).collect();
        assert!(parts.len() >= 2 && parts.iter().all(|part| !part.lossy && part.partial));
        assert!(parts.iter().map(|part| part.text.as_str()).collect::<String>() == line);
        assert_eq!(lines(Some(0), &[b"50%\r"]), [r#"{"pod":0,"text":"50%\r","partial":true}"#]);
    }

    #[test]
    fn a_line_without_end_comes_in_bounded_parts() {
        let mut all = LineSplitter::new(None);
        let chunk = vec![b'x'; 100_000];
        let mut parts = all.push(b"[7] ");
        for _ in 0..25 {
            parts.extend(all.push(&chunk));
        }
        parts.extend(all.push(b"\n[8] y\n"));
        let shape: Vec<(Option<u32>, bool)> = parts.iter().map(|line| (line.pod, line.partial)).collect();
        assert_eq!(shape, [(Some(7), true), (Some(7), true), (Some(7), false), (Some(8), false)]);
        assert_eq!(parts.iter().map(|line| line.text.len()).sum::<usize>(), 2_500_001);
        assert!(all.finish().is_none());
    }
}
