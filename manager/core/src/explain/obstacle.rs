//! What keeps a workload that waits, as things are when somebody asks: the first obstacle, its place in its queue, who comes
//! before it and why, and what every cluster would say to it.
//!
//! Everything is asked of the functions that decide: the brain's order and contest, and the judgement of clusters.

use super::Why;
use super::case::Case;
use super::rivals::Alongside;
use super::steps::Steps;
use crate::World;
use crate::dispatch::why_not;
use meridian_queueing::cycle::{First, Winner};
use meridian_queueing::flavors::Mode;
use meridian_queueing::model::WorkloadId;
use meridian_queueing::pending::{COUNTED_MAX, HeadStays, below};
use serde_json::{Value, json};

/// The first obstacle.
pub(super) enum Obstacle {
    /// Before any cluster is looked at.
    Before(Why),
    /// Its queue's head, which doesn't go away.
    Behind(WorkloadId, HeadStays),
    /// No cluster can start it, or none has been asked yet.
    AtClusters,
}

impl World {
    /// What keeps a workload that its queue looks at.
    pub(super) fn obstacle<'a>(&self, case: &'a Case<'_>) -> &'a Obstacle {
        case.found.obstacle.get_or_init(|| self.find_obstacle(case))
    }

    fn find_obstacle(&self, case: &Case<'_>) -> Obstacle {
        if let Some((head, stays)) = case.id.and_then(|id| self.deciding.brain().waits_behind(id)) {
            return Obstacle::Behind(head, stays);
        }
        match (self.live.hindrances.before(case.workload.class), &case.lacks) {
            // Nobody looked at it again for what others took since: that wakes nobody, and these are the numbers that count.
            (Some(Why::Quota(_)), Some(now)) => Obstacle::Before(now.clone()),
            // Who displaces others takes before it what is free already (simulation seed 1795574448503493).
            (Some(Why::Quota(_)), None) if case.has_room() && self.is_kept_from(case) => {
                Obstacle::Before(Why::Overtaken)
            }
            // Its quota is there, and no cluster has the room: what a flavor after that one lacks keeps nobody.
            (Some(Why::Quota(_)), None) if case.queue.is_some() => Obstacle::AtClusters,
            (Some(Why::Route(_) | Why::Inactive { .. }) | None, Some(Why::Quota(now)))
                if case.id.is_some() =>
            {
                Obstacle::Before(Why::Quota(now.before_anybody_gives_way()))
            }
            (Some(Why::Route(_) | Why::Inactive { .. }) | None, _) => Obstacle::AtClusters,
            (Some(why), _) => Obstacle::Before(why.clone()),
        }
    }

    /// What keeps the head of a queue, in the numbers of now where that is quota.
    fn what_keeps(&self, head: WorkloadId) -> Option<Why> {
        let ahead = self.deciding.uid(head).and_then(|uid| self.state.workloads.get(&uid))?;
        let why = self.live.hindrances.before(ahead.class)?;
        if !matches!(why, Why::Quota(_)) {
            return Some(why.clone());
        }
        let (sketch, entry) = self.deciding.brain().would_meet(head);
        (entry.assignment.mode() != Mode::Fit).then(|| why_not(&sketch, &entry))
    }

    /// Its place in its local queue, and in the cluster queue where others wait there too.
    pub(super) fn position(&self, case: &Case<'_>) -> Option<Value> {
        let workload = case.workload;
        if !workload.waits() {
            return None;
        }
        let class = self.queues.class(workload.class);
        let brain = self.deciding.brain();
        // Who isn't looked at as its queue admits nobody stands in it all the same.
        let known = || self.deciding.id(case.uid).and_then(|id| brain.standing(id));
        let Some(standing) = case.standing().or_else(known) else {
            // It isn't looked at: the place is the one among those of its local queue that it has when it is.
            let mine = self.place(case);
            let mut classes = Alongside::new(self.queues.classes());
            let mut is_alike =
                |id| classes.at(id).is_some_and(|c| c.namespace == class.namespace && c.queue == class.queue);
            let alike = self.queues.waiting_by_class().filter(|(id, ..)| is_alike(*id));
            let (mut before, mut of, mut about, mut left) = (0, 0, false, COUNTED_MAX);
            for (_, _, waiting) in alike {
                let counted = below(waiting, &mine, &mut left);
                before += counted.about;
                about |= counted.about != counted.most;
                of += waiting.len();
            }
            return Some(place_of(&class.queue, (before, of), about));
        };
        let mut position =
            place_of(&class.queue, (standing.before_in_local, standing.of_local), standing.about);
        if standing.of > standing.of_local {
            let queue = case.queue.map(|queue| brain.queue(queue).setup.name.to_string());
            position["clusterQueue"] =
                json!({"name": queue, "place": standing.before + 1, "of": standing.of});
        }
        Some(position)
    }

    /// A workload as people know it.
    pub(super) fn named(&self, id: WorkloadId) -> String {
        let workload = self.deciding.uid(id).and_then(|uid| self.state.workloads.get(&uid));
        workload.map_or_else(|| "another workload".to_owned(), |w| format!("`{}/{}`", w.namespace, w.name))
    }

