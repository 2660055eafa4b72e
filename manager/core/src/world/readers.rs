//! Read access for other crates.

use crate::facts::reason::Why;
use crate::facts::submission::ClassId;
use crate::queue::mirror::QueueMirror;
use crate::queue::pending_reasons::PendingReasons;
use crate::world::{Live, World};
use meridian_placement::reservations::Reservations;
use meridian_shared::ids::{ClusterName, Uid};
use meridian_shared::time::Mono;
use std::collections::{BTreeMap, BTreeSet};

impl World {
    pub fn mirror(&self) -> &QueueMirror {
        &self.mirror
    }

    /// Workloads with open or granted legs, by cluster.
    pub fn loads(&self) -> &BTreeMap<ClusterName, BTreeMap<Uid, ClassId>> {
        &self.loads
    }
}

impl Live {
    pub fn pending_reasons(&self) -> &PendingReasons {
        &self.pending_reasons
    }

    /// Workloads that back off, with the time until which they aren't considered.
    pub fn backoff_until(&self) -> &BTreeMap<Uid, Mono> {
        &self.backoff_until
    }

    /// Workloads whose stored manifest is known to be unreadable.
    pub fn damaged(&self) -> &BTreeSet<Uid> {
        &self.damaged
    }

    /// Why running gangs that are to be scaled up aren't yet.
    pub fn scale_up_reasons(&self) -> &BTreeMap<Uid, Why> {
        &self.scale_up_reasons
    }

    pub fn reservations(&self) -> &Reservations {
        &self.reservations
    }
}
