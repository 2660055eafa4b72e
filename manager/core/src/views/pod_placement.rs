use crate::state::legs::Leg;
use crate::state::workload::Workload;
use meridian_shared::placement::{PlacedDomain, PlacedPodSet};
use meridian_topology::compressed::Compressed;
use meridian_topology::{Assignment, DomainCount};
use serde_json::{Value, json};

/// Kueue's `topologyAssignment` of a pod set. `None` where no topology placed it, or where not every domain was named: whoever
/// reads it counts on all pods being there, and on no others.
pub(crate) fn topology_assignment(leg: Option<&Leg>, pod_set: &str, count: u32) -> Option<Value> {
    let placement = leg?.placement.as_ref()?;
    let set = placement
        .pod_sets
        .iter()
        .find(|set| set.name == pod_set)
        .filter(|set| set.is_whole() && !set.levels.is_empty())?;
    // Which of the places are free by now where some pods were given up isn't told.
    if set.domains.iter().map(|domain| domain.pods).fold(0, u32::saturating_add) != count {
        return None;
    }
    let domain = |domain: &PlacedDomain| DomainCount { values: domain.values.clone(), count: domain.pods };
    let assignment =
        Assignment { levels: set.levels.clone(), domains: set.domains.iter().map(domain).collect() };
    serde_json::to_value(Compressed::from(&assignment)).ok()
}

/// Where the pods are, pod set by pod set, as far as domains were named.
pub(crate) fn placement_status(leg: Option<&Leg>) -> Option<Value> {
    let domain = |domain: &PlacedDomain| json!({"values": domain.values, "pods": domain.pods});
    let one = |set: &PlacedPodSet| {
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
    Some(leg?.placement.as_ref()?.pod_sets.iter().map(one).collect())
}

/// Kueue's `unhealthyNodes`: lost nodes whose pods wait for another place. `None` where there are none.
pub(crate) fn unhealthy_nodes(leg: Option<&Leg>) -> Option<Value> {
    let unhealthy = &leg?.placement.as_ref()?.unhealthy;
    (!unhealthy.is_empty()).then(|| unhealthy.iter().map(|name| json!({"name": name})).collect())
}

/// The same in words, a line per pod set, and one for those that wait for another place.
pub(crate) fn placement_lines(workload: &Workload) -> Option<Vec<String>> {
    let placement = workload.right()?.1.placement.as_ref()?;
    let left = |at: usize| workload.spare().and_then(|spare| spare.get(at)).copied().filter(|left| *left > 0);
    let line = |(at, set): (usize, &PlacedPodSet)| {
        left(at).map_or_else(
            || set.to_string(),
            |left| format!("{set}; {left} of them {}", if left == 1 { "has left" } else { "have left" }),
        )
    };
    let waits = (!placement.unhealthy.is_empty())
        .then(|| format!("lost, and its pods wait for another place: {}", placement.unhealthy.join(", ")));
    Some(placement.pod_sets.iter().enumerate().map(line).chain(waits).collect())
}
