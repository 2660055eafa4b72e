//! Commands of the manager in their order. Two answers may be under way at once and arrive in any order, so a
//! command that arrives ahead of its turn is kept.

use meridian_shared::protocol::{COMMANDS_MAX, Command};
use meridian_shared::time::Mono;
use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};

/// How far a command may be ahead of its turn: two full answers. The manager repeats what is dropped.
const AHEAD_MAX: u64 = 2 * COMMANDS_MAX as u64;

/// A command with the sending time of the transmission that its answer echoes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct QueuedCommand {
    pub(crate) sent: Mono,
    pub(crate) command: Command,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct CommandQueue {
    /// Number of the last command that was done.
    done: u64,
    ahead: BTreeMap<u64, QueuedCommand>,
}

impl CommandQueue {
    /// Number of the last command that was done.
    pub(crate) fn done(&self) -> u64 {
        self.done
    }

    /// Keeps a command for its turn. If it was sent twice the later sending counts, because the manager
    /// checks its rules at each sending.
    pub(crate) fn push(&mut self, number: u64, queued: QueuedCommand) {
        let expected = number > self.done && number - self.done <= AHEAD_MAX;
        if expected && self.ahead.get(&number).is_none_or(|known| known.sent <= queued.sent) {
            self.ahead.insert(number, queued);
        }
    }

    /// The next command in order; it counts as done.
    pub(crate) fn next(&mut self) -> Option<QueuedCommand> {
        let queued = self.ahead.remove(&(self.done + 1))?;
        self.done += 1;
        Some(queued)
    }

    /// Another leadership numbers its commands from 1.
    pub(crate) fn restart(&mut self) {
        *self = Self::default();
    }

    pub(crate) fn hash_fingerprint(&self, now: Mono, into: &mut impl Hasher) {
        self.done.hash(into);
        for (number, QueuedCommand { sent, command }) in &self.ahead {
            (number, now.since(*sent), command).hash(into);
        }
    }
}
