//! Remedies for a shortage of quota or capacity, with numbers: the nominal quota to raise to (also
//! counting workloads that may come first), and the workloads that have to end. The scenario tests of
//! `why` make each suggested change and check that the workload starts.

use crate::asker::AskedWorld;
use crate::explain::blocking_run::{self, BlockingRun, NotPreempted};
use crate::explain::case::{self, Case};
use crate::explain::cluster_remedy;
use crate::explain::head_order;
use crate::explain::rivals::{self, Rivals};
use crate::explain::step::Steps;
use crate::explain::trial::{self, Changes};
use crate::explain::words::{self, Wording};
use meridian_manager_core::facts::reason::{NoQuota, Why};
use meridian_manager_core::facts::submission::Class;
use meridian_objects::quantity;
use meridian_queueing::explain::{self, Limit, QuotaScope};
use meridian_queueing::model::WorkloadId;
use meridian_queueing::names::{FlavorId, ResourceId};
use meridian_queueing::quota::LimitKind;
use meridian_shared::gang::Gang;
use meridian_shared::ids::ClusterName;
use meridian_shared::packing::Misfit;
use std::cmp::Reverse;

/// Most borrowing and lending limits that one message names.
const LIMITS_NAMED_MAX: usize = 2;

/// Obstacles and remedies: first the quota shortage, then missing capacity.
pub(crate) fn quota_steps(world: &AskedWorld<'_>, case: &Case<'_>, quota: &NoQuota) -> Steps {
    let why = Why::Quota(quota.clone());
    let queues = world.mirror().queue_state();
    let Some((id, (flavor, resource, _))) = case.id.zip(case::key_of(queues, quota)) else {
        let (reason, remedy) = uncovered_message(world, case, quota)
            .unwrap_or_else(|| (shortage_message(world, case, quota), why.remedy(world.asker)));
        let mut steps = Steps::one(reason, remedy);
        steps.extend(capacity_steps(world, case));
        return steps;
    };
    let key = (flavor, resource);
    // The first workload of a queue competes with the first ones of other queues.
    let winner =
        case.front().filter(|front| *front == id).and_then(|id| rivals::served_before(world, case, id, key));
    let rivals = rivals::rivals_for_quota(world, case, id, key, winner.as_ref());
    let blocking = match quota {
        NoQuota::Used(short) => blocking_run::blocking_run(world, case, id, short, &rivals),
        _ => BlockingRun::default(),
    };
    let turn = head_order::usage_message(world, case, id)
        .or_else(|| head_order::head_order_message(world, id, winner.as_ref()?))
        .unwrap_or_default();
    let quotas = enough_for_all(world, case, id, key);
    let raise = raise_message(world, &quotas, &rivals);
    let sooner = raise_before_others(world, id, key, &rivals);
    let is_enough = trial::starts(world, case, id, &Changes::of_quota(quotas));
    let remedy = match quota {
        _ if !is_enough => "no single change is known to start it".to_owned(),
        NoQuota::Used(_) => format!("{}{raise}{sooner}", ends_message(world, case, id, key)),
        _ => format!("{raise}, or request less{sooner}"),
    };
    let (fewest, enough) = fewest_pods_message(world, case, id, key, quota, &rivals).unzip();
    // The message about the blocking run already says why preemption doesn't help.
    let shortage = if blocking.message.is_empty() { quota.clone() } else { words::without_preemption(quota) };
    let shortage = shortage_message(world, case, &shortage);
    let reason = format!("{shortage}{}{}{turn}", fewest.unwrap_or_default(), blocking.message);
    let mut steps = Steps::one(reason, remedy);
    steps.alone = blocking.alone.into_iter().chain(enough.unwrap_or_default()).collect();
    steps.extend(capacity_steps(world, case));
    steps
}

