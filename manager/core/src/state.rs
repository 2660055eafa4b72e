//! Durable state: everything that follows from the records. It changes only when a record is absorbed.

mod absorb;
pub mod by_uid;
pub(crate) mod capacity_classes;
pub mod catalog;
pub mod certificates;
mod fingerprint;
pub mod legs;
pub mod members;
mod pairs;
pub(crate) mod references;
pub mod residency;
pub mod usage_history;
pub mod workload;
pub mod workloads;

use crate::facts::audit::Head;
use crate::facts::submission::RecoveryStart;
use crate::state::certificates::ValidCertificates;
use crate::state::members::{Member, Orphan, Token};
use crate::state::usage_history::UsageHistory;
use crate::state::workloads::Workloads;
use catalog::Catalog;
use meridian_placement::preemption_history::PreemptionHistory;
use meridian_shared::ids::{ClusterName, Fence, JournalId, Leadership, RecordNumber, Uid};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Durable state: everything that follows from the records. Serialised as the journal's snapshot.
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
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    copies_ruled_out: bool,
    rules: RecordNumber,
    rules_doubted: Option<RecordNumber>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    rules_doubted_until_heard: bool,
    catalog: Catalog,
    members: BTreeMap<ClusterName, Member>,
    tokens: BTreeMap<String, Token>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    certificates: BTreeMap<ClusterName, ValidCertificates>,
    workloads: Workloads,
    #[serde(with = "crate::state::pairs")]
    orphans: BTreeMap<(Uid, Fence), Orphan>,
    audit: Head,
    offers: u64,
    grants: u64,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    usage_history: BTreeMap<Arc<str>, UsageHistory>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    preemption_history: PreemptionHistory,
}

impl State {
    pub(crate) fn after(journal: JournalId, last: RecordNumber) -> Self {
        Self {
            journal,
            last,
            leadership: Leadership { epoch: 0, id: 0 },
            led_since: RecordNumber(0),
            ranges: Vec::new(),
            recovery: None,
            recovery_since: RecordNumber(0),
            behind: false,
            copies_ruled_out: false,
            rules: RecordNumber(0),
            rules_doubted: None,
            rules_doubted_until_heard: false,
            catalog: Catalog::default(),
            members: BTreeMap::new(),
            tokens: BTreeMap::new(),
            certificates: BTreeMap::new(),
            workloads: Workloads::default(),
            orphans: BTreeMap::new(),
            audit: Head::default(),
            offers: 0,
            grants: 0,
            usage_history: BTreeMap::new(),
            preemption_history: BTreeMap::new(),
        }
    }

    pub fn journal(&self) -> JournalId {
        self.journal
    }

    /// The newest absorbed record.
    pub fn last(&self) -> RecordNumber {
        self.last
    }

    /// The current leadership, or the last one before the journal was opened.
    pub fn leadership(&self) -> Leadership {
        self.leadership
    }

    /// First record of [`Self::leadership`].
    pub fn led_since(&self) -> RecordNumber {
        self.led_since
    }

    /// First and last record of each leadership. Ranges of leaderships that wrote other copies of this
    /// journal cover only what agents reported.
    pub fn ranges(&self) -> &[(Leadership, RecordNumber, RecordNumber)] {
        &self.ranges
    }

    /// Whether an operator has confirmed, since recovery opened, that no other copy of this journal is used.
    /// What clusters report of the original afterwards, while recovery waits for them, is no news then.
    pub(crate) fn copies_ruled_out(&self) -> bool {
        self.copies_ruled_out
    }

    /// Present while recovery is open.
    pub fn recovery(&self) -> Option<&RecoveryStart> {
        self.recovery.as_ref()
    }

    /// The record that opened the current or last recovery.
    pub fn recovery_since(&self) -> RecordNumber {
        self.recovery_since
    }

    /// Whether another copy of this journal may have records that this one lacks: it is a copy, a replacement
    /// or a fork.
    pub fn behind(&self) -> bool {
        self.behind
    }

    /// The newest record that changed a policy or quota.
    pub fn rules(&self) -> RecordNumber {
        self.rules
    }

    /// Record number of newer rules that an agent knows. While present, nothing is offered.
    pub fn rules_doubted(&self) -> Option<RecordNumber> {
        self.rules_doubted
    }

    /// Whether the doubt about rules ends once all members have reported, because no agent has shown newer
    /// rules.
    pub fn rules_doubted_until_heard(&self) -> bool {
        self.rules_doubted_until_heard
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

    /// Runs of workloads that this journal doesn't know.
    pub fn orphans(&self) -> &BTreeMap<(Uid, Fence), Orphan> {
        &self.orphans
    }

    pub fn audit(&self) -> &Head {
        &self.audit
    }

    /// Counter of the newest offer of this leadership.
    pub fn offers(&self) -> u64 {
        self.offers
    }

    /// Counter of the newest grant of this leadership.
    pub fn grants(&self) -> u64 {
        self.grants
    }

    /// By local queue (`namespace/name`); queues without usage are missing.
    pub fn usage_history(&self) -> &BTreeMap<Arc<str>, UsageHistory> {
        &self.usage_history
    }

    /// Recent preemptions by victim.
    pub fn preemption_history(&self) -> &PreemptionHistory {
        &self.preemption_history
    }
}
