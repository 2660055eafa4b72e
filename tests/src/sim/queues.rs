//! Cluster queues and cohorts of one seed: random forests, limits, policies and weights, and how people change them.
//!
//! Every forest is feasible as it is declared at first: each queue could use the largest gang's accelerators. What people
//! change meanwhile may not be; healing puts the first declaration back.

use super::chance::Chance;
use super::nearness;
use super::people::{GPU, PLACES};
use super::plan::{Cohorts, Plan};
use serde_json::{Value, json};

/// Accelerators of the largest gang.
const GANG_MAX: i64 = 6;
/// Names of cohorts, the root first.
const COHORTS: [&str; 3] = ["all", "left", "right"];
/// Priority classes and their values.
pub(super) const PRIORITIES: [(&str, i64); 3] = [("low", -10), ("mid", 10), ("high", 100)];

/// Quota of one flavor.
#[derive(Clone, Copy, Debug)]
struct Quota {
    nominal: i64,
    borrowing: Option<i64>,
    lending: Option<i64>,
}

/// A cluster queue.
#[derive(Clone, Debug)]
struct Queue {
    name: &'static str,
    strategy: &'static str,
    cohort: Option<&'static str>,
    quotas: Vec<Quota>,
    preemption: Value,
    fungibility: Value,
    weight: &'static str,
    stop: &'static str,
}

/// A cohort.
#[derive(Clone, Debug)]
struct Cohort {
    name: &'static str,
    parent: Option<&'static str>,
    quotas: Vec<Quota>,
    weight: &'static str,
}

/// Everything that is declared about queues.
#[derive(Clone, Debug, Default)]
pub(super) struct Declared {
    queues: Vec<Queue>,
    cohorts: Vec<Cohort>,
    /// Names of flavors.
    pub(super) flavors: Vec<&'static str>,
    /// Whether quota is shared and contested.
    pub(super) shared: bool,
    /// Local queues come in the order of what they used.
    by_usage: bool,
    /// Flavors are of a topology.
    topology: bool,
    /// What each place may be believed to have, if anything bounds it.
    pub(super) limits: [Option<i64>; PLACES.len()],
}

impl Quota {
    fn of(nominal: i64) -> Self {
        Self { nominal, borrowing: None, lending: None }
    }

    fn random(chance: &mut Chance, shares: bool) -> Self {
        let nominal = *chance.pick(&[0, 2, 4, 6, 8]).expect("not empty");
        let limit = |chance: &mut Chance| {
            chance.of_1000(300).then(|| *chance.pick(&[0, 2, 4, 8]).expect("not empty")).filter(|_| shares)
        };
        Self { nominal, borrowing: limit(chance), lending: limit(chance).map(|most| most.min(nominal)) }
    }

    fn manifest(self) -> Value {
        let mut of = json!({"name": GPU, "nominalQuota": self.nominal});
        for (name, limit) in [("borrowingLimit", self.borrowing), ("lendingLimit", self.lending)] {
            if let Some(limit) = limit {
                of[name] = json!(limit);
            }
        }
        of
    }
}

fn groups(flavors: &[&str], quotas: &[Quota]) -> Value {
    let flavors: Vec<Value> = flavors
        .iter()
        .zip(quotas)
        .map(|(name, quota)| json!({"name": name, "resources": [quota.manifest()]}))
        .collect();
    json!([{"coveredResources": [GPU], "flavors": flavors}])
}

fn weight(chance: &mut Chance) -> &'static str {
    chance.pick(&["1", "1", "2", "500m", "0"]).copied().expect("not empty")
}

fn preemption(chance: &mut Chance, fair: bool) -> Value {
    let within = *chance.pick(&["Never", "LowerPriority", "LowerOrNewerEqualPriority"]).expect("not empty");
    let reclaim = *chance.pick(&["Never", "LowerPriority", "Any", "Any"]).expect("not empty");
    let mut of = json!({"withinClusterQueue": within, "reclaimWithinCohort": reclaim});
    if reclaim != "Never" && !fair && chance.of_1000(400) {
        of["borrowWithinCohort"] = json!({"policy": "LowerPriority"});
        if chance.of_1000(600) {
            of["borrowWithinCohort"]["maxPriorityThreshold"] =
                json!(*chance.pick(&[-10, 0, 10]).expect("not empty"));
        }
    }
    of
}

