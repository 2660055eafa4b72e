//! Tables as `kubectl` prints them: upper-case headers, columns three spaces apart, no lines.
//!
//! Cells are escaped here and padded by terminal columns, not by bytes or characters. Colour only repeats
//! what the words say. A table that is wider than its reader's page wraps its last column, or puts it below
//! the others.

use super::printable;
use super::wrap::wrap;
use std::fmt::Write;

/// Blanks between two columns.
const GAP: usize = 3;
/// A last column narrower than this is put below the others instead of wrapped.
const WRAPPED_COLUMNS_MIN: usize = 30;
/// Indent of a last column that is printed below the others.
const INDENT: usize = 2;

/// Whether the state in a cell is good or bad; shown as a colour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Tone {
    #[default]
    Plain,
    Good,
    Waiting,
    Bad,
}

impl Tone {
    fn paint(self, text: &str, colour: bool) -> String {
        let code = match self {
            Self::Good => "32",
            Self::Waiting => "33",
            Self::Bad => "31",
            Self::Plain => return text.to_owned(),
        };
        if colour { format!("\u{1b}[{code}m{text}\u{1b}[0m") } else { text.to_owned() }
    }

    fn of_state(word: &str) -> Self {
        // `Connected,Cordoned`: the part after the comma needs attention.
        match word.rsplit(',').next().unwrap_or(word) {
            "Running" | "Finished" | "Succeeded" | "Complete" | "Connected" | "Active" | "True"
            | "Admitted" | "running" | "starting" | "held" | "kept" => Self::Good,
            "Failed" | "Damaged" | "ClusterLost" | "lost" | "Disconnected" | "NotConnected" | "False"
            | "Quarantined" | "BROKEN" | "disconnected" | "refused" | "forbidden" | "no-room" => Self::Bad,
            "Pending" | "Reserved" | "QuotaReserved" | "Dispatching" | "Granted" | "Stopping"
            | "Cordoned" | "NeverJoined" | "Recovering" | "Unknown" | "waiting" | "offered" | "stopping"
            | "unknown" | "cordoned" => Self::Waiting,
            _ => Self::Plain,
        }
    }
}

/// A sentence in the colour of a good or a bad state.
pub(crate) fn painted(text: &str, is_good: bool, colour: bool) -> String {
    let tone = if is_good { Tone::Good } else { Tone::Bad };
    tone.paint(&printable::line(text), colour)
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cell {
    /// Lines of the cell, at least one. Only the last cell of a row may have several.
    lines: Vec<String>,
    tone: Tone,
}

impl Cell {
    /// A cell with one line; an empty one shows as a dash.
    pub(crate) fn new(text: impl AsRef<str>) -> Self {
        Self::paragraphs([text])
    }

    /// A cell that names a state, such as `Running` or `no-room`.
    pub(crate) fn state(word: impl AsRef<str>) -> Self {
        Self { tone: Tone::of_state(word.as_ref()), ..Self::new(word) }
    }

    /// A cell of several lines, for the last column of a table. Empty lines are left out.
    pub(crate) fn paragraphs<T: AsRef<str>>(texts: impl IntoIterator<Item = T>) -> Self {
        let mut lines: Vec<String> = texts
            .into_iter()
            .filter(|text| !text.as_ref().is_empty())
            .map(|text| printable::line(text.as_ref()).into_owned())
            .collect();
        if lines.is_empty() {
            lines.push("-".to_owned());
        }
        Self { lines, tone: Tone::Plain }
    }

    fn first(&self) -> &str {
        &self.lines[0]
    }

    fn width(&self) -> usize {
        self.lines.iter().map(|line| printable::width(line)).max().unwrap_or(0)
    }
}

/// Headers and rows. Widths only grow, so that later rows of a watch stay under their headers.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    headers: Vec<String>,
    widths: Vec<usize>,
    rows: Vec<Vec<Cell>>,
}

impl Table {
    pub(crate) fn new(headers: impl IntoIterator<Item = impl Into<String>>) -> Self {
        let headers: Vec<String> = headers.into_iter().map(Into::into).collect();
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
            *width = (*width).max(cell.width());
        }
        self.rows.push(row);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Headers and rows, each row on one line, so that programs can cut it by columns.
    pub(crate) fn text(&mut self, colour: bool) -> String {
        let mut text = self.header_line();
        text.push_str(&self.rows_text(colour));
        text
    }

