//! What keeps a workload that waits, as things are when somebody asks: the first obstacle, its place in its queue, who comes
//! before it and why, and what every cluster would say to it.
//!
//! Everything is asked of the functions that decide: the brain's order and contest, and the judgement of clusters.

use super::Why;
use crate::queues::{NoQuota, Shortage};
use crate::ways::{Site, Way};
use crate::{Workload, World};
use meridian_objects::spec::StopPolicy;
use meridian_queueing::Brain;
use meridian_queueing::cycle::First;
use meridian_queueing::model::{Inactive, WorkloadId};
use meridian_queueing::names::{FlavorId, ResourceId};
use meridian_queueing::pending::HeadStays;
use meridian_shared::gang::Gang;
use meridian_shared::ids::{ClusterName, Uid};
use meridian_shared::time::Mono;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The first obstacle.
pub(super) enum Obstacle {
    /// Before any cluster is looked at.
    Before(Why),
    /// Its queue's head, which doesn't go away.
    Behind(WorkloadId, HeadStays),
    /// No cluster can start it, or none has been asked yet.
    AtClusters,
}

/// What each cluster says to a workload: nothing against it, or why not.
pub(super) type Verdicts = BTreeMap<ClusterName, Result<(), Why>>;

impl World {
    /// What keeps a workload that waits.
    pub(super) fn obstacle(&self, uid: Uid, workload: &Workload) -> Obstacle {
        let brain = self.deciding.brain();
        let Some((id, of)) = self.deciding.id(uid).and_then(|id| Some((id, brain.workload(id)?))) else {
            let way = self.way(self.queues.class(workload.class));
            return way.map_or_else(|why| Obstacle::Before(Why::Route(why)), |_| Obstacle::AtClusters);
        };
        let setup = &brain.queue(of.queue).setup;
        if let Some(inactive) = &setup.inactive {
            return Obstacle::Before(Why::Inactive { queue: setup.name.to_string(), why: inactive.clone() });
        }
        if brain.queue(of.queue).node.is_none() {
            return Obstacle::Before(Why::Inactive { queue: setup.name.to_string(), why: Inactive::CohortCycle });
        }
        if let Some((head, stays)) = brain.waits_behind(id) {
            return Obstacle::Behind(head, stays);
        }
        match self.live.blocked.get(&workload.class) {
            Some(Why::Route(_)) | None => Obstacle::AtClusters,
            Some(why) => Obstacle::Before(why.clone()),
        }
    }

    /// What every cluster would say to a workload that waits.
    pub(super) fn verdicts(&self, uid: Uid, workload: &Workload, now: Mono) -> Verdicts {
        let class = self.queues.class(workload.class);
        let Ok(queue) = self.state.catalog.route(&class.namespace, &class.queue) else { return Verdicts::new() };
        let way = Way::new(&self.state.catalog, class, &queue, self.config.residency_required);
        let (gang, smaller) = self.meant(uid, workload);
        let judge = |site: &Site| {
            site.listed.ok_or(Why::NotInQueue)?;
            site.verdict.clone().map_err(Why::Forbidden)?;
            let judged = |gang| self.judge_cluster((uid, now), gang, &way, site).map(|_| ());
            judged(&gang).or_else(|why| smaller.as_ref().filter(|gang| judged(gang).is_ok()).map(|_| ()).ok_or(why))
        };
        way.sites.iter().map(|site| (site.cluster.clone(), judge(site))).collect()
    }

    /// The gang as clusters would be asked for it, with the flavors that it would get; and the smallest that does, where fewer
    /// pods do.
    pub(super) fn meant(&self, uid: Uid, workload: &Workload) -> (Arc<Gang>, Option<Arc<Gang>>) {
        let (class, brain) = (self.queues.class(workload.class), self.deciding.brain());
        let given = self.deciding.id(uid).map(|id| brain.would_be_given(id)).unwrap_or_default();
        let chosen = given.pod_sets.iter().flat_map(|set| &set.flavors);
        let flavors: BTreeMap<String, Arc<str>> =
            chosen.map(|(resource, choice)| (brain.resource_name(*resource).to_string(), brain.flavor_name(choice.flavor).clone())).collect();
        let least: Vec<u32> = class.gang.pod_sets.iter().map(|set| set.min_count.unwrap_or(set.count)).collect();
        let shrinks = class.gang.pod_sets.iter().any(|set| set.min_count.is_some());
        let smaller = shrinks.then(|| self.with_flavors(&Arc::new(class.gang.of_counts(&least)), &flavors));
        (self.with_flavors(&class.gang, &flavors), smaller)
    }

