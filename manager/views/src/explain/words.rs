//! Messages for pending reasons, ends of attempts and stops.

use crate::asker::Asker;
use meridian_manager_core::facts::end::{AttemptEnd, EvictionCause, refusal_text};
use meridian_manager_core::facts::key::Key;
use meridian_manager_core::facts::reason::{Denied, NoQuota, NoRoute, Shortage, Why};
use meridian_manager_core::state::legs::Leg;
use meridian_manager_core::state::workload::{AttemptRecord, OrderedStop};
use meridian_objects::quantity;
use meridian_queueing::model::{Clash, Inactive};
use meridian_shared::ids::ClusterName;
use meridian_shared::packing::Misfit;
use meridian_shared::protocol::{EndResult, RefuseReason, StopReason};
use meridian_shared::timestamp::timestamp;

const DAMAGED_REMEDY: &str = "restore the journal from a backup, or submit the job again: `meridian apply` \
                              with the manifest as it was submitted repairs it";

/// Messages for a pending reason.
pub trait Wording {
    /// The verdict on a cluster: one of a few words that programs may compare, such as `waiting`,
    /// `forbidden` or `no-room`.
    fn verdict(&self) -> &'static str;

    /// The reason, without the names of workloads that `asker` may not read.
    fn message(&self, asker: &Asker) -> String;

    /// Remedy for a user or operator. Starts with a verb.
    fn remedy(&self, asker: &Asker) -> String;
}

fn route_remedy(why: &NoRoute) -> String {
    match why {
        NoRoute::NoLocalQueue { namespace, queue } => {
            format!("create local queue `{queue}` in namespace `{namespace}`")
        }
        NoRoute::NoClusterQueue { cluster_queue } => format!("create cluster queue `{cluster_queue}`"),
        NoRoute::SelectsNoNamespace { cluster_queue } => format!(
            "write `namespaceSelector: {{}}` into cluster queue `{cluster_queue}` to select all namespaces"
        ),
        NoRoute::NamespaceNotSelected { .. } => {
            "change the cluster queue's namespaceSelector, or label the namespace".into()
        }
        NoRoute::Stopped { what } => format!("set the stopPolicy of {what} to `None`"),
    }
}

fn route_message(why: &NoRoute) -> String {
    match why {
        NoRoute::NoLocalQueue { namespace, queue } => {
            format!("local queue `{namespace}/{queue}` doesn't exist")
        }
        NoRoute::NoClusterQueue { cluster_queue } => format!("cluster queue `{cluster_queue}` doesn't exist"),
        NoRoute::SelectsNoNamespace { cluster_queue } => {
            format!("cluster queue `{cluster_queue}` has no namespaceSelector, so it selects no namespace")
        }
        NoRoute::NamespaceNotSelected { cluster_queue, namespace } => format!(
            "namespace `{namespace}` doesn't match the namespaceSelector of cluster queue `{cluster_queue}`"
        ),
        NoRoute::Stopped { what } => format!("{what} is stopped"),
    }
}

