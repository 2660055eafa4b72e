//! Tables with details below each row, for terminals of 80 columns.
//!
//! A table that is too wide is stacked: the first cell of a row, then the other cells with their headers,
//! then the details.

use crate::output::printable;
use crate::output::table::{Cell, Table};

/// Width of a terminal window by default.
pub(super) const WIDTH: usize = 80;

const INDENT: &str = "  ";

#[derive(Debug)]
pub(super) struct Row {
    cells: Vec<String>,
    details: Vec<String>,
}

impl Row {
    pub(super) fn new(cells: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self { cells: cells.into_iter().map(Into::into).collect(), details: Vec::new() }
    }

    /// Adds lines that are shown below the row.
    pub(super) fn with_details(mut self, details: impl IntoIterator<Item = String>) -> Self {
        self.details.extend(details);
        self
    }
}

#[derive(Debug)]
pub(super) struct Listing {
    headers: Vec<&'static str>,
    rows: Vec<Row>,
}

impl Listing {
    pub(super) fn new(headers: impl IntoIterator<Item = &'static str>) -> Self {
        Self { headers: headers.into_iter().collect(), rows: Vec::new() }
    }

    pub(super) fn push(&mut self, row: Row) {
        debug_assert_eq!(row.cells.len(), self.headers.len(), "a row has a cell for each header");
        self.rows.push(row);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The text in at most [`WIDTH`] columns, if words allow it.
    pub(super) fn text(&self, colour: bool) -> String {
        if self.table(false).lines().any(|line| printable::width(line) > WIDTH) {
            return self.stacked();
        }
        let table = self.table(colour);
        let mut lines = table.lines();
        let mut text = lines.next().unwrap_or_default().to_owned() + "\n";
        for (line, row) in lines.zip(&self.rows) {
            text.push_str(line);
            text.push('\n');
            push_details(&mut text, row);
        }
        text
    }

    /// The rows as a table with all columns, without details.
    pub(super) fn table(&self, colour: bool) -> String {
        let mut table = Table::new(self.headers.iter().copied());
        for row in &self.rows {
            let cells = self.headers.iter().zip(&row.cells);
            table.push(
                cells
                    .map(
                        |(header, cell)| if *header == "STATE" { Cell::state(cell) } else { Cell::new(cell) },
                    )
                    .collect(),
            );
        }
        table.text(colour)
    }

    fn stacked(&self) -> String {
        let mut text = String::new();
        for row in &self.rows {
            let mut cells = self.headers.iter().zip(&row.cells);
            if let Some((_, name)) = cells.next() {
                text.push_str(&printable::line(name));
                text.push('\n');
            }
            let pairs: Vec<String> = cells
                .filter(|(_, cell)| !cell.is_empty())
                .map(|(header, cell)| format!("{}: {cell}", header.to_lowercase()))
                .collect();
            push_wrapped(&mut text, INDENT, &pairs.join(", "));
            push_details(&mut text, row);
        }
        text
    }
}

fn push_details(text: &mut String, row: &Row) {
    for detail in &row.details {
        push_wrapped(text, INDENT, detail);
    }
}

/// Adds a sentence, wrapped at spaces. Further lines have two more columns of indentation.
pub(super) fn push_wrapped(text: &mut String, indent: &str, sentence: &str) {
    let sentence = printable::line(sentence);
    let mut line = indent.to_owned();
    let mut is_start = true;
    for word in sentence.split(' ') {
        if !is_start && printable::width(&line) + 1 + printable::width(word) > WIDTH {
            text.push_str(&line);
            text.push('\n');
            line = format!("{indent}{INDENT}");
            is_start = true;
        }
        if !is_start {
            line.push(' ');
        }
        line.push_str(word);
        is_start = false;
    }
    text.push_str(&line);
    text.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listing(name: &str) -> Listing {
        let mut listing = Listing::new(["WORKLOAD", "QUEUE", "STATE"]);
        let row = Row::new([name, "vision", "Admitted"]);
        listing.push(row.with_details(["spot: 16 cpu".to_owned()]));
        listing
    }

    #[test]
    fn details_follow_their_row() {
        let text = listing("ml/train").text(false);
        assert_eq!(text, "WORKLOAD   QUEUE    STATE\nml/train   vision   Admitted\n  spot: 16 cpu\n");
    }

    #[test]
    fn a_wide_table_is_stacked() {
        let name = "n".repeat(70);
        let expected = format!("{name}\n  queue: vision, state: Admitted\n  spot: 16 cpu\n");
        assert_eq!(listing(&name).text(false), expected);
    }

    #[test]
    fn sentences_wrap_at_the_width() {
        let mut text = String::new();
        push_wrapped(&mut text, "  ", &"word ".repeat(40));
        assert!(text.lines().all(|line| line.len() <= WIDTH), "{text}");
        assert!(text.lines().skip(1).all(|line| line.starts_with("    word")), "{text}");
        let long = "x".repeat(100);
        text.clear();
        push_wrapped(&mut text, "", &format!("a {long} b"));
        assert_eq!(text, format!("a\n  {long}\n  b\n"));
    }
}
