//! Fleet files: the nodes of one cluster, or of every cluster that `meridian up --fleet` starts.
//!
//! ```yaml
//! clusters:                        # for a single agent: one such entry, without `clusters:`
//! - cluster: eu
//!   region: europe-west4
//!   jurisdiction: EU
//!   nodes:
//!   - namePrefix: t4               # or `name`, without `count`
//!     count: 4
//!     accelerators: {nvidia.com/gpu: 1}
//!     cpu: 4
//!     memory: 15Gi
//!     resources: {ephemeral-storage: 100Gi}   # anything else; this much disk is the default
//!     labels: {cloud.google.com/gke-accelerator: nvidia-tesla-t4}
//!     taints: [{key: nvidia.com/gpu, value: present, effect: NoSchedule}]
//!                                  # `NoExecute` evicts running pods, from `timeAdded` on (RFC 3339), or
//!                                  # else from the moment at which the agent reads it
//!     ready: true                  # false: the node failed, and its pods need another node
//!     unschedulable: false         # true: nothing new is placed on it
//!   provisionable:
//!   - name: t4-flex
//!     capacityClass: flex-start
//!     perNode: {cpu: 4, memory: 15Gi, nvidia.com/gpu: 1}
//!     maxNodes: 4                  # nodes that are requested or exist
//!     simulated:                   # the simulated provider's answers; every length is divided by its speed
//!       wait: {least: 30s, most: 3m}           # time in the queue, drawn; these are the defaults
//!       stockOuts: [{from: 0s, for: 5m}]       # since the agent's start; without `for`, for ever
//!       quota: 4                   # nodes of the pool that exist at once in this region; default: no limit
//!       requestLimit: 100          # open requests in this region; more are not queued
//!       boot: 0s                   # from the end of the wait until nodes are ready
//!       bookingExpiry: 10m         # nodes without a grant go back
//!       maxRun: 7d                 # then nodes are revoked
//!       seed: 7                    # of the drawn waits; default: another one at each start
//! ```
//! Every error names file, line and column. A file with an error is not used at all.

mod conflict;
mod pool;

use super::quantity::Quantity;
use conflict::{Conflict, amounts, conflict, with_disk};
use meridian_agent_core::runtime::{NodePool, NodeSpec};
use meridian_objects::settings::{self, SettingsError};
use meridian_shared::gang::{Amounts, Taint, TaintEffect};
use meridian_shared::ids::{ClusterName, Jurisdiction, Region};
use meridian_shared::packing::HOSTNAME_LABEL;
use meridian_shared::time::Wall;
use pool::RawPool;
use serde::Deserialize;
use serde_saphyr::Spanned;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Largest fleet file.
const FILE_BYTES_MAX: u64 = 16 << 20;
/// Nodes of one cluster: more than any Kubernetes cluster has.
const NODES_MAX: usize = 100_000;
/// The label of a node's region.
const REGION_LABEL: &str = "topology.kubernetes.io/region";

/// Why a fleet file can't be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot read fleet file `{path}`: {source}")]
    Read {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    /// The file doesn't have the form of a fleet file.
    #[error("{file}:{slip}")]
    Shape { file: String, slip: Box<SettingsError> },
    /// A value contradicts another one, or a bound.
    #[error("{file}:{line}:{column}: {what}")]
    Content {
        file: String,
        line: u64,
        /// Line and column count from 1.
        column: u64,
        /// The error and its remedy.
        what: String,
    },
}

/// One cluster of a fleet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FleetCluster {
    pub cluster: ClusterName,
    pub region: Region,
    pub jurisdiction: Jurisdiction,
    /// In the order of the file.
    pub nodes: Vec<NodeSpec>,
    /// Pools that can grow from zero.
    pub provisionable: Vec<NodePool>,
}

/// Reads the fleet file at `path`. Fails if it can't be read, or with the first error in it.
pub fn load(path: &Path) -> Result<Vec<FleetCluster>, Error> {
    let failed = |source| Error::Read { path: path.to_owned(), source };
    if std::fs::metadata(path).map_err(failed)?.len() > FILE_BYTES_MAX {
        return Err(failed(std::io::Error::other(format!("it is larger than {FILE_BYTES_MAX} bytes"))));
    }
    parse(&path.display().to_string(), &std::fs::read_to_string(path).map_err(failed)?)
}

/// Parses the text of a fleet file: one cluster, or a list under `clusters`. Errors call the file `file`.
/// Fails with the first error.
pub fn parse(file: &str, text: &str) -> Result<Vec<FleetCluster>, Error> {
    let raw: RawFile =
        settings::read(text).map_err(|slip| Error::Shape { file: file.to_owned(), slip: Box::new(slip) })?;
    checked(raw).map_err(|Conflict { at, what }| {
        let (line, column) = at.map_or((1, 1), |at| (at.line(), at.column()));
        Error::Content { file: file.to_owned(), line, column, what }
    })
}

