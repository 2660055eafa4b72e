//! Topology assignments for pod sets.
//!
//! The topology crate searches the domains. This module decides which pod sets are placed in which flavor,
//! and what the result means for the assignment.

use crate::flavors::FlavorAssigner;
use crate::model::{
    Assignment, Delayed, Mode, Obstacle, PodSet, QueueId, Reason, Target, Update, Workload, WorkloadId,
};
use crate::names::FlavorId;
use crate::queue_state::QueueState;
use meridian_topology::{
    Assignment as TopologyAssignment, Assumed, Constraint, LostNodes, Options, PodSetRequest,
};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Pod sets to place, with their index in the workload.
type PlacedSets = Vec<(usize, PodSetRequest)>;

/// Pod sets to place, by flavor name.
#[derive(Clone, Debug, Default)]
pub(crate) struct TopologyRequests {
    by_flavor: BTreeMap<Arc<str>, (FlavorId, PlacedSets)>,
}

impl TopologyRequests {
    fn pod_sets(&self) -> impl Iterator<Item = usize> + '_ {
        self.by_flavor.values().flat_map(|(_, sets)| sets.iter().map(|(at, _)| *at))
    }
}

/// A pod set that doesn't fit.
#[derive(Clone, Debug)]
pub(crate) struct PlacementFailure {
    pod_set: usize,
    flavor: FlavorId,
    reason: Arc<str>,
}

/// Whether and how a pod set must be placed.
enum PodSetTopology {
    /// The pod set requests no topology, or is placed already.
    Settled,
    /// The domains are chosen later.
    Delayed,
    Invalid(Arc<str>),
    Requested(FlavorId, Box<PodSetRequest>),
}

/// Domains by index of the pod set.
type ChosenDomains = Vec<(usize, TopologyAssignment)>;

/// The topology requests of an assignment's pod sets. Records delayed and invalid ones in the assignment.
fn topology_requests_of(state: &QueueState, id: WorkloadId, assignment: &mut Assignment) -> TopologyRequests {
    let workload = state.get(&id);
    let mut requests = TopologyRequests::default();
    for (at, set) in state.shape_of(workload.shape).pod_sets.iter().enumerate() {
        match pod_set_topology(state, workload, at, set, assignment) {
            PodSetTopology::Settled => {}
            PodSetTopology::Delayed => assignment.pod_sets[at].delayed = Some(Delayed::Pending),
            PodSetTopology::Invalid(why) => assignment.mark_infeasible(at, Reason::TopologyFlavors(why)),
            PodSetTopology::Requested(flavor, request) => requests
                .by_flavor
                .entry(state.flavor_name(flavor).clone())
                .or_insert_with(|| (flavor, PlacedSets::new()))
                .1
                .push((at, *request)),
        }
    }
    requests
}

fn pod_set_topology(
    state: &QueueState,
    workload: &Workload,
    at: usize,
    set: &PodSet,
    assignment: &Assignment,
) -> PodSetTopology {
    let (queue, marks) = (state.queue(workload.queue), workload.marks());
    let implied = !set.requests_topology() && queue.topology_only;
    let Some(given) = assignment.pod_sets.get(at) else { return PodSetTopology::Settled };
    let is_lost = |placed: &TopologyAssignment| marks.lost_nodes.iter().any(|node| placed.has_node(node));
    let settled = given.placement.as_ref().is_some_and(|placed| !is_lost(placed));
    if (!implied && !set.requests_topology()) || given.infeasible || given.count == 0 || settled {
        return PodSetTopology::Settled;
    }
    let elastic = marks.elastic && state.settings().gates.elastic_slices_with_topology;
    let constraint = set.topology.as_ref().and_then(|t| t.constraint.as_ref()).filter(|_| elastic);
    let conflict = match constraint {
        Some(Constraint::Required(_)) => Some("an elastic workload can't require one topology domain"),
        Some(Constraint::Preferred(_)) => Some("an elastic workload can't prefer one topology domain"),
        _ => None,
    };
    if let Some(why) = conflict {
        return PodSetTopology::Invalid(Arc::from(why));
    }
    let flavor = match only_flavor(state, workload.queue, given.flavors.iter().map(|(_, c)| c.flavor)) {
        Err(why) => return PodSetTopology::Invalid(why),
        Ok(flavor) => flavor,
    };
    // A worker cluster or a provider must act first; the domains are chosen afterwards.
    if queue.setup.placed_elsewhere
        || (workload.holding.is_none() && queue.setup.provisioned.contains(&flavor))
    {
        return PodSetTopology::Delayed;
    }
    let replaced = assignment.replaces.filter(|_| elastic).and_then(|old| state.workload(old));
    let previous = replaced
        .and_then(|old| old.holding.as_ref())
        .and_then(|h| h.given.get(at))
        .and_then(|g| g.placement.clone());
    let request = request(set, given.count, implied, marks.updates.get(&set.name), previous);
    PodSetTopology::Requested(flavor, Box::new(request))
}

