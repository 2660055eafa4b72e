//! How objects become holders, pending workloads and notes.

use super::*;
use crate::fixtures::*;
use meridian_queueing::model::Inactive;
use serde_json::{Value, json};

fn workload_class(name: &str, value: i32) -> Value {
    json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "WorkloadPriorityClass",
        "metadata": {"name": name}, "value": value,
    })
}

fn pod_class(name: &str, value: i32) -> Value {
    json!({
        "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
        "metadata": {"name": name}, "value": value, "globalDefault": true,
    })
}

/// A job of local queue `l`. Its pods never restart.
fn job(name: &str, mut spec: Value) -> Value {
    spec["template"]["spec"]["restartPolicy"] = json!("Never");
    json!({
        "apiVersion": "batch/v1", "kind": "Job", "spec": spec,
        "metadata": {
            "name": name, "namespace": "n", "uid": "u", "labels": {"kueue.x-k8s.io/queue-name": "l"},
        },
    })
}

#[test]
fn a_holder_keeps_its_assignment() {
    let mut status = admitted_status("q", "f", 2);
    status["conditions"].as_array_mut().unwrap().push(condition("Evicted", "True", "R"));
    status["reclaimablePods"] = json!([{"name": "main", "count": 2}]);
    let loaded = read(vec![workload("w", "l", status)]);
    let holder = found(&loaded, "n/w");
    let holding = holder.holding.as_ref().unwrap();
    assert_eq!(
        (holding.since, holding.evicted, holding.admitted, holding.given[0].count),
        (NOW - 1_800_000, true, true, 2)
    );
    assert_eq!(
        loaded.state.shape_of(holder.shape).counts.as_deref(),
        Some([1].as_slice()),
        "two of three pods are reclaimable"
    );
}

#[test]
fn workloads_that_are_not_queued_are_noted() {
    let mut inactive = workload("inactive", "l", json!({}));
    inactive["spec"]["active"] = json!(false);
    let more = vec![
        inactive,
        workload("lost", "elsewhere", json!({})),
        workload("over", "l", json!({"conditions": [condition("Finished", "True", "R")]})),
        workload("gone", "l", json!({"conditions": [condition("QuotaReserved", "True", "R")]})),
        local_queue("astray", "nothing"),
        workload("strayed", "astray", json!({})),
    ];
    let loaded = read(more);
    assert_eq!(loaded.state.workloads().count(), 0);
    for name in ["inactive", "lost", "gone", "strayed"] {
        assert!(
            loaded.notes.iter().any(|note| note.contains(&format!("`n/{name}`"))),
            "{name}: {:?}",
            loaded.notes
        );
    }
    assert!(!loaded.notes.iter().any(|note| note.contains("over")), "a finished workload needs no note");
}

#[test]
fn some_evictions_move_a_workload_back_in_the_queue() {
    let evicted =
        |reason: &str| workload("w", "l", json!({"conditions": [condition("Evicted", "True", reason)]}));
    let since =
        |reason: &str, options: &LoadOptions| found(&read_with(vec![evicted(reason)], options), "n/w").since;
    let (created, moved) = (NOW - 3_600_000, NOW - 1_800_000);
    let usual = LoadOptions::default();
    assert_eq!(since("Preempted", &usual), created);
    assert_eq!((since("PodsReadyTimeout", &usual), since("AdmissionCheck", &usual)), (moved, moved));
    assert_eq!(
        since(
            "PodsReadyTimeout",
            &LoadOptions { unready_requeue_by_creation: true, ..LoadOptions::default() }
        ),
        created
    );
    let mut by_age = LoadOptions::default();
    by_age.settings.gates.priority_sorting_within_cohort = false;
    let preempted = workload(
        "w",
        "l",
        json!({"conditions": [condition("Preempted", "True", "InCohortReclaimWhileBorrowing")]}),
    );
    assert_eq!(found(&read_with(vec![preempted.clone()], &by_age), "n/w").since, moved + 1);
    assert_eq!(found(&read(vec![preempted]), "n/w").since, created);
}