    /// Why a workload isn't looked at: the head of its queue, why that stays, and what keeps it; and what would help.
    pub(super) fn behind(&self, case: &Case<'_>, head: WorkloadId, stays: HeadStays) -> Steps {
        let (brain, whom) = (self.deciding.brain(), self.named(head));
        let queue =
            brain.workload(head).map(|w| brain.queue(w.queue).setup.name.to_string()).unwrap_or_default();
        let stands = match stays {
            HeadStays::Strict => {
                format!("cluster queue `{queue}` keeps strict order, and its head {whom} can't start")
            }
            HeadStays::Starves => format!(
                "{whom} at the head of cluster queue `{queue}` has waited so long that nobody passes it by"
            ),
            HeadStays::Displaces => format!(
                "others are stopping for {whom} at the head of cluster queue `{queue}`, and nobody passes it by"
            ),
            HeadStays::Looked => format!("cluster queue `{queue}` looks at {whom} first"),
        };
        let ahead = self.deciding.uid(head).and_then(|uid| self.state.workloads.get(&uid));
        let its = self
            .what_keeps(head)
            .filter(|why| !matches!(why, Why::Preempts { .. }))
            .map(|why| format!(": {}", why.words()))
            .unwrap_or_default();
        let use_of = case.id.and_then(|id| self.use_in_words(case, id)).unwrap_or_default();
        let waits_for_it = |said: &Result<(), Why>| match said {
            Ok(()) => true,
            Err(Why::Kept { for_whom, .. }) => format!("`{for_whom}`") == whom,
            Err(_) => false,
        };
        let clusters_would = case.verdicts.values().any(waits_for_it);
        let able = stays != HeadStays::Displaces && case.lacks.is_none() && clusters_would;
        // Without the head it is its turn, if nobody else stands before it.
        let before = case.standing().map_or(0, |standing| standing.before);
        let mut steps =
            Steps::one(format!("{stands}{its}{use_of}"), format!("the start or deletion of {whom}"));
        if able && before == 1 {
            steps.alone.push(format!("the deletion of {whom} alone would do"));
        }
        // Before the head it is the head, and nothing else keeps it.
        let by_priority = stays == HeadStays::Strict
            && case.has_room()
            && use_of.is_empty()
            && case.id.is_some_and(|id| !self.by_usage(id));
        if let Some(ahead) = ahead.filter(|_| able && by_priority) {
            steps
                .alone
                .push(format!("to submit it again with a priority above {} alone would do", ahead.priority));
        }
        if before > 1 {
            steps.list[0].help += &super::steps::more_before(before - 1);
        }
        if !able {
            steps.extend(self.afterwards(case, !clusters_would));
        }
        steps
    }

    /// Whether its queue goes by what local queues used before.
    pub(super) fn by_usage(&self, id: WorkloadId) -> bool {
        let brain = self.deciding.brain();
        brain.workload(id).is_some_and(|of| brain.orders_by_usage(of.queue))
    }

    /// Who comes first where a queue goes by what its local queues used.
    pub(super) fn use_in_words(&self, case: &Case<'_>, id: WorkloadId) -> Option<String> {
        let brain = self.deciding.brain();
        let of = brain.workload(id).filter(|of| brain.orders_by_usage(of.queue))?;
        let first = case.front().filter(|first| *first != id)?;
        let other = &brain.workload(first)?.local_queue;
        let [mine, theirs] = [&of.local_queue, other].map(|local| brain.local_usage_value(local));
        if mine <= theirs {
            return None;
        }
        let (local, whom) = (&of.local_queue, self.named(first));
        if mine.is_infinite() {
            return Some(format!(
                "; local queue `{local}` has the weight 0, so {whom} of `{other}` comes first"
            ));
        }
        let (mine, theirs) = amounts(mine, theirs);
        Some(format!(
            "; local queue `{local}` has used more ({mine}) than `{other}` ({theirs}), so {whom} comes first"
        ))
    }

    /// Who of another queue comes first for what comes free, and what puts it there.
    pub(super) fn contest_in_words(&self, id: WorkloadId, winner: &Winner) -> Option<String> {
        let brain = self.deciding.brain();
        let of = brain.workload(id)?;
        let [theirs, mine] = [brain.workload(winner.workload)?.queue, of.queue]
            .map(|queue| brain.queue(queue).setup.name.clone());
        let whom = self.named(winner.workload);
        let by = match winner.by {
            First::Share(its, own) => {
                let (own, its) = shares(own.weighted(), its.weighted());
                format!(
                    "with it the share on the side of `{theirs}` is {its}, with this one that of `{mine}` is {own}"
                )
            }
            First::BorrowsLess => format!("`{mine}` would borrow more"),
            First::Displaces | First::Holds => "others are stopping for it".to_owned(),
            First::Priority => "its priority is higher".to_owned(),
            First::Age => "it is older".to_owned(),
        };
        Some(format!("; {whom} of cluster queue `{theirs}` comes first for what comes free: {by}"))
    }
}

/// Its place in a local queue; with a word where it was reckoned.
fn place_of(queue: &str, (before, of): (usize, usize), about: bool) -> Value {
    let mut place = json!({"queue": queue, "place": before + 1, "of": of});
    if about {
        place["about"] = json!(true);
    }
    place
}

/// Two amounts with as many digits as tell them apart.
fn amounts(a: f64, b: f64) -> (String, String) {
    let short = (format!("{a:.2}"), format!("{b:.2}"));
    if short.0 == short.1 { (format!("{a:.9}"), format!("{b:.9}")) } else { short }
}

/// Two shares of what could be lent, which come in thousandths.
fn shares(a: f64, b: f64) -> (String, String) {
    let word = |share: f64, text: String| {
        if share.is_infinite() { "without limit, as its weight is 0".to_owned() } else { text }
    };
    let (x, y) = amounts(a / 1_000.0, b / 1_000.0);
    (word(a, x), word(b, y))
}
