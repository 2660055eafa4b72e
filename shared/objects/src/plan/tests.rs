//! What plans read, strictly and leniently.

use super::*;
use crate::parse::Problem;
use crate::spec::{CheckState, ConditionStatus, DelayedTopology, PodPhase, Spec};
use meridian_shared::gang::Amounts;
use meridian_shared::time::Millis;
use serde_json::json;

fn workload(spec: Value) -> Value {
    json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload", "metadata": {"name": "w", "namespace": "n"}, "spec": spec})
}

fn pod_set() -> Value {
    json!({"name": "main", "count": 2, "template": {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}}})
}

fn read(written: &Value) -> WorkloadObject {
    match PlanObject::from_value(written.clone()) {
        Ok((PlanObject::Workload(workload), _)) => *workload,
        other => panic!("{other:#?}"),
    }
}

fn check_error(written: Value, expect: &str) {
    let errors = PlanObject::from_value(written.clone()).unwrap_err();
    let shown: Vec<String> = errors.iter().map(ToString::to_string).collect();
    assert!(shown.iter().any(|error| error.contains(expect)), "wanted `{expect}` in {shown:#?}");
}

fn full() -> Value {
    let mut full = workload(json!({
        "queueName": "q", "priority": -5, "active": false, "maximumExecutionTimeSeconds": 90,
        "priorityClassRef": {"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": "high"},
        "preemptionGates": [{"name": "g"}],
        "podSets": [{
            "name": "main", "count": 4, "minCount": 2,
            "topologyRequest": {
                "preferred": "rack", "podIndexLabel": "i", "subGroupIndexLabel": "s", "subGroupCount": 2, "podSetGroupName": "g",
                "podsetSliceRequiredTopologyConstraints": [{"topology": "block", "size": 2}, {"topology": "rack", "size": 1}],
            },
            "template": {
                "metadata": {"labels": {"l": "1"}, "annotations": {"a": "b"}},
                "spec": {
                    "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}, "limits": {"memory": "1Ki"}}}],
                    "nodeSelector": {"x": "y"}, "runtimeClassName": "rc", "priorityClassName": "pc", "restartPolicy": "Always",
                    "tolerations": [{"operator": "Exists"}],
                },
            },
        }],
    }));
    full["metadata"] = json!({
        "name": "w", "namespace": "n", "uid": "u", "creationTimestamp": "2026-06-01T12:00:00.25Z", "generation": 3,
        "labels": {"kueue.x-k8s.io/job-uid": "j"},
        "annotations": {"kueue.x-k8s.io/priority-boost": "-30", "kueue.x-k8s.io/elastic-job": "true", "kueue.x-k8s.io/workload-slice-replacement-for": "n/old"},
        "ownerReferences": [
            {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "1"},
            {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "2", "controller": true},
        ],
    });
    full["status"] = json!({
        "conditions": [{"type": "QuotaReserved", "status": "True", "reason": "R", "message": "m", "lastTransitionTime": "1969-12-31T23:59:59.9995Z"}],
        "admission": {"clusterQueue": "cq", "podSetAssignments": [{
            "name": "main", "flavors": {"cpu": "f"}, "resourceUsage": {"cpu": "3"}, "count": 3,
            "topologyAssignment": {"levels": ["rack"], "slices": []}, "delayedTopologyRequest": "Pending",
        }]},
        "admissionChecks": [{
            "name": "ac", "state": "Retry", "message": "no", "lastTransitionTime": "2026-06-01T12:00:00Z", "requeueAfterSeconds": 5, "retryCount": 1,
            "podSetUpdates": [{"name": "main", "labels": {"k": "v"}, "nodeSelector": {"n": "1"}, "tolerations": [{"key": "t", "operator": "Exists"}]}],
        }],
        "requeueState": {"count": 2, "requeueAt": "2026-06-01T12:00:01Z"},
        "reclaimablePods": [{"name": "main", "count": 1}],
        "resourceRequests": [{"name": "main", "resources": {"cpu": "4"}}],
        "accumulatedPastExecutionTimeSeconds": 7,
        "schedulingStats": {"evictions": [{"reason": "Preempted", "underlyingCause": "", "count": 2}]},
        "nominatedClusterNames": ["a", "b"], "clusterName": "c",
        "unhealthyNodes": [{"name": "node-1"}],
        "preemptionGates": [{"name": "g", "position": "Open", "lastTransitionTime": "2026-06-01T12:00:00Z"}],
    });
    full
}