    /// The rows pushed since the last call, without headers.
    pub(crate) fn rows_text(&mut self, colour: bool) -> String {
        self.take_rows(colour, usize::MAX)
    }

    /// Headers and rows for a page of this many columns.
    pub(crate) fn page(&mut self, colour: bool, columns: usize) -> String {
        let before_last = self.width_before_last();
        let last = self.widths.last().copied().unwrap_or(0);
        if before_last + last <= columns {
            return self.text(colour);
        }
        let available = columns.saturating_sub(before_last);
        if available >= WRAPPED_COLUMNS_MIN {
            let mut text = self.header_line();
            text.push_str(&self.take_rows(colour, available));
            return text;
        }
        self.stacked(colour, columns)
    }

    /// Columns in front of the last cell, with their gaps.
    fn width_before_last(&self) -> usize {
        let before = &self.widths[..self.widths.len().saturating_sub(1)];
        before.iter().map(|width| width + GAP).sum()
    }

    fn header_line(&self) -> String {
        let headers: Vec<Cell> = self.headers.iter().map(Cell::new).collect();
        let mut text = String::new();
        self.write_row(&mut text, &headers, false, usize::MAX);
        text
    }

    /// Writes all rows and forgets them; the last cell wraps at `last_columns`.
    fn take_rows(&mut self, colour: bool, last_columns: usize) -> String {
        let mut text = String::new();
        for row in std::mem::take(&mut self.rows) {
            self.write_row(&mut text, &row, colour, last_columns);
        }
        text
    }

    fn write_row(&self, text: &mut String, row: &[Cell], colour: bool, last_columns: usize) {
        let Some((last, before)) = row.split_last() else { return };
        self.write_cells(text, before, colour, true);
        let indent = self.width_before_last();
        let lines = last.lines.iter().flat_map(|line| wrap(line, last_columns));
        for (index, line) in lines.enumerate() {
            if index > 0 {
                write!(text, "{:indent$}", "").expect("writing to a string can't fail");
            }
            text.push_str(&last.tone.paint(&line, colour));
            text.push('\n');
        }
    }

    /// The last column below the others, indented.
    fn stacked(&mut self, colour: bool, columns: usize) -> String {
        let mut text = String::new();
        let headers: Vec<Cell> = self.headers.iter().map(Cell::new).collect();
        let rows = std::mem::take(&mut self.rows);
        for row in std::iter::once(&headers).chain(&rows) {
            let Some((last, before)) = row.split_last() else { continue };
            self.write_cells(&mut text, before, colour, false);
            text.push('\n');
            for line in last.lines.iter().flat_map(|line| wrap(line, columns.saturating_sub(INDENT))) {
                writeln!(text, "{:INDENT$}{}", "", last.tone.paint(&line, colour))
                    .expect("writing to a string can't fail");
            }
        }
        text
    }

    /// Pads each cell to its column; the one at the end of the line only if `pad_last`.
    fn write_cells(&self, text: &mut String, cells: &[Cell], colour: bool, pad_last: bool) {
        for (index, (cell, width)) in cells.iter().zip(&self.widths).enumerate() {
            text.push_str(&cell.tone.paint(cell.first(), colour));
            if pad_last || index + 1 < cells.len() {
                let blanks = width + GAP - cell.width().min(*width);
                write!(text, "{:blanks$}", "").expect("writing to a string can't fail");
            }
        }
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

    #[test]
    fn a_wide_last_column_is_wrapped_or_put_below() {
        let mut table = Table::new(["CLUSTER", "VERDICT", "REASON"]);
        let reason = "3 `nvidia.com/gpu` are requested and 1 of 4 is free";
        let row = vec![Cell::new("eu"), Cell::state("no-room"), Cell::paragraphs([reason, "next: wait", ""])];
        table.push(row);
        assert_eq!(
            table.clone().page(false, 55),
            "CLUSTER   VERDICT   REASON\n\
             eu        no-room   3 `nvidia.com/gpu` are requested\n                    \
             and 1 of 4 is free\n                    \
             next: wait\n"
        );
        assert_eq!(
            table.clone().page(false, 40),
            "CLUSTER   VERDICT\n  REASON\n\
             eu        no-room\n  3 `nvidia.com/gpu` are requested and 1\n  of 4 is free\n  next: wait\n"
        );
        assert_eq!(table.clone().page(false, 80), table.text(false));
    }
}
