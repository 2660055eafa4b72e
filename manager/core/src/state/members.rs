use meridian_shared::ids::{ClusterName, Jurisdiction, LedgerId, RecordNumber, Region, Session};
use meridian_shared::protocol::Run;
use meridian_shared::time::Wall;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// A cluster with an agent that once opened a session.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Member {
    pub(super) ledger: LedgerId,
    pub(super) session: Session,
    pub(super) lost: BTreeSet<LedgerId>,
    pub(super) since: RecordNumber,
    #[serde(default)]
    pub(super) session_since: RecordNumber,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) unheard: Option<LedgerId>,
    pub(super) admitted: bool,
}

impl Member {
    /// The newest ledger of its agent.
    pub fn ledger(&self) -> LedgerId {
        self.ledger
    }

    /// The newest session of its agent. Older ones are refused.
    pub fn session(&self) -> Session {
        self.session
    }

    /// Ledgers that were replaced or declared lost. A session with one of them is refused.
    pub fn lost(&self) -> &BTreeSet<LedgerId> {
        &self.lost
    }

    /// Record of the first session.
    pub fn since(&self) -> RecordNumber {
        self.since
    }

    /// Record of the newest session.
    pub fn session_since(&self) -> RecordNumber {
        self.session_since
    }

    /// The ledger that the cluster had when the open recovery began, if it was replaced since and not
    /// declared lost. A journal that is behind may not know its runs.
    pub fn unheard(&self) -> Option<LedgerId> {
        self.unheard
    }

    /// Whether the cluster may get workloads: another member acknowledged a member list with its name, an
    /// operator admitted it, or it was the first member.
    pub fn admitted(&self) -> bool {
        self.admitted
    }
}

/// A join token. Only its hash is kept, as the key of the map of tokens.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Token {
    pub(super) cluster: ClusterName,
    pub(super) region: Region,
    pub(super) jurisdiction: Jurisdiction,
    pub(super) expires: Wall,
    pub(super) replace: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) hosted: bool,
}

impl Token {
    /// The only cluster that may join with the token.
    pub fn cluster(&self) -> &ClusterName {
        &self.cluster
    }

    pub fn region(&self) -> &Region {
        &self.region
    }

    pub fn jurisdiction(&self) -> &Jurisdiction {
        &self.jurisdiction
    }

    pub fn expires(&self) -> Wall {
        self.expires
    }

    /// Whether a cluster of this name may already exist.
    pub fn replace(&self) -> bool {
        self.replace
    }

    /// The manager created the token itself, for an agent in its own process.
    pub fn hosted(&self) -> bool {
        self.hosted
    }
}

/// A run of a workload that this journal doesn't know.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Orphan {
    pub(super) cluster: ClusterName,
    pub(super) ledger: LedgerId,
    pub(super) run: Run,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) stopping: bool,
}

impl Orphan {
    pub fn cluster(&self) -> &ClusterName {
        &self.cluster
    }

    pub fn ledger(&self) -> LedgerId {
        self.ledger
    }

    /// As the agent first reported it.
    pub fn run(&self) -> &Run {
        &self.run
    }

    /// An operator ordered its stop.
    pub fn stopping(&self) -> bool {
        self.stopping
    }
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
