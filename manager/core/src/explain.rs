//! Why a workload waits, per cluster and in words, and what would help.
//!
//! What quota lacks is stored per class as the scheduling pass finds it, so what people read is what was decided. The rest is
//! found when somebody asks, by the functions that decide: who comes first and why, what each cluster says, what would do.

mod case;
mod obstacle;
mod remedy;
mod rivals;
mod steps;

use crate::catalog::NoRoute;
use crate::leg::State as LegState;
use crate::queues::{NoQuota, Shortage};
use crate::record::Choice;
use crate::residency::Denied;
use crate::workload::Phase;
use crate::{Workload, World};
use case::Case;
pub(crate) use case::key_of;
use meridian_objects::quantity;
use meridian_queueing::model::{Clash, Inactive};
use meridian_shared::ids::{ClusterName, Uid};
use meridian_shared::packing::Misfit;
use meridian_shared::protocol::{EndResult, OnLoss, RefuseReason, StopReason};
use meridian_shared::time::Now;
use obstacle::Obstacle;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use steps::Steps;

/// Why a class can't start, at one cluster or at all.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Why {
    /// Its queue leads nowhere.
    Route(NoRoute),
    /// Quota isn't there.
    Quota(NoQuota),
    /// A residency rule forbids it.
    Forbidden(Denied),
    /// No cluster is declared or allowed by the queue.
    NoCluster,
    /// The queue doesn't use this cluster.
    NotInQueue,
    /// The list of the clusters that the queue may use isn't there.
    NoWorkersConfig {
        /// The admission check that names it.
        check: String,
        /// Its name.
        config: String,
    },
    /// An operator keeps new work away.
    Cordoned,
    /// It never joined, or hasn't been heard of.
    NotConnected,
    /// It is connected, but its inventory isn't complete yet.
    Recovering,
    /// It joined just now: no other cluster has acknowledged its name yet.
    NotAdmitted,
    /// The agent finds itself somewhere else than it was declared.
    Quarantined {
        /// Where.
        located: String,
    },
    /// It hasn't reported its room yet.
    NoReport,
    /// The policy requires guarded gangs and its runner only supervises.
    NotGuarded,
    /// What it may be believed to have is used up.
    Capped {
        /// Resource.
        resource: String,
        /// Asked for.
        asks: i64,
        /// Left under the cap.
        left: i64,
        /// The cap.
        cap: i64,
    },
    /// No room by its report.
    NoRoom(Misfit),
    /// There is room, and it is kept for another workload.
    Kept {
        /// Its namespace and name.
        for_whom: String,
        /// It waits too long; otherwise others stop for it.
        starves: bool,
    },
    /// Quota is there, and it is kept for a workload that waits too long.
    GivesWay,
    /// The agent said no, and nothing that it named has changed since.
    Refused {
        /// From the closed list.
        reason: RefuseReason,
        /// Its words.
        text: String,
    },
    /// Holds there did not reach running: it is left out for a while.
    BackedOff,
    /// Another cluster was better; it would have had room.
    NotChosen {
        /// Which.
        chosen: ClusterName,
    },
    /// Recovery is open: what may still run isn't known.
    RecoveryOpen,
    /// Rules newer than the journal's were shown; an operator must confirm them.
    RulesDoubted,
    /// Others were told to stop for it.
    Preempts {
        /// How many.
        victims: usize,
    },
    /// Another queue's head came first.
    Overtaken,
    /// Its cluster queue admits nothing.
    Inactive {
        /// Which.
        queue: String,
        /// Why.
        why: Inactive,
    },
    /// It waits a moment before the next attempt.
    BackOff,
}

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
            Self::Quota(quota) => quota.words("the queue", if matches!(quota, NoQuota::ExceedsQuota { .. }) { ", even borrowed" } else { "" }),
            Self::Preempts { victims: 1 } => "another workload was told to stop for it, and it starts when that one has".into(),
            Self::Preempts { victims } => format!("{victims} workloads were told to stop for it, and it starts when they have"),
            Self::Overtaken => "another workload of its cohort came first".into(),
            Self::Inactive { queue, why } => format!("cluster queue `{queue}` admits nothing: {}", inactive_in_words(why)),
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
                let also = if also.is_empty() { String::new() } else { format!(", and that of `{}` too", also.join("`, `")) };
                let [missing, raise_to] = [asks - free, *raise_to].map(|amount| quantity::format(resource, amount));
                format!(
                    "the end of workloads with {missing} `{resource}`, or raise the queue's nominal quota of `{resource}` in flavor `{flavor}` to {raise_to}{also}"
                )
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
                let ends = if asks <= cap { "the end of a workload there, or " } else { "" };
                format!("{more} more under its cap: {ends}a higher cap")
            }
            Self::NoRoom(Misfit::NotEnoughRoom { fits_empty: true, .. } | Misfit::NoDomain { fits_empty: true, .. }) => "the end of a workload there".into(),
            Self::GivesWay => "the start of that workload, and quota beside it".into(),
            Self::Kept { for_whom, .. } => format!("the start of `{for_whom}`, and room beside it"),
            Self::NoRoom(Misfit::NoSuchNode { .. }) => {
                "nodes there with the labels and without the taints that its pods ask for, or pods that ask for less".into()
            }
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
    pub(crate) fn words(&self, queue: &str, borrows: &str) -> String {
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

fn inactive_in_words(why: &Inactive) -> String {
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

/// Why a gang is where it is, as the end of a sentence.
fn choice_in_words(choice: Option<Choice>) -> String {
    match choice {
        None => String::new(),
        Some(Choice { able: 1, .. }) => "; the only cluster that may and could start them together".into(),
        Some(Choice { able, asked: 1 }) => {
            format!("; the first choice of {able} clusters that could start them together")
        }
        Some(Choice { asked, .. }) => {
            format!("; the first of {asked} clusters that were asked to hold room for all of it")
        }
    }
}

/// How an attempt ended, in words.
pub(crate) fn end_in_words(result: &EndResult) -> String {
    match result {
        EndResult::Succeeded => "succeeded".into(),
        EndResult::Failed { reason, message } => format!("failed: {reason}: {message}"),
        EndResult::Stopped => "stopped as asked".into(),
        EndResult::LeaseLapsed => "stopped by the agent at the end of its lease".into(),
        EndResult::NodeLost { message } => format!("lost: {message}"),
    }
}

fn stop_in_words(reason: StopReason) -> &'static str {
    match reason {
        StopReason::Cancelled => "it was deleted",
        StopReason::Residency => "a residency policy no longer allows it there",
        StopReason::Drained => "the cluster is drained",
        StopReason::Evicted => "it was evicted",
        StopReason::Superseded => "the grant is not known to have arrived",
        StopReason::StartTimeout => "it did not start in time",
    }
}

/// So many of those who stop for another are named.
const VICTIMS_NAMED_MAX: usize = 4;

impl World {
    /// Everything a person may want to know about where a workload is and why, as JSON of a documented shape.
    pub fn explain(&self, uid: Uid, now: Now) -> Option<Value> {
        let workload = self.state.workloads.get(&uid)?;
        let case = (workload.phase == Phase::Pending).then(|| self.case(uid, workload, now.mono));
        let steps = case.as_ref().map(|case| self.steps(case, now)).unwrap_or_default();
        let obstacles: Vec<Value> =
            steps.list.iter().map(|step| json!({"reason": step.words, "wouldHelp": step.help})).collect();
        let alone = steps.alone.clone();
        let (summary, helps) = self.summary(uid, workload, steps, now);
        let clusters = self.state.catalog.promised_clusters();
        let clusters: Vec<Value> = clusters
            .iter()
            .map(|cluster| self.explain_cluster(workload, cluster, case.as_ref(), now))
            .collect();
        Some(json!({
            "namespace": &*workload.namespace,
            "name": &*workload.name,
            "uid": uid.to_string(),
            "state": workload.state_word(),
            "since": workload.since.0,
            "attempts": workload.attempts,
            "position": case.as_ref().and_then(|case| self.position(case)),
            "clusters": clusters,
            "summary": summary,
            "placement": Self::placement_lines(workload),
            "wouldHelp": helps,
            "obstacles": obstacles,
            "alone": alone,
            "history": workload.history.iter().map(|s| json!({
                "cluster": s.cluster.as_str(), "fence": s.fence.to_string(), "granted": s.granted.0, "over": s.over.map(|w| w.0), "end": s.end,
            })).collect::<Vec<_>>(),
        }))
    }

    fn explain_cluster(
        &self,
        workload: &Workload,
        cluster: &ClusterName,
        case: Option<&Case<'_>>,
        now: Now,
    ) -> Value {
        let region = self.state.catalog.cluster(cluster).map(|c| c.region.to_string());
        let leg = workload.legs.values().find(|l| l.cluster == *cluster);
        let (verdict, reason, helps) = match leg {
            Some(leg) => self.leg_in_words(workload, leg, now),
            None if workload.phase == Phase::Finished => {
                match workload.history.iter().rev().find(|stay| stay.cluster == *cluster) {
                    Some(stay) => (
                        "over",
                        format!("ran there: {}", stay.end.as_deref().unwrap_or("its end isn't known")),
                        String::new(),
                    ),
                    None => ("over", "never ran there".to_owned(), String::new()),
                }
            }
            None if workload.rests_inactive() => {
                ("waiting", "it is deactivated: nobody is asked".to_owned(), String::new())
            }
            None => match case.and_then(|case| Some((case, case.verdicts.get(cluster)?))) {
                Some((case, Err(why))) => (why.verdict(), why.words(), self.help_at(case, cluster, why).0),
                Some((case, Ok(()))) => self.able_in_words(case, now),
                None if workload.phase.granted() => {
                    ("not-chosen", "another cluster has it".to_owned(), String::new())
                }
                None => {
                    ("unknown", "it isn't known which cluster queue would ask it".to_owned(), String::new())
                }
            },
        };
        json!({
            "cluster": cluster.as_str(), "region": region, "verdict": verdict, "reason": reason, "wouldHelp": helps,
            "estimate": leg.and_then(|l| l.estimate).map(|e| e.0),
        })
    }

    /// What is to say where a cluster has nothing against a workload that waits.
    fn able_in_words(&self, case: &Case<'_>, now: Now) -> (&'static str, String, String) {
        if self.live.not_before.get(&case.uid).is_some_and(|until| *until > now.mono) {
            return (
                Why::BackOff.verdict(),
                "has room; the workload rests before its next attempt".to_owned(),
                String::new(),
            );
        }
        if case.id.is_none() {
            return (
                "waiting",
                "has room; nothing is asked of it before the queue admits".to_owned(),
                String::new(),
            );
        }
        match self.obstacle(case) {
            Obstacle::Before(Why::Quota(_)) => {
                ("waiting", "has room; the queue has no quota for it".to_owned(), String::new())
            }
            Obstacle::Before(why) => (why.verdict(), why.words(), why.would_help()),
            Obstacle::Behind(..) => {
                ("waiting", "has room; the queue's head comes first".to_owned(), String::new())
            }
            Obstacle::AtClusters => {
                ("waiting", "has room; it is asked in the next round".to_owned(), String::new())
            }
        }
    }

    fn leg_in_words(
        &self,
        workload: &Workload,
        leg: &crate::Leg,
        now: Now,
    ) -> (&'static str, String, String) {
        let lease = leg.fence.and_then(|f| self.live.leases.get(&f));
        let silent = self
            .live
            .clusters
            .get(&leg.cluster)
            .is_none_or(|c| now.mono.since(c.heard) > meridian_shared::lease::silence(workload.term));
        let waits = match (lease, workload.on_loss) {
            (_, OnLoss::Wait) => "it stays until the cluster returns or is declared lost".to_owned(),
            (Some(lease), OnLoss::Fence) => format!(
                "it can be started elsewhere when its lease has lapsed, in {}",
                lease.lease.deadline.since(now.mono)
            ),
            (None, OnLoss::Fence) => "it can be started elsewhere when its lease has lapsed".to_owned(),
        };
        let confirmed = match (lease, workload.on_loss) {
            (Some(lease), OnLoss::Fence) => {
                format!(
                    "the agent's word that it has stopped; without it the lapse of its lease, in {}",
                    lease.lease.deadline.since(now.mono)
                )
            }
            _ => "the agent's word that it has stopped".to_owned(),
        };
        if workload.phase == Phase::Stopping {
            let why = match &workload.inactive {
                _ if workload.deletion.is_some() => {
                    "it was deleted, and goes when its gang has stopped".to_owned()
                }
                Some(inactive) => format!("it was deactivated by `{}`", inactive.by.0),
                None => match self
                    .gave_way_in_words(workload)
                    .filter(|_| workload.stopping == Some(StopReason::Evicted))
                {
                    Some(for_whom) => format!("it gives way to {for_whom}"),
                    None => workload.stopping.map_or("it is being stopped", stop_in_words).to_owned(),
                },
            };
            return (
                "stopping",
                format!("{why}; its room and quota are kept until the stop is confirmed"),
                confirmed,
            );
        }
        match leg.state {
            LegState::Granted | LegState::Running if silent => {
                ("silent", "runs there as far as known; its agent isn't heard".into(), waits)
            }
            LegState::Running => {
                let failed = match workload.pod_failures {
                    0 => String::new(),
                    1 => "; one of its pods has failed so far".to_owned(),
                    many => format!("; pods of it have failed {many} times so far"),
                };
                (
                    "running",
                    format!(
                        "{} run there{failed}{}",
                        self.pods_in_words(workload, "all its pods"),
                        choice_in_words(leg.choice)
                    ),
                    String::new(),
                )
            }
            LegState::Granted => (
                "starting",
                format!(
                    "{} are starting there{}",
                    self.pods_in_words(workload, "its pods"),
                    choice_in_words(leg.choice)
                ),
                String::new(),
            ),
            LegState::Held => ("held", "holds room for the whole gang".into(), String::new()),
            LegState::Waiting => ("waiting", leg.note.clone().unwrap_or_default(), "the provider".into()),
            LegState::Offered => ("offered", "was asked just now".into(), String::new()),
            LegState::Ended | LegState::Refused | LegState::Withdrawn | LegState::Expired => {
                ("over", "is over there".into(), String::new())
            }
        }
    }

    /// How many of its pods a workload was given, where it makes do with fewer.
    fn pods_in_words(&self, workload: &Workload, all: &str) -> String {
        let class = self.queues.class(workload.class);
        let wished: u32 = class.gang.pod_sets.iter().map(|set| set.count).sum();
        let spare = workload.spare_pods();
        if let Some(resized) = &workload.resized {
            let (given, wished): (u32, u32) = match &resized.growing {
                Some(growing) => {
                    (growing.before.iter().sum(), growing.before.iter().sum::<u32>().saturating_sub(spare))
                }
                None => (workload.counts.iter().flatten().sum(), workload.runs_with(class).iter().sum()),
            };
            let left = given.saturating_sub(spare);
            return match left.checked_sub(wished) {
                None => format!("{left} of its {wished} pods"),
                Some(0) => format!("its {wished} pods"),
                Some(more) => format!("its {wished} pods, and {more} that it is told to end,"),
            };
        }
        match &workload.counts {
            Some(counts) if spare > 0 => {
                format!(
                    "{} of its {wished} pods, with which it makes do, less {spare} that have succeeded,",
                    counts.iter().sum::<u32>()
                )
            }
            Some(counts) => {
                format!("{} of its {wished} pods, with which it makes do,", counts.iter().sum::<u32>())
            }
            None if spare > 0 => {
                format!("{} of its {wished} pods (the others have succeeded)", wished.saturating_sub(spare))
            }
            None => all.to_owned(),
        }
    }

    fn summary(&self, uid: Uid, workload: &Workload, steps: Steps, now: Now) -> (String, String) {
        let at = World::right(workload).map(|(_, l)| l.cluster.as_str().to_owned()).unwrap_or_default();
        match workload.phase {
            Phase::Running | Phase::Granted | Phase::Stopping => {
                let (verdict, reason, helps) = World::right(workload)
                    .map_or(("", String::new(), String::new()), |(_, l)| self.leg_in_words(workload, l, now));
                let flag = self
                    .flagged(workload)
                    .map(|why| format!("; {why}, and it runs on, because that policy only flags"))
                    .unwrap_or_default();
                match self
                    .growth_in_words(uid, workload, Some(now.mono))
                    .filter(|_| workload.phase != Phase::Stopping)
                {
                    Some((grows, help)) => (
                        format!("{verdict} in cluster `{at}`: {reason}; {grows}{flag}"),
                        if helps.is_empty() { help } else { helps },
                    ),
                    None => (format!("{verdict} in cluster `{at}`: {reason}{flag}"), helps),
                }
            }
            Phase::Finished => {
                let finish = workload.finished.as_ref();
                let ran = workload
                    .history
                    .last()
                    .map(|stay| format!("; it ran in cluster `{}`", stay.cluster))
                    .unwrap_or_default();
                (
                    finish.map_or_else(String::new, |f| format!("over: {}: {}{ran}", f.reason, f.message)),
                    String::new(),
                )
            }
            Phase::Dispatching | Phase::Reserved => {
                ("has quota; clusters are being asked".into(), String::new())
            }
            Phase::Pending => {
                let (words, helps) = steps.in_words();
                let waits =
                    if workload.inactive.is_some() || words.starts_with("waits") { "" } else { "waits: " };
                let gave_way = self
                    .gave_way_in_words(workload)
                    .map(|for_whom| format!("; it gave way to {for_whom}"))
                    .unwrap_or_default();
                (
                    format!(
                        "{waits}{words}{}{}{gave_way}",
                        self.victims_in_words(uid),
                        self.kept_in_words(uid)
                    ),
                    helps,
                )
            }
        }
    }

    /// Who stops for it now.
    fn victims_in_words(&self, uid: Uid) -> String {
        let stops = |victim: &Uid| {
            self.state
                .workloads
                .get(victim)
                .filter(|w| w.phase == Phase::Stopping && w.preempted.as_ref().is_some_and(|p| p.by == uid))
        };
        let all: Vec<&Workload> = self.state.displaced.keys().filter_map(stops).collect();
        let mut named: Vec<String> =
            all.iter().take(VICTIMS_NAMED_MAX).map(|w| format!("`{}/{}`", w.namespace, w.name)).collect();
        named.sort_unstable();
        let last = match all.len().saturating_sub(named.len()) {
            0 => named.pop(),
            more => Some(format!("{more} more")),
        };
        match last {
            None => String::new(),
            Some(one) if named.is_empty() => format!("; {one} stops for it"),
            Some(last) => format!("; {} and {last} stop for it", named.join(", ")),
        }
    }

    /// For whom it stops or was stopped, where it hasn't started again.
    fn gave_way_in_words(&self, workload: &Workload) -> Option<String> {
        let by = workload.preempted.as_ref()?.by;
        let name =
            |other: &Workload| format!("`{}/{}` (priority {})", other.namespace, other.name, other.priority);
        Some(self.state.workloads.get(&by).map_or_else(|| "a workload that is gone".to_owned(), name))
    }

    /// What is kept for a workload that waits too long.
    fn kept_in_words(&self, uid: Uid) -> String {
        let Some((cluster, expected)) = self.expected_for(uid) else { return String::new() };
        let ends = match expected.len() {
            0 => String::new(),
            1 => ", and one workload has to end there first".to_owned(),
            many => format!(", and {many} workloads have to end there first"),
        };
        format!("; it has waited so long that nobody passes it by: room is kept for it in `{cluster}`{ends}")
    }
}
