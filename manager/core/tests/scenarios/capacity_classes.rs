//! The order of capacity classes, and the next class after a failure of the provider.

use super::*;
use meridian_agent_core::ProviderEvent;
use meridian_shared::packing::Block;

/// Labels of nodes by the name of their pool and flavor.
const POOLS: [(&str, &str, &str); 3] = [
    ("spot", "cloud.google.com/gke-spot", "true"),
    ("flex", "cloud.google.com/gke-flex-start", "true"),
    ("plain", "cloud.google.com/gke-nodepool", "plain"),
];

/// Two clusters without nodes that can make some of each pool, and a queue that lists the flavors in the
/// order of `POOLS`.
fn pools_from_zero(policy: Option<Value>) -> Fleet {
    let mut f = Fleet::without_agents(&[("eu", "europe-west4", "EU"), ("us", "us-east4", "US")]);
    for (ledger, name) in [(1_000, "eu"), (1_001, "us")] {
        f.add_agent(name, ledger);
        let pool = |(_, label, value): (&str, &str, &str)| Block {
            nodes: 4,
            free: Amounts::from([(GPU.into(), 4)]),
            capacity: Amounts::from([(GPU.into(), 4)]),
            labels: [(label.to_owned(), value.to_owned())].into(),
            taints: Vec::new(),
        };
        let pools = POOLS.map(pool).to_vec();
        let agent = f.agents.get_mut(&ClusterName::from(name)).unwrap();
        agent.apply(now(f.now), AgentInput::Nodes { nodes: Vec::new(), pools });
    }
    let flavor = |(name, label, value): (&str, &str, &str)| {
        kueue_object("ResourceFlavor", name, json!({"nodeLabels": {label: value}}))
    };
    let mut objects: Vec<Value> = POOLS.map(flavor).to_vec();
    let quotas: Vec<Value> = POOLS.iter().map(|(name, ..)| flavor_quota(name, 100)).collect();
    objects.push(kueue_object(
        "ClusterQueue",
        "classes",
        json!({"namespaceSelector": {}, "resourceGroups": [{"coveredResources": [GPU], "flavors": quotas}]}),
    ));
    objects.push(local_queue("classes", "classes"));
    f.apply(objects);
    f.settle();
    if let Some(spec) = policy {
        f.apply(vec![meridian_object("DispatchPolicy", "classes", spec)]);
    }
    f.settle();
    f
}

fn policy(classes: &[&str]) -> Option<Value> {
    Some(json!({"applies": {"queues": ["classes"]}, "capacityClasses": classes, "mode": "Race"}))
}

/// The pool of each request for nodes since the last failure.
fn asked(f: &Fleet) -> Vec<&'static str> {
    let pool_of = |request: &NodeRequest| {
        let selector = &request.gang.pod_sets[0].node_selector;
        let pool = POOLS.iter().find(|(_, label, value)| selector.get(*label).is_some_and(|v| v == value));
        pool.expect("every flavor has a pool").0
    };
    f.node_requests.iter().map(pool_of).collect()
}

/// The providers of all clusters that were asked fail.
fn fail_all(f: &mut Fleet) {
    for offer in std::mem::take(&mut f.node_requests).into_iter().map(|request| request.offer) {
        for agent in f.agents.values_mut() {
            let reason = "ZONE_RESOURCE_POOL_EXHAUSTED".to_owned();
            agent.apply(now(f.now), AgentInput::Provider(ProviderEvent::Failed { offer, reason }));
        }
    }
}