#[test]
fn the_whole_of_a_workload() {
    let found = read(&full());
    let moment = 1_780_315_200_000;
    assert_eq!(
        (found.meta.key().as_str(), found.meta.uid.as_str(), found.meta.created, found.meta.generation),
        ("n/w", "u", Some(moment + 250), 3)
    );
    assert_eq!(
        found.meta.controller().map(|owner| (owner.kind.as_str(), owner.uid.as_str())),
        Some(("Job", "2"))
    );
    assert_eq!(
        (found.priority(), found.priority_boost(), found.is_elastic(), found.replaces()),
        (-5, Some(-30), true, Some("n/old"))
    );
    let spec = &found.spec;
    assert_eq!(
        (spec.queue_name.as_str(), spec.active, spec.maximum_execution_time),
        ("q", false, Some(Millis::secs(90)))
    );
    assert_eq!(
        (spec.priority_class.as_ref().unwrap().name.as_str(), spec.preemption_gates.as_slice()),
        ("high", ["g".to_owned()].as_slice())
    );
    let set = found.pod_set("main").unwrap();
    assert_eq!(
        (set.count, set.min_count, set.template.requests()),
        (4, Some(2), Amounts::from([("cpu".into(), 1_000), ("memory".into(), 1_024)]))
    );
    assert_eq!(
        (
            set.template.runtime_class.as_deref(),
            set.template.priority_class.as_deref(),
            set.template.tolerations.len()
        ),
        (Some("rc"), Some("pc"), 1)
    );
    assert_eq!(
        (
            set.template.labels["l"].as_str(),
            set.template.annotations["a"].as_str(),
            set.template.node_selector["x"].as_str()
        ),
        ("1", "b", "y")
    );
    let topology = set.topology.as_ref().unwrap();
    assert_eq!(
        (topology.preferred.as_deref(), topology.sub_group_count, topology.group_name.as_deref()),
        (Some("rack"), Some(2), Some("g"))
    );
    assert_eq!(
        topology.slice_layers.iter().map(|layer| (layer.topology.as_str(), layer.size)).collect::<Vec<_>>(),
        [("block", 2), ("rack", 1)]
    );
    let status = &found.status;
    assert!(status.is("QuotaReserved") && !status.is("Admitted"));
    assert_eq!(status.condition("QuotaReserved").unwrap().since, Some(-1), "cut towards the past");
    let assigned = &status.admission.as_ref().unwrap().pod_sets[0];
    assert_eq!(
        (assigned.usage["cpu"], assigned.count, assigned.delayed_topology),
        (3_000, Some(3), Some(DelayedTopology::Pending))
    );
    assert_eq!(assigned.topology.as_ref().unwrap()["levels"], json!(["rack"]));
    let check = &status.admission_checks[0];
    assert_eq!(
        (check.state, check.requeue_after, check.since),
        (CheckState::Retry, Some(Millis::secs(5)), Some(moment))
    );
    assert_eq!(check.pod_set_updates[0].node_selector["n"], "1");
    assert_eq!(
        status.requeue.as_ref().map(|requeue| (requeue.count, requeue.at)),
        Some((Some(2), Some(moment + 1_000)))
    );
    assert_eq!(
        (
            status.reclaimable_pods[0].count,
            status.resource_requests[0].resources["cpu"],
            status.evictions[0].count
        ),
        (1, 4_000, 2)
    );
    assert_eq!(
        (status.past_execution_time, status.cluster_name.as_deref(), status.nominated_cluster_names.len()),
        (Some(Millis::secs(7)), Some("c"), 2)
    );
    assert_eq!(
        (status.unhealthy_nodes.as_slice(), status.preemption_gates[0].open),
        (["node-1".to_owned()].as_slice(), true)
    );
    let (_, warnings) = PlanObject::from_value(full()).unwrap();
    assert_eq!(warnings, [], "every field is known");
}

#[test]
fn both_versions_are_one_workload() {
    let old = conversion::to_version(Kind::Workload, &full(), V1BETA1);
    assert_eq!(old["spec"]["priorityClassSource"], "kueue.x-k8s.io/workloadpriorityclass");
    assert_eq!(old["status"]["accumulatedPastExexcutionTimeSeconds"], 7);
    assert_eq!(read(&old), read(&full()));
    let mut bad = old;
    bad["spec"]["priorityClassName"] = json!(7);
    check_error(bad.clone(), "spec.priorityClassName: must be a string");
    bad["spec"]["priorityClassSource"] = json!("elsewhere");
    check_error(bad.clone(), "spec.priorityClassSource: `elsewhere` is not a choice; the choices are");
    bad["spec"]["priorityClassSource"] = Value::Null;
    bad["status"]["accumulatedPastExexcutionTimeSeconds"] = json!("7");
    check_error(bad, "status.accumulatedPastExexcutionTimeSeconds: must be a whole number");
}

