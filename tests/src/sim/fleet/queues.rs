//! Cluster queues and cohorts of one seed: random forests, limits, policies and weights, and how users change
//! them.
//!
//! Every forest is feasible as first declared: each queue can use the accelerators of the largest gang. Later
//! changes may make it infeasible until healing restores the first declaration.

use crate::sim::clusters::{GPU, GpuLimits};
use crate::sim::fleet::topology;
use crate::sim::random::Random;
use crate::sim::reference_model::quota_forest::QuotaForest;
use crate::sim::scenario::{Cohorts, Scenario};
use serde_json::{Value, json};

/// Accelerators of the largest gang.
const GANG_MAX: i64 = 6;
/// Names of cohorts, the root first.
const COHORTS: [&str; 3] = ["all", "left", "right"];
/// Priority classes and their values.
pub(crate) const PRIORITIES: [(&str, i64); 3] = [("low", -10), ("mid", 10), ("high", 100)];

/// A queue of a scenario in which queues share no quota.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UsualQueue {
    pub(crate) name: &'static str,
    pub(crate) quota: i64,
    pub(crate) strategy: &'static str,
}

/// Quota of one flavor.
#[derive(Clone, Copy, Debug)]
struct FlavorQuota {
    nominal: i64,
    borrowing: Option<i64>,
    lending: Option<i64>,
}

#[derive(Clone, Debug)]
struct DeclaredQueue {
    name: &'static str,
    strategy: &'static str,
    cohort: Option<&'static str>,
    quotas: Vec<FlavorQuota>,
    preemption: Value,
    fungibility: Value,
    weight: &'static str,
    stop: &'static str,
}

#[derive(Clone, Debug)]
struct DeclaredCohort {
    name: &'static str,
    parent: Option<&'static str>,
    quotas: Vec<FlavorQuota>,
    weight: &'static str,
}

/// Everything that is declared about queues.
#[derive(Clone, Debug, Default)]
pub(crate) struct DeclaredQueues {
    queues: Vec<DeclaredQueue>,
    cohorts: Vec<DeclaredCohort>,
    flavors: Vec<&'static str>,
    /// Whether queues share quota.
    pub(crate) shared: bool,
    /// Whether local queues are ordered by their usage history.
    by_usage: bool,
    /// Whether flavors have a topology.
    topology: bool,
    pub(crate) limits: GpuLimits,
}

impl FlavorQuota {
    fn nominal(nominal: i64) -> Self {
        Self { nominal, borrowing: None, lending: None }
    }

    /// A random quota; with limits only in a cohort.
    fn random(random: &mut Random, in_cohort: bool) -> Self {
        let nominal = *random.pick(&[0, 2, 4, 6, 8]).expect("not empty");
        let limit = |random: &mut Random| {
            random
                .permille(300)
                .then(|| *random.pick(&[0, 2, 4, 8]).expect("not empty"))
                .filter(|_| in_cohort)
        };
        Self { nominal, borrowing: limit(random), lending: limit(random).map(|most| most.min(nominal)) }
    }

    fn manifest(self) -> Value {
        let mut manifest = json!({"name": GPU, "nominalQuota": self.nominal});
        for (name, limit) in [("borrowingLimit", self.borrowing), ("lendingLimit", self.lending)] {
            if let Some(limit) = limit {
                manifest[name] = json!(limit);
            }
        }
        manifest
    }
}

fn resource_groups(flavors: &[&str], quotas: &[FlavorQuota]) -> Value {
    let flavors: Vec<Value> = flavors
        .iter()
        .zip(quotas)
        .map(|(name, quota)| json!({"name": name, "resources": [quota.manifest()]}))
        .collect();
    json!([{"coveredResources": [GPU], "flavors": flavors}])
}

fn random_weight(random: &mut Random) -> &'static str {
    random.pick(&["1", "1", "2", "500m", "0"]).copied().expect("not empty")
}

fn random_preemption(random: &mut Random, fair: bool) -> Value {
    let within = *random.pick(&["Never", "LowerPriority", "LowerOrNewerEqualPriority"]).expect("not empty");
    let reclaim = *random.pick(&["Never", "LowerPriority", "Any", "Any"]).expect("not empty");
    let mut preemption = json!({"withinClusterQueue": within, "reclaimWithinCohort": reclaim});
    if reclaim != "Never" && !fair && random.permille(400) {
        preemption["borrowWithinCohort"] = json!({"policy": "LowerPriority"});
        if random.permille(600) {
            preemption["borrowWithinCohort"]["maxPriorityThreshold"] =
                json!(*random.pick(&[-10, 0, 10]).expect("not empty"));
        }
    }
    preemption
}

