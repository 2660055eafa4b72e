//! What stands between a workload and its start, one thing after another, and what removes each.
//!
//! What is first is what was decided. What follows is found as if the first were gone, on a copy of the books, so that nobody
//! removes one obstacle to find the next.

use crate::facts::reason::{NoQuota, NoRoute, Why};
use crate::facts::submission::Class;
use crate::queue::classes::QueuePosition;
use crate::views::explain::case::{self, Case, Obstacle};
pub(crate) use crate::views::explain::step::Steps;
use crate::views::explain::step::{self, Alongside};
use crate::views::explain::{head_order, obstacle, remedy, rivals};
use crate::world::World;
use meridian_objects::spec::{ClusterQueueSpec, StopPolicy};
use meridian_queueing::declare::inactive;
use meridian_queueing::model::{Clash, Inactive, QueueId};
use meridian_queueing::names::{FlavorId, ResourceId};
use meridian_queueing::pending::{COUNTED_MAX, below};
use meridian_shared::gang::{Amounts, Gang, add_scaled};
use meridian_shared::ids::{ClusterName, Uid};
use meridian_shared::time::{Millis, Now};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What a queue may lack that is told at once.
const LACKS_MAX: usize = 8;

/// Gangs that are tried beside each other in one cluster.
const TOGETHER_MAX: usize = 16;

/// Who is let go by the same change, and stands before.
#[derive(Default)]
struct Ahead {
    first: Option<QueuePosition>,
    count: usize,
    /// What they ask for, and their gangs; not all of it where they are too many to be tried beside each other.
    asks: Amounts,
    gangs: Vec<Arc<Gang>>,
}

/// All that keeps a workload that isn't started.
pub(crate) fn steps(world: &World, case: &Case<'_>, now: Now) -> Steps {
    let mut steps = gates(world, case, now);
    let all_wait = world.state.recovery().is_some() || world.state.rules_doubted().is_some();
    let (way, scope) = on_the_way(world, case);
    let scope = scope.or(all_wait.then_some(Scope::ClusterQueue));
    steps.extend(way);
    if steps.list.is_empty() {
        return in_queue(world, case);
    }
    let ahead =
        case.queue.zip(scope).map(|(queue, scope)| ahead(world, case, queue, scope)).unwrap_or_default();
    let stays =
        case.queue.filter(|_| scope.is_some()).and_then(|queue| first_that_stays(world, &ahead, queue, now));
    let blocked = stays.is_some();
    steps.extend(stays.unwrap_or_default());
    steps.extend(afterwards(world, case, true));
    if let Some((step, also)) =
        steps.list.last_mut().filter(|_| !blocked).zip(let_go_with_it(world, case, &ahead))
    {
        step.help += &also;
    }
    steps
}

/// What keeps it before any queue is looked at.
fn gates(world: &World, case: &Case<'_>, now: Now) -> Steps {
    let mut steps = Steps::default();
    if case.workload.inactive().is_some() {
        let (words, help) = case.workload.inactivity_message();
        steps.extend(Steps::one(words, help));
    }
    if world.held_back(case.workload, now.mono) {
        steps.extend(Steps::of(&Why::RecoveryOpen));
    }
    if world.state.rules_doubted().is_some() {
        steps.extend(Steps::of(&Why::RulesDoubted));
    }
    if let Some(until) = world.live.backoff_until.get(&case.uid).filter(|until| **until > now.mono) {
        let rest: Millis = until.since(now.mono);
        steps.extend(Steps::one(format!("{}, for {rest}", Why::BackOff.words()), Why::BackOff.would_help()));
    }
    steps
}

