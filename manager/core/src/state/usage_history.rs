//! Usage history of local queues, for admission fair sharing.
//!
//! Each interval, the history decays and current usage is added. The result is a *sample*, written as a
//! record, so that it survives a restart and a replay doesn't depend on today's decay formula. Queues without
//! usage and history aren't sampled.
//!
//! An admission costs an extra penalty at once. From the reservation of quota until the grant, the queue
//! state keeps the penalty as pending; it is dropped if quota is released without a grant. The first sample
//! after the grant includes it. A restart forgets pending penalties, but also withdraws the offers that they
//! belong to.
//!
//! Decay uses calendar time, which is known across a restart; a clock that jumps distorts the history for a
//! while. Boot time decides when the next sample is due.

use crate::facts::key::Key;
use crate::facts::submission::Consumed;
use meridian_objects::Kind;
use meridian_shared::time::Wall;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Decayed usage of one local queue at the time of its last sample.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct UsageHistory {
    pub consumed: Consumed,
    /// Time of the sample.
    pub at: Wall,
}

/// Namespace and name of a local queue given as `namespace/name`.
pub(crate) fn names(local_queue: &str) -> Option<(Arc<str>, Arc<str>)> {
    local_queue.split_once('/').map(|(namespace, name)| (Arc::from(namespace), Arc::from(name)))
}

/// Object keys of local queues given as `namespace/name`.
pub(crate) fn keys<'a>(local_queues: impl Iterator<Item = &'a Arc<str>>) -> impl Iterator<Item = Key> {
    local_queues.filter_map(|key| names(key)).map(|(namespace, name)| Key {
        scope: None,
        kind: Kind::LocalQueue,
        namespace: Some(namespace),
        name,
    })
}