/// The only flavor with a topology among `flavors`.
fn only_flavor(
    state: &QueueState,
    queue: QueueId,
    flavors: impl Iterator<Item = FlavorId>,
) -> Result<FlavorId, Arc<str>> {
    let setup = &state.queue(queue).setup;
    if !setup.groups.iter().flat_map(|g| &g.flavors).any(|f| state.has_topology(*f)) {
        return Err(Arc::from("it requests a topology, but none is known"));
    }
    let mut found: Vec<FlavorId> = flavors.filter(|f| state.has_topology(*f)).collect();
    found.sort_by(|a, b| state.flavor_name(*a).cmp(state.flavor_name(*b)));
    found.dedup();
    match found.as_slice() {
        [] => Err(Arc::from("none of its flavors has a topology")),
        [one] => Ok(*one),
        more => {
            let names: Vec<&str> = more.iter().map(|f| &**state.flavor_name(*f)).collect();
            Err(Arc::from(format!("more than one of its flavors has a topology: {}", names.join(", "))))
        }
    }
}

/// The topology requests of an assignment's pod sets. Leaves the assignment unchanged.
pub(crate) fn topology_requests(
    state: &QueueState,
    id: WorkloadId,
    assignment: &Assignment,
) -> Option<TopologyRequests> {
    if !state.settings().gates.topology || !state.topologies().knows_any() {
        return None;
    }
    let requests = topology_requests_of(state, id, &mut assignment.clone());
    (!requests.by_flavor.is_empty()).then_some(requests)
}

/// Domains for all requests, or the first pod set that doesn't fit. `empty` ignores all usage.
pub(crate) fn find_domains(
    state: &QueueState,
    requests: &TopologyRequests,
    id: WorkloadId,
    empty: bool,
) -> Result<ChosenDomains, PlacementFailure> {
    let (chosen, failed) = search_domains(state, requests, id, empty);
    failed.map_or(Ok(chosen), Err)
}

fn search_domains(
    state: &QueueState,
    requests: &TopologyRequests,
    id: WorkloadId,
    empty: bool,
) -> (ChosenDomains, Option<PlacementFailure>) {
    let workload = state.get(&id);
    let shape = state.shape_of(workload.shape);
    let marks = workload.marks();
    let held = workload.holding.as_ref().filter(|_| !marks.lost_nodes.is_empty());
    let admitted: BTreeMap<String, TopologyAssignment> = held
        .map(|h| {
            h.given
                .iter()
                .zip(&shape.pod_sets)
                .filter_map(|(g, set)| Some((set.name.to_string(), g.placement.clone()?)))
                .collect()
        })
        .unwrap_or_default();
    let lost =
        held.map(|_| LostNodes { admitted: &admitted, nodes: &marks.lost_nodes, pinned: marks.single_pod });
    let mut assumed = Assumed::default();
    let (mut chosen, mut failed) = (Vec::new(), None);
    for (flavor, sets) in requests.by_flavor.values() {
        let requested: Vec<PodSetRequest> = sets.iter().map(|(_, request)| request.clone()).collect();
        let Some(topology) = state.topology_of(*flavor) else { continue };
        let results =
            topology.assign_with_assumed(&requested, Options { simulate_empty: empty, lost }, &mut assumed);
        for ((at, _), result) in sets.iter().zip(results) {
            match result {
                Some(Ok(placed)) => chosen.push((*at, placed)),
                Some(Err(error)) if failed.is_none() => {
                    failed = Some(PlacementFailure {
                        pod_set: *at,
                        flavor: *flavor,
                        reason: Arc::from(error.to_string()),
                    })
                }
                _ => {}
            }
        }
    }
    (chosen, failed)
}

