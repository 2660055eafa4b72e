//! Hashes of times for fingerprints: a time counts only as far as later behaviour depends on it.

use meridian_shared::time::{Millis, Mono};
use std::hash::{Hash, Hasher};

/// Hashes a time that matters only while it is in the future.
pub(crate) fn hash_deadline(now: Mono, at: Mono, into: &mut impl Hasher) {
    at.since(now).hash(into);
}

/// Hashes the age of a time. Ages beyond `limit` are equivalent.
pub(crate) fn hash_age(now: Mono, at: Mono, limit: Millis, into: &mut impl Hasher) {
    now.since(at).min(limit).hash(into);
}
