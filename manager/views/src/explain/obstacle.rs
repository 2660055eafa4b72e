//! The first obstacle of a pending workload at this moment, and its queue position.
//!
//! Found by the functions that decide: the queue order and the verdicts of clusters.

use crate::asker::{self, AskedWorld};
use crate::explain::case::Case;
pub(crate) use crate::explain::case::Obstacle;
use crate::explain::step::{self, Alongside, Steps};
use crate::explain::words::{self, Wording};
use crate::explain::{head_order, rivals, steps};
use meridian_manager_core::dispatch::why_not;
use meridian_manager_core::facts::reason::Why;
use meridian_queueing::explain;
use meridian_queueing::flavors::Mode;
use meridian_queueing::model::WorkloadId;
use meridian_queueing::pending::{COUNTED_MAX, HeadBlocks, count_below};
use serde_json::{Value, json};

pub(crate) fn obstacle<'a>(world: &AskedWorld<'_>, case: &'a Case<'_>) -> &'a Obstacle {
    case.cache.obstacle.get_or_init(|| find_obstacle(world, case))
}

fn find_obstacle(world: &AskedWorld<'_>, case: &Case<'_>) -> Obstacle {
    if let Some((head, blocks)) = case.id.and_then(|id| world.mirror().queue_state().waits_behind(id)) {
        return Obstacle::Behind(head, blocks);
    }
    match (world.live().pending_reasons().before(case.workload.class()), &case.shortage) {
        // The workload isn't evaluated again when others take more quota, so report current numbers.
        (Some(Why::Quota(_)), Some(now)) => Obstacle::Before(now.clone()),
        // Free quota is reserved for a workload that is preempting others.
        (Some(Why::Quota(_)), None) if case.fits_somewhere() && rivals::is_kept_from(world, case) => {
            Obstacle::Before(Why::Overtaken)
        }
        // One flavor has quota, but no cluster has capacity. Don't report the quota shortage of a later
        // flavor.
        (Some(Why::Quota(_)), None) if case.queue.is_some() => Obstacle::AtClusters,
        (Some(Why::Route(_) | Why::Inactive { .. }) | None, Some(Why::Quota(now))) if case.id.is_some() => {
            Obstacle::Before(Why::Quota(words::without_preemption(now)))
        }
        (Some(Why::Route(_) | Why::Inactive { .. }) | None, _) => Obstacle::AtClusters,
        (Some(why), _) => Obstacle::Before(why.clone()),
    }
}

/// The pending reason of a queue's head, with current numbers for a quota shortage.
fn head_reason(world: &AskedWorld<'_>, head: WorkloadId) -> Option<Why> {
    let ahead = world.mirror().uid(head).and_then(|uid| world.state().workloads().get(&uid))?;
    let why = world.live().pending_reasons().before(ahead.class())?;
    if !matches!(why, Why::Quota(_)) {
        return Some(why.clone());
    }
    let (copy, entry) = explain::preview(world.mirror().queue_state(), head);
    (entry.assignment.mode() != Mode::Fit).then(|| why_not::why_not(&copy, &entry))
}

/// JSON of the position in the local queue, and in the cluster queue if other local queues have pending
/// workloads there.
pub(crate) fn position(world: &AskedWorld<'_>, case: &Case<'_>) -> Option<Value> {
    let workload = case.workload;
    if !workload.waits() {
        return None;
    }
    let class = world.queues().class(workload.class());
    let queues = world.mirror().queue_state();
    // Workloads keep their positions while their cluster queue is inactive.
    let known = || world.mirror().id(case.uid).and_then(|id| queues.position_counts(id));
    let Some(counts) = case.position_counts().or_else(known) else {
        // No cluster queue is known: count within the local queue.
        let mine = steps::position_of(case);
        let mut classes = Alongside::new(world.queues().classes());
        let mut in_same_queue =
            |id| classes.at(id).is_some_and(|c| c.namespace == class.namespace && c.queue == class.queue);
        let same_queue = world.queues().waiting_by_class().filter(|(id, ..)| in_same_queue(*id));
        let (mut before, mut of, mut about, mut left) = (0, 0, false, COUNTED_MAX);
        for (_, _, waiting) in same_queue {
            let counted = count_below(waiting, &mine, &mut left);
            before += counted.about;
            about |= counted.about != counted.most;
            of += waiting.len();
        }
        return Some(head_order::position_value(&class.queue, before, of, about));
    };
    let mut position =
        head_order::position_value(&class.queue, counts.before_in_local, counts.of_local, counts.about);
    if counts.of > counts.of_local {
        let queue = case.queue.map(|queue| queues.queue(queue).setup.name.to_string());
        position["clusterQueue"] = json!({"name": queue, "place": counts.before + 1, "of": counts.of});
    }
    Some(position)
}