#[test]
fn backoff_and_stopped_local_queue_park_a_workload() {
    let later =
        workload("later", "l", json!({"requeueState": {"count": 1, "requeueAt": "2026-06-01T12:00:01Z"}}));
    let sooner =
        workload("sooner", "l", json!({"requeueState": {"count": 1, "requeueAt": "2026-06-01T12:00:00Z"}}));
    let mut stopped = local_queue("stopped", "q");
    stopped["spec"]["stopPolicy"] = json!("Hold");
    let loaded = read(vec![later, sooner, stopped, workload("held", "stopped", json!({}))]);
    let pending = loaded.state.pending(loaded.state.queue_id("q").unwrap());
    let names = |ids: Vec<WorkloadId>| -> Vec<String> {
        ids.iter().map(|id| loaded.state.workload(*id).unwrap().key.to_string()).collect()
    };
    assert_eq!(names(pending.active().map(|position| position.workload).collect()), ["n/sooner"]);
    let mut parked = names(pending.parked().map(|position| position.workload).collect());
    parked.sort();
    assert_eq!(parked, ["n/held", "n/later"]);
}

#[test]
fn a_priority_comes_from_spec_or_class_and_may_be_boosted() {
    let class = workload_class("high", 50);
    let mut workload = workload("w", "l", json!({}));
    workload["spec"]["priorityClassRef"] =
        json!({"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": "high"});
    workload["metadata"]["annotations"] = json!({"kueue.x-k8s.io/priority-boost": "7"});
    let priority = |options: &LoadOptions| {
        let loaded = read_with(vec![class.clone(), workload.clone()], options);
        loaded.state.shape_of(found(&loaded, "n/w").shape).priority
    };
    assert_eq!(priority(&LoadOptions::default()), 50);
    assert_eq!(priority(&LoadOptions { priority_boost: true, ..LoadOptions::default() }), 57);
}

