//! How many workloads stand where, and what they use or ask for: per queue, and brought in line with every change of a
//! workload, so that nobody who asks has to walk over them.
//!
//! A cache over the workloads. A local queue counts all of its own. A cluster queue counts who holds its quota where that is
//! charged, and everybody else where their local queue leads today; when that changes, they move. What counts nobody is
//! forgotten, so a recount gives the same.

use crate::facts::flavors::Flavors;
use crate::facts::submission::Class;
use crate::queue::classes::Usage;
use crate::state::catalog::Catalog;
use crate::state::legs::leg::State;
use crate::state::workload::phase::Phase;
use meridian_shared::gang::{Amounts, add_scaled};
use meridian_shared::ids::ClusterName;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Who stands where in one queue.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct WorkloadCounts {
    phases: [u64; Phase::ALL.len()],
    /// Of those without quota and end, who was taken out of the queue.
    inactive: u64,
    /// Charged amounts by flavor and resource.
    pub reserved: Usage,
    /// The same of workloads that a cluster has the right to run.
    pub used: Usage,
    /// What those ask for who wait.
    pub asked: Amounts,
}

impl WorkloadCounts {
    /// How many are in one phase.
    pub fn phase(&self, phase: Phase) -> u64 {
        self.phases[phase as usize]
    }

    fn sum(&self, of: impl Fn(Phase) -> bool) -> u64 {
        Phase::ALL.into_iter().filter(|p| of(*p)).map(|p| self.phase(p)).sum()
    }

    /// How many wait for quota.
    pub fn waiting(&self) -> u64 {
        self.phase(Phase::Pending).saturating_sub(self.inactive)
    }

    /// How many hold quota.
    pub fn reserving(&self) -> u64 {
        self.sum(Phase::charged)
    }

    /// How many a cluster has the right to run.
    pub fn admitted(&self) -> u64 {
        self.sum(Phase::granted)
    }

    fn is_empty(&self) -> bool {
        self.phases.iter().all(|n| *n == 0)
    }

    fn count(&mut self, one: &CountedWorkload<'_>, more: bool) {
        self.count_phase(one, more);
        for part in Part::ALL.into_iter().filter(|part| part.counts(one)) {
            self.add(part, one, more);
        }
    }

    /// Counts somebody as it stands now, and no longer as it stood before. What it takes part in as ever isn't touched.
    fn change(&mut self, before: &CountedWorkload<'_>, after: &CountedWorkload<'_>) {
        self.count_phase(before, false);
        self.count_phase(after, true);
        let alike = before.flavors == after.flavors && before.total == after.total;
        for part in Part::ALL {
            let (was, is) = (part.counts(before), part.counts(after));
            if was && !(is && alike) {
                self.add(part, before, false);
            }
            if is && !(was && alike) {
                self.add(part, after, true);
            }
        }
    }

    fn count_phase(&mut self, one: &CountedWorkload<'_>, more: bool) {
        step(&mut self.phases[one.phase as usize], more);
        if one.phase == Phase::Pending && one.inactive {
            step(&mut self.inactive, more);
        }
    }

    fn add(&mut self, part: Part, one: &CountedWorkload<'_>, more: bool) {
        let by = if more { 1 } else { -1 };
        let usage = match part {
            Part::Asked => {
                add_scaled(&mut self.asked, one.total, by);
                return self.asked.retain(|_, amount| *amount != 0);
            }
            Part::Reserved => &mut self.reserved,
            Part::Used => &mut self.used,
        };
        for (resource, flavor) in one.flavors.iter() {
            let amount = by * one.total.get(resource).copied().unwrap_or(0);
            match usage.iter_mut().find(|((of, what), _)| of == flavor && what == resource) {
                Some((_, sum)) => *sum += amount,
                None => drop(usage.insert((flavor.clone(), resource.clone()), amount)),
            }
        }
        usage.retain(|_, sum| *sum != 0);
    }

