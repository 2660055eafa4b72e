//! A sum over live offers and grants, which shows whether both sides agree.

use crate::ids::{Fence, OfferId, Uid};
use serde::{Deserialize, Serialize};

/// Sum over live offers (held or waiting) and live grants. It is commutative, so each side updates it
/// incrementally.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Digest(pub u64);

impl Digest {
    pub fn with_offer(self, offer: OfferId) -> Self {
        Self(self.0.wrapping_add(mix(1, offer.epoch, offer.leadership, offer.counter)))
    }

    pub fn with_grant(self, uid: Uid, fence: Fence) -> Self {
        let low = u64::try_from(uid.0 & u128::from(u64::MAX)).unwrap_or(0);
        Self(self.0.wrapping_add(mix(2 ^ low, fence.epoch, fence.leadership, fence.counter)))
    }
}

fn mix(tag: u64, a: u64, b: u64, c: u64) -> u64 {
    use crate::backoff::splitmix;
    splitmix(splitmix(splitmix(splitmix(tag) ^ a) ^ b) ^ c)
}
