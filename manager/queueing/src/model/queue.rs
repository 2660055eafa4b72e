//! Cluster queues as decisions see them, and their holders as candidates for preemption.

use crate::model::{Moment, QueueSetup, WorkloadId};
use crate::names::FlavorId;
use crate::quota::{NodeId, TreeId};
use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::Arc;

/// A holder in the order in which victims are searched.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PreemptionCandidate {
    /// False if it is stopping.
    pub(crate) is_running: bool,
    pub(crate) priority: i64,
    pub(crate) since: Reverse<Moment>,
    /// When the workload was queued, if that breaks ties.
    pub(crate) age: Reverse<Moment>,
    pub(crate) uid: Arc<str>,
    pub(crate) workload: WorkloadId,
}

impl PreemptionCandidate {
    /// The smallest value.
    pub(crate) fn first() -> Self {
        Self {
            is_running: false,
            priority: i64::MIN,
            since: Reverse(Moment::MAX),
            age: Reverse(Moment::MAX),
            uid: Arc::from(""),
            workload: WorkloadId(0),
        }
    }
}

/// Priority, queueing time (latest first) and number of a holder.
pub(crate) type HolderKey = (i64, Reverse<Moment>, WorkloadId);

/// A cluster queue as decisions see it.
#[derive(Clone, Debug, PartialEq)]
pub struct Queue {
    pub setup: Arc<QueueSetup>,
    /// The queue's quota node; `None` while its cohort is in a cycle.
    pub node: Option<NodeId>,
    pub tree: Option<TreeId>,
    /// Incremented when quota may have been released.
    pub generation: u64,
    /// Number of cycles in which it had a head.
    cycles: u64,
    /// Workloads that hold its quota.
    pub holders: BTreeSet<WorkloadId>,
    /// The holders, lowest priority first, then newest first.
    by_priority: BTreeSet<HolderKey>,
    /// The holders by each of their flavors, in the order in which victims are searched: stopping ones first,
    /// then the lowest priority, then the latest reservation.
    by_flavor: BTreeSet<(FlavorId, PreemptionCandidate)>,
    /// Number of stopping holders.
    stopping: usize,
    /// Whether every flavor has a topology.
    pub topology_only: bool,
}

impl Queue {
    pub(crate) fn new(topology_only: bool) -> Self {
        Self {
            setup: Arc::new(QueueSetup::default()),
            node: None,
            tree: None,
            generation: 0,
            cycles: 0,
            holders: BTreeSet::new(),
            by_priority: BTreeSet::new(),
            by_flavor: BTreeSet::new(),
            stopping: 0,
            topology_only,
        }
    }

    /// A copy without any holders.
    pub(crate) fn without_holders(&self) -> Self {
        let (holders, by_priority, by_flavor) = Default::default();
        Self { holders, by_priority, by_flavor, stopping: 0, setup: self.setup.clone(), ..*self }
    }

    /// Number of cycles in which it had a head.
    pub(crate) fn cycles(&self) -> u64 {
        self.cycles
    }

    pub(crate) fn count_cycle(&mut self) {
        self.cycles += 1;
    }

    /// Whether any holder is stopping.
    pub(crate) fn has_stopping(&self) -> bool {
        self.stopping > 0
    }

    /// Makes a copy without holders report that it has a stopping holder.
    pub(crate) fn assume_stopping(&mut self) {
        self.stopping = 1;
    }

    /// Adds a holder to the indexes.
    pub(crate) fn add_holder(
        &mut self,
        candidate: &PreemptionCandidate,
        queued: Moment,
        flavors: &BTreeSet<FlavorId>,
    ) {
        self.holders.insert(candidate.workload);
        self.by_priority.insert((candidate.priority, Reverse(queued), candidate.workload));
        self.stopping += usize::from(!candidate.is_running);
        self.by_flavor.extend(flavors.iter().map(|flavor| (*flavor, candidate.clone())));
    }

    /// Removes a holder from the indexes.
    pub(crate) fn remove_holder(
        &mut self,
        candidate: &PreemptionCandidate,
        queued: Moment,
        flavors: &BTreeSet<FlavorId>,
    ) {
        self.holders.remove(&candidate.workload);
        self.by_priority.remove(&(candidate.priority, Reverse(queued), candidate.workload));
        self.stopping -= usize::from(!candidate.is_running);
        for flavor in flavors {
            self.by_flavor.remove(&(*flavor, candidate.clone()));
        }
    }

    /// The holders, lowest priority first, then newest first.
    pub(crate) fn holders_by_priority(&self) -> impl Iterator<Item = &HolderKey> + '_ {
        self.by_priority.iter()
    }

    /// Holders by priority, up to a bound.
    pub(crate) fn holders_up_to(&self, end: Bound<HolderKey>) -> impl Iterator<Item = WorkloadId> + '_ {
        self.by_priority.range((Bound::Unbounded, end)).map(|(_, _, workload)| *workload)
    }

    /// The holders with a flavor, in the order in which victims are searched, optionally after a given one.
    pub(crate) fn holders_with_flavor(
        &self,
        flavor: FlavorId,
        after: Option<PreemptionCandidate>,
    ) -> impl Iterator<Item = &PreemptionCandidate> {
        let from = after.map_or_else(
            || Bound::Included((flavor, PreemptionCandidate::first())),
            |one| Bound::Excluded((flavor, one)),
        );
        let with_flavor = self.by_flavor.range((from, Bound::Unbounded));
        with_flavor.take_while(move |(of, _)| *of == flavor).map(|(_, candidate)| candidate)
    }
}
