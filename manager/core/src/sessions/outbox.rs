//! Commands to one agent session: numbered, repeated until acknowledged, rendered only when they are sent.
//!
//! What is kept is a reference, not a message: the rules about every send (residency, a grant's age, recovery) are judged
//! when an answer is composed, first time or repeated.

use meridian_shared::ids::{Fence, OfferId, RecordNumber, Uid};
use meridian_shared::protocol::{COMMANDS_MAX, Size, StopReason};
use meridian_shared::time::{Millis, Mono};
use std::collections::{BTreeMap, VecDeque};

/// An unacknowledged command is sent again after this long.
pub const RESEND: Millis = Millis::secs(2);

/// Commands under way at the same time. An agent that missed one keeps no more of those after it.
const WINDOW: u64 = 2 * COMMANDS_MAX as u64;

/// What is to be said.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CommandRef {
    /// Ask.
    Offer(Uid, OfferId),
    /// Take the question back.
    Withdraw(Uid, OfferId),
    /// Give the right to run.
    Grant(Uid, OfferId, Fence),
    /// Stop an attempt.
    Stop(Uid, Fence, StopReason),
    /// Let an attempt go on with fewer pods.
    Shrink(Uid, Fence, Size),
    /// Let an attempt go on with more, by this growth.
    Grow(Uid, Fence, RecordNumber),
    /// Tell an attempt's priority, which changed with this record.
    Rank(Uid, Fence, RecordNumber),
}

