//! Topologies of flavors with their usage.

use crate::model::{Assignment, Flavor, PodSet, PodSetAdmission, PodSetAssignment, WorkloadId};
use crate::names::FlavorId;
use crate::queue_state::QueueState;
use meridian_shared::gang::Amounts;
use meridian_topology::{Assignment as TopologyAssignment, Node, PodSetRequest, Profile, Topology, Usage};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Topologies by flavor.
#[derive(Clone, Debug, Default)]
pub(crate) struct Topologies {
    of: BTreeMap<FlavorId, Topology>,
    /// Topologies without any usage.
    empty: BTreeMap<FlavorId, Topology>,
}

impl Topologies {
    fn get(&self, flavor: FlavorId) -> Option<&Topology> {
        self.of.get(&flavor)
    }

    /// Whether any flavor has a topology.
    pub(crate) fn knows_any(&self) -> bool {
        !self.of.is_empty()
    }

    pub(super) fn forget_usage(&mut self) {
        self.of.clone_from(&self.empty);
    }

    /// Adds or removes the usage of placed pods. `flavors` are those of the pods; at most one has a topology.
    fn count(&mut self, flavors: impl IntoIterator<Item = FlavorId>, usage: Usage<'_>, add: bool) {
        let Some(own) = flavors.into_iter().find(|f| self.of.contains_key(f)) else { return };
        let by_host = self.of[&own].is_by_host();
        for (flavor, topology) in &mut self.of {
            match (*flavor == own, add) {
                (true, true) => topology.add_usage(usage),
                (true, false) => topology.remove_usage(usage),
                (false, true) if by_host => topology.add_sibling_usage(usage),
                (false, false) if by_host => topology.remove_sibling_usage(usage),
                (false, _) => {}
            }
        }
    }
}

/// Pods placed in the topology of a flavor.
pub(crate) struct PlacedPods {
    flavor: FlavorId,
    per_pod: Amounts,
    domains: TopologyAssignment,
}

impl QueueState {
    /// Sets the nodes. Every flavor with a topology in `levels` gets the nodes with its labels. `others` are
    /// pods outside topologies: the name of their node and their requests.
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
        let holders = self.holders();
        self.place_usages(&holders, true);
        self.requeue_all();
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

    /// The topology of a flavor, with its usage.
    pub fn topology_of(&self, flavor: FlavorId) -> Option<&Topology> {
        self.topologies.get(flavor)
    }

    /// Whether the nodes of a flavor's topology are known.
    pub(crate) fn has_topology(&self, flavor: FlavorId) -> bool {
        self.topologies.get(flavor).is_some()
    }

    pub(crate) fn has_levels(&self, flavor: FlavorId, set: &PodSet) -> bool {
        let request = PodSetRequest { topology: set.topology.clone(), ..PodSetRequest::default() };
        let levels = self.flavor(flavor).and_then(|spec| spec.levels.as_deref());
        levels.map_or_else(
            || self.topologies.get(flavor).is_some_and(|t| t.has_levels(&request)),
            |levels| request.uses_levels_of(levels),
        )
    }

    /// Adds or removes the topology usage of a holder.
    pub(super) fn place_usage(&mut self, id: WorkloadId, add: bool) {
        if !self.topologies.knows_any() {
            return;
        }
        let Some(workload) = self.workloads.get(&id) else { return };
        let Some(given) = workload.holding.as_ref().map(|h| &h.given) else { return };
        for (given, set) in given.iter().zip(&self.shapes.get(workload.shape).pod_sets) {
            let Some(assignment) = &given.placement else { continue };
            let usage = Usage { assignment, per_pod: &set.on_node };
            self.topologies.count(given.flavors.values().copied(), usage, add);
        }
    }

