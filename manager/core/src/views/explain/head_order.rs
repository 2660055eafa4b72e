use crate::views::explain::case::Case;
use crate::world::World;
use meridian_queueing::cycle::{First, Winner};
use meridian_queueing::model::WorkloadId;
use serde_json::{Value, json};

/// A workload as people know it.
pub(crate) fn named(world: &World, id: WorkloadId) -> String {
    let workload = world.mirror.uid(id).and_then(|uid| world.state.workloads().get(&uid));
    workload.map_or_else(|| "another workload".to_owned(), |w| format!("`{}/{}`", w.namespace(), w.name()))
}

/// Whether its queue goes by what local queues used before.
pub(crate) fn by_usage(world: &World, id: WorkloadId) -> bool {
    let brain = world.mirror.brain();
    brain.workload(id).is_some_and(|of| brain.orders_by_usage(of.queue))
}

/// Who comes first where a queue goes by what its local queues used.
pub(crate) fn usage_message(world: &World, case: &Case<'_>, id: WorkloadId) -> Option<String> {
    let brain = world.mirror.brain();
    let of = brain.workload(id).filter(|of| brain.orders_by_usage(of.queue))?;
    let first = case.front().filter(|first| *first != id)?;
    let other = &brain.workload(first)?.local_queue;
    let [mine, theirs] = [&of.local_queue, other].map(|local| brain.local_usage_value(local));
    if mine <= theirs {
        return None;
    }
    let (local, whom) = (&of.local_queue, named(world, first));
    if mine.is_infinite() {
        return Some(format!("; local queue `{local}` has the weight 0, so {whom} of `{other}` comes first"));
    }
    let (mine, theirs) = amounts(mine, theirs);
    Some(format!(
        "; local queue `{local}` has used more ({mine}) than `{other}` ({theirs}), so {whom} comes first"
    ))
}

/// Who of another queue comes first for what comes free, and what puts it there.
pub(crate) fn head_order_message(world: &World, id: WorkloadId, winner: &Winner) -> Option<String> {
    let brain = world.mirror.brain();
    let of = brain.workload(id)?;
    let [theirs, mine] =
        [brain.workload(winner.workload)?.queue, of.queue].map(|queue| brain.queue(queue).setup.name.clone());
    let whom = named(world, winner.workload);
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

/// Its place in a local queue; with a word where it was reckoned.
pub(crate) fn place_of(queue: &str, (before, of): (usize, usize), about: bool) -> Value {
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
