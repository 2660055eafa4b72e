use crate::facts::end::{AttemptEnd, refusal_text};
use crate::facts::reason::{Denied, NoQuota, NoRoute, Shortage, Why};
use meridian_objects::quantity;
use meridian_queueing::model::{Clash, Inactive};
use meridian_shared::packing::Misfit;
use meridian_shared::protocol::{EndResult, RefuseReason, StopReason};

impl Why {
    /// The verdict's short word.
    pub fn verdict(&self) -> &'static str {
        match self {
            Self::Route(_)
            | Self::Quota(_)
            | Self::NoCluster
            | Self::RecoveryOpen
            | Self::RulesDoubted
            | Self::BackOff
            | Self::Preempts { .. }
            | Self::Overtaken
            | Self::GivesWay
            | Self::Inactive { .. } => "waiting",
            Self::Forbidden(_) | Self::NotInQueue | Self::NoWorkersConfig { .. } => "forbidden",
            Self::Cordoned => "cordoned",
            Self::NotConnected | Self::NoReport | Self::Recovering | Self::NotAdmitted => "unknown",
            Self::Quarantined { .. } | Self::NotGuarded | Self::Refused { .. } | Self::BackedOff => "refused",
            Self::Capped { .. } | Self::NoRoom(_) | Self::Kept { .. } => "no-room",
            Self::NotChosen { .. } => "not-chosen",
        }
    }

    /// In words.
    pub fn words(&self) -> String {
        match self {
            Self::Route(NoRoute::NoLocalQueue { namespace, queue }) => format!("there is no local queue `{queue}` in namespace `{namespace}`"),
            Self::Route(NoRoute::NoClusterQueue { cluster_queue }) => format!("there is no cluster queue `{cluster_queue}`"),
            Self::Route(NoRoute::NamespaceNotSelected { cluster_queue, namespace }) => {
                format!("cluster queue `{cluster_queue}` doesn't admit namespace `{namespace}`")
            }
            Self::Route(NoRoute::Stopped { what }) => format!("{what} is stopped"),
            Self::Quota(quota) => quota.words(
                "the queue",
                if matches!(quota, NoQuota::ExceedsQuota { .. }) {
                    ", even borrowed"
                } else {
                    ""
                },
            ),
            Self::Preempts { victims: 1 } => "another workload was told to stop for it, and it starts when that one has".into(),
            Self::Preempts { victims } => format!("{victims} workloads were told to stop for it, and it starts when they have"),
            Self::Overtaken => "another workload of its cohort came first".into(),
            Self::Inactive { queue, why } => format!("cluster queue `{queue}` admits nothing: {}", inactive_message(why)),
            Self::Forbidden(denied) => denied.to_string(),
            Self::NoCluster => "no cluster is connected that the queue may use".into(),
            Self::NotInQueue => "the queue's MultiKueueConfig doesn't list it".into(),
            Self::NoWorkersConfig { check, config } => format!("there is no MultiKueueConfig `{config}`, which admission check `{check}` names"),
            Self::Cordoned => "it is cordoned".into(),
            Self::NotConnected => "no agent is connected".into(),
            Self::Recovering => "its complete inventory is awaited".into(),
            Self::NotAdmitted => "it joined just now; no other cluster has acknowledged its name yet".into(),
            Self::Quarantined { located } => format!("its agent finds itself in `{located}`, not where it was declared"),
            Self::NoReport => "it hasn't reported its room yet".into(),
            Self::NotGuarded => "the dispatch policy requires guarded gangs, its runner only supervises".into(),
            Self::Capped { resource, asks, left, cap } => {
                let [asks, left, cap] = [asks, left, cap].map(|amount| quantity::format(resource, *amount));
                format!("asks for {asks} `{resource}`, {left} of the {cap} that it may have are left")
            }
            Self::NoRoom(misfit) => misfit.to_string(),
            Self::Kept { for_whom, starves: false } => format!("its room is kept for `{for_whom}`, for which others are stopping"),
            Self::Kept { for_whom, starves: true } => format!("its room is kept for `{for_whom}`, which waits too long"),
            Self::GivesWay => "the quota that it needs, or that others would free for it, is kept for a workload of its cohort that waits too long".into(),
            Self::Refused { text, .. } => text.clone(),
            Self::BackedOff => "holds there did not reach running; it is left out for a while".into(),
            Self::NotChosen { chosen } => format!("has room, `{chosen}` was preferred"),
            Self::RecoveryOpen => "the manager recovers: until every cluster has reported, what may still run isn't known".into(),
            Self::RulesDoubted => "rules newer than this journal's were seen; an operator must confirm policies and quotas".into(),
            Self::BackOff => "waits a moment before the next attempt".into(),
        }
    }

    /// What would help.
    pub fn would_help(&self) -> String {
        match self {
            Self::Route(NoRoute::NoLocalQueue { namespace, queue }) => format!("create local queue `{queue}` in namespace `{namespace}`"),
            Self::Route(NoRoute::NoClusterQueue { cluster_queue }) => format!("create cluster queue `{cluster_queue}`"),
            Self::Route(NoRoute::NamespaceNotSelected { .. }) => "widen the cluster queue's namespaceSelector or label the namespace".into(),
            Self::Route(NoRoute::Stopped { what }) => format!("set the stopPolicy of {what} to `None`"),
            Self::Quota(NoQuota::NotCovered { resource }) => format!("add `{resource}` to a resource group, or don't ask for it"),
            Self::Quota(NoQuota::NoMatchingFlavor { .. }) => "add a flavor whose labels, taints and topology fit, or change what the pods ask for".into(),
            Self::Quota(NoQuota::ExceedsQuota { flavor, resource, raise_to, .. }) => {
                let raise_to = quantity::format(resource, *raise_to);
                format!("raise the queue's nominal quota of `{resource}` in flavor `{flavor}` to {raise_to}, or ask for less")
            }
            Self::Quota(NoQuota::Used(short)) => {
                let Shortage { flavor, resource, asks, free, raise_to, also, .. } = &**short;
                let also = if also.is_empty() {
                    String::new()
                } else {
                    format!(", and that of `{}` too", also.join("`, `"))
                };
                let [missing, raise_to] = [asks - free, *raise_to].map(|amount| quantity::format(resource, amount));
                format!("the end of workloads with {missing} `{resource}`, or raise the queue's nominal quota of `{resource}` in flavor `{flavor}` to {raise_to}{also}")
            }
            Self::Forbidden(Denied::NotWished) => "a submission that doesn't narrow its regions, or names this one".into(),
            Self::Forbidden(Denied::UnknownPlace) => "a `Cluster` object that declares its region and jurisdiction".into(),
            Self::Forbidden(_) => "nothing that the submitter can do: the policy's owner decides".into(),
            Self::NoCluster | Self::NotConnected => "start or join its agent".into(),
            Self::NotInQueue => "add it to the queue's MultiKueueConfig".into(),
            Self::NoWorkersConfig { config, .. } => format!("create MultiKueueConfig `{config}`"),
            Self::Cordoned => "uncordon it".into(),
            Self::Recovering | Self::NoReport | Self::RecoveryOpen => "its agent's next report; or an operator's word, if it never comes back".into(),
            Self::NotAdmitted => "the next sync of another cluster, or `meridian cluster admit`".into(),
            Self::Quarantined { .. } => "correct the `Cluster` object or the agent's place".into(),
            Self::NotGuarded => "a runner with guards there, or a policy that accepts supervised gangs".into(),
            Self::Capped { resource, asks, left, cap } => {
                let more = quantity::format(resource, asks - left);
                let ends = if asks <= cap {
                    "the end of a workload there, or "
                } else {
                    ""
                };
                format!("{more} more under its cap: {ends}a higher cap")
            }
            Self::NoRoom(Misfit::NotEnoughRoom { fits_empty: true, .. } | Misfit::NoDomain { fits_empty: true, .. }) => "the end of a workload there".into(),
            Self::GivesWay => "the start of that workload, and quota beside it".into(),
            Self::Kept { for_whom, .. } => format!("the start of `{for_whom}`, and room beside it"),
            Self::NoRoom(Misfit::NoSuchNode { .. }) => "nodes there with the labels and without the taints that its pods ask for, or pods that ask for less".into(),
            Self::NoRoom(_) => "other nodes there, or smaller pods".into(),
            Self::Refused { reason: RefuseReason::NoRoom | RefuseReason::StillRuns, .. } => "the end of a workload there".into(),
            Self::Refused { .. } | Self::BackedOff | Self::BackOff => "it is asked again after a while".into(),
            Self::NotChosen { .. } => "nothing: it isn't needed".into(),
            Self::RulesDoubted => "`meridian journal confirm` after a look at policies and quotas".into(),
            Self::Preempts { .. } => "nothing: it is next".into(),
            Self::Overtaken => "the next round, or a higher priority".into(),
            Self::Inactive { queue, why } => match why {
                Inactive::Stopped => "set its stopPolicy to `None`".into(),
                Inactive::CohortCycle => "name another parent in one of the cohorts above it".into(),
                Inactive::FlavorNotFound(flavor) => format!("create resource flavor `{flavor}`, or take it out of cluster queue `{queue}`"),
                Inactive::AdmissionCheck(check) => format!("create admission check `{check}`, or take it out of cluster queue `{queue}`"),
                Inactive::CheckInactive(check) => format!("see why admission check `{check}` isn't active, or take it out of cluster queue `{queue}`"),
                Inactive::WorkersCheck(check, clash) => match clash {
                    Clash::Several => format!("leave one check of worker clusters in cluster queue `{queue}`"),
                    Clash::OnFlavors => format!("set admission check `{check}` of cluster queue `{queue}` for all flavors"),
                    Clash::Provisioning => {
                        format!("take the check that provisions nodes out of cluster queue `{queue}`: each worker cluster provisions its own")
                    }
                },
                Inactive::TopologyNotFound(topology) => format!("create topology `{topology}`"),
            },
        }
    }
}

