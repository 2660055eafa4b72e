//! Assignment of flavors, group by group of pod sets.

use crate::amount::Amount;
use crate::flavors::attempts::Attempts;
use crate::flavors::{PreemptionOracle, attempts};
use crate::model::{
    Assignment, FlavorAssignment, FlavorScan, Mode, PodSet, PodSetAssignment, QueueId, QueueSetup, Reason,
    RequestTotal, Requests, Shape, Usage, WorkloadId, amount_of, request_totals,
};
use crate::names::{FlavorId, ResourceId};
use crate::queue_state::QueueState;

/// Assigns flavors to one workload.
pub(crate) struct FlavorAssigner<'a> {
    pub(super) state: &'a mut QueueState,
    pub(super) workload: WorkloadId,
    pub(super) queue: QueueId,
    pub(super) oracle: &'a mut dyn PreemptionOracle,
    /// The slice to replace.
    pub(super) replaces: Option<WorkloadId>,
    /// Flavors nominated earlier in this cycle, per pod set.
    pub(super) nominated: Option<&'a [Vec<(ResourceId, FlavorId)>]>,
}

/// A group of pod sets that gets common flavors.
#[derive(Clone, Copy)]
pub(super) struct GroupRequest<'r> {
    pub(super) setup: &'r QueueSetup,
    pub(super) shape: &'r Shape,
    /// Indexes of the pod sets.
    pub(super) group: &'r [usize],
    /// Requests of all pod sets of the group.
    pub(super) requests: &'r Requests,
    /// Usage of the previous groups.
    pub(super) usage: &'r Usage,
}

/// Assigns flavors in a queue by the current state. `oracle` simulates preemption.
pub fn assign_flavors(
    state: &mut QueueState,
    workload: WorkloadId,
    queue: QueueId,
    oracle: &mut dyn PreemptionOracle,
    replaces: Option<WorkloadId>,
) -> Assignment {
    FlavorAssigner::new(state, workload, queue, oracle, replaces).assign(None)
}

impl<'a> FlavorAssigner<'a> {
    pub(crate) fn new(
        state: &'a mut QueueState,
        workload: WorkloadId,
        queue: QueueId,
        oracle: &'a mut dyn PreemptionOracle,
        replaces: Option<WorkloadId>,
    ) -> Self {
        Self { state, workload, queue, oracle, replaces, nominated: None }
    }

    /// Only allows flavors nominated earlier in this cycle, per pod set.
    pub(crate) fn nominated(mut self, nominated: Option<&'a [Vec<(ResourceId, FlavorId)>]>) -> Self {
        self.nominated = nominated;
        self
    }
}