impl Wording for Why {
    fn verdict(&self) -> &'static str {
        match self {
            Self::Route(_)
            | Self::Quota(_)
            | Self::NoCluster
            | Self::RecoveryOpen
            | Self::RulesDoubted
            | Self::RulesUnheard
            | Self::BackOff
            | Self::Damaged
            | Self::Preempts { .. }
            | Self::Overtaken
            | Self::ReservedForStarved
            | Self::Inactive { .. } => "waiting",
            Self::Forbidden(_) | Self::NotInQueue | Self::NoWorkersConfig { .. } => "forbidden",
            Self::Cordoned => "cordoned",
            Self::NotConnected | Self::NoReport | Self::Recovering | Self::NotAdmitted => "unknown",
            Self::Quarantined { .. } | Self::NotGuarded | Self::Refused { .. } | Self::BackedOff => "refused",
            Self::Capped { .. } | Self::NoCapacity(_) | Self::CapacityReserved { .. } => "no-room",
            Self::NotChosen { .. } => "not-chosen",
        }
    }

    fn message(&self, asker: &Asker) -> String {
        match self {
            Self::Route(why) => route_message(why),
            Self::Quota(quota) => {
                let exceeds = matches!(quota, NoQuota::ExceedsQuota { .. });
                quota_message(quota, "the queue", if exceeds { WITH_BORROWING } else { "" })
            }
            Self::Preempts { victims: 1 } => "preempting 1 workload".into(),
            Self::Preempts { victims } => format!("preempting {victims} workloads"),
            Self::Overtaken => "another workload in its cohort comes first".into(),
            Self::Inactive { queue, why } => {
                format!("cluster queue `{queue}` is inactive: {}", inactive_message(why))
            }
            Self::Forbidden(denied) => denied.to_string(),
            Self::NoCluster => "none of the queue's clusters is connected".into(),
            Self::NotInQueue => "not listed in the queue's MultiKueueConfig".into(),
            Self::NoWorkersConfig { check, config } => {
                format!("MultiKueueConfig `{config}` of admission check `{check}` doesn't exist")
            }
            Self::Cordoned => "cordoned".into(),
            Self::NotConnected => "its agent isn't connected".into(),
            Self::Recovering => "its agent hasn't sent a complete inventory yet".into(),
            Self::NotAdmitted => "joined just now: no other cluster has acknowledged its name yet".into(),
            Self::Quarantined { located } => {
                format!(
                    "quarantined: its agent is in `{located}`, but the `Cluster` object declares another \
                     place"
                )
            }
            Self::NoReport => "its agent hasn't reported capacity yet".into(),
            Self::NotGuarded => "the dispatch policy requires guards, which its runner doesn't have".into(),
            Self::Capped { resource, asks, left, cap } => {
                let [asks, left, cap] = [asks, left, cap].map(|amount| quantity::format(resource, *amount));
                format!("needs {asks} {resource}, {left} of {cap} free")
            }
            Self::NoCapacity(misfit) => misfit.to_string(),
            Self::CapacityReserved { reserved_for, starves } => {
                let why = if *starves { "has waited too long" } else { "is preempting others" };
                let owner = reservation_owner(reserved_for.as_ref(), asker);
                format!("its free capacity is reserved for {owner}, which {why}")
            }
            Self::ReservedForStarved => {
                "quota is reserved for a workload in its cohort that has waited too long".into()
            }
            Self::Refused { text, .. } => text.clone(),
            Self::BackedOff => "backing off: the last attempts there did not reach running".into(),
            Self::NotChosen { chosen } => format!("has room, but cluster `{chosen}` was preferred"),
            Self::RecoveryOpen => {
                "the manager is recovering: not every cluster has reported what it runs".into()
            }
            Self::RulesDoubted => {
                "policies and quotas may have changed since this journal was written: an operator must \
                 confirm them"
                    .into()
            }
            Self::RulesUnheard => {
                "not every cluster has reported since the manager started, and one may know newer \
                 policies or quotas"
                    .into()
            }
            Self::BackOff => "backing off before the next attempt".into(),
            Self::Damaged => "damaged: the stored manifest can't be read".into(),
        }
    }

    fn remedy(&self, asker: &Asker) -> String {
        match self {
            Self::Route(why) => route_remedy(why),
            Self::Quota(quota) => quota_remedy(quota),
            Self::Forbidden(Denied::NotRequested) => {
                "submit the job again without a region, or with this cluster's region".into()
            }
            Self::Forbidden(Denied::UnknownPlace) => {
                "declare its region and jurisdiction in a `Cluster` object".into()
            }
            Self::Forbidden(_) => "ask the owner of the residency policies to permit this cluster".into(),
            Self::NoCluster => "start or join the agent of a cluster that the queue may use".into(),
            Self::NotConnected => "start or join its agent".into(),
            Self::NotInQueue => "add the cluster to the queue's MultiKueueConfig".into(),
            Self::NoWorkersConfig { config, .. } => format!("create MultiKueueConfig `{config}`"),
            Self::Cordoned => "uncordon the cluster".into(),
            Self::Recovering | Self::NoReport => {
                "wait until its agent has reported; declare the cluster lost if that never happens".into()
            }
            Self::RecoveryOpen => {
                "wait until all clusters have reported; declare those lost that never will".into()
            }
            Self::NotAdmitted => {
                "wait for the next sync of another cluster, or run `meridian cluster admit`".into()
            }
            Self::Quarantined { .. } => "correct the `Cluster` object or the agent's location".into(),
            Self::NotGuarded => {
                "use a runner with guards there, or a dispatch policy that accepts supervised gangs".into()
            }
            Self::Capped { resource, asks, left, cap } => {
                let limit = quantity::format(resource, cap.saturating_add(asks.saturating_sub(*left)));
                let ends = if asks <= cap { "wait until a workload there ends, or " } else { "" };
                format!("{ends}raise the cluster's limit of `{resource}` to {limit}")
            }
            Self::NoCapacity(
                Misfit::NotEnoughCapacity { fits_empty: true, .. }
                | Misfit::NoDomain { fits_empty: true, .. },
            ) => "wait until a workload there ends".into(),
            Self::ReservedForStarved => "wait until that workload has started and quota is free".into(),
            Self::CapacityReserved { reserved_for, .. } => {
                let owner = reservation_owner(reserved_for.as_ref(), asker);
                format!("wait until {owner} has started and capacity is free")
            }
            Self::NoCapacity(Misfit::NoSuchNode { .. }) => {
                "add nodes there that match the pods' selectors and tolerations, or change these".into()
            }
            // a pod can't ask for less than one device
            Self::NoCapacity(Misfit::PodTooLarge { resource, asks: 1, .. }) if resource.contains('/') => {
                format!("add nodes with `{resource}` there")
            }
            // smaller pods may not help: the scarce resource is unknown, and may be a device
            Self::NoCapacity(Misfit::NotEnoughCapacity { count, .. }) if *count > 1 => MORE_NODES.into(),
            Self::NoCapacity(_) => LARGER_NODES.into(),
            Self::Refused { reason, .. } => refusal_remedy(*reason).into(),
            Self::BackedOff | Self::BackOff => NEXT_ATTEMPT.into(),
            Self::NotChosen { .. } => "do nothing: the workload has a cluster".into(),
            Self::RulesDoubted => "check policies and quotas, then run `meridian journal confirm`".into(),
            Self::RulesUnheard => {
                "wait until all clusters have reported, or check policies and quotas and run \
                 `meridian journal confirm`"
                    .into()
            }
            Self::Preempts { .. } => "wait until they have stopped".into(),
            Self::Overtaken => {
                "wait for the next scheduling cycle, or submit the job again with a higher priority".into()
            }
            Self::Damaged => DAMAGED_REMEDY.into(),
            Self::Inactive { queue, why } => inactive_remedy(queue, why),
        }
    }
}

