//! Our own kinds: worker clusters, residency policies, dispatch policies.
//!
//! These are read strictly: an unknown field is an error, because a mistyped `deny` or `limits` must not be a no-op.
//!
//! # What a residency policy means
//! It *applies* to a workload when any of its `applies` criteria hits: the namespace is listed, the namespace's labels
//! match `namespaceSelector`, the queue is listed, or the workload's labels match `workloadSelector`. Criteria are
//! alternatives, so that a missing label or another queue never loosens what the namespace binds. An empty list or an
//! empty selector is an unused criterion; a policy without any criterion applies to every workload.
//!
//! It *permits* a cluster when `deny` names neither the cluster nor its region nor its jurisdiction, and either there is
//! no `allow`, or `allow` names at least one of the three. `deny` beats `allow`. An `allow` with no entries permits
//! nothing. All policies that apply must permit.

use super::scheduling::{amounts, labels, selector, taint};
use crate::field::{Fields, Item};
use crate::names;
use meridian_shared::gang::{Amounts, LabelSelector, Taint};
use meridian_shared::ids::{ClusterName, Jurisdiction, Region};
use meridian_shared::time::Millis;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Most entries of any list of a policy.
const MAX_ENTRIES: usize = 1_000;
/// Most pools of a cluster that grow from zero.
const MAX_POOLS: usize = 100;
/// Most nodes of such a pool; more than the largest cluster has.
const MAX_NODES: i64 = 100_000;
/// Longest region or jurisdiction, in characters.
const MAX_PLACE_CHARS: usize = 63;
/// Shortest lease term: the protocol's T_min is a minute, the demo's 8 s; below that no numbers fit.
const MIN_TERM: Millis = Millis::secs(4);
/// Term of leases when a policy states none.
const USUAL_TERM: Millis = Millis::mins(15);
/// Time from the grant to running when a policy states none.
const USUAL_START_TIMEOUT: Millis = Millis::mins(10);
/// Pause between steps of a staged dispatch when a policy states none.
const USUAL_INTERVAL: Millis = Millis::mins(5);

/// How capacity is bought.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CapacityClass {
    /// Reserved beforehand.
    Reservation,
    /// Queued, for a bounded time.
    FlexStart,
    /// Whenever there is some.
    OnDemand,
    /// Cheap, and may be taken away.
    Spot,
}

impl CapacityClass {
    const WORDS: [(&'static str, Self); 4] = [
        ("reservation", Self::Reservation),
        ("flex-start", Self::FlexStart),
        ("on-demand", Self::OnDemand),
        ("spot", Self::Spot),
    ];
}

impl fmt::Display for CapacityClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Reservation => "reservation",
            Self::FlexStart => "flex-start",
            Self::OnDemand => "on-demand",
            Self::Spot => "spot",
        })
    }
}

/// Where a cluster's machines come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ProviderKind {
    /// They are there.
    #[default]
    Static,
    /// They are asked for by provisioning requests.
    ProvisioningRequest,
    /// They are made up, for demos and tests.
    Simulated,
}

/// A cluster's provider.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Provider {
    /// Its kind.
    pub kind: ProviderKind,
    /// The provisioning class, for [`ProviderKind::ProvisioningRequest`].
    pub class_name: Option<String>,
}

/// A pool that grows from zero.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Provisionable {
    /// Its name, unique within the cluster.
    pub name: String,
    /// How its capacity is bought.
    pub capacity_class: CapacityClass,
    /// Labels of its nodes.
    pub labels: BTreeMap<String, String>,
    /// Taints of its nodes.
    pub taints: Vec<Taint>,
    /// What one node has.
    pub per_node: Amounts,
    /// Most nodes.
    pub max_nodes: u32,
}

/// A worker cluster: where it is and what it may be believed to have.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClusterSpec {
    /// Its region.
    pub region: Region,
    /// Its legal area.
    pub jurisdiction: Jurisdiction,
    /// Never believed to have more, whatever it reports. A resource that is not listed is not capped.
    pub limits: Amounts,
    /// Its provider.
    pub provider: Provider,
    /// Pools that grow from zero.
    pub provisionable: Vec<Provisionable>,
    /// Whether nothing new goes there.
    pub cordoned: bool,
}

/// Which workloads a residency policy is about; see the module's head.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Applies {
    /// Namespaces by name.
    pub namespaces: BTreeSet<String>,
    /// Namespaces by label.
    pub namespace_selector: LabelSelector,
    /// Local or cluster queues by name.
    pub queues: BTreeSet<String>,
    /// Workloads by label.
    pub workload_selector: LabelSelector,
}