impl NoQuota {
    /// The same where it isn't known yet whether others may be displaced for it.
    pub(crate) fn before_anybody_gives_way(&self) -> Self {
        match self {
            Self::Used(short) => Self::Used(Box::new(Shortage { no_victims: false, ..(**short).clone() })),
            other => other.clone(),
        }
    }

    /// In words, of a queue that is called so and may borrow, or is lent, so.
    pub fn words(&self, queue: &str, borrows: &str) -> String {
        match self {
            Self::NotCovered { resource } => format!("no resource group of {queue} covers `{resource}`"),
            Self::NoMatchingFlavor { why } => format!("no flavor of {queue} serves the pods: {why}"),
            Self::ExceedsQuota { flavor, resource, asks, nominal, .. } => {
                let [asks, nominal] = [asks, nominal].map(|amount| quantity::format(resource, *amount));
                format!(
                    "asks for {asks} `{resource}`, {queue} could never use more than {nominal} of flavor `{flavor}`{borrows}"
                )
            }
            Self::Used(short) => {
                let Shortage { flavor, resource, asks, free, nominal, own, lent, cohort, no_victims, .. } =
                    &**short;
                let lends = match cohort {
                    Some(cohort) => format!(
                        ", cohort `{cohort}` lends {}{borrows}",
                        quantity::format(resource, (free - own).max(0))
                    ),
                    None => String::new(),
                };
                let lent = if *lent > 0 {
                    format!(" (others have borrowed {} of it)", quantity::format(resource, *lent))
                } else {
                    String::new()
                };
                let victims = if *no_victims { ", and may displace nobody for it" } else { "" };
                let [asks, own, nominal] =
                    [asks, own, nominal].map(|amount| quantity::format(resource, *amount));
                format!(
                    "asks for {asks} `{resource}`; {queue} has {own} of {nominal} free in flavor `{flavor}`{lent}{lends}{victims}"
                )
            }
        }
    }
}