/// Chooses domains as if the victims were gone or, without victims, as if the topology were empty. Other
/// workloads of the cycle then don't take these domains first.
pub(crate) fn place_with_victims(
    state: &mut QueueState,
    id: WorkloadId,
    assignment: &mut Assignment,
    targets: &[Target],
) {
    let workload = state.get(&id);
    let wants = state.queue(workload.queue).topology_only
        || state.shape_of(workload.shape).pod_sets.iter().any(PodSet::requests_topology);
    let asked = state.settings().gates.topology
        && state.topologies().knows_any()
        && assignment.mode() == Mode::Preempt
        && wants;
    if !asked || state.has_lost_node(workload) {
        return;
    }
    let requests = topology_requests_of(state, id, assignment);
    for target in targets {
        state.suspend_usage(target.workload);
    }
    let (chosen, _) = search_domains(state, &requests, id, targets.is_empty());
    for target in targets {
        state.resume_usage(target.workload);
    }
    settle(assignment, chosen);
}

fn settle(assignment: &mut Assignment, chosen: ChosenDomains) {
    for (at, placed) in chosen {
        let set = &mut assignment.pod_sets[at];
        set.placement = Some(placed);
        if set.delayed.is_some() {
            set.delayed = Some(Delayed::Ready);
        }
    }
}

fn request(
    set: &PodSet,
    count: u32,
    implied: bool,
    update: Option<&Update>,
    previous: Option<TopologyAssignment>,
) -> PodSetRequest {
    let mut request = PodSetRequest {
        name: set.name.to_string(),
        count,
        per_pod: set.on_node.clone(),
        topology: if implied { None } else { set.topology.clone() },
        node_selector: set.node_selector.clone(),
        affinity: set.affinity.clone(),
        preferred: set.preferred.clone(),
        tolerations: set.tolerations.clone(),
        group: set.group.clone(),
        previous,
    };
    if let Some(update) = update {
        request.node_selector.extend(update.node_selector.clone());
        request.tolerations.extend(update.tolerations.iter().cloned());
    }
    request
}

impl FlavorAssigner<'_> {
    /// Chooses the domains after the flavors. If a pod set fits only without other workloads, preemption is
    /// considered.
    pub(crate) fn place(&mut self, assignment: &mut Assignment) {
        let wants = self.state.queue(self.queue).topology_only || self.requests_topology();
        if !wants {
            return;
        }
        let requests = topology_requests_of(self.state, self.workload, assignment);
        let groups = self.state.shape_of(self.state.get(&self.workload).shape).groups();
        let group_of =
            |at: usize| groups.iter().find(|group| group.contains(&at)).map_or(&[][..], Vec::as_slice);
        if assignment.mode() == Mode::Fit {
            match find_domains(self.state, &requests, self.workload, false) {
                Ok(chosen) => settle(assignment, chosen),
                Err(PlacementFailure { pod_set, reason, .. }) => {
                    assignment.pod_sets[pod_set].reasons.push(Reason::Placement(reason));
                    assignment.set_mode_in_group(pod_set, group_of(pod_set), Mode::Preempt);
                }
            }
        }
        let replacing = !self.state.get(&self.workload).marks().lost_nodes.is_empty();
        if assignment.mode() != Mode::Preempt || replacing {
            return;
        }
        match find_domains(self.state, &requests, self.workload, true) {
            Ok(_) => {
                // Unused quota doesn't imply a fitting domain, so preemption may be needed for the domain
                // too.
                for at in requests.pod_sets().collect::<Vec<_>>() {
                    assignment.set_mode_in_group(at, group_of(at), Mode::Preempt);
                }
            }
            Err(PlacementFailure { pod_set, flavor, reason }) => {
                let reasons = &mut assignment.pod_sets[pod_set].reasons;
                if !reasons.iter().any(|reason| matches!(reason, Reason::Placement(_))) {
                    reasons.push(Reason::Placement(reason));
                }
                for member in group_of(pod_set) {
                    for attempt in
                        assignment.pod_sets[*member].attempts.iter_mut().filter(|a| a.flavor == flavor)
                    {
                        (attempt.mode, attempt.obstacle) =
                            (Mode::NoFit, Some(Obstacle::TopologyPlacementFailed));
                    }
                }
                assignment.set_mode_in_group(pod_set, group_of(pod_set), Mode::NoFit);
            }
        }
    }

    fn requests_topology(&self) -> bool {
        self.state
            .shape_of(self.state.get(&self.workload).shape)
            .pod_sets
            .iter()
            .any(PodSet::requests_topology)
    }
}
