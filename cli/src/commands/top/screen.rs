//! A terminal's second screen: a page that is painted over and over, and leaves no trace.

use crate::error::Error;
use crate::output::printable;
use crate::output::streams::Streams;

/// Switches to the second screen and hides the cursor.
const OPEN: &[u8] = b"\x1b[?1049h\x1b[?25l";
/// Shows the cursor and the first screen again.
const CLOSE: &[u8] = b"\x1b[?25h\x1b[?1049l";
/// Moves to the upper left corner.
const HOME: &[u8] = b"\x1b[H";
/// Clears the rest of the line; of the screen.
const CLEAR_LINE: &str = "\x1b[K";
const CLEAR_BELOW: &str = "\x1b[J";
/// Size for terminals that don't report their own.
const DEFAULT_SIZE: (usize, usize) = (24, 80);

pub(super) struct Screen;

impl Screen {
    pub(super) fn open(out: &mut Streams) -> Result<Self, Error> {
        out.raw(OPEN)?;
        Ok(Self)
    }

    /// Paints `text` below a line with `note`; what doesn't fit is cut off.
    pub(super) fn show(&self, out: &mut Streams, note: &str, text: &str) -> Result<(), Error> {
        let (rows, columns) = size();
        out.raw(HOME)?;
        out.raw(paint(note, text, rows, columns).as_bytes())?;
        out.flush()
    }

    pub(super) fn close(self, out: &mut Streams) -> Result<(), Error> {
        out.raw(CLOSE)?;
        out.flush()
    }
}

fn size() -> (usize, usize) {
    let size = rustix::termios::tcgetwinsize(std::io::stdout()).ok();
    let size = size.map(|size| (usize::from(size.ws_row), usize::from(size.ws_col)));
    size.filter(|(rows, columns)| *rows > 1 && *columns > 1).unwrap_or(DEFAULT_SIZE)
}

fn paint(note: &str, text: &str, rows: usize, columns: usize) -> String {
    let note = printable::line(note);
    let lines: Vec<&str> = std::iter::once(note.as_ref()).chain(text.lines()).collect();
    let hidden = lines.len().saturating_sub(rows);
    let shown = if hidden > 0 { rows.saturating_sub(1) } else { lines.len() };
    let mut page: Vec<String> = lines[..shown].iter().map(|line| fit(line, columns)).collect();
    if hidden > 0 {
        page.push(format!("… {} more lines", hidden + 1));
    }
    let mut painted = page.join(&format!("{CLEAR_LINE}\r\n"));
    painted.push_str(CLEAR_LINE);
    painted.push_str(CLEAR_BELOW);
    painted
}

/// Cuts a line; colours count no columns, and end with the line.
fn fit(line: &str, columns: usize) -> String {
    let (mut cut, mut used, mut in_colour) = (String::new(), 0, false);
    for c in line.chars() {
        if in_colour || c == '\x1b' {
            in_colour = c != 'm';
            cut.push(c);
            continue;
        }
        used += printable::width(c.encode_utf8(&mut [0; 4]));
        if used > columns {
            return cut + "\x1b[0m";
        }
        cut.push(c);
    }
    cut
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_never_scrolls() {
        assert_eq!(paint("n", "a\nb\n", 3, 9), "n\x1b[K\r\na\x1b[K\r\nb\x1b[K\x1b[J");
        assert_eq!(paint("n", "a\nb\nc\n", 3, 20), "n\x1b[K\r\na\x1b[K\r\n… 2 more lines\x1b[K\x1b[J");
        assert_eq!(fit("\x1b[32mRunning\x1b[0m", 3), "\x1b[32mRun\x1b[0m");
        assert_eq!(fit("\x1b[32mRun\x1b[0m", 3), "\x1b[32mRun\x1b[0m");
        assert_eq!(fit("東京", 3), "東\x1b[0m");
    }
}
