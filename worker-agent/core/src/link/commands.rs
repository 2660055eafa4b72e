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

    /// Whether commands wait for their turn.
    pub(crate) fn has_ahead(&self) -> bool {
        !self.ahead.is_empty()
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

#[cfg(test)]
mod tests {
    use super::*;
    use meridian_shared::ids::{OfferId, Uid};

    fn sent(at: u64) -> QueuedCommand {
        let offer = OfferId { epoch: 1, leadership: 1, counter: at };
        QueuedCommand { sent: Mono(at), command: Command::Withdraw { offer, uid: Uid(1) } }
    }

    fn next(queue: &mut CommandQueue) -> Option<u64> {
        queue.next().map(|queued| queued.sent.0)
    }

    #[test]
    fn commands_are_done_in_their_order_and_once() {
        let mut queue = CommandQueue::default();
        queue.push(2, sent(20));
        assert_eq!((next(&mut queue), queue.done(), queue.has_ahead()), (None, 0, true));
        queue.push(1, sent(10));
        assert_eq!([next(&mut queue), next(&mut queue), next(&mut queue)], [Some(10), Some(20), None]);
        queue.push(2, sent(30));
        assert_eq!((next(&mut queue), queue.done(), queue.has_ahead()), (None, 2, false));
        queue.push(4, sent(40));
        queue.restart();
        assert_eq!((queue.done(), queue.has_ahead()), (0, false));
    }

    #[test]
    fn of_two_sendings_the_later_one_counts() {
        let mut queue = CommandQueue::default();
        [5, 3, 7, 6].into_iter().for_each(|at| queue.push(1, sent(at)));
        assert_eq!(next(&mut queue), Some(7));
    }

    #[test]
    fn commands_beyond_two_full_answers_are_dropped() {
        let most = COMMANDS_MAX as u64 * 2;
        let mut queue = CommandQueue::default();
        queue.push(1, sent(1));
        queue.next();
        queue.push(most + 2, sent(2));
        assert!(!queue.has_ahead());
        queue.push(most + 1, sent(3));
        assert!(queue.has_ahead());
    }
}
