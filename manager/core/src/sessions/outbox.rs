//! Commands to one agent session: numbered, repeated until acknowledged, and rendered only when they are
//! sent.
//!
//! The outbox keeps references to commands, not messages. So the rules about sending (residency, the age of a
//! grant, recovery) are checked at every send.

use crate::fingerprint::hash_age;
use meridian_shared::ids::{Fence, OfferId, RecordNumber, Uid};
use meridian_shared::protocol::{COMMANDS_MAX, Size, StopReason};
use meridian_shared::time::{Millis, Mono};
use std::collections::{BTreeMap, VecDeque};
use std::hash::{Hash, Hasher};

/// Time after which an unacknowledged command is sent again.
pub const RESEND: Millis = Millis::secs(2);

/// Limit of commands under way. An agent that misses one command buffers at most this many later ones.
const WINDOW: u64 = 2 * COMMANDS_MAX as u64;

/// Reference to a command. The message is made from it when it is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CommandRef {
    /// Ask the agent to hold capacity.
    Offer(Uid, OfferId),
    /// Withdraw an offer.
    Withdraw(Uid, OfferId),
    /// Grant the right to run.
    Grant(Uid, OfferId, Fence),
    /// Stop an attempt.
    Stop(Uid, Fence, StopReason),
    /// Scale an attempt down to this size.
    ScaleDown(Uid, Fence, Size),
    /// Scale an attempt up; the record is the one that charged quota for it.
    ScaleUp(Uid, Fence, RecordNumber),
    /// Set an attempt's priority, which this record changed.
    SetPriority(Uid, Fence, RecordNumber),
}

/// Commands of one leadership to one session.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Outbox {
    /// Unacknowledged commands, in order.
    queue: VecDeque<CommandRef>,
    /// Number of each unacknowledged command.
    numbers: BTreeMap<CommandRef, u64>,
    /// Number of the first command in `queue`.
    first: u64,
    /// Commands after this number are to be sent. Moves back on a resend, because the agent may have missed
    /// everything after the resent command.
    sent_through: u64,
    /// The highest number that was ever sent.
    reached: u64,
    /// When the first command in `queue` was sent, or became the first by an acknowledgement. Sending newer
    /// commands must not reset this time, or under load the resend would never be due, and an agent that
    /// missed a command can't apply later ones.
    sent_at: Mono,
}

impl Default for Outbox {
    fn default() -> Self {
        Self {
            queue: VecDeque::new(),
            numbers: BTreeMap::new(),
            first: 1,
            sent_through: 0,
            reached: 0,
            sent_at: Mono(0),
        }
    }
}

impl Outbox {
    /// Adds a command, unless the same one is unacknowledged. Returns its number.
    pub fn push(&mut self, command: CommandRef) -> u64 {
        if let Some(number) = self.numbers.get(&command) {
            return *number;
        }
        self.queue.push_back(command);
        let number = self.last();
        self.numbers.insert(command, number);
        number
    }

    /// The agent acknowledged all commands up to this number.
    pub fn acknowledge(&mut self, through: u64, now: Mono) {
        let through = through.min(self.reached);
        while self.first <= through
            && let Some(acknowledged) = self.queue.pop_front()
        {
            self.numbers.remove(&acknowledged);
            self.first += 1;
            self.sent_at = now;
        }
        self.sent_through = self.sent_through.max(self.first - 1);
    }

    /// Number of the newest acknowledged command.
    pub fn acknowledged(&self) -> u64 {
        self.first - 1
    }

    /// Whether there is something to send now.
    pub fn due(&self, now: Mono) -> bool {
        self.last().min(self.first + WINDOW - 1) > self.sent_through || self.is_late(now)
    }

    fn is_late(&self, now: Mono) -> bool {
        self.sent_through >= self.first && now >= self.sent_at + RESEND
    }

    /// When the oldest command under way will be sent again. `None` if none is under way, or if the resend is
    /// due now.
    pub fn resend_at(&self, now: Mono) -> Option<Mono> {
        let at = self.sent_at + RESEND;
        (self.sent_through >= self.first && at > now).then_some(at)
    }

    /// At most `limit` commands to send now, and the number of the first of them.
    pub fn next(&self, now: Mono, limit: usize) -> (u64, Vec<CommandRef>) {
        let from = if self.is_late(now) { self.first } else { self.first.max(self.sent_through + 1) };
        let skip = usize::try_from(from - self.first).unwrap_or(usize::MAX);
        let window_left = usize::try_from((self.first + WINDOW).saturating_sub(from)).unwrap_or(usize::MAX);
        (from, self.queue.iter().skip(skip).take(limit.min(window_left)).copied().collect())
    }

