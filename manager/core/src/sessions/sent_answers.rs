//! Content of answers that an agent must remember, kept until the agent acknowledges the answer.
//!
//! An agent has at most two requests under way. A parked poll is answered after later requests, so its answer
//! is newer but has a lower transmission number. The agent names only the highest transmission whose answer
//! it took. Only the content of that answer counts as acknowledged; the content of answers to lower
//! transmissions is sent again.

use crate::fingerprint::hash_age;
use meridian_shared::ids::{Fence, RecordNumber, Uid};
use meridian_shared::protocol::RUNS_MAX;
use meridian_shared::time::{Millis, Mono};
use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};

/// Limit of unacknowledged answers, far more than an agent can have under way. The lowest transmission is
/// dropped first.
const UNACKNOWLEDGED_MAX: usize = 64;

/// Most ends that wait to be acknowledged, above the number that one cluster can have at a time. Ends beyond
/// it are dropped; the next inventory repeats them.
const ENDS_MAX: usize = 4 * RUNS_MAX;

/// Most ends that one answer acknowledges.
const ENDS_PER_ANSWER: usize = 1_024;

/// The content of one answer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct UnacknowledgedAnswer {
    /// The newest record when the answer was composed. The answer named all members up to this record.
    record: RecordNumber,
    /// Ends that the answer acknowledged, with their records.
    ends: Vec<(Uid, Fence, RecordNumber)>,
}

/// Which answers the agent has taken, and what later answers must still tell it.
///
/// Only answers to transmissions above `answered` are unacknowledged. An end waits here until the agent has
/// taken an answer with the end's newest record.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SentAnswers {
    /// The highest transmission whose answer the agent acknowledged.
    answered: u64,
    /// When the agent last acknowledged a new answer.
    acknowledged_at: Mono,
    /// Content of unacknowledged answers, by transmission.
    unacknowledged: BTreeMap<u64, UnacknowledgedAnswer>,
    /// Newest record among acknowledged answers. The agent knows all members up to this record.
    known_record: RecordNumber,
    /// Ends to acknowledge to the agent, each with its record.
    ends: BTreeMap<(Uid, Fence), RecordNumber>,
}

impl SentAnswers {
    /// A session that was opened at `now` and got no answer yet.
    pub(crate) fn none(now: Mono) -> Self {
        Self {
            answered: 0,
            acknowledged_at: now,
            unacknowledged: BTreeMap::new(),
            known_record: RecordNumber(0),
            ends: BTreeMap::new(),
        }
    }

    /// When the agent last acknowledged a new answer.
    pub(crate) fn acknowledged_at(&self) -> Mono {
        self.acknowledged_at
    }

    /// The agent knows all members up to this record.
    pub(crate) fn known_record(&self) -> RecordNumber {
        self.known_record
    }

    /// Number of ends that wait to be acknowledged.
    pub fn ends_waiting(&self) -> usize {
        self.ends.len()
    }

    /// Adds an end to acknowledge, with its record. An end beyond the limit is dropped.
    pub(crate) fn add_end(&mut self, uid: Uid, fence: Fence, number: RecordNumber) {
        if self.ends.len() < ENDS_MAX || self.ends.contains_key(&(uid, fence)) {
            self.ends.insert((uid, fence), number);
        }
    }

    /// The ends that the next answer acknowledges.
    pub(crate) fn next_ends(&self) -> Vec<(Uid, Fence, RecordNumber)> {
        let ends = self.ends.iter().take(ENDS_PER_ANSWER);
        ends.map(|((uid, fence), number)| (*uid, *fence, *number)).collect()
    }

    /// Remembers the content of a composed answer: it acknowledges `ends`, and `record` is the newest record.
    ///
    /// If a transmission arrives twice, two answers are composed, and the agent doesn't tell which of them it
    /// took. Only the first counts, because it contains less. If the transmission arrives again after its
    /// answer was acknowledged, the new answer doesn't count at all. Pinned by
    /// `scenarios/acknowledgements.rs`.
    pub(crate) fn note(
        &mut self,
        transmission: u64,
        record: RecordNumber,
        ends: Vec<(Uid, Fence, RecordNumber)>,
    ) {
        if transmission <= self.answered {
            return;
        }
        self.unacknowledged.entry(transmission).or_insert(UnacknowledgedAnswer { record, ends });
        while self.unacknowledged.len() > UNACKNOWLEDGED_MAX {
            self.unacknowledged.pop_first();
        }
    }

    /// The agent took the answer to this transmission, and none to a higher transmission.
    pub(crate) fn acknowledge(&mut self, answered: u64, now: Mono) {
        if answered > self.answered {
            (self.answered, self.acknowledged_at) = (answered, now);
        }
        self.unacknowledged = self.unacknowledged.split_off(&answered);
        let Some(UnacknowledgedAnswer { record, ends }) = self.unacknowledged.remove(&answered) else {
            return;
        };
        self.known_record = self.known_record.max(record);
        for (uid, fence, number) in ends {
            // If the end was reported again meanwhile, it has a newer record, which a later answer
            // acknowledges.
            if self.ends.get(&(uid, fence)) == Some(&number) {
                self.ends.remove(&(uid, fence));
            }
        }
    }