#[test]
fn defaults_of_a_workload() {
    let found =
        read(&workload(json!({"podSets": [{"template": {"spec": {"containers": [{"name": "c"}]}}}]})));
    assert_eq!(
        (
            found.spec.active,
            found.priority(),
            found.spec.pod_sets[0].count,
            found.spec.pod_sets[0].name.as_str()
        ),
        (true, 0, 1, "main")
    );
    assert_eq!((found.meta.created, found.status.admission.is_none()), (None, true));
}

#[test]
fn wrong_workloads_say_where() {
    let with = |name: &str, value: Value| {
        let mut set = pod_set();
        set[name] = value;
        workload(json!({"podSets": [set]}))
    };
    check_error(workload(json!({})), "spec.podSets: is missing");
    check_error(
        workload(json!({"podSets": [pod_set(), pod_set()]})),
        "spec.podSets[1].name: `main` is there twice",
    );
    check_error(
        workload(json!({"podSets": vec![pod_set(); 19]})),
        "spec.podSets: has 19 entries; the most is 18",
    );
    check_error(
        with("minCount", json!(3)),
        "spec.podSets[0].minCount: is more than `count`; write at most 2",
    );
    check_error(with("count", json!(-1)), "spec.podSets[0].count: `-1` is too small");
    check_error(with("count", json!(1e18)), "is too large");
    check_error(with("name", json!("Main")), "`Main` is not a name");
    check_error(
        with(
            "template",
            json!({"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "x"}}}]}}),
        ),
        "`x` is not a quantity",
    );
    check_error(with("template", json!([])), "spec.podSets[0].template: must be a mapping");
    check_error(with("topologyRequest", json!({"required": "a", "preferred": "b"})), "keep one of");
    check_error(with("topologyRequest", json!({"podSetSliceSize": 2})), "write both or neither");
    let one = json!([{"topology": "a", "size": 0}]);
    check_error(
        with("topologyRequest", json!({"podsetSliceRequiredTopologyConstraints": one})),
        "[0].size: `0` is too small",
    );
    let class = json!({"group": "g", "kind": "k", "name": "n"});
    check_error(
        workload(json!({"podSets": [pod_set()], "priorityClassRef": class})),
        "spec.priority: is missing",
    );
    for (status, expect) in [
        (
            json!({"conditions": [{"type": "A", "status": "Maybe"}]}),
            "status.conditions[0].status: `Maybe` is not a choice",
        ),
        (
            json!({"conditions": [{"type": "A", "status": "True", "lastTransitionTime": "noon"}]}),
            "`noon` is not a time",
        ),
        (json!({"requeueState": {"requeueAt": "9999999-01-01T00:00:00Z"}}), "is not a time"),
        (
            json!({"admission": {"clusterQueue": "c", "podSetAssignments": [{"name": "x"}]}}),
            "`x` is no pod set of this workload",
        ),
        (
            json!({"admission": {"clusterQueue": "c", "podSetAssignments": [{"name": "main", "resourceUsage": {"cpu": "9E"}}]}}),
            "`9E` is too large",
        ),
        (json!({"admissionChecks": [{"name": "a", "state": "Perhaps"}]}), "`Perhaps` is not a choice"),
        (json!({"unhealthyNodes": "n"}), "status.unhealthyNodes: must be a list"),
        (json!(7), "status: must be a mapping"),
    ] {
        let mut bad = workload(json!({"podSets": [pod_set()]}));
        bad["status"] = status;
        check_error(bad, expect);
    }
}

#[test]
fn lenient_reading_takes_what_can_be_understood() {
    let object = |written: Value| match PlanObject::lenient(&written) {
        Ok(PlanObject::Object(planned)) => planned.object.spec,
        other => panic!("{other:#?}"),
    };
    let kueue = |kind: &str, spec: Value| json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, "metadata": {"name": "Bad_Name"}, "spec": spec});
    let Spec::ResourceFlavor(flavor) = object(kueue("ResourceFlavor", json!({"topologyName": "t_1"}))) else {
        panic!("no flavor")
    };
    assert_eq!(flavor.topology_name.as_deref(), Some("t_1"));
    let quota = json!({"name": "cpu", "nominalQuota": "9223372036854775807", "borrowingLimit": "9E", "lendingLimit": "-1"});
    let groups = json!([{"flavors": [{"name": "A b", "resources": [quota]}]}]);
    let preemption = |block: Value| {
        let written = kueue(
            "ClusterQueue",
            json!({"resourceGroups": groups, "preemption": block, "cohortName": "C_1"}),
        );
        let Spec::ClusterQueue(queue) = object(written) else { panic!("no queue") };
        let quota = &queue.resource_groups[0].flavors[0].resources["cpu"];
        assert_eq!(
            (quota.nominal, quota.borrowing_limit, quota.lending_limit),
            (i64::MAX, Some(i64::MAX), Some(-1_000))
        );
        queue.preemption.reclaim_is_unset
    };
    assert!(!preemption(Value::Null), "no block is what a server fills in");
    assert!(!preemption(json!({"reclaimWithinCohort": "Never"})));
    assert!(
        preemption(json!({"reclaimWithinCohort": ""}))
            && preemption(json!({"withinClusterQueue": "LowerPriority"}))
    );
    let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"}, "spec": {"template": {"spec": {}}}});
    assert!(matches!(object(job), Spec::Job(_)));
    let mut bare = workload(
        json!({"podSets": [{"name": "One", "count": 0, "minCount": 3, "template": {"spec": {"containers": [{"name": ""}]}}}]}),
    );
    bare["metadata"] = json!({"name": "a_b"});
    let Ok(PlanObject::Workload(found)) = PlanObject::lenient(&bare) else { panic!("no workload") };
    assert_eq!(
        (found.meta.key().as_str(), found.spec.pod_sets[0].count, found.spec.pod_sets[0].min_count),
        ("/a_b", 0, Some(3))
    );
    // a server's words reach plans
    let mut check = kueue("AdmissionCheck", json!({"controllerName": "c"}));
    check["status"] = json!({"conditions": [{"type": "Active", "status": "True"}]});
    let Ok(PlanObject::Object(check)) = PlanObject::lenient(&check) else { panic!("no check") };
    assert_eq!((check.conditions[0].status, check.created), (ConditionStatus::True, None));
}

