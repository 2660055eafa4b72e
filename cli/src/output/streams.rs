//! Standard output for answers, standard error for everything else.
//!
//! Invariant: callers of [`Streams::line`] and [`Streams::raw`] escape untrusted text. [`Streams::note`]
//! escapes its text: errors may quote anything.

use super::printable;
use super::template::Template;
use crate::error::Error;
use serde::Serialize;
use std::fmt;
use std::io::{self, BufWriter, IsTerminal, Write};

/// How several documents are written one after another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DocumentFormat {
    /// One document per line.
    JsonLines,
    /// A `---` in front of each document.
    YamlStream,
}

pub(crate) struct Streams {
    answers: Box<dyn Write + Send>,
    notes: Box<dyn Write + Send>,
    /// Shows documents instead of JSON.
    pub(crate) template: Option<Template>,
    /// Whether answers are coloured.
    pub(crate) colour: bool,
    /// Whether standard output is a terminal.
    pub(crate) answers_to_terminal: bool,
    /// Whether standard error is a terminal.
    pub(crate) notes_to_terminal: bool,
}

impl fmt::Debug for Streams {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Streams").field("colour", &self.colour).finish_non_exhaustive()
    }
}

impl Streams {
    /// The process's own streams. Colour only on a terminal, and never with `no_color` or `NO_COLOR`.
    pub(crate) fn of_process(no_color: bool) -> Self {
        let answers_to_terminal = io::stdout().is_terminal();
        Self {
            answers: Box::new(BufWriter::new(io::stdout())),
            notes: Box::new(io::stderr()),
            template: None,
            colour: answers_to_terminal && !is_colour_off(no_color),
            answers_to_terminal,
            notes_to_terminal: io::stderr().is_terminal(),
        }
    }

    /// Writes one line of the answer. Fails if standard output can't be written.
    pub(crate) fn line(&mut self, text: impl AsRef<str>) -> Result<(), Error> {
        self.raw(text.as_ref().as_bytes())?;
        self.raw(b"\n")
    }

    /// Writes bytes of the answer unchanged. Fails if standard output can't be written.
    pub(crate) fn raw(&mut self, bytes: &[u8]) -> Result<(), Error> {
        Ok(self.answers.write_all(bytes)?)
    }

    /// Fails if standard output can't be written.
    pub(crate) fn flush(&mut self) -> Result<(), Error> {
        Ok(self.answers.flush()?)
    }

    /// Writes a line to standard error. A closed standard error is ignored: nothing is left to report it to.
    pub(crate) fn note(&mut self, text: impl AsRef<str>) {
        let _ = self.flush();
        let _ = writeln!(self.notes, "{}", printable::lines(text.as_ref()));
    }

    /// Writes `warning: …` to standard error.
    pub(crate) fn warn(&mut self, text: impl AsRef<str>) {
        self.note(format!("warning: {}", text.as_ref()));
    }

    /// Writes one JSON document, or the document in the form of the user's template. Fails if standard output
    /// can't be written.
    pub(crate) fn json(&mut self, value: &impl Serialize) -> Result<(), Error> {
        if self.template.is_some() {
            return self.templated(value);
        }
        let text = serde_json::to_string_pretty(value).map_err(|error| Error::render("json", error))?;
        let text = if self.answers_to_terminal { printable::json(&text) } else { text };
        self.line(text)
    }

    /// As kubectl, writes no line feed that the template doesn't have.
    fn templated(&mut self, value: &impl Serialize) -> Result<(), Error> {
        let Some(template) = &mut self.template else { return Ok(()) };
        let value = serde_json::to_value(value).map_err(|error| Error::render("json", error))?;
        let text = template.show(&value);
        if self.answers_to_terminal {
            return self.raw(printable::lines(&text).as_bytes());
        }
        self.raw(text.as_bytes())
    }

    /// Writes one of several documents. Fails if standard output can't be written.
    pub(crate) fn document(&mut self, format: DocumentFormat, value: &impl Serialize) -> Result<(), Error> {
        match format {
            DocumentFormat::JsonLines if self.template.is_some() => self.templated(value),
            DocumentFormat::JsonLines => {
                let text = serde_json::to_string(value).map_err(|error| Error::render("json", error))?;
                let text = if self.answers_to_terminal { printable::json(&text) } else { text };
                self.line(text)
            }
            DocumentFormat::YamlStream => {
                self.line("---")?;
                self.yaml(value)
            }
        }
    }

    /// Writes one YAML document. Fails if standard output can't be written.
    pub(crate) fn yaml(&mut self, value: &impl Serialize) -> Result<(), Error> {
        let text = yaml(value)?;
        self.raw(text.as_bytes())
    }
}

/// Whether logs on standard error are coloured: the same rule as for answers.
pub(crate) fn notes_in_colour(no_color: bool) -> bool {
    io::stderr().is_terminal() && !is_colour_off(no_color)
}

fn is_colour_off(no_color: bool) -> bool {
    no_color
        || std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
        || std::env::var_os("TERM").is_some_and(|t| t == "dumb")
}

/// `value` as a YAML document that ends in a line feed. Fails if YAML can't represent it.
pub(crate) fn yaml(value: &impl Serialize) -> Result<String, Error> {
    let mut text = serde_saphyr::to_string(value).map_err(|error| Error::render("yaml", error))?;
    if !text.ends_with('\n') {
        text.push('\n');
    }
    Ok(text)
}

/// Text that a test's command wrote to one stream.
#[cfg(test)]
#[derive(Clone, Debug, Default)]
pub(crate) struct Captured(std::sync::Arc<std::sync::Mutex<Vec<u8>>>);

#[cfg(test)]
impl Captured {
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
impl Streams {
    /// Streams that a test can read: answers, then notes.
    pub(crate) fn captured() -> (Self, Captured, Captured) {
        let (answers, notes) = (Captured::default(), Captured::default());
        let out = Self {
            answers: Box::new(answers.clone()),
            notes: Box::new(notes.clone()),
            template: None,
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
    fn yaml_round_trips() {
        let value = json!({
            "annotation": "600", "flag": "true", "nothing": "null", "exponent": "1e3", "octal": "010",
            "norway": "no", "empty": "", "text": "a: b # c\nsecond line\n", "spaces": "  x ",
            "list": [], "map": {}, "number": 7, "bool": false, "null": null, "escape": "\u{1b}[0m",
            "nested": [{
                "name": "a",
                "values": ["-", "- x", "[y", "{z", "*w", "&v", "!u", "%t", "@s", "`r", "'q", "\"p"],
            }],
        });
        let text = yaml(&value).unwrap();
        assert_eq!(serde_saphyr::from_str::<Value>(&text).unwrap(), value, "{text}");
        assert!(!text.contains('\u{1b}'), "{text}");
    }

    #[test]
    fn colour_is_off_without_a_terminal_or_on_request() {
        assert!(is_colour_off(true) && !notes_in_colour(true));
        assert!(io::stderr().is_terminal() || !notes_in_colour(false));
    }

    #[test]
    fn notes_are_escaped() {
        let (mut out, _, notes) = Streams::captured();
        out.warn("from an agent: \u{1b}[2J");
        assert_eq!(notes.text(), "warning: from an agent: \\x1b[2J\n");
    }
}
