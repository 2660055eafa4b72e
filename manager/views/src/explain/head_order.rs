//! Explains which workload comes first, and by which rule.

use crate::asker::AskedWorld;
use crate::explain::case::Case;
use meridian_queueing::cycle::Precedence;
use meridian_queueing::explain::FirstEntry;
use meridian_queueing::model::WorkloadId;
use serde_json::{Value, json};

/// A workload by namespace and name.
pub(crate) fn named(world: &AskedWorld<'_>, id: WorkloadId) -> String {
    let workload = world.mirror().uid(id).and_then(|uid| world.state().workloads().get(&uid));
    workload.map_or_else(|| "another workload".to_owned(), |workload| world.asker.workload(workload))
}

/// Whether its cluster queue orders by the usage history of local queues.
pub(crate) fn by_usage(world: &AskedWorld<'_>, id: WorkloadId) -> bool {
    let queues = world.mirror().queue_state();
    queues.workload(id).is_some_and(|of| queues.orders_by_usage(of.queue))
}

/// Which workload comes first in a cluster queue that orders by usage history, if it isn't this one.
pub(crate) fn usage_message(world: &AskedWorld<'_>, case: &Case<'_>, id: WorkloadId) -> Option<String> {
    let queues = world.mirror().queue_state();
    let of = queues.workload(id).filter(|of| queues.orders_by_usage(of.queue))?;
    let first = case.front().filter(|first| *first != id)?;
    let other = &queues.workload(first)?.local_queue;
    let [mine, theirs] = [&of.local_queue, other].map(|local| queues.weighted_usage(local));
    if mine <= theirs {
        return None;
    }
    let of_other = world.mirror().uid(first).and_then(|uid| world.state().workloads().get(&uid))?;
    let other = world.asker.local_queue(other, of_other);
    let (local, first) = (&of.local_queue, named(world, first));
    if mine.is_infinite() {
        return Some(format!(
            "; local queue `{local}` has weight 0, so {first} of {} comes first",
            if other.starts_with('`') { format!("local queue {other}") } else { other }
        ));
    }
    let (mine, theirs) = amounts(mine, theirs);
    Some(format!(
        "; local queue `{local}` has used more ({mine}) than {other} ({theirs}), so {first} comes first"
    ))
}

/// Which workload of another cluster queue comes first when quota is freed, and by which rule.
pub(crate) fn head_order_message(
    world: &AskedWorld<'_>,
    id: WorkloadId,
    winner: &FirstEntry,
) -> Option<String> {
    let queues = world.mirror().queue_state();
    let of = queues.workload(id)?;
    let [theirs, mine] = [queues.workload(winner.workload)?.queue, of.queue]
        .map(|queue| queues.queue(queue).setup.name.clone());
    let first = named(world, winner.workload);
    let by = match winner.by {
        Precedence::Share(its, own) => {
            let (own, its) = shares(own.weighted(), its.weighted());
            format!(
                "if it starts, the share on the side of `{theirs}` is {its}; \
                 if this workload starts, the share on the side of `{mine}` is {own}"
            )
        }
        Precedence::BorrowsLess => format!("cluster queue `{mine}` would borrow more"),
        Precedence::Preempting | Precedence::Holds => "workloads are being preempted for it".to_owned(),
        Precedence::Priority => "its priority is higher".to_owned(),
        Precedence::Age => "it is older".to_owned(),
    };
    Some(format!("; {first} of cluster queue `{theirs}` comes first: {by}"))
}

/// The JSON of a queue position. `about`: the position is estimated, because counting would take too long.
pub(crate) fn position_value(queue: &str, before: usize, of: usize, about: bool) -> Value {
    let mut place = json!({"queue": queue, "place": before + 1, "of": of});
    if about {
        place["about"] = json!(true);
    }
    place
}

/// Two amounts with enough digits to tell them apart.
fn amounts(a: f64, b: f64) -> (String, String) {
    let short = (format!("{a:.2}"), format!("{b:.2}"));
    if short.0 == short.1 { (format!("{a:.9}"), format!("{b:.9}")) } else { short }
}

/// Two fair shares, given in thousandths of what the cohort could lend.
fn shares(a: f64, b: f64) -> (String, String) {
    let text_of = |share: f64, text: String| {
        if share.is_infinite() { "unlimited because its weight is 0".to_owned() } else { text }
    };
    let (x, y) = amounts(a / 1_000.0, b / 1_000.0);
    (text_of(a, x), text_of(b, y))
}