#[test]
fn lenient_reading_refuses_what_makes_no_sense() {
    let check = |written: Value, expect: &str| {
        let error = PlanObject::lenient(&written).unwrap_err();
        assert!(error.contains(expect), "{error}");
    };
    for written in [
        json!(null),
        json!(7),
        json!([]),
        json!({}),
        json!({"apiVersion": "v1"}),
        json!({"apiVersion": 1, "kind": "Node"}),
    ] {
        assert!(PlanObject::lenient(&written).is_err(), "{written}");
    }
    check(workload(json!("x")), "spec: must be a mapping");
    check(workload(json!({"podSets": [{"count": "2"}]})), "spec.podSets[0].count: must be a whole number");
    check(workload(json!({"priority": [1]})), "spec.priority: must be a whole number");
    check(
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}, "spec": {"taints": [{"key": "k"}]}}),
        "taints[0].effect: is missing",
    );
    check(
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}, "status": {"allocatable": {"cpu": "lots"}}}),
        "`lots` is not a quantity",
    );
    check(
        json!({"apiVersion": "kueue.x-k8s.io/v3", "kind": "Workload", "metadata": {"name": "n"}}),
        "has no version `v3`",
    );
}

fn lines(problems: &[Problem]) -> Vec<String> {
    problems.iter().map(ToString::to_string).collect()
}

#[test]
fn files_are_read_with_places() {
    let text = "\
apiVersion: v1
kind: List
items:
- apiVersion: v1
  kind: Node
  metadata: {name: n1, labels: {rack: r1}}
  spec: {unschedulable: true, taints: [{key: t, effect: NoSchedule, timeAdded: '2026-06-01T12:00:00Z'}], podCIDR: x}
  status:
    allocatable: {cpu: 3920m, memory: 1Gi, pods: '110'}
    capacity: {cpu: 4}
    images: []
    conditions: [{type: Ready, status: 'True', lastHeartbeatTime: '2026-06-01T12:00:00Z'}]
- apiVersion: v1
  kind: Pod
  metadata: {name: p, namespace: n}
  spec: {nodeName: n1, schedulingGates: [{name: g}], containers: [{name: c, resources: {requests: {cpu: 1}}}]}
  status: {phase: Running, podIP: 1.2.3.4}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: q, uid: u, creationTimestamp: '1970-01-01T00:00:01Z'}
