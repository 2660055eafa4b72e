//! Facts. State changes only by absorbing them, so that a replay never depends on today's algorithm.
//!
//! The JSON form is the journal's format: add variants and optional fields, never rename or remove. Old forms are kept
//! alive by the golden test in `tests`.

use crate::facts::actor::Actor;
use crate::facts::audit::Line;
use crate::facts::flavors::Flavors;
use crate::facts::key::Key;
use crate::facts::submission::{Choice, Class, Consumed, Preempted, RecoveryStart, Submission};
use meridian_objects::Object;
use meridian_shared::ids::{
    ClusterName, ContentHash, Fence, Jurisdiction, Leadership, LedgerId, OfferId, RecordNumber, Region,
    Session, Uid,
};
use meridian_shared::placement::Placement;
use meridian_shared::protocol::{EndResult, Growth, RefuseReason, Run, Size, StopReason};
use meridian_shared::time::{Millis, Wall};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// One fact.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Record {
    /// A leadership began.
    Led {
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
    /// An object is as it says.
    Applied {
        /// Where.
        key: Key,
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
        /// Which.
        key: Key,
        /// Who.
        by: Actor,
    },
    /// A join token exists.
    TokenMinted {
        /// SHA-256 of it.
        hash: String,
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
    TokenUsed {
        /// SHA-256 of it.
        hash: String,
    },
    /// A newer session of an agent counts from now on.
    SessionOpened {
        /// Its cluster.
        cluster: ClusterName,
        /// Its durable store; another one than before is the loss of that.
        ledger: LedgerId,
        /// The session.
        session: Session,
    },
    /// A joined cluster may have work: its name is remembered elsewhere.
    MemberAdmitted {
        /// Which.
        cluster: ClusterName,
        /// Who acknowledged its name, or decided.
        by: Actor,
    },
    /// A workload was submitted.
    Submitted(Box<Submission>),
    /// Quota is charged.
    Reserved {
        /// The workload.
        uid: Uid,
        /// Flavor per resource.
        flavors: Flavors,
        /// When, for people.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        at: Option<Wall>,
        /// Pods of each pod set, where they are fewer than it would like.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        counts: Option<Vec<u32>>,
    },
    /// Quota goes back; the workload waits in the queue.
    Released {
        /// The workload.
        uid: Uid,
        /// For whose sake, where it is displaced.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        preempted: Option<Preempted>,
        /// When, for people.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        at: Option<Wall>,
    },
    /// A cluster is asked.
    Offered {
        /// The workload.
        uid: Uid,
        /// The question.
        offer: OfferId,
        /// Who is asked.
        cluster: ClusterName,
        /// The ledger it goes to.
        ledger: LedgerId,
        /// Why this cluster.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        choice: Option<Choice>,
    },
    /// The cluster waits for its provider.
    Waited {
        /// The workload.
        uid: Uid,
        /// The question.
        offer: OfferId,
        /// The provider's words.
        reason: String,
        /// Its estimate.
        estimate: Option<Millis>,
    },
    /// The cluster holds room for the whole gang.
    Held {
        /// The workload.
        uid: Uid,
        /// The question.
        offer: OfferId,
    },
    /// The cluster said no.
    Refused {
        /// The workload.
        uid: Uid,
        /// The question.
        offer: OfferId,
        /// From the closed list.
        reason: RefuseReason,
        /// In words.
        text: String,
    },
    /// The hold ran out.
    Expired {
        /// The workload.
        uid: Uid,
        /// The question.
        offer: OfferId,
    },
    /// The question was taken back.
    Withdrawn {
        /// The workload.
        uid: Uid,
        /// The question.
        offer: OfferId,
    },
    /// One cluster has the right to run.
    Granted {
        /// The workload.
        uid: Uid,
        /// The offer that was held.
        offer: OfferId,
        /// Larger than every fence of this workload before.
        fence: Fence,
        /// When, for people.
        at: Wall,
    },
    /// The agent has the grant durably.
    Accepted {
        /// The workload.
        uid: Uid,
        /// The grant.
        fence: Fence,
        /// Where its pods go, as the agent says.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        placement: Option<Arc<Placement>>,
    },
    /// The pods of an attempt are where they weren't known to be.
    Placed {
        /// The workload.
        uid: Uid,
        /// The attempt.
        fence: Fence,
        /// Where, as the agent says.
        placement: Arc<Placement>,
    },
    /// All pods have started.
    Running {
        /// The workload.
        uid: Uid,
        /// The attempt.
        fence: Fence,
        /// When, for people.
        at: Wall,
    },
    /// Pods of a running gang have succeeded and won't be needed again: what they had is given back.
    Reclaimed {
        /// The workload.
        uid: Uid,
        /// The attempt.
        fence: Fence,
        /// So many of each pod set, in the gang's order.
        pods: Vec<u32>,
    },
    /// Pods of an attempt have failed, and the job goes on.
    PodsFailed {
        /// The workload.
        uid: Uid,
        /// The attempt.
        fence: Fence,
        /// So many so far, over all attempts.
        failures: u32,
    },
    /// The attempt must stop.
    StopOrdered {
        /// The workload.
        uid: Uid,
        /// The attempt.
        fence: Fence,
        /// Why.
        reason: StopReason,
        /// Who.
        by: Actor,
        /// For whose sake, where it is displaced.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        preempted: Option<Preempted>,
        /// When, for people.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        at: Option<Wall>,
    },
    /// The attempt is over: confirmed by the ledger that had the grant.
    Ended {
        /// The workload.
        uid: Uid,
        /// The attempt.
        fence: Fence,
        /// How.
        result: EndResult,
        /// Failed pods of the job so far.
        pod_failures: u32,
        /// Run time used.
        ran: Millis,
        /// When, for people.
        at: Wall,
        /// The ledger knew nothing of the grant: nothing runs, and how the job ended isn't said.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        unknown: bool,
    },
    /// The agent durably refused the grant.
    GrantRefused {
        /// The workload.
        uid: Uid,
        /// The grant.
        fence: Fence,
        /// In words.
        why: String,
    },
    /// The right to run has provably lapsed, or an operator's word counts as if it had.
    Lapsed {
        /// The workload.
        uid: Uid,
        /// The attempt.
        fence: Fence,
        /// When, for people.
        at: Wall,
        /// By an operator's word.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        declared: bool,
        /// Who caused it, where somebody did.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<Actor>,
    },
    /// A person declared a ledger lost.
    DeclaredLost {
        /// Its cluster.
        cluster: ClusterName,
        /// The ledger.
        ledger: LedgerId,
        /// Who.
        by: Actor,
    },
    /// A run that exists became the workload's leg.
    Adopted {
        /// Where it runs.
        cluster: ClusterName,
        /// By which ledger.
        ledger: LedgerId,
        /// The run as it was reported.
        run: Box<Run>,
        /// Flavor per resource that its quota is charged to, if it had none yet.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        flavors: Flavors,
        /// When, for people.
        at: Wall,
    },
    /// A job ended by its own doing in an attempt that this journal doesn't know, as a copy from before that grant, or that it
    /// took for lapsed.
    EndLearned {
        /// The workload.
        uid: Uid,
        /// The attempt's fence.
        fence: Fence,
        /// Where it ran.
        cluster: ClusterName,
        /// How it ended.
        result: EndResult,
        /// Failed pods over all attempts.
        pod_failures: u32,
        /// Run time that the attempt used.
        ran: Millis,
        /// When it was learned, for people.
        at: Wall,
    },
    /// A run of an unknown uid was reported.
    OrphanSeen {
        /// Where.
        cluster: ClusterName,
        /// Ledger.
        ledger: LedgerId,
        /// The run.
        run: Box<Run>,
    },
    /// A person wants an orphan stopped. It is told to its agent whenever that shows what it has, until it says that it is over.
    OrphanStopOrdered {
        /// Its uid.
        uid: Uid,
        /// Its fence.
        fence: Fence,
        /// Who.
        by: Actor,
    },
    /// An orphan is gone.
    OrphanGone {
        /// Its uid.
        uid: Uid,
        /// Its fence.
        fence: Fence,
        /// Who caused it, where somebody did.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<Actor>,
    },
    /// The job's deletion was asked for; it stays until its gang is confirmed stopped.
    DeletionAsked {
        /// The workload.
        uid: Uid,
        /// When.
        at: Wall,
        /// Who.
        by: Actor,
    },
    /// It was taken out of the queue. What it has there is withdrawn or stopped by records of their own.
    Deactivated {
        /// The workload.
        uid: Uid,
        /// Who.
        by: Actor,
        /// When.
        at: Wall,
        /// It had run for as long as it may.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        time_is_up: bool,
    },
    /// It was put back into the queue.
    Activated {
        /// The workload.
        uid: Uid,
        /// Who.
        by: Actor,
        /// When.
        at: Wall,
    },
    /// A job has another manifest: an elastic one another number of pods, any other labels. What was given to it stays charged; an
    /// agent that runs it is told of its size.
    Resized {
        /// The workload.
        uid: Uid,
        /// What decisions depend on from now on.
        class: Box<Class>,
        /// Its manifest, by content.
        body: ContentHash,
        /// What an agent is told.
        size: Size,
        /// When.
        at: Wall,
        /// Who.
        by: Actor,
    },
    /// Quota is charged for more pods of a gang that runs; its agent is told.
    Grows {
        /// The workload.
        uid: Uid,
        /// The attempt.
        fence: Fence,
        /// Places of each pod set that were given in this attempt, with these.
        places: Vec<u32>,
        /// Pods of each pod set that it is to have.
        runs: Vec<u32>,
        /// The same, as its agent is told.
        size: Size,
        /// When.
        at: Wall,
    },
    /// Its agent has room for all of them.
    Grown {
        /// The workload.
        uid: Uid,
        /// The attempt.
        fence: Fence,
        /// What it has, as it was told or as it shows.
        growth: Box<Growth>,
        /// When.
        at: Wall,
    },
    /// Its agent has no room for them: what was charged for them goes back.
    NotGrown {
        /// The workload.
        uid: Uid,
        /// The attempt.
        fence: Fence,
        /// From the closed list.
        reason: RefuseReason,
        /// In words.
        text: String,
        /// When.
        at: Wall,
    },
    /// Its priority class has another value.
    Reprioritized {
        /// The workload.
        uid: Uid,
        /// Higher goes first.
        priority: i64,
        /// Who caused it, where somebody did.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<Actor>,
    },
    /// The workload ended for good.
    Finished {
        /// The workload.
        uid: Uid,
        /// Whether it succeeded.
        succeeded: bool,
        /// Kubernetes' condition reason.
        reason: String,
        /// In words.
        message: String,
        /// When.
        at: Wall,
    },
    /// The workload and its job are no longer kept.
    Forgotten {
        /// The workload.
        uid: Uid,
    },
    /// What local queues used before, as it counts at this moment.
    Sampled {
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// Lines of journals that were written once. Lines are added here, never changed.
    const WRITTEN: &str = include_str!("../../tests/golden/records.jsonl");

    /// Names of every variant: one that is added doesn't compile before it is here.
    const NAMES: [&str; 47] = [
        "Led",
        "RecoveryClosed",
        "RulesDoubted",
        "RulesConfirmed",
        "Applied",
        "Removed",
        "TokenMinted",
        "TokenUsed",
        "SessionOpened",
        "MemberAdmitted",
        "Submitted",
        "Reserved",
        "Released",
        "Offered",
        "Waited",
        "Held",
        "Refused",
        "Expired",
        "Withdrawn",
        "Granted",
        "Accepted",
        "Placed",
        "Running",
        "Reclaimed",
        "PodsFailed",
        "StopOrdered",
        "Ended",
        "GrantRefused",
        "Lapsed",
        "DeclaredLost",
        "Adopted",
        "EndLearned",
        "OrphanSeen",
        "OrphanStopOrdered",
        "OrphanGone",
        "DeletionAsked",
        "Deactivated",
        "Activated",
        "Resized",
        "Grows",
        "Grown",
        "NotGrown",
        "Reprioritized",
        "Finished",
        "Forgotten",
        "Sampled",
        "Audited",
    ];

    fn name(record: &Record) -> &'static str {
        match record {
            Record::Led { .. } => "Led",
            Record::RecoveryClosed { .. } => "RecoveryClosed",
            Record::RulesDoubted { .. } => "RulesDoubted",
            Record::RulesConfirmed { .. } => "RulesConfirmed",
            Record::Applied { .. } => "Applied",
            Record::Removed { .. } => "Removed",
            Record::TokenMinted { .. } => "TokenMinted",
            Record::TokenUsed { .. } => "TokenUsed",
            Record::SessionOpened { .. } => "SessionOpened",
            Record::MemberAdmitted { .. } => "MemberAdmitted",
            Record::Submitted(_) => "Submitted",
            Record::Reserved { .. } => "Reserved",
            Record::Released { .. } => "Released",
            Record::Offered { .. } => "Offered",
            Record::Waited { .. } => "Waited",
            Record::Held { .. } => "Held",
            Record::Refused { .. } => "Refused",
            Record::Expired { .. } => "Expired",
            Record::Withdrawn { .. } => "Withdrawn",
            Record::Granted { .. } => "Granted",
            Record::Accepted { .. } => "Accepted",
            Record::Placed { .. } => "Placed",
            Record::Running { .. } => "Running",
            Record::Reclaimed { .. } => "Reclaimed",
            Record::PodsFailed { .. } => "PodsFailed",
            Record::StopOrdered { .. } => "StopOrdered",
            Record::Ended { .. } => "Ended",
            Record::GrantRefused { .. } => "GrantRefused",
            Record::Lapsed { .. } => "Lapsed",
            Record::DeclaredLost { .. } => "DeclaredLost",
            Record::Adopted { .. } => "Adopted",
            Record::EndLearned { .. } => "EndLearned",
            Record::OrphanSeen { .. } => "OrphanSeen",
            Record::OrphanStopOrdered { .. } => "OrphanStopOrdered",
            Record::OrphanGone { .. } => "OrphanGone",
            Record::DeletionAsked { .. } => "DeletionAsked",
            Record::Deactivated { .. } => "Deactivated",
            Record::Activated { .. } => "Activated",
            Record::Resized { .. } => "Resized",
            Record::Grows { .. } => "Grows",
            Record::Grown { .. } => "Grown",
            Record::NotGrown { .. } => "NotGrown",
            Record::Reprioritized { .. } => "Reprioritized",
            Record::Finished { .. } => "Finished",
            Record::Forgotten { .. } => "Forgotten",
            Record::Sampled { .. } => "Sampled",
            Record::Audited(_) => "Audited",
        }
    }

    #[test]
    fn what_was_written_is_read_and_written_the_same() {
        let mut seen = BTreeSet::new();
        for line in WRITTEN.lines() {
            let record: Record = serde_json::from_str(line).unwrap_or_else(|error| panic!("{line}: {error}"));
            assert_eq!(serde_json::to_string(&record).unwrap(), line);
            assert!(line.starts_with(&format!("{{\"{}\":", name(&record))), "{line}");
            seen.insert(name(&record));
        }
        assert_eq!(seen, BTreeSet::from(NAMES), "every variant has a line");
    }
}
