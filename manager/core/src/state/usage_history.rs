//! What local queues used before, for fair sharing of admissions between them.
//!
//! It is a fact like any other: a sample is a record, so that past use survives a restart, and a replay doesn't depend on how it
//! decays today. Every interval what was used decays, and what is used counts. Who is granted is taken down with the next end of
//! a batch, together with what the admission costs; until then the brain has that cost as pending, from the moment at which
//! quota is reserved, and takes it back when the quota goes back without a grant. A restart forgets what is pending, and takes
//! back every question that it was pending for.
//!
//! Elapsed time is calendar time, because it must be known over a restart; a clock that jumps misjudges past use for a while, and
//! nothing else. When it is time is said by boot time.
//!
//! Who uses nothing and of whom nothing is remembered isn't in a sample, and where that is everybody, there is none.

use crate::facts::key::Key;
use crate::facts::submission::Consumed;
use meridian_objects::Kind;
use meridian_shared::time::Wall;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// What a local queue used, as it counted at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct UsageHistory {
    /// What still counts, by resource.
    pub consumed: Consumed,
    /// When it was taken down.
    pub at: Wall,
}

/// A local queue's key in samples and in the brain, taken apart.
pub(crate) fn names(local_queue: &str) -> Option<(Arc<str>, Arc<str>)> {
    local_queue.split_once('/').map(|(namespace, name)| (Arc::from(namespace), Arc::from(name)))
}

/// The keys of the objects that a sample is about.
pub(crate) fn keys<'a>(local_queues: impl Iterator<Item = &'a Arc<str>>) -> impl Iterator<Item = Key> {
    local_queues.filter_map(|key| names(key)).map(|(namespace, name)| Key {
        scope: None,
        kind: Kind::LocalQueue,
        namespace: Some(namespace),
        name,
    })
}