fn checked(raw: RawFile) -> Result<Vec<FleetCluster>, Conflict> {
    let clusters = match (raw.clusters, raw.cluster) {
        (Some(list), None)
            if raw.region.is_none()
                && raw.jurisdiction.is_none()
                && raw.nodes.is_empty()
                && raw.provisionable.is_empty() =>
        {
            list
        }
        (Some(list), _) => {
            return Err(conflict(
                list.first().map(|c| c.cluster.referenced),
                "a fleet file has either `clusters` or the fields of one cluster, not both",
            ));
        }
        (None, Some(cluster)) => {
            let missing = |field| {
                conflict(Some(cluster.referenced), format!("cluster `{}` has no `{field}`", cluster.value))
            };
            let region = raw.region.ok_or_else(|| missing("region"))?;
            let jurisdiction = raw.jurisdiction.ok_or_else(|| missing("jurisdiction"))?;
            vec![RawCluster {
                cluster,
                region,
                jurisdiction,
                nodes: raw.nodes,
                provisionable: raw.provisionable,
            }]
        }
        (None, None) => return Err(conflict(None, "there is neither `cluster` nor `clusters`")),
    };
    let mut names = BTreeSet::new();
    for cluster in &clusters {
        if cluster.cluster.value.is_empty() || !names.insert(cluster.cluster.value.clone()) {
            return Err(conflict(
                Some(cluster.cluster.referenced),
                format!("cluster name `{}` is empty or appears twice", cluster.cluster.value),
            ));
        }
    }
    clusters.into_iter().map(RawCluster::check).collect()
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RawFile {
    clusters: Option<Vec<RawCluster>>,
    cluster: Option<Spanned<String>>,
    region: Option<String>,
    jurisdiction: Option<String>,
    #[serde(default)]
    nodes: Vec<RawNodes>,
    #[serde(default)]
    provisionable: Vec<RawPool>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RawCluster {
    cluster: Spanned<String>,
    region: String,
    jurisdiction: String,
    #[serde(default)]
    nodes: Vec<RawNodes>,
    #[serde(default)]
    provisionable: Vec<RawPool>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RawNodes {
    name: Option<Spanned<String>>,
    name_prefix: Option<Spanned<String>>,
    count: Option<Spanned<u32>>,
    #[serde(default)]
    accelerators: BTreeMap<String, Quantity>,
    cpu: Spanned<Quantity>,
    memory: Quantity,
    /// Anything else, such as `ephemeral-storage`.
    #[serde(default)]
    resources: BTreeMap<String, Quantity>,
    #[serde(default)]
    labels: BTreeMap<String, String>,
    #[serde(default)]
    taints: Vec<RawTaint>,
    #[serde(default = "yes")]
    ready: bool,
    #[serde(default)]
    unschedulable: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawTaint {
    key: String,
    #[serde(default)]
    value: String,
    effect: TaintEffect,
    #[serde(default, deserialize_with = "timestamp")]
    time_added: Option<jiff::Timestamp>,
}

fn timestamp<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<jiff::Timestamp>, D::Error> {
    let Some(text) = Option::<String>::deserialize(from)? else { return Ok(None) };
    let wrong =
        |_| serde::de::Error::custom(format!("`{text}` is not a time: write it as `2026-06-01T12:00:00Z`"));
    text.parse().map(Some).map_err(wrong)
}

impl RawTaint {
    /// The taint, and when it appeared if the file says so.
    fn split(self) -> (Taint, Option<Wall>) {
        let Self { key, value, effect, time_added } = self;
        (Taint { key, value, effect }, time_added.map(|at| Wall(at.as_millisecond())))
    }
}

const fn yes() -> bool {
    true
}

impl RawCluster {
    fn check(self) -> Result<FleetCluster, Conflict> {
        let mut nodes = Vec::new();
        let mut names = BTreeSet::new();
        for group in self.nodes {
            group.expand(&self.region, &mut names, &mut nodes)?;
        }
        Ok(FleetCluster {
            cluster: ClusterName::new(&self.cluster.value),
            region: Region::new(&self.region),
            jurisdiction: Jurisdiction::new(&self.jurisdiction),
            nodes,
            provisionable: pool::checked(self.provisionable)?,
        })
    }
}

impl RawNodes {
    /// Adds each node of this group.
    fn expand(
        self,
        region: &str,
        names: &mut BTreeSet<String>,
        nodes: &mut Vec<NodeSpec>,
    ) -> Result<(), Conflict> {
        let at = self.cpu.referenced;
        let (own, at) = match (self.name, self.name_prefix, self.count) {
            (Some(name), None, None) => (vec![name.value], name.referenced),
            (None, Some(prefix), Some(count)) => {
                if nodes.len().saturating_add(count.value as usize) > NODES_MAX {
                    return Err(conflict(
                        Some(count.referenced),
                        format!("a cluster has at most {NODES_MAX} nodes"),
                    ));
                }
                ((0..count.value).map(|i| format!("{}-{i}", prefix.value)).collect(), prefix.referenced)
            }
            _ => {
                return Err(conflict(
                    Some(at),
                    "nodes have either a `name`, or a `namePrefix` and a `count`",
                ));
            }
        };
        let mut all = self.accelerators;
        all.extend(self.resources);
        let doubled = all.insert("cpu".into(), self.cpu.value).is_some()
            | all.insert("memory".into(), self.memory).is_some();
        if doubled {
            return Err(conflict(
                Some(at),
                "`cpu` and `memory` have their own fields: remove them from `accelerators` and `resources`",
            ));
        }
        let capacity = with_disk(amounts(all, at)?);
        let taints: Vec<(Taint, Option<Wall>)> = self.taints.into_iter().map(RawTaint::split).collect();
        let added: Vec<(Taint, Wall)> =
            taints.iter().filter_map(|(taint, at)| at.map(|at| (taint.clone(), at))).collect();
        let taints: Vec<Taint> = taints.into_iter().map(|(taint, _)| taint).collect();
        for name in own {
            if name.is_empty() || name.starts_with('-') || !names.insert(name.clone()) {
                return Err(conflict(Some(at), format!("node name `{name}` is empty or appears twice")));
            }
            let mut labels = self.labels.clone();
            labels.entry(HOSTNAME_LABEL.into()).or_insert_with(|| name.clone());
            labels.entry(REGION_LABEL.into()).or_insert_with(|| region.to_owned());
            nodes.push(NodeSpec {
                name,
                labels,
                taints: taints.clone(),
                added: added.clone(),
                capacity: capacity.clone(),
                foreign_use: Amounts::new(),
                unready: !self.ready,
                unschedulable: self.unschedulable,
            });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use meridian_agent_core::runtime::{SimulatedPool, StockOut};

    use meridian_shared::time::Millis;

    const ONE: &str = "\
cluster: eu
region: europe-west4
jurisdiction: EU
nodes:
- namePrefix: t4
  count: 2
  accelerators: {nvidia.com/gpu: 4}
  cpu: 3500m
  memory: 15Gi
  labels: {pool: a}
  taints: [{key: nvidia.com/gpu, value: present, effect: NoSchedule}]
- {name: big, cpu: 96, memory: 1.5Ti, resources: {ephemeral-storage: 1e3}, ready: false, unschedulable: true}
provisionable:
- name: t4-flex
  capacityClass: flex-start
  perNode: {cpu: \"4\", memory: 15Gi, nvidia.com/gpu: \"1\"}
  maxNodes: 4
";

    #[test]
    fn one_cluster_or_a_list() {
        let one = parse("f.yaml", ONE).unwrap();
        let indented: String = ONE.lines().map(|l| format!("  {l}\n")).collect();
        let list = parse("f.yaml", &format!("clusters:\n-{}", &indented[1..])).unwrap();
        assert_eq!(one, list);
        let FleetCluster { nodes, provisionable, .. } = &one[0];
        assert_eq!(nodes.iter().map(|n| n.name.as_str()).collect::<Vec<_>>(), ["t4-0", "t4-1", "big"]);
        assert_eq!(
            nodes[0].capacity,
            Amounts::from([
                ("cpu".into(), 3_500),
                ("ephemeral-storage".into(), 100 << 30),
                ("memory".into(), 15 << 30),
                ("nvidia.com/gpu".into(), 4),
            ])
        );
        assert_eq!(nodes[0].taints[0].effect, TaintEffect::NoSchedule);
        assert_eq!(
            (nodes[0].labels["pool"].as_str(), nodes[0].labels[HOSTNAME_LABEL].as_str()),
            ("a", "t4-0")
        );
        assert_eq!(nodes[2].capacity["ephemeral-storage"], 1_000);
        assert_eq!(
            nodes.iter().map(|n| (!n.unready, n.unschedulable)).collect::<Vec<_>>(),
            [(true, false), (true, false), (false, true)]
        );
        assert_eq!((provisionable[0].per_node["cpu"], provisionable[0].max_nodes), (4_000, 4));
        assert_eq!(provisionable[0].per_node["ephemeral-storage"], 100 << 30);
    }

    #[test]
    fn a_taint_may_say_when_it_appeared() {
        let text = ONE.replacen(
            "value: present, effect: NoSchedule",
            "effect: NoExecute, timeAdded: 2026-06-01T12:00:00.5+02:00",
            1,
        );
        let nodes = &parse("f.yaml", &text).unwrap()[0].nodes;
        let taint =
            Taint { key: "nvidia.com/gpu".into(), value: String::new(), effect: TaintEffect::NoExecute };
        assert_eq!(
            (&nodes[0].taints, &nodes[1].added),
            (&vec![taint.clone()], &vec![(taint, Wall(1_780_308_000_500))])
        );
        assert_eq!((nodes[2].taints.len(), nodes[2].added.len()), (0, 0));
    }

    const SIMULATED: &str = "  simulated:
    wait: {least: 1m, most: 2m}
    stockOuts: [{for: 5m}, {from: 1h}]
    quota: 4
    requestLimit: 2
    boot: 90s
    bookingExpiry: 1d
    maxRun: 2h
    seed: 7
";

    #[test]
    fn a_pool_says_how_it_is_simulated() {
        let pool = |text: &str| parse("f.yaml", text).unwrap()[0].provisionable[0].simulated.clone();
        assert_eq!(pool(ONE), SimulatedPool::default());
        let (start, day) = (Millis(0), Millis::mins(24 * 60));
        let stock_outs = vec![
            StockOut { from: start, lasts: Some(Millis::mins(5)) },
            StockOut { from: Millis::mins(60), lasts: None },
        ];
        assert_eq!(
            pool(&format!("{ONE}{SIMULATED}")),
            SimulatedPool {
                wait_least: Millis::mins(1),
                wait_most: Millis::mins(2),
                stock_outs,
                quota: Some(4),
                request_limit: 2,
                boot: Millis::secs(90),
                booking_expiry: day,
                max_run: Millis::mins(120),
                seed: Some(7),
            }
        );
    }

    #[test]
    fn errors_in_simulated_pools_name_the_line_and_a_remedy() {
        for (from, to, line, says) in [
            (
                "least: 1m",
                "least: 3m",
                19,
                "`wait.least` is 3m, more than `wait.most`, which is 2m: swap them",
            ),
            ("least: 1m, ", "", 19, "`least` is missing"),
            ("most: 2m", "most: soon", 19, "`soon` is not a length of time: write a number with a unit"),
            ("{for: 5m}", "{for: 5}", 20, "`5` is not a length of time"),
            ("{for: 5m}", "{until: 5m}", 20, "`until` is not known here"),
            ("quota: 4", "quota: -1", 21, "a whole number"),
            ("requestLimit: 2", "requestLimit: 0", 22, "write at least 1"),
            ("boot: 90s", "boot: 400d", 23, "at most a year"),
            ("bookingExpiry: 1d", "bookingExpiry: 0s", 24, "`bookingExpiry` is 0"),
            ("maxRun: 2h", "maxRun: 0m", 25, "write a longer time"),
            ("seed: 7", "sead: 7", 26, "did you mean `seed`?"),
        ] {
            let text = format!("{ONE}{SIMULATED}").replacen(from, to, 1);
            let error = parse("f.yaml", &text).unwrap_err().to_string();
            assert!(
                error.contains(&format!("f.yaml:{line}:")) && error.contains(says),
                "{from:?} -> {to:?}: {error}"
            );
        }
    }

    #[test]
    fn errors_name_the_line() {
        for (from, to, line, says) in [
            ("  count: 2\n", "  cuont: 2\n", 6, "cuont"),
            ("cpu: 3500m", "cpu: lots", 8, "`lots`"),
            ("  count: 2\n", "", 7, "namePrefix"),
            ("effect: NoSchedule", "effect: Never", 11, "Never"),
            ("effect: NoSchedule", "effect: NoExecute, timeAdded: yesterday", 11, "yesterday"),
            ("{name: big,", "{name: t4-1,", 12, "twice"),
            ("count: 2", "count: 4000000000", 6, "at most"),
            ("region: europe-west4\n", "", 1, "`region`"),
            ("accelerators: {nvidia.com/gpu: 4}", "accelerators: {cpu: 4}", 5, "own fields"),
        ] {
            let text = ONE.replacen(from, to, 1);
            let error = parse("f.yaml", &text).unwrap_err().to_string();
            assert!(
                error.contains(&format!("f.yaml:{line}:")) && error.contains(says),
                "{from:?} -> {to:?}: {error}"
            );
        }
        assert!(parse("f.yaml", "{}").unwrap_err().to_string().contains("neither"));
    }
}
