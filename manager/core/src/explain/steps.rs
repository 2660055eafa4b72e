//! What stands between a workload and its start, one thing after another, and what removes each.
//!
//! What is first is what was decided. What follows is found as if the first were gone, on a copy of the books, so that nobody
//! removes one obstacle to find the next.

use super::Why;
use super::case::Case;
use super::obstacle::Obstacle;
use super::rivals::Alongside;
use crate::World;
use crate::catalog::NoRoute;
use crate::queues::{NoQuota, Place};
use crate::record::Class;
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

/// One thing that keeps a workload, and what removes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) words: String,
    pub(super) help: String,
}

/// All that keeps it, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Steps {
    pub(super) list: Vec<Step>,
    /// Changes of which each does for all of them.
    pub(super) alone: Vec<String>,
}

impl Steps {
    pub(super) fn one(words: String, help: String) -> Self {
        Self { list: vec![Step { words, help }], alone: Vec::new() }
    }

    pub(super) fn of(why: &Why) -> Self {
        Self::one(why.words(), why.would_help())
    }

    pub(super) fn extend(&mut self, more: Self) {
        self.list.extend(more.list);
    }

    /// What keeps it, and what would help.
    pub(super) fn in_words(self) -> (String, String) {
        let words: Vec<&str> = self.list.iter().map(|step| step.words.as_str()).collect();
        let summary = words.join("; and then: ");
        let helps: Vec<&str> =
            self.list.iter().map(|step| step.help.as_str()).filter(|help| !help.is_empty()).collect();
        let help = match (helps.as_slice(), self.alone.is_empty()) {
            ([], _) => String::new(),
            ([one], _) => (*one).to_owned(),
            (many, true) => {
                format!("no single change is known to start it; first: {}", many.join("; then: "))
            }
            (many, false) => format!("first: {}", many.join("; then: ")),
        };
        let alone = self.alone.join("; or ");
        let help = match (help.is_empty(), alone.is_empty()) {
            (_, true) => help,
            (true, false) => alone,
            (false, false) => format!("{help}; {alone}"),
        };
        (summary, help)
    }
}

/// Who is let go by the same change, and stands before.
#[derive(Default)]
struct Ahead {
    first: Option<Place>,
    count: usize,
    /// What they ask for, and their gangs; not all of it where they are too many to be tried beside each other.
    asks: Amounts,
    gangs: Vec<Arc<Gang>>,
}

impl World {
    /// All that keeps a workload that isn't started.
    pub(super) fn steps(&self, case: &Case<'_>, now: Now) -> Steps {
        let mut steps = self.gates(case, now);
        let all_wait = self.state.recovery.is_some() || self.state.rules_doubted.is_some();
        let (way, scope) = self.on_the_way(case);
        let scope = scope.or(all_wait.then_some(Scope::ClusterQueue));
        steps.extend(way);
        if steps.list.is_empty() {
            return self.in_queue(case);
        }
        let ahead =
            case.queue.zip(scope).map(|(queue, scope)| self.ahead(case, queue, scope)).unwrap_or_default();
        let stays = case
            .queue
            .filter(|_| scope.is_some())
            .and_then(|queue| self.first_that_stays(&ahead, queue, now));
        let blocked = stays.is_some();
        steps.extend(stays.unwrap_or_default());
        steps.extend(self.afterwards(case, true));
        if let Some((step, also)) =
            steps.list.last_mut().filter(|_| !blocked).zip(self.let_go_with_it(case, &ahead))
        {
            step.help += &also;
        }
        steps
    }

    /// What keeps it before any queue is looked at.
    fn gates(&self, case: &Case<'_>, now: Now) -> Steps {
        let mut steps = Steps::default();
        if case.workload.inactive.is_some() {
            let (words, help) = case.workload.inactivity_in_words();
            steps.extend(Steps::one(words, help));
        }
        if self.held_back(case.workload, now.mono) {
            steps.extend(Steps::of(&Why::RecoveryOpen));
        }
        if self.state.rules_doubted.is_some() {
            steps.extend(Steps::of(&Why::RulesDoubted));
        }
        if let Some(until) = self.live.not_before.get(&case.uid).filter(|until| **until > now.mono) {
            let rest: Millis = until.since(now.mono);
            steps.extend(Steps::one(
                format!("{}, for {rest}", Why::BackOff.words()),
                Why::BackOff.would_help(),
            ));
        }
        steps
    }

