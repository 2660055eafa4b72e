//! A live grant as it is stored.

use crate::elapsed::Stamp;
use crate::ledger::{Allocation, TolerationDeadline};
use crate::leg::Phase;
use crate::runs::RunRecord;
use crate::runtime::NodeSpec;
use meridian_shared::lease::AgentLease;
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct StoredRun {
    pub(crate) record: RunRecord,
    pub(crate) phase: Phase,
    /// With a deadline in boot time, valid on this boot only.
    pub(crate) lease: Option<AgentLease>,
    pub(crate) boot: u128,
    /// The clocks when this was stored.
    pub(crate) stamp: Stamp,
    pub(crate) allocation: Allocation,
    /// Nodes that were provided for this run only.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) provided: Vec<NodeSpec>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) toleration: Vec<TolerationDeadline>,
}
