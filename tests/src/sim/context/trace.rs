//! The trace of a run: one line per event, with its step and its virtual time.
//!
//! A trace is off by default. A failed seed is run again with the trace on.

use std::collections::{BTreeMap, VecDeque};

/// How much of a trace is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// Nothing; lines aren't even formatted.
    Nothing,
    /// The newest lines.
    Tail(usize),
    All,
}

#[derive(Clone, Debug)]
pub(crate) struct Trace {
    keep: Keep,
    lines: VecDeque<String>,
    /// Names that are shown in place of ids, by id as text.
    names: BTreeMap<String, String>,
}

impl Trace {
    pub(crate) fn new(keep: Keep) -> Self {
        Self { keep, lines: VecDeque::new(), names: BTreeMap::new() }
    }

    /// Adds a line, if lines are kept.
    pub(crate) fn add(&mut self, step: u64, at: u64, line: impl FnOnce() -> String) {
        let most = match self.keep {
            Keep::Nothing => return,
            Keep::Tail(most) => most,
            Keep::All => usize::MAX,
        };
        self.lines.push_back(format!("{step:>6} {:>4}.{:03}s {}", at / 1_000, at % 1_000, line()));
        while self.lines.len() > most {
            self.lines.pop_front();
        }
    }

    /// Names an id: the trace shows the name instead. A name that is taken gets a number.
    pub(crate) fn name(&mut self, id: String, name: String) {
        if self.names.contains_key(&id) {
            return;
        }
        let numbered = format!("{name}~");
        let taken =
            self.names.values().filter(|other| **other == name || other.starts_with(&numbered)).count();
        let name = if taken == 0 { name } else { format!("{name}~{}", taken + 1) };
        self.names.insert(id, name);
    }

    /// `text` with names in place of ids.
    pub(crate) fn with_names(&self, text: &str) -> String {
        self.names.iter().fold(text.to_owned(), |text, (id, name)| text.replace(id, name))
    }

    /// The lines that were kept.
    pub(crate) fn text(&self) -> String {
        let lines = self.lines.iter().fold(String::new(), |text, line| text + line + "\n");
        self.with_names(&lines)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_show_step_time_and_names() {
        let mut trace = Trace::new(Keep::Tail(1));
        trace.add(1, 5, || "dropped".into());
        trace.add(12, 3_021, || "grant of 0007".into());
        trace.name("0007".into(), "open/job-1".into());
        assert_eq!(trace.text(), "    12    3.021s grant of open/job-1\n");
        trace.name("1-77".into(), "L1".into());
        trace.name("1-88".into(), "L1".into());
        assert_eq!(trace.with_names("1-77-3 after 1-88-2"), "L1-3 after L1~2-2");
    }
}