/// Commands of one (leadership, session).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Outbox {
    queue: VecDeque<CommandRef>,
    /// The number of each.
    numbers: BTreeMap<CommandRef, u64>,
    first: u64,
    /// What follows is to be sent. Goes back when something is sent again, as the agent may have missed all that came after it.
    sent_through: u64,
    /// The highest that was ever sent.
    reached: u64,
    /// When the oldest that is under way was sent, or the agent last showed that it goes on. Newer commands don't put this
    /// off: an agent that missed one can use none of those after it, so under load it would wait for ever.
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
    /// Adds one, unless the same is still waiting. Returns its number.
    pub fn push(&mut self, said: CommandRef) -> u64 {
        if let Some(number) = self.numbers.get(&said) {
            return *number;
        }
        self.queue.push_back(said);
        let number = self.last();
        self.numbers.insert(said, number);
        number
    }

    /// The agent has taken everything up to this number.
    pub fn acknowledge(&mut self, through: u64, now: Mono) {
        let through = through.min(self.reached);
        while self.first <= through
            && let Some(taken) = self.queue.pop_front()
        {
            self.numbers.remove(&taken);
            self.first += 1;
            self.sent_at = now;
        }
        self.sent_through = self.sent_through.max(self.first - 1);
    }

    /// Everything up to this number was acknowledged.
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

    /// When the oldest that is under way is sent again, if that is still to come.
    pub fn resend_at(&self, now: Mono) -> Option<Mono> {
        let at = self.sent_at + RESEND;
        (self.sent_through >= self.first && at > now).then_some(at)
    }

    /// What to send now, from which number on.
    pub fn next(&self, now: Mono, most: usize) -> (u64, Vec<CommandRef>) {
        let from = if self.is_late(now) { self.first } else { self.first.max(self.sent_through + 1) };
        let skip = usize::try_from(from - self.first).unwrap_or(usize::MAX);
        let room = usize::try_from((self.first + WINDOW).saturating_sub(from)).unwrap_or(usize::MAX);
        (from, self.queue.iter().skip(skip).take(most.min(room)).copied().collect())
    }

    /// So many were sent, from this number on.
    pub fn sent(&mut self, now: Mono, from: u64, count: usize) {
        if count > 0 {
            if from == self.first {
                self.sent_at = now;
            }
            self.sent_through = from + count as u64 - 1;
            self.reached = self.reached.max(self.sent_through);
        }
    }

    /// Whether everything was acknowledged.
    pub fn quiet(&self) -> bool {
        self.queue.is_empty()
    }

    /// Whether this command still waits to be acknowledged.
    pub fn pending(&self, said: &CommandRef) -> bool {
        self.numbers.contains_key(said)
    }

    /// Whether another priority of this attempt waits to be sent for the first time.
    pub fn ranks(&self, uid: Uid, fence: Fence) -> bool {
        let all = CommandRef::Rank(uid, fence, RecordNumber(0))
            ..=CommandRef::Rank(uid, fence, RecordNumber(u64::MAX));
        self.numbers.range(all).any(|(_, number)| *number > self.reached)
    }

    /// How many wait to be acknowledged.
    pub fn waiting(&self) -> usize {
        self.queue.len()
    }

    /// Everything: what waits, its first number, what was sent last and furthest, and when.
    pub(crate) fn parts(&self) -> (&VecDeque<CommandRef>, u64, [u64; 2], Mono) {
        (&self.queue, self.first, [self.sent_through, self.reached], self.sent_at)
    }

    /// Number of the newest command.
    pub fn last(&self) -> u64 {
        self.first + self.queue.len() as u64 - 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(outbox: &mut Outbox, now: Mono, most: usize) -> (u64, Vec<CommandRef>) {
        let (from, said) = outbox.next(now, most);
        outbox.sent(now, from, said.len());
        (from, said)
    }

    #[test]
    fn is_sent_once_then_again_until_acknowledged() {
        let mut outbox = Outbox::default();
        let offer = |counter| CommandRef::Offer(Uid(1), OfferId { epoch: 1, leadership: 1, counter });
        assert_eq!(outbox.push(offer(1)), 1);
        assert_eq!(outbox.push(offer(1)), 1, "the same is said once");
        assert_eq!(take(&mut outbox, Mono(5_000), 10), (1, vec![offer(1)]));
        outbox.push(offer(2));
        assert_eq!(take(&mut outbox, Mono(5_001), 10), (2, vec![offer(2)]));
        assert!(!outbox.due(Mono(5_002)));
        assert_eq!(take(&mut outbox, Mono(7_001), 10), (1, vec![offer(1), offer(2)]));
        outbox.acknowledge(1, Mono(7_100));
        assert!(!outbox.due(Mono(9_001)));
        assert_eq!(take(&mut outbox, Mono(9_100), 10), (2, vec![offer(2)]));
        outbox.acknowledge(99, Mono(9_200));
        assert!(outbox.quiet());
    }

    #[test]
    fn what_follows_a_lost_answer_is_sent_again_without_waiting_each_time() {
        let most = COMMANDS_MAX;
        let mut outbox = Outbox::default();
        for counter in 0..4 * most as u64 {
            outbox.push(CommandRef::Offer(Uid(1), OfferId { epoch: 1, leadership: 1, counter }));
        }
        let mut now = Mono(1_000);
        assert_eq!([take(&mut outbox, now, most).1.len(), take(&mut outbox, now, most).1.len()], [most; 2]);
        assert!(!outbox.due(now), "no more are under way than an agent keeps");
        assert_eq!((take(&mut outbox, now, most).1.len(), outbox.resend_at(now)), (0, Some(now + RESEND)));
        // Both answers were lost.
        now = now + RESEND;
        assert_eq!(take(&mut outbox, now, most).0, 1);
        for answer in 1..4 {
            outbox.acknowledge(answer * most as u64, now);
            assert!(outbox.due(now));
            assert_eq!(take(&mut outbox, now, most).0, answer * most as u64 + 1);
        }
        outbox.acknowledge(u64::MAX, now);
        assert!(outbox.quiet());
    }

    #[test]
    fn what_is_acknowledged_after_all_is_not_sent_again() {
        let mut outbox = Outbox::default();
        for counter in 0..10 {
            outbox.push(CommandRef::Offer(Uid(1), OfferId { epoch: 1, leadership: 1, counter }));
        }
        take(&mut outbox, Mono(1_000), 10);
        assert_eq!(take(&mut outbox, Mono(3_000), 5).0, 1);
        outbox.acknowledge(10, Mono(3_001));
        assert!(outbox.quiet() && !outbox.due(Mono(9_000)));
    }

    #[test]
    fn a_lost_answer_is_made_good_however_much_is_said_after_it() {
        let mut outbox = Outbox::default();
        let offer = |counter| CommandRef::Offer(Uid(1), OfferId { epoch: 1, leadership: 1, counter });
        outbox.push(offer(1));
        take(&mut outbox, Mono(5_000), 10);
        for i in 0..100 {
            outbox.push(offer(2 + i));
            let (from, _) = take(&mut outbox, Mono(5_000 + 100 * (i + 1)), 200);
            if from == 1 {
                assert_eq!(Mono(5_000 + 100 * (i + 1)), Mono(5_000) + RESEND);
                return;
            }
        }
        panic!("the first was never sent again");
    }
}