const NEXT_ATTEMPT: &str = "wait for the next attempt";

const LARGER_NODES: &str = "add or enlarge nodes there, or use smaller pods";
const MORE_NODES: &str = "add or enlarge nodes there, or use fewer pods";

const fn refusal_remedy(reason: RefuseReason) -> &'static str {
    match reason {
        RefuseReason::NoCapacity | RefuseReason::StillRuns => "wait until a workload there ends",
        RefuseReason::NeverFits => "add or enlarge nodes there, or use fewer or smaller pods",
        RefuseReason::Unsupported => "use a runner there that can run the job, or another cluster",
        RefuseReason::Overloaded | RefuseReason::ProviderFailed => NEXT_ATTEMPT,
        RefuseReason::Precondition => "create what is missing there, or wait for the next attempt",
    }
}

/// States that a maximum includes quota that the queue may borrow.
pub(crate) const WITH_BORROWING: &str = ", even with borrowing";

fn quota_remedy(quota: &NoQuota) -> String {
    match quota {
        NoQuota::NotCovered { resource } => {
            format!("add `{resource}` to a resource group of the queue, or don't request it")
        }
        NoQuota::NoMatchingFlavor { .. } => {
            "add a flavor with matching labels, taints and topology, or change what the pods request".into()
        }
        NoQuota::ExceedsQuota { flavor, resource, raise_to, .. } => {
            let raise_to = quantity::format(resource, *raise_to);
            format!(
                "raise the queue's nominal quota of `{resource}` in flavor `{flavor}` to {raise_to}, \
                 or request less"
            )
        }
        NoQuota::Used(short) => {
            let Shortage { flavor, resource, asks, free, raise_to, also, .. } = &**short;
            let also = if also.is_empty() {
                String::new()
            } else {
                format!(", and that of `{}` too", also.join("`, `"))
            };
            let [missing, raise_to] =
                [asks - free, *raise_to].map(|amount| quantity::format(resource, amount));
            format!(
                "wait until workloads that use {missing} {resource} end, \
                 or raise the queue's nominal quota of `{resource}` in flavor `{flavor}` to {raise_to}{also}"
            )
        }
    }
}

