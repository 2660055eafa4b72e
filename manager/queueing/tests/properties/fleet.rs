//! A random forest with workloads, driven by operations and judged after each.

use super::recount::{Books, Key, Node};
use meridian_queueing::cycle::{Outcome, Passed, Report, Requeued};
use meridian_queueing::flavors::Assignment;
use meridian_queueing::model::{
    Displaces, Flavor, Fungibility, Group, PodSet, Preemption, QueueSetup, Shape, WorkloadId,
};
use meridian_queueing::places::Places;
use meridian_queueing::preempt::{Right, Target};
use meridian_queueing::reason::Reason;
use meridian_queueing::settings::{FairSharing, Settings};
use meridian_queueing::tree::{CohortSetup, Quota, Quotas, WEIGHT_ONE};
use meridian_queueing::{Amount, Brain, NewWorkload};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

const FLAVORS: [&str; 2] = ["a", "b"];
const RESOURCES: [&str; 2] = ["cpu", "gpu"];
/// Nominal quota, borrowing limit, lending limit.
pub(crate) type Limits = (i64, Option<i64>, Option<i64>);

#[derive(Clone, Debug)]
pub(crate) struct Cohort {
    pub(crate) parent: Option<usize>,
    pub(crate) quotas: BTreeMap<Key, Limits>,
    pub(crate) weight: i64,
}

#[derive(Clone, Debug)]
pub(crate) struct Queue {
    pub(crate) cohort: Option<usize>,
    pub(crate) quotas: BTreeMap<Key, Limits>,
    pub(crate) strict: bool,
    pub(crate) preemption: Preemption,
    pub(crate) fungibility: Fungibility,
    pub(crate) weight: i64,
}

#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) cohorts: Vec<Cohort>,
    pub(crate) queues: Vec<Queue>,
    pub(crate) fair: bool,
    pub(crate) brief: bool,
    pub(crate) sticky: bool,
}

/// What happens. Places are taken modulo how many there are.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    /// A workload comes: queue, accelerators of a pod, pods, priority.
    Wait(usize, i64, u32, i64),
    /// A holder ends.
    Finish(usize),
    /// A holder stops and waits again.
    Requeue(usize),
    /// Who waits is deleted.
    Cancel(usize),
    /// A queue's quotas and weight change.
    Requota(usize, Vec<Limits>, i64),
    /// A queue moves to another cohort.
    Move(usize, usize),
    /// A cohort's quotas and weight change.
    Recohort(usize, Vec<Limits>, i64),
    /// A cohort moves below another one before it, or below none.
    Lift(usize, usize),
    Run,
}

fn limits() -> impl Strategy<Value = Limits> {
    let limit = || prop::option::weighted(0.3, 0_i64..8);
    (prop::sample::select(vec![0_i64, 2, 4, 6, 10]), limit(), limit())
}

fn quotas() -> impl Strategy<Value = BTreeMap<Key, Limits>> {
    prop::collection::vec(limits(), 4).prop_map(|all| keyed(&all))
}

/// Accelerators are scarce; there are always enough of the others but for a few.
fn keyed(all: &[Limits]) -> BTreeMap<Key, Limits> {
    let mut quotas = BTreeMap::new();
    for (at, flavor) in FLAVORS.iter().enumerate() {
        let (nominal, borrowing, lending) = all[at];
        quotas.insert(((*flavor).to_owned(), "gpu".to_owned()), (nominal, borrowing, lending));
        quotas.insert(((*flavor).to_owned(), "cpu".to_owned()), (all[at + 2].0 + 6, all[at + 2].1, None));
    }
    quotas
}

fn preemption() -> impl Strategy<Value = Preemption> {
    use Displaces::{Any, LowerOrNewerEqualPriority, LowerPriority, Never};
    let within = prop::sample::select(vec![Never, LowerPriority, LowerOrNewerEqualPriority]);
    let reclaim = prop::sample::select(vec![Never, LowerPriority, Any, Any]);
    let borrow = prop::option::weighted(0.3, prop::option::of(-1_i32..2));
    (within, reclaim, borrow).prop_map(|(within_queue, reclaim_within_cohort, borrow)| Preemption {
        within_queue,
        reclaim_within_cohort,
        borrow_within_cohort: borrow.filter(|_| reclaim_within_cohort != Never),
    })
}