    /// What is stopped, missing or closed between it and its quota; and whom the same change lets go: all of its cluster queue,
    /// or only those of its local queue.
    fn on_the_way(&self, case: &Case<'_>) -> (Steps, Option<Scope>) {
        let class = self.queues.class(case.workload.class);
        let catalog = &self.state.catalog;
        let Some(local) = catalog.local_queue(&class.namespace, &class.queue) else {
            let why = Why::Route(NoRoute::NoLocalQueue {
                namespace: class.namespace.clone(),
                queue: class.queue.clone(),
            });
            return (
                Steps::one(
                    why.words(),
                    format!(
                        "{}; what comes next depends on the cluster queue that it names",
                        why.would_help()
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
                    why.words(),
                    format!("{}; what comes next depends on its quota", why.would_help()),
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
            let words = match stopped.as_slice() {
                [one, too] => format!("{one} is stopped, and {too} too"),
                _ => format!("{} is stopped", stopped.join("")),
            };
            steps.extend(Steps::one(
                words,
                format!("set the stopPolicy of {} to `None`", stopped.join(" and of ")),
            ));
            scope = Some(if spec.stop_policy == StopPolicy::None {
                Scope::LocalQueue
            } else {
                Scope::ClusterQueue
            });
        }
        if let Err(why @ NoRoute::NamespaceNotSelected { .. }) =
            catalog.selected(name, spec, &class.namespace)
        {
            steps.extend(Steps::of(&Why::Route(why)));
            scope = scope.or(Some(Scope::Namespace));
        }
        let lacks = self.lacks_of(name, spec);
        scope = if lacks.is_empty() { scope } else { Some(Scope::ClusterQueue) };
        for why in lacks {
            steps.extend(self.inactive_step(name, why));
        }
        (steps, scope)
    }

    /// What a queue lacks to admit anybody.
    fn lacks_of(&self, name: &str, spec: &ClusterQueueSpec) -> Vec<Inactive> {
        let mut spec = ClusterQueueSpec { stop_policy: StopPolicy::None, ..spec.clone() };
        let mut all = Vec::new();
        // As if each were there, to find the next.
        while let Some(why) = self.inactive_now(&spec).filter(|_| all.len() < LACKS_MAX) {
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
        let placed = self
            .deciding
            .brain()
            .queue_id(name)
            .is_none_or(|queue| self.deciding.brain().queue(queue).node.is_some());
        all.extend((!placed).then_some(Inactive::CohortCycle));
        all
    }

    /// Why a queue admits nothing; where its check leads nowhere, that.
    fn inactive_step(&self, queue: &str, why: Inactive) -> Steps {
        let Some((check, config)) = self
            .state
            .catalog
            .missing_config(queue)
            .filter(|(check, _)| why == Inactive::CheckInactive((*check).to_owned()))
        else {
            return Steps::of(&Why::Inactive { queue: queue.to_owned(), why });
        };
        let missing = Why::NoWorkersConfig { check: check.to_owned(), config: config.to_owned() };
        let help = format!("{}; what comes next depends on the clusters that it lists", missing.would_help());
        Steps::one(format!("cluster queue `{queue}` admits nothing: {}", missing.words()), help)
    }

    fn inactive_now(&self, spec: &ClusterQueueSpec) -> Option<Inactive> {
        // Agents place pods: no topology is asked for here.
        inactive(spec, true, &crate::deciding::Declared(&self.state.catalog), false)
    }

    /// What keeps it in a queue that looks at it.
    fn in_queue(&self, case: &Case<'_>) -> Steps {
        match self.obstacle(case) {
            Obstacle::Before(Why::Quota(quota)) => self.quota_steps(case, quota),
            Obstacle::Before(Why::Overtaken) => self.overtaken_steps(case),
            Obstacle::Before(why) => Steps::of(why),
            Obstacle::Behind(head, stays) => self.behind(case, *head, *stays),
            Obstacle::AtClusters => self.nearest_steps(case),
        }
    }

    /// What it meets once what is known so far is gone, as the books are now: who stays before it, quota, and with `rooms` what
    /// the clusters say.
    pub(super) fn afterwards(&self, case: &Case<'_>, rooms: bool) -> Steps {
        let mut steps = Steps::default();
        if let Some((head, queue)) =
            case.queue.filter(|_| case.id.is_none()).and_then(|queue| self.head_that_stays(case, queue))
        {
            steps.extend(Steps::one(
                format!("cluster queue `{queue}` keeps strict order, and its head {head} can't start"),
                format!("the start or deletion of {head}"),
            ));
        }
        match &case.lacks {
            Some(Why::Quota(quota)) => steps.extend(self.quota_step(case, quota)),
            Some(why) => steps.extend(Steps::of(why)),
            None => {}
        }
        let nearest = if rooms { self.nearest_room(case) } else { None };
        steps.extend(nearest.map(|(words, help)| Steps::one(words, help)).unwrap_or_default());
        steps
    }

    /// Who would stand before it in a queue of strict order, and can't start.
    fn head_that_stays(&self, case: &Case<'_>, queue: QueueId) -> Option<(String, String)> {
        let brain = self.deciding.brain();
        let setup = &brain.queue(queue).setup;
        let head = brain
            .head(queue)
            .filter(|_| setup.strict && setup.inactive.is_none() && !brain.orders_by_usage(queue))?;
        let uid = self.deciding.uid(head)?;
        let ahead = self.state.workloads.get(&uid)?;
        let before = Place::new(ahead.priority, ahead.submitted, uid) < self.place(case);
        before.then(|| (self.named(head), setup.name.to_string()))
    }

    pub(super) fn place(&self, case: &Case<'_>) -> Place {
        Place::new(case.workload.priority, case.workload.submitted, case.uid)
    }

    /// Who is let go with it, comes first in a queue of strict order, and can't start then.
    fn first_that_stays(&self, ahead: &Ahead, queue: QueueId, now: Now) -> Option<Steps> {
        let brain = self.deciding.brain();
        let setup = &brain.queue(queue).setup;
        let uid =
            ahead.first.filter(|_| setup.strict && !brain.orders_by_usage(queue)).map(|place| place.uid)?;
        let first = self.case(uid, self.state.workloads.get(&uid)?, now.mono);
        if first.lacks.is_none() && first.has_room() {
            return None;
        }
        let whom = self.whom(uid);
        let why = match &first.lacks {
            Some(why) => why.words(),
            None => "no cluster has room for it".to_owned(),
        };
        let more = if ahead.count > 1 { more_before(ahead.count - 1) } else { String::new() };
        let words = format!(
            "cluster queue `{}` keeps strict order, and {whom}, which comes first there, can't start: {why}",
            setup.name
        );
        Some(Steps::one(words, format!("the start or deletion of {whom}{more}")))
    }

    fn whom(&self, uid: Uid) -> String {
        self.state
            .workloads
            .get(&uid)
            .map_or_else(|| "another workload".to_owned(), |w| format!("`{}/{}`", w.namespace, w.name))
    }

    /// Who comes first of those whom the same change lets go, unless there is enough for all of them and it.
    fn let_go_with_it(&self, case: &Case<'_>, ahead: &Ahead) -> Option<String> {
        let (queue, first) = case.queue.zip(ahead.first)?;
        let brain = self.deciding.brain();
        let free = |key: &(FlavorId, ResourceId), takes: i64| {
            let asks = ahead.asks.get(&**brain.resource_name(key.1)).copied().unwrap_or(0);
            brain.free(queue, *key) >= takes.saturating_add(asks)
        };
        let few = ahead.count <= TOGETHER_MAX;
        let quota = few && case.lacks.is_none() && case.takes.iter().all(|(key, takes)| free(key, *takes));
        let together = |(cluster, said): (&ClusterName, &Result<(), Why>)| {
            let live = said.as_ref().ok().and_then(|()| self.live.clusters.get(cluster));
            live.is_some_and(|live| live.rooms.fits_without(&case.gang, &[], &ahead.gangs))
        };
        if quota && case.verdicts.iter().any(together) {
            return None;
        }
        let whom = self.whom(first.uid);
        Some(match ahead.count {
            1 => format!("; {whom}, which waits for the same, may take it first"),
            n => format!("; {whom} and {} more that wait for the same may take it first", n - 1),
        })
    }

    /// Those whom a change lets go that stand before it.
    fn ahead(&self, case: &Case<'_>, queue: QueueId, scope: Scope) -> Ahead {
        let (mine, place) = (self.queues.class(case.workload.class), self.place(case));
        let name = &self.deciding.brain().queue(queue).setup.name;
        let by_usage = self.deciding.brain().orders_by_usage(queue);
        let same = |class: &Class| match scope {
            Scope::LocalQueue => class.namespace == mine.namespace && class.queue == mine.queue,
            Scope::Namespace => class.namespace == mine.namespace && self.leads_to(class, name),
            Scope::ClusterQueue => self.leads_to(class, name),
        };
        let (mut ahead, mut left) = (Ahead::default(), COUNTED_MAX);
        let mut known: BTreeMap<(&str, &str), bool> = BTreeMap::new();
        let mut classes = Alongside::new(self.queues.classes());
        for (id, first, waiting) in self.queues.waiting_by_class() {
            let Some(class) = classes.at(id) else { continue };
            if !*known.entry((&*class.namespace, &*class.queue)).or_insert_with(|| same(class)) {
                continue;
            }
            let own = usize::from(id == case.workload.class);
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

    pub(super) fn leads_to(&self, class: &Class, cluster_queue: &str) -> bool {
        self.state
            .catalog
            .local_queue(&class.namespace, &class.queue)
            .is_some_and(|local| local.cluster_queue == cluster_queue)
    }

    /// What quota lacks, of a workload that isn't looked at yet.
    fn quota_step(&self, case: &Case<'_>, quota: &NoQuota) -> Steps {
        let why = Why::Quota(quota.clone());
        let Some(queue) = case.queue else { return Steps::of(&why) };
        let setup = &self.deciding.brain().queue(queue).setup;
        let displaces = matches!(quota, NoQuota::Used(_)) && setup.preemption.allows_any();
        let unless = if displaces { ", unless others may be displaced for it" } else { "" };
        // Whether anybody may be displaced shows when it is looked at.
        let lacks = quota.before_anybody_gives_way();
        let words = || self.lacks_in_words(case, &lacks);
        let (words, help) =
            self.uncovered_in_words(case, quota).unwrap_or_else(|| (words(), why.would_help()));
        Steps::one(format!("{words}{unless}"), help)
    }
}

/// How many more stand before a workload.
pub(super) fn more_before(n: usize) -> String {
    if n == 1 { "; one more comes before it".to_owned() } else { format!("; {n} more come before it") }
}

/// Whom a change lets go.
#[derive(Clone, Copy)]
pub(super) enum Scope {
    LocalQueue,
    Namespace,
    ClusterQueue,
}