    pub(crate) fn hash_fingerprint(
        &self,
        now: Mono,
        age_limit: Millis,
        number: &dyn Fn(u64) -> u64,
        into: &mut impl Hasher,
    ) {
        let Self { answered, acknowledged_at, unacknowledged, known_record, ends } = self;
        number(*answered).hash(into);
        hash_age(now, *acknowledged_at, age_limit, into);
        known_record.hash(into);
        for (transmission, UnacknowledgedAnswer { record, ends }) in unacknowledged {
            (number(*transmission), record, ends).hash(into);
        }
        ends.hash(into);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UID: Uid = Uid(1);
    const NOW: Mono = Mono(1_000);

    fn fence(counter: u64) -> Fence {
        Fence { epoch: 1, leadership: 1, counter }
    }

    /// An end, and an answer to this transmission that acknowledges it. The end has this record.
    fn answered(transmission: u64, record: u64) -> SentAnswers {
        let mut sent = SentAnswers::none(Mono(0));
        sent.add_end(UID, fence(1), RecordNumber(record));
        let ends = sent.next_ends();
        assert_eq!(ends, [(UID, fence(1), RecordNumber(record))]);
        sent.note(transmission, RecordNumber(record + 1), ends);
        sent
    }

    #[test]
    fn an_end_waits_until_the_agent_took_its_answer() {
        let mut sent = answered(2, 5);
        sent.acknowledge(1, NOW);
        assert_eq!((sent.ends_waiting(), sent.known_record()), (1, RecordNumber(0)));
        sent.acknowledge(2, Mono(2_000));
        assert_eq!((sent.ends_waiting(), sent.known_record()), (0, RecordNumber(6)));
        sent.acknowledge(2, Mono(3_000));
        assert_eq!(sent.acknowledged_at(), Mono(2_000), "nothing new was acknowledged");
    }

    #[test]
    fn an_end_that_was_reported_again_waits_for_its_newer_record() {
        let mut sent = answered(1, 5);
        sent.add_end(UID, fence(1), RecordNumber(8));
        sent.acknowledge(1, NOW);
        assert_eq!(sent.next_ends(), [(UID, fence(1), RecordNumber(8))]);
    }

    #[test]
    fn of_two_answers_to_one_transmission_the_first_counts() {
        let mut sent = answered(1, 5);
        sent.note(1, RecordNumber(99), Vec::new());
        sent.acknowledge(1, NOW);
        assert_eq!((sent.ends_waiting(), sent.known_record()), (0, RecordNumber(6)));
        sent.note(1, RecordNumber(99), Vec::new());
        sent.acknowledge(1, NOW);
        assert_eq!(sent.known_record(), RecordNumber(6), "the transmission was acknowledged before");
    }

    #[test]
    fn answers_to_lower_transmissions_do_not_count() {
        let mut sent = answered(1, 5);
        sent.note(2, RecordNumber(3), Vec::new());
        sent.acknowledge(2, NOW);
        sent.acknowledge(1, NOW);
        assert_eq!((sent.ends_waiting(), sent.known_record()), (1, RecordNumber(3)));
    }

    #[test]
    fn the_record_that_the_agent_knows_never_falls() {
        let mut sent = answered(1, 5);
        sent.acknowledge(1, NOW);
        sent.note(2, RecordNumber(2), Vec::new());
        sent.acknowledge(2, NOW);
        assert_eq!(sent.known_record(), RecordNumber(6));
    }

    #[test]
    fn the_oldest_unacknowledged_answer_is_dropped_first() {
        let known_after = |answers: u64, acknowledged: u64| {
            let mut sent = SentAnswers::none(Mono(0));
            (1..=answers).for_each(|number| sent.note(number, RecordNumber(number), Vec::new()));
            sent.acknowledge(acknowledged, NOW);
            sent.known_record().0
        };
        let most = UNACKNOWLEDGED_MAX as u64;
        assert_eq!((known_after(most, 1), known_after(most + 1, 1), known_after(most + 1, 2)), (1, 0, 2));
    }

    #[test]
    fn the_number_of_ends_is_bounded() {
        let mut sent = SentAnswers::none(Mono(0));
        (0..=ENDS_MAX as u64).for_each(|counter| sent.add_end(UID, fence(counter), RecordNumber(1)));
        assert_eq!((sent.ends_waiting(), sent.next_ends().len()), (ENDS_MAX, ENDS_PER_ANSWER));
        sent.add_end(UID, fence(0), RecordNumber(2));
        assert_eq!(sent.next_ends()[0], (UID, fence(0), RecordNumber(2)), "a known end gets its new record");
    }
}
