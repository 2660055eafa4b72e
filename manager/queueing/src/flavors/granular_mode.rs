//! How well a flavor fits, and which of two fits better.

use crate::model::{FlavorFungibility, PreemptionPossibility};

/// How well a flavor fits: the need for preemption, and the distance of the quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GranularMode {
    pub possibility: PreemptionPossibility,
    /// Height of the subtree that provides the quota. Zero is the queue itself.
    pub borrowing: u32,
}

impl GranularMode {
    pub(crate) const WORST: Self = Self { possibility: PreemptionPossibility::NoFit, borrowing: u32::MAX };
    pub(crate) const BEST: Self = Self { possibility: PreemptionPossibility::Fit, borrowing: 0 };

    /// Whether it is strictly better than `other`.
    pub fn is_better_than(self, other: Self, fungibility: &FlavorFungibility) -> bool {
        use PreemptionPossibility::{NoCandidates, NoFit};
        if self.possibility == NoFit || other.possibility == NoFit {
            return self.possibility != NoFit;
        }
        if (self.possibility == NoCandidates) != (other.possibility == NoCandidates) {
            return self.possibility != NoCandidates;
        }
        let (by_preemption, by_borrowing) =
            (self.possibility.cmp(&other.possibility), other.borrowing.cmp(&self.borrowing));
        let order = if fungibility.prefers_preemption {
            by_borrowing.then(by_preemption)
        } else {
            by_preemption.then(by_borrowing)
        };
        order.is_gt()
    }

    /// Whether the search continues to the next flavor.
    pub(crate) fn continues_search(self, fungibility: &FlavorFungibility) -> bool {
        use PreemptionPossibility::{NoCandidates, NoFit, Preempt, Reclaim};
        match self.possibility {
            NoFit | NoCandidates => true,
            Preempt | Reclaim if !fungibility.preempt_rather_than_next => true,
            _ => self.borrowing > 0 && fungibility.next_rather_than_borrow,
        }
    }
}
