use meridian_shared::ids::{ClusterName, Jurisdiction, LedgerId, RecordNumber, Region, Session};
use meridian_shared::protocol::Run;
use meridian_shared::time::Wall;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// A cluster with an agent that once opened a session.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Member {
    /// The newest ledger of its agent.
    pub ledger: LedgerId,
    /// The newest session of its agent. Older ones are refused.
    pub session: Session,
    /// Ledgers that were replaced or declared lost. A session with one of them is refused.
    pub lost: BTreeSet<LedgerId>,
    /// Record of the first session.
    pub since: RecordNumber,
    /// Record of the newest session.
    #[serde(default)]
    pub session_since: RecordNumber,
    /// The ledger that the cluster had when the open recovery began, if it was replaced since and not
    /// declared lost. A journal that is behind may not know its runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unheard: Option<LedgerId>,
    /// Whether the cluster may get workloads: another member acknowledged a member list with its name, an
    /// operator admitted it, or it was the first member.
    pub admitted: bool,
}

/// A join token. Only its hash is kept, as the key of the map of tokens.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Token {
    /// The only cluster that may join with the token.
    pub cluster: ClusterName,
    pub region: Region,
    pub jurisdiction: Jurisdiction,
    pub expires: Wall,
    /// Whether a cluster of this name may already exist.
    pub replace: bool,
    /// The manager created the token itself, for an agent in its own process.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub hosted: bool,
}

/// A run of a workload that this journal doesn't know.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Orphan {
    pub cluster: ClusterName,
    pub ledger: LedgerId,
    /// As the agent first reported it.
    pub run: Run,
    /// An operator ordered its stop.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stopping: bool,
}

/// Limit of replaced ledgers per cluster; beyond it a session with a new ledger is refused. An agent creates
/// a new ledger when its disk is lost. Replaced ledgers must be remembered, because an agent could start on a
/// copy of one.
pub(crate) const LEDGERS_REPLACED_MAX: usize = 1_000;

impl Member {
    /// Whether a session may bring this ledger: it is the current one, or may still replace it.
    pub(crate) fn may_replace(&self, ledger: LedgerId) -> bool {
        self.ledger == ledger || self.lost.len() < LEDGERS_REPLACED_MAX
    }
}