#[test]
fn flavors_are_tried_in_the_order_of_the_capacity_classes() {
    for (classes, expected) in [
        (None, "spot"),
        (policy(&["flex-start", "on-demand", "spot"]), "flex"),
        (policy(&["on-demand", "flex-start"]), "plain"),
        // The queue has no flavor of a reservation.
        (policy(&["reservation", "spot"]), "spot"),
        // Flavors of other classes come last, in the order of the queue.
        (policy(&["reservation"]), "spot"),
    ] {
        let mut f = pools_from_zero(classes.clone());
        f.submit_to("classes", "train", 2, None);
        f.settle();
        let pools = asked(&f);
        assert!(!pools.is_empty() && pools.iter().all(|pool| *pool == expected), "{classes:?}: {pools:?}");
    }
}

#[test]
fn a_policy_that_is_applied_later_changes_the_order_for_jobs_that_wait() {
    let mut f = pools_from_zero(None);
    f.apply(vec![cluster_queue("classes", 0, &json!({"stopPolicy": "Hold"}))]);
    let uid = f.submit_to("classes", "train", 2, None);
    f.settle();
    assert_eq!(asked(&f), [""; 0]);
    f.apply(vec![meridian_object("DispatchPolicy", "classes", policy(&["on-demand"]).unwrap())]);
    let quotas: Vec<Value> = POOLS.iter().map(|(name, ..)| flavor_quota(name, 100)).collect();
    f.apply(vec![kueue_object(
        "ClusterQueue",
        "classes",
        json!({"namespaceSelector": {}, "resourceGroups": [{"coveredResources": [GPU], "flavors": quotas}]}),
    )]);
    f.settle();
    assert_eq!(asked(&f), ["plain", "plain"], "{:#}", f.why(uid));
}

#[test]
fn the_next_class_is_tried_after_every_cluster_failed_to_provide_the_first() {
    let mut f = pools_from_zero(policy(&["flex-start", "on-demand", "spot"]));
    let uid = f.submit_to("classes", "train", 2, None);
    f.settle();
    // One cluster fails; the other one is still waited for.
    let first = f.node_requests[0].offer;
    let reason = "ZONE_RESOURCE_POOL_EXHAUSTED".to_owned();
    for agent in f.agents.values_mut() {
        let failed = ProviderEvent::Failed { offer: first, reason: reason.clone() };
        agent.apply(now(f.now), AgentInput::Provider(failed));
    }
    f.settle();
    assert_eq!(asked(&f), ["flex", "flex"], "{:#}", f.why(uid));
    fail_all(&mut f);
    f.settle();
    assert_eq!(asked(&f), ["plain", "plain"], "{:#}", f.why(uid));
    fail_all(&mut f);
    f.settle();
    assert_eq!(asked(&f), ["spot", "spot"], "{:#}", f.why(uid));
    fail_all(&mut f);
    f.settle();
    // No class is left, until the first backoff ends.
    assert_eq!(asked(&f), [""; 0], "{:#}", f.why(uid));
    assert!(f.why(uid).to_string().contains("ZONE_RESOURCE_POOL_EXHAUSTED"), "{:#}", f.why(uid));
    f.now += Millis::mins(1).0;
    f.settle();
    assert!(asked(&f).contains(&"flex"), "{:#}", f.why(uid));
}

/// The flavor `plain` has the label of a pool of reserved nodes in one cluster.
#[test]
fn pools_tell_the_class_of_a_flavor_whose_labels_tell_none() {
    let pool = |class: &str| {
        let (_, label, value) = POOLS[2];
        let pool = json!({"name": "plain", "capacityClass": class, "maxNodes": 4,
            "perNode": {GPU: 4}, "labels": {label: value, "more": "labels"}});
        let mut cluster = cluster_object("eu", "europe-west4", "EU");
        cluster["spec"]["provisionable"] = json!([pool]);
        cluster
    };
    for (class, expected) in [("reservation", "plain"), ("flex-start", "flex")] {
        let mut f = pools_from_zero(policy(&["reservation", "flex-start"]));
        f.apply(vec![pool(class)]);
        f.submit_to("classes", "train", 2, None);
        f.settle();
        let pools = asked(&f);
        assert!(pools.contains(&expected), "{class}: {pools:?}");
    }
}
