//! Per queue: number of workloads by phase, reserved and used quota, and pending requests.
//!
//! A cache over the workloads, updated with every change of a workload, so that readers needn't walk over all
//! workloads.
//!
//! - A local queue counts all its workloads.
//! - A cluster queue counts the workloads with quota that is charged to it, and the workloads without quota
//!   in local queues that point to it now. When a local queue is pointed to another cluster queue, its
//!   workloads without quota move there.
//! - Entries that are zero are removed, so that a recount gives an equal value.

use crate::facts::flavors::FlavorUsage;
use crate::facts::submission::Class;
use crate::state::catalog::Catalog;
use crate::state::legs::leg::LegState;
use crate::state::workload::phase::Phase;
use meridian_shared::gang::{Amounts, add_scaled};
use meridian_shared::ids::ClusterName;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Counts and amounts of one queue.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct WorkloadCounts {
    phases: [u64; Phase::ALL.len()],
    /// Deactivated workloads among the pending ones.
    inactive: u64,
    /// Quota of all workloads that hold quota, by flavor and resource.
    pub reserved: FlavorUsage,
    /// Quota of the workloads that a cluster has the right to run, by flavor and resource.
    pub used: FlavorUsage,
    /// Requests of the waiting workloads.
    pub asked: Amounts,
}

impl WorkloadCounts {
    /// Number of workloads in a phase.
    pub fn phase(&self, phase: Phase) -> u64 {
        self.phases[phase as usize]
    }

    fn sum(&self, of: impl Fn(Phase) -> bool) -> u64 {
        Phase::ALL.into_iter().filter(|p| of(*p)).map(|p| self.phase(p)).sum()
    }

    /// Number of workloads that wait for quota.
    pub fn waiting(&self) -> u64 {
        self.phase(Phase::Pending).saturating_sub(self.inactive)
    }

    /// Number of workloads that hold quota.
    pub fn reserving(&self) -> u64 {
        self.sum(Phase::charged)
    }

    /// Number of workloads that a cluster has the right to run.
    pub fn admitted(&self) -> u64 {
        self.sum(Phase::granted)
    }

    fn is_empty(&self) -> bool {
        self.phases.iter().all(|n| *n == 0)
    }

    fn count(&mut self, workload: &CountedWorkload<'_>, more: bool) {
        self.count_phase(workload, more);
        for sum in Sum::ALL.into_iter().filter(|sum| sum.counts(workload)) {
            self.add(sum, workload, more);
        }
    }

    /// Replaces `before` by `after`, two states of the same workload. Amounts that don't change aren't
    /// touched.
    fn change(&mut self, before: &CountedWorkload<'_>, after: &CountedWorkload<'_>) {
        self.count_phase(before, false);
        self.count_phase(after, true);
        let same_amounts = before.charge == after.charge && before.total == after.total;
        for sum in Sum::ALL {
            let (was, is) = (sum.counts(before), sum.counts(after));
            if was && !(is && same_amounts) {
                self.add(sum, before, false);
            }
            if is && !(was && same_amounts) {
                self.add(sum, after, true);
            }
        }
    }

    fn count_phase(&mut self, workload: &CountedWorkload<'_>, more: bool) {
        step(&mut self.phases[workload.phase as usize], more);
        if workload.phase == Phase::Pending && workload.inactive {
            step(&mut self.inactive, more);
        }
    }

    fn add(&mut self, sum: Sum, workload: &CountedWorkload<'_>, more: bool) {
        let by = if more { 1 } else { -1 };
        let usage = match sum {
            Sum::Asked => {
                add_scaled(&mut self.asked, workload.total, by);
                return self.asked.retain(|_, amount| *amount != 0);
            }
            Sum::Reserved => &mut self.reserved,
            Sum::Used => &mut self.used,
        };
        for (key, amount) in workload.charge {
            match usage.get_mut(key) {
                Some(sum) => *sum += by * amount,
                None => drop(usage.insert(key.clone(), by * amount)),
            }
        }
        usage.retain(|_, sum| *sum != 0);
    }

