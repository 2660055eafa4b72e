//! Places in topologies, for pod sets that ask for them.
//!
//! The placing itself is the topology crate's; here it is decided which pod sets are asked about, for which flavor, and what
//! the answers mean for the assignment.

use crate::brain::Brain;
use crate::flavors::{Assigner, Assignment, Mode, groups};
use crate::model::{Delayed, Flavor, Given, PodSet, QueueId, WorkloadId};
use crate::names::FlavorId;
use crate::preempt::Target;
use crate::reason::{Obstacle, Reason};
use meridian_shared::gang::Amounts;
use meridian_topology::{
    Assignment as Placed, Assumed, Constraint, Lost, Node, Options, PodSetRequest, Profile, Topology, Usage,
};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Nodes of every flavor that has a topology.
#[derive(Clone, Debug, Default)]
pub(crate) struct Topologies {
    of: BTreeMap<FlavorId, Topology>,
    /// The same without anybody's use.
    empty: BTreeMap<FlavorId, Topology>,
}

impl Topologies {
    /// Whether any flavor has one.
    pub(crate) fn knows_any(&self) -> bool {
        !self.of.is_empty()
    }

    pub(crate) fn forget_usage(&mut self) {
        self.of.clone_from(&self.empty);
    }
}

/// Pod sets that want a place, by their place in the workload.
type Wanted = Vec<(usize, PodSetRequest)>;

/// Pod sets that want a place, by the flavor whose nodes they get, in the order of the flavors' names.
#[derive(Clone, Debug, Default)]
pub(crate) struct Requests {
    by_flavor: BTreeMap<Arc<str>, (FlavorId, Wanted)>,
}

impl Requests {
    fn pod_sets(&self) -> impl Iterator<Item = usize> + '_ {
        self.by_flavor.values().flat_map(|(_, sets)| sets.iter().map(|(at, _)| *at))
    }
}

/// A pod set that has no place.
#[derive(Clone, Debug)]
pub(crate) struct NoPlace {
    pod_set: usize,
    flavor: FlavorId,
    reason: Arc<str>,
}

type Places = Vec<(usize, Placed)>;

impl Brain {
    /// States the nodes of a cluster: every flavor whose topology is among `levels` gets those with its labels. Pods that no
    /// topology placed take their room: the name of their node, and what they take.
    pub fn set_nodes(
        &mut self,
        levels: &BTreeMap<Arc<str>, Vec<String>>,
        nodes: &[Node],
        others: &[(String, Amounts)],
    ) {
        let mut of = BTreeMap::new();
        for (id, flavor) in self.flavor_list() {
            let Some((name, levels)) = flavor.topology.as_ref().and_then(|name| levels.get_key_value(name))
            else {
                continue;
            };
            let mut topology = Topology::new(self.topology_flavor(name, levels, flavor), nodes);
            for (node, per_pod) in others {
                topology.occupy(node, per_pod);
            }
            of.insert(id, topology);
        }
        self.topologies = Topologies { empty: of.clone(), of };
        for id in self.holder_list() {
            self.place_usage(id, true);
        }
        self.wake_all();
    }

    fn topology_flavor(&self, name: &str, levels: &[String], flavor: &Flavor) -> meridian_topology::Flavor {
        let gates = &self.settings.gates;
        meridian_topology::Flavor {
            topology: name.to_owned(),
            levels: levels.to_vec(),
            node_labels: flavor.labels.clone(),
            tolerations: flavor.tolerations.clone(),
            profile: Profile {
                mixed: gates.topology_mixed_profile,
                balanced: gates.topology_balanced,
                preferred_affinity: gates.topology_preferred_affinity,
                overlapping_flavors: gates.topology_overlapping_flavors,
                elastic: gates.elastic_slices_with_topology,
            },
        }
    }

    /// The topology of a flavor, and what is used in it.
    pub fn topology_of(&self, flavor: FlavorId) -> Option<&Topology> {
        self.topologies.of.get(&flavor)
    }

    /// Whether nodes of a flavor's topology are known.
    pub(crate) fn has_topology(&self, flavor: FlavorId) -> bool {
        self.topologies.of.contains_key(&flavor)
    }

    pub(crate) fn has_levels(&self, flavor: FlavorId, set: &PodSet) -> bool {
        let request = PodSetRequest { topology: set.topology.clone(), ..PodSetRequest::default() };
        let told = self.flavor(flavor).and_then(|spec| spec.levels.as_deref());
        told.map_or_else(
            || self.topologies.of.get(&flavor).is_some_and(|t| t.has_levels(&request)),
            |levels| request.asks_within(levels),
        )
    }

