//! Where the pods of a running workload are: Kueue's fields, and lines for users.

use meridian_manager_core::state::legs::Leg;
use meridian_manager_core::state::workload::Workload;
use meridian_shared::placement::{PlacedDomain, PlacedPodSet};
use meridian_topology::compressed::Compressed;
use meridian_topology::{Assignment, DomainCount};
use serde_json::{Value, json};

/// Kueue's `topologyAssignment` of a pod set. `None` if no topology placed it, or if not every domain is
/// known: readers rely on the assignment being complete.
pub(crate) fn topology_assignment(leg: Option<&Leg>, pod_set: &str, count: u32) -> Option<Value> {
    let placement = leg?.placement()?;
    let set = placement
        .pod_sets
        .iter()
        .find(|set| set.name == pod_set)
        .filter(|set| set.is_whole() && !set.levels.is_empty())?;
    // After a scale-down, the former domains of the removed pods are unknown.
    if set.domains.iter().map(|domain| domain.pods).fold(0, u32::saturating_add) != count {
        return None;
    }
    let domain = |domain: &PlacedDomain| DomainCount { values: domain.values.clone(), count: domain.pods };
    let assignment =
        Assignment { levels: set.levels.clone(), domains: set.domains.iter().map(domain).collect() };
    serde_json::to_value(Compressed::from(&assignment)).ok()
}

/// The known domains of each pod set.
pub(crate) fn placement_status(leg: Option<&Leg>) -> Option<Value> {
    let domain = |domain: &PlacedDomain| json!({"values": domain.values, "pods": domain.pods});
    let status = |set: &PlacedPodSet| {
        let mut value =
            json!({"podSet": set.name, "domains": set.domains.iter().map(domain).collect::<Vec<_>>()});
        if !set.levels.is_empty() {
            value["levels"] = json!(set.levels);
        }
        if !set.is_whole() {
            value["more"] = json!({"domains": set.more_domains, "pods": set.more_pods});
        }
        value
    };
    Some(leg?.placement()?.pod_sets.iter().map(status).collect())
}

/// Kueue's `unhealthyNodes`: lost nodes with pods that wait for replacement. `None` if there are none.
pub(crate) fn unhealthy_nodes(leg: Option<&Leg>) -> Option<Value> {
    let unhealthy = &leg?.placement()?.unhealthy;
    (!unhealthy.is_empty()).then(|| unhealthy.iter().map(|name| json!({"name": name})).collect())
}

/// Lines for users: one per pod set, and one for the pods that wait for replacement.
pub(crate) fn placement_lines(workload: &Workload) -> Option<Vec<String>> {
    let placement = workload.right()?.1.placement()?;
    let ended =
        |at: usize| workload.spare().and_then(|spare| spare.get(at)).copied().filter(|ended| *ended > 0);
    let line = |(at, set): (usize, &PlacedPodSet)| {
        ended(at).map_or_else(|| set.to_string(), |ended| format!("{set} ({ended} of them ended)"))
    };
    let unhealthy = (!placement.unhealthy.is_empty()).then(|| {
        format!("waiting for replacement of pods on lost nodes: {}", placement.unhealthy.join(", "))
    });
    Some(placement.pod_sets.iter().enumerate().map(line).chain(unhealthy).collect())
}