fn fungibility(chance: &mut Chance) -> Value {
    let words = |chance: &mut Chance| *chance.pick(&["MayStopSearch", "TryNextFlavor"]).expect("not empty");
    json!({"whenCanBorrow": words(chance), "whenCanPreempt": words(chance)})
}

impl Declared {
    /// The declarations of a plan; `usual` are names, quotas and strategies where nothing is shared.
    pub(super) fn of(plan: &Plan, usual: &[(&'static str, i64, &'static str)]) -> Self {
        let mut chance = Chance::new(plan.seed, "queues");
        let shared = plan.cohorts != Cohorts::None;
        if !shared {
            let queue = |(name, quota, strategy): &(&'static str, i64, &'static str)| Queue {
                name,
                strategy,
                cohort: None,
                quotas: vec![Quota::of(*quota)],
                preemption: Value::Null,
                fungibility: Value::Null,
                weight: "1",
                stop: "None",
            };
            return Self {
                queues: usual.iter().map(queue).collect(),
                cohorts: Vec::new(),
                flavors: vec!["any"],
                shared,
                by_usage: plan.by_usage,
                topology: plan.topology,
                limits: plan.limits,
            };
        }
        let flavors = if chance.of_1000(350) { vec!["any", "other"] } else { vec!["any"] };
        let mut cohorts = Vec::new();
        if plan.cohorts == Cohorts::Deep {
            let mut cohort = |name: &'static str, parent: Option<&'static str>| {
                let quota = |chance: &mut Chance| {
                    if chance.of_1000(400) { Quota::random(chance, parent.is_some()) } else { Quota::of(0) }
                };
                let quotas = flavors.iter().map(|_| quota(&mut chance)).collect();
                cohorts.push(Cohort { name, parent, quotas, weight: weight(&mut chance) });
            };
            cohort(COHORTS[0], None);
            cohort(COHORTS[1], Some(COHORTS[0]));
            cohort(COHORTS[2], Some(COHORTS[0]));
        }
        let mut queues = Vec::new();
        for (name, _, _) in usual {
            let cohort = match plan.cohorts {
                Cohorts::Deep => chance
                    .pick(&[Some(COHORTS[0]), Some(COHORTS[1]), Some(COHORTS[1]), Some(COHORTS[2])])
                    .copied()
                    .expect("not empty"),
                _ => Some(COHORTS[0]).filter(|_| !chance.of_1000(100)),
            };
            let mut quotas: Vec<Quota> =
                flavors.iter().map(|_| Quota::random(&mut chance, cohort.is_some())).collect();
            // Whatever others declare, its own quota is enough for the largest gang, or what it may borrow surely is.
            let enough = quotas[0].nominal >= GANG_MAX;
            if !enough && (cohort.is_none() || chance.of_1000(500)) {
                quotas[0].nominal = GANG_MAX;
            }
            queues.push(Queue {
                name,
                strategy: if chance.of_1000(300) { "StrictFIFO" } else { "BestEffortFIFO" },
                cohort,
                quotas,
                preemption: preemption(&mut chance, plan.fair),
                fungibility: if flavors.len() > 1 { fungibility(&mut chance) } else { Value::Null },
                weight: weight(&mut chance),
                stop: "None",
            });
        }
        let mut declared = Self {
            queues,
            cohorts,
            flavors,
            shared,
            by_usage: plan.by_usage,
            topology: plan.topology,
            limits: plan.limits,
        };
        declared.make_feasible();
        declared
    }

    /// Where a queue could never use enough of the first flavor, its own quota is raised.
    fn make_feasible(&mut self) {
        for at in 0..self.queues.len() {
            let name = self.queues[at].name;
            if super::books::Forest::of(&self.manifests())
                .potential(name, self.flavors[0])
                .is_none_or(|most| most < GANG_MAX)
            {
                self.queues[at].quotas[0].nominal = GANG_MAX;
            }
        }
    }

