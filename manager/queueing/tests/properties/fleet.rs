//! A random forest with workloads, driven by operations and checked after each.

use super::plan::{FLAVORS, Limits, Op, Plan, RESOURCES, keyed};
use super::recount::{Key, Recount};
use meridian_queueing::capacity_model::CapacityModel;
use meridian_queueing::cycle;
use meridian_queueing::flavors::Assignment;
use meridian_queueing::model::{Flavor, PodSet, QueueSetup, ResourceGroup, Shape, WorkloadId};
use meridian_queueing::preemption::Target;
use meridian_queueing::quota::{CohortSetup, Quota, Quotas, WEIGHT_ONE};
use meridian_queueing::settings::{FairSharing, Settings};
use meridian_queueing::{Amount, NewWorkload, QueueState};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Request and queue of a workload.
#[derive(Clone, Debug)]
pub(crate) struct WorkloadSpec {
    pub(crate) queue: usize,
    pub(crate) gpus: i64,
    pub(crate) pods: u32,
    pub(crate) priority: i64,
    pub(crate) since: i64,
}

pub(crate) struct Fleet {
    pub(crate) state: QueueState,
    pub(crate) recount: Recount,
    pub(crate) specs: BTreeMap<String, WorkloadSpec>,
    reversed: bool,
    pub(crate) fair: bool,
    made: u32,
    pub(crate) passed: u32,
    /// Workloads that each may not preempt, because they preempted it. `None` allows everything.
    pub(crate) protected: Option<Protected>,
}

/// The workloads that each may not preempt.
pub(crate) type Protected = BTreeMap<WorkloadId, BTreeSet<WorkloadId>>;

/// Usage of an assignment, by name.
pub(crate) type Names = dyn Fn(&QueueState, &Assignment) -> Vec<(Key, i64)>;

/// A workload, what it holds, and whether it is stopping.
type HolderView = (String, Vec<(Key, i64)>, bool);

/// Checks every admission just before it happens.
pub(crate) struct Checker<'a> {
    pub(crate) recount: Recount,
    pub(crate) names: &'a Names,
    pub(crate) protected: Protected,
}

impl CapacityModel for Checker<'_> {
    fn fits(&mut self, _: &QueueState, _: WorkloadId, _: &[Target]) -> bool {
        true
    }

    fn take(&mut self, state: &QueueState, workload: WorkloadId, assignment: &Assignment) -> bool {
        let uses = (self.names)(state, assignment);
        let queue = place(&state.queue(state.workload(workload).unwrap().queue).setup.name);
        assert!(
            self.recount.fits(queue, &uses),
            "queue {queue} takes {uses:?} that isn't available: {:?}",
            self.recount.used
        );
        self.recount.add(queue, &uses, 1);
        true
    }

    fn may_preempt(&self, workload: WorkloadId, holder: WorkloadId) -> bool {
        self.protected.get(&workload).is_none_or(|protected| !protected.contains(&holder))
    }
}

fn pick<T>(all: &mut [T], at: usize) -> Option<&mut T> {
    let count = all.len().max(1);
    all.get_mut(at % count)
}

pub(crate) fn place(name: &str) -> usize {
    name[1..].parse().unwrap()
}

pub(crate) fn uses_of(state: &QueueState, assignment: &Assignment) -> Vec<(Key, i64)> {
    let mut uses: BTreeMap<Key, i64> = BTreeMap::new();
    for set in &assignment.pod_sets {
        for (resource, choice) in &set.flavors {
            let amount = set.requests.iter().find(|(r, _)| r == resource).map_or(0, |(_, a)| *a);
            *uses
                .entry((
                    state.flavor_name(choice.flavor).to_string(),
                    state.resource_name(*resource).to_string(),
                ))
                .or_insert(0) += amount;
        }
    }
    uses.into_iter().collect()
}

