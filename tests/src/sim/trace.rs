//! What happened, one line per event. Off unless asked for: a failing seed is run again with it on.

use std::collections::VecDeque;

/// How much is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// Nothing is even formatted.
    Nothing,
    /// The newest lines.
    Tail(usize),
    /// Every line.
    All,
}

/// The lines.
#[derive(Clone, Debug)]
pub struct Trace {
    keep: Keep,
    lines: VecDeque<String>,
}

impl Trace {
    /// An empty trace.
    pub fn new(keep: Keep) -> Self {
        Self { keep, lines: VecDeque::new() }
    }

    /// Adds a line, if lines are kept.
    pub fn say(&mut self, at: u64, line: impl FnOnce() -> String) {
        let most = match self.keep {
            Keep::Nothing => return,
            Keep::Tail(most) => most,
            Keep::All => usize::MAX,
        };
        self.lines.push_back(format!("{:>4}.{:03} {}", at / 1_000, at % 1_000, line()));
        while self.lines.len() > most {
            self.lines.pop_front();
        }
    }

    /// What was kept, as text.
    pub fn text(&self) -> String {
        self.lines.iter().fold(String::new(), |mut text, line| {
            text.push_str(line);
            text.push('\n');
            text
        })
    }
}
