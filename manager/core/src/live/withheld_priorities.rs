//! New priorities of runs that a residency policy keeps from being sent.

use meridian_shared::ids::Uid;
use std::collections::BTreeSet;

/// Runs whose new priority isn't sent, because a residency policy now forbids their cluster. Such a policy
/// only flags violations, so the runs continue. They are tried again when a rule or a cluster's region
/// changes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct WithheldPriorities(BTreeSet<Uid>);

impl WithheldPriorities {
    pub(crate) fn withhold(&mut self, uid: Uid) {
        self.0.insert(uid);
    }

    /// All of them, in order, to be tried again.
    pub(crate) fn take(&mut self) -> BTreeSet<Uid> {
        std::mem::take(&mut self.0)
    }
}