impl Fleet {
    /// `reversed` declares queues in the opposite order, and gives flavors and resources other numbers.
    pub(crate) fn new(plan: &Plan, reversed: bool) -> Self {
        let settings = Settings {
            fair_sharing: plan.fair.then(FairSharing::default),
            brief: plan.brief,
            ..Settings::default()
        };
        let mut state = QueueState::new(settings);
        state.settings_mut().gates.prioritize_preemptors = plan.sticky;
        state.settings_mut().gates.topology = !plan.brief;
        let (mut flavors, mut resources) = (FLAVORS, RESOURCES);
        if reversed {
            flavors.reverse();
            resources.reverse();
        }
        for resource in resources {
            state.resource(resource);
        }
        for flavor in flavors {
            let id = state.flavor_id(flavor);
            state.set_flavor(id, Some(Flavor::default()));
        }
        let recount =
            Recount { queues: plan.queues.clone(), cohorts: plan.cohorts.clone(), used: BTreeMap::new() };
        let mut fleet = Self {
            state,
            recount,
            specs: BTreeMap::new(),
            reversed,
            fair: plan.fair,
            made: 0,
            passed: 0,
            protected: None,
        };
        fleet.configure();
        fleet
    }

    /// Number of skipped heads that were checked.
    pub(crate) fn passed(&self) -> u32 {
        self.passed
    }

    fn configure(&mut self) {
        let state = &mut self.state;
        let mut quotas = |of: &BTreeMap<Key, Limits>| -> Quotas {
            let limit = |l: Option<i64>| l.map(Amount);
            of.iter()
                .map(|((flavor, resource), (nominal, borrowing, lending))| {
                    let key = (state.flavor_id(flavor), state.resource(resource));
                    (
                        key,
                        Quota {
                            nominal: Amount(*nominal),
                            borrowing_limit: limit(*borrowing),
                            lending_limit: limit(*lending),
                        },
                    )
                })
                .collect()
        };
        let name = |at: usize| -> Arc<str> { Arc::from(format!("c{at}")) };
        let cohorts: BTreeMap<Arc<str>, CohortSetup> = self
            .recount
            .cohorts
            .iter()
            .enumerate()
            .map(|(at, c)| {
                (
                    name(at),
                    CohortSetup {
                        parent: c.parent.map(name),
                        quotas: quotas(&c.quotas),
                        weight: c.weight * WEIGHT_ONE,
                    },
                )
            })
            .collect();
        let mut setups: Vec<QueueSetup> = self
            .recount
            .queues
            .iter()
            .enumerate()
            .map(|(at, q)| QueueSetup {
                name: Arc::from(format!("q{at}")),
                cohort: q.cohort.map(name),
                quotas: quotas(&q.quotas),
                strict: q.strict,
                preemption: q.preemption,
                fungibility: q.fungibility,
                weight: q.weight * WEIGHT_ONE,
                ..QueueSetup::default()
            })
            .collect();
        for (setup, queue) in setups.iter_mut().zip(&self.recount.queues) {
            let resources = RESOURCES.iter().map(|r| self.state.resource(r)).collect();
            let given = FLAVORS.iter().filter(|flavor| queue.quotas.keys().any(|(of, _)| of == *flavor));
            let flavors = given.map(|f| self.state.flavor_id(f)).collect();
            setup.groups = vec![ResourceGroup { resources, flavors }];
        }
        if self.reversed {
            setups.reverse();
        }
        self.state.configure(&cohorts, setups);
    }

    pub(crate) fn holders(&self) -> Vec<(String, WorkloadId)> {
        self.specs
            .keys()
            .filter_map(|key| self.state.find(key).map(|id| (key.clone(), id)))
            .filter(|(_, id)| self.state.workload(*id).unwrap().holding.is_some())
            .collect()
    }

    fn waiters(&self) -> Vec<(String, WorkloadId)> {
        self.specs
            .keys()
            .filter_map(|key| self.state.find(key).map(|id| (key.clone(), id)))
            .filter(|(_, id)| self.state.workload(*id).unwrap().holding.is_none())
            .collect()
    }

    pub(crate) fn waiting(&self) -> usize {
        self.waiters().len()
    }