    /// Moves those of `from` who hold no quota.
    fn shift(&mut self, from: &Self, more: bool) {
        for phase in Phase::ALL.into_iter().filter(|p| !p.charged()) {
            let (times, by) = (&mut self.phases[phase as usize], from.phases[phase as usize]);
            *times = if more { *times + by } else { times.saturating_sub(by) };
        }
        self.inactive =
            if more { self.inactive + from.inactive } else { self.inactive.saturating_sub(from.inactive) };
        add_scaled(&mut self.asked, &from.asked, if more { 1 } else { -1 });
        self.asked.retain(|_, amount| *amount != 0);
    }
}

/// A standing in which nobody stands.
static NO_WORKLOADS: WorkloadCounts = WorkloadCounts {
    phases: [0; Phase::ALL.len()],
    inactive: 0,
    reserved: Usage::new(),
    used: Usage::new(),
    asked: Amounts::new(),
};

/// What amounts are counted in.
#[derive(Clone, Copy)]
enum Part {
    Asked,
    Reserved,
    Used,
}

impl Part {
    const ALL: [Self; 3] = [Self::Asked, Self::Reserved, Self::Used];

    fn counts(self, one: &CountedWorkload<'_>) -> bool {
        match self {
            Self::Asked => one.phase == Phase::Pending && !one.inactive,
            Self::Reserved => one.phase.charged(),
            Self::Used => one.phase.granted(),
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Local {
    leads_to: Option<Arc<str>>,
    standing: WorkloadCounts,
}

/// All standings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct QueueCounts {
    all: [u64; Phase::ALL.len()],
    inactive: u64,
    locals: BTreeMap<(Arc<str>, Arc<str>), Local>,
    queues: BTreeMap<Arc<str>, WorkloadCounts>,
    legs: BTreeMap<(ClusterName, State), u64>,
}

impl QueueCounts {
    /// How many workloads are in a phase.
    pub fn phase(&self, phase: Phase) -> u64 {
        self.all[phase as usize]
    }

    /// How many of those that are pending were taken out of their queues.
    pub fn inactive(&self) -> u64 {
        self.inactive
    }

    /// How many legs of a cluster are in a state.
    pub fn legs(&self) -> impl Iterator<Item = (&ClusterName, State, u64)> {
        self.legs.iter().map(|((cluster, state), n)| (cluster, *state, *n))
    }

    /// Who stands where in a cluster queue.
    pub fn cluster_queue(&self, name: &str) -> &WorkloadCounts {
        self.queues.get(name).unwrap_or(&NO_WORKLOADS)
    }

    /// Who stands where in a local queue.
    pub fn local_queue(&self, namespace: &Arc<str>, name: &Arc<str>) -> &WorkloadCounts {
        self.locals.get(&(namespace.clone(), name.clone())).map_or(&NO_WORKLOADS, |local| &local.standing)
    }

    /// Counts somebody of a class as it stands, or no longer.
    pub(crate) fn count(&mut self, catalog: &Catalog, class: &Class, one: &CountedWorkload<'_>, more: bool) {
        self.count_one(one, more);
        let leads_to = self.in_local(catalog, class, |standing| standing.count(one, more));
        if let Some(queue) = one.queue(leads_to.as_ref()) {
            self.in_queue(queue.clone(), |standing| standing.count(one, more));
        }
    }

    /// Counts somebody of a class as it stands now, and no longer as it stood before.
    pub(crate) fn change(
        &mut self,
        catalog: &Catalog,
        class: &Class,
        before: &CountedWorkload<'_>,
        after: &CountedWorkload<'_>,
    ) {
        self.count_one(before, false);
        self.count_one(after, true);
        let leads_to = self.in_local(catalog, class, |standing| standing.change(before, after));
        let [from, to] = [before, after].map(|one| one.queue(leads_to.as_ref()));
        if let (Some(from), true) = (from, from == to) {
            return self.in_queue(from.clone(), |standing| standing.change(before, after));
        }
        if let Some(from) = from {
            self.in_queue(from.clone(), |standing| standing.count(before, false));
        }
        if let Some(to) = to {
            self.in_queue(to.clone(), |standing| standing.count(after, true));
        }
    }

    fn count_one(&mut self, one: &CountedWorkload<'_>, more: bool) {
        step(&mut self.all[one.phase as usize], more);
        if one.phase == Phase::Pending && one.inactive {
            step(&mut self.inactive, more);
        }
    }

    /// Changes a class's local queue; returns where that leads.
    fn in_local(
        &mut self,
        catalog: &Catalog,
        class: &Class,
        change: impl FnOnce(&mut WorkloadCounts),
    ) -> Option<Arc<str>> {
        let key = (class.namespace.clone(), class.queue.clone());
        if let Some(local) = self.locals.get_mut(&key) {
            change(&mut local.standing);
            let leads_to = local.leads_to.clone();
            if local.standing.is_empty() {
                self.locals.remove(&key);
            }
            return leads_to;
        }
        let queue = catalog.local_queue(&class.namespace, &class.queue);
        let mut local = Local {
            leads_to: queue.map(|q| Arc::from(q.cluster_queue.as_str())),
            standing: WorkloadCounts::default(),
        };
        change(&mut local.standing);
        let leads_to = local.leads_to.clone();
        if !local.standing.is_empty() {
            self.locals.insert(key, local);
        }
        leads_to
    }

    /// Counts a leg, or no longer.
    pub(crate) fn leg(&mut self, cluster: ClusterName, state: State, more: bool) {
        let key = (cluster, state);
        let legs = self.legs.get(&key).copied().unwrap_or(0);
        match if more { legs + 1 } else { legs.saturating_sub(1) } {
            0 => drop(self.legs.remove(&key)),
            legs => drop(self.legs.insert(key, legs)),
        }
    }

    fn in_queue(&mut self, name: Arc<str>, change: impl FnOnce(&mut WorkloadCounts)) {
        let Some(standing) = self.queues.get_mut(&name) else {
            let mut standing = WorkloadCounts::default();
            change(&mut standing);
            if !standing.is_empty() {
                self.queues.insert(name, standing);
            }
            return;
        };
        change(standing);
        if standing.is_empty() {
            self.queues.remove(&name);
        }
    }

    /// A local queue leads elsewhere from now on. Returns where it led, if that changed and anybody was in it.
    pub fn lead(&mut self, namespace: &Arc<str>, name: &Arc<str>, to: Option<&str>) -> Option<Arc<str>> {
        let local = self.locals.get_mut(&(namespace.clone(), name.clone()))?;
        if local.leads_to.as_deref() == to {
            return None;
        }
        let from = std::mem::replace(&mut local.leads_to, to.map(Arc::from));
        let standing = local.standing.clone();
        if let Some(from) = from.clone() {
            self.in_queue(from, |queue| queue.shift(&standing, false));
        }
        if let Some(to) = to {
            self.in_queue(Arc::from(to), |queue| queue.shift(&standing, true));
        }
        from
    }
}

/// What is counted of one workload.
pub(crate) struct CountedWorkload<'a> {
    pub(crate) phase: Phase,
    pub(crate) inactive: bool,
    pub(crate) flavors: &'a Flavors,
    pub(crate) total: &'a Amounts,
    pub(crate) charged_to: Option<&'a Arc<str>>,
}

impl<'a> CountedWorkload<'a> {
    /// The cluster queue that counts it, where its local queue leads to `leads_to`.
    fn queue<'b: 'a>(&self, leads_to: Option<&'b Arc<str>>) -> Option<&'a Arc<str>> {
        if self.phase.charged() { self.charged_to } else { leads_to }
    }
}

fn step(times: &mut u64, more: bool) {
    *times = if more { *times + 1 } else { times.saturating_sub(1) };
}
