//! What plans say about workloads that wait or were evicted.

use crate::fixtures::*;
use crate::what_if::Loss;
use crate::{PlanReport, WhatIf};
use serde_json::{Value, json};

#[test]
fn a_parked_workload_has_its_own_reason() {
    let mut stopped = local_queue("stopped", "q");
    stopped["spec"]["stopPolicy"] = json!("Hold");
    let mut large = workload("large", "l", json!({}));
    large["spec"]["podSets"][0]["count"] = json!(30);
    let copy = |name: &str, queue: &str, status: Value| {
        let mut copy = large.clone();
        (copy["metadata"]["name"], copy["spec"]["queueName"], copy["status"]) =
            (json!(name), json!(queue), status);
        copy
    };
    let report = planned(vec![
        stopped,
        copy("held", "stopped", json!({})),
        copy("later", "l", json!({"requeueState": {"count": 1, "requeueAt": "2026-06-01T12:00:01Z"}})),
        copy("off", "l", json!({"conditions": [condition("Requeued", "False", "PodsReadyTimeout")]})),
        copy("twin", "l", json!({})),
        large,
    ]);
    let reason =
        |name: &str| (waiting(&report, name).obstacle.as_deref(), waiting(&report, name).message.as_str());
    assert_eq!(reason("n/held"), (Some("Suspended"), "local queue `n/stopped` is stopped"));
    assert_eq!(reason("n/later"), (Some("PendingEvaluation"), "backs off until 2026-06-01T12:00:01Z"));
    assert_eq!(reason("n/off"), (Some("PendingEvaluation"), "not requeued yet: `PodsReadyTimeout`"));
    assert!(["n/held", "n/later", "n/off"].iter().all(|name| waiting(&report, name).alike.is_none()));
    assert!(report.waiting.iter().any(|w| w.alike.is_some()), "an equivalent workload explains the twin");
}

#[test]
fn a_namespace_mismatch_is_reported_per_workload() {
    let mut elsewhere = local_queue("side", "narrow");
    elsewhere["metadata"]["namespace"] = json!("red");
    let mut red = workload("w", "side", json!({}));
    red["metadata"]["namespace"] = json!("red");
    let narrow = cluster_queue("narrow", json!({"namespaceSelector": {"matchLabels": {"team": "a"}}}));
    let report = planned(vec![
        narrow,
        local_queue("side", "narrow"),
        elsewhere,
        workload("w", "side", json!({})),
        red,
    ]);
    for namespace in ["n", "red"] {
        let message = &waiting(&report, &format!("{namespace}/w")).message;
        assert_eq!(
            *message,
            format!(
                "the `namespaceSelector` of cluster queue `narrow` doesn't match namespace `{namespace}`"
            )
        );
    }
}

#[test]
fn a_drained_queue_evicts_and_parks_its_workloads() {
    let stopped = |mut queue: Value, policy: &str| {
        queue["spec"]["stopPolicy"] = json!(policy);
        queue
    };
    let plan_with = |more: Vec<Value>| planned([more, vec![running("w", "l")]].concat());
    let evictions = |report: &PlanReport| {
        report.evicted.iter().map(|e| (e.workload.clone(), e.reason.clone(), e.cycle)).collect::<Vec<_>>()
    };
    let runs = plan_with(vec![]);
    let held = plan_with(vec![stopped(cluster_queue("q", json!({})), "Hold")]);
    assert_eq!((held.summary.admitted, evictions(&held)), (1, vec![]), "a running workload goes on");
    for (queue, reason, message) in [
        (
            cluster_queue("q", json!({})),
            "ClusterQueueStopped",
            "cluster queue `q` is inactive: it is stopped",
        ),
        (local_queue("l", "q"), "LocalQueueStopped", "local queue `n/l` is stopped"),
    ] {
        let drained = plan_with(vec![stopped(queue, "HoldAndDrain")]);
        assert_eq!(evictions(&drained), [("n/w".to_owned(), reason.to_owned(), 1)]);
        assert_eq!((drained.summary.admitted, waiting(&drained, "n/w").message.as_str()), (0, message));
        let change = WhatIf::new(Vec::new(), &runs, &drained);
        assert_eq!(
            (change.evicted.len(), change.starved[0].loss, change.is_empty()),
            (1, Loss::Evicted, false)
        );
    }
}

#[test]
fn a_resource_that_no_group_covers_blocks_for_good() {
    let mut picky = workload("picky", "l", json!({}));
    let container = &mut picky["spec"]["podSets"][0]["template"]["spec"]["containers"][0];
    container["resources"]["requests"]["example.com/tpu"] = json!("1");
    let report = planned(vec![picky]);
    let picky = waiting(&report, "n/picky");
    assert_eq!((picky.obstacle.as_deref(), picky.blocked_for_good), (Some("NoMatchingFlavor"), true));
    assert_eq!(picky.message, "no flavor of its cluster queue matches");
}

#[test]
fn a_full_topology_is_the_obstacle() {
    let placed = |name: &str, count: u32, priority: i64| {
        let mut workload = workload(name, "lt", json!({}));
        workload["spec"]["priority"] = json!(priority);
        let set = &mut workload["spec"]["podSets"][0];
        (set["count"], set["topologyRequest"]) =
            (json!(count), json!({"required": "kubernetes.io/hostname"}));
        workload
    };
    let groups = cpu_quota("tas", "4");
    let node = json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": "h", "labels": {"pool": "tas", "kubernetes.io/hostname": "h"}},
        "status": {
            "allocatable": {"cpu": "2", "pods": "9"}, "conditions": [{"type": "Ready", "status": "True"}],
        },
    });
    let objects = || {
        vec![
            kueue("Topology", "dc", json!({"levels": [{"nodeLabel": "kubernetes.io/hostname"}]})),
            kueue("ResourceFlavor", "tas", json!({"nodeLabels": {"pool": "tas"}, "topologyName": "dc"})),
            node.clone(),
            cluster_queue(
                "t",
                json!({"resourceGroups": groups, "preemption": {"withinClusterQueue": "LowerPriority"}}),
            ),
            local_queue("lt", "t"),
        ]
    };
    let report = planned([objects(), vec![placed("first", 1, 9), placed("second", 2, 0)]].concat());
    let second = waiting(&report, "n/second");
    assert_eq!(second.obstacle.as_deref(), Some("TopologyPlacementFailed"));
    assert_eq!(second.message, "no topology domain fits its pods, and no workload may be preempted for it");
    let mut runs = placed("runs", 1, 0);
    runs["status"] = admitted_status("t", "tas", 1);
    let report = planned([objects(), vec![runs, placed("wide", 4, 9)]].concat());
    let wide = waiting(&report, "n/wide");
    assert_eq!(wide.obstacle.as_deref(), Some("TopologyPlacementFailed"));
    let reasons: Vec<&str> = wide.reasons.iter().map(|reason| reason.reason.as_str()).collect();
    assert_eq!(reasons, ["InsufficientUnusedQuota", "TopologyPlacementFailed"]);
}
