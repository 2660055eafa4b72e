//! All obstacles between a pending workload and its start, in order, each with its remedy.
//!
//! The scheduling cycle found the first obstacle. Later ones are found on a copy of the queue state without
//! the earlier ones, so that users don't remove one obstacle only to meet the next.

use crate::asker::AskedWorld;
use crate::explain::case::{self, Case, Obstacle};
pub(crate) use crate::explain::step::Steps;
use crate::explain::step::{self, Alongside};
use crate::explain::words::{self, Wording};
use crate::explain::{head_order, obstacle, remedy, rivals, trial};
use meridian_manager_core::facts::reason::{NoQuota, NoRoute, Why};
use meridian_manager_core::facts::submission::Class;
use meridian_manager_core::queue::classes::QueuePosition;
use meridian_objects::spec::{ClusterQueueSpec, StopPolicy};
use meridian_queueing::declare::inactive;
use meridian_queueing::model::{Clash, Inactive, QueueId};
use meridian_queueing::names::{FlavorId, ResourceId};
use meridian_queueing::pending::{COUNTED_MAX, count_below};
use meridian_shared::gang::{Amounts, Gang, add_scaled};
use meridian_shared::ids::{ClusterName, Uid};
use meridian_shared::time::{Millis, Now};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Most reasons for an inactive cluster queue that are reported together.
const INACTIVE_REASONS_MAX: usize = 8;

/// Most gangs for which to check whether all fit together in one cluster.
const TOGETHER_MAX: usize = 16;

/// Workloads ahead of this one that the same change would release.
#[derive(Default)]
struct Ahead {
    first: Option<QueuePosition>,
    count: usize,
    /// Total requests of at most the first [`TOGETHER_MAX`] workloads.
    requests: Amounts,
    /// Gangs of at most the first [`TOGETHER_MAX`] workloads.
    gangs: Vec<Arc<Gang>>,
}

pub(crate) fn steps(world: &AskedWorld<'_>, case: &Case<'_>, now: Now) -> Steps {
    let mut steps = gates(world, case, now);
    let all_wait = world.state().recovery().is_some() || world.state().rules_doubted().is_some();
    let (route, scope) = route_steps(world, case);
    let scope = scope.or(all_wait.then_some(Scope::ClusterQueue));
    steps.extend(route);
    if steps.list.is_empty() {
        return in_queue(world, case);
    }
    let ahead =
        case.queue.zip(scope).map(|(queue, scope)| ahead(world, case, queue, scope)).unwrap_or_default();
    let blocking = case
        .queue
        .filter(|_| scope.is_some())
        .and_then(|queue| released_head_that_blocks(world, &ahead, queue, now));
    let blocked = blocking.is_some();
    steps.extend(blocking.unwrap_or_default());
    let is_stopped = case.workload.inactive().is_some();
    if let [resume] = &mut steps.list[..]
        && let Some(victims) = trial::victims_when_resumed(world, case).filter(|_| is_stopped)
    {
        resume.remedy += &format!("; {}", trial::preempts_message(world, &victims));
        return steps;
    }
    steps.extend(afterwards(world, case, true));
    if let Some((step, also)) =
        steps.list.last_mut().filter(|_| !blocked).zip(released_rivals_message(world, case, &ahead))
    {
        step.remedy += &also;
    }
    steps
}

/// Obstacles that apply before any queue is considered.
fn gates(world: &AskedWorld<'_>, case: &Case<'_>, now: Now) -> Steps {
    let mut steps = Steps::default();
    if world.live().damaged().contains(case.uid) {
        steps.extend(Steps::of(world.asker, &Why::Damaged));
    }
    if case.workload.inactive().is_some() {
        let (reason, remedy) = case.workload.inactivity_message();
        steps.extend(Steps::one(reason, remedy));
    }
    if world.held_back(case.workload, now.mono) {
        steps.extend(Steps::of(world.asker, &Why::RecoveryOpen));
    }
    if let Some(doubt) = world.rules_doubt() {
        steps.extend(Steps::of(world.asker, &doubt));
    }
    if let Some(until) = world.live().backoffs().remaining_until(case.uid, now.mono) {
        let left: Millis = until.since(now.mono);
        steps.extend(Steps::one(
            format!("{}, {left} left", Why::BackOff.message(world.asker)),
            Why::BackOff.remedy(world.asker),
        ));
    }
    steps
}