    /// Its place in its local queue, and in the cluster queue where others wait there too.
    pub(super) fn position(&self, uid: Uid, workload: &Workload) -> Option<Value> {
        if !workload.waits() {
            return None;
        }
        let class = self.queues.class(workload.class);
        let brain = self.deciding.brain();
        let Some((id, standing)) = self.deciding.id(uid).and_then(|id| Some((id, brain.standing(id)?))) else {
            // It isn't looked at: the place is the one among those of its local queue that it has when it is.
            let mine = crate::queues::Place::new(workload.priority, workload.submitted, uid);
            let alike = self.queues.classes().filter(|(_, c)| c.namespace == class.namespace && c.queue == class.queue);
            let (mut before, mut of) = (0, 0);
            for (id, _) in alike {
                before += self.queues.waiting(id).take_while(|place| **place < mine).count();
                of += self.queues.waiting_count(id);
            }
            return Some(json!({"queue": &*class.queue, "place": before + 1, "of": of}));
        };
        let mut position = json!({"queue": &*class.queue, "place": standing.before_in_local + 1, "of": standing.of_local});
        if standing.of > standing.of_local {
            let queue = brain.workload(id).map(|w| brain.queue(w.queue).setup.name.to_string());
            position["clusterQueue"] = json!({"name": queue, "place": standing.before + 1, "of": standing.of});
        }
        Some(position)
    }

    /// A workload as people know it.
    pub(super) fn named(&self, id: WorkloadId) -> String {
        let workload = self.deciding.uid(id).and_then(|uid| self.state.workloads.get(&uid));
        workload.map_or_else(|| "another workload".to_owned(), |w| format!("`{}/{}`", w.namespace, w.name))
    }

    /// Why a workload isn't looked at: the head of its queue, why that stays, and what keeps it; and what would help.
    pub(super) fn behind_in_words(&self, uid: Uid, head: WorkloadId, stays: HeadStays, verdicts: &Verdicts) -> (String, String) {
        let (brain, whom) = (self.deciding.brain(), self.named(head));
        let queue = brain.workload(head).map(|w| brain.queue(w.queue).setup.name.to_string()).unwrap_or_default();
        let stands = match stays {
            HeadStays::Strict => format!("cluster queue `{queue}` keeps strict order, and its head {whom} can't start"),
            HeadStays::Starves => format!("{whom} at the head of cluster queue `{queue}` has waited so long that nobody passes it by"),
            HeadStays::Displaces => format!("others are stopping for {whom} at the head of cluster queue `{queue}`, and nobody passes it by"),
            HeadStays::Looked => format!("cluster queue `{queue}` looks at {whom} first"),
        };
        let its = self.deciding.uid(head).and_then(|uid| self.state.workloads.get(&uid)).and_then(|w| self.live.blocked.get(&w.class));
        let its = its.filter(|why| !matches!(why, Why::Preempts { .. })).map(|why| format!(": {}", why.words())).unwrap_or_default();
        let id = self.deciding.id(uid);
        let use_of = id.and_then(|id| self.use_in_words(id)).unwrap_or_default();
        // Without the head it is its turn, if nobody else stands before it.
        let next = id.and_then(|id| brain.standing(id)).is_some_and(|standing| standing.before == 1);
        let waits_for_it = |said: &Result<(), Why>| match said {
            Ok(()) => true,
            Err(Why::Kept { for_whom, .. }) => format!("`{for_whom}`") == whom,
            Err(_) => false,
        };
        let alone = next && stays != HeadStays::Displaces && verdicts.values().any(waits_for_it) && id.is_some_and(|id| brain.would_fit(id));
        let alone = if alone { format!("; the deletion of {whom} alone would do") } else { String::new() };
        (format!("waits: {stands}{its}{use_of}"), format!("the start or deletion of {whom}{alone}"))
    }