    /// Adds or takes away what a holder's pods take where they lie.
    pub(crate) fn place_usage(&mut self, id: WorkloadId, add: bool) {
        if !self.topologies.knows_any() {
            return;
        }
        let Some(workload) = self.workloads.get(&id) else { return };
        let Some(given) = workload.holding.as_ref().map(|h| &h.given) else { return };
        let shape = self.shape_of(workload.shape).clone();
        let placed: Vec<(Vec<FlavorId>, Amounts, Placed)> = given
            .iter()
            .zip(&shape.pod_sets)
            .filter_map(|(g, set)| {
                Some((g.flavors.values().copied().collect(), set.on_node.clone(), g.placement.clone()?))
            })
            .collect();
        for (flavors, per_pod, placed) in placed {
            self.count_places(&flavors, &per_pod, &placed, add);
        }
    }

    fn count_places(&mut self, flavors: &[FlavorId], per_pod: &Amounts, placed: &Placed, add: bool) {
        let usage = Usage { assignment: placed, per_pod };
        let Some(own) = flavors.iter().copied().find(|f| self.topologies.of.contains_key(f)) else { return };
        let by_host = self.topologies.of[&own].is_by_host();
        for (flavor, topology) in &mut self.topologies.of {
            match (*flavor == own, add) {
                (true, true) => topology.add_usage(usage),
                (true, false) => topology.remove_usage(usage),
                (false, true) if by_host => topology.add_sibling_usage(usage),
                (false, false) if by_host => topology.remove_sibling_usage(usage),
                (false, _) => {}
            }
        }
    }

    /// What an assignment takes in places, beyond what the workload holds already: flavor, per pod, where.
    fn net_places(&self, id: WorkloadId, assignment: &Assignment) -> Vec<(FlavorId, Amounts, Placed)> {
        if self.topologies.of.is_empty() {
            return Vec::new();
        }
        let workload = &self.workloads[&id];
        let shape = self.shape_of(workload.shape);
        let held = |at: usize| {
            workload.holding.as_ref().and_then(|h| h.given.get(at)).and_then(|g: &Given| g.placement.as_ref())
        };
        let mut net = Vec::new();
        for (at, set) in assignment.pod_sets.iter().enumerate() {
            let Some(placed) = &set.placement else { continue };
            let Some(flavor) = set.flavors.iter().map(|(_, c)| c.flavor).find(|f| self.has_topology(*f))
            else {
                continue;
            };
            let mut more = placed.clone();
            if let Some(held) = held(at) {
                for domain in &mut more.domains {
                    let there: u32 =
                        held.domains.iter().filter(|d| d.values == domain.values).map(|d| d.count).sum();
                    domain.count = domain.count.saturating_sub(there);
                }
                more.domains.retain(|d| d.count > 0);
            }
            if !more.domains.is_empty() {
                net.push((flavor, shape.pod_sets[at].on_node.clone(), more));
            }
        }
        net
    }

    /// Adds or takes away what an assignment takes in places.
    pub(crate) fn place_assignment(&mut self, id: WorkloadId, assignment: &Assignment, add: bool) {
        for (flavor, per_pod, placed) in self.net_places(id, assignment) {
            self.count_places(&[flavor], &per_pod, &placed, add);
        }
    }

    /// Whether the places of an assignment are still free.
    pub(crate) fn still_free(&self, id: WorkloadId, assignment: &Assignment) -> bool {
        let mut by_flavor: BTreeMap<FlavorId, Vec<(Amounts, Placed)>> = BTreeMap::new();
        for (flavor, per_pod, placed) in self.net_places(id, assignment) {
            by_flavor.entry(flavor).or_default().push((per_pod, placed));
        }
        by_flavor.iter().all(|(flavor, placed)| {
            let usages: Vec<Usage<'_>> =
                placed.iter().map(|(per_pod, assignment)| Usage { assignment, per_pod }).collect();
            self.topologies.of[flavor].has_fit(&usages)
        })
    }