/// Objects on the workload's queue route that are stopped, missing or inactive. Also, which workloads the
/// same change would release: those of its cluster queue, namespace or local queue.
fn route_steps(world: &AskedWorld<'_>, case: &Case<'_>) -> (Steps, Option<Scope>) {
    let class = world.queues().class(case.workload.class());
    let catalog = &world.state().catalog();
    let Some(local) = catalog.local_queue(&class.namespace, &class.queue) else {
        let why = Why::Route(NoRoute::NoLocalQueue {
            namespace: class.namespace.clone(),
            queue: class.queue.clone(),
        });
        return (
            Steps::one(
                why.message(world.asker),
                format!(
                    "{}; what comes next depends on the cluster queue that it names",
                    why.remedy(world.asker)
                ),
            ),
            None,
        );
    };
    let name = &local.cluster_queue;
    let Some(spec) = catalog.cluster_queue(name) else {
        let why = Why::Route(NoRoute::NoClusterQueue { cluster_queue: name.clone() });
        return (
            Steps::one(
                why.message(world.asker),
                format!("{}; what comes next depends on its quota", why.remedy(world.asker)),
            ),
            None,
        );
    };
    let mut steps = Steps::default();
    let mut scope = None;
    let stopped: Vec<String> = [
        (local.stop_policy, format!("local queue `{}/{}`", class.namespace, class.queue)),
        (spec.stop_policy, format!("cluster queue `{name}`")),
    ]
    .into_iter()
    .filter(|(policy, _)| *policy != StopPolicy::None)
    .map(|(_, what)| what)
    .collect();
    if !stopped.is_empty() {
        let reason = match stopped.as_slice() {
            [one, other] => format!("{one} and {other} are stopped"),
            _ => format!("{} is stopped", stopped.join("")),
        };
        steps.extend(Steps::one(
            reason,
            format!("set the stopPolicy of {} to `None`", stopped.join(" and of ")),
        ));
        scope =
            Some(if spec.stop_policy == StopPolicy::None { Scope::LocalQueue } else { Scope::ClusterQueue });
    }
    if let Err(why @ (NoRoute::NamespaceNotSelected { .. } | NoRoute::SelectsNoNamespace { .. })) =
        catalog.selected(name, spec, &class.namespace)
    {
        steps.extend(Steps::of(world.asker, &Why::Route(why)));
        scope = scope.or(Some(Scope::Namespace));
    }
    let inactive = inactive_reasons(world, name, spec);
    scope = if inactive.is_empty() { scope } else { Some(Scope::ClusterQueue) };
    for why in inactive {
        steps.extend(inactive_step(world, name, why));
    }
    (steps, scope)
}

/// All reasons for which a cluster queue is inactive, except a stop.
fn inactive_reasons(world: &AskedWorld<'_>, name: &str, spec: &ClusterQueueSpec) -> Vec<Inactive> {
    let mut spec = ClusterQueueSpec { stop_policy: StopPolicy::None, ..spec.clone() };
    let mut all = Vec::new();
    // To find the next reason, remove each reason from a copy of the spec.
    while let Some(why) = inactive_reason(world, &spec).filter(|_| all.len() < INACTIVE_REASONS_MAX) {
        match &why {
            Inactive::FlavorNotFound(flavor) => spec
                .resource_groups
                .iter_mut()
                .for_each(|group| group.flavors.retain(|of| of.name != *flavor)),
            Inactive::AdmissionCheck(check)
            | Inactive::CheckInactive(check)
            | Inactive::WorkersCheck(check, Clash::Several) => {
                spec.admission_checks.retain(|rule| rule.name != *check);
            }
            Inactive::WorkersCheck(_, Clash::OnFlavors) => {
                spec.admission_checks.iter_mut().for_each(|rule| rule.on_flavors.clear())
            }
            Inactive::WorkersCheck(check, Clash::Provisioning) => {
                spec.admission_checks.retain(|rule| rule.name == *check)
            }
            Inactive::Stopped | Inactive::CohortCycle | Inactive::TopologyNotFound(_) => {
                all.push(why);
                break;
            }
        }
        all.push(why);
    }
    let placed = world
        .mirror()
        .queue_state()
        .queue_id(name)
        .is_none_or(|queue| world.mirror().queue_state().queue(queue).node.is_some());
    all.extend((!placed).then_some(Inactive::CohortCycle));
    all
}

/// Explains an inactive cluster queue. If its MultiKueue check names a missing config, the config is the
/// reason.
fn inactive_step(world: &AskedWorld<'_>, queue: &str, why: Inactive) -> Steps {
    let Some((check, config)) = world
        .state()
        .catalog()
        .missing_config(queue)
        .filter(|(check, _)| why == Inactive::CheckInactive((*check).to_owned()))
    else {
        return Steps::of(world.asker, &Why::Inactive { queue: queue.to_owned(), why });
    };
    let missing = Why::NoWorkersConfig { check: check.to_owned(), config: config.to_owned() };
    let remedy =
        format!("{}; what comes next depends on the clusters that it lists", missing.remedy(world.asker));
    Steps::one(format!("cluster queue `{queue}` is inactive: {}", missing.message(world.asker)), remedy)
}