impl Applies {
    /// Whether a workload is meant. `queues` are the names of its local queue and of the cluster queue behind it.
    pub fn matches(
        &self,
        namespace: &str,
        namespace_labels: &BTreeMap<String, String>,
        queues: &[&str],
        labels: &BTreeMap<String, String>,
    ) -> bool {
        let none = LabelSelector::default();
        let selects = |selector: &LabelSelector, labels| *selector != none && selector.matches(labels);
        *self == Self::default()
            || self.namespaces.contains(namespace)
            || selects(&self.namespace_selector, namespace_labels)
            || queues.iter().any(|queue| self.queues.contains(*queue))
            || selects(&self.workload_selector, labels)
    }
}

/// Jurisdictions, regions and clusters: a place is meant when any of the three is listed.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Places {
    /// Legal areas.
    pub jurisdictions: BTreeSet<Jurisdiction>,
    /// Regions.
    pub regions: BTreeSet<Region>,
    /// Clusters.
    pub clusters: BTreeSet<ClusterName>,
}

impl Places {
    /// Whether the cluster, its region or its jurisdiction is listed.
    pub fn contains(&self, cluster: &ClusterName, region: &Region, jurisdiction: &Jurisdiction) -> bool {
        self.clusters.contains(cluster)
            || self.regions.contains(region)
            || self.jurisdictions.contains(jurisdiction)
    }

    /// Whether nothing is listed.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// What a changed policy does to what already runs where it no longer may.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum OnChange {
    /// It is evicted.
    #[default]
    Evict,
    /// It is reported.
    Flag,
}

/// Why a policy does not permit a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Refusal {
    /// `deny` names it.
    Denied,
    /// `allow` does not name it.
    NotAllowed,
}

/// Where workloads may and must not go; see the module's head.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ResidencyPolicySpec {
    /// Which workloads it is about.
    pub applies: Applies,
    /// The only places that are permitted, where this is written; with no entries, none is.
    pub allow: Option<Places>,
    /// Places that are not permitted.
    pub deny: Places,
    /// What happens to what runs when the policy changes.
    pub on_change: OnChange,
}

impl ResidencyPolicySpec {
    /// Whether the policy lets a workload that it applies to go to this cluster.
    pub fn permits(
        &self,
        cluster: &ClusterName,
        region: &Region,
        jurisdiction: &Jurisdiction,
    ) -> Result<(), Refusal> {
        if self.deny.contains(cluster, region, jurisdiction) {
            return Err(Refusal::Denied);
        }
        match &self.allow {
            Some(allow) if !allow.contains(cluster, region, jurisdiction) => Err(Refusal::NotAllowed),
            _ => Ok(()),
        }
    }
}

/// How a workload finds its cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DispatchMode {
    /// The best cluster that reports room for the whole gang.
    #[default]
    Direct,
    /// All of them are asked; the first hold wins.
    Race,
    /// A few at a time.
    Staged,
}

/// The steps of [`DispatchMode::Staged`].
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Staged {
    /// Clusters that are asked together.
    pub clusters_at_once: u32,
    /// Pause before the next ones are asked too.
    pub interval: Millis,
}

impl Default for Staged {
    fn default() -> Self {
        Self { clusters_at_once: 1, interval: USUAL_INTERVAL }
    }
}

/// What makes one cluster better than another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Preference {
    /// It has the room now.
    StartsNow,
    /// It costs less.
    LowestCost,
    /// It has more room left.
    Emptiest,
}

/// What happens to a workload whose cluster is lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ClusterLossMode {
    /// It is started elsewhere once its lease has provably lapsed.
    #[default]
    Fence,
    /// It waits for the cluster.
    Wait,
}

/// What a cluster must have to be given leases.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Supervision {
    /// An agent that stops gangs at the lapse.
    #[default]
    Supervised,
    /// A guard beside every gang that does so even when the agent is dead.
    Guarded,
}

/// Cluster loss.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OnClusterLoss {
    /// What happens.
    pub mode: ClusterLossMode,
    /// Term of the leases.
    pub term: Millis,
    /// What a cluster must have.
    pub requires: Supervision,
}

impl Default for OnClusterLoss {
    fn default() -> Self {
        Self { mode: ClusterLossMode::default(), term: USUAL_TERM, requires: Supervision::default() }
    }
}

/// Whether a gang that only waits at a provider keeps its quota.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum QuotaWhileWaiting {
    /// It does, as in Kueue.
    #[default]
    Keep,
    /// It gives it back after this time and wins it again with the hold.
    ReleaseAfter(Millis),
}

/// How workloads are dispatched.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DispatchPolicySpec {
    /// Queues it is about; `*` is all.
    pub queues: BTreeSet<String>,
    /// How a workload finds its cluster.
    pub mode: DispatchMode,
    /// The steps of a staged dispatch.
    pub staged: Staged,
    /// Capacity classes in the order in which they are tried; empty leaves the order to the cluster.
    pub capacity_classes: Vec<CapacityClass>,
    /// What makes a cluster better, most important first.
    pub prefer: Vec<Preference>,
    /// Cluster loss.
    pub on_cluster_loss: OnClusterLoss,
    /// Quota while a provider is waited for.
    pub quota_while_waiting: QuotaWhileWaiting,
    /// Longest time from the grant to running.
    pub start_timeout: Millis,
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
            start_timeout: USUAL_START_TIMEOUT,
        }
    }
}