spec: {}
status: {pendingWorkloads: 3}
";
    let parsed = plan_set(&[("f", text)]);
    assert_eq!((lines(&parsed.errors), lines(&parsed.warnings)), (vec![], vec![]));
    let [node, pod, queue] = parsed.objects.as_slice() else { panic!("{:#?}", parsed.objects) };
    let PlanObject::Node(found) = &node.value else { panic!("no node") };
    assert_eq!(
        (found.ready(), found.unschedulable, found.taints.len(), found.allocatable["cpu"]),
        (Some(ConditionStatus::True), true, 1, 3_920)
    );
    let PlanObject::Pod(found) = &pod.value else { panic!("no pod") };
    assert_eq!(
        (found.phase, found.is_terminal(), found.template.requests()["cpu"]),
        (PodPhase::Running, false, 1_000)
    );
    assert_eq!(
        (found.template.node_name.as_deref(), found.template.scheduling_gates.len(), found.meta.controller()),
        (Some("n1"), 1, None)
    );
    let PlanObject::Object(found) = &queue.value else { panic!("no object") };
    assert_eq!(
        (found.uid.as_str(), found.created, found.status["pendingWorkloads"].as_i64()),
        ("u", Some(1_000), Some(3))
    );
    assert_eq!((node.place.line, queue.value.title().as_str()), (4, "clusterqueue/q"));

    let wrong = text.replace("phase: Running", "phase: Walking").replace("cpu: 3920m", "cpu: some");
    assert_eq!(
        lines(&plan_set(&[("f", &wrong)]).errors),
        [
            "f:9:24: status.allocatable.cpu: `some` is not a quantity; write a number with an optional suffix, such as `4`, `100m`, `0.5` or `16Gi`",
            "f:17:19: status.phase: `Walking` is not a choice; the choices are `Pending`, `Running`, `Succeeded`, `Failed`, `Unknown`",
        ]
    );
    let other = text.replace("rack: r1", "rack: r2").replace("nodeName: n1", "nodeName: n2");
    let twice = plan_set(&[("f", text), ("g", &other)]);
    assert_eq!(
        lines(&twice.warnings),
        ["g:19:1: `clusterqueue/q` is the same as at f:19:1, and read once; remove one of them"]
    );
    assert_eq!(twice.errors.len(), 2, "{:?}", lines(&twice.errors));
}

#[test]
fn a_manager_is_given_none_of_them() {
    for (written, expect) in [
        (full(), "kind: a `Workload` is not written by hand; submit a Job; its workload is made for it"),
        (
            json!({"apiVersion": "v1", "kind": "Node"}),
            "kind: a `Node` is not applied; leave it out; `meridian plan -f FILE` reads it",
        ),
        (
            json!({"apiVersion": "v1", "kind": "Pod"}),
            "kind: a `Pod` is not applied; leave it out; `meridian plan -f FILE` reads it",
        ),
    ] {
        let errors = Object::from_value(written).map(|(object, _)| object).unwrap_err();
        assert_eq!(errors.iter().map(ToString::to_string).collect::<Vec<_>>(), [expect]);
    }
}

/// Pointers to every value within `value`.
fn collect(value: &Value, at: String, all: &mut Vec<String>) {
    match value {
        Value::Object(map) => map
            .iter()
            .for_each(|(key, value)| collect(value, format!("{at}/{}", key.replace('/', "~1")), all)),
        Value::Array(list) => {
            list.iter().enumerate().for_each(|(index, value)| collect(value, format!("{at}/{index}"), all))
        }
        _ => {}
    }
    all.push(at);
}

#[test]
fn mangled_values_never_panic() {
    // a plain generator: the same values on every run
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    let mut next = |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(state >> 33).unwrap() % below
    };
    let odd = [
        json!(null),
        json!(-1),
        json!(i64::MAX),
        json!(u64::MAX),
        json!(1e300),
        json!(""),
        json!("9E9"),
        json!([]),
        json!({}),
        json!([[{}]]),
        json!({"a": {}}),
    ];
    let (mut sound, mut broken) = (0, 0);
    for _ in 0..2_000 {
        let mut value = full();
        for _ in 0..=next(3) {
            let mut pointers = Vec::new();
            collect(&value, String::new(), &mut pointers);
            let at = value.pointer_mut(&pointers[next(pointers.len())]).expect("it was found there");
            *at = odd[next(odd.len())].clone();
        }
        let strict = PlanObject::from_value(value.clone());
        assert!(
            strict.is_err() || PlanObject::lenient(&value).is_ok(),
            "strict takes what lenient does not: {value}"
        );
        if strict.is_ok() { sound += 1 } else { broken += 1 }
    }
    assert!(sound > 50 && broken > 500, "{sound} sound, {broken} broken");
}