fn inactive_reason(world: &AskedWorld<'_>, spec: &ClusterQueueSpec) -> Option<Inactive> {
    // Agents place pods, so topologies aren't checked here.
    inactive(
        spec,
        true,
        &meridian_manager_core::queue::mirror::CatalogReferences(world.state().catalog()),
        false,
    )
}

/// Obstacles of a workload with active queues.
fn in_queue(world: &AskedWorld<'_>, case: &Case<'_>) -> Steps {
    match obstacle::obstacle(world, case) {
        Obstacle::Before(Why::Quota(quota)) => remedy::quota_steps(world, case, quota),
        Obstacle::Before(Why::Overtaken) => rivals::overtaken_steps(world, case),
        Obstacle::Before(why) => Steps::of(world.asker, why),
        Obstacle::Behind(head, blocks) => obstacle::behind(world, case, *head, *blocks),
        Obstacle::AtClusters => remedy::nearest_steps(world, case),
    }
}

/// Obstacles that come after those found so far, by the current state: a head that blocks, quota, and if
/// `capacity`, the verdicts of clusters.
pub(crate) fn afterwards(world: &AskedWorld<'_>, case: &Case<'_>, capacity: bool) -> Steps {
    let mut steps = Steps::default();
    if let Some((head, queue)) =
        case.queue.filter(|_| case.id.is_none()).and_then(|queue| head_that_blocks(world, case, queue))
    {
        steps.extend(Steps::one(
            format!("cluster queue `{queue}` is StrictFIFO, and its head, {head}, can't start"),
            format!("wait until {head} starts, or delete it"),
        ));
    }
    match &case.shortage {
        Some(Why::Quota(quota)) => steps.extend(quota_step(world, case, quota)),
        Some(why) => steps.extend(Steps::of(world.asker, why)),
        None => {}
    }
    let nearest = if capacity { remedy::nearest_capacity(world, case) } else { None };
    steps.extend(nearest.map(|(reason, remedy)| Steps::one(reason, remedy)).unwrap_or_default());
    steps
}

/// The pending head of a StrictFIFO queue that is ahead of the workload, and the queue's name.
fn head_that_blocks(world: &AskedWorld<'_>, case: &Case<'_>, queue: QueueId) -> Option<(String, String)> {
    let queues = world.mirror().queue_state();
    let setup = &queues.queue(queue).setup;
    let head = queues
        .head(queue)
        .filter(|_| setup.strict && setup.inactive.is_none() && !queues.orders_by_usage(queue))?;
    let uid = world.mirror().uid(head)?;
    let workload = world.state().workloads().get(&uid)?;
    let is_ahead = QueuePosition::new(workload.priority(), workload.submitted(), uid) < position_of(case);
    is_ahead.then(|| (head_order::named(world, head), setup.name.to_string()))
}

pub(crate) fn position_of(case: &Case<'_>) -> QueuePosition {
    QueuePosition::new(case.workload.priority(), case.workload.submitted(), case.uid)
}

/// Explains that the same change would release another workload first, which can't start and blocks a
/// StrictFIFO queue.
fn released_head_that_blocks(
    world: &AskedWorld<'_>,
    ahead: &Ahead,
    queue: QueueId,
    now: Now,
) -> Option<Steps> {
    let queues = world.mirror().queue_state();
    let setup = &queues.queue(queue).setup;
    let uid = ahead
        .first
        .filter(|_| setup.strict && !queues.orders_by_usage(queue))
        .map(|position| position.uid)?;
    let first = case::case(world, uid, world.state().workloads().get(&uid)?, now.mono);
    if first.shortage.is_none() && first.fits_somewhere() {
        return None;
    }
    let name = name_of(world, uid);
    let why = match &first.shortage {
        Some(why) => why.message(world.asker),
        None => "no cluster has room for it".to_owned(),
    };
    let more = if ahead.count > 1 { step::more_before(ahead.count - 1) } else { String::new() };
    let reason = format!(
        "cluster queue `{}` is StrictFIFO, and {name}, which comes first there, can't start: {why}",
        setup.name
    );
    Some(Steps::one(reason, format!("wait until {name} starts, or delete it{more}")))
}

