//! Quota a second time: who holds what, what that leaves, and whom a policy lets displace whom.
//!
//! Written from the section on quota arithmetic of Kueue's decision cases and from Kueue's words on preemption, straight from
//! manifests and records. It knows nothing of the manager's own forest.

use meridian_manager_core::facts::record::{ObjectFact, WorkloadFact};
use super::oracle::{Job, Verdict, broken};
use meridian_manager_core::World;
use meridian_manager_core::facts::flavors::Flavors;
use meridian_manager_core::facts::key::Key;
use meridian_manager_core::facts::record::Record;
use meridian_manager_core::facts::submission::{Class, Preempted};
use meridian_objects::{Kind, Object};
use meridian_shared::ids::{Fence, RecordNumber, Uid};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;

/// Deepest hierarchy that isn't taken for a cycle.
const DEPTH_MAX: usize = 16;

/// A cohort or a cluster queue: whether it is a cohort, and its name.
type Name = (bool, String);

#[derive(Clone, Copy, Debug, Default)]
struct Limits {
    nominal: i64,
    borrowing: Option<i64>,
    lending: Option<i64>,
}

#[derive(Clone, Debug, Default)]
struct Node {
    parent: Option<String>,
    limits: BTreeMap<String, Limits>,
    weight: f64,
}

/// Cohorts and cluster queues as they are declared, and what queues use by flavor.
#[derive(Clone, Debug, Default)]
pub(super) struct Forest {
    nodes: BTreeMap<Name, Node>,
    used: BTreeMap<(String, String), i64>,
}

impl Forest {
    /// The forest of these manifests.
    pub(super) fn of(manifests: &[Value]) -> Self {
        let mut forest = Self::default();
        for manifest in manifests {
            let cohort = match manifest["kind"].as_str() {
                Some("ClusterQueue") => false,
                Some("Cohort") => true,
                _ => continue,
            };
            let spec = &manifest["spec"];
            let parent = spec[if cohort { "parentName" } else { "cohortName" }].as_str().map(str::to_owned);
            let mut limits = BTreeMap::new();
            for flavor in spec["resourceGroups"]
                .as_array()
                .into_iter()
                .flatten()
                .flat_map(|g| g["flavors"].as_array().into_iter().flatten())
            {
                let of = &flavor["resources"][0];
                let quota = Limits {
                    nominal: of["nominalQuota"].as_i64().unwrap_or(0),
                    borrowing: of["borrowingLimit"].as_i64(),
                    lending: of["lendingLimit"].as_i64(),
                };
                limits.insert(flavor["name"].as_str().unwrap_or_default().to_owned(), quota);
            }
            let weight = match spec["fairSharing"]["weight"].as_str().unwrap_or("1") {
                milli if milli.ends_with('m') => milli.trim_end_matches('m').parse().unwrap_or(0.0) / 1000.0,
                whole => whole.parse().unwrap_or(1.0),
            };
            let name = manifest["metadata"]["name"].as_str().unwrap_or_default().to_owned();
            forest.nodes.insert((cohort, name), Node { parent, limits, weight });
        }
        // A cohort that is only named exists.
        let named: Vec<String> = forest.nodes.values().filter_map(|n| n.parent.clone()).collect();
        for name in named {
            forest.nodes.entry((true, name)).or_insert(Node { weight: 1.0, ..Node::default() });
        }
        forest
    }

    fn children(&self, name: &Name) -> Vec<Name> {
        if !name.0 {
            return Vec::new();
        }
        self.nodes
            .iter()
            .filter(|(_, n)| n.parent.as_ref() == Some(&name.1))
            .map(|(name, _)| name.clone())
            .collect()
    }

    fn parent(&self, name: &Name) -> Option<Name> {
        self.nodes.get(name)?.parent.clone().map(|p| (true, p))
    }

    fn root(&self, name: &Name) -> Option<Name> {
        let mut at = name.clone();
        for _ in 0..DEPTH_MAX {
            match self.parent(&at) {
                Some(parent) => at = parent,
                None => return Some(at),
            }
        }
        None
    }

    fn limits(&self, name: &Name, flavor: &str) -> Limits {
        self.nodes.get(name).and_then(|n| n.limits.get(flavor)).copied().unwrap_or_default()
    }

    fn subtree(&self, name: &Name, flavor: &str) -> i64 {
        let lent: i64 =
            self.children(name).iter().map(|c| self.subtree(c, flavor) - self.local(c, flavor)).sum();
        self.limits(name, flavor).nominal + lent
    }

