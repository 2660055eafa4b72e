//! Dispatch policies.

use super::MAX_ENTRIES;
use super::cluster::CapacityClass;
use crate::fields::Fields;
use meridian_shared::time::Millis;
use std::collections::BTreeSet;

/// Shortest lease term. The protocol's T_min is a minute, the demo's 8 s; below 4 s the protocol's times
/// don't fit.
const MIN_TERM: Millis = Millis::secs(4);

/// Default pause between steps of a staged dispatch.
const USUAL_INTERVAL: Millis = Millis::mins(5);

/// How a workload's cluster is chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DispatchMode {
    /// Ask only the best cluster that reports enough capacity for the whole gang.
    #[default]
    Direct,
    /// Ask all clusters; the first hold wins.
    Race,
    /// Ask a few clusters at a time.
    Staged,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Staged {
    /// Clusters that are asked together.
    pub clusters_at_once: u32,
    /// Wait before the next group of clusters is asked.
    pub interval: Millis,
}

impl Default for Staged {
    fn default() -> Self {
        Self { clusters_at_once: 1, interval: USUAL_INTERVAL }
    }
}

/// Criterion that ranks clusters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Preference {
    /// Prefer a cluster in which the gang fits now.
    StartsNow,
    /// Prefer a cheaper cluster.
    LowestCost,
    /// Prefer a cluster with more free capacity.
    Emptiest,
}

/// What happens to a workload when its cluster is lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ClusterLossMode {
    /// The workload starts elsewhere once its lease has provably lapsed.
    #[default]
    Fence,
    /// The workload waits for the cluster to return.
    Wait,
}

/// Requirement for a cluster to get leases.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Supervision {
    /// An agent that stops gangs when their leases lapse.
    #[default]
    Supervised,
    /// A guard process for every gang, which stops it even when the agent is dead.
    Guarded,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OnClusterLoss {
    pub mode: ClusterLossMode,
    /// Term of the leases; `None` means the manager's `--term`.
    pub term: Option<Millis>,
    pub requires: Supervision,
}

/// Whether a gang that waits for a provider keeps its quota.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum QuotaWhileWaiting {
    /// As in Kueue.
    #[default]
    Keep,
    /// Quota is released after this time, and reserved again once a cluster holds capacity.
    ReleaseAfter(Millis),
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DispatchPolicySpec {
    /// Queues to which the policy applies; `*` means all.
    pub queues: BTreeSet<String>,
    pub mode: DispatchMode,
    pub staged: Staged,
    /// Order in which the queue's flavors are tried, by class. Empty keeps the queue's own order.
    pub capacity_classes: Vec<CapacityClass>,
    /// Most important first.
    pub prefer: Vec<Preference>,
    pub on_cluster_loss: OnClusterLoss,
    pub quota_while_waiting: QuotaWhileWaiting,
    /// Longest time from the grant to running; `None` means the manager's `--start-timeout`.
    pub start_timeout: Option<Millis>,
}

impl Default for DispatchPolicySpec {
    fn default() -> Self {
        Self {
            queues: BTreeSet::from(["*".to_owned()]),
            mode: DispatchMode::default(),
            staged: Staged::default(),
            capacity_classes: Vec::new(),
            prefer: vec![Preference::StartsNow, Preference::Emptiest],
            on_cluster_loss: OnClusterLoss::default(),
            quota_while_waiting: QuotaWhileWaiting::default(),
            start_timeout: None,
        }
    }
}

pub(crate) fn read_dispatch(root: &Fields<'_>) -> DispatchPolicySpec {
    root.findings().set_strict();
    let usual = DispatchPolicySpec::default();
    let Some(spec) = root.require("spec").and_then(|item| item.fields()) else { return usual };
    let queues: Option<BTreeSet<String>> = spec.fields("applies").map(|applies| {
        let queues = applies.names("queues", MAX_ENTRIES).into_iter().collect();
        applies.finish();
        queues
    });
    let modes =
        [("Direct", DispatchMode::Direct), ("Race", DispatchMode::Race), ("Staged", DispatchMode::Staged)];
    let preferences = [
        ("startsNow", Preference::StartsNow),
        ("lowestCost", Preference::LowestCost),
        ("emptiest", Preference::Emptiest),
    ];
    let prefer = spec.list("prefer", preferences.len(), |item| item.word(&preferences));
    let read = DispatchPolicySpec {
        queues: queues.filter(|queues| !queues.is_empty()).unwrap_or(usual.queues),
        mode: spec.get("mode").and_then(|item| item.word(&modes)).unwrap_or_default(),
        staged: spec.fields("staged").map(read_staged).unwrap_or_default(),
        capacity_classes: spec
            .list("capacityClasses", CapacityClass::WORDS.len(), |item| item.word(&CapacityClass::WORDS)),
        prefer: if prefer.is_empty() { usual.prefer } else { prefer },
        on_cluster_loss: spec.fields("onClusterLoss").map(read_loss).unwrap_or_default(),
        quota_while_waiting: read_quota_while_waiting(&spec),
        start_timeout: spec.duration("startTimeout"),
    };
    if read.capacity_classes.iter().collect::<BTreeSet<_>>().len() < read.capacity_classes.len() {
        spec.error("capacityClasses", "lists a class twice", "list every class once");
    }
    spec.finish();
    read
}

fn read_staged(staged: Fields<'_>) -> Staged {
    let usual = Staged::default();
    let at_once =
        staged.int("clustersAtOnce", 1, i64::from(u16::MAX)).and_then(|count| u32::try_from(count).ok());
    let read = Staged {
        clusters_at_once: at_once.unwrap_or(usual.clusters_at_once),
        interval: staged.duration("interval").unwrap_or(usual.interval),
    };
    staged.finish();
    read
}

fn read_loss(loss: Fields<'_>) -> OnClusterLoss {
    let modes = [("Fence", ClusterLossMode::Fence), ("Wait", ClusterLossMode::Wait)];
    let supervisions = [("Supervised", Supervision::Supervised), ("Guarded", Supervision::Guarded)];
    let read = OnClusterLoss {
        mode: loss.get("mode").and_then(|item| item.word(&modes)).unwrap_or_default(),
        term: loss.duration("term"),
        requires: loss.get("requires").and_then(|item| item.word(&supervisions)).unwrap_or_default(),
    };
    if let Some(term) = read.term.filter(|term| *term < MIN_TERM) {
        loss.error("term", format!("`{term}` is too short"), format!("the least is {MIN_TERM}"));
    }
    loss.finish();
    read
}

fn read_quota_while_waiting(spec: &Fields<'_>) -> QuotaWhileWaiting {
    let Some(item) = spec.get("quotaWhileWaiting") else { return QuotaWhileWaiting::default() };
    if item.value().is_string() {
        return item.word(&[("Keep", QuotaWhileWaiting::Keep)]).unwrap_or_default();
    }
    let Some(release) = item.fields() else { return QuotaWhileWaiting::default() };
    let after = release.duration("ReleaseAfter");
    if after.is_none() && !release.is_written("ReleaseAfter") {
        release.error("ReleaseAfter", "is missing", "write `Keep`, or `ReleaseAfter: 15m`");
    }
    release.finish();
    after.map_or(QuotaWhileWaiting::Keep, QuotaWhileWaiting::ReleaseAfter)
}
