//! Finds out to which offers nodes and requests in the cluster belong. Pure.

use super::order::{self, Order};
use crate::facts::{JobFacts, RequestFacts};
use crate::runner;
use crate::view::PoolNode;
use meridian_agent_core::runtime::{NodeRequest, NodeSpec};
use meridian_objects::spec::ProvisioningRequestConfigSpec;
use meridian_shared::ids::OfferId;
use meridian_shared::packing;
use std::collections::BTreeMap;

/// The class whose requests may get existing nodes with free capacity; the autoscaler makes only the missing
/// ones.
const BEST_EFFORT: &str = "best-effort-atomic-scale-up.autoscaling.x-k8s.io";
/// Conditions after which a request never gets nodes, or has lost them.
const FAILED: [&str; 3] = ["Failed", "BookingExpired", "CapacityRevoked"];

/// Orders by their offers.
type Orders = BTreeMap<OfferId, Order>;
/// Namespace and name of a request.
pub(super) type RequestKey = (String, String);

/// The requests of the orders' current attempts, each with its offer.
pub(super) fn followed(orders: &Orders) -> BTreeMap<RequestKey, OfferId> {
    let key = |order: &Order| ((order.request.namespace.to_string(), order.name()), order.offer());
    orders.values().map(key).collect()
}

/// The requests that jobs use the nodes of, each with the offer of the job.
pub(super) fn consumed<'j>(
    jobs: impl Iterator<Item = &'j JobFacts>,
) -> BTreeMap<RequestKey, Option<OfferId>> {
    jobs.filter_map(|job| Some(((job.namespace.clone(), job.consumes.clone()?), job.offer))).collect()
}

/// The requests with the offers that they belong to now. After a restart of the agent that isn't always the
/// offer for which a request was made.
pub(super) fn assigned<'r>(
    requests: impl Iterator<Item = &'r RequestFacts>,
    orders: &Orders,
    consumed: &BTreeMap<RequestKey, Option<OfferId>>,
) -> Vec<RequestFacts> {
    let followed = followed(orders);
    let assign = |request: &RequestFacts| {
        let key = request.key();
        let of_run = || consumed.get(&key).copied().flatten();
        let offer = followed.get(&key).copied().or_else(of_run).or(request.offer);
        RequestFacts { offer, ..request.clone() }
    };
    requests.map(assign).collect()
}

/// Of the requests that an earlier agent left, the one that a gang continues with: the oldest that asks for
/// the same nodes for the same workload, and hasn't failed.
pub(super) fn adoptable<'r>(
    left: impl Iterator<Item = &'r RequestFacts>,
    wanted: &NodeRequest,
    fingerprint: &str,
) -> Option<&'r RequestFacts> {
    let is_the_same = |request: &&RequestFacts| {
        request.uid == Some(wanted.uid)
            && request.namespace == *wanted.namespace
            && request.fingerprint.as_deref() == Some(fingerprint)
            && !request.deleting
            && !has_failed(request)
    };
    left.filter(is_the_same).min_by_key(|request| (request.created, request.name.clone()))
}

fn has_failed(request: &RequestFacts) -> bool {
    FAILED.iter().any(|kind| request.holds(kind).is_some())
}

/// Nodes of pools under runs that an earlier agent started, each with its offer. They must be claimed here,
/// because such a node looks unused between two pods. Nodes that are gone are kept, because their loss must
/// still be reported.
pub(super) fn inherited_claims<'j>(
    jobs: impl Iterator<Item = &'j JobFacts>,
    is_outside_pools: impl Fn(&str) -> bool,
) -> BTreeMap<String, OfferId> {
    let noted = |job: &JobFacts| {
        let offer = job.offer.filter(|_| job.consumes.is_some() && job.end.is_none())?;
        let nodes = runner::noted_nodes(job.notes.as_deref()?);
        Some(nodes.into_iter().map(move |node| (node, offer)))
    };
    // Some pods of the gang may be on nodes that weren't provisioned.
    jobs.filter_map(noted).flatten().filter(|(node, _)| !is_outside_pools(node)).collect()
}

/// Number of requests that the autoscaler works on, including those of an earlier agent.
pub(super) fn open_requests<'r>(orders: &Orders, requests: impl Iterator<Item = &'r RequestFacts>) -> usize {
    let followed = followed(orders);
    let is_at_rest = |request: &RequestFacts| request.holds("Provisioned").is_some() || has_failed(request);
    let inherited = requests.filter(|request| !followed.contains_key(&request.key()) && !is_at_rest(request));
    orders.values().filter(|order| order.is_open()).count() + inherited.count()
}

/// The nodes that were made for an order: those with the labels that its details name, or else the oldest
/// that joined after the request was made and that nothing uses, as many as the gang needs. For a class that
/// makes only missing nodes, older unused nodes count too, after the newer ones.
pub(super) fn own_nodes(
    order: &Order,
    facts: &RequestFacts,
    nodes: &[PoolNode],
    claims: &BTreeMap<String, OfferId>,
    config: &ProvisioningRequestConfigSpec,
) -> Vec<NodeSpec> {
    let is_free = |node: &&PoolNode| {
        !node.spec.unschedulable
            && claims.get(&node.spec.name).is_none_or(|claimed| *claimed == order.offer())
    };
    let selectors = &config.node_selector_from_detail;
    let labels: Option<Vec<(&String, &String)>> =
        selectors.iter().map(|(key, detail)| Some((key, facts.details.get(detail)?))).collect();
    if let Some(labels) = labels.filter(|labels| !labels.is_empty()) {
        let has = |node: &&PoolNode| labels.iter().all(|(k, v)| node.spec.labels.get(*k) == Some(*v));
        return nodes.iter().filter(is_free).filter(has).map(|node| node.spec.clone()).collect();
    }
    let wanted =
        |node: &&PoolNode| {
            order.request.gang.pod_sets.iter().any(|set| {
                set.node_selector.iter().all(|(key, value)| node.spec.labels.get(key) == Some(value))
            })
        };
    let is_older = |node: &PoolNode| node.created < facts.created;
    let may_be_older = config.class_name == BEST_EFFORT;
    let mut usable: Vec<&PoolNode> = nodes
        .iter()
        .filter(is_free)
        .filter(wanted)
        .filter(|node| !node.occupied && (may_be_older || !is_older(node)))
        .collect();
    usable.sort_by_key(|node| (is_older(node), node.created, &node.spec.name));
    let mut own = Vec::new();
    let mut blocks = Vec::new();
    for node in usable {
        own.push(node.spec.clone());
        blocks.push(order::block(&node.spec));
        if packing::fits(&blocks, &order.request.gang).is_ok() {
            break;
        }
    }
    own
}