    fn local(&self, name: &Name, flavor: &str) -> i64 {
        self.limits(name, flavor).lending.map_or(0, |limit| (self.subtree(name, flavor) - limit).max(0))
    }

    fn usage(&self, name: &Name, flavor: &str) -> i64 {
        if !name.0 {
            return self.used.get(&(name.1.clone(), flavor.to_owned())).copied().unwrap_or(0);
        }
        self.children(name).iter().map(|c| (self.usage(c, flavor) - self.local(c, flavor)).max(0)).sum()
    }

    fn available_at(&self, name: &Name, flavor: &str) -> i64 {
        let (subtree, local, usage) =
            (self.subtree(name, flavor), self.local(name, flavor), self.usage(name, flavor));
        let Some(parent) = self.parent(name) else { return subtree - usage };
        let above = self.available_at(&parent, flavor);
        let most = self
            .limits(name, flavor)
            .borrowing
            .map_or(i64::MAX, |limit| (subtree - local) - (usage - local).max(0) + limit);
        (local - usage).max(0) + above.min(most)
    }

    /// What a queue could use more now; `None` where it isn't there or its cohorts are in a cycle.
    pub(super) fn available(&self, queue: &str, flavor: &str) -> Option<i64> {
        let name = (false, queue.to_owned());
        self.root(&name)?;
        self.nodes.get(&name)?.limits.get(flavor)?;
        Some(self.available_at(&name, flavor).max(0))
    }

    /// What a queue could ever use.
    pub(super) fn potential(&self, queue: &str, flavor: &str) -> Option<i64> {
        Self { nodes: self.nodes.clone(), used: BTreeMap::new() }.available(queue, flavor)
    }

    fn words(&self) -> String {
        let node = |(name, node): (&Name, &Node)| {
            let quota = |(flavor, l): (&String, &Limits)| {
                format!(
                    "{flavor} {}+{:?}-{:?} uses {}",
                    l.nominal,
                    l.borrowing,
                    l.lending,
                    self.usage(name, flavor)
                )
            };
            format!(
                "`{}` in {:?}: {}",
                name.1,
                node.parent,
                node.limits.iter().map(quota).collect::<Vec<_>>().join(", ")
            )
        };
        self.nodes.iter().map(node).collect::<Vec<_>>().join("; ")
    }

    fn add(&mut self, queue: &str, flavor: &str, amount: i64) {
        *self.used.entry((queue.to_owned(), flavor.to_owned())).or_insert(0) += amount;
    }

    /// What a queue uses beyond its nominal quota, over all flavors, by its weight.
    fn share(&self, queue: &str) -> f64 {
        let name = (false, queue.to_owned());
        let Some(node) = self.nodes.get(&name) else { return 0.0 };
        let borrowed: i64 = node
            .limits
            .keys()
            .map(|flavor| (self.usage(&name, flavor) - self.subtree(&name, flavor)).max(0))
            .sum();
        match borrowed {
            0 => 0.0,
            _ if node.weight == 0.0 => f64::INFINITY,
            some => some as f64 / node.weight,
        }
    }
}

/// What one workload holds.
#[derive(Clone, Debug)]
struct Held {
    queue: String,
    amounts: Vec<(String, i64)>,
    flavors: Flavors,
    counts: Option<Vec<u32>>,
    /// What it had before a growth that its agent hasn't answered.
    small: Option<Vec<u32>>,
    fence: Option<Fence>,
    stopping: bool,
    /// Whom it stops for.
    stops_for: Option<Uid>,
}

/// What one workload holds.
#[derive(Clone, Debug)]
struct Charged {
    flavors: Flavors,
    counts: Option<Vec<u32>>,
    spare: Option<Vec<u32>>,
    small: Option<Vec<u32>>,
    fence: Option<Fence>,
    stopping: bool,
    /// For whose sake it stops.
    stops_for: Option<Uid>,
}

/// Quota as it is before an input.
#[derive(Clone, Debug, Default)]
pub(super) struct Books {
    declared: BTreeMap<Key, Arc<Object>>,
    held: BTreeMap<Uid, Charged>,
    /// Pods that elastic jobs are to have, and the most that a run of theirs may have that was made smaller.
    sizes: BTreeMap<Uid, (u32, Option<u32>)>,
    /// Pods that runs of theirs are to have, where that isn't what they were given.
    runs: BTreeMap<Uid, u32>,
}

