//! Growing and shrinking: a workload whose pod count changed keeps its pods where they are.
//!
//! Growing places only the pods that are new; shrinking takes the last ones away. The leader stays where it is.

use crate::assignment::Assignment;
use crate::place::{self, Question};
use crate::replace::{merged, stale};
use crate::request::{Options, PodSetRequest};
use crate::snapshot::{Outcome, Topology};
use crate::usage::Taken;

/// Answers a group whose workers ran before; whether it has a place. `None` if it must be placed anew: there was nothing
/// before, or some of its domains are gone.
pub(crate) fn group(
    topology: &Topology,
    requests: &[PodSetRequest],
    (workers, leader): (usize, Option<usize>),
    options: Options<'_>,
    taken: &mut Taken<'_>,
    outcomes: &mut [Outcome],
) -> Option<bool> {
    let tree = topology.tree();
    let asked = &requests[workers];
    let previous = asked.previous.as_ref()?;
    let led_before = leader.and_then(|leader| requests[leader].previous.as_ref());
    if stale(tree, previous).is_some() || led_before.is_some_and(|led| stale(tree, led).is_some()) {
        return None;
    }
    if asked.count <= previous.pods() {
        let kept = previous.truncated(asked.count);
        let kept = if asked.count == previous.pods() { previous.clone() } else { kept };
        keep(requests, workers, kept, taken, outcomes);
        if let (Some(leader), Some(led)) = (leader, led_before) {
            keep(requests, leader, led.clone(), taken, outcomes);
        }
        return Some(true);
    }
    taken.add(previous, &asked.per_pod);
    if let (Some(leader), Some(led)) = (leader, led_before) {
        taken.add(led, &requests[leader].per_pod);
    }
    let growth = PodSetRequest { count: asked.count - previous.pods(), previous: None, ..asked.clone() };
    let new_leader = leader.filter(|_| led_before.is_none());
    let question = Question {
        workers: &growth,
        leader: new_leader.map(|leader| &requests[leader]),
        simulate_empty: options.simulate_empty,
        within: None,
    };
    match place::find(topology, &question, taken) {
        Err(misfit) => {
            outcomes[workers] = Some(Err(misfit));
            Some(false)
        }
        Ok(found) => {
            taken.add(&found.workers, &asked.per_pod);
            outcomes[workers] = Some(Ok(merged(tree, &found.workers, previous)));
            if let (Some(leader), Some(assignment)) = (new_leader, found.leader) {
                keep(requests, leader, assignment, taken, outcomes);
            } else if let (Some(leader), Some(led)) = (leader, led_before) {
                outcomes[leader] = Some(Ok(led.clone()));
            }
            Some(true)
        }
    }
}

/// Answers and counts one pod set.
fn keep(
    requests: &[PodSetRequest],
    member: usize,
    assignment: Assignment,
    taken: &mut Taken<'_>,
    outcomes: &mut [Outcome],
) {
    taken.add(&assignment, &requests[member].per_pod);
    outcomes[member] = Some(Ok(assignment));
}
