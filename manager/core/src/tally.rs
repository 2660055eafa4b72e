//! How many workloads stand where, and what they use or ask for: per queue, and brought in line with every change of a
//! workload, so that nobody who asks has to walk over them.
//!
//! A cache over the workloads. A local queue counts all of its own. A cluster queue counts who holds its quota where that is
//! charged, and everybody else where their local queue leads today; when that changes, they move. What counts nobody is
//! forgotten, so a recount gives the same.

use crate::World;
use crate::catalog::Catalog;
use crate::flavors::Flavors;
use crate::leg;
use crate::queues::Usage;
use crate::record::Class;
use crate::workload::Phase;
use meridian_shared::gang::{Amounts, add_scaled};
use meridian_shared::ids::{ClusterName, Uid};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Who stands where in one queue.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Standing {
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

/// A standing in which nobody stands.
static NOBODY: Standing = Standing { phases: [0; Phase::ALL.len()], inactive: 0, reserved: Usage::new(), used: Usage::new(), asked: Amounts::new() };

impl Standing {
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

    fn count(&mut self, one: &One<'_>, more: bool) {
        step(&mut self.phases[one.phase as usize], more);
        let by = if more { 1 } else { -1 };
        if one.phase == Phase::Pending && one.inactive {
            step(&mut self.inactive, more);
        } else if one.phase == Phase::Pending {
            add_scaled(&mut self.asked, one.total, by);
            self.asked.retain(|_, amount| *amount != 0);
        }
        for (usage, counts) in [(&mut self.reserved, one.phase.charged()), (&mut self.used, one.phase.granted())] {
            for (resource, flavor) in one.flavors.iter().filter(|_| counts) {
                let key = (flavor.clone(), resource.clone());
                let sum = usage.entry(key.clone()).or_insert(0);
                *sum += by * one.total.get(resource).copied().unwrap_or(0);
                if *sum == 0 {
                    usage.remove(&key);
                }
            }
        }
    }

    /// Moves those of `from` who hold no quota.
    fn shift(&mut self, from: &Self, more: bool) {
        for phase in Phase::ALL.into_iter().filter(|p| !p.charged()) {
            let (times, by) = (&mut self.phases[phase as usize], from.phases[phase as usize]);
            *times = if more { *times + by } else { times.saturating_sub(by) };
        }
        self.inactive = if more { self.inactive + from.inactive } else { self.inactive.saturating_sub(from.inactive) };
        add_scaled(&mut self.asked, &from.asked, if more { 1 } else { -1 });
        self.asked.retain(|_, amount| *amount != 0);
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Local {
    leads_to: Option<Arc<str>>,
    standing: Standing,
}

/// All standings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Tally {
    all: [u64; Phase::ALL.len()],
    inactive: u64,
    locals: BTreeMap<(Arc<str>, Arc<str>), Local>,
    queues: BTreeMap<Arc<str>, Standing>,
    legs: BTreeMap<(ClusterName, leg::State), u64>,
}

/// What is counted of one workload.
pub(crate) struct One<'a> {
    pub(crate) phase: Phase,
    pub(crate) inactive: bool,
    pub(crate) flavors: &'a Flavors,
    pub(crate) total: &'a Amounts,
    pub(crate) charged_to: Option<&'a Arc<str>>,
}

fn step(times: &mut u64, more: bool) {
    *times = if more { *times + 1 } else { times.saturating_sub(1) };
}

impl Tally {
    /// How many workloads are in a phase.
    pub fn phase(&self, phase: Phase) -> u64 {
        self.all[phase as usize]
    }

    /// How many of those that are pending were taken out of their queues.
    pub fn inactive(&self) -> u64 {
        self.inactive
    }

    /// How many legs of a cluster are in a state.
    pub fn legs(&self) -> impl Iterator<Item = (&ClusterName, leg::State, u64)> {
        self.legs.iter().map(|((cluster, state), n)| (cluster, *state, *n))
    }

    /// Who stands where in a cluster queue.
    pub fn cluster_queue(&self, name: &str) -> &Standing {
        self.queues.get(name).unwrap_or(&NOBODY)
    }

    /// Who stands where in a local queue.
    pub fn local_queue(&self, namespace: &Arc<str>, name: &Arc<str>) -> &Standing {
        self.locals.get(&(namespace.clone(), name.clone())).map_or(&NOBODY, |local| &local.standing)
    }

    /// Counts somebody of a class as it stands, or no longer.
    pub(crate) fn count(&mut self, catalog: &Catalog, class: &Class, one: &One<'_>, more: bool) {
        step(&mut self.all[one.phase as usize], more);
        if one.phase == Phase::Pending && one.inactive {
            step(&mut self.inactive, more);
        }
        let key = (class.namespace.clone(), class.queue.clone());
        let local = self.locals.entry(key.clone()).or_insert_with(|| {
            let queue = catalog.local_queue(&class.namespace, &class.queue);
            Local { leads_to: queue.map(|q| Arc::from(q.cluster_queue.as_str())), standing: Standing::default() }
        });
        local.standing.count(one, more);
        let queue = if one.phase.charged() { one.charged_to.cloned() } else { local.leads_to.clone() };
        if local.standing.is_empty() {
            self.locals.remove(&key);
        }
        if let Some(queue) = queue {
            self.in_queue(queue, |standing| standing.count(one, more));
        }
    }

    /// Counts a leg, or no longer.
    pub(crate) fn leg(&mut self, cluster: ClusterName, state: leg::State, more: bool) {
        let key = (cluster, state);
        step(self.legs.entry(key.clone()).or_default(), more);
        if self.legs[&key] == 0 {
            self.legs.remove(&key);
        }
    }

    fn in_queue(&mut self, name: Arc<str>, change: impl FnOnce(&mut Standing)) {
        let standing = self.queues.entry(name.clone()).or_default();
        change(standing);
        if standing.is_empty() {
            self.queues.remove(&name);
        }
    }

    /// A local queue leads elsewhere from now on. Returns where it led, if that changed and anybody was in it.
    pub(crate) fn lead(&mut self, namespace: &Arc<str>, name: &Arc<str>, to: Option<&str>) -> Option<Arc<str>> {
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

impl World {
    /// Counts a workload and its legs as they are, or no longer.
    fn tally_in(&self, tally: &mut Tally, uid: Uid, more: bool) {
        let Some(workload) = self.state.workloads.get(&uid) else { return };
        for leg in workload.legs.values() {
            tally.leg(leg.cluster.clone(), leg.state, more);
        }
        let class = self.queues.class(workload.class);
        let total = self.config.resources.total(&workload.gang(class));
        let inactive = workload.inactive.is_some();
        let one = One { phase: workload.phase, inactive, flavors: &workload.flavors, total: &total, charged_to: self.queues.charged_to(uid) };
        tally.count(&self.state.catalog, class, &one, more);
    }

    /// Counts a workload that came, or one that goes.
    pub(crate) fn tally_workload(&mut self, uid: Uid, more: bool) {
        let mut tally = std::mem::take(&mut self.tally);
        self.tally_in(&mut tally, uid, more);
        self.tally = tally;
    }

    /// All of it, counted anew.
    pub(crate) fn tally_anew(&self) -> Tally {
        let mut tally = Tally::default();
        self.state.workloads.keys().for_each(|uid| self.tally_in(&mut tally, *uid, true));
        tally
    }
}
