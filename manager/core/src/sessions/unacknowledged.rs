//! Content of answers that an agent must remember, kept until the agent acknowledges the answer.
//!
//! An agent has at most two requests under way. A parked poll is answered after later requests, so its answer
//! is newer but has a lower transmission number. The agent names only the highest transmission of which it
//! took the answer; only the content of exactly that answer counts as acknowledged, and the content of lower
//! ones is sent again.

use crate::sessions::LiveCluster;
use meridian_shared::ids::{Fence, RecordNumber, Uid};

/// Limit of unacknowledged answers, far more than an agent can have under way. The lowest transmission is
/// dropped first.
const UNACKNOWLEDGED_MAX: usize = 64;

/// The content of one answer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct UnacknowledgedAnswer {
    /// The newest record when the answer was composed. The answer named all members up to this record.
    pub record: RecordNumber,
    /// Ends that the answer acknowledged, with their records.
    pub ends: Vec<(Uid, Fence, RecordNumber)>,
}

impl LiveCluster {
    /// Remembers the content of a composed answer.
    ///
    /// If a transmission arrives twice, two answers are composed, and the agent doesn't tell which of them it
    /// took. Only the first counts, because it contains less. If the transmission arrives again after its
    /// answer was acknowledged, the new answer doesn't count at all. Pinned by
    /// `scenarios/acknowledgements.rs`.
    pub(crate) fn note_answer(&mut self, transmission: u64, unacknowledged: UnacknowledgedAnswer) {
        if transmission <= self.answered {
            return;
        }
        self.unacknowledged.entry(transmission).or_insert(unacknowledged);
        while self.unacknowledged.len() > UNACKNOWLEDGED_MAX {
            self.unacknowledged.pop_first();
        }
    }

    /// The agent took the answer to this transmission, and none to a higher transmission.
    pub(crate) fn acknowledge_answer(&mut self, answered: u64) {
        self.unacknowledged = self.unacknowledged.split_off(&answered);
        let Some(UnacknowledgedAnswer { record, ends }) = self.unacknowledged.remove(&answered) else {
            return;
        };
        self.acknowledged_record = self.acknowledged_record.max(record);
        for (uid, fence, number) in ends {
            // If the end was reported again meanwhile, it has a newer record, which a later answer
            // acknowledges.
            if self.acknowledge.get(&(uid, fence)) == Some(&number) {
                self.acknowledge.remove(&(uid, fence));
            }
        }
    }
}
