//! A job's output line by line, for programs: `logs -o json` and `-o yaml`.
//!
//! Pure. What all pods print comes with `[POD] ` before each line, as agents send it; what one pod prints comes as it is.

use serde::Serialize;

/// Longest line that is kept whole; a longer one is told in parts.
const LINE_BYTES_MAX: usize = 1 << 20;

/// One line that a pod printed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Line {
    /// Which pod, by its index; unknown where the agent didn't say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) pod: Option<u32>,
    /// The line, without its end.
    pub(crate) text: String,
    /// It isn't UTF-8: what can't be read is replaced.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) lossy: bool,
    /// It didn't end: it is the last one, or longer than what is kept.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) partial: bool,
}

/// Makes lines of pieces, wherever these were cut.
#[derive(Debug)]
pub(crate) struct Lines {
    /// The only pod, where one was asked for.
    pod: Option<u32>,
    begun: Vec<u8>,
    /// The line that was begun goes on from a part that was told.
    goes_on: Option<Option<u32>>,
}

impl Lines {
    /// Of all pods, or of one.
    pub(crate) fn new(pod: Option<u32>) -> Self {
        Self { pod, begun: Vec::new(), goes_on: None }
    }

    /// The lines that end in this piece.
    pub(crate) fn push(&mut self, piece: &[u8]) -> Vec<Line> {
        let mut lines = Vec::new();
        for part in piece.split_inclusive(|byte| *byte == b'\n') {
            self.begun.extend_from_slice(part);
            if self.begun.last() == Some(&b'\n') {
                self.begun.pop();
                lines.push(self.take(false));
            } else if self.begun.len() >= LINE_BYTES_MAX {
                // A character that isn't whole belongs to the next part.
                let split = std::str::from_utf8(&self.begun)
                    .err()
                    .filter(|error| error.error_len().is_none())
                    .map(|error| error.valid_up_to());
                let rest = self.begun.split_off(split.unwrap_or(self.begun.len()));
                lines.push(self.take(true));
                self.begun = rest;
            }
        }
        lines
    }

    /// What was begun and goes no further: the log ends here, or what follows is another one.
    pub(crate) fn end(&mut self) -> Option<Line> {
        let last = (!self.begun.is_empty()).then(|| self.take(true));
        self.goes_on = None;
        last
    }

    fn take(&mut self, partial: bool) -> Line {
        let bytes = std::mem::take(&mut self.begun);
        let (pod, text) = match (self.goes_on, self.pod) {
            (Some(pod), _) => (pod, &*bytes),
            (None, Some(pod)) => (Some(pod), &*bytes),
            (None, None) => unprefixed(&bytes),
        };
        self.goes_on = partial.then_some(pod);
        let text = text.strip_suffix(b"\r").filter(|_| !partial).unwrap_or(text);
        match std::str::from_utf8(text) {
            Ok(text) => Line { pod, text: text.to_owned(), lossy: false, partial },
            Err(_) => Line { pod, text: String::from_utf8_lossy(text).into_owned(), lossy: true, partial },
        }
    }
}

/// Whose line it is, and what stands behind that.
fn unprefixed(line: &[u8]) -> (Option<u32>, &[u8]) {
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

    fn lines(pod: Option<u32>, pieces: &[&[u8]]) -> Vec<String> {
        let mut all = Lines::new(pod);
        let mut out: Vec<Line> = pieces.iter().flat_map(|piece| all.push(piece)).collect();
        out.extend(all.end());
        out.iter().map(|line| serde_json::to_string(line).unwrap()).collect()
    }

    #[test]
    fn lines_are_whole_wherever_pieces_are_cut() {
        let printed = "[0] a\n[12] [x] b\r\n[3] \nloose\n[0] caf\u{e9}";
        let whole = [
            r#"{"pod":0,"text":"a"}"#,
            r#"{"pod":12,"text":"[x] b"}"#,
            r#"{"pod":3,"text":""}"#,
            r#"{"text":"loose"}"#,
            r#"{"pod":0,"text":"café","partial":true}"#,
        ];
        for size in 1..printed.len() {
            let pieces: Vec<&[u8]> = printed.as_bytes().chunks(size).collect();
            assert_eq!(lines(None, &pieces), whole, "pieces of {size}");
        }
    }

    #[test]
    fn one_pods_lines_are_taken_as_they_are() {
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
    fn parts_are_cut_between_characters_and_nothing_of_them_is_lost() {
        let line = "x".to_owned() + &"é".repeat(LINE_BYTES_MAX);
        let mut all = Lines::new(Some(0));
        let told: Vec<Line> = line.as_bytes().chunks(4_097).flat_map(|piece| all.push(piece)).collect();
        let told: Vec<Line> = told.into_iter().chain(all.end()).collect();
        assert!(told.len() >= 2 && told.iter().all(|part| !part.lossy && part.partial));
        assert!(told.iter().map(|part| part.text.as_str()).collect::<String>() == line);
        assert_eq!(lines(Some(0), &[b"50%\r"]), [r#"{"pod":0,"text":"50%\r","partial":true}"#]);
    }

    #[test]
    fn a_line_without_end_is_told_in_bounded_parts_of_one_pod() {
        let mut all = Lines::new(None);
        let piece = vec![b'x'; 100_000];
        let mut told = all.push(b"[7] ");
        for _ in 0..25 {
            told.extend(all.push(&piece));
        }
        told.extend(all.push(b"\n[8] y\n"));
        let shape: Vec<(Option<u32>, bool)> = told.iter().map(|line| (line.pod, line.partial)).collect();
        assert_eq!(shape, [(Some(7), true), (Some(7), true), (Some(7), false), (Some(8), false)]);
        assert_eq!(told.iter().map(|line| line.text.len()).sum::<usize>(), 2_500_001);
        assert!(all.end().is_none());
    }
}
