use crate::facts::actor::Actor;
use crate::facts::end::Preempted;
use crate::facts::flavors::Flavors;
use crate::facts::submission::{Choice, Class, Submission};
use meridian_shared::ids::{ClusterName, ContentHash, Fence, LedgerId, OfferId};
use meridian_shared::indexes::Indexes;
use meridian_shared::placement::Placement;
use meridian_shared::protocol::{EndResult, GrantRefusal, RefuseReason, Run, ScaleUp, Size, StopReason};
use meridian_shared::time::{Millis, Wall};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// A fact about one workload. Facts about a leg name its `offer`, facts about an attempt its `fence`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum WorkloadFact {
    Submitted(Box<Submission>),
    /// Quota is charged.
    QuotaReserved {
        flavors: Flavors,
        at: Wall,
        /// Pods admitted per pod set. `None` if all were admitted.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        counts: Option<Vec<u32>>,
    },
    /// Quota is no longer charged; the workload is pending again.
    QuotaReleased {
        /// The preemptor, if the workload was preempted.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        preempted: Option<Preempted>,
        at: Wall,
    },
    /// A cluster is asked to hold capacity.
    Offered {
        offer: OfferId,
        cluster: ClusterName,
        /// Ledger of the cluster's agent. Only this ledger can end the attempt that follows from the offer.
        ledger: LedgerId,
        /// Why this cluster was chosen.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        choice: Option<Choice>,
    },
    /// The agent of the cluster that has the right to run has another ledger now. No agent reports this
    /// attempt any more, so only time or an operator ends it.
    LedgerReplaced {
        fence: Fence,
        /// When its lease will have lapsed. `None` if only `declare-lost` ends the attempt.
        until: Option<Wall>,
    },
    /// The cluster waits for its provider to provide nodes.
    Waiting {
        offer: OfferId,
        /// The provider's reason, in its own words.
        reason: String,
        /// The provider's estimate of the wait.
        estimate: Option<Millis>,
    },
    /// The cluster holds capacity for the whole gang.
    Held {
        offer: OfferId,
    },
    /// The cluster refused the offer.
    Refused {
        offer: OfferId,
        reason: RefuseReason,
        /// The agent's explanation.
        text: String,
    },
    HoldExpired {
        offer: OfferId,
    },
    /// The manager withdrew the offer.
    Withdrawn {
        offer: OfferId,
    },
    /// One cluster got the right to run the workload.
    Granted {
        /// The offer that won the race.
        offer: OfferId,
        /// Larger than every earlier fence of this workload.
        fence: Fence,
        /// Only for display.
        at: Wall,
    },
    /// The agent made the grant durable.
    GrantAccepted {
        fence: Fence,
        /// Nodes or domains of the pods, as the agent reported them.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        placement: Option<Arc<Placement>>,
    },
    /// The agent durably refused the grant.
    GrantRefused {
        fence: Fence,
        why: GrantRefusal,
    },
    /// The agent reported a new placement of the attempt's pods.
    PodsPlaced {
        fence: Fence,
        placement: Arc<Placement>,
    },
    /// All pods have started.
    Running {
        fence: Fence,
        /// Only for display.
        at: Wall,
    },
    /// Pods of a running gang succeeded and aren't needed again, so their quota and capacity are free.
    PodsReclaimed {
        fence: Fence,
        /// Reclaimed pods per pod set, so far.
        pods: Vec<u32>,
    },
    /// Pods of an attempt failed, but the job continues.
    PodsFailed {
        fence: Fence,
        /// Failed pods so far, over all attempts.
        failures: u32,
    },
    /// Pods of an attempt succeeded: their indexes never run again, in any attempt.
    IndexesCompleted {
        fence: Fence,
        /// All indexes that succeeded so far, over all attempts.
        completed: Indexes,
    },
    /// The attempt must stop.
    StopOrdered {
        fence: Fence,
        reason: StopReason,
        by: Actor,
        /// The preemptor, if the workload is preempted.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        preempted: Option<Preempted>,
        at: Wall,
    },
    /// The attempt ended, as the ledger that had the grant confirmed.
    Ended {
        fence: Fence,
        result: EndResult,
        /// Failed pods of the job so far, over all attempts.
        pod_failures: u32,
        /// Run time of this attempt.
        ran: Millis,
        /// Only for display.
        at: Wall,
        /// The ledger had no record of the grant: nothing runs, and the job's result is unknown.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        unknown: bool,
    },
    /// The right to run has provably lapsed, or counts as lapsed because an operator declared the ledger
    /// lost.
    LeaseLapsed {
        fence: Fence,
        /// Only for display.
        at: Wall,
        /// Whether an operator declared the ledger lost.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        declared: bool,
        /// `None` if only time caused it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<Actor>,
    },
    /// A run that an agent reported became the workload's leg.
    Adopted {
        cluster: ClusterName,
        ledger: LedgerId,
        /// The run as reported.
        run: Box<Run>,
        /// Flavors to charge if the workload had no quota yet.
        #[serde(default, skip_serializing_if = "Flavors::is_empty")]
        flavors: Flavors,
        /// Only for display.
        at: Wall,
    },
    /// The job ended by itself in an attempt that has no leg here: this journal is a copy from before the
    /// grant, or the lease was considered lapsed.
    EndLearned {
        fence: Fence,
        cluster: ClusterName,
        result: EndResult,
        /// Failed pods of the job so far, over all attempts.
        pod_failures: u32,
        /// Run time of the attempt.
        ran: Millis,
        /// When the end was reported, for display.
        at: Wall,
    },
    /// The job is deleted as soon as its gang is confirmed stopped.
    DeletionRequested {
        at: Wall,
        by: Actor,
    },
    /// The workload left the queue. Separate records withdraw its offers and stop its run.
    Deactivated {
        by: Actor,
        at: Wall,
        /// The workload had run for its maximum execution time.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        max_execution_time_reached: bool,
    },
    /// The workload is back in the queue.
    Activated {
        by: Actor,
        at: Wall,
    },
    /// The job's manifest changed: labels, or the number of pods of an elastic job. Admitted quota stays
    /// charged; an agent that runs the job is sent its new size.
    Resized {
        /// The scheduling class from now on.
        class: Box<Class>,
        /// Content hash of the manifest.
        body: ContentHash,
        /// The size to send to the agent.
        size: Size,
        at: Wall,
        by: Actor,
    },
    /// Quota is charged for more pods of a running gang. The agent is asked for the capacity.
    ScaleUpStarted {
        fence: Fence,
        /// Pods granted per pod set in this attempt, these included.
        places: Vec<u32>,
        /// Pods per pod set after the scale-up.
        runs: Vec<u32>,
        /// The size to send to the agent, which says the same as `runs`.
        size: Size,
        at: Wall,
    },
    /// The agent has capacity for all pods.
    ScaledUp {
        fence: Fence,
        /// The scale-up as it was sent to, or reported by, the agent.
        scale_up: Box<ScaleUp>,
        at: Wall,
    },
    /// The agent has no capacity for more pods: their quota is no longer charged.
    ScaleUpRefused {
        fence: Fence,
        reason: RefuseReason,
        /// The agent's explanation.
        text: String,
        at: Wall,
    },
    PriorityChanged {
        /// Higher goes first.
        priority: i64,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<Actor>,
    },
    /// The job ended for good.
    Finished {
        succeeded: bool,
        /// Reason of the Kubernetes condition.
        reason: String,
        /// Message of the Kubernetes condition.
        message: String,
        at: Wall,
    },
    /// The workload and its job are no longer kept.
    Forgotten,
}

impl WorkloadFact {
    /// Whether the fact frees disk space, quota or capacity.
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
            | Self::LedgerReplaced { .. }
            | Self::GrantAccepted { .. }
            | Self::PodsPlaced { .. }
            | Self::IndexesCompleted { .. }
            | Self::Activated { .. }
            | Self::ScaleUpStarted { .. }
            | Self::Running { .. }
            | Self::Adopted { .. } => false,
        }
    }
}
