//! Files of objects for plans.

use super::*;

fn lines(problems: &[Problem]) -> Vec<String> {
    problems.iter().map(ToString::to_string).collect()
}

#[test]
fn files_are_read_with_positions() {
    let text = "\
apiVersion: v1
kind: List
items:
- apiVersion: v1
  kind: Node
  metadata: {name: n1, labels: {rack: r1}}
  spec: {unschedulable: true, taints: [{key: t, effect: NoSchedule, timeAdded: '2026-06-01'}], podCIDR: x}
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
            "f:9:24: status.allocatable.cpu: `some` is not a quantity; write a number with an optional \
                suffix, such as `4`, `100m`, `0.5` or `16Gi`",
            "f:17:19: status.phase: `Walking` is not a choice; the choices are `Pending`, `Running`, \
                `Succeeded`, `Failed`, `Unknown`",
        ]
    );
    let other = text.replace("rack: r1", "rack: r2").replace("nodeName: n1", "nodeName: n2");
    let twice = plan_set(&[("f", text), ("g", &other)]);
    assert_eq!(
        lines(&twice.warnings),
        ["g:19:1: `clusterqueue/q` is identical to the one at f:19:1 and is read once; remove one of them"]
    );
    assert_eq!(twice.errors.len(), 2, "{:?}", lines(&twice.errors));
}

#[test]
fn managers_refuse_objects_of_plans() {
    for (written, expect) in [
        (full(), "kind: a `Workload` is not written by hand; submit a Job; its workload is made for it"),
        (
            json!({"apiVersion": "v1", "kind": "Node"}),
            "kind: `Node` of `v1` is not a kind that Meridian takes; leave it out; `meridian plan -f FILE` \
                reads it",
        ),
    ] {
        let errors = Object::from_value(written).map(|(object, _)| object).unwrap_err();
        assert_eq!(errors.iter().map(ToString::to_string).collect::<Vec<_>>(), [expect]);
    }
}