impl Books {
    /// Of this world.
    pub(super) fn of(world: &World) -> Self {
        let declared = world
            .state
            .catalog
            .iter()
            .filter(|(k, _)| counts(k))
            .map(|(k, s)| (k.clone(), s.object.clone()))
            .collect();
        let elastic = world.state.workloads.iter().filter(|(_, w)| world.queues.class(w.class).elastic);
        let sizes: BTreeMap<Uid, (u32, Option<u32>)> = elastic
            .map(|(uid, w)| {
                (
                    *uid,
                    (pods_of(world.queues.class(w.class)), w.resized.as_ref().map(|r| r.most.iter().sum())),
                )
            })
            .collect();
        let charged = world.state.workloads.iter().filter(|(_, w)| w.phase.charged());
        let held = charged.map(|(uid, w)| {
            let fence = w.legs.values().find(|l| l.state.granted()).and_then(|l| l.fence);
            let stopping = w.phase == meridian_manager_core::state::workload::phase::Phase::Stopping;
            (
                *uid,
                Charged {
                    flavors: w.flavors.clone(),
                    counts: w.counts.clone().or_else(|| sizes.get(uid).map(|(pods, _)| vec![*pods])),
                    spare: w.spare.clone(),
                    small: w
                        .resized
                        .as_ref()
                        .and_then(|resized| resized.growing.as_ref())
                        .map(|growing| growing.before.clone()),
                    fence,
                    stopping,
                    stops_for: w.preempted.as_ref().filter(|_| stopping).map(|p| p.by),
                },
            )
        });
        let held = held.collect();
        let resized = world.state.workloads.iter().filter_map(|(uid, w)| Some((*uid, w.resized.as_ref()?)));
        let runs = resized
            .map(|(uid, resized)| {
                (uid, resized.growing.as_ref().map_or(&resized.runs, |growing| &growing.runs).iter().sum())
            })
            .collect();
        Self { declared, held, sizes, runs }
    }
}

fn counts(key: &Key) -> bool {
    matches!(key.kind, Kind::ClusterQueue | Kind::Cohort) && key.scope.is_none()
}

fn pods_of(class: &Class) -> u32 {
    class.gang.pod_sets.iter().map(|set| set.count).sum()
}

/// Since when a workload is there, and its priority.
type Standing = (RecordNumber, i64);

/// One displacement, and the books as they were when it was decided.
#[derive(Clone, Debug)]
struct Displaced {
    victim: Uid,
    by: Uid,
    right: String,
    decided: Rc<(Forest, BTreeMap<Uid, Held>)>,
}

/// The books while the records of one outcome are gone through.
#[derive(Debug)]
pub(super) struct Recount<'a> {
    declared: BTreeMap<Key, Value>,
    held: BTreeMap<Uid, Held>,
    jobs: &'a BTreeMap<Uid, Job>,
    sizes: BTreeMap<Uid, (u32, Option<u32>)>,
    runs: BTreeMap<Uid, u32>,
    fair: bool,
    forest: Option<Forest>,
    displaced: Vec<Displaced>,
    /// The books before the first of those who are displaced together.
    decided: Option<Rc<(Forest, BTreeMap<Uid, Held>)>>,
    /// Policies may have changed since they were decided by.
    pub(super) changed: bool,
}

impl<'a> Recount<'a> {
    /// Begins with what was before.
    pub(super) fn new(before: &Books, jobs: &'a BTreeMap<Uid, Job>, fair: bool) -> Self {
        let declared =
            before.declared.iter().map(|(key, object)| (key.clone(), object.stored.clone())).collect();
        let sizes = before.sizes.clone();
        let runs = before.runs.clone();
        let mut all = Self {
            declared,
            held: BTreeMap::new(),
            jobs,
            sizes,
            runs,
            fair,
            forest: None,
            displaced: Vec::new(),
            decided: None,
            changed: false,
        };
        for (uid, Charged { flavors, counts, spare, small, fence, stopping, stops_for }) in &before.held {
            all.hold(*uid, flavors, (counts.as_ref(), spare.as_ref()), *fence);
            if let Some(held) = all.held.get_mut(uid) {
                (held.stopping, held.stops_for) = (*stopping, *stops_for);
                held.small.clone_from(small);
            }
        }
        all
    }

    fn hold(
        &mut self,
        uid: Uid,
        flavors: &Flavors,
        (counts, spare): (Option<&Vec<u32>>, Option<&Vec<u32>>),
        fence: Option<Fence>,
    ) {
        let Some(job) = self.jobs.get(&uid) else { return };
        let amounts =
            flavors.values().map(|flavor| (flavor.to_string(), job.total_left(counts, spare))).collect();
        let (flavors, counts) = (flavors.clone(), counts.cloned());
        self.held.insert(
            uid,
            Held {
                queue: job.queue.clone(),
                amounts,
                flavors,
                counts,
                small: None,
                fence,
                stopping: false,
                stops_for: None,
            },
        );
        self.forest = None;
    }

