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
    assert_eq!((held.summary.admitted, evictions(&held)), (1, vec![]), "a running workload continues");
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

#[test]
fn a_queue_without_a_selector_selects_no_namespace() {
    let mut none = cluster_queue("none", json!({}));
    none["spec"].as_object_mut().unwrap().remove("namespaceSelector");
    let report = planned(vec![none, local_queue("side", "none"), workload("w", "side", json!({}))]);
    assert_eq!(
        waiting(&report, "n/w").message,
        "cluster queue `none` has no `namespaceSelector`, so it selects no namespace"
    );
}

/// A node of four cores.
fn node(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "labels": {"t4": "yes", "kubernetes.io/hostname": name}},
        "status": {
            "allocatable": {"cpu": "4", "pods": "10"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    })
}

/// A workload of one pod that takes a whole node.
fn whole_node(name: &str, status: Value) -> Value {
    let mut workload = workload(name, "t", status);
    let set = &mut workload["spec"]["podSets"][0];
    (set["count"], set["topologyRequest"]) = (json!(1), json!({"required": "kubernetes.io/hostname"}));
    set["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!("4");
    workload
}

#[test]
fn the_slot_that_a_replacement_leaves_is_given_to_others_in_the_next_cycle() {
    let domains = json!([{
        "domainCount": 1, "podCounts": {"universal": 1},
        "valuesPerLevel": [{"individual": {"roots": ["n-0"]}}],
    }]);
    let assigned = json!({
        "name": "main", "count": 1, "flavors": {"cpu": "t4"}, "resourceUsage": {"cpu": "4"},
        "topologyAssignment": {"levels": ["kubernetes.io/hostname"], "slices": domains},
    });
    let status = json!({
        "unhealthyNodes": [{"name": "n-0"}],
        "admission": {"clusterQueue": "topology", "podSetAssignments": [assigned]},
        "conditions": [
            condition("QuotaReserved", "True", "QuotaReserved"),
            condition("Admitted", "True", "Admitted"),
        ],
    });
    let report = planned(vec![
        kueue("Topology", "dc", json!({"levels": [{"nodeLabel": "kubernetes.io/hostname"}]})),
        kueue("ResourceFlavor", "t4", json!({"nodeLabels": {"t4": "yes"}, "topologyName": "dc"})),
        cluster_queue("topology", json!({"resourceGroups": cpu_quota("t4", "96")})),
        local_queue("t", "topology"),
        node("n-0"),
        node("n-1"),
        whole_node("run", status),
        whole_node("waits", json!({})),
    ]);
    let place = |name: &str| {
        let holder = report.admitted.iter().find(|holder| holder.workload == name).unwrap();
        let topology = holder.pod_sets[0].topology.as_ref().unwrap();
        (topology.domains[0].values.join("/"), holder.cycle)
    };
    assert_eq!(place("n/run").0, "n-1");
    assert_eq!(place("n/waits"), ("n-0".to_owned(), Some(2)));
}

/// Four cores are asked for and two are the queue's own, so it would borrow while it reclaims.
#[test]
fn the_resource_that_would_be_borrowed_is_named_where_reclaim_is_refused() {
    let group = |resource: &str, flavor: &str, nominal: i64| {
        let resources = json!([{"name": resource, "nominalQuota": nominal}]);
        json!({"coveredResources": [resource], "flavors": [{"name": flavor, "resources": resources}]})
    };
    let queue = |name: &str, cores: i64, gpus: i64| {
        let groups = json!([group("cpu", "f", cores), group("gpu", "fast", gpus)]);
        let reclaims = json!({"reclaimWithinCohort": "Any", "borrowWithinCohort": {"policy": "Never"}});
        let spec = json!({"cohortName": "all", "preemption": reclaims, "resourceGroups": groups});
        cluster_queue(name, spec)
    };
    let asks = |name: &str, queue: &str, status: Value| {
        let mut workload = workload(name, queue, status);
        let set = &mut workload["spec"]["podSets"][0];
        set["count"] = json!(4);
        set["template"]["spec"]["containers"][0]["resources"]["requests"] = json!({"cpu": "1", "gpu": "1"});
        workload
    };
    let assigned = json!({
        "name": "main", "count": 4, "flavors": {"cpu": "f", "gpu": "fast"},
        "resourceUsage": {"cpu": "4", "gpu": "4"},
    });
    let status = json!({
        "admission": {"clusterQueue": "other", "podSetAssignments": [assigned]},
        "conditions": [
            condition("QuotaReserved", "True", "QuotaReserved"),
            condition("Admitted", "True", "Admitted"),
        ],
    });
    let report = planned(vec![
        kueue("ResourceFlavor", "fast", json!({})),
        queue("owner", 2, 4),
        queue("other", 20, 0),
        local_queue("owner", "owner"),
        local_queue("other", "other"),
        asks("guest", "other", status),
        asks("mine", "owner", json!({})),
    ]);
    let mine = waiting(&report, "n/mine");
    assert_eq!(mine.message, "quota is in use, and its cluster queue may not preempt while it would borrow");
    let reason = mine.reasons.iter().find(|reason| reason.reason == "BorrowsWhileReclaiming").unwrap();
    assert_eq!(
        reason.message,
        "would have to borrow 2 cpu in flavor f (nominal quota 2), and with `borrowWithinCohort: Never` a \
         borrowing queue can't preempt in its cohort"
    );
    assert_eq!((reason.flavor.as_deref(), reason.resource.as_deref()), (Some("f"), Some("cpu")));
}