    /// `count` commands were sent, the first with number `from`.
    pub fn sent(&mut self, now: Mono, from: u64, count: usize) {
        if count > 0 {
            if from == self.first {
                self.sent_at = now;
            }
            self.sent_through = from + count as u64 - 1;
            self.reached = self.reached.max(self.sent_through);
        }
    }

    /// Whether all commands are acknowledged.
    pub fn quiet(&self) -> bool {
        self.queue.is_empty()
    }

    /// Whether this command is unacknowledged.
    pub fn pending(&self, command: &CommandRef) -> bool {
        self.numbers.contains_key(command)
    }

    /// Whether the outbox has a priority of this attempt that was never sent.
    pub fn has_unsent_priority(&self, uid: Uid, fence: Fence) -> bool {
        let of_attempt = CommandRef::SetPriority(uid, fence, RecordNumber(0))
            ..=CommandRef::SetPriority(uid, fence, RecordNumber(u64::MAX));
        self.numbers.range(of_attempt).any(|(_, number)| *number > self.reached)
    }

    /// Number of unacknowledged commands.
    pub fn waiting(&self) -> usize {
        self.queue.len()
    }

    pub(crate) fn hash_fingerprint(&self, now: Mono, into: &mut impl Hasher) {
        let Self { queue, numbers: _, first, sent_through, reached, sent_at } = self;
        (queue, first, [sent_through, reached]).hash(into);
        hash_age(now, *sent_at, RESEND, into);
    }

