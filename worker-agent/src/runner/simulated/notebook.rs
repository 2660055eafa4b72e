//! The inputs of the book, one JSON value per line, so that a restarted agent finds its simulated runs again.
//!
//! Never synced: it must outlive the agent, not the machine, because a reboot loses every run anyway. A last line that was
//! cut is dropped. What can't be written is said once and costs only the next agent's memory.

use super::book::{Book, Input};
use crate::runner::Error;
use meridian_shared::time::Now;
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};

const VERSION: u32 = 1;
/// Lines beyond four per run before the file is written anew: it stays of the size of what it holds.
const LINES_SLACK: usize = 10_000;
const LINES_PER_RUN: usize = 4;

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Header {
    version: u32,
    boot_id: String,
}

#[derive(Debug, Serialize, Deserialize)]
struct Note {
    now: Now,
    input: Input,
}

/// The open file.
#[derive(Debug)]
pub(super) struct Notebook {
    path: PathBuf,
    boot_id: String,
    file: File,
    lines: usize,
    complained: bool,
}

impl Notebook {
    /// Opens the notebook at `path` and brings `book` to where it was left.
    pub(super) fn open(path: PathBuf, boot_id: &str, mut book: Book) -> Result<(Self, Book), Error> {
        let file_error = |doing| {
            let path = path.clone();
            move |source| Error::File { doing, path, source }
        };
        match File::open(&path) {
            Ok(file) => replay(file, boot_id, &mut book).map_err(file_error("read"))?,
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => return Err(file_error("open")(e)),
        }
        let file = rewrite(&path, boot_id, &book).map_err(file_error("write"))?;
        let lines = book.len();
        Ok((Self { path, boot_id: boot_id.to_owned(), file, lines, complained: false }, book))
    }

    /// Adds an input.
    pub(super) fn note(&mut self, now: Now, input: &Input) {
        let written = serde_json::to_vec(&Note { now, input: input.clone() })
            .map_err(io::Error::from)
            .and_then(|mut line| {
                line.push(b'\n');
                self.file.write_all(&line)
            });
        self.lines += 1;
        self.complain(written.err());
    }

    /// Writes the file anew when it holds much more than the book.
    pub(super) fn compact_when_long(&mut self, book: &Book) {
        if self.lines <= LINES_PER_RUN * book.len() + LINES_SLACK {
            return;
        }
        self.lines = book.len();
        match rewrite(&self.path, &self.boot_id, book) {
            Ok(file) => self.file = file,
            Err(error) => self.complain(Some(error)),
        }
    }

    fn complain(&mut self, error: Option<io::Error>) {
        if let Some(error) = error
            && !std::mem::replace(&mut self.complained, true)
        {
            tracing::error!(path = %self.path.display(), %error, "simulated runs can't be noted: a restarted agent will not know them");
        }
    }
}

fn replay(file: File, boot_id: &str, book: &mut Book) -> io::Result<()> {
    let mut lines = BufReader::new(file).lines();
    let header = lines.next().transpose()?.and_then(|line| serde_json::from_str::<Header>(&line).ok());
    for line in lines {
        // Only the last line can be cut, by the end of the agent that wrote it.
        let Ok(Note { now, input }) = serde_json::from_str(&line?) else { break };
        book.take_in(input, now);
    }
    if header != Some(Header { version: VERSION, boot_id: boot_id.to_owned() }) {
        book.lose_all();
    }
    Ok(())
}

fn rewrite(path: &Path, boot_id: &str, book: &Book) -> io::Result<File> {
    let aside = path.with_extension("new");
    let mut text = Vec::new();
    let mut line = |value: serde_json::Result<Vec<u8>>| {
        text.extend(value?);
        text.push(b'\n');
        io::Result::Ok(())
    };
    line(serde_json::to_vec(&Header { version: VERSION, boot_id: boot_id.to_owned() }))?;
    for (now, input) in book.inputs() {
        line(serde_json::to_vec(&Note { now, input }))?;
    }
    std::fs::write(&aside, &text)?;
    std::fs::rename(&aside, path)?;
    OpenOptions::new().append(true).open(path)
}

#[cfg(test)]
mod tests {
    use super::super::plan::Speed;
    use super::*;
    use crate::runner::FoundState;
    use meridian_shared::ids::{Fence, Uid};

    #[test]
    fn a_cut_last_line_is_dropped_and_another_boot_loses_runs_but_keeps_ends() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("runs.jsonl");
        let stop = Input::Stop { uid: Uid(7), fence: Fence { epoch: 1, leadership: 2, counter: 3 } };
        let (mut notebook, _) = Notebook::open(path.clone(), "boot", Book::new(Speed::REAL)).unwrap();
        notebook.note(Now::default(), &stop);
        notebook.file.write_all(b"{\"now\":").unwrap();
        for boot in ["boot", "other"] {
            let (_, book) = Notebook::open(path.clone(), boot, Book::new(Speed::REAL)).unwrap();
            assert!(matches!(book.found()[0].state, FoundState::Ended(_)), "{boot}");
        }
        assert_eq!(std::fs::read_to_string(&path).unwrap().lines().count(), 2);
    }
}