fn random_fungibility(random: &mut Random) -> Value {
    let choice = |random: &mut Random| *random.pick(&["MayStopSearch", "TryNextFlavor"]).expect("not empty");
    json!({"whenCanBorrow": choice(random), "whenCanPreempt": choice(random)})
}

impl DeclaredQueues {
    /// The declarations of a scenario; `usual` is used where nothing is shared.
    pub(crate) fn of(scenario: &Scenario, usual: &[UsualQueue]) -> Self {
        let mut random = Random::new(scenario.seed, "queues");
        let mut declared = Self {
            queues: Vec::new(),
            cohorts: Vec::new(),
            flavors: vec!["any"],
            shared: scenario.cohorts != Cohorts::None,
            by_usage: scenario.by_usage,
            topology: scenario.topology,
            limits: scenario.limits,
        };
        if !declared.shared {
            declared.queues = usual.iter().map(DeclaredQueue::alone).collect();
            return declared;
        }
        if random.permille(350) {
            declared.flavors.push("other");
        }
        if scenario.cohorts == Cohorts::Deep {
            declared.add_cohorts(&mut random);
        }
        for queue in usual {
            declared.add_queue(&mut random, queue.name, scenario);
        }
        declared.make_feasible();
        declared
    }

    fn add_cohorts(&mut self, random: &mut Random) {
        for (at, name) in COHORTS.into_iter().enumerate() {
            let parent = (at > 0).then_some(COHORTS[0]);
            let quota = |random: &mut Random| {
                if random.permille(400) {
                    FlavorQuota::random(random, parent.is_some())
                } else {
                    FlavorQuota::nominal(0)
                }
            };
            let quotas = self.flavors.iter().map(|_| quota(random)).collect();
            self.cohorts.push(DeclaredCohort { name, parent, quotas, weight: random_weight(random) });
        }
    }

    fn add_queue(&mut self, random: &mut Random, name: &'static str, scenario: &Scenario) {
        let cohort = match scenario.cohorts {
            Cohorts::Deep => random
                .pick(&[Some(COHORTS[0]), Some(COHORTS[1]), Some(COHORTS[1]), Some(COHORTS[2])])
                .copied()
                .expect("not empty"),
            _ => Some(COHORTS[0]).filter(|_| !random.permille(100)),
        };
        let mut quotas: Vec<FlavorQuota> =
            self.flavors.iter().map(|_| FlavorQuota::random(random, cohort.is_some())).collect();
        // Alone, the queue's own quota must be enough for the largest gang. In a cohort it may have to
        // borrow.
        let is_enough = quotas[0].nominal >= GANG_MAX;
        if !is_enough && (cohort.is_none() || random.permille(500)) {
            quotas[0].nominal = GANG_MAX;
        }
        self.queues.push(DeclaredQueue {
            name,
            strategy: if random.permille(300) { "StrictFIFO" } else { "BestEffortFIFO" },
            cohort,
            quotas,
            preemption: random_preemption(random, scenario.fair),
            fungibility: if self.flavors.len() > 1 { random_fungibility(random) } else { Value::Null },
            weight: random_weight(random),
            stop: "None",
        });
    }

    /// Raises the nominal quota of each queue that could never use enough of the first flavor.
    fn make_feasible(&mut self) {
        for at in 0..self.queues.len() {
            let name = self.queues[at].name;
            if QuotaForest::of(&self.manifests())
                .potential(name, self.flavors[0])
                .is_none_or(|most| most < GANG_MAX)
            {
                self.queues[at].quotas[0].nominal = GANG_MAX;
            }
        }
    }