pub(crate) fn inactive_message(why: &Inactive) -> String {
    match why {
        Inactive::Stopped => "it is stopped".into(),
        Inactive::CohortCycle => "a cohort above it is its own ancestor".into(),
        Inactive::FlavorNotFound(flavor) => format!("there is no resource flavor `{flavor}`"),
        Inactive::AdmissionCheck(check) => format!("there is no admission check `{check}`"),
        Inactive::CheckInactive(check) => format!("admission check `{check}` isn't active"),
        Inactive::WorkersCheck(check, clash) => clash.words(check),
        Inactive::TopologyNotFound(topology) => format!("there is no topology `{topology}`"),
    }
}

/// What helps where no domain of a level could ever hold all pods that have to be in one, and how the gang would fit anywhere there.
pub(crate) fn larger_domains(level: &str, without_topology: Result<(), Misfit>) -> String {
    let preferred = match without_topology {
        Ok(()) => ", or a topology that is preferred instead of required",
        Err(Misfit::NotEnoughRoom { fits_empty: true, .. }) => {
            ", or a topology that is preferred instead of required and more room that comes free there"
        }
        Err(_) => "",
    };
    format!("more room within one `{level}` there, or fewer or smaller pods{preferred}")
}

/// How an attempt ended, in words.
pub(crate) fn end_result(result: &EndResult) -> String {
    match result {
        EndResult::Succeeded => "succeeded".into(),
        EndResult::Failed { reason, message } => format!("failed: {reason}: {message}"),
        EndResult::Stopped => "stopped as asked".into(),
        EndResult::LeaseLapsed => "stopped by the agent at the end of its lease".into(),
        EndResult::NodeLost { message } => format!("lost: {message}"),
    }
}

pub(crate) fn stop_reason(reason: StopReason) -> &'static str {
    match reason {
        StopReason::Cancelled => "it was deleted",
        StopReason::Residency => "a residency policy no longer allows it there",
        StopReason::Drained => "the cluster is drained",
        StopReason::Evicted => "it was evicted",
        StopReason::Superseded => "the grant is not known to have arrived",
        StopReason::StartTimeout => "it did not start in time",
    }
}

/// How an attempt ended.
pub(crate) fn attempt_end(end: &AttemptEnd) -> String {
    match end {
        AttemptEnd::Reported(result) => end_result(result),
        AttemptEnd::NoTrace => "its agent had no trace of it, and nothing runs".to_owned(),
        AttemptEnd::GrantRefused(why) => format!("the cluster refused the grant: {}", refusal_text(why)),
        AttemptEnd::LeaseLapsed => "the lease lapsed".to_owned(),
        AttemptEnd::DeclaredLost => "an operator declared the cluster lost".to_owned(),
    }
}
