//! Elastic workloads: after a change of the pod count, existing pods stay in their domains.
//!
//! Scale-up places only the additional pods. Scale-down removes the last pods. The leader never moves.

use super::group::Roles;
use super::replacement::{merged, stale};
use crate::assignment::Assignment;
use crate::assignment::PodSetResult;
use crate::placement::{self, Query};
use crate::request::{Options, PodSetRequest};
use crate::topology::Topology;
use crate::usage::Taken;

/// Places a group that has a previous assignment for its workers, and returns whether it fits. `None` if the
/// group must be placed from scratch, because it has no previous assignment or a domain of that is gone.
pub(super) fn assign_group(
    topology: &Topology,
    requests: &[PodSetRequest],
    roles: Roles,
    options: Options<'_>,
    taken: &mut Taken<'_>,
    results: &mut [PodSetResult],
) -> Option<bool> {
    let Roles { workers, leader } = roles;
    let tree = topology.tree();
    let requested = &requests[workers];
    let previous = requested.previous.as_ref()?;
    let previous_leader = leader.and_then(|leader| requests[leader].previous.as_ref());
    if stale(tree, previous).is_some() || previous_leader.is_some_and(|led| stale(tree, led).is_some()) {
        return None;
    }
    if requested.count <= previous.pods() {
        let kept = previous.truncated(requested.count);
        let kept = if requested.count == previous.pods() { previous.clone() } else { kept };
        keep(requests, workers, kept, taken, results);
        if let (Some(leader), Some(led)) = (leader, previous_leader) {
            keep(requests, leader, led.clone(), taken, results);
        }
        return Some(true);
    }
    taken.add(previous, &requested.per_pod);
    if let (Some(leader), Some(led)) = (leader, previous_leader) {
        taken.add(led, &requests[leader].per_pod);
    }
    let scale_up =
        PodSetRequest { count: requested.count - previous.pods(), previous: None, ..requested.clone() };
    let new_leader = leader.filter(|_| previous_leader.is_none());
    let query = Query {
        workers: &scale_up,
        leader: new_leader.map(|leader| &requests[leader]),
        simulate_empty: options.simulate_empty,
        within: None,
    };
    match placement::find(topology, &query, taken) {
        Err(error) => {
            results[workers] = Some(Err(error));
            Some(false)
        }
        Ok(found) => {
            taken.add(&found.workers, &requested.per_pod);
            results[workers] = Some(Ok(merged(tree, &found.workers, previous)));
            if let (Some(leader), Some(assignment)) = (new_leader, found.leader) {
                keep(requests, leader, assignment, taken, results);
            } else if let (Some(leader), Some(led)) = (leader, previous_leader) {
                results[leader] = Some(Ok(led.clone()));
            }
            Some(true)
        }
    }
}

/// Sets the result of one pod set and counts its pods.
fn keep(
    requests: &[PodSetRequest],
    member: usize,
    assignment: Assignment,
    taken: &mut Taken<'_>,
    results: &mut [PodSetResult],
) {
    taken.add(&assignment, &requests[member].per_pod);
    results[member] = Some(Ok(assignment));
}
