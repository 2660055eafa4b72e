//! What is decided on: flavors, cluster queues, workloads.

use crate::amount::Amount;
use crate::names::{FlavorId, ResourceId, id};
use crate::tree::{CellId, NodeId, Quotas, TreeId, WEIGHT_ONE};
use meridian_shared::gang::{Amounts, LabelSelector, Requirement, Taint, Toleration};
use meridian_topology::{Assignment as Placed, PreferredTerm, TopologyRequest};
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A moment, in milliseconds since the Unix epoch. No moment is the earliest.
pub type Moment = i64;

/// The moment of what states none.
pub const NO_MOMENT: Moment = i64::MIN;

/// A cluster queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct QueueId(pub u32);

/// A workload that waits or holds quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct WorkloadId(pub u32);

/// What makes workloads alike to a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ShapeId(pub u32);

use crate::names::Id;
use crate::preempt::Target;
id!(QueueId, WorkloadId, ShapeId);

/// A kind of machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Flavor {
    /// Labels of its nodes.
    pub labels: BTreeMap<String, String>,
    /// Taints of its nodes.
    pub taints: Vec<Taint>,
    /// Tolerations that its workloads are given.
    pub tolerations: Vec<Toleration>,
    /// The topology of its nodes.
    pub topology: Option<Arc<str>>,
    /// Labels of its levels, where others place pods by it.
    pub levels: Option<Arc<[String]>>,
}

/// Whom a workload may displace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Displaces {
    /// Nobody, as it is written.
    #[default]
    Never,
    /// Nobody, because nothing is written in a block that is: with fair sharing a request may count as one that could.
    Unset,
    /// Lower priority.
    LowerPriority,
    /// Lower priority, and newer ones of the same.
    LowerOrNewerEqualPriority,
    /// Anybody.
    Any,
}

impl Displaces {
    /// Kueue's word.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Never | Self::Unset => "Never",
            Self::LowerPriority => "LowerPriority",
            Self::LowerOrNewerEqualPriority => "LowerOrNewerEqualPriority",
            Self::Any => "Any",
        }
    }
}

/// A queue's preemption policies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Preemption {
    /// Within the queue.
    pub within_queue: Displaces,
    /// Taking back what others borrowed.
    pub reclaim_within_cohort: Displaces,
    /// Displacing others while borrowing: up to this priority where one is given.
    pub borrow_within_cohort: Option<Option<i32>>,
}

impl Preemption {
    /// Whether anybody may ever be displaced.
    pub fn allows_any(&self) -> bool {
        let never = |policy| matches!(policy, Displaces::Never | Displaces::Unset);
        !never(self.within_queue) || !never(self.reclaim_within_cohort)
    }
}

/// When a workload goes on to the next flavor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fungibility {
    /// It goes on rather than borrow.
    pub next_rather_than_borrow: bool,
    /// It stays rather than look further, where it could preempt.
    pub preempt_rather_than_next: bool,
    /// Preemption is preferred to borrowing.
    pub prefers_preemption: bool,
}

/// Resources that are given from one flavor together.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Group {
    /// The resources.
    pub resources: Vec<ResourceId>,
    /// The flavors, in the order in which they are tried.
    pub flavors: Vec<FlavorId>,
}

impl Group {
    /// The place of its first resource among those asked for; behind all of them where there is none.
    pub(crate) fn first_among(&self, requests: &Requests) -> usize {
        requests.iter().position(|(resource, _)| self.resources.contains(resource)).unwrap_or(requests.len())
    }
}

/// Worker clusters take a queue whole: what doesn't go with that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Clash {
    /// There is another such check.
    Several,
    /// The check is for some of the flavors only.
    OnFlavors,
    /// There is a check that provisions nodes here.
    Provisioning,
}

impl Clash {
    /// In words, of the check that clashes.
    pub fn words(self, check: &str) -> String {
        match self {
            Self::Several => format!(
                "admission check `{check}` isn't the only one for worker clusters, which take a queue whole"
            ),
            Self::OnFlavors => format!(
                "admission check `{check}` is for some flavors only, and worker clusters take a queue whole"
            ),
            Self::Provisioning => format!(
                "admission check `{check}` hands the queue to worker clusters, and another one provisions nodes here"
            ),
        }
    }
}