fn name_of(world: &AskedWorld<'_>, uid: Uid) -> String {
    world
        .state()
        .workloads()
        .get(&uid)
        .map_or_else(|| "another workload".to_owned(), |workload| world.asker.workload(workload))
}

/// Names the workloads that the same change would release first, unless there is enough for all of them
/// and this one.
fn released_rivals_message(world: &AskedWorld<'_>, case: &Case<'_>, ahead: &Ahead) -> Option<String> {
    let (queue, first) = case.queue.zip(ahead.first)?;
    let queues = world.mirror().queue_state();
    let is_free = |key: &(FlavorId, ResourceId), amount: i64| {
        let requests = ahead.requests.get(&**queues.resource_name(key.1)).copied().unwrap_or(0);
        queues.available(queue, *key) >= amount.saturating_add(requests)
    };
    let few = ahead.count <= TOGETHER_MAX;
    let quota =
        few && case.shortage.is_none() && case.usage.iter().all(|(key, amount)| is_free(key, *amount));
    let together = |(cluster, verdict): (&ClusterName, &Result<(), Why>)| {
        let live = verdict.as_ref().ok().and_then(|()| world.live().cluster(cluster));
        live.is_some_and(|live| live.capacity().fits_without(&case.gang, &[], &ahead.gangs))
    };
    if quota && case.verdicts.iter().any(together) {
        return None;
    }
    let name = name_of(world, first.uid);
    Some(match ahead.count {
        1 => format!("; {name} may take it first"),
        n => format!("; {name} and {} more may take it first", n - 1),
    })
}

/// Workloads of `scope` that are ahead of this one.
fn ahead(world: &AskedWorld<'_>, case: &Case<'_>, queue: QueueId, scope: Scope) -> Ahead {
    let (mine, position) = (world.queues().class(case.workload.class()), position_of(case));
    let name = &world.mirror().queue_state().queue(queue).setup.name;
    let by_usage = world.mirror().queue_state().orders_by_usage(queue);
    let same = |class: &Class| match scope {
        Scope::LocalQueue => class.namespace == mine.namespace && class.queue == mine.queue,
        Scope::Namespace => {
            class.namespace == mine.namespace && remedy::is_in_cluster_queue(world, class, name)
        }
        Scope::ClusterQueue => remedy::is_in_cluster_queue(world, class, name),
    };
    let (mut ahead, mut left) = (Ahead::default(), COUNTED_MAX);
    let mut known: BTreeMap<(&str, &str), bool> = BTreeMap::new();
    let mut classes = Alongside::new(world.queues().classes());
    for (id, first, waiting) in world.queues().waiting_by_class() {
        let Some(class) = classes.at(id) else { continue };
        if !*known.entry((&*class.namespace, &*class.queue)).or_insert_with(|| same(class)) {
            continue;
        }
        let own = usize::from(id == case.workload.class());
        let n = if by_usage { waiting.len() - own } else { count_below(waiting, &position, &mut left).most };
        let other = if first.uid == case.uid { waiting.iter().nth(1) } else { Some(first) };
        let Some(first) = other.filter(|_| n > 0) else { continue };
        ahead.count += n;
        if ahead.count <= TOGETHER_MAX {
            add_scaled(&mut ahead.requests, &class.gang.total(), i64::try_from(n).unwrap_or(i64::MAX));
            ahead.gangs.extend(std::iter::repeat_n(class.gang.clone(), n));
        }
        ahead.first = Some(ahead.first.map_or(*first, |other| other.min(*first)));
    }
    ahead
}

/// The quota shortage of a workload that the scheduling cycle hasn't evaluated yet.
fn quota_step(world: &AskedWorld<'_>, case: &Case<'_>, quota: &NoQuota) -> Steps {
    let why = Why::Quota(quota.clone());
    let Some(queue) = case.queue else { return Steps::of(world.asker, &why) };
    let setup = &world.mirror().queue_state().queue(queue).setup;
    let may_preempt = matches!(quota, NoQuota::Used(_)) && setup.preemption.allows_any();
    let unless = if may_preempt { ", unless preemption frees more" } else { "" };
    // Whether preemption can help is known only after an evaluation.
    let shortage = words::without_preemption(quota);
    let message = || remedy::shortage_message(world, case, &shortage);
    let (reason, remedy) =
        remedy::uncovered_message(world, case, quota).unwrap_or_else(|| (message(), why.remedy(world.asker)));
    Steps::one(format!("{reason}{unless}"), remedy)
}

/// Workloads that one change would release.
#[derive(Clone, Copy)]
pub(crate) enum Scope {
    LocalQueue,
    Namespace,
    ClusterQueue,
}