    /// Pods have left: the rest of their gang holds what is its own.
    fn leave(&mut self, uid: Uid, spare: Option<&Vec<u32>>) {
        let (Some(job), Some(held)) = (self.jobs.get(&uid), self.held.get_mut(&uid)) else { return };
        let total = job.total_left(held.counts.as_ref(), spare);
        held.amounts = held.flavors.values().map(|flavor| (flavor.to_string(), total)).collect();
        self.forest = None;
    }

    /// Its places are other ones than before.
    fn resize(&mut self, uid: Uid, places: &[u32]) {
        let (Some(job), Some(held)) = (self.jobs.get(&uid), self.held.get_mut(&uid)) else { return };
        let places = Some(places.to_vec());
        let more = job.total_of(places.as_ref()) - job.total_of(held.counts.as_ref());
        held.amounts.iter_mut().for_each(|(_, amount)| *amount += more);
        held.counts = places;
        if let Some((_, most)) = self.sizes.get_mut(&uid) {
            *most = held.counts.as_ref().map(|counts| counts.iter().sum());
        }
        self.forest = None;
    }

    /// P4: what a running gang grows by was available.
    fn judge_growth(&mut self, uid: Uid, places: &[u32]) -> Verdict {
        let (Some(job), Some(held)) = (self.jobs.get(&uid), self.held.get(&uid).cloned()) else {
            return Ok(());
        };
        let asks = job.total_of(Some(&places.to_vec())) - job.total_of(held.counts.as_ref());
        if asks <= 0
            || held.stopping
            || held.small.is_some()
            || self.spec(&held.queue)["stopPolicy"].as_str().is_some_and(|stop| stop != "None")
        {
            return broken("P4", format!("{uid} grows by {asks} in queue `{}`: {held:?}", held.queue));
        }
        for flavor in held.flavors.values() {
            let free = self.forest().available(&held.queue, flavor);
            if free.is_none_or(|free| free < asks) {
                return broken(
                    "P4",
                    format!(
                        "{uid} grows by {asks} of `{flavor}` in queue `{}`, and {free:?} is available",
                        held.queue
                    ),
                );
            }
        }
        Ok(())
    }

    fn free(&mut self, uid: Uid) {
        self.held.remove(&uid);
        self.forest = None;
    }

    fn forest(&mut self) -> &mut Forest {
        let (declared, held) = (&self.declared, &self.held);
        self.forest.get_or_insert_with(|| {
            let manifests: Vec<Value> = declared.values().cloned().collect();
            let mut forest = Forest::of(&manifests);
            for held in held.values() {
                held.amounts.iter().for_each(|(flavor, amount)| forest.add(&held.queue, flavor, *amount));
            }
            forest
        })
    }

    fn spec(&self, queue: &str) -> Value {
        self.declared
            .get(&Key::global(Kind::ClusterQueue, queue))
            .map_or(Value::Null, |object| object["spec"].clone())
    }

