//! Budget for journal writes that an agent can cause as often as it likes: a new estimate, a new placement of
//! the same pods.
//!
//! All other writes that an agent causes are bounded by what it was offered and granted. These are not, and
//! could fill the disk that all clusters share. An event over budget isn't taken. Events are numbered, so the
//! agent sends it again until there is budget: nothing is lost, and no other cluster is delayed.

use meridian_shared::time::Mono;

/// Limit of bytes written in a burst: enough for some 2,000 gangs that move away from lost nodes.
pub(crate) const BYTES_MAX: u64 = 1 << 20;

/// Sustained rate: a new estimate for each of 500 gangs per second. That is 20 GB per day, most of which
/// snapshots remove again.
const BYTES_PER_MS: u64 = 256;

/// Size of a record without the agent's own data, in bytes.
pub(crate) const FRAME: usize = 256;

/// Cost of a new session, in bytes: all offers to the cluster are withdrawn and made again. Limits an agent
/// to about sixteen new sessions per second in the long run.
pub(crate) const SESSION: usize = 16 << 10;

/// Bytes written for one cluster, less those that the sustained rate has covered since.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Budget {
    spent: u64,
    at: Mono,
}

impl Budget {
    /// Bytes that count against [`BYTES_MAX`] now.
    pub(crate) fn spent(self, now: Mono) -> u64 {
        self.spent.saturating_sub(now.since(self.at).0.saturating_mul(BYTES_PER_MS))
    }

    pub(crate) fn is_spent(self, now: Mono) -> bool {
        self.spent(now) >= BYTES_MAX
    }

    pub(crate) fn spend(&mut self, now: Mono, bytes: usize) {
        *self = Self { spent: self.spent(now).saturating_add(bytes as u64), at: now };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sustained_rate_covers_what_was_spent() {
        let mut budget = Budget::default();
        budget.spend(Mono(1_000), 1_024);
        assert_eq!([1_000, 1_003, 1_004, 9_000].map(|at| budget.spent(Mono(at))), [1_024, 256, 0, 0]);
        budget.spend(Mono(1_003), 44);
        assert_eq!([1_003, 1_004].map(|at| budget.spent(Mono(at))), [300, 44]);
    }

    #[test]
    fn a_budget_is_spent_at_its_limit() {
        let mut budget = Budget::default();
        budget.spend(Mono(1_000), usize::try_from(BYTES_MAX).unwrap() - 1);
        assert!(!budget.is_spent(Mono(1_000)));
        budget.spend(Mono(1_000), 1);
        assert!(budget.is_spent(Mono(1_000)) && !budget.is_spent(Mono(1_001)));
    }
}