/// Why a queue admits nothing.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Inactive {
    /// It is stopped.
    Stopped,
    /// Its cohort is its own ancestor.
    CohortCycle,
    /// It names a flavor that isn't there.
    FlavorNotFound(String),
    /// It names an admission check that isn't there.
    AdmissionCheck(String),
    /// It names an admission check that isn't active.
    CheckInactive(String),
    /// A check of its worker clusters can't be as it is.
    WorkersCheck(String, Clash),
    /// A flavor names a topology that isn't there.
    TopologyNotFound(String),
}

/// A cluster queue as it is declared.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct QueueSetup {
    /// Its name.
    pub name: Arc<str>,
    /// The cohort it shares with.
    pub cohort: Option<Arc<str>>,
    /// Resource groups.
    pub groups: Vec<Group>,
    /// Quotas.
    pub quotas: Quotas,
    /// A misfit at its head blocks what is behind it.
    pub strict: bool,
    /// Namespaces that may submit: `None` selects nothing.
    pub namespace_selector: Option<LabelSelector>,
    /// Preemption.
    pub preemption: Preemption,
    /// Going on to the next flavor.
    pub fungibility: Fungibility,
    /// Why it admits nothing, if so.
    pub inactive: Option<Inactive>,
    /// Weight in billionths.
    pub weight: i64,
    /// Whether its local queues are ordered by what they used before.
    pub usage_based: bool,
    /// Where pods are placed is decided by worker clusters.
    pub placed_elsewhere: bool,
    /// Flavors whose machines a provider makes first.
    pub provisioned: Vec<FlavorId>,
    /// Names of admission checks, with the flavors that each is for; none is all.
    pub checks: Vec<(Arc<str>, Vec<FlavorId>)>,
    /// Variants don't migrate to flavors behind this one.
    pub last_acceptable_flavor: Option<FlavorId>,
}

impl Default for QueueSetup {
    fn default() -> Self {
        Self {
            name: Arc::from(""),
            cohort: None,
            groups: Vec::new(),
            quotas: Quotas::new(),
            strict: false,
            namespace_selector: Some(LabelSelector::default()),
            preemption: Preemption::default(),
            fungibility: Fungibility::default(),
            inactive: None,
            weight: WEIGHT_ONE,
            usage_based: false,
            placed_elsewhere: false,
            provisioned: Vec::new(),
            checks: Vec::new(),
            last_acceptable_flavor: None,
        }
    }
}

impl QueueSetup {
    /// The group that gives a resource.
    pub fn group_of(&self, resource: ResourceId) -> Option<&Group> {
        self.groups.iter().find(|group| group.resources.contains(&resource))
    }

    /// Quota of a flavor and resource; none where none is declared.
    pub fn quota(&self, key: (FlavorId, ResourceId)) -> crate::tree::Quota {
        self.quotas.get(&key).copied().unwrap_or_default()
    }
}

/// Amounts by resource, in the order of the resources' names.
pub type Requests = Vec<(ResourceId, i64)>;

/// The amount of a resource among requests; zero where it isn't there.
pub fn amount_of(requests: &[(ResourceId, i64)], resource: ResourceId) -> i64 {
    requests.iter().find(|(r, _)| *r == resource).map_or(0, |(_, a)| *a)
}

/// Pods of one template.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PodSet {
    /// Its name.
    pub name: Arc<str>,
    /// Pods.
    pub count: u32,
    /// Fewest pods that do, where fewer do.
    pub min_count: Option<u32>,
    /// What one pod takes of quota.
    pub per_pod: Requests,
    /// What one pod takes on its node.
    pub on_node: Amounts,
    /// Labels that its node must have.
    pub node_selector: BTreeMap<String, String>,
    /// Required node affinity: terms are alternatives.
    pub affinity: Vec<Vec<Requirement>>,
    /// Tolerations.
    pub tolerations: Vec<Toleration>,
    /// Preferred node affinity.
    pub preferred: Vec<PreferredTerm>,
    /// How its pods should lie, where it asks for a place in a topology.
    pub topology: Option<TopologyRequest>,
    /// Pod sets of one group get the same flavors and lie together.
    pub group: Option<String>,
}