    /// Number of the newest command.
    pub fn last(&self) -> u64 {
        self.first + self.queue.len() as u64 - 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn send(outbox: &mut Outbox, now: Mono, limit: usize) -> (u64, Vec<CommandRef>) {
        let (from, commands) = outbox.next(now, limit);
        outbox.sent(now, from, commands.len());
        (from, commands)
    }

    #[test]
    fn a_command_is_resent_until_acknowledged() {
        let mut outbox = Outbox::default();
        let offer = |counter| CommandRef::Offer(Uid(1), OfferId { epoch: 1, leadership: 1, counter });
        assert_eq!(outbox.push(offer(1)), 1);
        assert_eq!(outbox.push(offer(1)), 1, "an unacknowledged command is not added again");
        assert_eq!(send(&mut outbox, Mono(5_000), 10), (1, vec![offer(1)]));
        outbox.push(offer(2));
        assert_eq!(send(&mut outbox, Mono(5_001), 10), (2, vec![offer(2)]));
        assert!(!outbox.due(Mono(5_002)));
        assert_eq!(send(&mut outbox, Mono(7_001), 10), (1, vec![offer(1), offer(2)]));
        outbox.acknowledge(1, Mono(7_100));
        assert!(!outbox.due(Mono(9_001)));
        assert_eq!(send(&mut outbox, Mono(9_100), 10), (2, vec![offer(2)]));
        outbox.acknowledge(99, Mono(9_200));
        assert!(outbox.quiet());
    }

    #[test]
    fn commands_after_a_lost_answer_are_resent_without_further_delay() {
        let limit = COMMANDS_MAX;
        let mut outbox = Outbox::default();
        for counter in 0..4 * limit as u64 {
            outbox.push(CommandRef::Offer(Uid(1), OfferId { epoch: 1, leadership: 1, counter }));
        }
        let mut now = Mono(1_000);
        assert_eq!(
            [send(&mut outbox, now, limit).1.len(), send(&mut outbox, now, limit).1.len()],
            [limit; 2]
        );
        assert!(!outbox.due(now), "no more commands are under way than an agent buffers");
        assert_eq!((send(&mut outbox, now, limit).1.len(), outbox.resend_at(now)), (0, Some(now + RESEND)));
        // Both answers were lost.
        now = now + RESEND;
        assert_eq!(send(&mut outbox, now, limit).0, 1);
        for answer in 1..4 {
            outbox.acknowledge(answer * limit as u64, now);
            assert!(outbox.due(now));
            assert_eq!(send(&mut outbox, now, limit).0, answer * limit as u64 + 1);
        }
        outbox.acknowledge(u64::MAX, now);
        assert!(outbox.quiet());
    }

    #[test]
    fn a_late_acknowledgement_stops_the_resend() {
        let mut outbox = Outbox::default();
        for counter in 0..10 {
            outbox.push(CommandRef::Offer(Uid(1), OfferId { epoch: 1, leadership: 1, counter }));
        }
        send(&mut outbox, Mono(1_000), 10);
        assert_eq!(send(&mut outbox, Mono(3_000), 5).0, 1);
        outbox.acknowledge(10, Mono(3_001));
        assert!(outbox.quiet() && !outbox.due(Mono(9_000)));
    }

    #[test]
    fn a_lost_command_is_resent_in_time_under_constant_load() {
        let mut outbox = Outbox::default();
        let offer = |counter| CommandRef::Offer(Uid(1), OfferId { epoch: 1, leadership: 1, counter });
        outbox.push(offer(1));
        send(&mut outbox, Mono(5_000), 10);
        for i in 0..100 {
            outbox.push(offer(2 + i));
            let (from, _) = send(&mut outbox, Mono(5_000 + 100 * (i + 1)), 200);
            if from == 1 {
                assert_eq!(Mono(5_000 + 100 * (i + 1)), Mono(5_000) + RESEND);
                return;
            }
        }
        panic!("the first command was never resent");
    }

    #[test]
    fn what_waits_is_known_by_its_command() {
        let mut outbox = Outbox::default();
        let (uid, fence) = (Uid(1), Fence { epoch: 1, leadership: 1, counter: 1 });
        let withdraw = |counter| CommandRef::Withdraw(uid, OfferId { epoch: 1, leadership: 1, counter });
        assert_eq!((outbox.quiet(), outbox.waiting(), outbox.acknowledged()), (true, 0, 0));
        outbox.push(withdraw(1));
        outbox.push(withdraw(2));
        assert_eq!((outbox.quiet(), outbox.waiting()), (false, 2));
        assert!(outbox.pending(&withdraw(1)) && !outbox.pending(&withdraw(3)));
        send(&mut outbox, Mono(5_000), 10);
        outbox.acknowledge(1, Mono(5_001));
        assert_eq!((outbox.quiet(), outbox.waiting(), outbox.acknowledged()), (false, 1, 1));
        assert!(!outbox.pending(&withdraw(1)));
        let priority = CommandRef::SetPriority(uid, fence, RecordNumber(9));
        outbox.push(priority);
        assert!(outbox.has_unsent_priority(uid, fence) && !outbox.has_unsent_priority(Uid(2), fence));
        send(&mut outbox, Mono(5_002), 10);
        assert!(outbox.pending(&priority) && !outbox.has_unsent_priority(uid, fence));
    }

    #[test]
    fn a_resend_is_announced_while_a_command_is_under_way() {
        let mut outbox = Outbox::default();
        let offer = |counter| CommandRef::Offer(Uid(1), OfferId { epoch: 1, leadership: 1, counter });
        assert_eq!(outbox.resend_at(Mono(0)), None);
        outbox.push(offer(1));
        assert_eq!(outbox.resend_at(Mono(0)), None, "it is due now");
        send(&mut outbox, Mono(5_000), 10);
        let at = Mono(5_000) + RESEND;
        assert_eq!(outbox.resend_at(Mono(at.0 - 1)), Some(at));
        assert_eq!((outbox.resend_at(at), outbox.due(at)), (None, true));
        outbox.acknowledge(1, Mono(5_500));
        assert_eq!(outbox.resend_at(Mono(5_500)), None);
    }

    #[test]
    fn an_empty_answer_changes_nothing() {
        let mut outbox = Outbox::default();
        outbox.push(CommandRef::Offer(Uid(1), OfferId { epoch: 1, leadership: 1, counter: 1 }));
        send(&mut outbox, Mono(5_000), 10);
        let before = outbox.clone();
        outbox.sent(Mono(6_000), 1, 0);
        assert_eq!(outbox, before);
    }

    #[test]
    fn the_window_moves_with_the_acknowledgements() {
        let mut outbox = Outbox::default();
        for counter in 0..4 * WINDOW {
            outbox.push(CommandRef::Offer(Uid(1), OfferId { epoch: 1, leadership: 1, counter }));
        }
        let all = usize::try_from(2 * WINDOW).unwrap();
        send(&mut outbox, Mono(1_000), all);
        outbox.acknowledge(2, Mono(1_001));
        assert_eq!(send(&mut outbox, Mono(1_002), all).1.len(), 2);
        assert!(!outbox.due(Mono(1_003)));
    }
}
