//! Facts about one workload.

use crate::facts::actor::Actor;
use crate::facts::end::Preempted;
use crate::facts::flavors::Flavors;
use crate::facts::submission::{Choice, Class, Submission};
use meridian_shared::ids::{ClusterName, ContentHash, Fence, LedgerId, OfferId};
use meridian_shared::placement::Placement;
use meridian_shared::protocol::{EndResult, GrantRefusal, Growth, RefuseReason, Run, Size, StopReason};
use meridian_shared::time::{Millis, Wall};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum WorkloadFact {
    /// A workload was submitted.
    Submitted(Box<Submission>),
    /// Quota is charged.
    QuotaReserved {
        /// Flavor per resource.
        flavors: Flavors,
        at: Wall,
        /// Pods of each pod set, where they are fewer than it would like.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        counts: Option<Vec<u32>>,
    },
    /// Quota goes back; the workload waits in the queue.
    QuotaReleased {
        /// For whose sake, where it is displaced.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        preempted: Option<Preempted>,
        at: Wall,
    },
    /// A cluster is asked.
    Offered {
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
    Waiting {
        /// The question.
        offer: OfferId,
        /// The provider's words.
        reason: String,
        /// Its estimate.
        estimate: Option<Millis>,
    },
    /// The cluster holds room for the whole gang.
    Held {
        /// The question.
        offer: OfferId,
    },
    /// The cluster said no.
    Refused {
        /// The question.
        offer: OfferId,
        /// From the closed list.
        reason: RefuseReason,
        /// In words.
        text: String,
    },
    /// The hold ran out.
    HoldExpired {
        /// The question.
        offer: OfferId,
    },
    /// The question was taken back.
    Withdrawn {
        /// The question.
        offer: OfferId,
    },
    /// One cluster has the right to run.
    Granted {
        /// The offer that was held.
        offer: OfferId,
        /// Larger than every fence of this workload before.
        fence: Fence,
        /// When, for people.
        at: Wall,
    },
    /// The agent has the grant durably.
    GrantAccepted {
        /// The grant.
        fence: Fence,
        /// Where its pods go, as the agent says.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        placement: Option<Arc<Placement>>,
    },
    /// The agent durably refused the grant.
    GrantRefused {
        /// The grant.
        fence: Fence,
        why: GrantRefusal,
    },
    /// The pods of an attempt are where they weren't known to be.
    PodsPlaced {
        /// The attempt.
        fence: Fence,
        /// Where, as the agent says.
        placement: Arc<Placement>,
    },
    /// All pods have started.
    Running {
        /// The attempt.
        fence: Fence,
        /// When, for people.
        at: Wall,
    },
    /// Pods of a running gang have succeeded and won't be needed again: what they had is given back.
    PodsReclaimed {
        /// The attempt.
        fence: Fence,
        /// So many of each pod set, in the gang's order.
        pods: Vec<u32>,
    },
    /// Pods of an attempt have failed, and the job goes on.
    PodsFailed {
        /// The attempt.
        fence: Fence,
        /// So many so far, over all attempts.
        failures: u32,
    },
    /// The attempt must stop.
    StopOrdered {
        /// The attempt.
        fence: Fence,
        /// Why.
        reason: StopReason,
        /// Who.
        by: Actor,
        /// For whose sake, where it is displaced.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        preempted: Option<Preempted>,
        at: Wall,
    },
    /// The attempt is over: confirmed by the ledger that had the grant.
    Ended {
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
    /// The right to run has provably lapsed, or an operator's word counts as if it had.
    LeaseLapsed {
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
    /// The job's deletion was asked for; it stays until its gang is confirmed stopped.
    DeletionRequested {
        /// When.
        at: Wall,
        /// Who.
        by: Actor,
    },
    /// It was taken out of the queue. What it has there is withdrawn or stopped by records of their own.
    Deactivated {
        /// Who.
        by: Actor,
        /// When.
        at: Wall,
        /// It had run for as long as it may.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        max_execution_time_reached: bool,
    },
    /// It was put back into the queue.
    Activated {
        /// Who.
        by: Actor,
        /// When.
        at: Wall,
    },
    /// A job has another manifest: an elastic one another number of pods, any other labels. What was given to it stays charged; an
    /// agent that runs it is told of its size.
    Resized {
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
    ScaleUpStarted {
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
    ScaledUp {
        /// The attempt.
        fence: Fence,
        /// What it has, as it was told or as it shows.
        growth: Box<Growth>,
        /// When.
        at: Wall,
    },
    /// Its agent has no room for them: what was charged for them goes back.
    ScaleUpRefused {
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
    PriorityChanged {
        /// Higher goes first.
        priority: i64,
        /// Who caused it, where somebody did.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<Actor>,
    },
    /// The workload ended for good.
    Finished {
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
    Forgotten,
}

impl WorkloadFact {
    /// Whether the fact frees space, quota or capacity.
    pub(crate) fn frees(&self) -> bool {
        match self {
            Self::QuotaReleased { .. }
            | Self::Refused { .. }
            | Self::HoldExpired { .. }
            | Self::Withdrawn { .. }
            | Self::PodsReclaimed { .. }
            | Self::PodsFailed { .. }
            | Self::StopOrdered { .. }
            | Self::Ended { .. }
            | Self::GrantRefused { .. }
            | Self::EndLearned { .. }
            | Self::LeaseLapsed { .. }
            | Self::DeletionRequested { .. }
            | Self::Deactivated { .. }
            | Self::Resized { .. }
            | Self::ScaledUp { .. }
            | Self::ScaleUpRefused { .. }
            | Self::PriorityChanged { .. }
            | Self::Finished { .. }
            | Self::Forgotten => true,
            Self::Submitted(_)
            | Self::QuotaReserved { .. }
            | Self::Offered { .. }
            | Self::Waiting { .. }
            | Self::Held { .. }
            | Self::Granted { .. }
            | Self::GrantAccepted { .. }
            | Self::PodsPlaced { .. }
            | Self::Activated { .. }
            | Self::ScaleUpStarted { .. }
            | Self::Running { .. }
            | Self::Adopted { .. } => false,
        }
    }
}
