//! Why each class of equivalent workloads is pending, by the latest evaluation, and which reasons changed
//! since readers last took them.
//!
//! Volatile: the first scheduling pass after a start finds every reason again. Reasons are kept by class, not
//! by workload, because a reason can change without any record about the workload.

use crate::facts::reason::Why;
use crate::facts::submission::ClassId;
use meridian_shared::ids::ClusterName;
use std::collections::{BTreeMap, BTreeSet};

/// Pending reasons of all classes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct PendingReasons {
    /// Reasons that apply before any cluster is evaluated, such as missing quota.
    before: BTreeMap<ClassId, Why>,
    at_clusters: BTreeMap<ClassId, BTreeMap<ClusterName, Why>>,
    /// Classes that fitted in some cluster at their last evaluation.
    able: BTreeSet<ClassId>,
    /// Classes with changes that readers haven't taken yet.
    changed: BTreeSet<ClassId>,
}

impl PendingReasons {
    /// The reason that applies before any cluster is evaluated.
    pub fn before(&self, class: ClassId) -> Option<&Why> {
        self.before.get(&class)
    }

    /// [`Self::before`] of every class that has one.
    pub fn all_before(&self) -> impl Iterator<Item = (ClassId, &Why)> {
        self.before.iter().map(|(class, why)| (*class, why))
    }

    pub fn at_clusters(&self, class: ClassId) -> Option<&BTreeMap<ClusterName, Why>> {
        self.at_clusters.get(&class)
    }

    /// Whether the class fitted in some cluster at its last evaluation.
    pub(crate) fn is_able(&self, class: ClassId) -> bool {
        self.able.contains(&class)
    }

    /// Classes with a reason of either kind.
    pub(crate) fn classes(&self) -> BTreeSet<ClassId> {
        self.before.keys().chain(self.at_clusters.keys()).copied().collect()
    }

    /// Classes with changes that readers haven't taken yet.
    pub(crate) fn take_changed(&mut self) -> BTreeSet<ClassId> {
        std::mem::take(&mut self.changed)
    }

    /// Sets or clears the reason that applies before any cluster is evaluated.
    pub(crate) fn set(&mut self, class: ClassId, why: Option<Why>) {
        if self.before.get(&class) == why.as_ref() {
            return;
        }
        self.changed.insert(class);
        match why {
            Some(why) => drop(self.before.insert(class, why)),
            None => drop(self.before.remove(&class)),
        }
    }

    /// Sets the reasons at all clusters that were evaluated and can't start the class. `able`: whether some
    /// cluster can.
    pub(crate) fn set_at_clusters(&mut self, class: ClassId, all: BTreeMap<ClusterName, Why>, able: bool) {
        if able != self.able.contains(&class) {
            self.changed.insert(class);
            if able {
                self.able.insert(class)
            } else {
                self.able.remove(&class)
            };
        }
        if self.at_clusters.get(&class) != Some(&all) {
            self.changed.insert(class);
            self.at_clusters.insert(class, all);
        }
    }

    pub(crate) fn set_at(&mut self, class: ClassId, cluster: &ClusterName, why: Why) {
        self.changed.insert(class);
        self.at_clusters.entry(class).or_default().insert(cluster.clone(), why);
    }

    /// Drops the reasons of a class that has no workload left.
    pub(crate) fn forget(&mut self, class: ClassId) {
        let known = [
            self.before.remove(&class).is_some(),
            self.at_clusters.remove(&class).is_some(),
            self.able.remove(&class),
        ];
        if known != [false; 3] {
            self.changed.insert(class);
        }
    }
}

/// Why one class is pending, as displayed to users.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingReason {
    /// The reason that applies before any cluster is evaluated.
    pub before: Option<Why>,
    /// If no cluster can start the class: the cluster with the smallest obstacle, the number of clusters
    /// evaluated, and the obstacle.
    pub nearest: Option<(ClusterName, usize, Why)>,
}

/// Classes with their new reason; `None` if the class isn't pending any more.
pub type Changed = Vec<(ClassId, Option<PendingReason>)>;