impl FlavorAssigner<'_> {
    /// Assigns flavors to all pod sets, with `counts` pods if given.
    pub(crate) fn assign(&mut self, counts: Option<&[u32]>) -> Assignment {
        let queue = self.state.queue(self.queue);
        let setup = queue.setup.clone();
        let workload = self.state.get(&self.workload);
        let shape = self.state.shape_of(workload.shape).clone();
        let mut totals = request_totals(&shape, workload);
        if let Some(counts) = counts {
            totals = totals.iter().zip(counts).map(|(t, c)| t.scaled(*c)).collect();
        }
        let scan = FlavorScan::new(queue.generation, queue.cycles(), workload.shape);
        let mut assignment = Assignment::new(scan, self.replaces);
        let catalog = self.state.catalog();
        if let Some(pods) = catalog.pods_resource().filter(|pods| setup.group_of(*pods).is_some()) {
            for total in &mut totals {
                catalog.put(&mut total.requests, pods, i64::from(total.count));
            }
        }
        let groups = shape.groups();
        for group in &groups {
            let failed = self.assign_group(&setup, &shape, &totals, group, &mut assignment);
            if failed {
                break;
            }
        }
        restore_order(groups, &mut assignment);
        let complete = assignment.pod_sets.len() == shape.pod_sets.len();
        if complete && assignment.mode() != Mode::NoFit && self.state.settings().gates.topology {
            self.place(&mut assignment);
        }
        assignment.obstacle = attempts::obstacle(&assignment, &setup);
        assignment.barrier = attempts::barrier(&assignment);
        assignment
    }

    /// Assigns flavors to one group. True if no flavor fits.
    fn assign_group(
        &mut self,
        setup: &QueueSetup,
        shape: &Shape,
        totals: &[RequestTotal],
        group: &[usize],
        assignment: &mut Assignment,
    ) -> bool {
        let mut requests = totals[group[0]].requests.clone();
        for at in &group[1..] {
            for (resource, amount) in &totals[*at].requests {
                let sum = amount_of(&requests, *resource).saturating_add(*amount);
                self.state.catalog().put(&mut requests, *resource, sum);
            }
        }
        let mut attempts = Attempts::default();
        let mut chosen: Vec<(ResourceId, FlavorAssignment)> = Vec::new();
        for at in group {
            for (resource, flavor) in &totals[*at].flavors {
                if !chosen.iter().any(|(r, _)| r == resource) {
                    let choice =
                        FlavorAssignment { flavor: *flavor, mode: Mode::Fit, tried: 0, borrowing: 0 };
                    chosen.push((*resource, choice));
                }
            }
        }
        let request = GroupRequest { setup, shape, group, requests: &requests, usage: &assignment.usage };
        let reasons = self.choose(request, &mut attempts, &mut chosen);
        let infeasible = reasons.is_err();
        let reasons = reasons.unwrap_or_else(|reasons| reasons);
        let attempts = attempts.finish(self.state);
        let mut failed = false;
        for at in group {
            let total = &totals[*at];
            let flavors = self.flavors_of_pod_set(&shape.pod_sets[*at], total, &chosen);
            let is_covered = |(r, a): &(ResourceId, i64)| *a != 0 && setup.group_of(*r).is_some();
            failed |= !total.requests.is_empty()
                && flavors.is_empty()
                && (infeasible || total.requests.iter().any(is_covered));
            let set = PodSetAssignment {
                flavors,
                reasons: reasons.clone(),
                requests: total.requests.clone(),
                count: total.count,
                placement: total.placement.clone(),
                delayed: total.delayed,
                infeasible,
                attempts: attempts.clone(),
            };
            self.append(assignment, *at, set);
        }
        failed
    }

    /// Completes the flavors of a group and returns why they don't fit now. Fails and leaves no flavors if a
    /// resource gets none.
    fn choose(
        &mut self,
        request: GroupRequest<'_>,
        attempts: &mut Attempts,
        chosen: &mut Vec<(ResourceId, FlavorAssignment)>,
    ) -> Result<Vec<Reason>, Vec<Reason>> {
        let mut reasons = Vec::new();
        for (resource, amount) in self.state.catalog().in_evaluation_order(request.requests) {
            let is_chosen = chosen.iter().any(|(r, _)| *r == resource);
            let Some(resource_group) = request.setup.group_of(resource) else {
                if amount == 0 || self.state.settings().ignores_undeclared() || is_chosen {
                    continue;
                }
                chosen.clear();
                return Err(vec![Reason::ResourceNotCovered { resource }]);
            };
            if is_chosen {
                continue;
            }
            let before = attempts.begin();
            let found = self.find(request, resource_group, resource, attempts);
            attempts.merge(before, resource_group);
            if found.flavors.is_empty() {
                chosen.clear();
                return Err(found.reasons);
            }
            // If groups overlap, the later one decides.
            chosen.retain(|(resource, _)| !found.flavors.iter().any(|(other, _)| other == resource));
            chosen.extend(found.flavors);
            reasons.push((resource_group.first_among(request.requests), found.reasons));
        }
        // Report in the order of names, not of the search.
        reasons.sort_by_key(|(first, _)| *first);
        Ok(reasons.into_iter().flat_map(|(_, reasons)| reasons).collect())
    }

    /// The flavors of one pod set, out of those of its group.
    fn flavors_of_pod_set(
        &self,
        set: &PodSet,
        total: &RequestTotal,
        chosen: &[(ResourceId, FlavorAssignment)],
    ) -> Vec<(ResourceId, FlavorAssignment)> {
        if !total.requests.is_empty() {
            return total
                .requests
                .iter()
                .filter_map(|(r, _)| chosen.iter().find(|(of, _)| of == r).copied())
                .collect();
        }
        if set.group.is_none() {
            return Vec::new();
        }
        // A leader without requests still needs a flavor with a topology, because it is placed with its
        // group.
        chosen.iter().filter(|(_, c)| self.state.has_topology(c.flavor)).copied().collect()
    }

    fn append(&mut self, assignment: &mut Assignment, at: usize, set: PodSetAssignment) {
        let mut tried = Vec::with_capacity(set.flavors.len());
        for (resource, choice) in &set.flavors {
            assignment.borrowing = assignment.borrowing.max(choice.borrowing);
            let mut amount = amount_of(&set.requests, *resource);
            if let Some(old) = self.replaced(at) {
                amount -= amount_of(&old.requests, *resource);
            }
            let key = (choice.flavor, *resource);
            match assignment.usage.iter_mut().find(|(k, _)| *k == key) {
                Some((_, sum)) => *sum = *sum + Amount(amount),
                None => assignment.usage.push((key, Amount(amount))),
            }
            tried.push((*resource, choice.tried));
        }
        assignment.scan.tried.push(tried);
        assignment.pod_sets.push(set);
    }

    /// Requests of the replaced slice for a pod set.
    fn replaced(&self, at: usize) -> Option<RequestTotal> {
        let old = self.state.workload(self.replaces?)?;
        let shape = self.state.shape_of(old.shape);
        request_totals(shape, old).into_iter().nth(at)
    }
}

/// Restores the order of the pod sets, because groups may interleave.
fn restore_order(groups: Vec<Vec<usize>>, assignment: &mut Assignment) {
    let order: Vec<usize> = groups.into_iter().flatten().collect();
    if order.is_sorted() {
        return;
    }
    let mut sets: Vec<(usize, PodSetAssignment)> =
        order.iter().copied().zip(std::mem::take(&mut assignment.pod_sets)).collect();
    sets.sort_by_key(|(at, _)| *at);
    assignment.pod_sets = sets.into_iter().map(|(_, set)| set).collect();
    assignment.scan.reorder(&order);
}