/// The quota shortage, with the limits that keep the queue from borrowing more.
pub(crate) fn shortage_message(world: &AskedWorld<'_>, case: &Case<'_>, quota: &NoQuota) -> String {
    let queues = world.mirror().queue_state();
    let (ever, when) = match quota {
        NoQuota::ExceedsQuota { .. } => (true, QuotaScope::Ever),
        _ => (false, QuotaScope::Now),
    };
    let Some((queue, (flavor, resource, _))) = case.queue.zip(case::key_of(queues, quota)) else {
        return words::quota_message(
            quota,
            &queue_message(world, case),
            if ever { words::WITH_BORROWING } else { "" },
        );
    };
    let name = queues.resource_name(resource);
    let limit = |limit: &Limit| {
        let [most, more] = [limit.most, limit.more].map(|amount| quantity::format(name, amount));
        let owner = match limit.cohort {
            _ if limit.of == queues.queue(queue).setup.name && !limit.cohort => "its".to_owned(),
            true => format!("cohort `{}`'s", limit.of),
            false => format!("cluster queue `{}`'s", limit.of),
        };
        match limit.kind {
            LimitKind::Borrowing => format!("{owner} borrowingLimit of {most} withholds {more} more"),
            LimitKind::Lending => format!("{owner} lendingLimit of {most} withholds {more} more"),
        }
    };
    let limits: Vec<String> = explain::limits(queues, queue, (flavor, resource), when)
        .iter()
        .take(LIMITS_NAMED_MAX)
        .map(limit)
        .collect();
    let limits = if limits.is_empty() { String::new() } else { format!(" ({})", limits.join("; ")) };
    let borrowing =
        if ever && queues.queue(queue).setup.cohort.is_some() { words::WITH_BORROWING } else { "" };
    words::quota_message(quota, &queue_message(world, case), &format!("{borrowing}{limits}"))
}

pub(crate) fn queue_message(world: &AskedWorld<'_>, case: &Case<'_>) -> String {
    let queue = case.queue.map(|queue| &world.mirror().queue_state().queue(queue).setup.name);
    queue.map_or_else(|| "the queue".to_owned(), |queue| format!("cluster queue `{queue}`"))
}

/// For a workload with partial admission: the needs of its minimum pod counts, and the changes that are
/// enough for these.
fn fewest_pods_message(
    world: &AskedWorld<'_>,
    case: &Case<'_>,
    id: WorkloadId,
    key: (FlavorId, ResourceId),
    quota: &NoQuota,
    rivals: &Rivals,
) -> Option<(String, Vec<String>)> {
    let queues = world.mirror().queue_state();
    let (resource, queue) = (queues.resource_name(key.1), queues.workload(id)?.queue);
    let shown = |amount: i64| quantity::format(resource, amount);
    let total = |gang: &Gang| gang.total().get(&**resource).copied().unwrap_or(0);
    let (all, fewest) = (total(&case.gang), total(case.smaller.as_deref()?));
    if fewest >= all {
        return None;
    }
    let promised = rivals.in_same_queue + rivals.in_other_queues == 0
        && case.fits_somewhere()
        && explain::needed(queues, id, key, |_| 0).len() < 2;
    let missing = fewest.saturating_sub(queues.balance(queue, key));
    let ends = matches!(quota, NoQuota::ExceedsQuota { .. })
        && missing > 0
        && queues.could_ever_use(queue, key, fewest);
    let message = if ends {
        format!(
            " (its minimum pod count needs {}, {} free)",
            shown(fewest),
            shown(queues.available(queue, key))
        )
    } else {
        format!(" (its minimum pod count needs {})", shown(fewest))
    };
    let enough = ends.then(|| {
        format!(
            "wait until workloads that use {} {resource} end, \
             to start with its minimum pod count (enough by itself)",
            shown(missing)
        )
    });
    let raised = format!(
        "raise the nominal quota to {} to start with its minimum pod count (enough by itself)",
        shown(queues.nominal_for(queue, key, fewest))
    );
    Some((message, enough.into_iter().chain([raised]).filter(|_| promised).collect()))
}

/// The additional obstacle that no cluster has capacity.
fn capacity_steps(world: &AskedWorld<'_>, case: &Case<'_>) -> Steps {
    nearest_capacity(world, case).map(|(reason, remedy)| Steps::one(reason, remedy)).unwrap_or_default()
}

/// Names all resources that the queue doesn't cover, if there are several.
pub(crate) fn uncovered_message(
    world: &AskedWorld<'_>,
    case: &Case<'_>,
    quota: &NoQuota,
) -> Option<(String, String)> {
    let (NoQuota::NotCovered { .. }, [_, _, ..]) = (quota, case.uncovered.as_slice()) else {
        return None;
    };
    let all = case.uncovered.join("`, `");
    Some((
        format!("no resource group of {} covers `{all}`", queue_message(world, case)),
        format!("add `{all}` to a resource group of the queue, or don't request them"),
    ))
}

