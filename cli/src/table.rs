//! Tables as people know them from `kubectl`: columns of upper-case headers, three spaces apart, nothing drawn.
//!
//! Cells are escaped here and padded by terminal columns, not by bytes or characters. Colour is laid over the padded
//! text, so that a table reads the same without it.

use crate::printable;
use std::fmt::Write;

/// Blanks between two columns.
const GAP: usize = 3;

/// What a cell's words amount to; shown as a colour where there is one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Tone {
    /// Nothing special.
    #[default]
    Plain,
    /// As it should be.
    Good,
    /// Not yet, or worth a look.
    Waiting,
    /// Wrong.
    Bad,
}

impl Tone {
    /// `text` in the tone's colour if `colour` is on.
    fn paint(self, text: &str, colour: bool) -> String {
        let code = match self {
            Self::Good => "32",
            Self::Waiting => "33",
            Self::Bad => "31",
            Self::Plain => return text.to_owned(),
        };
        if colour { format!("\u{1b}[{code}m{text}\u{1b}[0m") } else { text.to_owned() }
    }

    /// The tone of a word that says in which state something is.
    fn of_state(word: &str) -> Self {
        // a cluster's state may have a remark after a comma, and the remark is what wants a look
        match word.rsplit(',').next().unwrap_or(word) {
            "Running" | "Finished" | "Succeeded" | "Complete" | "Connected" | "Active" | "True"
            | "Admitted" | "running" | "starting" | "held" => Self::Good,
            "Failed" | "Silent" | "NotConnected" | "False" | "Quarantined" | "silent" | "refused"
            | "forbidden" | "no-room" => Self::Bad,
            "Pending" | "Reserved" | "QuotaReserved" | "Dispatching" | "Granted" | "Stopping"
            | "Cordoned" | "NeverJoined" | "Recovering" | "Unknown" | "waiting" | "offered" | "stopping"
            | "unknown" | "cordoned" => Self::Waiting,
            _ => Self::Plain,
        }
    }
}

/// One cell: what it says, and its tone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cell {
    text: String,
    tone: Tone,
}

impl Cell {
    /// A cell that says `text`; an empty one shows as a dash.
    pub(crate) fn new(text: impl AsRef<str>) -> Self {
        let text = printable::line(text.as_ref());
        Self { text: if text.is_empty() { "-".to_owned() } else { text.into_owned() }, tone: Tone::Plain }
    }

    /// A cell that says in which state something is.
    pub(crate) fn state(word: impl AsRef<str>) -> Self {
        Self { tone: Tone::of_state(word.as_ref()), ..Self::new(word) }
    }
}

/// Headers and rows. Widths only grow, so that rows that come later (in a watch) stay under their headers.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    headers: Vec<String>,
    widths: Vec<usize>,
    rows: Vec<Vec<Cell>>,
}

impl Table {
    /// A table with these columns.
    pub(crate) fn new<'h>(headers: impl IntoIterator<Item = &'h str>) -> Self {
        let headers: Vec<String> = headers.into_iter().map(ToOwned::to_owned).collect();
        Self {
            widths: headers.iter().map(|header| printable::width(header)).collect(),
            headers,
            rows: Vec::new(),
        }
    }

    /// Adds a row; it has as many cells as there are headers.
    pub(crate) fn push(&mut self, row: Vec<Cell>) {
        debug_assert_eq!(row.len(), self.headers.len(), "a row fits its table");
        for (width, cell) in self.widths.iter_mut().zip(&row) {
            *width = (*width).max(printable::width(&cell.text));
        }
        self.rows.push(row);
    }

    /// Whether there are no rows.
    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The headers' line and all rows.
    pub(crate) fn text(&mut self, colour: bool) -> String {
        let headers: Vec<Cell> = self.headers.iter().map(Cell::new).collect();
        let mut text = String::new();
        self.write(&mut text, &headers, colour);
        text.push_str(&self.rows_text(colour));
        text
    }

    /// The rows that were pushed since the last call, without headers.
    pub(crate) fn rows_text(&mut self, colour: bool) -> String {
        let mut text = String::new();
        for row in std::mem::take(&mut self.rows) {
            self.write(&mut text, &row, colour);
        }
        text
    }

    fn write(&self, text: &mut String, row: &[Cell], colour: bool) {
        for (index, (cell, width)) in row.iter().zip(&self.widths).enumerate() {
            text.push_str(&cell.tone.paint(&cell.text, colour));
            if index + 1 < row.len() {
                let blanks = width + GAP - printable::width(&cell.text).min(*width);
                write!(text, "{:blanks$}", "").expect("writing to a string can't fail");
            }
        }
        text.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_align_by_terminal_width() {
        let mut table = Table::new(["NAME", "STATE", "AGE"]);
        table.push(vec![Cell::new("東京-train"), Cell::state("Running"), Cell::new("5m")]);
        table.push(vec![Cell::new("b\u{1b}[0m"), Cell::state("Pending"), Cell::new("")]);
        assert_eq!(
            table.clone().text(false),
            "NAME         STATE     AGE\n東京-train   Running   5m\nb\\x1b[0m     Pending   -\n"
        );
        let coloured = table.text(true);
        assert!(coloured.contains("\u{1b}[32mRunning\u{1b}[0m   5m"), "{coloured:?}");
        assert!(table.is_empty());
        table.push(vec![Cell::new("c"), Cell::state("Failed"), Cell::new("1s")]);
        assert_eq!(table.rows_text(false), "c            Failed    1s\n");
    }
}