    /// Names of the queues.
    pub(super) fn names(&self) -> Vec<&'static str> {
        self.queues.iter().map(|q| q.name).collect()
    }

    /// Cluster queues, cohorts, flavors and priority classes as objects.
    pub(super) fn manifests(&self) -> Vec<Value> {
        let spec = if self.topology { nearness::flavor() } else { json!({}) };
        let flavor = |name| json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor", "metadata": {"name": name}, "spec": spec});
        let mut all: Vec<Value> = self
            .topology
            .then(nearness::manifest)
            .into_iter()
            .chain(self.flavors.iter().map(flavor))
            .collect();
        if self.shared {
            all.extend(PRIORITIES.iter().map(
                |(name, value)| json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "WorkloadPriorityClass", "metadata": {"name": name}, "value": value}),
            ));
        }
        all.extend(self.cohorts.iter().map(|c| self.cohort(c)));
        all.extend(self.queues.iter().map(|q| self.queue(q)));
        all
    }

    /// Only what people change.
    pub(super) fn changeable(&self) -> Vec<Value> {
        self.manifests()
            .into_iter()
            .filter(|m| matches!(m["kind"].as_str(), Some("ClusterQueue" | "Cohort")))
            .collect()
    }

    fn queue(&self, queue: &Queue) -> Value {
        let mut spec = json!({"namespaceSelector": {}, "queueingStrategy": queue.strategy, "resourceGroups": groups(&self.flavors, &queue.quotas)});
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
        json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue", "metadata": {"name": queue.name}, "spec": spec})
    }

    fn cohort(&self, cohort: &Cohort) -> Value {
        let mut spec = json!({"fairSharing": {"weight": cohort.weight}, "resourceGroups": groups(&self.flavors, &cohort.quotas)});
        if let Some(parent) = cohort.parent {
            spec["parentName"] = json!(parent);
        }
        json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Cohort", "metadata": {"name": cohort.name}, "spec": spec})
    }

    /// Sets one queue's only quota.
    pub(super) fn lower(&mut self, name: &str, quota: i64) -> Vec<Value> {
        let Some(at) = self.queues.iter().position(|q| q.name == name) else { return Vec::new() };
        self.queues[at].quotas = vec![Quota::of(quota)];
        vec![self.queue(&self.queues[at])]
    }

    /// One change of a shared forest, as objects.
    pub(super) fn change(&mut self, chance: &mut Chance, fair: bool) -> Vec<Value> {
        let roll = chance.below(100);
        if roll < 20 && !self.cohorts.is_empty() {
            let at = chance.index(self.cohorts.len());
            let parents: &[Option<&str>] =
                if at == 0 { &[None, None, Some(COHORTS[1])] } else { &[None, Some(COHORTS[0])] };
            let parent = *chance.pick(parents).expect("not empty");
            let quotas = self.flavors.iter().map(|_| Quota::random(chance, parent.is_some())).collect();
            let weight = weight(chance);
            let cohort = &mut self.cohorts[at];
            (cohort.parent, cohort.quotas, cohort.weight) = (parent, quotas, weight);
            return vec![self.cohort(&self.cohorts[at])];
        }
        let at = chance.index(self.queues.len());
        let names: Vec<Option<&'static str>> =
            self.cohorts.iter().map(|c| Some(c.name)).chain([None, Some(COHORTS[0])]).collect();
        match roll {
            0..40 => {
                let shares = self.queues[at].cohort.is_some();
                self.queues[at].quotas = self.flavors.iter().map(|_| Quota::random(chance, shares)).collect();
            }
            40..55 => self.queues[at].weight = weight(chance),
            55..70 => {
                let cohort = *chance.pick(&names).expect("not empty");
                let queue = &mut self.queues[at];
                queue.cohort = cohort;
                queue.quotas.iter_mut().filter(|_| cohort.is_none()).for_each(|q| *q = Quota::of(q.nominal));
            }
            70..85 => self.queues[at].preemption = preemption(chance, fair),
            _ => {
                let stopped = self.queues[at].stop != "None";
                self.queues[at].stop = if stopped {
                    "None"
                } else {
                    *chance.pick(&["Hold", "HoldAndDrain"]).expect("not empty")
                };
            }
        }
        vec![self.queue(&self.queues[at])]
    }
}
