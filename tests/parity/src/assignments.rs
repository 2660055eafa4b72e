//! Assignments in a form that compares.

use crate::json::{amounts, fields, items, number, text, text_map, texts};
use anyhow::Context;
use meridian_queueing::QueueState;
use meridian_queueing::model::{Delayed, PodSetAdmission, WorkloadId};
use meridian_topology::{Assignment, DomainCount};
use serde_json::Value;
use std::collections::BTreeMap;

/// What a workload holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct HeldQuota {
    cluster_queue: String,
    pod_sets: Vec<HeldPodSet>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct HeldPodSet {
    name: String,
    count: u32,
    flavors: BTreeMap<String, String>,
    /// Without zeros: a request of zero needs no flavor.
    usage: BTreeMap<String, i64>,
    placement: Option<Assignment>,
    delayed: Option<Delayed>,
}

/// What a workload holds; empty if the workload is gone.
pub(crate) fn held_quota(state: &QueueState, id: WorkloadId) -> HeldQuota {
    let Some(workload) = state.workload(id) else { return HeldQuota::default() };
    let shape = state.shape_of(workload.shape);
    let given = workload.holding.as_ref().map(|holding| holding.given.as_slice()).unwrap_or_default();
    HeldQuota {
        cluster_queue: state.queue(workload.queue).setup.name.to_string(),
        pod_sets: shape
            .pod_sets
            .iter()
            .zip(given)
            .map(|(set, given)| held_pod_set(state, &set.name, given))
            .collect(),
    }
}

/// What every holder holds, by workload.
pub(crate) fn holders(state: &QueueState) -> BTreeMap<String, HeldQuota> {
    let holders = state.workloads().filter(|(_, workload)| workload.holding.is_some());
    holders.map(|(id, workload)| (workload.key.to_string(), held_quota(state, id))).collect()
}

fn held_pod_set(state: &QueueState, name: &str, given: &PodSetAdmission) -> HeldPodSet {
    let flavors = given.flavors.iter().map(|(resource, flavor)| {
        (state.resource_name(*resource).to_string(), state.flavor_name(*flavor).to_string())
    });
    let usage = given
        .usage
        .iter()
        .filter(|(_, amount)| *amount != 0)
        .map(|(resource, amount)| (state.resource_name(*resource).to_string(), *amount));
    HeldPodSet {
        name: name.to_owned(),
        count: given.count,
        flavors: flavors.collect(),
        usage: usage.collect(),
        placement: given.placement.clone(),
        delayed: given.delayed,
    }
}

/// Expected assignments by workload.
pub(crate) fn expected_assignments(value: &Value) -> anyhow::Result<BTreeMap<String, HeldQuota>> {
    fields(value).map(|(key, admission)| Ok((key.clone(), expected_quota(admission)?))).collect()
}

pub(crate) fn expected_quota(admission: &Value) -> anyhow::Result<HeldQuota> {
    let mut pod_sets = Vec::new();
    for set in items(&admission["podSets"]) {
        let topology = &set["topologyAssignment"];
        let mut usage = amounts(&set["resourceUsage"])?;
        usage.retain(|_, amount| *amount != 0);
        pod_sets.push(HeldPodSet {
            name: text(&set["name"]).to_owned(),
            count: u32::try_from(set["count"].as_u64().context("count")?)?,
            flavors: text_map(&set["flavors"]),
            usage,
            placement: if topology.is_object() { Some(placement(topology)?) } else { None },
            delayed: match text(&set["delayedTopologyRequest"]) {
                "Pending" => Some(Delayed::Pending),
                "Ready" => Some(Delayed::Ready),
                _ => None,
            },
        });
    }
    Ok(HeldQuota { cluster_queue: text(&admission["clusterQueue"]).to_owned(), pod_sets })
}

fn placement(topology: &Value) -> anyhow::Result<Assignment> {
    let mut domains = Vec::new();
    for domain in items(&topology["domains"]) {
        domains.push(DomainCount { values: texts(&domain["values"]), count: number(&domain["count"])? });
    }
    Ok(Assignment { levels: texts(&topology["levels"]), domains })
}