    pub(crate) fn step(&mut self, op: &Op) {
        match op {
            Op::Wait(queue, gpus, pods, priority) => self.wait(*queue, *gpus, *pods, *priority),
            Op::Finish(at) => {
                let holders = self.holders();
                if let Some((key, id)) = holders.get(at % holders.len().max(1)) {
                    self.state.remove(*id);
                    self.specs.remove(key);
                }
            }
            Op::Requeue(at) => {
                let holders = self.holders();
                if let Some((key, id)) = holders.get(at % holders.len().max(1)) {
                    self.state.requeue(*id, self.specs[key].since);
                }
            }
            Op::Cancel(at) => {
                let waiters = self.waiters();
                if let Some((key, id)) = waiters.get(at % waiters.len().max(1)) {
                    self.state.remove(*id);
                    self.specs.remove(key);
                }
            }
            Op::Requota(at, quotas, weight) => {
                let at = at % self.recount.queues.len();
                (self.recount.queues[at].quotas, self.recount.queues[at].weight) = (keyed(quotas), *weight);
                self.configure();
            }
            Op::Move(at, cohort) => {
                let at = at % self.recount.queues.len();
                self.recount.queues[at].cohort = Some(cohort % (self.recount.cohorts.len() + 1))
                    .filter(|c| *c < self.recount.cohorts.len());
                self.configure();
            }
            Op::Recohort(at, quotas, weight) => {
                if let Some(cohort) = pick(&mut self.recount.cohorts, *at) {
                    (cohort.quotas, cohort.weight) = (keyed(quotas), *weight);
                    self.configure();
                }
            }
            Op::Lift(at, parent) => {
                let count = self.recount.cohorts.len().max(1);
                let at = at % count;
                if let Some(cohort) = pick(&mut self.recount.cohorts, at) {
                    cohort.parent = Some(parent % (at + 1)).filter(|parent| *parent < at);
                    self.configure();
                }
            }
            Op::Run => self.run(),
        }
        self.check_usage();
    }

    fn wait(&mut self, queue: usize, gpus: i64, pods: u32, priority: i64) {
        let queue = queue % self.recount.queues.len();
        self.made += 1;
        let key = format!("w{:05}", self.made);
        let amounts = BTreeMap::from([("gpu".to_owned(), gpus), ("cpu".to_owned(), 1)]);
        let per_pod = self.state.requests(&amounts);
        let set =
            PodSet { name: Arc::from("main"), count: pods, per_pod, on_node: amounts, ..PodSet::default() };
        let shape = self.state.intern(Shape { pod_sets: vec![set], priority, ..Shape::default() });
        let since = i64::from(self.made);
        let text: Arc<str> = Arc::from(key.as_str());
        let id = self.state.queue_id(&format!("q{queue}")).unwrap();
        self.state.add_pending(NewWorkload {
            key: text.clone(),
            uid: text,
            queue: id,
            local_queue: Arc::from(format!("n/q{queue}")),
            shape,
            since,
            marks: None,
        });
        self.specs.insert(key, WorkloadSpec { queue, gpus, pods, priority, since });
    }

    pub(crate) fn holds(&self, id: WorkloadId) -> Vec<(Key, i64)> {
        let mut uses: BTreeMap<Key, i64> = BTreeMap::new();
        for given in &self.state.workload(id).unwrap().holding.as_ref().unwrap().given {
            for (resource, amount) in &given.usage {
                let flavor = self.state.flavor_name(given.flavors[resource]).to_string();
                *uses.entry((flavor, self.state.resource_name(*resource).to_string())).or_insert(0) += amount;
            }
        }
        uses.into_iter().collect()
    }

    pub(crate) fn recounted(&self) -> Recount {
        let mut recount = Recount { used: BTreeMap::new(), ..self.recount.clone() };
        for (key, id) in self.holders() {
            recount.add(self.specs[&key].queue, &self.holds(id), 1);
        }
        recount
    }