    /// One record.
    pub(super) fn record(&mut self, record: &Record) -> Verdict {
        match record {
            Record::Object { key, fact: ObjectFact::Applied { object, .. } } if counts(key) => {
                self.declared.insert(key.clone(), object.stored.clone());
                (self.forest, self.changed) = (None, true);
            }
            Record::Object { key, fact: ObjectFact::Removed { .. } } if counts(key) => {
                self.declared.remove(key);
                (self.forest, self.changed) = (None, true);
            }
            Record::Workload { fact: WorkloadFact::PriorityChanged { .. }, .. } => self.changed = true,
            Record::Workload { uid, fact: WorkloadFact::QuotaReserved { flavors, counts, .. } } => {
                // What follows is decided by books in which victims are marked.
                self.judge_enough()?;
                let counts = self.counts_of(*uid, counts.as_ref());
                self.judge_reserved(*uid, flavors, counts.as_ref())?;
                self.hold(*uid, flavors, (counts.as_ref(), None), None);
                if let Some((_, most)) = self.sizes.get_mut(uid) {
                    *most = None;
                }
            }
            Record::Workload { fact: WorkloadFact::Submitted(s), .. } if s.class.elastic => {
                self.sizes.insert(s.uid, (pods_of(&s.class), None));
            }
            Record::Workload { uid, fact: WorkloadFact::Resized { class, .. } } => {
                let given = self.held.get(uid).map(|held| held.counts.iter().flatten().sum());
                if let Some(given) = given {
                    let runs = self.runs.entry(*uid).or_insert(given);
                    // What is under way is answered first.
                    *runs = if self.held.get(uid).is_some_and(|held| held.small.is_some()) {
                        *runs
                    } else {
                        (*runs).min(pods_of(class))
                    };
                }
                self.sizes.insert(*uid, (pods_of(class), given));
            }
            Record::Workload { uid, fact: WorkloadFact::ScaleUpStarted { places, runs, .. } } => {
                self.judge_enough()?;
                self.judge_growth(*uid, places)?;
                let before = self.held.get(uid).and_then(|held| held.counts.clone());
                self.resize(*uid, places);
                self.runs.insert(*uid, runs.iter().sum());
                if let Some(held) = self.held.get_mut(uid) {
                    held.small = before;
                }
            }
            Record::Workload { uid, fact: WorkloadFact::ScaledUp { growth, .. } } => {
                self.resize(*uid, &growth.places);
                let wanted = self.sizes.get(uid).map_or(u32::MAX, |(pods, _)| *pods);
                self.runs.insert(*uid, growth.size.parallelism.min(wanted));
                if let Some(held) = self.held.get_mut(uid) {
                    held.small = None;
                }
            }
            Record::Workload { uid, fact: WorkloadFact::ScaleUpRefused { .. } } => {
                if let Some(before) = self.held.get_mut(uid).and_then(|held| held.small.take()) {
                    self.resize(*uid, &before);
                    self.runs.insert(*uid, u32::MAX);
                }
            }
            Record::Workload { fact: WorkloadFact::Adopted { run, flavors, .. }, .. } => {
                match self.held.get_mut(&run.uid) {
                    Some(held) => (held.fence, held.stopping) = (Some(run.fence), false),
                    None => {
                        let counts = self.counts_of(run.uid, None);
                        self.hold(run.uid, flavors, (counts.as_ref(), None), Some(run.fence));
                    }
                }
                if let (Some((_, Some(most))), Some(held)) =
                    (self.sizes.get(&run.uid), self.held.get_mut(&run.uid))
                {
                    let told = run
                        .placement
                        .as_ref()
                        .map(|p| p.pod_sets.iter().map(|set| set.pods()).sum::<u64>())
                        .and_then(|pods| u32::try_from(pods).ok());
                    held.counts = Some(vec![told.filter(|told| (1..=*most).contains(told)).unwrap_or(*most)]);
                }
                if let (Some(grown), Some(held)) = (&run.grown, self.held.get_mut(&run.uid)) {
                    (held.counts, held.small) = (Some(grown.places.clone()), None);
                    if let Some((_, most)) = self.sizes.get_mut(&run.uid) {
                        *most = Some(grown.places.iter().sum());
                    }
                }
                let spare = run.spare.values().copied().collect();
                self.leave(run.uid, Some(&spare));
            }
            Record::Workload { uid, fact: WorkloadFact::PodsReclaimed { fence, pods } }
                if self.held.get(uid).is_some_and(|held| held.fence == Some(*fence)) =>
            {
                self.leave(*uid, Some(pods))
            }
            Record::Workload { uid, fact: WorkloadFact::Granted { fence, .. } } => {
                if let Some(held) = self.held.get_mut(uid) {
                    held.fence = Some(*fence);
                }
            }
            Record::Workload { uid, fact: WorkloadFact::StopOrdered { preempted, .. } } => {
                if let Some(Preempted { by, right }) = preempted {
                    self.displace(*uid, *by, right);
                }
                if let Some(held) = self.held.get_mut(uid) {
                    (held.stopping, held.stops_for) = (true, preempted.as_ref().map(|p| p.by));
                }
            }
            Record::Audited(line) if &*line.entry.action == "preempt" => {
                let uid = |text: &str| self.jobs.keys().find(|uid| uid.to_string() == text).copied();
                let by =
                    line.entry.detail.as_deref().and_then(|text| text.strip_prefix("for ")).and_then(uid);
                if let (Some(victim), Some(by), Some(right)) =
                    (uid(&line.entry.subject), by, &line.entry.verdict)
                {
                    self.displace(victim, by, right);
                }
            }
            Record::Workload { uid, fact: WorkloadFact::QuotaReleased { .. } } => {
                if let Some(fence) = self.held.get(uid).and_then(|h| h.fence) {
                    return broken("P3", format!("{uid} gives its quota back, and {fence} isn't over"));
                }
                self.free(*uid);
            }
            Record::Workload { uid, fact: WorkloadFact::Ended { fence, .. } }
            | Record::Workload { uid, fact: WorkloadFact::GrantRefused { fence, .. } }
            | Record::Workload { uid, fact: WorkloadFact::LeaseLapsed { fence, .. } } => {
                if self.held.get(uid).is_some_and(|h| h.fence == Some(*fence)) {
                    self.free(*uid);
                }
            }
            Record::Workload { uid, fact: WorkloadFact::Finished { .. } } | Record::Workload { uid, fact: WorkloadFact::Forgotten } => self.free(*uid),
            _ => {}
        }
        Ok(())
    }

