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