    /// The pod sets that want places, as far as the assignment can say on which nodes. What can't be asked for is noted in it.
    fn wanted(&self, id: WorkloadId, assignment: &mut Assignment) -> Requests {
        let workload = &self.workloads[&id];
        let shape = self.shape_of(workload.shape);
        let queue = self.queue(workload.queue);
        let marks = workload.marks();
        let mut requests = Requests::default();
        for (at, set) in shape.pod_sets.iter().enumerate() {
            let implied = !set.wants_topology() && queue.topology_only;
            let Some(given) = assignment.pod_sets.get(at) else { continue };
            let lost = |placed: &Placed| marks.lost_nodes.iter().any(|node| placed.has_node(node));
            let settled = given.placement.as_ref().is_some_and(|placed| !lost(placed));
            if (!implied && !set.wants_topology()) || given.broken || given.count == 0 || settled {
                continue;
            }
            let elastic = marks.elastic && self.settings.gates.elastic_slices_with_topology;
            if elastic {
                let why = match set.topology.as_ref().and_then(|t| t.constraint.as_ref()) {
                    Some(Constraint::Required(_)) => {
                        Some("a workload that grows can't require one topology domain")
                    }
                    Some(Constraint::Preferred(_)) => {
                        Some("a workload that grows can't prefer one topology domain")
                    }
                    _ => None,
                };
                if let Some(why) = why {
                    assignment.break_pod_set(at, Reason::TopologyFlavors(Arc::from(why)));
                    continue;
                }
            }
            match self.only_flavor(workload.queue, given.flavors.iter().map(|(_, c)| c.flavor)) {
                Err(why) => assignment.break_pod_set(at, Reason::TopologyFlavors(why)),
                Ok(flavor) => {
                    // Where a worker cluster or a provider comes first, the place is found later.
                    if queue.setup.placed_elsewhere
                        || (workload.holding.is_none() && queue.setup.provisioned.contains(&flavor))
                    {
                        assignment.pod_sets[at].delayed = Some(Delayed::Pending);
                        continue;
                    }
                    let replaced =
                        assignment.replaces.filter(|_| elastic).and_then(|old| self.workloads.get(&old));
                    let previous = replaced
                        .and_then(|old| old.holding.as_ref())
                        .and_then(|h| h.given.get(at))
                        .and_then(|g| g.placement.clone());
                    let request = request(set, given.count, implied, marks.updates.get(&set.name), previous);
                    requests
                        .by_flavor
                        .entry(self.flavor_name(flavor).clone())
                        .or_insert_with(|| (flavor, Wanted::new()))
                        .1
                        .push((at, request));
                }
            }
        }
        requests
    }

    /// The one flavor with a topology among those given.
    fn only_flavor(
        &self,
        queue: QueueId,
        flavors: impl Iterator<Item = FlavorId>,
    ) -> Result<FlavorId, Arc<str>> {
        let setup = &self.queue(queue).setup;
        if !setup.groups.iter().flat_map(|g| &g.flavors).any(|f| self.has_topology(*f)) {
            return Err(Arc::from("it asks for a place in a topology, and none is known"));
        }
        let mut found: Vec<FlavorId> = flavors.filter(|f| self.has_topology(*f)).collect();
        found.sort_by(|a, b| self.flavor_name(*a).cmp(self.flavor_name(*b)));
        found.dedup();
        match found.as_slice() {
            [] => Err(Arc::from("none of its flavors has a topology")),
            [one] => Ok(*one),
            more => {
                let names: Vec<&str> = more.iter().map(|f| &**self.flavor_name(*f)).collect();
                Err(Arc::from(format!("more than one of its flavors has a topology: {}", names.join(", "))))
            }
        }
    }

    /// The same, for who only wants to ask.
    pub(crate) fn topology_requests(&self, id: WorkloadId, assignment: &Assignment) -> Option<Requests> {
        if !self.settings.gates.topology || self.topologies.of.is_empty() {
            return None;
        }
        let requests = self.wanted(id, &mut assignment.clone());
        (!requests.by_flavor.is_empty()).then_some(requests)
    }

    /// Places for everything that is asked for, or what has none. `empty` asks as if nobody else were there.
    pub(crate) fn find_places(
        &self,
        requests: &Requests,
        id: WorkloadId,
        empty: bool,
    ) -> Result<Places, NoPlace> {
        let (places, failed) = self.look_for_places(requests, id, empty);
        failed.map_or(Ok(places), Err)
    }

