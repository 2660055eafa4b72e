//! Facts. State changes only by absorbing them, so a replay never depends on today's algorithm.
//!
//! The JSON form is the journal's format: add variants and optional fields, never rename or remove. The golden file of the
//! tests holds a line of each variant.

use crate::facts::actor::Actor;
use crate::facts::audit::Line;
use crate::facts::key::Key;
use crate::facts::submission::{Consumed, RecoveryStart};
pub use crate::facts::workload_fact::WorkloadFact;
use meridian_objects::Object;
use meridian_shared::ids::{
    ClusterName, Fence, Jurisdiction, Leadership, LedgerId, RecordNumber, Region, Session, Uid,
};
use meridian_shared::protocol::Run;
use meridian_shared::time::Wall;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// One fact.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Record {
    Leadership(LeadershipFact),
    Object {
        key: Key,
        fact: ObjectFact,
    },
    /// A join token, by the SHA-256 of it.
    Token {
        hash: String,
        fact: TokenFact,
    },
    /// A cluster that has, or had, an agent.
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
    /// What local queues used before, as it counts at this moment.
    UsageSampled {
        /// When.
        at: Wall,
        /// What is left of it, by local queue: namespace and name.
        queues: BTreeMap<Arc<str>, Consumed>,
        /// Local queues of which nothing is left.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        forgotten: Vec<Arc<str>>,
    },
    /// One line of the audit log.
    Audited(Box<Line>),
}

impl Record {
    /// Whether the record frees space, quota or capacity. Such records may use the journal's reserved space when the disk is full.
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
    /// A leadership began.
    Started {
        /// Which.
        leadership: Leadership,
        /// When.
        at: Wall,
        /// Recovery, unless the short cut was shown to be safe.
        recovery: Option<RecoveryStart>,
        /// Ranges of other leaderships that agents showed: this leadership stands above them.
        foreign: Vec<(Leadership, RecordNumber)>,
    },
    /// Recovery is over.
    RecoveryClosed {
        /// Who or what closed it.
        by: Actor,
    },
    /// An operator confirmed that no other copy of this journal leads, and that there are no other members. Clusters that
    /// haven't reported their inventory are still waited for.
    CopiesRuledOut { by: Actor },
    /// An agent showed rules newer than this journal's: nothing is offered until a person confirms.
    RulesDoubted {
        /// The record number that was shown.
        seen: RecordNumber,
    },
    /// A person confirmed policies and quotas.
    RulesConfirmed {
        /// Who.
        by: Actor,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ObjectFact {
    /// An object is as it says.
    Applied {
        /// What.
        object: Box<Object>,
        /// Its uid.
        uid: Uid,
        /// When.
        at: Wall,
        /// Who.
        by: Actor,
    },
    /// An object is gone.
    Removed {
        /// Who.
        by: Actor,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum TokenFact {
    /// A join token exists.
    Minted {
        /// What it is bound to.
        cluster: ClusterName,
        /// Region.
        region: Region,
        /// Jurisdiction.
        jurisdiction: Jurisdiction,
        /// Not good after.
        expires: Wall,
        /// The name may exist.
        replace: bool,
        /// Who.
        by: Actor,
    },
    /// A join token was used.
    Used,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum MemberFact {
    /// A newer session of an agent counts from now on.
    SessionOpened {
        /// Its durable store; another one than before is the loss of that.
        ledger: LedgerId,
        /// The session.
        session: Session,
    },
    /// A joined cluster may have work: its name is remembered elsewhere.
    Admitted {
        /// Who acknowledged its name, or decided.
        by: Actor,
    },
    /// A person declared a ledger lost.
    DeclaredLost {
        /// The ledger.
        ledger: LedgerId,
        /// Who.
        by: Actor,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum OrphanFact {
    /// A run of an unknown uid was reported.
    Seen {
        /// Where.
        cluster: ClusterName,
        /// Ledger.
        ledger: LedgerId,
        /// The run.
        run: Box<Run>,
    },
    /// A person wants an orphan stopped. It is told to its agent whenever that shows what it has, until it says that it is over.
    StopOrdered {
        /// Who.
        by: Actor,
    },
    /// An orphan is gone.
    Gone {
        /// Who caused it, where somebody did.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<Actor>,
    },
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// Lines as journals hold them. Lines are added, never changed.
    const WRITTEN: &str = include_str!("../../tests/golden/records.jsonl");

    /// Every variant of the groups. A new variant needs a line in the golden file and its name here.
    const NAMES: [&str; 48] = [
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
        "Workload/GrantAccepted",
        "Workload/GrantRefused",
        "Workload/PodsPlaced",
        "Workload/Running",
        "Workload/PodsReclaimed",
        "Workload/PodsFailed",
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
    fn records_are_read_and_written_as_the_golden_lines() {
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