#[test]
fn a_job_has_the_priority_of_its_classes() {
    let job = |name: &str, class: Option<&str>, pod_class: Option<&str>| {
        let mut job = job(name, json!({"template": {"spec": {"containers": [{"name": "c"}]}}}));
        if let Some(class) = class {
            job["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = json!(class);
        }
        if let Some(class) = pod_class {
            job["spec"]["template"]["spec"]["priorityClassName"] = json!(class);
        }
        job
    };
    let jobs = || {
        vec![
            job("none", None, None),
            job("pods", None, Some("b")),
            job("system", None, Some("system-node-critical")),
            job("both", Some("high"), Some("b")),
        ]
    };
    let priorities = |loaded: &Loaded| {
        ["none", "pods", "system", "both"]
            .map(|name| loaded.state.shape_of(found(loaded, &format!("n/{name}")).shape).priority)
    };
    let classes = vec![pod_class("a", 9), pod_class("b", 4), workload_class("high", 50)];
    assert_eq!(
        priorities(&read([classes.clone(), jobs()].concat())),
        [4, 4, 2_000_001_000, 50],
        "the lowest of several default classes counts"
    );
    assert_eq!(
        priorities(&read([classes, vec![workload_class("default", 7)], jobs()].concat())),
        [7, 7, 7, 50],
        "the class with the name `default` counts"
    );
    let loaded = read(vec![job("typo", Some("hihg"), None), job("pod-typo", None, Some("hihg"))]);
    let unfit = |name: &str| found(&loaded, name).marks().unfit.clone().unwrap_or_default().to_string();
    assert_eq!(unfit("n/typo"), "WorkloadPriorityClass `hihg` not found");
    assert_eq!(unfit("n/pod-typo"), "PriorityClass `hihg` not found");
}

#[test]
fn an_inadmissible_workload_has_a_reason() {
    let mut greedy = workload("greedy", "l", json!({}));
    greedy["spec"]["podSets"][0]["template"]["spec"]["containers"][0]["resources"]["limits"] =
        json!({"cpu": "500m"});
    let narrow = vec![
        cluster_queue("narrow", json!({"namespaceSelector": {"matchLabels": {"team": "a"}}})),
        local_queue("side", "narrow"),
    ];
    let loaded = read(
        [narrow, vec![greedy, workload("stranger", "side", json!({})), workload("fine", "l", json!({}))]]
            .concat(),
    );
    assert!(found(&loaded, "n/greedy").marks().unfit.is_some());
    let stranger = found(&loaded, "n/stranger").marks();
    assert!(stranger.wrong_namespace && stranger.unfit.is_some());
    assert_eq!(found(&loaded, "n/fine").marks, None);
    let strict = read_with(
        vec![workload("w", "l", json!({}))],
        &LoadOptions { namespaces_declared: true, ..LoadOptions::default() },
    );
    assert!(found(&strict, "n/w").marks().unfit.as_ref().is_some_and(|why| why.contains("doesn't exist")));
}

#[test]
fn inactive_queues_have_a_reason() {
    let more = vec![
        cluster_queue("stopped", json!({"stopPolicy": "Hold"})),
        cluster_queue("bare", json!({"resourceGroups": cpu_quota("missing", "1")})),
        cluster_queue(
            "unchecked",
            json!({"admissionChecksStrategy": {"admissionChecks": [{"name": "nobody"}]}}),
        ),
        cluster_queue("circular", json!({"cohortName": "round"})),
        kueue("Cohort", "round", json!({"parentName": "round"})),
    ];
    let loaded = read(more);
    let why = |name: &str| loaded.state.queue(loaded.state.queue_id(name).unwrap()).setup.inactive.clone();
    assert_eq!(why("q"), None);
    assert_eq!(why("stopped"), Some(Inactive::Stopped));
    assert_eq!(why("bare"), Some(Inactive::FlavorNotFound("missing".into())));
    assert_eq!(why("unchecked"), Some(Inactive::AdmissionCheck("nobody".into())));
    assert_eq!(loaded.state.queue(loaded.state.queue_id("circular").unwrap()).node, None);
    assert_eq!(loaded.notes.len(), 4, "{:?}", loaded.notes);
    let check = kueue("AdmissionCheck", "silent", json!({"controllerName": "somebody"}));
    let asks =
        cluster_queue("asks", json!({"admissionChecksStrategy": {"admissionChecks": [{"name": "silent"}]}}));
    let silent = |checks_need_active_condition: bool| {
        let loaded = read_with(
            vec![check.clone(), asks.clone()],
            &LoadOptions { checks_need_active_condition, ..LoadOptions::default() },
        );
        loaded.state.queue(loaded.state.queue_id("asks").unwrap()).setup.inactive.clone()
    };
    assert_eq!((silent(false), silent(true)), (None, Some(Inactive::CheckInactive("silent".into()))));
}

#[test]
fn a_job_with_a_workload_is_not_queued_twice() {
    let container = json!({"name": "c", "resources": {"requests": {"cpu": "1"}}});
    let template = json!({
        "metadata": {"annotations": {"kueue.x-k8s.io/podset-required-topology": "rack"}},
        "spec": {"containers": [container]},
    });
    let mut job = job("j", json!({"parallelism": 4, "completions": 4, "template": template}));
    job["metadata"]["annotations"] = json!({"kueue.x-k8s.io/job-min-parallelism": "2"});
    let loaded = read(vec![job.clone()]);
    let shape = loaded.state.shape_of(found(&loaded, "n/j").shape);
    assert_eq!(
        (shape.pod_sets[0].count, shape.pod_sets[0].min_count, shape.pod_sets[0].requests_topology()),
        (4, Some(2), true)
    );
    let mut workload = workload("job-j", "l", json!({}));
    workload["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "u", "controller": true}]);
    let loaded = read(vec![job, workload]);
    assert_eq!((loaded.state.find("n/j"), loaded.state.workloads().count()), (None, 1));
}

#[test]
fn resource_rules_change_quota_requests_only() {
    let rule = meridian_objects::Transformation::from_json(
        &json!({"input": "cpu", "strategy": "Replace", "outputs": {"credits": "2"}}),
    )
    .unwrap();
    let loaded = read_with(
        vec![workload("w", "l", json!({}))],
        &LoadOptions {
            resources: ResourceRules { transformations: vec![rule], ..ResourceRules::default() },
            ..LoadOptions::default()
        },
    );
    let shape = loaded.state.shape_of(found(&loaded, "n/w").shape);
    let named: Vec<(&str, i64)> = shape.pod_sets[0]
        .per_pod
        .iter()
        .map(|(resource, amount)| (&**loaded.state.resource_name(*resource), *amount))
        .collect();
    assert_eq!(named, [("credits", 2)]);
    assert_eq!(shape.pod_sets[0].on_node["cpu"], 1_000, "nodes provide what the pods request");
}

#[test]
fn redeclaring_queues_keeps_pending_workloads() {
    let mut loaded = read(vec![workload("w", "l", json!({}))]);
    let flavorless: Vec<PlanObject> = [cluster_queue("q", json!({"stopPolicy": "Hold"}))]
        .iter()
        .map(|object| PlanObject::lenient(object).unwrap())
        .collect();
    loaded.redeclare(&flavorless);
    let queue = loaded.state.queue_id("q").unwrap();
    let flavor = loaded.state.flavor_id("f");
    assert_eq!(
        (loaded.state.queue(queue).setup.inactive.clone(), loaded.state.flavor(flavor)),
        (Some(Inactive::Stopped), None)
    );
    assert_eq!(loaded.state.pending(queue).len(), 1);
}

#[test]
fn limit_ranges_and_runtime_classes_apply_to_jobs() {
    let container = json!({"type": "Container", "defaultRequest": {"cpu": "500m"}, "max": {"cpu": "2"}});
    let limits = json!({
        "apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "usual", "namespace": "n"},
        "spec": {"limits": [container]},
    });
    let class = json!({
        "apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "vm"}, "handler": "h",
        "overhead": {"podFixed": {"cpu": "250m"}},
    });
    let job = |name: &str, resources: Value| {
        let pod = json!({"runtimeClassName": "vm", "containers": [{"name": "c", "resources": resources}]});
        job(name, json!({"parallelism": 4, "completions": 4, "template": {"spec": pod}}))
    };
    let loaded =
        read(vec![limits, class, job("plain", json!({})), job("greedy", json!({"requests": {"cpu": "3"}}))]);
    let set = &loaded.state.shape_of(found(&loaded, "n/plain").shape).pod_sets[0];
    assert_eq!(
        (set.per_pod.as_slice(), set.on_node["cpu"]),
        ([(loaded.state.resource_id("cpu").unwrap(), 750)].as_slice(), 750)
    );
    assert_eq!(found(&loaded, "n/plain").marks, None);
    assert!(
        found(&loaded, "n/greedy").marks().unfit.as_ref().is_some_and(|why| why.contains("`cpu`")),
        "{:?}",
        found(&loaded, "n/greedy").marks()
    );
}

#[test]
fn lost_nodes_count_only_with_their_feature_gate() {
    let mut hit = running("w", "l");
    hit["status"]["unhealthyNodes"] = json!([{"name": "h"}]);
    let lost = |replaces: bool| {
        let mut options = LoadOptions::default();
        options.settings.gates.failed_node_replacement = replaces;
        found(&read_with(vec![hit.clone()], &options), "n/w").marks().lost_nodes.clone()
    };
    assert_eq!((lost(true), lost(false)), (vec!["h".to_owned()], vec![]));
}

#[test]
fn cyclic_cohorts_are_listed_with_their_parents() {
    let cohort = |name: &str, parent: &str| {
        PlanObject::lenient(&kueue("Cohort", name, json!({"parentName": parent}))).unwrap()
    };
    let objects = [
        cohort("a", "b"),
        cohort("b", "c"),
        cohort("c", "a"),
        cohort("below", "a"),
        cohort("d", "d"),
        cohort("e", "f"),
    ];
    assert_eq!(cyclic_cohorts(&objects), [("a", "b"), ("b", "c"), ("c", "a"), ("d", "d")]);
}
