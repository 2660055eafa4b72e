//! How much a cluster may have written of what is known of it: another estimate, another place of the same pods.
//!
//! All else that an agent has written follows from what it was asked or granted, once. This could be said without end, and fill
//! the disk that everybody needs. What is beyond the budget isn't taken: events are numbered, so that its agent says it again
//! once there is some left. Nothing is lost, and nobody but that cluster waits.

use meridian_shared::time::Mono;

/// Bytes that may be written at once: as many as some 2,000 gangs take that move from lost nodes.
pub(crate) const BYTES_MAX: u64 = 1 << 20;

/// Bytes that may be written per millisecond: another estimate for each of 500 gangs in a second, or 20 GB in a day, of which
/// snapshots leave little.
const BYTES_PER_MS: u64 = 256;

/// What a record takes beside an agent's own words, in bytes.
pub(crate) const FRAME: usize = 256;

/// What a session costs that an agent begins, in bytes: with it all that its cluster was asked is withdrawn and asked anew. So
/// one cluster begins some sixteen a second in the long run.
pub(crate) const SESSION: usize = 16 << 10;

/// What one cluster has had written, less what time has given back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Budget {
    spent: u64,
    at: Mono,
}

impl Budget {
    /// Bytes that count at this moment.
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
