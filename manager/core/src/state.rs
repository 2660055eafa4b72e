pub mod by_uid;
pub mod catalog;
pub mod legs;
pub mod members;
pub mod preemption_history;
pub mod residency;
pub mod usage_history;
pub mod workload;
pub mod workloads;

use crate::facts::audit::Head;
use crate::facts::submission::RecoveryStart;
use crate::state::members::{Member, Orphan, Token};
use crate::state::preemption_history::Displaced;
use crate::state::usage_history::PastUse;
use crate::state::workloads::Workloads;
use catalog::Catalog;
use meridian_shared::ids::{ClusterName, Fence, JournalId, Leadership, RecordNumber, Uid};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Durable state: everything that records say. Serialised as the snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct State {
    /// The journal.
    pub journal: JournalId,
    /// The newest record absorbed.
    pub last: RecordNumber,
    /// Who leads, or led.
    pub leadership: Leadership,
    /// The first record of this leadership.
    pub led_since: RecordNumber,
    /// Which leadership wrote which range; foreign ones are closed at what was shown.
    pub ranges: Vec<(Leadership, RecordNumber, RecordNumber)>,
    /// Recovery, while it is open.
    pub recovery: Option<RecoveryStart>,
    /// The record with which it opened.
    #[serde(default)]
    pub recovery_since: RecordNumber,
    /// Something was done under this journal's name that it doesn't know: it is a copy, new in place of another, or a fork.
    #[serde(default)]
    pub behind: bool,
    /// The newest change of a policy or a quota.
    pub rules: RecordNumber,
    /// Rules newer than ours were shown: nothing is offered until a person confirms.
    pub rules_doubted: Option<RecordNumber>,
    /// Objects.
    pub catalog: Catalog,
    /// Clusters that ever had a session.
    pub members: BTreeMap<ClusterName, Member>,
    /// Join tokens by hash.
    pub tokens: BTreeMap<String, Token>,
    /// Workloads.
    pub workloads: Workloads,
    /// Runs of unknown uids.
    #[serde(with = "crate::state::catalog::pairs")]
    pub orphans: BTreeMap<(Uid, Fence), Orphan>,
    /// Head of the audit log.
    pub audit: Head,
    /// Offers of this leadership so far.
    pub offers: u64,
    /// Grants of this leadership so far.
    pub grants: u64,
    /// What local queues used before, by namespace and name, where anything is left of it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub past_use: BTreeMap<Arc<str>, PastUse>,
    /// Who was displaced by whom a while ago.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub displaced: BTreeMap<Uid, Vec<Displaced>>,
}

/// Join tokens that may be good at once: an operator joins clusters, not thousands of them in an hour. Beyond, the one that
/// expires first is forgotten.
const TOKENS_MAX: usize = 1_000;

impl State {
    pub(crate) fn remember_token(&mut self, hash: &str, token: Token) {
        self.tokens.insert(hash.to_owned(), token);
        if self.tokens.len() > TOKENS_MAX
            && let Some(first) =
                self.tokens.iter().min_by_key(|(_, token)| token.expires).map(|(hash, _)| hash.clone())
        {
            self.tokens.remove(&first);
        }
    }
}