    fn run(&mut self) {
        self.check_skipped();
        let recount = self.recounted();
        let mut checker =
            Checker { recount, names: &uses_of, protected: self.protected.clone().unwrap_or_default() };
        let mut state = std::mem::take(&mut self.state);
        let mut preempted = Vec::new();
        cycle::run(&mut state, &mut checker, |state, report| {
            preempted.extend(report.preempted.iter().map(|(victim, by, _)| (*victim, *by)));
            std::mem::swap(&mut self.state, state);
            self.check_usage();
            self.check_victims(&report);
            self.check_skipped();
            std::mem::swap(&mut self.state, state);
            true
        });
        self.state = state;
        for (victim, by) in preempted {
            let Some(all) = &mut self.protected else { return };
            let mut protected = all.get(&by).cloned().unwrap_or_default();
            protected.insert(by);
            protected.remove(&victim);
            all.entry(victim).or_default().extend(protected);
        }
    }

    /// Forbids preemption cycles from now on, as the engine does.
    pub(crate) fn forbid_cycles(&mut self) {
        self.protected = Some(Protected::new());
    }

    /// Holders and what they hold, without any numbers of this crate.
    pub(crate) fn view(&self) -> Vec<HolderView> {
        self.holders()
            .into_iter()
            .map(|(key, id)| (key, self.holds(id), self.state.workload(id).unwrap().evicted()))
            .collect()
    }

    /// Removes workloads that could never be admitted.
    pub(crate) fn cancel_infeasible(&mut self) {
        let feasible = |spec: &WorkloadSpec| {
            let most = |flavor: &str, resource: &str| {
                self.recount.potential(spec.queue, &(flavor.to_owned(), resource.to_owned()))
            };
            FLAVORS.iter().any(|f| {
                most(f, "gpu") >= spec.gpus * i64::from(spec.pods) && most(f, "cpu") >= i64::from(spec.pods)
            })
        };
        let gone: Vec<String> = self
            .waiters()
            .into_iter()
            .map(|(key, _)| key)
            .chain(self.holders().into_iter().map(|(key, _)| key))
            .filter(|key| !feasible(&self.specs[key]))
            .collect();
        for key in gone {
            self.state.remove(self.state.find(&key).unwrap());
            self.specs.remove(&key);
        }
    }

    /// Victims stop. If there are none, the first holder ends.
    pub(crate) fn end_one(&mut self) {
        if self.confirm_stops() {
            return;
        }
        if let Some((key, id)) = self.holders().first() {
            self.state.remove(*id);
            self.specs.remove(key);
        }
        self.step(&Op::Run);
    }

    /// All victims stop. False if there are none.
    pub(crate) fn confirm_stops(&mut self) -> bool {
        let stopping: Vec<(String, WorkloadId)> = self
            .holders()
            .into_iter()
            .filter(|(_, id)| self.state.workload(*id).unwrap().evicted())
            .collect();
        for (key, id) in &stopping {
            self.state.requeue(*id, self.specs[key].since);
        }
        self.step(&Op::Run);
        !stopping.is_empty()
    }

    /// More small workloads than fit, for one queue.
    pub(crate) fn flood(&mut self, queue: usize) {
        self.flood_with(queue, 70);
    }

    /// The given number of small workloads for one queue.
    pub(crate) fn flood_with(&mut self, queue: usize, count: usize) {
        for _ in 0..count {
            self.wait(queue, 1, 1, 0);
        }
        self.run();
    }

    pub(crate) fn used(&self, queue: usize) -> i64 {
        self.recounted()
            .used
            .iter()
            .filter(|((q, key), _)| *q == queue && key.1 == "gpu")
            .map(|(_, a)| *a)
            .sum()
    }

    pub(crate) fn describe(&self) -> String {
        let waiters: Vec<String> =
            self.waiters().into_iter().map(|(key, _)| format!("{key} {:?}", self.specs[&key])).collect();
        let holders: Vec<String> = self
            .holders()
            .into_iter()
            .map(|(key, id)| {
                format!("{key} {:?} {}", self.specs[&key], self.state.workload(id).unwrap().evicted())
            })
            .collect();
        format!(
            "waiting {waiters:#?} holding {holders:#?} queues {:#?} cohorts {:#?}",
            self.recount.queues, self.recount.cohorts
        )
    }
}