impl PodSet {
    /// Whether it asks for a place in a topology.
    pub fn wants_topology(&self) -> bool {
        self.topology.is_some()
    }
}

/// Everything about a workload that a decision depends on, but for who it is and since when it waits.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Shape {
    /// What else tells workloads apart where they may be placed; alike workloads have the same. Shapes are found by it first.
    pub tag: u64,
    /// What starts together.
    pub pod_sets: Vec<PodSet>,
    /// Pods of each set that count, where some are no longer needed.
    pub counts: Option<Vec<u32>>,
    /// The only flavors that may be used, where they are named.
    pub allowed_flavors: Option<Vec<FlavorId>>,
    /// Priority.
    pub priority: i64,
}

impl Shape {
    /// Pods of a set that count.
    pub fn count(&self, pod_set: usize) -> u32 {
        self.counts.as_ref().and_then(|c| c.get(pod_set).copied()).unwrap_or(self.pod_sets[pod_set].count)
    }

    /// Whether fewer pods would do.
    pub fn may_shrink(&self) -> bool {
        self.pod_sets.iter().any(|set| set.min_count.is_some())
    }

    /// The fewest pods of each set that do.
    pub fn least(&self) -> Vec<u32> {
        self.pod_sets.iter().map(|set| set.min_count.unwrap_or(set.count)).collect()
    }
}

/// Whether a topology assignment is still to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Delayed {
    /// It is to come.
    Pending,
    /// It came.
    Ready,
}

/// What one pod set was given.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Given {
    /// Flavor of each resource.
    pub flavors: BTreeMap<ResourceId, FlavorId>,
    /// What all its pods take of quota.
    pub usage: Requests,
    /// Its pods.
    pub count: u32,
    /// Where they lie.
    pub placement: Option<Placed>,
    /// Whether that is still to come.
    pub delayed: Option<Delayed>,
}

/// Use of quota, by flavor and resource.
pub type Usage = Vec<((FlavorId, ResourceId), Amount)>;

/// Use of quota, by the cells of one tree.
pub type Charge = Vec<(CellId, Amount)>;

/// Quota that a workload holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holding {
    /// What each pod set was given.
    pub given: Vec<Given>,
    /// Since when.
    pub since: Moment,
    /// It was told to stop; it holds until it has.
    pub evicted: bool,
    /// Whether it may run: nothing is left to be checked.
    pub admitted: bool,
    /// Derived from `given`.
    pub(crate) charge: Charge,
}

/// What a check that is ready changed about where a pod set may be placed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Update {
    /// Labels that its node must have besides.
    pub node_selector: BTreeMap<String, String>,
    /// Tolerations that it gets besides.
    pub tolerations: Vec<Toleration>,
}

/// Marks of a workload that decisions look at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Marks {
    /// The older slice that it replaces.
    pub replaces: Option<Arc<str>>,
    /// A gate holds its preemptions back.
    pub gated: bool,
    /// Nodes of its assignment that are lost.
    pub lost_nodes: Vec<String>,
    /// Checks that have a state.
    pub checks: Vec<Arc<str>>,
    /// It has checks, and all of them are ready.
    pub checks_ready: bool,
    /// A check asks for another try, or refuses.
    pub checks_failed: bool,
    /// The workload of which this is one variant, and the variant's flavor.
    pub variant_of: Option<(Arc<str>, Arc<str>)>,
    /// It may grow and shrink while it runs.
    pub elastic: bool,
    /// It is a single pod, which can't move.
    pub single_pod: bool,
    /// What checks changed, by the name of the pod set.
    pub updates: BTreeMap<Arc<str>, Update>,
    /// It may not be in this queue.
    pub wrong_namespace: bool,
    /// Why it can't be admitted as it is written.
    pub unfit: Option<Arc<str>>,
    /// Flavors that it has to have, as it is a part of what has them; none where any will do.
    pub pinned: Vec<FlavorId>,
}