/// What is stopped, missing or closed between it and its quota; and whom the same change lets go: all of its cluster queue,
/// or only those of its local queue.
fn on_the_way(world: &World, case: &Case<'_>) -> (Steps, Option<Scope>) {
    let class = world.queues.class(case.workload.class());
    let catalog = &world.state.catalog();
    let Some(local) = catalog.local_queue(&class.namespace, &class.queue) else {
        let why = Why::Route(NoRoute::NoLocalQueue {
            namespace: class.namespace.clone(),
            queue: class.queue.clone(),
        });
        return (
            Steps::one(
                why.words(),
                format!("{}; what comes next depends on the cluster queue that it names", why.would_help()),
            ),
            None,
        );
    };
    let name = &local.cluster_queue;
    let Some(spec) = catalog.cluster_queue(name) else {
        let why = Why::Route(NoRoute::NoClusterQueue { cluster_queue: name.clone() });
        return (
            Steps::one(why.words(), format!("{}; what comes next depends on its quota", why.would_help())),
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
        let words = match stopped.as_slice() {
            [one, too] => format!("{one} is stopped, and {too} too"),
            _ => format!("{} is stopped", stopped.join("")),
        };
        steps.extend(Steps::one(
            words,
            format!("set the stopPolicy of {} to `None`", stopped.join(" and of ")),
        ));
        scope =
            Some(if spec.stop_policy == StopPolicy::None { Scope::LocalQueue } else { Scope::ClusterQueue });
    }
    if let Err(why @ NoRoute::NamespaceNotSelected { .. }) = catalog.selected(name, spec, &class.namespace) {
        steps.extend(Steps::of(&Why::Route(why)));
        scope = scope.or(Some(Scope::Namespace));
    }
    let lacks = lacks_of(world, name, spec);
    scope = if lacks.is_empty() { scope } else { Some(Scope::ClusterQueue) };
    for why in lacks {
        steps.extend(inactive_step(world, name, why));
    }
    (steps, scope)
}

/// What a queue lacks to admit anybody.
fn lacks_of(world: &World, name: &str, spec: &ClusterQueueSpec) -> Vec<Inactive> {
    let mut spec = ClusterQueueSpec { stop_policy: StopPolicy::None, ..spec.clone() };
    let mut all = Vec::new();
    // As if each were there, to find the next.
    while let Some(why) = inactive_now(world, &spec).filter(|_| all.len() < LACKS_MAX) {
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
        .mirror
        .brain()
        .queue_id(name)
        .is_none_or(|queue| world.mirror.brain().queue(queue).node.is_some());
    all.extend((!placed).then_some(Inactive::CohortCycle));
    all
}

/// Why a queue admits nothing; where its check leads nowhere, that.
fn inactive_step(world: &World, queue: &str, why: Inactive) -> Steps {
    let Some((check, config)) = world
        .state
        .catalog()
        .missing_config(queue)
        .filter(|(check, _)| why == Inactive::CheckInactive((*check).to_owned()))
    else {
        return Steps::of(&Why::Inactive { queue: queue.to_owned(), why });
    };
    let missing = Why::NoWorkersConfig { check: check.to_owned(), config: config.to_owned() };
    let help = format!("{}; what comes next depends on the clusters that it lists", missing.would_help());
    Steps::one(format!("cluster queue `{queue}` admits nothing: {}", missing.words()), help)
}

fn inactive_now(world: &World, spec: &ClusterQueueSpec) -> Option<Inactive> {
    // Agents place pods: no topology is asked for here.
    inactive(spec, true, &crate::queue::mirror::CatalogReferences(&world.state.catalog()), false)
}

/// What keeps it in a queue that looks at it.
fn in_queue(world: &World, case: &Case<'_>) -> Steps {
    match obstacle::obstacle(world, case) {
        Obstacle::Before(Why::Quota(quota)) => remedy::quota_steps(world, case, quota),
        Obstacle::Before(Why::Overtaken) => rivals::overtaken_steps(world, case),
        Obstacle::Before(why) => Steps::of(why),
        Obstacle::Behind(head, stays) => obstacle::behind(world, case, *head, *stays),
        Obstacle::AtClusters => remedy::nearest_steps(world, case),
    }
}

/// What it meets once what is known so far is gone, as the books are now: who stays before it, quota, and with `capacity` what
/// the clusters say.
pub(crate) fn afterwards(world: &World, case: &Case<'_>, capacity: bool) -> Steps {
    let mut steps = Steps::default();
    if let Some((head, queue)) =
        case.queue.filter(|_| case.id.is_none()).and_then(|queue| head_that_stays(world, case, queue))
    {
        steps.extend(Steps::one(
            format!("cluster queue `{queue}` keeps strict order, and its head {head} can't start"),
            format!("the start or deletion of {head}"),
        ));
    }
    match &case.lacks {
        Some(Why::Quota(quota)) => steps.extend(quota_step(world, case, quota)),
        Some(why) => steps.extend(Steps::of(why)),
        None => {}
    }
    let nearest = if capacity { remedy::nearest_capacity(world, case) } else { None };
    steps.extend(nearest.map(|(words, help)| Steps::one(words, help)).unwrap_or_default());
    steps
}

/// Who would stand before it in a queue of strict order, and can't start.
fn head_that_stays(world: &World, case: &Case<'_>, queue: QueueId) -> Option<(String, String)> {
    let brain = world.mirror.brain();
    let setup = &brain.queue(queue).setup;
    let head = brain
        .head(queue)
        .filter(|_| setup.strict && setup.inactive.is_none() && !brain.orders_by_usage(queue))?;
    let uid = world.mirror.uid(head)?;
    let ahead = world.state.workloads().get(&uid)?;
    let before = QueuePosition::new(ahead.priority(), ahead.submitted(), uid) < place(world, case);
    before.then(|| (head_order::named(world, head), setup.name.to_string()))
}

pub(crate) fn place(_world: &World, case: &Case<'_>) -> QueuePosition {
    QueuePosition::new(case.workload.priority(), case.workload.submitted(), case.uid)
}

/// Who is let go with it, comes first in a queue of strict order, and can't start then.
fn first_that_stays(world: &World, ahead: &Ahead, queue: QueueId, now: Now) -> Option<Steps> {
    let brain = world.mirror.brain();
    let setup = &brain.queue(queue).setup;
    let uid = ahead.first.filter(|_| setup.strict && !brain.orders_by_usage(queue)).map(|place| place.uid)?;
    let first = case::case(world, uid, world.state.workloads().get(&uid)?, now.mono);
    if first.lacks.is_none() && first.has_room() {
        return None;
    }
    let whom = whom(world, uid);
    let why = match &first.lacks {
        Some(why) => why.words(),
        None => "no cluster has room for it".to_owned(),
    };
    let more = if ahead.count > 1 { step::more_before(ahead.count - 1) } else { String::new() };
    let words = format!(
        "cluster queue `{}` keeps strict order, and {whom}, which comes first there, can't start: {why}",
        setup.name
    );
    Some(Steps::one(words, format!("the start or deletion of {whom}{more}")))
}

fn whom(world: &World, uid: Uid) -> String {
    world
        .state
        .workloads()
        .get(&uid)
        .map_or_else(|| "another workload".to_owned(), |w| format!("`{}/{}`", w.namespace(), w.name()))
}

/// Who comes first of those whom the same change lets go, unless there is enough for all of them and it.
fn let_go_with_it(world: &World, case: &Case<'_>, ahead: &Ahead) -> Option<String> {
    let (queue, first) = case.queue.zip(ahead.first)?;
    let brain = world.mirror.brain();
    let free = |key: &(FlavorId, ResourceId), takes: i64| {
        let asks = ahead.asks.get(&**brain.resource_name(key.1)).copied().unwrap_or(0);
        brain.free(queue, *key) >= takes.saturating_add(asks)
    };
    let few = ahead.count <= TOGETHER_MAX;
    let quota = few && case.lacks.is_none() && case.takes.iter().all(|(key, takes)| free(key, *takes));
    let together = |(cluster, said): (&ClusterName, &Result<(), Why>)| {
        let live = said.as_ref().ok().and_then(|()| world.live.clusters.get(cluster));
        live.is_some_and(|live| live.capacity.fits_without(&case.gang, &[], &ahead.gangs))
    };
    if quota && case.verdicts.iter().any(together) {
        return None;
    }
    let whom = whom(world, first.uid);
    Some(match ahead.count {
        1 => format!("; {whom}, which waits for the same, may take it first"),
        n => format!("; {whom} and {} more that wait for the same may take it first", n - 1),
    })
}

/// Those whom a change lets go that stand before it.
fn ahead(world: &World, case: &Case<'_>, queue: QueueId, scope: Scope) -> Ahead {
    let (mine, place) = (world.queues.class(case.workload.class()), place(world, case));
    let name = &world.mirror.brain().queue(queue).setup.name;
    let by_usage = world.mirror.brain().orders_by_usage(queue);
    let same = |class: &Class| match scope {
        Scope::LocalQueue => class.namespace == mine.namespace && class.queue == mine.queue,
        Scope::Namespace => class.namespace == mine.namespace && remedy::leads_to(world, class, name),
        Scope::ClusterQueue => remedy::leads_to(world, class, name),
    };
    let (mut ahead, mut left) = (Ahead::default(), COUNTED_MAX);
    let mut known: BTreeMap<(&str, &str), bool> = BTreeMap::new();
    let mut classes = Alongside::new(world.queues.classes());
    for (id, first, waiting) in world.queues.waiting_by_class() {
        let Some(class) = classes.at(id) else { continue };
        if !*known.entry((&*class.namespace, &*class.queue)).or_insert_with(|| same(class)) {
            continue;
        }
        let own = usize::from(id == case.workload.class());
        let n = if by_usage { waiting.len() - own } else { below(waiting, &place, &mut left).most };
        let other = if first.uid == case.uid { waiting.iter().nth(1) } else { Some(first) };
        let Some(first) = other.filter(|_| n > 0) else { continue };
        ahead.count += n;
        if ahead.count <= TOGETHER_MAX {
            add_scaled(&mut ahead.asks, &class.gang.total(), i64::try_from(n).unwrap_or(i64::MAX));
            ahead.gangs.extend(std::iter::repeat_n(class.gang.clone(), n));
        }
        ahead.first = Some(ahead.first.map_or(*first, |place| place.min(*first)));
    }
    ahead
}

/// What quota lacks, of a workload that isn't looked at yet.
fn quota_step(world: &World, case: &Case<'_>, quota: &NoQuota) -> Steps {
    let why = Why::Quota(quota.clone());
    let Some(queue) = case.queue else { return Steps::of(&why) };
    let setup = &world.mirror.brain().queue(queue).setup;
    let displaces = matches!(quota, NoQuota::Used(_)) && setup.preemption.allows_any();
    let unless = if displaces { ", unless others may be displaced for it" } else { "" };
    // Whether anybody may be displaced shows when it is looked at.
    let lacks = quota.before_anybody_gives_way();
    let words = || remedy::shortage_message(world, case, &lacks);
    let (words, help) =
        remedy::uncovered_message(world, case, quota).unwrap_or_else(|| (words(), why.would_help()));
    Steps::one(format!("{words}{unless}"), help)
}

/// Whom a change lets go.
#[derive(Clone, Copy)]
pub(crate) enum Scope {
    LocalQueue,
    Namespace,
    ClusterQueue,
}