/// States that `name`, the head of a cluster queue, blocks the workloads behind it.
pub(crate) fn blocked_message(queue: &str, name: &str, blocks: HeadBlocks) -> String {
    match blocks {
        HeadBlocks::Strict => {
            format!("cluster queue `{queue}` is StrictFIFO, and its head, {name}, can't start")
        }
        HeadBlocks::Starved => format!(
            "{name} at the head of cluster queue `{queue}` has waited too long, so nothing starts before it"
        ),
        HeadBlocks::Preempting => format!(
            "{name} at the head of cluster queue `{queue}` is preempting others, so nothing starts before it"
        ),
        HeadBlocks::Evaluating => format!("cluster queue `{queue}` evaluates {name} first"),
    }
}

/// Explains that the head of the cluster queue blocks the workload: why it blocks, why it is pending, and
/// the remedies.
pub(crate) fn behind(world: &AskedWorld<'_>, case: &Case<'_>, head: WorkloadId, blocks: HeadBlocks) -> Steps {
    let (queues, name) = (world.mirror().queue_state(), head_order::named(world, head));
    let queue =
        queues.workload(head).map(|w| queues.queue(w.queue).setup.name.to_string()).unwrap_or_default();
    let blocked = blocked_message(&queue, &name, blocks);
    let head_workload = world.mirror().uid(head).and_then(|uid| world.state().workloads().get(&uid));
    let head_reason = head_reason(world, head)
        .filter(|why| !matches!(why, Why::Preempts { .. }))
        .map(|why| format!(": {}", why.message(world.asker)))
        .unwrap_or_default();
    let usage = case.id.and_then(|id| head_order::usage_message(world, case, id)).unwrap_or_default();
    let fits_without_head = |verdict: &Result<(), Why>| match verdict {
        Ok(()) => true,
        Err(Why::CapacityReserved { reserved_for, .. }) => {
            reserved_for.is_some() && *reserved_for == head_workload.map(asker::job_key)
        }
        Err(_) => false,
    };
    let cluster_fits = case.verdicts.values().any(fits_without_head);
    let only_head_blocks = blocks != HeadBlocks::Preempting && case.shortage.is_none() && cluster_fits;
    let before = case.position_counts().map_or(0, |counts| counts.before);
    let mut steps = Steps::one(
        format!("{blocked}{head_reason}{usage}"),
        format!("wait until {name} starts, or delete it"),
    );
    // If only the head is ahead, this workload is next without it.
    if only_head_blocks && before == 1 {
        steps.alone.push(format!("delete {name} (enough by itself)"));
    }
    // A workload with a higher priority than the head would be the head, so nothing else blocks it.
    let by_priority = blocks == HeadBlocks::Strict
        && case.fits_somewhere()
        && usage.is_empty()
        && case.id.is_some_and(|id| !head_order::by_usage(world, id));
    if let Some(head) = head_workload.filter(|_| only_head_blocks && by_priority) {
        steps.alone.push(format!(
            "submit the job again with a priority above {} (enough by itself)",
            head.priority()
        ));
    }
    if before > 1 {
        steps.list[0].remedy += &step::more_before(before - 1);
    }
    if !only_head_blocks {
        steps.extend(steps::afterwards(world, case, !cluster_fits));
    }
    steps
}