fn inactive_remedy(queue: &str, why: &Inactive) -> String {
    match why {
        Inactive::Stopped => format!("set the stopPolicy of cluster queue `{queue}` to `None`"),
        Inactive::CohortCycle => "change the parent of a cohort above it, so that they form no cycle".into(),
        Inactive::FlavorNotFound(flavor) => {
            format!("create resource flavor `{flavor}`, or remove it from cluster queue `{queue}`")
        }
        Inactive::AdmissionCheck(check) => {
            format!("create admission check `{check}`, or remove it from cluster queue `{queue}`")
        }
        Inactive::CheckInactive(check) => {
            format!(
                "check why admission check `{check}` is inactive, or remove it from cluster queue `{queue}`"
            )
        }
        Inactive::WorkersCheck(_, Clash::Several) => {
            format!("keep only one MultiKueue admission check in cluster queue `{queue}`")
        }
        Inactive::WorkersCheck(check, Clash::OnFlavors) => {
            format!("apply admission check `{check}` of cluster queue `{queue}` to all flavors")
        }
        Inactive::WorkersCheck(_, Clash::Provisioning) => format!(
            "remove the provisioning check from cluster queue `{queue}`: \
             each worker cluster provisions its own nodes"
        ),
        Inactive::TopologyNotFound(topology) => format!("create topology `{topology}`"),
    }
}

/// The same shortage without the statement that preemption can't help.
pub(crate) fn without_preemption(quota: &NoQuota) -> NoQuota {
    match quota {
        NoQuota::Used(short) => NoQuota::Used(Box::new(Shortage { no_victims: false, ..(**short).clone() })),
        other => other.clone(),
    }
}

/// The message of a quota shortage. `queue` names the queue; `borrowing` qualifies the quota that it can
/// borrow, such as [`WITH_BORROWING`].
pub fn quota_message(quota: &NoQuota, queue: &str, borrowing: &str) -> String {
    match quota {
        NoQuota::NotCovered { resource } => format!("no resource group of {queue} covers `{resource}`"),
        NoQuota::NoMatchingFlavor { why } => format!("no flavor of {queue} fits the pods: {why}"),
        NoQuota::ExceedsQuota { flavor, resource, asks, nominal, .. } => {
            let [asks, nominal] = [asks, nominal].map(|amount| quantity::format(resource, *amount));
            format!(
                "needs {asks} {resource}, but {queue} can use at most {nominal} \
                 in flavor `{flavor}`{borrowing}"
            )
        }
        NoQuota::Used(short) => {
            let Shortage { flavor, resource, asks, free, nominal, own, lent, cohort, no_victims, .. } =
                &**short;
            let borrows = match cohort {
                Some(cohort) => format!(
                    " and can borrow {} from cohort `{cohort}`{borrowing}",
                    quantity::format(resource, (free - own).max(0))
                ),
                None => String::new(),
            };
            let lent = if *lent > 0 {
                format!(" ({} lent to other queues)", quantity::format(resource, *lent))
            } else {
                String::new()
            };
            let preemption = if *no_victims { ", and preemption can't free more" } else { "" };
            let [asks, own, nominal] = [asks, own, nominal].map(|amount| quantity::format(resource, *amount));
            format!(
                "needs {asks} {resource}; {queue} has {own} of {nominal} free in flavor `{flavor}`\
                 {lent}{borrows}{preemption}"
            )
        }
    }
}

pub(crate) fn inactive_message(why: &Inactive) -> String {
    match why {
        Inactive::Stopped => "it is stopped".into(),
        Inactive::CohortCycle => "its cohorts form a cycle".into(),
        Inactive::FlavorNotFound(flavor) => format!("resource flavor `{flavor}` doesn't exist"),
        Inactive::AdmissionCheck(check) => format!("admission check `{check}` doesn't exist"),
        Inactive::CheckInactive(check) => format!("admission check `{check}` is inactive"),
        Inactive::WorkersCheck(check, clash) => clash.message(check),
        Inactive::TopologyNotFound(topology) => format!("topology `{topology}` doesn't exist"),
    }
}

fn reservation_owner(job: Option<&Key>, asker: &Asker) -> String {
    job.map_or_else(|| "another workload".to_owned(), |job| asker.job(job))
}

/// States that none of `clusters` clusters can start a workload now, and why the `closest` of them can't.
/// `message` is the text of `why`.
pub(crate) fn no_cluster_message(clusters: usize, closest: &ClusterName, why: &Why, message: &str) -> String {
    let lacks_capacity = matches!(
        why,
        Why::NoCapacity(_)
            | Why::Capped { .. }
            | Why::CapacityReserved { .. }
            | Why::Refused { reason: RefuseReason::NoCapacity, .. }
    );
    match (clusters, lacks_capacity) {
        (1, true) => format!("the only cluster, `{closest}`, has no room: {message}"),
        (1, false) => format!("the only cluster, `{closest}`, isn't available: {message}"),
        (_, true) => format!("no cluster has room. Closest: `{closest}` ({message})"),
        (_, false) => format!("no cluster is available. Closest: `{closest}` ({message})"),
    }
}

