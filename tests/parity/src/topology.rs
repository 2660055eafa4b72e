//! Group 5: placing pod sets in a topology.

use crate::json::{amounts, fields, items, number, text, text_map, texts};
use crate::verdict::Verdict;
use anyhow::{Context, bail};
use meridian_shared::gang::{Amounts, Operator, Requirement, Taint, TaintEffect, Toleration};
use meridian_topology::compressed::Compressed;
use meridian_topology::{
    Assignment, Assumed, Constraint, Flavor, LostNodes, Node, Options, PodSetRequest, PodSetResult,
    PreferredTerm, Profile, SliceLayer, Topology, TopologyRequest, Usage,
};
use serde_json::Value;
use std::collections::BTreeMap;

/// Node affinity may match the name of a node by this field. Nodes have it as a label here.
const NAME_FIELD: &str = "metadata.name";

pub(crate) fn replay(case: &Value) -> anyhow::Result<Verdict> {
    let act = &case["act"];
    let mut topology = topology(case)?;
    for usage in items(&act["ownFlavorUsage"]) {
        let (assignment, per_pod) = used(usage)?;
        topology.add_usage(Usage { assignment: &assignment, per_pod: &per_pod });
    }
    for usage in items(&act["otherFlavorUsage"]) {
        let (assignment, per_pod) = used(usage)?;
        topology.add_sibling_usage(Usage { assignment: &assignment, per_pod: &per_pod });
    }
    let mut assumed = assumed(&act["otherFlavorsDomainUsage"])?;
    let requests = items(&act["podSets"]).iter().map(request).collect::<anyhow::Result<Vec<_>>>()?;
    let workload =
        objects(case, "Workload").find(|workload| act["workload"].as_str() == Some(key(workload).as_str()));
    let (admitted, nodes) = workload.map_or_else(|| Ok(Default::default()), admitted)?;
    let pinned =
        gate(case, "SkipReassignmentForPodOwnedWorkloads", true) && workload.is_some_and(is_single_pod);
    let lost = (!nodes.is_empty()).then_some(LostNodes { admitted: &admitted, nodes: &nodes, pinned });
    let simulate_empty = act["simulateEmpty"].as_bool().unwrap_or(false);
    let outcomes = topology.assign_with_assumed(&requests, Options { simulate_empty, lost }, &mut assumed);
    compare(case, &requests, &outcomes)
}

fn compare(case: &Value, requests: &[PodSetRequest], outcomes: &[PodSetResult]) -> anyhow::Result<Verdict> {
    let (mut decisions, mut wordings) = (Vec::new(), Vec::new());
    let expected: BTreeMap<&str, &Value> =
        items(&case["expect"]["podSets"]).iter().map(|set| (text(&set["name"]), set)).collect();
    for (request, outcome) in requests.iter().zip(outcomes) {
        let Some(expect) = expected.get(request.name.as_str()) else {
            if outcome.is_some() {
                decisions.push(format!("`{}`: {}, expected no result", request.name, outcome_text(outcome)));
            }
            continue;
        };
        let (reason, wanted) = (expect["reason"].as_str(), &expect["topologyAssignment"]);
        let same = match outcome {
            None => reason.is_none() && wanted.is_null(),
            Some(Ok(assignment)) => reason.is_none() && *assignment == self::assignment(wanted)?,
            Some(Err(_)) => reason.is_some(),
        };
        let difference = format!(
            "`{}`: {}\nexpected: {}",
            request.name,
            outcome_text(outcome),
            reason.map_or_else(|| wanted.to_string(), str::to_owned)
        );
        match outcome {
            _ if !same => decisions.push(difference),
            Some(Err(misfit)) if reason != Some(misfit.to_string().as_str()) => wordings.push(difference),
            _ => {}
        }
    }
    Ok(match (decisions.is_empty(), wordings.is_empty()) {
        (true, true) => Verdict::Same,
        (true, false) => Verdict::OtherWording(wordings.join("\n")),
        (false, _) => Verdict::Differs(decisions.join("\n")),
    })
}

fn outcome_text(outcome: &PodSetResult) -> String {
    match outcome {
        None => "no result".into(),
        Some(Ok(assignment)) => serde_json::to_string(assignment).unwrap_or_default(),
        Some(Err(misfit)) => misfit.to_string(),
    }
}

fn topology(case: &Value) -> anyhow::Result<Topology> {
    let act = &case["act"];
    let flavor = Flavor {
        topology: text(&act["topologyName"]).to_owned(),
        levels: texts(&act["levels"]),
        node_labels: text_map(&act["flavorNodeLabels"]),
        tolerations: items(&act["flavorTolerations"])
            .iter()
            .map(toleration)
            .collect::<anyhow::Result<_>>()?,
        profile: Profile {
            mixed: gate(case, "TASProfileMixed", true),
            balanced: gate(case, "TASBalancedPlacement", false),
            preferred_affinity: gate(case, "TASRespectNodeAffinityPreferred", false),
            overlapping_flavors: gate(case, "TASHandleOverlappingFlavors", true),
            elastic: gate(case, "ElasticJobsViaWorkloadSlicesWithTAS", false),
        },
    };
    let nodes = objects(case, "Node").map(node).collect::<anyhow::Result<Vec<_>>>()?;
    let mut topology = Topology::new(flavor, &nodes);
    let ended = |pod: &Value| matches!(text(&pod["status"]["phase"]), "Succeeded" | "Failed");
    for pod in objects(case, "Pod").filter(|pod| !ended(pod)) {
        topology.occupy(text(&pod["spec"]["nodeName"]), &pod_requests(&pod["spec"])?);
    }
    Ok(topology)
}

