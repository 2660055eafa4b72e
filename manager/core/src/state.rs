//! Durable state: everything that records say. Only `state` changes it, when a record is absorbed.

mod absorb;
pub mod by_uid;
pub mod catalog;
mod fingerprint;
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
use crate::state::preemption_history::PreemptionHistory;
use crate::state::usage_history::UsageHistory;
use crate::state::workloads::Workloads;
use catalog::Catalog;
use meridian_shared::ids::{ClusterName, Fence, JournalId, Leadership, RecordNumber, Uid};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Durable state: everything that records say. Serialised as the snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct State {
    journal: JournalId,
    last: RecordNumber,
    leadership: Leadership,
    led_since: RecordNumber,
    ranges: Vec<(Leadership, RecordNumber, RecordNumber)>,
    recovery: Option<RecoveryStart>,
    #[serde(default)]
    recovery_since: RecordNumber,
    #[serde(default)]
    behind: bool,
    rules: RecordNumber,
    rules_doubted: Option<RecordNumber>,
    catalog: Catalog,
    members: BTreeMap<ClusterName, Member>,
    tokens: BTreeMap<String, Token>,
    workloads: Workloads,
    #[serde(with = "crate::state::catalog::pairs")]
    orphans: BTreeMap<(Uid, Fence), Orphan>,
    audit: Head,
    offers: u64,
    grants: u64,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    usage_history: BTreeMap<Arc<str>, UsageHistory>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    displaced: PreemptionHistory,
}

impl State {
    pub(crate) fn empty(journal: JournalId) -> Self {
        Self {
            journal,
            last: RecordNumber(0),
            leadership: Leadership { epoch: 0, id: 0 },
            led_since: RecordNumber(0),
            ranges: Vec::new(),
            recovery: None,
            recovery_since: RecordNumber(0),
            behind: false,
            rules: RecordNumber(0),
            rules_doubted: None,
            catalog: Catalog::default(),
            members: BTreeMap::new(),
            tokens: BTreeMap::new(),
            workloads: Workloads::default(),
            orphans: BTreeMap::new(),
            audit: Head::default(),
            offers: 0,
            grants: 0,
            usage_history: BTreeMap::new(),
            displaced: BTreeMap::new(),
        }
    }

    pub fn journal(&self) -> JournalId {
        self.journal
    }

    /// The newest record absorbed.
    pub fn last(&self) -> RecordNumber {
        self.last
    }

    /// The current or last leadership.
    pub fn leadership(&self) -> Leadership {
        self.leadership
    }

    /// First record of that leadership.
    pub fn led_since(&self) -> RecordNumber {
        self.led_since
    }

    /// Records written by each leadership. Foreign ranges end at what agents reported.
    pub fn ranges(&self) -> &[(Leadership, RecordNumber, RecordNumber)] {
        &self.ranges
    }

    /// Present while recovery is open.
    pub fn recovery(&self) -> Option<&RecoveryStart> {
        self.recovery.as_ref()
    }

    /// The record that opened recovery.
    pub fn recovery_since(&self) -> RecordNumber {
        self.recovery_since
    }

    /// Whether something was done under this journal's name that it doesn't know: it is a copy, a replacement or a fork.
    pub fn behind(&self) -> bool {
        self.behind
    }

    /// The newest change of a policy or quota.
    pub fn rules(&self) -> RecordNumber {
        self.rules
    }

    /// Present while nothing is offered because newer rules than ours were reported.
    pub fn rules_doubted(&self) -> Option<RecordNumber> {
        self.rules_doubted
    }

    pub fn catalog(&self) -> &Catalog {
        &self.catalog
    }

    /// Clusters that ever had a session.
    pub fn members(&self) -> &BTreeMap<ClusterName, Member> {
        &self.members
    }

    /// Join tokens by hash.
    pub fn tokens(&self) -> &BTreeMap<String, Token> {
        &self.tokens
    }

    pub fn workloads(&self) -> &Workloads {
        &self.workloads
    }

    /// Runs of uids that this journal doesn't know.
    pub fn orphans(&self) -> &BTreeMap<(Uid, Fence), Orphan> {
        &self.orphans
    }

    /// Head of the audit log.
    pub fn audit(&self) -> &Head {
        &self.audit
    }

    /// Offers of this leadership so far.
    pub fn offers(&self) -> u64 {
        self.offers
    }

    /// Grants of this leadership so far.
    pub fn grants(&self) -> u64 {
        self.grants
    }

    /// Usage history of local queues (`namespace/name`) that have any.
    pub fn usage_history(&self) -> &BTreeMap<Arc<str>, UsageHistory> {
        &self.usage_history
    }

    /// Recent preemptions by victim.
    pub fn displaced(&self) -> &PreemptionHistory {
        &self.displaced
    }
}