    /// Accelerators of the fewest pods that do, of an elastic job those that it is to have.
    fn least_of(&self, uid: Uid, job: &Job) -> i64 {
        self.sizes
            .get(&uid)
            .map_or_else(|| job.least_total(), |(pods, _)| i64::from(*pods).saturating_mul(job.gpus))
    }

    /// The same of one that holds quota already: what it is to grow by.
    fn asks_of(&self, uid: Uid, job: &Job, held: &BTreeMap<Uid, Held>) -> i64 {
        match (held.contains_key(&uid), self.sizes.get(&uid), self.runs.get(&uid)) {
            (true, Some((pods, _)), Some(runs)) => {
                i64::from(pods.saturating_sub(*runs)).saturating_mul(job.gpus)
            }
            _ => self.least_of(uid, job),
        }
    }

    fn most_of(&self, uid: Uid, job: &Job) -> i64 {
        self.sizes
            .get(&uid)
            .map_or_else(|| job.total(), |(pods, _)| i64::from(*pods).saturating_mul(job.gpus))
    }

    /// What was given, said with every number where it isn't always the same.
    fn counts_of(&self, uid: Uid, counts: Option<&Vec<u32>>) -> Option<Vec<u32>> {
        counts.cloned().or_else(|| self.sizes.get(&uid).map(|(pods, _)| vec![*pods]))
    }

    fn displace(&mut self, victim: Uid, by: Uid, right: &str) {
        let decided = match &self.decided {
            Some(decided) => decided.clone(),
            None => Rc::new((self.forest().clone(), self.held.clone())),
        };
        self.decided = Some(decided.clone());
        self.displaced.push(Displaced { victim, by, right: right.to_owned(), decided });
    }

    /// P4: what is reserved was available, whatever was lent and borrowed; a queue that is stopped admits nothing.
    fn judge_reserved(&mut self, uid: Uid, flavors: &Flavors, counts: Option<&Vec<u32>>) -> Verdict {
        let Some(job) = self.jobs.get(&uid) else { return Ok(()) };
        let stop = self.spec(&job.queue)["stopPolicy"].as_str().unwrap_or("None").to_owned();
        if stop != "None" {
            return broken("P4", format!("{uid} is admitted, and queue `{}` is stopped: {stop}", job.queue));
        }
        if self.held.contains_key(&uid) {
            return broken("P4", format!("{uid} is admitted, and holds quota already"));
        }
        let asks = job.total_of(counts);
        let as_it_is = !self.sizes.contains_key(&uid) || asks == self.most_of(uid, job);
        if !as_it_is || (job.sizes.is_empty() && (asks < job.least_total() || asks > job.total())) {
            return broken(
                "P3",
                format!(
                    "{uid} is admitted with {counts:?} of {} pods, and {:?} are the least",
                    job.pods, job.least
                ),
            );
        }
        for flavor in flavors.values() {
            let free = self.forest().available(&job.queue, flavor);
            if free.is_none_or(|free| free < asks) {
                let words = format!(
                    "{uid} takes {asks} of `{flavor}` in queue `{}`, and {free:?} is available: {}",
                    job.queue,
                    self.forest().words()
                );
                return broken("P4", words);
            }
        }
        Ok(())
    }

