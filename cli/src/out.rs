//! The two streams that a command writes to: answers to standard output, everything else to standard error.
//!
//! Invariant: what goes through [`Out::line`] and [`Out::note`] was escaped by whoever made it a line; [`Out::note`]
//! escapes once more, because it is the last stop of errors whose words may come from anywhere.

use crate::error::Error;
use crate::printable;
use serde::Serialize;
use std::fmt;
use std::io::{self, BufWriter, IsTerminal, Write};

/// How a stream of documents is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stream {
    /// Each on a line of its own.
    Json,
    /// With `---` between them.
    Yaml,
}

/// Standard output and standard error, and what they can show.
pub(crate) struct Out {
    answers: Box<dyn Write + Send>,
    notes: Box<dyn Write + Send>,
    /// Whether to use colour on standard output.
    pub(crate) colour: bool,
    /// Whether a person reads standard output directly.
    pub(crate) answers_to_terminal: bool,
    /// Whether a person reads standard error directly.
    pub(crate) notes_to_terminal: bool,
}

impl fmt::Debug for Out {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Out").field("colour", &self.colour).finish_non_exhaustive()
    }
}

impl Out {
    /// The process's own streams; colour only for a terminal, and never when `plain` or `NO_COLOR` is set.
    pub(crate) fn of_process(plain: bool) -> Self {
        let answers_to_terminal = io::stdout().is_terminal();
        Self {
            answers: Box::new(BufWriter::new(io::stdout())),
            notes: Box::new(io::stderr()),
            colour: answers_to_terminal && !is_colour_unwanted(plain),
            answers_to_terminal,
            notes_to_terminal: io::stderr().is_terminal(),
        }
    }

    /// One line of the answer.
    pub(crate) fn line(&mut self, text: impl AsRef<str>) -> Result<(), Error> {
        self.raw(text.as_ref().as_bytes())?;
        self.raw(b"\n")
    }

    /// Bytes of the answer as they are.
    pub(crate) fn raw(&mut self, bytes: &[u8]) -> Result<(), Error> {
        Ok(self.answers.write_all(bytes)?)
    }

    /// Hands everything over to whoever reads.
    pub(crate) fn flush(&mut self) -> Result<(), Error> {
        Ok(self.answers.flush()?)
    }

    /// Something to know beside the answer.
    pub(crate) fn note(&mut self, text: impl AsRef<str>) {
        // nobody can be told that standard error is closed
        let _ = self.flush();
        let _ = writeln!(self.notes, "{}", printable::lines(text.as_ref()));
    }

    /// A warning beside the answer.
    pub(crate) fn warn(&mut self, text: impl AsRef<str>) {
        self.note(format!("warning: {}", text.as_ref()));
    }

    /// One JSON document, for machines.
    pub(crate) fn json(&mut self, value: &impl Serialize) -> Result<(), Error> {
        let text =
            serde_json::to_string_pretty(value).map_err(|error| Error::Render("json", error.to_string()))?;
        let text = if self.answers_to_terminal { printable::json(&text) } else { text };
        self.line(text)
    }

    /// One of several documents: a line of JSON, or YAML that a `---` begins.
    pub(crate) fn document(&mut self, format: Stream, value: &impl Serialize) -> Result<(), Error> {
        match format {
            Stream::Json => {
                let text =
                    serde_json::to_string(value).map_err(|error| Error::Render("json", error.to_string()))?;
                let text = if self.answers_to_terminal { printable::json(&text) } else { text };
                self.line(text)
            }
            Stream::Yaml => {
                self.line("---")?;
                self.yaml(value)
            }
        }
    }

    /// One YAML document.
    pub(crate) fn yaml(&mut self, value: &impl Serialize) -> Result<(), Error> {
        let text = yaml(value)?;
        self.raw(text.as_bytes())
    }
}

/// Whether logs on standard error are coloured: the same rule as for answers.
pub(crate) fn notes_in_colour(plain: bool) -> bool {
    io::stderr().is_terminal() && !is_colour_unwanted(plain)
}

fn is_colour_unwanted(plain: bool) -> bool {
    plain
        || std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
        || std::env::var_os("TERM").is_some_and(|t| t == "dumb")
}

/// `value` as a YAML document that ends in a line feed.
pub(crate) fn yaml(value: &impl Serialize) -> Result<String, Error> {
    let mut text =
        serde_saphyr::to_string(value).map_err(|error| Error::Render("yaml", error.to_string()))?;
    if !text.ends_with('\n') {
        text.push('\n');
    }
    Ok(text)
}

/// What a test's command wrote.
#[cfg(test)]
#[derive(Clone, Debug, Default)]
pub(crate) struct Captured(std::sync::Arc<std::sync::Mutex<Vec<u8>>>);

#[cfg(test)]
impl Captured {
    /// Everything so far.
    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

#[cfg(test)]
impl Write for Captured {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
impl Out {
    /// Streams whose content a test can read: answers and notes.
    pub(crate) fn captured() -> (Self, Captured, Captured) {
        let (answers, notes) = (Captured::default(), Captured::default());
        let out = Self {
            answers: Box::new(answers.clone()),
            notes: Box::new(notes.clone()),
            colour: false,
            answers_to_terminal: false,
            notes_to_terminal: false,
        };
        (out, answers, notes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn yaml_reads_back_as_what_it_was() {
        let value = json!({
            "annotation": "600", "flag": "true", "nothing": "null", "exponent": "1e3", "octal": "010", "norway": "no", "empty": "",
            "text": "a: b # c\nsecond line\n", "spaces": "  x ", "list": [], "map": {}, "number": 7, "bool": false, "null": null, "escape": "\u{1b}[0m",
            "nested": [{"name": "a", "values": ["-", "- x", "[y", "{z", "*w", "&v", "!u", "%t", "@s", "`r", "'q", "\"p"]}],
        });
        let text = yaml(&value).unwrap();
        assert_eq!(serde_saphyr::from_str::<Value>(&text).unwrap(), value, "{text}");
        assert!(!text.contains('\u{1b}'), "{text}");
    }

    #[test]
    fn nobody_gets_colours_who_wants_none_or_reads_no_terminal() {
        assert!(is_colour_unwanted(true) && !notes_in_colour(true));
        assert!(io::stderr().is_terminal() || !notes_in_colour(false));
    }

    #[test]
    fn notes_are_escaped() {
        let (mut out, _, notes) = Out::captured();
        out.warn("from an agent: \u{1b}[2J");
        assert_eq!(notes.text(), "warning: from an agent: \\x1b[2J\n");
    }
}