    /// What is stopped on its way: `first`, and whatever else is.
    pub(super) fn stops_in_words(&self, workload: &Workload, first: &str) -> (String, String) {
        let class = self.queues.class(workload.class);
        let queue = self.state.catalog.local_queue(&class.namespace, &class.queue).map(|local| local.cluster_queue.clone());
        let stopped = queue.filter(|queue| self.state.catalog.cluster_queue(queue).is_some_and(|spec| spec.stop_policy != StopPolicy::None));
        match stopped.map(|queue| format!("cluster queue `{queue}`")).filter(|queue| queue != first) {
            Some(too) => (format!("waits: {first} is stopped, and {too} too"), format!("set the stopPolicy of {first} and of {too} to `None`")),
            None => (format!("waits: {first} is stopped"), format!("set the stopPolicy of {first} to `None`")),
        }
    }

    /// Who comes first where a queue goes by what its local queues used.
    pub(super) fn use_in_words(&self, id: WorkloadId) -> Option<String> {
        let brain = self.deciding.brain();
        let of = brain.workload(id).filter(|of| brain.orders_by_usage(of.queue))?;
        let first = brain.front(of.queue).filter(|first| *first != id)?;
        let other = &brain.workload(first)?.local_queue;
        let [mine, theirs] = [&of.local_queue, other].map(|local| brain.local_usage_value(local));
        if mine <= theirs {
            return None;
        }
        let (local, whom) = (&of.local_queue, self.named(first));
        if mine.is_infinite() {
            return Some(format!("; local queue `{local}` has the weight 0, so {whom} of `{other}` comes first"));
        }
        let (mine, theirs) = amounts(mine, theirs);
        Some(format!("; local queue `{local}` has used more ({mine}) than `{other}` ({theirs}), so {whom} comes first"))
    }

    /// Who of another queue comes first for what comes free, and what puts it there.
    pub(super) fn contest_in_words(&self, id: WorkloadId, key: (FlavorId, ResourceId)) -> Option<String> {
        let brain = self.deciding.brain();
        let of = brain.workload(id).filter(|of| brain.front(of.queue) == Some(id))?;
        let winner = brain.served_before(id, key)?;
        let [theirs, mine] = [brain.workload(winner.workload)?.queue, of.queue].map(|queue| brain.queue(queue).setup.name.clone());
        let whom = self.named(winner.workload);
        let by = match winner.by {
            First::Share(its, own) => {
                let (own, its) = shares(own.weighted(), its.weighted());
                format!("with it the share on the side of `{theirs}` is {its}, with this one that of `{mine}` is {own}")
            }
            First::BorrowsLess => format!("`{mine}` would borrow more"),
            First::Displaces | First::Holds => "others are stopping for it".to_owned(),
            First::Priority => "its priority is higher".to_owned(),
            First::Age => "it is older".to_owned(),
        };
        Some(format!("; {whom} of cluster queue `{theirs}` comes first for what comes free: {by}"))
    }
}

/// Two amounts with as many digits as tell them apart.
fn amounts(a: f64, b: f64) -> (String, String) {
    let short = (format!("{a:.2}"), format!("{b:.2}"));
    if short.0 == short.1 { (format!("{a:.9}"), format!("{b:.9}")) } else { short }
}

/// Two shares of what could be lent, which come in thousandths.
fn shares(a: f64, b: f64) -> (String, String) {
    let word = |share: f64, text: String| if share.is_infinite() { "without limit, as its weight is 0".to_owned() } else { text };
    let (x, y) = amounts(a / 1_000.0, b / 1_000.0);
    (word(a, x), word(b, y))
}

/// What a shortage is of.
pub(super) fn key_of(brain: &Brain, quota: &NoQuota) -> Option<(FlavorId, ResourceId, i64)> {
    let (flavor, resource, asks) = match quota {
        NoQuota::Used(short) => {
            let Shortage { flavor, resource, asks, .. } = &**short;
            (flavor, resource, *asks)
        }
        NoQuota::ExceedsQuota { flavor, resource, asks, .. } => (flavor, resource, *asks),
        NoQuota::NotCovered { .. } | NoQuota::NoMatchingFlavor { .. } => return None,
    };
    let (flavor, _) = brain.flavor_list().find(|(id, _)| **brain.flavor_name(*id) == **flavor)?;
    Some((flavor, brain.resource_id(resource)?, asks))
}