    /// After all records: the same workloads hold quota as the world says, and whoever was displaced was so by right and enough.
    pub(super) fn judge_end(&mut self, world: &World) -> Verdict {
        let charged: BTreeSet<Uid> = world
            .state
            .workloads
            .iter()
            .filter(|(u, w)| w.phase.charged() && self.jobs.contains_key(u))
            .map(|(u, _)| *u)
            .collect();
        if let Some(uid) = self
            .held
            .keys()
            .find(|u| !charged.contains(u))
            .or_else(|| charged.iter().find(|u| !self.held.contains_key(u)))
        {
            return broken(
                "P3",
                format!(
                    "{uid} holds {:?} by its records, and is {:?}",
                    self.held.get(uid),
                    world.state.workloads.get(uid).map(|w| w.phase)
                ),
            );
        }
        self.judge_enough()?;
        let known = |uid: &Uid| world.state.workloads.get(uid).map(|w| (w.submitted, w.priority));
        for displaced in if self.changed { Vec::new() } else { self.displaced.clone() } {
            let waits =
                |uid: &Uid| {
                    world.state.workloads.get(uid).is_some_and(|w| {
                        w.phase == meridian_manager_core::state::workload::phase::Phase::Pending
                    })
                };
            if let Some((victim, by)) = known(&displaced.victim).zip(known(&displaced.by)) {
                self.judge_right(&displaced, victim, by, waits)?;
            }
        }
        Ok(())
    }

    /// Who displaced whom in this outcome.
    pub(super) fn pairs(&self) -> Vec<(Uid, Uid)> {
        self.displaced.iter().map(|d| (d.by, d.victim)).collect()
    }

    /// P7: by priority within a queue, or because the victim's queue borrows, as the preemptor's policies say.
    fn judge_right(
        &mut self,
        displaced: &Displaced,
        (victim_age, victim_priority): Standing,
        (by_age, by_priority): Standing,
        waits: impl Fn(&Uid) -> bool,
    ) -> Verdict {
        let Displaced { victim, by, right, decided } = displaced;
        let (forest, held) = &**decided;
        let (Some(v), Some(p)) = (self.jobs.get(victim), self.jobs.get(by)) else { return Ok(()) };
        let spec = self.spec(&p.queue);
        let forbidden = |why: &str| {
            let words = format!(
                "{victim} ({} in `{}`) is displaced for {by} ({} of {} in `{}`) as {right}: {why}",
                victim_priority,
                v.queue,
                by_priority,
                p.total(),
                p.queue
            );
            broken("P7", format!("{words}: {}", forest.words()))
        };
        let policy = |name: &str| spec["preemption"][name].as_str().unwrap_or("Never").to_owned();
        let lower = victim_priority < by_priority;
        if right == "InClusterQueue" {
            let allowed = match policy("withinClusterQueue").as_str() {
                "LowerPriority" => lower,
                "LowerOrNewerEqualPriority" => {
                    lower || (victim_priority == by_priority && victim_age > by_age)
                }
                _ => false,
            };
            return match v.queue == p.queue && allowed {
                true => Ok(()),
                false => forbidden("the queue's own policy doesn't allow it"),
            };
        }
        let reclaims = match policy("reclaimWithinCohort").as_str() {
            "LowerPriority" => lower,
            "Any" => true,
            _ => false,
        };
        if v.queue == p.queue || !reclaims {
            return forbidden("`reclaimWithinCohort` doesn't allow it");
        }
        let (from, to) = ((false, v.queue.clone()), (false, p.queue.clone()));
        let fair = self.fair;
        // Its own victims leave its queue, and so do those whom others displaced in this decision before it (seed 302374).
        let own = self.displaced.iter().filter(|d| d.by == *by);
        let before =
            self.displaced.iter().filter(|d| Rc::ptr_eq(&d.decided, decided)).take_while(|d| d.by != *by);
        let victims: BTreeSet<Uid> = own.chain(before).map(|d| d.victim).collect();
        let leaving =
            held.iter().filter(|(uid, h)| h.queue == p.queue && (h.stopping || victims.contains(uid)));
        let stopping: Vec<(String, i64)> = leaving.flat_map(|(_, h)| h.amounts.clone()).collect();
        let asks = self.asks_of(*by, p, held);
        let Some(flavor) = held.get(victim).and_then(|h| h.amounts.first()).map(|(f, _)| f.clone()) else {
            return Ok(());
        };
        if forest.root(&from).is_none() || forest.root(&from) != forest.root(&to) {
            return forbidden("they share no cohort");
        }
        // Whoever others stop for counts as if it were there.
        let mut theirs = forest.clone();
        let together = self.displaced.iter().filter(|d| Rc::ptr_eq(&d.decided, decided)).map(|d| d.by);
        let awaited: BTreeSet<Uid> = held.values().filter_map(|h| h.stops_for).chain(together).collect();
        for other in awaited.into_iter().filter(|other| other != by && !held.contains_key(other)) {
            if let Some(job) = self.jobs.get(&other).filter(|job| job.queue == v.queue) {
                theirs.add(&v.queue, &flavor, self.most_of(other, job));
            }
        }
        // So does one of its queue who waits for nothing else than those who stop anyway: nobody's stop is for it then (seed
        // 1795500496487065).
        let mut gone = forest.clone();
        held.values()
            .filter(|h| h.stopping)
            .flat_map(|h| h.amounts.iter().map(move |of| (&h.queue, of)))
            .for_each(|(q, (f, a))| gone.add(q, f, -a));
        let then =
            gone.available(&v.queue, &flavor).filter(|_| held.values().any(|h| h.stopping)).unwrap_or(0);
        let next = self
            .jobs
            .iter()
            .filter(|(uid, job)| job.queue == v.queue && !held.contains_key(uid) && *uid != by && waits(uid));
        let next = next
            .filter(|(uid, job)| self.least_of(**uid, job) <= then)
            .map(|(uid, job)| self.most_of(*uid, job))
            .max();
        if forest.usage(&from, &flavor) <= forest.subtree(&from, &flavor) {
            return forbidden("its queue borrows nothing");
        }
        let flat = forest.parent(&from) == forest.parent(&to);
        let own = forest.usage(&to, &flavor)
            - stopping.iter().filter(|(f, _)| *f == flavor).map(|(_, a)| a).sum::<i64>();
        match right.as_str() {
            "InCohortReclaimWhileBorrowing" => {
                let borrow = &spec["preemption"]["borrowWithinCohort"];
                let most = borrow["maxPriorityThreshold"].as_i64().unwrap_or(i64::MAX);
                if fair || borrow["policy"] != "LowerPriority" || !lower || victim_priority > most {
                    return forbidden("`borrowWithinCohort` doesn't allow it");
                }
            }
            "InCohortFairSharing" => {
                let mut with = forest.clone();
                stopping.iter().for_each(|(f, a)| with.add(&p.queue, f, -a));
                with.add(&p.queue, &flavor, asks);
                theirs.add(&v.queue, &flavor, next.unwrap_or(0));
                if !fair || (flat && with.share(&p.queue) > theirs.share(&v.queue)) {
                    return forbidden("its queue's share isn't larger");
                }
            }
            "InCohortReclamation" if flat && !fair && own + asks > forest.subtree(&to, &flavor) => {
                return forbidden("the preemptor's queue would borrow");
            }
            "InCohortReclamation" => {}
            _ => return forbidden("there is no such right"),
        }
        Ok(())
    }