/// Remedy for a gang that needs more capacity in one topology domain of `level` than any domain has, even
/// when empty. `without_topology`: whether the gang would fit in the cluster if it had no topology
/// request.
pub(crate) fn larger_domains(level: &str, without_topology: Result<(), Misfit>) -> String {
    let preferred = match without_topology {
        Ok(()) => ", or prefer the topology instead of requiring it",
        Err(Misfit::NotEnoughCapacity { fits_empty: true, .. }) => {
            ", or prefer the topology instead of requiring it and wait for free capacity there"
        }
        Err(_) => "",
    };
    format!("add nodes to one `{level}` there, or use fewer or smaller pods{preferred}")
}

pub(crate) fn end_result(result: &EndResult) -> String {
    match result {
        EndResult::Succeeded => "succeeded".into(),
        EndResult::Failed { reason, message } => format!("failed: {reason}: {message}"),
        EndResult::Stopped => "stopped by its agent".into(),
        EndResult::LeaseLapsed => "stopped by its agent because the lease expired".into(),
        EndResult::NodeLost { message } => format!("lost: {message}"),
    }
}

/// Describes a run whose cluster has another ledger now, so that no agent knows its pods.
pub(crate) fn lost_run(leg: &Leg) -> String {
    let lost = "its agent lost its store, so whether its pods still run is unknown";
    match leg.replaced_ledger().and_then(|replaced| replaced.until) {
        Some(until) => format!("{lost}; its lease expires at {}", timestamp(until)),
        None => format!("{lost}; waiting for `declare-lost` of ledger `{}`", leg.ledger()),
    }
}

pub(crate) fn stop_reason(reason: StopReason) -> &'static str {
    match reason {
        StopReason::Cancelled => "deleted",
        StopReason::Residency => "a residency policy no longer allows it there",
        StopReason::Drained => "the cluster is being drained",
        StopReason::Evicted => "evicted",
        StopReason::Superseded => "its cluster may never have received the grant",
        StopReason::StartTimeout => "it did not start in time",
    }
}

/// How an attempt ended, and why. `preemptor` names the workload that displaced it.
pub(crate) fn attempt_end(attempt: &AttemptRecord, preemptor: &str) -> Option<String> {
    Some(match (attempt.end.as_ref()?, attempt.stop.as_deref()) {
        (AttemptEnd::Reported(EndResult::Stopped), Some(stop)) => ordered_stop(stop, preemptor),
        (AttemptEnd::Reported(result), _) => end_result(result),
        (AttemptEnd::NoTrace, _) => {
            "how it ended is unknown: the agent reported that it neither runs the gang nor remembers its end"
                .to_owned()
        }
        (AttemptEnd::GrantRefused(why), _) => format!("the cluster refused the grant: {}", refusal_text(why)),
        (AttemptEnd::LeaseLapsed, _) => {
            "cluster lost: the lease expired while the cluster was disconnected".to_owned()
        }
        (AttemptEnd::DeclaredLost, _) => "cluster lost: an operator declared it lost".to_owned(),
    })
}

fn ordered_stop(stop: &OrderedStop, preemptor: &str) -> String {
    match stop.cause {
        None => format!("deleted by `{}`", stop.by),
        Some(EvictionCause::Preempted) => format!("displaced by {preemptor}"),
        Some(EvictionCause::Deactivated) => format!("stopped by `{}`", stop.by),
        Some(EvictionCause::Drained) => "drained: an operator emptied the cluster".to_owned(),
        Some(EvictionCause::LocalQueueStopped) => "its local queue was stopped and drained".to_owned(),
        Some(EvictionCause::ClusterQueueStopped) => "its cluster queue was stopped and drained".to_owned(),
        Some(EvictionCause::JobChanged) => "stopped because the job's number of pods was changed".to_owned(),
        Some(EvictionCause::Residency) => stop_reason(StopReason::Residency).to_owned(),
        Some(EvictionCause::StartTimeout) => stop_reason(StopReason::StartTimeout).to_owned(),
        Some(EvictionCause::Superseded) => stop_reason(StopReason::Superseded).to_owned(),
        Some(
            EvictionCause::MaximumExecutionTimeExceeded
            | EvictionCause::NodeFailures
            | EvictionCause::ClusterLost
            | EvictionCause::GrantRefused
            | EvictionCause::StoppedByAgent,
        ) => end_result(&EndResult::Stopped),
    }
}
