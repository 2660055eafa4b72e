//! Records: the facts that are committed to the journal. State changes only by absorbing records, so a replay
//! gives the same state whatever today's algorithms would decide.
//!
//! Their JSON form is the journal's format: add variants and optional fields, never rename or remove any. A
//! golden file holds a line for each variant.

use crate::facts::actor::Actor;
use crate::facts::audit::Line;
use crate::facts::key::Key;
use crate::facts::submission::{Consumed, RecoveryStart};
pub use crate::facts::workload_fact::WorkloadFact;
use meridian_objects::Object;
use meridian_shared::identity::CertificateBinding;
use meridian_shared::ids::{
    ClusterName, Fence, Jurisdiction, Leadership, LedgerId, RecordNumber, Region, Session, Uid,
};
use meridian_shared::protocol::Run;
use meridian_shared::time::Wall;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Record {
    Leadership(LeadershipFact),
    Object {
        key: Key,
        fact: ObjectFact,
    },
    /// A join token.
    Token {
        /// SHA-256 of the token in hexadecimal.
        hash: String,
        fact: TokenFact,
    },
    /// A cluster that has, or once had, an agent.
    Member {
        cluster: ClusterName,
        fact: MemberFact,
    },
    Workload {
        uid: Uid,
        fact: WorkloadFact,
    },
    /// A run of a workload that this journal doesn't know.
    Orphan {
        uid: Uid,
        fence: Fence,
        fact: OrphanFact,
    },
    /// Usage history of local queues, decayed to the time of the sample.
    UsageSampled {
        at: Wall,
        /// By local queue (`namespace/name`).
        queues: BTreeMap<Arc<str>, Consumed>,
        /// Local queues (`namespace/name`) without remaining usage.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        forgotten: Vec<Arc<str>>,
    },
    /// One line of the audit log.
    Audited(Box<Line>),
}

impl Record {
    /// Whether the record frees disk space, quota or capacity. Only such records may use the journal's
    /// reserved space when the disk is full.
    pub(crate) fn frees(&self) -> bool {
        match self {
            Self::Workload { fact, .. } => fact.frees(),
            Self::Object { fact: ObjectFact::Removed { .. }, .. }
            | Self::Orphan { fact: OrphanFact::StopOrdered { .. } | OrphanFact::Gone { .. }, .. } => true,
            Self::Leadership(_)
            | Self::Object { fact: ObjectFact::Applied { .. }, .. }
            | Self::Token { .. }
            | Self::Member { .. }
            | Self::Orphan { fact: OrphanFact::Seen { .. }, .. }
            | Self::UsageSampled { .. }
            | Self::Audited(_) => false,
        }
    }
}