/// The quota that must be released, including that of rivals. Empty if no released quota would be enough.
fn ends_message(
    world: &AskedWorld<'_>,
    case: &Case<'_>,
    id: WorkloadId,
    key: (FlavorId, ResourceId),
) -> String {
    let queues = world.mirror().queue_state();
    let Some(queue) = queues.workload(id).map(|of| of.queue) else { return String::new() };
    if !explain::needed(queues, id, key, |_| 0)
        .iter()
        .all(|(key, asks)| queues.could_ever_use(queue, *key, *asks))
    {
        return String::new();
    }
    let mut all = explain::needed(queues, id, key, |key| {
        rivals::competing_workloads(world, case, id, key).requested_within_quota
    });
    all.sort_by_key(|(of, _)| *of != key);
    let missing = |(key, asks): &((FlavorId, ResourceId), i64)| {
        let missing = asks.saturating_sub(queues.balance(queue, *key)).max(1);
        let resource = queues.resource_name(key.1);
        format!("{} {resource}", quantity::format(resource, missing))
    };
    let missing = all.iter().map(missing).collect::<Vec<_>>().join(" and ");
    format!("wait until workloads that use {missing} end, or ")
}

/// The nominal quotas that are enough even if all rivals are served first.
fn enough_for_all(
    world: &AskedWorld<'_>,
    case: &Case<'_>,
    id: WorkloadId,
    key: (FlavorId, ResourceId),
) -> Vec<((FlavorId, ResourceId), i64)> {
    let queues = world.mirror().queue_state();
    let Some(queue) = queues.workload(id).map(|w| w.queue) else { return Vec::new() };
    let mut all =
        explain::needed(queues, id, key, |key| rivals::competing_workloads(world, case, id, key).requested);
    all.sort_by_key(|(of, _)| *of != key);
    all.into_iter().map(|(key, asks)| (key, queues.nominal_for(queue, key, asks))).collect()
}

/// The remedy to raise the nominal quotas, and the workloads for which that is enough.
fn raise_message(
    world: &AskedWorld<'_>,
    quotas: &[((FlavorId, ResourceId), i64)],
    rivals: &Rivals,
) -> String {
    let queues = world.mirror().queue_state();
    let one = |((flavor, resource), to): &((FlavorId, ResourceId), i64)| {
        let name = queues.resource_name(*resource);
        format!("of `{name}` in flavor `{}` to {}", queues.flavor_name(*flavor), quantity::format(name, *to))
    };
    let quotas: Vec<String> = quotas.iter().map(one).collect();
    let mut message = format!("raise the queue's nominal quota {}", quotas.join(", and "));
    let first = rivals.first.as_deref();
    match rivals.in_same_queue + rivals.in_other_queues {
        0 => {}
        1 => {
            message += &format!(
                ", which is enough for {} too, if that workload comes first and both fit",
                first.unwrap_or("the other pending workload")
            )
        }
        many => {
            let first = first.map(|first| format!(" ({first} and others)")).unwrap_or_default();
            message += &format!(
                ", which is enough for the {many} workloads that may come first too{first}, \
                 if all fit"
            );
        }
    }
    message
}

/// The nominal quota that is enough if the workload comes before all rivals, and the priority for that.
fn raise_before_others(
    world: &AskedWorld<'_>,
    id: WorkloadId,
    key: (FlavorId, ResourceId),
    rivals: &Rivals,
) -> String {
    let queues = world.mirror().queue_state();
    let (needed, queue) = (explain::needed(queues, id, key, |_| 0), queues.workload(id).map(|w| w.queue));
    match (needed.as_slice(), rivals.yields_above, queue) {
        ([(key, asks)], Some(above), Some(queue)) => {
            let enough =
                quantity::format(queues.resource_name(key.1), queues.nominal_for(queue, *key, *asks));
            format!(
                "; or submit the job again with a priority above {above}, and raise the quota to {enough}"
            )
        }
        _ => String::new(),
    }
}

/// The obstacle of a workload that has quota.
pub(crate) fn nearest_steps(world: &AskedWorld<'_>, case: &Case<'_>) -> Steps {
    if case.fits_somewhere() {
        return Steps::one("waiting for the next scheduling cycle".into(), String::new());
    }
    let Some((reason, remedy)) = nearest_capacity(world, case) else {
        return Steps::of(world.asker, &Why::NoCluster);
    };
    Steps::one(format!("{reason}{}", blocking_run_there(world, case).unwrap_or_default()), remedy)
}