pub(crate) fn plan() -> impl Strategy<Value = Plan> {
    let cohort = (any::<prop::sample::Index>(), quotas(), 0_i64..4);
    let fungibility = (any::<bool>(), any::<bool>(), any::<bool>()).prop_map(|(a, b, c)| Fungibility {
        next_rather_than_borrow: a,
        preempt_rather_than_next: b,
        prefers_preemption: c,
    });
    let queue = (
        any::<prop::sample::Index>(),
        quotas(),
        prop::bool::weighted(0.3),
        preemption(),
        fungibility,
        0_i64..4,
    );
    (
        prop::collection::vec(cohort, 0..4),
        prop::collection::vec(queue, 1..6),
        any::<bool>(),
        any::<bool>(),
        any::<bool>(),
    )
        .prop_map(|(cohorts, queues, fair, brief, sticky)| {
            let count = cohorts.len();
            let below = |at: usize, index: prop::sample::Index| Some(index.index(at + 1)).filter(|p| *p < at);
            let cohorts = cohorts
                .into_iter()
                .enumerate()
                .map(|(at, (index, quotas, weight))| Cohort { parent: below(at, index), quotas, weight })
                .collect();
            let queues = queues
                .into_iter()
                .map(|(index, quotas, strict, preemption, fungibility, weight)| Queue {
                    cohort: below(count, index),
                    quotas,
                    strict,
                    preemption,
                    fungibility,
                    weight,
                })
                .collect();
            Plan { cohorts, queues, fair, brief, sticky }
        })
}

pub(crate) fn ops(most: usize) -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        6 => (0_usize..6, 1_i64..4, 1_u32..4, -1_i64..2).prop_map(|(queue, gpus, pods, priority)| Op::Wait(queue, gpus, pods, priority)),
        2 => any::<usize>().prop_map(Op::Finish),
        2 => any::<usize>().prop_map(Op::Requeue),
        1 => any::<usize>().prop_map(Op::Cancel),
        1 => (any::<usize>(), prop::collection::vec(limits(), 4), 0_i64..4).prop_map(|(queue, quotas, weight)| Op::Requota(queue, quotas, weight)),
        1 => (any::<usize>(), any::<usize>()).prop_map(|(queue, cohort)| Op::Move(queue, cohort)),
        1 => (any::<usize>(), prop::collection::vec(limits(), 4), 0_i64..4).prop_map(|(cohort, quotas, weight)| Op::Recohort(cohort, quotas, weight)),
        1 => (any::<usize>(), any::<usize>()).prop_map(|(cohort, parent)| Op::Lift(cohort, parent)),
        5 => Just(Op::Run),
    ];
    prop::collection::vec(op, 1..most)
}

/// What happens while nobody changes a queue.
pub(crate) fn usual_op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => (0_usize..6, 1_i64..4, 1_u32..4, -1_i64..2).prop_map(|(queue, gpus, pods, priority)| Op::Wait(queue, gpus, pods, priority)),
        2 => any::<usize>().prop_map(Op::Finish),
        1 => any::<usize>().prop_map(Op::Requeue),
        4 => Just(Op::Run),
    ]
}

/// What a workload asks for and where.
#[derive(Clone, Debug)]
struct Asked {
    queue: usize,
    gpus: i64,
    pods: u32,
    priority: i64,
    since: i64,
}

pub(crate) struct Fleet {
    brain: Brain,
    books: Books,
    asked: BTreeMap<String, Asked>,
    reversed: bool,
    fair: bool,
    made: u32,
    passed: u32,
    /// Whom a workload may not displace, as it gave way for them; none while everybody may.
    safe: Option<Safe>,
}

/// Whom each may not displace.
type Safe = BTreeMap<WorkloadId, BTreeSet<WorkloadId>>;

/// What an assignment takes, by name.
type Names = dyn Fn(&Brain, &Assignment) -> Vec<(Key, i64)>;

/// A workload, what it holds, and whether it is stopping.
type Pictured = (String, Vec<(Key, i64)>, bool);

/// Judges every admission when it is about to be made.
struct Judge<'a> {
    books: Books,
    names: &'a Names,
    safe: Safe,
}