fn gate(case: &Value, name: &str, default: bool) -> bool {
    case["config"]["featureGates"][name].as_bool().unwrap_or(default)
}

fn node(node: &Value) -> anyhow::Result<Node> {
    let name = text(&node["metadata"]["name"]).to_owned();
    let mut labels = text_map(&node["metadata"]["labels"]);
    labels.insert(NAME_FIELD.into(), name.clone());
    let ready = items(&node["status"]["conditions"])
        .iter()
        .any(|condition| text(&condition["type"]) == "Ready" && text(&condition["status"]) == "True");
    Ok(Node {
        name,
        labels,
        taints: items(&node["spec"]["taints"]).iter().map(taint).collect::<anyhow::Result<_>>()?,
        ready,
        unschedulable: node["spec"]["unschedulable"].as_bool().unwrap_or(false),
        allocatable: amounts(&node["status"]["allocatable"])?,
    })
}

/// The sum of the containers, or the largest init container if that requests more; plus the overhead.
fn pod_requests(spec: &Value) -> anyhow::Result<Amounts> {
    let mut total = Amounts::new();
    for container in items(&spec["containers"]) {
        meridian_shared::gang::add_scaled(&mut total, &amounts(&container["resources"]["requests"])?, 1);
    }
    for container in items(&spec["initContainers"]) {
        for (resource, amount) in amounts(&container["resources"]["requests"])? {
            let most = total.entry(resource).or_insert(0);
            *most = amount.max(*most);
        }
    }
    meridian_shared::gang::add_scaled(&mut total, &amounts(&spec["overhead"])?, 1);
    Ok(total)
}

fn request(set: &Value) -> anyhow::Result<PodSetRequest> {
    let affinity = &set["nodeAffinity"];
    let terms = &affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"];
    let preferred =
        items(&affinity["preferredDuringSchedulingIgnoredDuringExecution"]).iter().map(|preferred| {
            let weight = i32::try_from(preferred["weight"].as_i64().unwrap_or(0))?;
            Ok(PreferredTerm { weight, requirements: term(&preferred["preference"])? })
        });
    let previous = &set["previousAssignment"];
    Ok(PodSetRequest {
        name: text(&set["name"]).to_owned(),
        count: number(&set["count"])?,
        per_pod: amounts(&set["singlePodRequests"])?,
        topology: topology_request(&set["topologyRequest"])?,
        node_selector: text_map(&set["nodeSelector"]),
        affinity: items(terms).iter().map(term).collect::<anyhow::Result<_>>()?,
        preferred: preferred.collect::<anyhow::Result<_>>()?,
        tolerations: items(&set["tolerations"]).iter().map(toleration).collect::<anyhow::Result<_>>()?,
        group: set["podSetGroup"].as_str().map(str::to_owned),
        previous: if previous.is_null() { None } else { Some(assignment(previous)?) },
    })
}

fn topology_request(request: &Value) -> anyhow::Result<Option<TopologyRequest>> {
    if request.is_null() {
        return Ok(None);
    }
    let level = |field: &str| request[field].as_str().map(str::to_owned);
    let unconstrained =
        request["unconstrained"].as_bool().unwrap_or(false).then_some(Constraint::Unconstrained);
    let constraint = level("required")
        .map(Constraint::Required)
        .or_else(|| level("preferred").map(Constraint::Preferred))
        .or(unconstrained);
    let layer = |layer: &Value| {
        anyhow::Ok(SliceLayer { level: text(&layer["topology"]).to_owned(), size: number(&layer["size"])? })
    };
    let mut slices = items(&request["podsetSliceRequiredTopologyConstraints"])
        .iter()
        .map(layer)
        .collect::<anyhow::Result<Vec<_>>>()?;
    if let (true, Some(level)) = (slices.is_empty(), level("podSetSliceRequiredTopology")) {
        slices.push(SliceLayer { level, size: number(&request["podSetSliceSize"])? });
    }
    Ok(Some(TopologyRequest { constraint, slices }))
}

fn term(term: &Value) -> anyhow::Result<Vec<Requirement>> {
    items(&term["matchExpressions"]).iter().chain(items(&term["matchFields"])).map(requirement).collect()
}