impl DispatchPolicySpec {
    /// Whether it is about a workload of one of these queues (the local queue and the cluster queue behind it).
    pub fn applies_to(&self, queues: &[&str]) -> bool {
        self.queues.contains("*") || queues.iter().any(|queue| self.queues.contains(*queue))
    }
}

fn place(item: &Item<'_>) -> Option<String> {
    let text = item.text()?;
    let sound = !text.is_empty()
        && text.chars().count() <= MAX_PLACE_CHARS
        && !text.chars().any(|c| c.is_control() || c.is_whitespace() || c == ',');
    if !sound {
        item.error(
            format!("`{}` is not a region or jurisdiction", text.escape_debug()),
            "write one word, such as `europe-west4` or `EU`",
        );
        return None;
    }
    Some(text.to_owned())
}

pub(crate) fn read_cluster(root: &Fields<'_>) -> ClusterSpec {
    root.findings().set_strict();
    let mut read = ClusterSpec {
        region: Region::new(""),
        jurisdiction: Jurisdiction::new(""),
        limits: Amounts::new(),
        provider: Provider::default(),
        provisionable: Vec::new(),
        cordoned: false,
    };
    let Some(spec) = root.require("spec").and_then(|item| item.fields()) else { return read };
    read.region = Region::new(spec.require("region").and_then(|item| place(&item)).unwrap_or_default());
    read.jurisdiction =
        Jurisdiction::new(spec.require("jurisdiction").and_then(|item| place(&item)).unwrap_or_default());
    read.limits = amounts(&spec, "limits");
    read.provider = spec.fields("provider").map(read_provider).unwrap_or_default();
    read.provisionable = read_pools(&spec);
    read.cordoned = spec.flag("cordoned");
    spec.finish();
    read
}

fn read_provider(provider: Fields<'_>) -> Provider {
    let kinds = [
        ("Static", ProviderKind::Static),
        ("ProvisioningRequest", ProviderKind::ProvisioningRequest),
        ("Simulated", ProviderKind::Simulated),
    ];
    let kind = provider.require("kind").and_then(|item| item.word(&kinds)).unwrap_or_default();
    let class_name = provider.get("className").and_then(|item| super::scheduling::reference(&item));
    if kind == ProviderKind::ProvisioningRequest && class_name.is_none() {
        provider.error(
            "className",
            "is missing",
            "name the provisioning class, such as `queued-provisioning.gke.io`",
        );
    }
    provider.finish();
    Provider { kind, class_name }
}

fn read_pools(spec: &Fields<'_>) -> Vec<Provisionable> {
    let mut names: BTreeSet<String> = BTreeSet::new();
    spec.list("provisionable", MAX_POOLS, |item| {
        let pool = item.fields()?;
        let name = pool.require_text("name").map(str::to_owned);
        let class = pool.require("capacityClass").and_then(|item| item.word(&CapacityClass::WORDS));
        let max_nodes = pool
            .require("maxNodes")
            .and_then(|item| item.int(1, MAX_NODES))
            .and_then(|nodes| u32::try_from(nodes).ok());
        let per_node = amounts(&pool, "perNode");
        if per_node.is_empty() {
            pool.error(
                "perNode",
                "is missing",
                "write what one node has, such as `{cpu: \"4\", nvidia.com/gpu: \"1\"}`",
            );
        }
        let labels = labels(&pool, "labels");
        let taints = pool.list("taints", MAX_ENTRIES, |item| taint(&item));
        if let Some(name) = name.as_ref().filter(|name| !names.insert((*name).clone())) {
            pool.error("name", format!("`{name}` is there twice"), "give every pool a name of its own");
        }
        pool.finish();
        Some(Provisionable {
            name: name?,
            capacity_class: class?,
            labels,
            taints,
            per_node,
            max_nodes: max_nodes?,
        })
    })
}

