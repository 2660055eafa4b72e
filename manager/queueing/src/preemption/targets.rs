//! Victims for an assignment.

use crate::capacity_model::CapacityModel;
use crate::flavors::topology;
use crate::model::{Assignment, Charge, Target, WorkloadId};
use crate::preemption::SearchRecord;
use crate::preemption::search::VictimSearch;
use crate::queue_state::QueueState;
use crate::quota::CellId;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Victims for an assignment.
#[derive(Debug, Default)]
pub(crate) struct Victims {
    /// Empty if there are none.
    pub(crate) targets: Vec<Target>,
    /// Victims would free quota, but no cluster capacity.
    pub(crate) short_of_capacity: bool,
}

/// Searches victims for an assignment. `known` are the results of earlier searches in the same state.
pub(crate) fn find_targets(
    state: &mut QueueState,
    capacity: &mut dyn CapacityModel,
    known: &[SearchRecord],
    workload: WorkloadId,
    assignment: &Assignment,
) -> Victims {
    let of = state.get(&workload);
    if of.progress.preempted_in_vain {
        return Victims { targets: Vec::new(), short_of_capacity: true };
    }
    let queue = state.queue(of.queue);
    let Some((node, tree)) = queue.node.zip(queue.tree) else { return Victims::default() };
    let contested: Vec<CellId> =
        assignment.contested().into_iter().filter_map(|key| state.forest().find_cell(tree, key)).collect();
    let charge = state.charge_of_request(workload, assignment);
    let topology = topology::topology_requests(state, workload, assignment);
    // If some cluster has capacity for the workload now, only quota is missing.
    let asks_capacity = !capacity.fits_now(state, workload);
    let mut short_of_capacity = false;
    let mut search = |state: &mut QueueState,
                      capacity: &mut dyn CapacityModel,
                      run: &dyn Fn(&mut VictimSearch<'_>) -> Option<Vec<Target>>| {
        let mut search =
            VictimSearch::new(state, capacity, workload, node, charge.clone(), contested.clone());
        (search.topology, search.asks_capacity) = (topology.clone(), asks_capacity);
        let found = run(&mut search);
        short_of_capacity |= search.short_of_capacity;
        found
    };
    let stopping = search(state, capacity, &|search| search.stopping_victims());
    if let Some(targets) = stopping {
        return Victims { targets, short_of_capacity };
    }
    let known = known_result(known, workload, &charge, &contested)
        .filter(|found| found.is_empty() || (!asks_capacity && topology.is_none()));
    // If only capacity is missing, victims elsewhere don't help.
    let only_capacity =
        asks_capacity && charge.iter().all(|(cell, amount)| *amount <= state.forest().available(node, *cell));
    let whole = if only_capacity {
        Vec::new()
    } else {
        known.or_else(|| search(state, capacity, &|search| Some(search.run()))).unwrap_or_default()
    };
    if whole.len() == 1 || !asks_capacity {
        return Victims { targets: whole, short_of_capacity };
    }
    // Freed capacity helps only if it is in one cluster. Of all results, take the one with the fewest victims
    // in the fewest clusters.
    let mut found: Vec<Vec<Target>> = vec![whole];
    for cluster in capacity.clusters(state, workload) {
        found.extend(search(state, capacity, &|search| {
            search.within = Some(cluster);
            Some(search.run())
        }));
    }
    let cluster_count = |victims: &[Target]| {
        victims.iter().map(|v| capacity.cluster_of(v.workload)).collect::<BTreeSet<_>>().len()
    };
    let targets = found
        .into_iter()
        .filter(|victims| !victims.is_empty())
        .min_by_key(|victims| (victims.len(), cluster_count(victims)))
        .unwrap_or_default();
    Victims { targets, short_of_capacity }
}

/// The result of an earlier search for this workload in the same state, if it applies here too: the earlier
/// charge was equal, or no victims were found even for a smaller amount of the only contested cell. Cluster
/// capacity is ignored.
fn known_result(
    known: &[SearchRecord],
    workload: WorkloadId,
    charge: &Charge,
    contested: &[CellId],
) -> Option<Vec<Target>> {
    let &[cell] = contested else { return None };
    let asks = charge.iter().find(|(of, _)| *of == cell).map(|(_, amount)| *amount)?;
    let applies = |before: &&SearchRecord| {
        let same_charge = charge.len() == 1 && asks == before.amount;
        before.workload == workload
            && before.cell == cell
            && (same_charge || (before.victims.is_empty() && asks >= before.amount))
    };
    known.iter().find(applies).map(|before| before.victims.clone())
}

impl VictimSearch<'_> {
    /// The stopping victims of the workload, if they still suffice. Until they have stopped, no others are
    /// searched.
    pub(super) fn stopping_victims(&mut self) -> Option<Vec<Target>> {
        let first =
            self.state.settings().gates.prioritize_preemptors && self.state.is_preemptor(self.workload);
        let pending =
            self.state.get(&self.workload).progress.pending_preemption.as_ref().filter(|_| first)?;
        let is_stopping = |(target, uid): &&(Target, Arc<str>)| {
            let of = self.state.workload(target.workload).filter(|of| of.uid == *uid && of.evicted());
            of.is_some() && !self.state.excluded().contains(target.workload)
        };
        let victims: Vec<Target> =
            pending.victims.iter().filter(is_stopping).map(|(target, _)| *target).collect();
        victims.iter().for_each(|victim| self.remove_target(victim.workload));
        let enough = !victims.is_empty() && self.fits(true, &victims);
        self.restore_targets(&victims);
        enough.then_some(victims)
    }

    /// The victims that make the assignment possible. Empty if there are none.
    pub(super) fn run(&mut self) -> Vec<Target> {
        if self.state.settings().fair_sharing.is_some() { self.fair() } else { self.classical() }
    }
}

/// Searches the victims for an assignment.
pub fn victims(
    state: &mut QueueState,
    capacity: &mut dyn CapacityModel,
    workload: WorkloadId,
    assignment: &Assignment,
) -> Vec<Target> {
    find_targets(state, capacity, &[], workload, assignment).targets
}
