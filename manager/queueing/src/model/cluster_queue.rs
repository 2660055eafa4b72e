//! Declarations of cluster queues.

use crate::model::{FlavorFungibility, ResourceGroup};
use crate::names::{FlavorId, ResourceId, id};
use crate::quota::{Quota, Quotas, WEIGHT_ONE};
use meridian_shared::gang::LabelSelector;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// A cluster queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct QueueId(pub u32);

id!(QueueId);

/// Which workloads a preemptor may preempt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum PreemptionRule {
    #[default]
    Never,
    /// No workload, because the policy isn't set. With fair sharing, a request may still be reported as one
    /// that could preempt.
    Unset,
    LowerPriority,
    /// Workloads of lower priority, and newer ones of equal priority.
    LowerOrNewerEqualPriority,
    Any,
}

impl PreemptionRule {
    /// The name in Kueue's API.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Never | Self::Unset => "Never",
            Self::LowerPriority => "LowerPriority",
            Self::LowerOrNewerEqualPriority => "LowerOrNewerEqualPriority",
            Self::Any => "Any",
        }
    }
}

/// Preemption policies of a cluster queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterQueuePreemption {
    pub within_queue: PreemptionRule,
    /// Policy for reclaiming quota that other queues borrowed.
    pub reclaim_within_cohort: PreemptionRule,
    /// Set if the queue may preempt while it borrows. The inner value is the highest priority that a victim
    /// may have.
    pub borrow_within_cohort: Option<Option<i32>>,
}

impl ClusterQueuePreemption {
    /// Whether any policy allows preemption.
    pub fn allows_any(&self) -> bool {
        let never = |policy| matches!(policy, PreemptionRule::Never | PreemptionRule::Unset);
        !never(self.within_queue) || !never(self.reclaim_within_cohort)
    }
}

/// Why an admission check for worker clusters conflicts with the other checks. Worker clusters run every
/// workload of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Clash {
    /// There is a second check for worker clusters.
    Several,
    /// The check applies to some flavors only.
    OnFlavors,
    /// Another check provisions nodes at the manager.
    Provisioning,
}

impl Clash {
    /// The message for users. `check` is the name of the conflicting check.
    pub fn message(self, check: &str) -> String {
        match self {
            Self::Several => {
                format!("admission check `{check}` must be the only check for worker clusters in its queue")
            }
            Self::OnFlavors => {
                format!("admission check `{check}` is for worker clusters, so it must apply to all flavors")
            }
            Self::Provisioning => format!(
                "admission check `{check}` is for worker clusters, \
                 and another one provisions nodes here"
            ),
        }
    }
}

/// Why a queue admits nothing.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Inactive {
    /// The queue is stopped.
    Stopped,
    /// The cohort is its own ancestor.
    CohortCycle,
    /// A flavor doesn't exist.
    FlavorNotFound(String),
    /// An admission check doesn't exist.
    AdmissionCheck(String),
    /// An admission check isn't active.
    CheckInactive(String),
    /// The check for worker clusters conflicts with another one.
    WorkersCheck(String, Clash),
    /// A flavor names a topology that doesn't exist.
    TopologyNotFound(String),
}

/// A cluster queue as declared.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct QueueSetup {
    pub name: Arc<str>,
    pub cohort: Option<Arc<str>>,
    pub groups: Vec<ResourceGroup>,
    pub quotas: Quotas,
    /// StrictFIFO: an inadmissible head blocks the workloads behind it.
    pub strict: bool,
    /// Namespaces that may submit. `None` selects none.
    pub namespace_selector: Option<LabelSelector>,
    pub preemption: ClusterQueuePreemption,
    pub fungibility: FlavorFungibility,
    /// Set if the queue admits nothing.
    pub inactive: Option<Inactive>,
    /// Weight in billionths.
    pub weight: i64,
    /// Whether admission fair sharing orders its local queues by usage history.
    pub usage_based: bool,
    /// Worker clusters place the pods.
    pub placed_elsewhere: bool,
    /// Flavors with nodes that a provider creates on demand.
    pub provisioned: Vec<FlavorId>,
    /// Admission checks and the flavors that each applies to. No flavors means all.
    pub checks: Vec<(Arc<str>, Vec<FlavorId>)>,
    /// Variants don't migrate to flavors after this one.
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
            preemption: ClusterQueuePreemption::default(),
            fungibility: FlavorFungibility::default(),
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
    /// The resource group that covers a resource.
    pub fn group_of(&self, resource: ResourceId) -> Option<&ResourceGroup> {
        self.groups.iter().find(|group| group.resources.contains(&resource))
    }

    /// Quota of a flavor and resource; zero if not declared.
    pub fn quota(&self, key: (FlavorId, ResourceId)) -> Quota {
        self.quotas.get(&key).copied().unwrap_or_default()
    }
}
