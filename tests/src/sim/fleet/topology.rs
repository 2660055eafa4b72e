//! Topologies: where nodes are, and which gangs request their pods to be close to each other.
//!
//! Nodes are in racks of two and blocks of four. The nodes of the first cluster always have the labels that
//! say so; those of other clusters only in some seeds. Without the labels no gang with a topology request may
//! start.

use crate::sim::clusters::NODE_GPUS;
use crate::sim::random::Random;
use crate::sim::scenario::Scenario;
use meridian_shared::packing::HOSTNAME_LABEL;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Labels of the levels, the widest first.
pub(crate) const LEVELS: [&str; 3] = ["example.com/block", "example.com/rack", HOSTNAME_LABEL];
/// The label of every node of a fleet with a topology; flavors select their nodes by it.
const POOL: (&str, &str) = ("example.com/pool", "accelerators");
/// Nodes per rack.
const RACK: u32 = 2;
/// Nodes per block.
const BLOCK: u32 = 4;

/// The topology request of a gang; levels are indexes of [`LEVELS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TopologyRequest {
    /// All pods in one domain of this level.
    Required(usize),
    /// All pods in one domain of this level, or else in as few as possible.
    Preferred(usize),
    /// Anywhere in the topology.
    Unconstrained,
}

impl TopologyRequest {
    /// The request of a job. It uses a separate random stream, so that other draws don't change.
    pub(crate) fn of(scenario: &Scenario, job: &str, gpus: i64) -> Option<Self> {
        let mut random = Random::new(scenario.seed, &format!("near {job}"));
        if !scenario.topology || !random.permille(500) {
            return None;
        }
        // Only small gangs fit on one host.
        let levels = if gpus <= NODE_GPUS { 3 } else { 2 };
        let level = random.index(levels);
        random
            .pick(&[
                Self::Required(level),
                Self::Required(level),
                Self::Preferred(level),
                Self::Unconstrained,
            ])
            .copied()
    }

    /// The annotations of its pods.
    pub(crate) fn annotations(self) -> Value {
        match self {
            Self::Required(level) => json!({"kueue.x-k8s.io/podset-required-topology": LEVELS[level]}),
            Self::Preferred(level) => json!({"kueue.x-k8s.io/podset-preferred-topology": LEVELS[level]}),
            Self::Unconstrained => json!({"kueue.x-k8s.io/podset-unconstrained-topology": "true"}),
        }
    }
}

/// Which labels the nodes of a cluster have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NodeLabels {
    /// None: the fleet has no topology.
    None,
    /// Only the label of the pool.
    Pool,
    /// The label of the pool and those of all levels.
    Topology,
}

impl NodeLabels {
    /// The labels of a cluster. The first cluster always has all, so that every job fits somewhere.
    pub(crate) fn of(scenario: &Scenario, cluster: usize) -> Self {
        let stream = format!("topology of {cluster}");
        match scenario.topology {
            false => Self::None,
            true if cluster == 0 || Random::new(scenario.seed, &stream).permille(700) => Self::Topology,
            true => Self::Pool,
        }
    }

    /// The labels of a node.
    pub(crate) fn labels(self, node: &str) -> BTreeMap<String, String> {
        let label = |(key, value): (&str, &str)| (key.to_owned(), value.to_owned());
        match self {
            Self::None => BTreeMap::new(),
            Self::Pool => BTreeMap::from([label(POOL)]),
            Self::Topology => LEVELS
                .iter()
                .enumerate()
                .map(|(level, key)| label((key, &domain(node, level))))
                .chain([label(POOL)])
                .collect(),
        }
    }
}

/// The domain of a node at a level. Nodes that a provider makes share a rack.
pub(crate) fn domain(node: &str, level: usize) -> String {
    let number: Option<u32> = node.strip_prefix('n').and_then(|number| number.parse().ok());
    match (level, number) {
        (0, Some(number)) => format!("b{}", number / BLOCK),
        (1, Some(number)) => format!("r{}", number / RACK),
        (0 | 1, None) => "made".to_owned(),
        _ => node.to_owned(),
    }
}

/// The `Topology` object.
pub(crate) fn topology_manifest() -> Value {
    let levels: Vec<Value> = LEVELS.iter().map(|label| json!({"nodeLabel": label})).collect();
    json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Topology", "metadata": {"name": "default"},
        "spec": {"levels": levels},
    })
}

/// The spec of a flavor with this topology.
pub(crate) fn flavor_spec() -> Value {
    json!({"nodeLabels": {POOL.0: POOL.1}, "topologyName": "default"})
}
