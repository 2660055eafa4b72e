use meridian_shared::ids::{ClusterName, Jurisdiction, LedgerId, RecordNumber, Region, Session};
use meridian_shared::protocol::Run;
use meridian_shared::time::Wall;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// A cluster that ever had a session.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Member {
    /// Its newest ledger.
    pub ledger: LedgerId,
    /// Its highest session.
    pub session: Session,
    /// Ledgers that were replaced; a session that brings one again is refused.
    pub lost: BTreeSet<LedgerId>,
    /// The record of its first session.
    pub since: RecordNumber,
    /// The record of its newest session.
    #[serde(default)]
    pub session_since: RecordNumber,
    /// Another member has acknowledged a list with its name, or an operator said so, or there was no other.
    pub admitted: bool,
}

/// A join token: only its hash is kept.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Token {
    /// What it is bound to.
    pub cluster: ClusterName,
    /// Region.
    pub region: Region,
    /// Jurisdiction.
    pub jurisdiction: Jurisdiction,
    /// Not good after.
    pub expires: Wall,
    /// Whether the name may exist.
    pub replace: bool,
}

/// A run of a uid that this journal doesn't know.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Orphan {
    /// Where.
    pub cluster: ClusterName,
    /// By which ledger.
    pub ledger: LedgerId,
    /// As reported.
    pub run: Run,
    /// A person wants it stopped.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stopping: bool,
}

/// Ledgers that one cluster may have replaced: an agent makes a new one when its disk is lost. Each has to be remembered for as
/// long as a copy of it could come back, so beyond this a new one isn't taken.
pub(crate) const LEDGERS_REPLACED_MAX: usize = 1_000;

impl Member {
    /// Whether this ledger may take the place of the one that is known.
    pub(crate) fn may_replace(&self, ledger: LedgerId) -> bool {
        self.ledger == ledger || self.lost.len() < LEDGERS_REPLACED_MAX
    }
}