    /// Names of the queues.
    pub(crate) fn names(&self) -> Vec<&'static str> {
        self.queues.iter().map(|q| q.name).collect()
    }

    /// Cluster queues, cohorts, flavors and priority classes as objects.
    pub(crate) fn manifests(&self) -> Vec<Value> {
        let spec = if self.topology { topology::flavor_spec() } else { json!({}) };
        let flavor = |name| {
            json!({
                "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor", "metadata": {"name": name},
                "spec": spec,
            })
        };
        let mut all: Vec<Value> = self
            .topology
            .then(topology::topology_manifest)
            .into_iter()
            .chain(self.flavors.iter().map(flavor))
            .collect();
        if self.shared {
            all.extend(PRIORITIES.iter().map(|(name, value)| priority_class(name, *value)));
        }
        all.extend(self.cohorts.iter().map(|c| self.cohort_manifest(c)));
        all.extend(self.queues.iter().map(|q| self.queue_manifest(q)));
        all
    }

    /// The objects that users change during a run.
    pub(crate) fn changeable(&self) -> Vec<Value> {
        self.manifests()
            .into_iter()
            .filter(|m| matches!(m["kind"].as_str(), Some("ClusterQueue" | "Cohort")))
            .collect()
    }

    fn queue_manifest(&self, queue: &DeclaredQueue) -> Value {
        let mut spec = json!({
            "namespaceSelector": {}, "queueingStrategy": queue.strategy,
            "resourceGroups": resource_groups(&self.flavors, &queue.quotas),
        });
        if self.shared {
            spec["fairSharing"] = json!({"weight": queue.weight});
            spec["stopPolicy"] = json!(queue.stop);
        }
        if self.by_usage {
            spec["admissionScope"] = json!({"admissionMode": "UsageBasedAdmissionFairSharing"});
        }
        if let Some(cohort) = queue.cohort {
            spec["cohortName"] = json!(cohort);
        }
        for (name, value) in [("preemption", &queue.preemption), ("flavorFungibility", &queue.fungibility)] {
            if !value.is_null() {
                spec[name] = value.clone();
            }
        }
        json!({
            "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue", "metadata": {"name": queue.name},
            "spec": spec,
        })
    }

    fn cohort_manifest(&self, cohort: &DeclaredCohort) -> Value {
        let mut spec = json!({
            "fairSharing": {"weight": cohort.weight},
            "resourceGroups": resource_groups(&self.flavors, &cohort.quotas),
        });
        if let Some(parent) = cohort.parent {
            spec["parentName"] = json!(parent);
        }
        json!({
            "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Cohort", "metadata": {"name": cohort.name},
            "spec": spec,
        })
    }

    /// Sets the only quota of one queue; returns the changed object.
    pub(crate) fn set_quota(&mut self, name: &str, quota: i64) -> Vec<Value> {
        let Some(at) = self.queues.iter().position(|q| q.name == name) else { return Vec::new() };
        self.queues[at].quotas = vec![FlavorQuota::nominal(quota)];
        vec![self.queue_manifest(&self.queues[at])]
    }

    /// Makes one random change to a shared forest; returns the changed object.
    pub(crate) fn change(&mut self, random: &mut Random, fair: bool) -> Vec<Value> {
        let roll = random.below(100);
        if roll < 20 && !self.cohorts.is_empty() {
            let at = random.index(self.cohorts.len());
            let parents: &[Option<&str>] =
                if at == 0 { &[None, None, Some(COHORTS[1])] } else { &[None, Some(COHORTS[0])] };
            let parent = *random.pick(parents).expect("not empty");
            let quotas = self.flavors.iter().map(|_| FlavorQuota::random(random, parent.is_some())).collect();
            let weight = random_weight(random);
            let cohort = &mut self.cohorts[at];
            (cohort.parent, cohort.quotas, cohort.weight) = (parent, quotas, weight);
            return vec![self.cohort_manifest(&self.cohorts[at])];
        }
        let at = random.index(self.queues.len());
        self.change_queue(random, at, roll, fair);
        vec![self.queue_manifest(&self.queues[at])]
    }

    fn change_queue(&mut self, random: &mut Random, at: usize, roll: u64, fair: bool) {
        let cohorts: Vec<Option<&'static str>> =
            self.cohorts.iter().map(|c| Some(c.name)).chain([None, Some(COHORTS[0])]).collect();
        let queue = &mut self.queues[at];
        match roll {
            0..40 => {
                let in_cohort = queue.cohort.is_some();
                queue.quotas = self.flavors.iter().map(|_| FlavorQuota::random(random, in_cohort)).collect();
            }
            40..55 => queue.weight = random_weight(random),
            55..70 => {
                let cohort = *random.pick(&cohorts).expect("not empty");
                queue.cohort = cohort;
                let alone = queue.quotas.iter_mut().filter(|_| cohort.is_none());
                alone.for_each(|quota| *quota = FlavorQuota::nominal(quota.nominal));
            }
            70..85 => queue.preemption = random_preemption(random, fair),
            _ => {
                let stopped = queue.stop != "None";
                queue.stop = if stopped {
                    "None"
                } else {
                    *random.pick(&["Hold", "HoldAndDrain"]).expect("not empty")
                };
            }
        }
    }
}

impl DeclaredQueue {
    /// A queue without a cohort.
    fn alone(usual: &UsualQueue) -> Self {
        Self {
            name: usual.name,
            strategy: usual.strategy,
            cohort: None,
            quotas: vec![FlavorQuota::nominal(usual.quota)],
            preemption: Value::Null,
            fungibility: Value::Null,
            weight: "1",
            stop: "None",
        }
    }
}

/// A priority class as an object.
pub(crate) fn priority_class(name: &str, value: i64) -> Value {
    json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "WorkloadPriorityClass", "metadata": {"name": name},
        "value": value,
    })
}