    fn look_for_places(&self, requests: &Requests, id: WorkloadId, empty: bool) -> (Places, Option<NoPlace>) {
        let workload = &self.workloads[&id];
        let shape = self.shape_of(workload.shape);
        let marks = workload.marks();
        let held = workload.holding.as_ref().filter(|_| !marks.lost_nodes.is_empty());
        let admitted: BTreeMap<String, Placed> = held
            .map(|h| {
                h.given
                    .iter()
                    .zip(&shape.pod_sets)
                    .filter_map(|(g, set)| Some((set.name.to_string(), g.placement.clone()?)))
                    .collect()
            })
            .unwrap_or_default();
        let lost =
            held.map(|_| Lost { admitted: &admitted, nodes: &marks.lost_nodes, pinned: marks.single_pod });
        let mut assumed = Assumed::default();
        let (mut places, mut failed) = (Vec::new(), None);
        for (flavor, sets) in requests.by_flavor.values() {
            let wanted: Vec<PodSetRequest> = sets.iter().map(|(_, request)| request.clone()).collect();
            let outcomes = self.topologies.of[flavor].assign_beside(
                &wanted,
                Options { simulate_empty: empty, lost },
                &mut assumed,
            );
            for ((at, _), outcome) in sets.iter().zip(outcomes) {
                match outcome {
                    Some(Ok(placed)) => places.push((*at, placed)),
                    Some(Err(misfit)) if failed.is_none() => {
                        failed = Some(NoPlace {
                            pod_set: *at,
                            flavor: *flavor,
                            reason: Arc::from(misfit.to_string()),
                        })
                    }
                    _ => {}
                }
            }
        }
        (places, failed)
    }

    /// Where the pods would lie once the victims are gone; without victims, where they would lie if nobody were there, so that
    /// others don't take it first.
    pub(crate) fn place_with_victims(
        &mut self,
        id: WorkloadId,
        assignment: &mut Assignment,
        targets: &[Target],
    ) {
        let workload = &self.workloads[&id];
        let wants = self.queue(workload.queue).topology_only
            || self.shape_of(workload.shape).pod_sets.iter().any(PodSet::wants_topology);
        let asked = self.settings.gates.topology
            && !self.topologies.of.is_empty()
            && assignment.mode() == Mode::Preempt
            && wants;
        if !asked || self.lost_a_node(workload) {
            return;
        }
        let requests = self.wanted(id, assignment);
        for target in targets {
            self.suspend_usage(target.workload);
        }
        let (places, _) = self.look_for_places(&requests, id, targets.is_empty());
        for target in targets {
            self.resume_usage(target.workload);
        }
        settle(assignment, places);
    }
}

fn settle(assignment: &mut Assignment, places: Places) {
    for (at, placed) in places {
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
    update: Option<&crate::model::Update>,
    previous: Option<Placed>,
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

impl Assigner<'_> {
    /// Finds places for an assignment whose flavors are chosen; what has no place while others are there may displace them.
    pub(crate) fn place(&mut self, assignment: &mut Assignment) {
        let wants = self.brain.queue(self.queue).topology_only || self.wants_topology();
        if !wants {
            return;
        }
        let requests = self.brain.wanted(self.workload, assignment);
        let groups = groups(self.brain.shape_of(self.brain.workloads[&self.workload].shape));
        let group_of =
            |at: usize| groups.iter().find(|group| group.contains(&at)).map_or(&[][..], Vec::as_slice);
        if assignment.mode() == Mode::Fit {
            match self.brain.find_places(&requests, self.workload, false) {
                Ok(places) => settle(assignment, places),
                Err(NoPlace { pod_set, reason, .. }) => {
                    assignment.pod_sets[pod_set].reasons.push(Reason::Placement(reason));
                    assignment.set_mode_in_group(pod_set, group_of(pod_set), Mode::Preempt);
                }
            }
        }
        let replacing = !self.brain.workloads[&self.workload].marks().lost_nodes.is_empty();
        if assignment.mode() != Mode::Preempt || replacing {
            return;
        }
        match self.brain.find_places(&requests, self.workload, true) {
            Ok(_) => {
                // Quota may be unused and yet no place whole: others may have to give way there too.
                for at in requests.pod_sets().collect::<Vec<_>>() {
                    assignment.set_mode_in_group(at, group_of(at), Mode::Preempt);
                }
            }
            Err(NoPlace { pod_set, flavor, reason }) => {
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

    fn wants_topology(&self) -> bool {
        self.brain
            .shape_of(self.brain.workloads[&self.workload].shape)
            .pod_sets
            .iter()
            .any(PodSet::wants_topology)
    }
}