/// What a workload told others to stop for. Rarely there, and a workload is small.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Displaced {
    /// Flavors per pod set and resource.
    pub(crate) flavors: Vec<Vec<(ResourceId, FlavorId)>>,
    /// Who was to stop, with their uids: numbers are used again.
    pub(crate) victims: Vec<(Target, Arc<str>)>,
}

/// A workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workload {
    /// Namespace and name.
    pub key: Arc<str>,
    /// Tells apart what is alike in everything else.
    pub uid: Arc<str>,
    /// Its cluster queue.
    pub queue: QueueId,
    /// Its local queue: namespace and name.
    pub local_queue: Arc<str>,
    /// Its shape.
    pub shape: ShapeId,
    /// Its place in time among those who wait.
    pub since: Moment,
    /// Rarely there.
    pub marks: Option<Box<Marks>>,
    /// Quota that it holds.
    pub holding: Option<Box<Holding>>,
    /// Where the scan of flavors goes on.
    pub(crate) scan: Option<Box<crate::flavors::Scan>>,
    /// Its scan went on because others came first at a flavor, which they may not have taken.
    pub(crate) passed_over: bool,
    /// For some flavor, or with some victims gone, quota was there and no cluster had the room.
    pub(crate) placeless: bool,
    /// All its victims stopped and there was no room for it all the same: where gangs lie is guessed, and guessed wrong again it
    /// would displace the same ones for ever. From now on it waits for room.
    pub(crate) in_vain: bool,
    /// For which flavors it last told others to stop, and whom.
    pub(crate) displaces_for: Option<Box<Displaced>>,
}

impl Workload {
    /// Its namespace.
    pub fn namespace(&self) -> &str {
        self.key.split_once('/').map_or("", |(namespace, _)| namespace)
    }

    /// Its marks; usual ones where it has none.
    pub fn marks(&self) -> &Marks {
        const USUAL: &Marks = &Marks {
            replaces: None,
            gated: false,
            lost_nodes: Vec::new(),
            checks: Vec::new(),
            checks_ready: false,
            checks_failed: false,
            variant_of: None,
            elastic: false,
            single_pod: false,
            updates: BTreeMap::new(),
            wrong_namespace: false,
            unfit: None,
            pinned: Vec::new(),
        };
        self.marks.as_deref().unwrap_or(USUAL)
    }

    /// Whether it was told to stop and still holds quota.
    pub fn evicted(&self) -> bool {
        self.holding.as_ref().is_some_and(|h| h.evicted)
    }
}

/// A holder of quota as a search for victims meets it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Displaceable {
    pub(crate) goes_on: bool,
    pub(crate) priority: i64,
    pub(crate) since: Reverse<Moment>,
    /// When it came to its queue, where that decides.
    pub(crate) age: Reverse<Moment>,
    pub(crate) uid: Arc<str>,
    pub(crate) workload: WorkloadId,
}

impl Displaceable {
    /// What comes before everybody.
    pub(crate) fn first() -> Self {
        Self {
            goes_on: false,
            priority: i64::MIN,
            since: Reverse(Moment::MAX),
            age: Reverse(Moment::MAX),
            uid: Arc::from(""),
            workload: WorkloadId(0),
        }
    }
}

/// A cluster queue as decisions see it.
#[derive(Clone, Debug, PartialEq)]
pub struct Queue {
    /// As declared.
    pub setup: Arc<QueueSetup>,
    /// Its place in the forest; `None` while its cohort is in a cycle.
    pub node: Option<NodeId>,
    /// Its tree.
    pub tree: Option<TreeId>,
    /// Grows when room may have come back.
    pub generation: u64,
    /// Cycles in which it offered a head.
    pub(crate) cycles: u64,
    /// Who holds quota of it.
    pub holders: BTreeSet<WorkloadId>,
    /// The same, whom it is easiest to displace first: by priority, then the newest.
    pub(crate) ranked: BTreeSet<(i64, Reverse<Moment>, WorkloadId)>,
    /// The same by each flavor that they have, in the order in which victims are looked for: who is stopping anyway, the least
    /// important, who got quota last.
    pub(crate) easiest: BTreeSet<(FlavorId, Displaceable)>,
    /// How many of them are stopping.
    pub(crate) stopping: usize,
    /// Whether every flavor has a topology.
    pub topology_only: bool,
}