/// Facts about the leadership of this journal.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum LeadershipFact {
    /// A manager took the lead.
    Started {
        leadership: Leadership,
        at: Wall,
        /// `None` if recovery was skipped, because the journal provably has every record of the previous
        /// leadership.
        recovery: Option<RecoveryStart>,
        /// Other leaderships that agents reported, each with its newest reported record number. The new
        /// leadership numbers its records above all of them.
        foreign: Vec<(Leadership, RecordNumber)>,
    },
    RecoveryClosed {
        by: Actor,
    },
    /// An operator confirmed that no other copy of this journal leads, and that there are no unknown members.
    /// Recovery still waits for clusters that haven't reported their inventory.
    CopiesRuledOut {
        by: Actor,
    },
    /// An agent knows newer policies or quotas than this journal, or may know them: nothing is offered until
    /// an operator confirms them.
    RulesDoubted {
        /// Record number of the newer rule, as the agent reported it.
        seen: RecordNumber,
        /// Whether the doubt ends once all members have sent inventories. True if no agent has reported a
        /// newer rule so far.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        until_heard: bool,
    },
    /// An operator, or the inventories of all members, confirmed policies and quotas.
    RulesConfirmed {
        by: Actor,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ObjectFact {
    /// The object was created or changed.
    Applied {
        object: Box<Object>,
        uid: Uid,
        at: Wall,
        by: Actor,
    },
    Removed {
        by: Actor,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum TokenFact {
    Minted {
        /// The only cluster that may join with the token.
        cluster: ClusterName,
        region: Region,
        jurisdiction: Jurisdiction,
        expires: Wall,
        /// Whether a cluster of this name may already exist.
        replace: bool,
        by: Actor,
    },
    Used,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum MemberFact {
    /// The agent opened a newer session. Older ones no longer count.
    SessionOpened {
        /// Identity of the agent's durable store. An id that differs from the previous one means that the
        /// previous store is lost.
        ledger: LedgerId,
        session: Session,
    },
    /// The cluster may get workloads: another member knows its name.
    Admitted {
        /// The agent that acknowledged the name, or the operator that admitted the cluster.
        by: Actor,
    },
    /// An operator declared a ledger lost.
    DeclaredLost { ledger: LedgerId, by: Actor },
    /// An agent joined, or an operator revoked the cluster's certificates or let its service account join.
    /// All certificates and tokens of the cluster from before this record are void. Certificates issued after
    /// it have its number as their generation.
    CertificatesVoided {
        /// The cluster's object.
        cluster_uid: Uid,
        by: Actor,
        /// Whether the cluster's service account may join from now on. `None` in older journals: yes, unless
        /// an operator made the record.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        account_may_join: Option<bool>,
        /// Whether the agent that joined runs in the manager's own process.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        hosted: bool,
    },
    /// An agent presented a certificate that a later copy of this journal issued, or the journal that this
    /// one replaces. The certificate is valid from now on.
    CertificatesAdopted { binding: CertificateBinding },
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum OrphanFact {
    /// An agent reported a run of an unknown workload.
    Seen { cluster: ClusterName, ledger: LedgerId, run: Box<Run> },
    /// An operator ordered the orphan's stop. The order is sent whenever the agent reports the run, until the
    /// agent reports its end.
    StopOrdered { by: Actor },
    /// The run ended, was adopted, or can't run any more: its lease lapsed, or its ledger was declared lost.
    Gone {
        /// `None` if only time caused it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<Actor>,
    },
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// Records in the format of existing journals. Lines may be added, never changed.
    const WRITTEN: &str = include_str!("../../tests/golden/records.jsonl");

    /// Every variant of every group. A new variant needs its name here and a line in the golden file.
    const NAMES: [&str; 52] = [
        "Leadership/Started",
        "Leadership/RecoveryClosed",
        "Leadership/CopiesRuledOut",
        "Leadership/RulesDoubted",
        "Leadership/RulesConfirmed",
        "Object/Applied",
        "Object/Removed",
        "Token/Minted",
        "Token/Used",
        "Member/SessionOpened",
        "Member/Admitted",
        "Member/DeclaredLost",
        "Member/CertificatesVoided",
        "Member/CertificatesAdopted",
        "Workload/Submitted",
        "Workload/QuotaReserved",
        "Workload/QuotaReleased",
        "Workload/Offered",
        "Workload/Waiting",
        "Workload/Held",
        "Workload/Refused",
        "Workload/HoldExpired",
        "Workload/Withdrawn",
        "Workload/Granted",
        "Workload/LedgerReplaced",
        "Workload/GrantAccepted",
        "Workload/GrantRefused",
        "Workload/PodsPlaced",
        "Workload/Running",
        "Workload/PodsReclaimed",
        "Workload/PodsFailed",
        "Workload/IndexesCompleted",
        "Workload/StopOrdered",
        "Workload/Ended",
        "Workload/LeaseLapsed",
        "Workload/Adopted",
        "Workload/EndLearned",
        "Workload/DeletionRequested",
        "Workload/Deactivated",
        "Workload/Activated",
        "Workload/Resized",
        "Workload/ScaleUpStarted",
        "Workload/ScaledUp",
        "Workload/ScaleUpRefused",
        "Workload/PriorityChanged",
        "Workload/Finished",
        "Workload/Forgotten",
        "Orphan/Seen",
        "Orphan/StopOrdered",
        "Orphan/Gone",
        "UsageSampled",
        "Audited",
    ];

    fn name(record: &serde_json::Value) -> String {
        let (group, rest) =
            record.as_object().and_then(|o| o.iter().next()).expect("an enum is an object of one key");
        let fact = if group == "Leadership" { rest } else { &rest["fact"] };
        match fact {
            serde_json::Value::String(unit) => format!("{group}/{unit}"),
            serde_json::Value::Object(fact) => {
                format!("{group}/{}", fact.keys().next().expect("a fact has a name"))
            }
            _ => group.clone(),
        }
    }

    #[test]
    fn records_read_and_write_the_golden_lines() {
        let mut seen = BTreeSet::new();
        for line in WRITTEN.lines() {
            let record: Record = serde_json::from_str(line).unwrap_or_else(|error| panic!("{line}: {error}"));
            assert_eq!(serde_json::to_string(&record).unwrap(), line);
            seen.insert(name(&serde_json::from_str(line).unwrap()));
        }
        let expected: BTreeSet<String> = NAMES.iter().map(|name| (*name).to_owned()).collect();
        assert_eq!(seen, expected, "every variant has a line");
    }
}