pub(crate) fn read_residency(root: &Fields<'_>) -> ResidencyPolicySpec {
    root.findings().set_strict();
    let Some(spec) = root.require("spec").and_then(|item| item.fields()) else {
        return ResidencyPolicySpec::default();
    };
    let applies = spec.fields("applies").map(|applies| {
        let set = |name: &'static str| applies.names(name, MAX_ENTRIES).into_iter().collect();
        let read = Applies {
            namespaces: set("namespaces"),
            namespace_selector: applies
                .get("namespaceSelector")
                .and_then(|item| selector(&item))
                .unwrap_or_default(),
            queues: set("queues"),
            workload_selector: applies
                .get("workloadSelector")
                .and_then(|item| selector(&item))
                .unwrap_or_default(),
        };
        applies.finish();
        read
    });
    let allow = spec.fields("allow").map(read_places);
    if allow.is_none() && spec.is_written("allow") && !spec.findings().has_errors() {
        // Kubernetes reads null as absent; here that would turn "only there" into "anywhere"
        spec.error(
            "allow",
            "is empty",
            "write the places, or leave `allow` out to allow every place that is not denied",
        );
    }
    if allow.as_ref().is_some_and(Places::is_empty) {
        spec.warn(
            "allow",
            "names no place, so no place is allowed",
            "name the places, or leave `allow` out to allow every place that is not denied",
        );
    }
    let read = ResidencyPolicySpec {
        applies: applies.unwrap_or_default(),
        allow,
        deny: spec.fields("deny").map(read_places).unwrap_or_default(),
        on_change: spec
            .get("onChange")
            .and_then(|item| item.word(&[("Evict", OnChange::Evict), ("Flag", OnChange::Flag)]))
            .unwrap_or_default(),
    };
    spec.finish();
    read
}

fn read_places(places: Fields<'_>) -> Places {
    let read = Places {
        jurisdictions: places
            .list("jurisdictions", MAX_ENTRIES, |item| place(&item).map(Jurisdiction::new))
            .into_iter()
            .collect(),
        regions: places
            .list("regions", MAX_ENTRIES, |item| place(&item).map(Region::new))
            .into_iter()
            .collect(),
        clusters: places
            .list("clusters", MAX_ENTRIES, |item| {
                let name = item.text()?;
                if !names::is_dns_subdomain(name) {
                    item.error(
                        format!("`{name}` is not a cluster's name"),
                        "use lower-case letters, digits, `-` and `.`",
                    );
                }
                Some(ClusterName::new(name))
            })
            .into_iter()
            .collect(),
    };
    places.finish();
    read
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
        start_timeout: spec.duration("startTimeout").unwrap_or(usual.start_timeout),
    };
    if read.capacity_classes.iter().collect::<BTreeSet<_>>().len() < read.capacity_classes.len() {
        spec.error("capacityClasses", "names a class twice", "name every class once");
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
    let usual = OnClusterLoss::default();
    let modes = [("Fence", ClusterLossMode::Fence), ("Wait", ClusterLossMode::Wait)];
    let supervisions = [("Supervised", Supervision::Supervised), ("Guarded", Supervision::Guarded)];
    let read = OnClusterLoss {
        mode: loss.get("mode").and_then(|item| item.word(&modes)).unwrap_or_default(),
        term: loss.duration("term").unwrap_or(usual.term),
        requires: loss.get("requires").and_then(|item| item.word(&supervisions)).unwrap_or_default(),
    };
    if read.term < MIN_TERM {
        loss.error("term", format!("`{}` is too short", read.term), format!("the least is {MIN_TERM}"));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn criteria_are_alternatives_and_none_means_all() {
        let personal = BTreeMap::from([("data".to_owned(), "personal".to_owned())]);
        let none = BTreeMap::new();
        let applies = Applies {
            namespaces: BTreeSet::from(["research".to_owned()]),
            namespace_selector: LabelSelector {
                match_labels: personal.clone(),
                match_expressions: Vec::new(),
            },
            queues: BTreeSet::from(["q".to_owned()]),
            workload_selector: LabelSelector::default(),
        };
        assert!(applies.matches("research", &none, &[], &none), "by name");
        assert!(applies.matches("other", &personal, &[], &none), "by label");
        assert!(applies.matches("other", &none, &["x", "q"], &none), "by queue");
        assert!(!applies.matches("other", &none, &["x"], &personal), "an empty workload selector is unused");
        assert!(Applies::default().matches("any", &none, &[], &none), "no criterion is every workload");
    }

    #[test]
    fn deny_beats_allow_and_an_empty_allow_permits_nothing() {
        let (cluster, region, eu) =
            (ClusterName::new("eu"), Region::new("europe-west4"), Jurisdiction::new("EU"));
        let check =
            |spec: &ResidencyPolicySpec, expect| assert_eq!(spec.permits(&cluster, &region, &eu), expect);
        let mut spec = ResidencyPolicySpec::default();
        check(&spec, Ok(()));
        spec.allow = Some(Places::default());
        check(&spec, Err(Refusal::NotAllowed));
        spec.allow = Some(Places { regions: BTreeSet::from([region.clone()]), ..Places::default() });
        check(&spec, Ok(()));
        spec.deny = Places { clusters: BTreeSet::from([cluster.clone()]), ..Places::default() };
        check(&spec, Err(Refusal::Denied));
        spec.allow = None;
        check(&spec, Err(Refusal::Denied));
    }
}
