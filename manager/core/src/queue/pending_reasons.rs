//! What keeps a class of look-alikes: the last word of each pass, and which of them changed since readers were told.
//!
//! Volatile: the first pass after a start finds all of it again. A reason may change though nothing happened to the workload
//! that it keeps, so that it isn't part of what is known of one ([`crate::admission::Shown`]) but told beside it, by class.

use crate::facts::reason::Why;
use crate::facts::submission::ClassId;
use meridian_shared::ids::ClusterName;
use std::collections::{BTreeMap, BTreeSet};

/// What keeps every class.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct PendingReasons {
    pub(crate) before: BTreeMap<ClassId, Why>,
    pub(crate) at_clusters: BTreeMap<ClassId, BTreeMap<ClusterName, Why>>,
    /// Those of whom somebody could be started somewhere when they were last looked at.
    pub(crate) able: BTreeSet<ClassId>,
    pub(crate) changed: BTreeSet<ClassId>,
}

impl PendingReasons {
    /// Before any cluster is looked at.
    pub(crate) fn before(&self, class: ClassId) -> Option<&Why> {
        self.before.get(&class)
    }

    /// The same of all.
    pub(crate) fn all_before(&self) -> impl Iterator<Item = (ClassId, &Why)> {
        self.before.iter().map(|(class, why)| (*class, why))
    }

    /// At each cluster.
    pub(crate) fn at_clusters(&self, class: ClassId) -> Option<&BTreeMap<ClusterName, Why>> {
        self.at_clusters.get(&class)
    }

    /// Something keeps it before any cluster is looked at, or nothing does.
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

    /// What keeps it at every cluster that was looked at but those that are `able` to start it, if there are any.
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

    /// What keeps it at one cluster.
    pub(crate) fn set_at(&mut self, class: ClassId, cluster: &ClusterName, why: Why) {
        self.changed.insert(class);
        self.at_clusters.entry(class).or_default().insert(cluster.clone(), why);
    }

    /// Nobody of it is left.
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

/// What keeps one class, as it is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingReason {
    /// Before any cluster is looked at.
    pub before: Option<Why>,
    /// Where it is the clusters that can't start it: the nearest of how many, and why.
    pub nearest: Option<(ClusterName, usize, Why)>,
}

/// What became of a class: what keeps it, if anything does.
pub type Changed = Vec<(ClassId, Option<PendingReason>)>;