/// The single workload whose end would make room in the nearest cluster, and why it isn't preempted.
fn blocking_run_there(world: &AskedWorld<'_>, case: &Case<'_>) -> Option<String> {
    // If another obstacle comes before capacity, a preemption wouldn't be enough.
    let (cluster, why) =
        nearest(world, case).filter(|(_, why)| matches!(why, Why::NoCapacity(_) | Why::Capped { .. }))?;
    let (_, ends) = cluster_remedy::remedy_at(world, case, cluster, why);
    let (&[other], Some(id)) = (ends.as_slice(), case.id) else { return None };
    let holder = world.state().workloads().get(&other)?;
    let keys: Vec<(FlavorId, ResourceId)> = case.usage.iter().map(|(key, _)| *key).collect();
    let NotPreempted { message, .. } = blocking_run::not_preempted(world, case, id, other, &keys)?;
    Some(blocking_run::not_preempted_message(world, holder, &message))
}

/// Reason and remedy for the nearest cluster, if none can start the workload now.
pub(crate) fn nearest_capacity(world: &AskedWorld<'_>, case: &Case<'_>) -> Option<(String, String)> {
    // A queue without its MultiKueueConfig is inactive, which is an earlier obstacle.
    let (cluster, why) = nearest(world, case)
        .filter(|(_, why)| !case.fits_somewhere() && !matches!(why, Why::NoWorkersConfig { .. }))?;
    let (remedy, gone) = cluster_remedy::remedy_at(world, case, cluster, why);
    Some((
        words::no_cluster_message(
            case.verdicts.len(),
            cluster,
            why,
            &cluster_remedy::message_at(world, case, cluster, why),
        ),
        format!("in cluster `{cluster}`: {remedy}{}", rivals::others_first(world, case, cluster, why, &gone)),
    ))
}

/// The cluster with the obstacle that is the easiest to remove: among full clusters the one where the fewest
/// workloads have to end, then the one with room for the most pods.
fn nearest<'a>(world: &AskedWorld<'_>, case: &'a Case<'_>) -> Option<(&'a ClusterName, &'a Why)> {
    let rank = |cluster: &ClusterName, why: &Why| match why {
        Why::NoCapacity(_) | Why::Refused { .. }
            if cluster_remedy::level_too_small(world, case, cluster).is_some() =>
        {
            (2, 0, Reverse(0))
        }
        Why::NoCapacity(
            Misfit::NotEnoughCapacity { fits_empty: true, fit, .. }
            | Misfit::NoDomain { fits_empty: true, fit, .. },
        ) => {
            let ends = cluster_remedy::sufficient_ends(world, case, cluster).len();
            (0, if ends == 0 { usize::MAX } else { ends }, Reverse(*fit))
        }
        Why::Capped { asks, cap, .. } if asks > cap => (2, 0, Reverse(0)),
        Why::Capped { .. } => {
            (0, cluster_remedy::sufficient_ends(world, case, cluster).len().max(1), Reverse(0))
        }
        Why::Refused { .. } => match cluster_remedy::check_behind(world, case, cluster, why) {
            Some(Err(behind)) if cluster_remedy::is_too_small(&behind) => (2, 1, Reverse(0)),
            _ => (0, 1, Reverse(0)),
        },
        Why::Cordoned => match cluster_remedy::check_behind(world, case, cluster, why) {
            Some(Err(behind)) if cluster_remedy::is_too_small(&behind) => (2, 1, Reverse(0)),
            Some(Err(_)) => (1, 1, Reverse(0)),
            _ => (1, 0, Reverse(0)),
        },
        Why::NotConnected | Why::NoReport | Why::Recovering | Why::NotAdmitted | Why::BackedOff => {
            (1, 0, Reverse(0))
        }
        Why::NoCapacity(_) => (2, 0, Reverse(0)),
        _ => (3, 0, Reverse(0)),
    };
    case.verdicts
        .iter()
        .filter_map(|(cluster, verdict)| Some((cluster, verdict.as_ref().err()?)))
        .min_by_key(|(cluster, why)| rank(cluster, why))
}

/// Whether the jobs of a class point to this cluster queue.
pub(crate) fn is_in_cluster_queue(world: &AskedWorld<'_>, class: &Class, cluster_queue: &str) -> bool {
    world
        .state()
        .catalog()
        .local_queue(&class.namespace, &class.queue)
        .is_some_and(|local| local.cluster_queue == cluster_queue)
}