impl Places for Judge<'_> {
    fn fits(&mut self, _: &Brain, _: WorkloadId, _: &[Target]) -> bool {
        true
    }

    fn take(&mut self, brain: &Brain, workload: WorkloadId, assignment: &Assignment) -> bool {
        let uses = (self.names)(brain, assignment);
        let queue = place(&brain.queue(brain.workload(workload).unwrap().queue).setup.name);
        assert!(
            self.books.fits(queue, &uses),
            "queue {queue} takes {uses:?} that isn't available: {:?}",
            self.books.used
        );
        self.books.add(queue, &uses, 1);
        true
    }

    fn may_displace(&self, workload: WorkloadId, holder: WorkloadId) -> bool {
        self.safe.get(&workload).is_none_or(|safe| !safe.contains(&holder))
    }
}

fn pick<T>(all: &mut [T], at: usize) -> Option<&mut T> {
    let count = all.len().max(1);
    all.get_mut(at % count)
}

fn place(name: &str) -> usize {
    name[1..].parse().unwrap()
}

fn uses_of(brain: &Brain, assignment: &Assignment) -> Vec<(Key, i64)> {
    let mut uses: BTreeMap<Key, i64> = BTreeMap::new();
    for set in &assignment.pod_sets {
        for (resource, choice) in &set.flavors {
            let amount = set.requests.iter().find(|(r, _)| r == resource).map_or(0, |(_, a)| *a);
            *uses
                .entry((
                    brain.flavor_name(choice.flavor).to_string(),
                    brain.resource_name(*resource).to_string(),
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
        let mut brain = Brain::new(settings);
        brain.settings.gates.prioritize_preemptors = plan.sticky;
        brain.settings.gates.topology = !plan.brief;
        let (mut flavors, mut resources) = (FLAVORS, RESOURCES);
        if reversed {
            flavors.reverse();
            resources.reverse();
        }
        for resource in resources {
            brain.resource(resource);
        }
        for flavor in flavors {
            let id = brain.flavor_id(flavor);
            brain.set_flavor(id, Some(Flavor::default()));
        }
        let books =
            Books { queues: plan.queues.clone(), cohorts: plan.cohorts.clone(), used: BTreeMap::new() };
        let mut fleet = Self {
            brain,
            books,
            asked: BTreeMap::new(),
            reversed,
            fair: plan.fair,
            made: 0,
            passed: 0,
            safe: None,
        };
        fleet.configure();
        fleet
    }

    /// One cohort, and queues with these quotas that take back what is theirs.
    pub(crate) fn flat(nominal: &[i64]) -> Self {
        let none = (0, None, None);
        let queue = |nominal: &i64| Queue {
            cohort: Some(0),
            quotas: keyed(&[(*nominal, None, None), none, (100, None, None), none]),
            strict: false,
            preemption: Preemption { reclaim_within_cohort: Displaces::Any, ..Preemption::default() },
            fungibility: Fungibility::default(),
            weight: 1,
        };
        let cohorts = vec![Cohort { parent: None, quotas: BTreeMap::new(), weight: 1 }];
        Self::new(
            &Plan {
                cohorts,
                queues: nominal.iter().map(queue).collect(),
                fair: false,
                brief: true,
                sticky: true,
            },
            false,
        )
    }

    /// Queues of one flavor that take back what is theirs, in one cohort or in two, one below the other.
    pub(crate) fn of_one_flavor(queues: &[(i64, Displaces)], nested: bool) -> Self {
        let only = |quotas: BTreeMap<Key, Limits>| {
            quotas.into_iter().filter(|((flavor, _), _)| flavor == FLAVORS[0]).collect::<BTreeMap<_, _>>()
        };
        let none = (0, None, None);
        let queue = |(at, (nominal, within_queue)): (usize, &(i64, Displaces))| Queue {
            cohort: Some(if nested { at % 2 } else { 0 }),
            quotas: only(keyed(&[(*nominal, None, None), none, (100, None, None), none])),
            strict: false,
            preemption: Preemption {
                within_queue: *within_queue,
                reclaim_within_cohort: Displaces::Any,
                ..Preemption::default()
            },
            fungibility: Fungibility::default(),
            weight: 1,
        };
        let cohorts = (0..2)
            .map(|at| Cohort { parent: (at > 0).then_some(0), quotas: BTreeMap::new(), weight: 1 })
            .collect();
        Self::new(
            &Plan {
                cohorts,
                queues: queues.iter().enumerate().map(queue).collect(),
                fair: false,
                brief: true,
                sticky: true,
            },
            false,
        )
    }

    /// How often it was judged whether a head was rightly passed by.
    pub(crate) fn passed(&self) -> u32 {
        self.passed
    }

    /// One cohort (or one below another) with all the quota, queues with nothing but weights.
    pub(crate) fn saturated(weights: &[i64], nested: bool) -> Self {
        let none = keyed(&[(0, None, None); 4]);
        let all = keyed(&[(60, None, None), (0, None, None), (1_000, None, None), (0, None, None)]);
        let root = Cohort { parent: None, quotas: all, weight: 1 };
        let mut cohorts = vec![root];
        if nested {
            cohorts.push(Cohort { parent: Some(0), quotas: none.clone(), weight: 1 });
        }
        let queue = |weight: &i64| Queue {
            cohort: Some(cohorts.len() - 1),
            quotas: none.clone(),
            strict: false,
            preemption: Preemption { reclaim_within_cohort: Displaces::Any, ..Preemption::default() },
            fungibility: Fungibility::default(),
            weight: *weight,
        };
        let queues = weights.iter().map(queue).collect();
        Self::new(&Plan { cohorts, queues, fair: true, brief: true, sticky: true }, false)
    }

    /// One cohort with all the quota, and cohorts below it with nothing but weights, as have the queues of each.
    pub(crate) fn siblings(cohorts: &[(i64, Vec<i64>)]) -> Self {
        let none = keyed(&[(0, None, None); 4]);
        let all = keyed(&[(120, None, None), (0, None, None), (2_000, None, None), (0, None, None)]);
        let root = Cohort { parent: None, quotas: all, weight: 1 };
        let below = cohorts.iter().map(|(weight, _)| Cohort {
            parent: Some(0),
            quotas: none.clone(),
            weight: *weight,
        });
        let of = |(at, (_, weights)): (usize, &(i64, Vec<i64>))| {
            weights.iter().map(move |weight| (at + 1, *weight)).collect::<Vec<_>>()
        };
        let queue = |(cohort, weight): (usize, i64)| Queue {
            cohort: Some(cohort),
            quotas: none.clone(),
            strict: false,
            preemption: Preemption { reclaim_within_cohort: Displaces::Any, ..Preemption::default() },
            fungibility: Fungibility::default(),
            weight,
        };
        let queues = cohorts.iter().enumerate().flat_map(of).map(queue).collect();
        Self::new(
            &Plan {
                cohorts: [root].into_iter().chain(below).collect(),
                queues,
                fair: true,
                brief: true,
                sticky: true,
            },
            false,
        )
    }

    fn configure(&mut self) {
        let brain = &mut self.brain;
        let mut quotas = |of: &BTreeMap<Key, Limits>| -> Quotas {
            let limit = |l: Option<i64>| l.map(Amount);
            of.iter()
                .map(|((flavor, resource), (nominal, borrowing, lending))| {
                    let key = (brain.flavor_id(flavor), brain.resource(resource));
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
            .books
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
            .books
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
        for (setup, queue) in setups.iter_mut().zip(&self.books.queues) {
            let resources = RESOURCES.iter().map(|r| self.brain.resource(r)).collect();
            let given = FLAVORS.iter().filter(|flavor| queue.quotas.keys().any(|(of, _)| of == *flavor));
            let flavors = given.map(|f| self.brain.flavor_id(f)).collect();
            setup.groups = vec![Group { resources, flavors }];
        }
        if self.reversed {
            setups.reverse();
        }
        self.brain.configure(&cohorts, setups);
    }

    fn holders(&self) -> Vec<(String, WorkloadId)> {
        self.asked
            .keys()
            .filter_map(|key| self.brain.find(key).map(|id| (key.clone(), id)))
            .filter(|(_, id)| self.brain.workload(*id).unwrap().holding.is_some())
            .collect()
    }

    fn waiters(&self) -> Vec<(String, WorkloadId)> {
        self.asked
            .keys()
            .filter_map(|key| self.brain.find(key).map(|id| (key.clone(), id)))
            .filter(|(_, id)| self.brain.workload(*id).unwrap().holding.is_none())
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
                    self.brain.remove(*id);
                    self.asked.remove(key);
                }
            }
            Op::Requeue(at) => {
                let holders = self.holders();
                if let Some((key, id)) = holders.get(at % holders.len().max(1)) {
                    self.brain.requeue(*id, self.asked[key].since);
                }
            }
            Op::Cancel(at) => {
                let waiters = self.waiters();
                if let Some((key, id)) = waiters.get(at % waiters.len().max(1)) {
                    self.brain.remove(*id);
                    self.asked.remove(key);
                }
            }
            Op::Requota(at, quotas, weight) => {
                let at = at % self.books.queues.len();
                (self.books.queues[at].quotas, self.books.queues[at].weight) = (keyed(quotas), *weight);
                self.configure();
            }
            Op::Move(at, cohort) => {
                let at = at % self.books.queues.len();
                self.books.queues[at].cohort =
                    Some(cohort % (self.books.cohorts.len() + 1)).filter(|c| *c < self.books.cohorts.len());
                self.configure();
            }
            Op::Recohort(at, quotas, weight) => {
                if let Some(cohort) = pick(&mut self.books.cohorts, *at) {
                    (cohort.quotas, cohort.weight) = (keyed(quotas), *weight);
                    self.configure();
                }
            }
            Op::Lift(at, parent) => {
                let count = self.books.cohorts.len().max(1);
                let at = at % count;
                if let Some(cohort) = pick(&mut self.books.cohorts, at) {
                    cohort.parent = Some(parent % (at + 1)).filter(|parent| *parent < at);
                    self.configure();
                }
            }
            Op::Run => self.run(),
        }
        self.judge_books();
    }

    fn wait(&mut self, queue: usize, gpus: i64, pods: u32, priority: i64) {
        let queue = queue % self.books.queues.len();
        self.made += 1;
        let key = format!("w{:05}", self.made);
        let amounts = BTreeMap::from([("gpu".to_owned(), gpus), ("cpu".to_owned(), 1)]);
        let per_pod = self.brain.requests(&amounts);
        let set =
            PodSet { name: Arc::from("main"), count: pods, per_pod, on_node: amounts, ..PodSet::default() };
        let shape = self.brain.intern(Shape { pod_sets: vec![set], priority, ..Shape::default() });
        let since = i64::from(self.made);
        let text: Arc<str> = Arc::from(key.as_str());
        let id = self.brain.queue_id(&format!("q{queue}")).unwrap();
        self.brain.wait(NewWorkload {
            key: text.clone(),
            uid: text,
            queue: id,
            local_queue: Arc::from(format!("n/q{queue}")),
            shape,
            since,
            marks: None,
        });
        self.asked.insert(key, Asked { queue, gpus, pods, priority, since });
    }

    fn holds(&self, id: WorkloadId) -> Vec<(Key, i64)> {
        let mut uses: BTreeMap<Key, i64> = BTreeMap::new();
        for given in &self.brain.workload(id).unwrap().holding.as_ref().unwrap().given {
            for (resource, amount) in &given.usage {
                let flavor = self.brain.flavor_name(given.flavors[resource]).to_string();
                *uses.entry((flavor, self.brain.resource_name(*resource).to_string())).or_insert(0) += amount;
            }
        }
        uses.into_iter().collect()
    }

    fn recounted(&self) -> Books {
        let mut books = Books { used: BTreeMap::new(), ..self.books.clone() };
        for (key, id) in self.holders() {
            books.add(self.asked[&key].queue, &self.holds(id), 1);
        }
        books
    }

    /// Who is passed by would have been looked at in vain, and told the same.
    fn judge_passing(&mut self) {
        let passed: Vec<Passed> =
            self.brain.queue_list().filter_map(|(_, queue)| self.brain.looked_at_in_vain(queue)).collect();
        if passed.is_empty() {
            return;
        }
        let mut judge =
            Judge { books: self.recounted(), names: &uses_of, safe: self.safe.clone().unwrap_or_default() };
        let mut brain = self.brain.clone();
        let report = brain.cycle(&mut judge, false);
        for passed in passed {
            self.passed += 1;
            let entry = report.entries.iter().find(|entry| entry.workload == passed.workload).unwrap();
            assert!(matches!(entry.outcome, Outcome::NoCandidates | Outcome::NoFit), "{passed:?}: {entry:?}");
            assert_eq!(entry.requeued, Some(Requeued::Parked), "{passed:?}: {entry:?}");
            let short = entry.assignment.reasons().filter_map(|(_, reason)| match reason {
                Reason::Short { flavor, resource, missing } => Some((*flavor, *resource, *missing)),
                _ => None,
            });
            assert_eq!(short.collect::<Vec<_>>(), passed.short, "{passed:?}: {entry:?}");
        }
    }

    fn run(&mut self) {
        self.judge_passing();
        let books = self.recounted();
        let mut judge = Judge { books, names: &uses_of, safe: self.safe.clone().unwrap_or_default() };
        let mut brain = std::mem::take(&mut self.brain);
        let mut displaced = Vec::new();
        brain.run(&mut judge, |brain, report| {
            displaced.extend(report.preempted.iter().map(|(victim, by, _)| (*victim, *by)));
            std::mem::swap(&mut self.brain, brain);
            self.judge_books();
            self.judge_victims(&report);
            self.judge_passing();
            std::mem::swap(&mut self.brain, brain);
            true
        });
        self.brain = brain;
        for (victim, by) in displaced {
            let Some(all) = &mut self.safe else { return };
            let mut safe = all.get(&by).cloned().unwrap_or_default();
            safe.insert(by);
            safe.remove(&victim);
            all.entry(victim).or_default().extend(safe);
        }
    }

    /// From now on nobody displaces in turn, as in the engine.
    pub(crate) fn displace_once(&mut self) {
        self.safe = Some(Safe::new());
    }

    /// Every cell of every node is what holders and declarations make of it; who holds, holds all that it asked for.
    fn judge_books(&self) {
        let books = self.recounted();
        for (id, node) in self.brain.forest.nodes() {
            let at: Node = (node.cohort, place(&node.name));
            for ((flavor, resource), cell) in self.brain.forest.cells(id) {
                let key = (
                    self.brain.flavor_name(flavor).to_string(),
                    self.brain.resource_name(resource).to_string(),
                );
                let counted = (cell.subtree.0, cell.local.0, cell.usage.0);
                assert_eq!(
                    counted,
                    (books.subtree(at, &key), books.local(at, &key), books.usage(at, &key)),
                    "{} of {key:?}",
                    node.name
                );
                let id = self
                    .brain
                    .forest
                    .find_cell(node.tree, (flavor, resource))
                    .map(|cell| self.brain.forest.balance(id, cell).0);
                assert_eq!(id, Some(books.balance(at, &key)), "{} of {key:?}", node.name);
            }
        }
        for (key, id) in self.holders() {
            let asked = &self.asked[&key];
            let pods = i64::from(asked.pods);
            let mut held: Vec<(String, i64)> =
                self.holds(id).into_iter().map(|((_, resource), amount)| (resource, amount)).collect();
            held.sort();
            assert_eq!(
                held,
                [("cpu".to_owned(), pods), ("gpu".to_owned(), asked.gpus * pods)],
                "{key} holds a part"
            );
        }
    }

    /// Victims are allowed, they are enough, and nobody of them could stay.
    fn judge_victims(&self, report: &Report) {
        let preempting: Vec<_> = report.entries.iter().filter(|e| e.outcome == Outcome::Preempting).collect();
        for (victim, preemptor, right) in &report.preempted {
            let of = |id: &WorkloadId| &self.asked[&*self.brain.workload(*id).unwrap().key];
            self.judge_right(of(victim), of(preemptor), *right);
        }
        // Victims of several preemptors of one cycle were found against different books.
        let [entry] = preempting.as_slice() else { return };
        let queue = self.asked[&*self.brain.workload(entry.workload).unwrap().key].queue;
        let asks = uses_of(&self.brain, &entry.assignment);
        let all: BTreeSet<WorkloadId> = entry.targets.iter().map(|t| t.workload).collect();
        assert_eq!(all.len(), entry.targets.len(), "somebody is displaced twice");
        let without = |spared: Option<WorkloadId>| {
            let mut books = self.recounted();
            for victim in all.iter().filter(|v| Some(**v) != spared) {
                books.add(
                    self.asked[&*self.brain.workload(*victim).unwrap().key].queue,
                    &self.holds(*victim),
                    -1,
                );
            }
            books
        };
        assert!(without(None).fits(queue, &asks), "victims aren't enough: {}", self.words());
        // Who was told before, when there was less, loses nothing more.
        let told: BTreeSet<WorkloadId> = report.preempted.iter().map(|(victim, ..)| *victim).collect();
        for victim in all.intersection(&told) {
            // What the preemptor's side gives up lowers its share, by which others' victims were judged: without it they may be unfair.
            let by_share = |t: &Target| t.workload != *victim && t.right == Some(Right::InCohortFairSharing);
            if entry.targets.iter().any(by_share) {
                continue;
            }
            let books = without(Some(*victim));
            let needless = books.fits(queue, &asks) && (self.fair || books.within_nominal(queue, &asks));
            assert!(!needless, "{} could stay: {}", self.brain.workload(*victim).unwrap().key, self.words());
        }
    }

    fn judge_right(&self, victim: &Asked, preemptor: &Asked, right: Right) {
        let policy = &self.books.queues[preemptor.queue].preemption;
        let lower = victim.priority < preemptor.priority;
        let newer = victim.priority == preemptor.priority && victim.since > preemptor.since;
        let by = |policy: Displaces| match policy {
            Displaces::Never | Displaces::Unset => false,
            Displaces::LowerPriority => lower,
            Displaces::LowerOrNewerEqualPriority => lower || newer,
            Displaces::Any => true,
        };
        let words = || format!("{victim:?} for {preemptor:?} as {right:?}: {policy:?}");
        if right == Right::InClusterQueue {
            assert!(victim.queue == preemptor.queue && by(policy.within_queue), "{}", words());
            return;
        }
        assert!(victim.queue != preemptor.queue && by(policy.reclaim_within_cohort), "{}", words());
        assert_eq!(
            self.books.root((false, victim.queue)),
            self.books.root((false, preemptor.queue)),
            "{}",
            words()
        );
        assert!(self.recounted().borrows(victim.queue), "its queue doesn't borrow: {}", words());
        match right {
            Right::InCohortFairSharing => assert!(self.fair, "{}", words()),
            Right::InCohortReclaimWhileBorrowing => {
                let most = policy.borrow_within_cohort.expect("it may displace while borrowing");
                assert!(
                    !self.fair && lower && most.is_none_or(|most| victim.priority <= i64::from(most)),
                    "{}",
                    words()
                );
            }
            Right::InCohortReclamation | Right::InClusterQueue => {}
        }
    }

    /// Who holds what and who is told to stop, without any number.
    pub(crate) fn picture(&self) -> Vec<Pictured> {
        self.holders()
            .into_iter()
            .map(|(key, id)| (key, self.holds(id), self.brain.workload(id).unwrap().evicted()))
            .collect()
    }

    /// Takes away who could never be admitted.
    pub(crate) fn cancel_infeasible(&mut self) {
        let feasible = |asked: &Asked| {
            let most = |flavor: &str, resource: &str| {
                self.books.potential(asked.queue, &(flavor.to_owned(), resource.to_owned()))
            };
            FLAVORS.iter().any(|f| {
                most(f, "gpu") >= asked.gpus * i64::from(asked.pods)
                    && most(f, "cpu") >= i64::from(asked.pods)
            })
        };
        let gone: Vec<String> = self
            .waiters()
            .into_iter()
            .map(|(key, _)| key)
            .chain(self.holders().into_iter().map(|(key, _)| key))
            .filter(|key| !feasible(&self.asked[key]))
            .collect();
        for key in gone {
            self.brain.remove(self.brain.find(&key).unwrap());
            self.asked.remove(&key);
        }
    }

    /// Who was displaced stops; where nobody was, the first holder ends.
    pub(crate) fn end_one(&mut self) {
        if self.confirm_stops() {
            return;
        }
        if let Some((key, id)) = self.holders().first() {
            self.brain.remove(*id);
            self.asked.remove(key);
        }
        self.step(&Op::Run);
    }

    /// Everybody who was told to stop does; false where nobody was.
    pub(crate) fn confirm_stops(&mut self) -> bool {
        let stopping: Vec<(String, WorkloadId)> = self
            .holders()
            .into_iter()
            .filter(|(_, id)| self.brain.workload(*id).unwrap().evicted())
            .collect();
        for (key, id) in &stopping {
            self.brain.requeue(*id, self.asked[key].since);
        }
        self.step(&Op::Run);
        !stopping.is_empty()
    }

    /// More small workloads than fit, for one queue.
    pub(crate) fn flood(&mut self, queue: usize) {
        self.flood_with(queue, 70);
    }

    /// So many small workloads for one queue.
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

    pub(crate) fn words(&self) -> String {
        let waiters: Vec<String> =
            self.waiters().into_iter().map(|(key, _)| format!("{key} {:?}", self.asked[&key])).collect();
        let holders: Vec<String> = self
            .holders()
            .into_iter()
            .map(|(key, id)| {
                format!("{key} {:?} {}", self.asked[&key], self.brain.workload(id).unwrap().evicted())
            })
            .collect();
        format!(
            "waiting {waiters:#?} holding {holders:#?} queues {:#?} cohorts {:#?}",
            self.books.queues, self.books.cohorts
        )
    }
}
