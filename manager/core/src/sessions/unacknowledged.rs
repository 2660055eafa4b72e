//! What answers said that their agent is to remember, until it has shown that it took them.
//!
//! Two requests of an agent are under way at most, and a poll that was parked is answered later than what was sent after it: its
//! answer says more, under a lower number. An agent names only the highest number whose answer it took, so that exactly that
//! answer counts. What lower ones said is said again.

use crate::sessions::LiveCluster;
use meridian_shared::ids::{Fence, RecordNumber, Uid};

/// Answers that are remembered until they are acknowledged: many more than an agent has under way.
const UNACKNOWLEDGED_MAX: usize = 64;

/// What an answer said.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct UnacknowledgedAnswer {
    /// The newest record it spoke of: it named every member until then.
    pub record: RecordNumber,
    /// Ends that it acknowledged, with their records.
    pub ends: Vec<(Uid, Fence, RecordNumber)>,
}

impl LiveCluster {
    /// An answer was composed. To a transmission that came twice two are, and its agent doesn't tell which it took: the first, which
    /// says less, counts. One that comes again when its agent has named it is too late to count (simulation seed 7010494).
    pub(crate) fn note_answer(&mut self, transmission: u64, unacknowledged: UnacknowledgedAnswer) {
        if transmission <= self.answered {
            return;
        }
        self.unacknowledged.entry(transmission).or_insert(unacknowledged);
        while self.unacknowledged.len() > UNACKNOWLEDGED_MAX {
            self.unacknowledged.pop_first();
        }
    }

    /// The agent took the answer to this transmission, and none to a higher one.
    pub(crate) fn acknowledge_answer(&mut self, answered: u64) {
        self.unacknowledged = self.unacknowledged.split_off(&answered);
        let Some(UnacknowledgedAnswer { record, ends }) = self.unacknowledged.remove(&answered) else {
            return;
        };
        self.acknowledged_record = self.acknowledged_record.max(record);
        for (uid, fence, number) in ends {
            // Of one that was told again meanwhile a later answer speaks.
            if self.acknowledge.get(&(uid, fence)) == Some(&number) {
                self.acknowledge.remove(&(uid, fence));
            }
        }
    }
}