    /// P7: once everybody who is being stopped is gone, whoever displaced others just now fits. In vain nobody is displaced.
    fn judge_enough(&mut self) -> Verdict {
        let Some(decided) = self.decided.take() else { return Ok(()) };
        let flavor =
            |victim: &Uid| decided.1.get(victim).and_then(|h| h.amounts.first()).map(|(f, _)| f.clone());
        let together = self.displaced.iter().filter(|d| Rc::ptr_eq(&d.decided, &decided));
        let preemptors: BTreeMap<Uid, String> =
            together.filter_map(|d| Some((d.by, flavor(&d.victim)?))).collect();
        let mut forest = self.forest().clone();
        for held in self.held.values().filter(|h| h.stopping) {
            held.amounts.iter().for_each(|(flavor, amount)| forest.add(&held.queue, flavor, -amount));
        }
        // Who gave up what it had just been given, and is back, comes first again where order is strict: what was freed for who
        // is behind it is then its own (seed 201895).
        let back = |uid: &Uid| self.displaced.iter().any(|d| d.victim == *uid);
        let strict = |queue: &str| self.spec(queue)["queueingStrategy"] == "StrictFIFO";
        let (first, others): (Vec<_>, Vec<_>) =
            preemptors.iter().filter(|(by, _)| !self.held.contains_key(by)).partition(|(by, _)| back(by));
        let mut served_first: BTreeSet<&str> = BTreeSet::new();
        for (by, flavor) in first.into_iter().chain(others) {
            let Some(job) = self.jobs.get(by) else { continue };
            let free = forest.available(&job.queue, flavor);
            let least = self.least_of(*by, job);
            if free.is_none_or(|free| free < least) {
                if served_first.contains(&*job.queue) {
                    continue;
                }
                return broken(
                    "P7",
                    format!(
                        "others stop for {by}, which needs {} of `{flavor}` in `{}`; once they are gone {free:?} is there",
                        least, job.queue
                    ),
                );
            }
            forest.add(&job.queue, flavor, least);
            if back(by) && strict(&job.queue) {
                served_first.insert(&*job.queue);
            }
        }
        Ok(())
    }
}
