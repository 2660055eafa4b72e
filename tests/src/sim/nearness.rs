//! Topologies: where nodes stand, which gangs want their pods near each other, and whether they got it.
//!
//! Nodes stand in racks of two and blocks of four. The first cluster always says so, others only in some seeds: there no gang
//! with such a wish may start.

use super::Sim;
use super::chance::Chance;
use super::oracle::{Verdict, broken};
use super::plan::Plan;
use meridian_shared::packing::HOSTNAME_LABEL;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// Labels of the levels, the widest first.
const LEVELS: [&str; 3] = ["example.com/block", "example.com/rack", HOSTNAME_LABEL];
/// Every node of a fleet with a topology, by which its flavors know theirs.
const POOL: (&str, &str) = ("example.com/pool", "accelerators");
/// Nodes of one rack, and of one block.
const RACK: u32 = 2;
const BLOCK: u32 = 4;
/// Accelerators of one node.
pub(super) const NODE_GPUS: i64 = 4;

/// What a gang wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Near {
    /// All pods in one domain of this level.
    Required(usize),
    /// In one domain, or else in as few as can be.
    Preferred(usize),
    /// Anywhere in the topology.
    Anywhere,
}

impl Near {
    /// What a job wants, drawn beside everything else.
    pub(super) fn of(plan: &Plan, name: &str, gpus: i64) -> Option<Self> {
        let mut chance = Chance::new(plan.seed, &format!("near {name}"));
        if !plan.topology || !chance.of_1000(500) {
            return None;
        }
        // A host is enough for some only.
        let levels = if gpus <= NODE_GPUS { 3 } else { 2 };
        let level = chance.index(levels);
        chance
            .pick(&[Self::Required(level), Self::Required(level), Self::Preferred(level), Self::Anywhere])
            .copied()
    }

    /// As its pods say it.
    pub(super) fn annotations(self) -> Value {
        match self {
            Self::Required(level) => json!({"kueue.x-k8s.io/podset-required-topology": LEVELS[level]}),
            Self::Preferred(level) => json!({"kueue.x-k8s.io/podset-preferred-topology": LEVELS[level]}),
            Self::Anywhere => json!({"kueue.x-k8s.io/podset-unconstrained-topology": "true"}),
        }
    }
}

/// How much the nodes of a cluster say of where they stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Telling {
    /// Nothing: there is no topology anywhere.
    Nothing,
    /// Only that they belong to the flavor.
    Pool,
    /// Everything.
    All,
}

impl Telling {
    /// That of a cluster, the first of which is always good for everybody.
    pub(super) fn of(plan: &Plan, place: usize) -> Self {
        match plan.topology {
            false => Self::Nothing,
            true if place == 0 || Chance::new(plan.seed, &format!("topology of {place}")).of_1000(700) => {
                Self::All
            }
            true => Self::Pool,
        }
    }

    /// The labels of a node.
    pub(super) fn labels(self, node: &str) -> BTreeMap<String, String> {
        let label = |(key, value): (&str, &str)| (key.to_owned(), value.to_owned());
        match self {
            Self::Nothing => BTreeMap::new(),
            Self::Pool => BTreeMap::from([label(POOL)]),
            Self::All => LEVELS
                .iter()
                .enumerate()
                .map(|(level, key)| label((key, &domain(node, level))))
                .chain([label(POOL)])
                .collect(),
        }
    }
}

/// Where a node stands. Those that a provider makes share a rack.
fn domain(node: &str, level: usize) -> String {
    let number: Option<u32> = node.strip_prefix('n').and_then(|number| number.parse().ok());
    match (level, number) {
        (0, Some(number)) => format!("b{}", number / BLOCK),
        (1, Some(number)) => format!("r{}", number / RACK),
        (0 | 1, None) => "made".to_owned(),
        _ => node.to_owned(),
    }
}

/// The topology, and what makes a flavor one of it.
pub(super) fn manifest() -> Value {
    let levels: Vec<Value> = LEVELS.iter().map(|label| json!({"nodeLabel": label})).collect();
    json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Topology", "metadata": {"name": "default"}, "spec": {"levels": levels}})
}

/// What a flavor of the topology says.
pub(super) fn flavor() -> Value {
    json!({"nodeLabels": {POOL.0: POOL.1}, "topologyName": "default"})
}

impl Sim {
    /// Whoever requires a domain has all its pods in one.
    pub(super) fn judge_nearness(&mut self, machine: usize) {
        let mac = &self.machines[machine];
        let wrong = mac.runner.runs().filter(|(_, run)| run.alive()).find_map(|((uid, fence), run)| {
            let near = self.oracle.jobs.get(uid)?.near?;
            let domains =
                |level| run.there().iter().map(|pod| domain(&pod.node, level)).collect::<BTreeSet<_>>();
            match near {
                _ if mac.telling != Telling::All => Some(format!(
                    "{fence} of {uid} wants {near:?} on machine {machine}, which has no topology"
                )),
                Near::Required(level) if domains(level).len() > 1 => Some(format!(
                    "{fence} of {uid} requires one {}, and is in {:?}",
                    LEVELS[level],
                    domains(level)
                )),
                Near::Required(_) | Near::Preferred(_) | Near::Anywhere => None,
            }
        });
        let verdict: Verdict = wrong.map_or(Ok(()), |words| broken("nearness", words));
        self.judge(verdict);
    }
}