    /// Adds or removes the topology usage of several holders.
    pub(crate) fn place_usages<'a>(&mut self, ids: impl IntoIterator<Item = &'a WorkloadId>, add: bool) {
        ids.into_iter().for_each(|id| self.place_usage(*id, add));
    }

    /// Topology usage of an assignment in addition to the usage that the workload already holds.
    fn additional_placement(&self, id: WorkloadId, assignment: &Assignment) -> Vec<PlacedPods> {
        if !self.topologies.knows_any() {
            return Vec::new();
        }
        let workload = &self.workloads[&id];
        let shape = self.shape_of(workload.shape);
        let held = |at: usize| workload.holding.as_ref()?.given.get(at)?.placement.as_ref();
        let mut additional = Vec::new();
        for (at, set) in assignment.pod_sets.iter().enumerate() {
            let Some(placed) = &set.placement else { continue };
            let Some(flavor) = set.flavors.iter().map(|(_, c)| c.flavor).find(|f| self.has_topology(*f))
            else {
                continue;
            };
            let mut domains = placed.clone();
            if let Some(held) = held(at) {
                for domain in &mut domains.domains {
                    let there: u32 =
                        held.domains.iter().filter(|d| d.values == domain.values).map(|d| d.count).sum();
                    domain.count = domain.count.saturating_sub(there);
                }
                domains.domains.retain(|d| d.count > 0);
            }
            if !domains.domains.is_empty() {
                let per_pod = shape.pod_sets[at].on_node.clone();
                additional.push(PlacedPods { flavor, per_pod, domains });
            }
        }
        additional
    }

    /// Topology usage of a holder that it gives up if it gets an assignment.
    pub(crate) fn vacated(&self, id: WorkloadId, assignment: &Assignment) -> Vec<PlacedPods> {
        let workload = &self.workloads[&id];
        let Some(holding) = workload.holding.as_ref().filter(|_| self.topologies.knows_any()) else {
            return Vec::new();
        };
        let shape = self.shape_of(workload.shape);
        let sets = holding.given.iter().zip(&assignment.pod_sets).zip(&shape.pod_sets);
        let of_set = |((given, new), set): ((&PodSetAdmission, &PodSetAssignment), &PodSet)| {
            let flavor = given.flavors.values().copied().find(|flavor| self.has_topology(*flavor))?;
            let mut domains = given.placement.clone()?;
            for domain in &mut domains.domains {
                let kept = new.placement.iter().flat_map(|placed| &placed.domains);
                let there: u32 = kept.filter(|d| d.values == domain.values).map(|d| d.count).sum();
                domain.count = domain.count.saturating_sub(there);
            }
            domains.domains.retain(|domain| domain.count > 0);
            Some(PlacedPods { flavor, per_pod: set.on_node.clone(), domains })
        };
        sets.filter_map(of_set).collect()
    }

    /// Adds or removes the topology usage of placed pods.
    pub(crate) fn count_placed(&mut self, placed: &PlacedPods, add: bool) {
        let usage = Usage { assignment: &placed.domains, per_pod: &placed.per_pod };
        self.topologies.count([placed.flavor], usage, add);
    }

    /// Adds or removes the topology usage of an assignment.
    pub(crate) fn place_assignment(&mut self, id: WorkloadId, assignment: &Assignment, add: bool) {
        for placed in self.additional_placement(id, assignment) {
            self.count_placed(&placed, add);
        }
    }

    /// Whether the domains of an assignment still have enough capacity.
    pub(crate) fn still_free(&self, id: WorkloadId, assignment: &Assignment) -> bool {
        let additional = self.additional_placement(id, assignment);
        let mut by_flavor: BTreeMap<FlavorId, Vec<Usage<'_>>> = BTreeMap::new();
        for placed in &additional {
            let usage = Usage { assignment: &placed.domains, per_pod: &placed.per_pod };
            by_flavor.entry(placed.flavor).or_default().push(usage);
        }
        by_flavor.iter().all(|(flavor, usages)| self.topologies.of[flavor].fit_together(usages))
    }
}
