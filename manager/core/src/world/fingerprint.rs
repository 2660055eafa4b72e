//! Fingerprint of a world: a hash of everything that its later behaviour depends on. A model checker treats
//! worlds with the same fingerprint as one.
//!
//! Left out are text for display, counters for metrics, the audit chain, calendar times, objects (they change
//! only together with the number of the newest rule), and ages beyond the largest age that any rule compares.
//! Every struct is taken apart field by field, so that a new field must be considered here.

use crate::world::World;
use meridian_shared::ids::ClusterName;
use meridian_shared::time::{Millis, Mono};
use std::hash::Hasher;

impl World {
    /// Hashes the fingerprint of this world at `now`. Only the order of a cluster's transmission numbers
    /// matters, so `number` may map them to smaller ones.
    pub fn hash_fingerprint(
        &self,
        now: Mono,
        number: &dyn Fn(&ClusterName, u64) -> u64,
        into: &mut impl Hasher,
    ) {
        let Self { state, live, config: _, queues: _, names: _, loads: _, counts_by_queue: _, mirror } = self;
        state.hash_fingerprint(into);
        live.hash_fingerprint(now, longest_age(self), number, into);
        mirror.hash_fingerprint(into);
    }
}

/// The largest age that any rule compares: the longest lease term with clock drift.
fn longest_age(world: &World) -> Millis {
    let longest = world
        .state
        .workloads()
        .values()
        .map(|w| w.term())
        .max()
        .unwrap_or(world.config.term)
        .max(world.config.term);
    longest + meridian_shared::lease::drift(longest)
}
