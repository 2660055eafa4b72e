//! What keeps a workload that waits, as things are when somebody asks: the first obstacle, its place in its queue, who comes
//! before it and why, and what every cluster would say to it.
//!
//! Everything is asked of the functions that decide: the brain's order and contest, and the judgement of clusters.

use crate::dispatch::why_not;
use crate::facts::reason::Why;
use crate::views::explain::case::Case;
pub(crate) use crate::views::explain::case::Obstacle;
use crate::views::explain::step::{self, Alongside, Steps};
use crate::views::explain::{head_order, rivals, steps};
use crate::world::World;
use meridian_queueing::flavors::Mode;
use meridian_queueing::model::WorkloadId;
use meridian_queueing::pending::{COUNTED_MAX, HeadStays, below};
use serde_json::{Value, json};

/// What keeps a workload that its queue looks at.
pub(crate) fn obstacle<'a>(world: &World, case: &'a Case<'_>) -> &'a Obstacle {
    case.found.obstacle.get_or_init(|| find_obstacle(world, case))
}

fn find_obstacle(world: &World, case: &Case<'_>) -> Obstacle {
    if let Some((head, stays)) = case.id.and_then(|id| world.mirror.brain().waits_behind(id)) {
        return Obstacle::Behind(head, stays);
    }
    match (world.live.pending_reasons.before(case.workload.class()), &case.lacks) {
        // Nobody looked at it again for what others took since: that wakes nobody, and these are the numbers that count.
        (Some(Why::Quota(_)), Some(now)) => Obstacle::Before(now.clone()),
        // Who displaces others takes before it what is free already (simulation seed 1795574448503493).
        (Some(Why::Quota(_)), None) if case.has_room() && rivals::is_kept_from(world, case) => {
            Obstacle::Before(Why::Overtaken)
        }
        // Its quota is there, and no cluster has the room: what a flavor after that one lacks keeps nobody.
        (Some(Why::Quota(_)), None) if case.queue.is_some() => Obstacle::AtClusters,
        (Some(Why::Route(_) | Why::Inactive { .. }) | None, Some(Why::Quota(now))) if case.id.is_some() => {
            Obstacle::Before(Why::Quota(now.before_anybody_gives_way()))
        }
        (Some(Why::Route(_) | Why::Inactive { .. }) | None, _) => Obstacle::AtClusters,
        (Some(why), _) => Obstacle::Before(why.clone()),
    }
}

/// What keeps the head of a queue, in the numbers of now where that is quota.
fn what_keeps(world: &World, head: WorkloadId) -> Option<Why> {
    let ahead = world.mirror.uid(head).and_then(|uid| world.state.workloads().get(&uid))?;
    let why = world.live.pending_reasons.before(ahead.class())?;
    if !matches!(why, Why::Quota(_)) {
        return Some(why.clone());
    }
    let (sketch, entry) = world.mirror.brain().would_meet(head);
    (entry.assignment.mode() != Mode::Fit).then(|| why_not::why_not(&sketch, &entry))
}

/// Its place in its local queue, and in the cluster queue where others wait there too.
pub(crate) fn position(world: &World, case: &Case<'_>) -> Option<Value> {
    let workload = case.workload;
    if !workload.waits() {
        return None;
    }
    let class = world.queues.class(workload.class());
    let brain = world.mirror.brain();
    // Who isn't looked at as its queue admits nobody stands in it all the same.
    let known = || world.mirror.id(case.uid).and_then(|id| brain.standing(id));
    let Some(standing) = case.standing().or_else(known) else {
        // It isn't looked at: the place is the one among those of its local queue that it has when it is.
        let mine = steps::place(world, case);
        let mut classes = Alongside::new(world.queues.classes());
        let mut is_alike =
            |id| classes.at(id).is_some_and(|c| c.namespace == class.namespace && c.queue == class.queue);
        let alike = world.queues.waiting_by_class().filter(|(id, ..)| is_alike(*id));
        let (mut before, mut of, mut about, mut left) = (0, 0, false, COUNTED_MAX);
        for (_, _, waiting) in alike {
            let counted = below(waiting, &mine, &mut left);
            before += counted.about;
            about |= counted.about != counted.most;
            of += waiting.len();
        }
        return Some(head_order::place_of(&class.queue, (before, of), about));
    };
    let mut position =
        head_order::place_of(&class.queue, (standing.before_in_local, standing.of_local), standing.about);
    if standing.of > standing.of_local {
        let queue = case.queue.map(|queue| brain.queue(queue).setup.name.to_string());
        position["clusterQueue"] = json!({"name": queue, "place": standing.before + 1, "of": standing.of});
    }
    Some(position)
}

/// Why a workload isn't looked at: the head of its queue, why that stays, and what keeps it; and what would help.
pub(crate) fn behind(world: &World, case: &Case<'_>, head: WorkloadId, stays: HeadStays) -> Steps {
    let (brain, whom) = (world.mirror.brain(), head_order::named(world, head));
    let queue = brain.workload(head).map(|w| brain.queue(w.queue).setup.name.to_string()).unwrap_or_default();
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
    let ahead = world.mirror.uid(head).and_then(|uid| world.state.workloads().get(&uid));
    let its = what_keeps(world, head)
        .filter(|why| !matches!(why, Why::Preempts { .. }))
        .map(|why| format!(": {}", why.words()))
        .unwrap_or_default();
    let use_of = case.id.and_then(|id| head_order::usage_message(world, case, id)).unwrap_or_default();
    let waits_for_it = |said: &Result<(), Why>| match said {
        Ok(()) => true,
        Err(Why::Kept { for_whom, .. }) => format!("`{for_whom}`") == whom,
        Err(_) => false,
    };
    let clusters_would = case.verdicts.values().any(waits_for_it);
    let able = stays != HeadStays::Displaces && case.lacks.is_none() && clusters_would;
    // Without the head it is its turn, if nobody else stands before it.
    let before = case.standing().map_or(0, |standing| standing.before);
    let mut steps = Steps::one(format!("{stands}{its}{use_of}"), format!("the start or deletion of {whom}"));
    if able && before == 1 {
        steps.alone.push(format!("the deletion of {whom} alone would do"));
    }
    // Before the head it is the head, and nothing else keeps it.
    let by_priority = stays == HeadStays::Strict
        && case.has_room()
        && use_of.is_empty()
        && case.id.is_some_and(|id| !head_order::by_usage(world, id));
    if let Some(ahead) = ahead.filter(|_| able && by_priority) {
        steps
            .alone
            .push(format!("to submit it again with a priority above {} alone would do", ahead.priority()));
    }
    if before > 1 {
        steps.list[0].help += &step::more_before(before - 1);
    }
    if !able {
        steps.extend(steps::afterwards(world, case, !clusters_would));
    }
    steps
}