    /// Adds or removes the workloads of `from` that hold no quota.
    fn shift(&mut self, from: &Self, more: bool) {
        for phase in Phase::ALL.into_iter().filter(|p| !p.charged()) {
            let (count, by) = (&mut self.phases[phase as usize], from.phases[phase as usize]);
            *count = if more { *count + by } else { count.saturating_sub(by) };
        }
        self.inactive =
            if more { self.inactive + from.inactive } else { self.inactive.saturating_sub(from.inactive) };
        add_scaled(&mut self.asked, &from.asked, if more { 1 } else { -1 });
        self.asked.retain(|_, amount| *amount != 0);
    }
}

static NO_WORKLOADS: WorkloadCounts = WorkloadCounts {
    phases: [0; Phase::ALL.len()],
    inactive: 0,
    reserved: FlavorUsage::new(),
    used: FlavorUsage::new(),
    asked: Amounts::new(),
};

/// The sums of [`WorkloadCounts`] that amounts are added to.
#[derive(Clone, Copy)]
enum Sum {
    Asked,
    Reserved,
    Used,
}

impl Sum {
    const ALL: [Self; 3] = [Self::Asked, Self::Reserved, Self::Used];

    fn counts(self, workload: &CountedWorkload<'_>) -> bool {
        match self {
            Self::Asked => workload.phase == Phase::Pending && !workload.inactive,
            Self::Reserved => workload.phase.charged(),
            Self::Used => workload.phase.granted(),
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Local {
    points_to: Option<Arc<str>>,
    counts: WorkloadCounts,
}

/// Counts of all queues, of all workloads, and of all legs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct QueueCounts {
    /// Workloads of all queues by phase.
    all: [u64; Phase::ALL.len()],
    /// Deactivated workloads among the pending ones.
    inactive: u64,
    /// By namespace and name.
    locals: BTreeMap<(Arc<str>, Arc<str>), Local>,
    queues: BTreeMap<Arc<str>, WorkloadCounts>,
    legs: BTreeMap<(ClusterName, LegState), u64>,
}

impl QueueCounts {
    /// Number of workloads in a phase, over all queues.
    pub fn phase(&self, phase: Phase) -> u64 {
        self.all[phase as usize]
    }

    /// Number of deactivated workloads among the pending ones, over all queues.
    pub fn inactive(&self) -> u64 {
        self.inactive
    }

    /// Number of legs by cluster and state.
    pub fn legs(&self) -> impl Iterator<Item = (&ClusterName, LegState, u64)> {
        self.legs.iter().map(|((cluster, state), n)| (cluster, *state, *n))
    }

    pub fn cluster_queue(&self, name: &str) -> &WorkloadCounts {
        self.queues.get(name).unwrap_or(&NO_WORKLOADS)
    }

    pub fn local_queue(&self, namespace: &Arc<str>, name: &Arc<str>) -> &WorkloadCounts {
        self.locals.get(&(namespace.clone(), name.clone())).map_or(&NO_WORKLOADS, |local| &local.counts)
    }

    /// Adds a workload of `class` to all counts, or removes it (`more`: false).
    pub(crate) fn count(
        &mut self,
        catalog: &Catalog,
        class: &Class,
        workload: &CountedWorkload<'_>,
        more: bool,
    ) {
        self.count_overall(workload, more);
        let points_to = self.in_local(catalog, class, |counts| counts.count(workload, more));
        if let Some(queue) = workload.queue(points_to.as_ref()) {
            self.in_queue(queue.clone(), |counts| counts.count(workload, more));
        }
    }

    /// Replaces `before` by `after`, two states of the same workload.
    pub(crate) fn change(
        &mut self,
        catalog: &Catalog,
        class: &Class,
        before: &CountedWorkload<'_>,
        after: &CountedWorkload<'_>,
    ) {
        self.count_overall(before, false);
        self.count_overall(after, true);
        let points_to = self.in_local(catalog, class, |counts| counts.change(before, after));
        let [from, to] = [before, after].map(|workload| workload.queue(points_to.as_ref()));
        if let (Some(from), true) = (from, from == to) {
            return self.in_queue(from.clone(), |counts| counts.change(before, after));
        }
        if let Some(from) = from {
            self.in_queue(from.clone(), |counts| counts.count(before, false));
        }
        if let Some(to) = to {
            self.in_queue(to.clone(), |counts| counts.count(after, true));
        }
    }

    fn count_overall(&mut self, workload: &CountedWorkload<'_>, more: bool) {
        step(&mut self.all[workload.phase as usize], more);
        if workload.phase == Phase::Pending && workload.inactive {
            step(&mut self.inactive, more);
        }
    }

    /// Applies `change` to the local queue of a class. Returns the cluster queue that the local queue points
    /// to.
    fn in_local(
        &mut self,
        catalog: &Catalog,
        class: &Class,
        change: impl FnOnce(&mut WorkloadCounts),
    ) -> Option<Arc<str>> {
        let key = (class.namespace.clone(), class.queue.clone());
        if let Some(local) = self.locals.get_mut(&key) {
            change(&mut local.counts);
            let points_to = local.points_to.clone();
            if local.counts.is_empty() {
                self.locals.remove(&key);
            }
            return points_to;
        }
        let queue = catalog.local_queue(&class.namespace, &class.queue);
        let mut local = Local {
            points_to: queue.map(|q| Arc::from(q.cluster_queue.as_str())),
            counts: WorkloadCounts::default(),
        };
        change(&mut local.counts);
        let points_to = local.points_to.clone();
        if !local.counts.is_empty() {
            self.locals.insert(key, local);
        }
        points_to
    }

    /// Adds a leg to the counts, or removes it.
    pub(crate) fn leg(&mut self, cluster: ClusterName, state: LegState, more: bool) {
        let key = (cluster, state);
        let legs = self.legs.get(&key).copied().unwrap_or(0);
        match if more { legs + 1 } else { legs.saturating_sub(1) } {
            0 => drop(self.legs.remove(&key)),
            legs => drop(self.legs.insert(key, legs)),
        }
    }

    fn in_queue(&mut self, name: Arc<str>, change: impl FnOnce(&mut WorkloadCounts)) {
        let Some(counts) = self.queues.get_mut(&name) else {
            let mut counts = WorkloadCounts::default();
            change(&mut counts);
            if !counts.is_empty() {
                self.queues.insert(name, counts);
            }
            return;
        };
        change(counts);
        if counts.is_empty() {
            self.queues.remove(&name);
        }
    }

    /// Points a local queue to another cluster queue. Returns the previous one, if the target changed and the
    /// local queue has workloads.
    pub fn lead(&mut self, namespace: &Arc<str>, name: &Arc<str>, to: Option<&str>) -> Option<Arc<str>> {
        let local = self.locals.get_mut(&(namespace.clone(), name.clone()))?;
        if local.points_to.as_deref() == to {
            return None;
        }
        let from = std::mem::replace(&mut local.points_to, to.map(Arc::from));
        let counts = local.counts.clone();
        if let Some(from) = from.clone() {
            self.in_queue(from, |queue| queue.shift(&counts, false));
        }
        if let Some(to) = to {
            self.in_queue(Arc::from(to), |queue| queue.shift(&counts, true));
        }
        from
    }
}

/// The parts of a workload that counts depend on.
pub(crate) struct CountedWorkload<'a> {
    pub(crate) phase: Phase,
    pub(crate) inactive: bool,
    /// Quota that is charged for the workload, by flavor and resource; empty without quota.
    pub(crate) charge: &'a FlavorUsage,
    pub(crate) total: &'a Amounts,
    pub(crate) charged_to: Option<&'a Arc<str>>,
}

impl<'a> CountedWorkload<'a> {
    /// The cluster queue that counts the workload. `points_to` is the cluster queue of its local queue.
    fn queue<'b: 'a>(&self, points_to: Option<&'b Arc<str>>) -> Option<&'a Arc<str>> {
        if self.phase.charged() { self.charged_to } else { points_to }
    }
}

fn step(count: &mut u64, more: bool) {
    *count = if more { *count + 1 } else { count.saturating_sub(1) };
}