fn requirement(requirement: &Value) -> anyhow::Result<Requirement> {
    let operator = match text(&requirement["operator"]) {
        "In" => Operator::In,
        "NotIn" => Operator::NotIn,
        "Exists" => Operator::Exists,
        "DoesNotExist" => Operator::DoesNotExist,
        "Gt" => Operator::Gt,
        "Lt" => Operator::Lt,
        other => bail!("`{other}` is not an operator"),
    };
    let values = texts(&requirement["values"]);
    Ok(Requirement { key: text(&requirement["key"]).to_owned(), operator, values })
}

fn effect(effect: &Value) -> anyhow::Result<TaintEffect> {
    Ok(match text(effect) {
        "NoSchedule" => TaintEffect::NoSchedule,
        "PreferNoSchedule" => TaintEffect::PreferNoSchedule,
        "NoExecute" => TaintEffect::NoExecute,
        other => bail!("`{other}` is not a taint effect"),
    })
}

fn taint(taint: &Value) -> anyhow::Result<Taint> {
    Ok(Taint {
        key: text(&taint["key"]).to_owned(),
        value: text(&taint["value"]).to_owned(),
        effect: effect(&taint["effect"])?,
    })
}

fn toleration(toleration: &Value) -> anyhow::Result<Toleration> {
    Ok(Toleration {
        key: toleration["key"].as_str().filter(|key| !key.is_empty()).map(str::to_owned),
        exists: text(&toleration["operator"]) == "Exists",
        value: text(&toleration["value"]).to_owned(),
        effect: if text(&toleration["effect"]).is_empty() {
            None
        } else {
            Some(effect(&toleration["effect"])?)
        },
        seconds: toleration["tolerationSeconds"].as_i64(),
    })
}

/// The placement of an admitted workload by pod set, and the nodes that it lost.
fn admitted(workload: &Value) -> anyhow::Result<(BTreeMap<String, Assignment>, Vec<String>)> {
    let status = &workload["status"];
    let mut admitted = BTreeMap::new();
    for set in items(&status["admission"]["podSetAssignments"]) {
        if !set["topologyAssignment"].is_null() {
            let compressed: Compressed =
                serde_json::from_value(set["topologyAssignment"].clone()).context("topologyAssignment")?;
            admitted.insert(text(&set["name"]).to_owned(), Assignment::try_from(&compressed)?);
        }
    }
    Ok((
        admitted,
        items(&status["unhealthyNodes"]).iter().map(|node| text(&node["name"]).to_owned()).collect(),
    ))
}

/// Whether a workload stands for one pod, and not for a group of pods.
fn is_single_pod(workload: &Value) -> bool {
    let metadata = &workload["metadata"];
    let owners = items(&metadata["ownerReferences"]);
    let pods =
        owners.iter().filter(|owner| text(&owner["kind"]) == "Pod" && text(&owner["apiVersion"]) == "v1");
    owners.len() == 1
        && pods.count() == 1
        && text(&metadata["annotations"]["kueue.x-k8s.io/is-group-workload"]) != "true"
}

fn used(usage: &Value) -> anyhow::Result<(Assignment, Amounts)> {
    let mut usage = usage.clone();
    let per_pod = amounts(&usage["singlePodRequests"].take())?;
    let values = texts(&usage["values"]);
    let domain = meridian_topology::DomainCount { values, count: number(&usage["count"])? };
    Ok((Assignment { levels: Vec::new(), domains: vec![domain] }, per_pod))
}

/// Amounts per domain that other flavors of the same workload use. A domain is written as its values with
/// commas.
fn assumed(usages: &Value) -> anyhow::Result<Assumed> {
    let mut assumed = Assumed::default();
    for (domain, usage) in fields(usages) {
        let values: Vec<String> = domain.split(',').map(str::to_owned).collect();
        assumed.add_amounts(&values, &amounts(usage)?);
    }
    for usage in items(usages) {
        let values: Vec<String> = match usage["domain"].as_str() {
            Some(domain) => domain.split(',').map(str::to_owned).collect(),
            None => texts(&usage["values"]),
        };
        let amounts_of = ["usage", "requests", "resources"]
            .iter()
            .map(|field| &usage[*field])
            .find(|value| value.is_object());
        match amounts_of {
            Some(whole) => assumed.add_amounts(&values, &amounts(whole)?),
            None => {
                let (assignment, per_pod) = used(usage)?;
                assumed.add(Usage { assignment: &assignment, per_pod: &per_pod });
            }
        }
    }
    Ok(assumed)
}

fn assignment(assignment: &Value) -> anyhow::Result<Assignment> {
    if assignment.is_null() {
        return Ok(Assignment::default());
    }
    let mut assignment = assignment.clone();
    if assignment["domains"].is_null() {
        assignment["domains"] = Value::Array(Vec::new());
    }
    serde_json::from_value(assignment).context("topology assignment")
}

fn objects<'a>(case: &'a Value, kind: &'a str) -> impl Iterator<Item = &'a Value> {
    items(&case["objects"]).iter().filter(move |object| text(&object["kind"]) == kind)
}

fn key(object: &Value) -> String {
    format!("{}/{}", text(&object["metadata"]["namespace"]), text(&object["metadata"]["name"]))
}
