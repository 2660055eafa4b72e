//! Deadlines of taints that pods tolerate for a limited time (`tolerationSeconds`).

use meridian_shared::gang::{Gang, Taint};
use meridian_shared::time::{Millis, Wall};
use serde::{Deserialize, Serialize};

/// The time that the pods of one set tolerate one taint of one node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) struct TolerationDeadline {
    pub(super) node: String,
    pub(super) pod_set: String,
    pub(super) taint: Taint,
    pub(super) since: Wall,
    pub(super) lasts: Millis,
}

impl TolerationDeadline {
    pub(super) fn ends(&self) -> Wall {
        self.since + self.lasts
    }

    /// Deadlines are sorted by this key.
    pub(super) fn place(&self) -> (&str, &str) {
        (&self.node, &self.pod_set)
    }

    /// This deadline in another session's calendar: `translate` changes its start.
    pub(crate) fn translated(self, translate: impl Fn(Wall) -> Wall) -> Self {
        Self { since: translate(self.since), ..self }
    }
}

/// The deadlines of one pod set on one node.
pub(super) fn of_place<'a>(
    deadlines: &'a [TolerationDeadline],
    node: &str,
    pod_set: &str,
) -> impl Iterator<Item = &'a TolerationDeadline> {
    let before = deadlines.partition_point(|deadline| deadline.place() < (node, pod_set));
    let after = deadlines.partition_point(|deadline| deadline.place() <= (node, pod_set));
    deadlines[before..after].iter()
}

/// What came to the node last: the pods of an allocation, or the taint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// The pods start on a node that has the taint already.
    Pods,
    /// The taint appears on the node of running pods.
    Taint,
}

/// The gang after all its deadlines have passed: only its unlimited tolerations remain.
pub(super) fn without_limited_tolerations(gang: &Gang) -> Gang {
    let mut gang = gang.clone();
    gang.pod_sets
        .iter_mut()
        .for_each(|set| set.tolerations.retain(|toleration| toleration.seconds.is_none()));
    gang
}
