//! Pods, and groups of them.

use super::*;
use crate::groups::uid_of;
use meridian_objects::job::{ADMISSION_GATES, POD_GROUP_LABEL, POD_GROUP_TOTAL};

const AT: &str = "2026-01-01T00:00:30Z";

/// A new pod of the cluster, with the gate of admission.
fn pod(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "team", "uid": format!("uid-{name}"),
            "labels": {QUEUE_LABEL: "main"}},
        "spec": {"schedulingGates": [{"name": ADMISSION_GATES[0]}], "restartPolicy": "Never",
            "containers": [{"name": "c", "image": "registry.example.com/train:1"}]},
        "status": pod_status::of_waiting(),
    })
}

/// A pod of group `g` of two.
fn member(name: &str) -> Value {
    let mut pod = pod(name);
    pod["metadata"]["labels"][POD_GROUP_LABEL] = json!("g");
    pod["metadata"]["annotations"] = json!({POD_GROUP_TOTAL: "2"});
    pod
}

fn members(pods: &[Value]) -> Vec<Arc<Value>> {
    pods.iter().cloned().map(Arc::new).collect()
}

fn running() -> Value {
    json!({"meridian": {"cluster": "eu", "runningPods": 2, "startTime": AT}})
}

/// The manager's group of these pods.
fn group(pods: &[Arc<Value>], status: Value) -> Value {
    let Some(crate::groups::Group::Whole(whole)) = crate::groups::read(pods) else { panic!("not whole") };
    let mut held = manifest::for_manager(Kind::PodGroup, &whole);
    held["status"] = status;
    held
}

fn for_pod(pair: Pair<'_>, memory: &Memory) -> Next {
    next(&resource(Kind::Pod, Flow::Job), pair, memory)
}

fn for_group(pair: Pair<'_>, memory: &Memory) -> Next {
    next(&resource(Kind::PodGroup, Flow::Group), pair, memory)
}

/// After the time in which the pods of a group are created.
fn settled() -> Memory {
    Memory { known: Duration::from_secs(60), ..Memory::default() }
}

fn explanation(next: Next) -> EventText {
    match next {
        Next::Do(Action::Explain { text }) => text,
        other => panic!("nothing is explained: {other:?}"),
    }
}

#[test]
fn a_gated_pod_is_submitted_and_shows_what_its_job_does() {
    let new = pod("p");
    let pair = Pair { cluster: Some(&new), existed: true, ..Pair::default() };
    let Next::Do(Action::Submit { manifest, existed: true, inactive: false }) =
        for_pod(pair, &Memory::default())
    else {
        panic!("not submitted");
    };
    assert_eq!(manifest["metadata"]["uid"], "uid-p");
    assert!(manifest["spec"].get("schedulingGates").is_none(), "the queue decides");
    let memory = Memory { sent: Some((fingerprint(&manifest), Duration::from_secs(9))), ..Memory::default() };
    let with = |status: Value| {
        let mut held = manifest.clone();
        held["status"] = status;
        held
    };
    let written = |cluster: &Value, held: &Value| {
        let pair = Pair { cluster: Some(cluster), manager: Some(held), existed: true, ..Pair::default() };
        match for_pod(pair, &memory) {
            Next::Do(Action::WriteStatus { status }) => status,
            other => panic!("no status: {other:?}"),
        }
    };
    let status = written(&new, &with(running()));
    assert_eq!((&status["phase"], &status["startTime"]), (&json!("Running"), &json!(AT)));
    let over = with(json!({"phase": "Succeeded", "meridian": {"startTime": AT}}));
    let mut seen = new.clone();
    seen["status"] = status;
    seen["status"] = written(&seen, &over);
    assert_eq!(seen["status"]["phase"], "Succeeded");
    let pair = Pair { cluster: Some(&seen), manager: Some(&over), existed: true, ..Pair::default() };
    assert_eq!(for_pod(pair, &memory), Next::Nothing);
    let pair = Pair { manager: None, ..pair };
    assert_eq!(for_pod(pair, &Memory::default()), Next::Nothing, "it would run twice");
}

#[test]
fn a_new_pod_costs_no_status_and_a_stopped_one_is_pending_again() {
    let new = pod("p");
    let mut held = manifest::for_manager(Kind::Pod, &new);
    let memory = Memory { sent: Some((fingerprint(&held), Duration::from_secs(9))), ..Memory::default() };
    held["spec"]["schedulingGates"] = json!([{"name": ADMISSION_GATES[0]}]);
    let pair = Pair { cluster: Some(&new), manager: Some(&held), ..Pair::default() };
    assert_eq!(for_pod(pair, &memory), Next::Nothing);
    let mut stopped = new.clone();
    stopped["status"] = pod_status::of_job(Kind::Pod.job().unwrap(), &json!({"status": running()}));
    let pair = Pair { cluster: Some(&stopped), ..pair };
    let Next::Do(Action::WriteStatus { status }) = for_pod(pair, &memory) else { panic!("no status") };
    assert_eq!(status, pod_status::of_waiting());
}

#[test]
fn a_new_pod_without_a_gate_is_left_alone_with_a_word() {
    let mut ungated = pod("p");
    ungated["spec"]["schedulingGates"] = json!([]);
    let pair = Pair { cluster: Some(&ungated), ..Pair::default() };
    let text = explanation(for_pod(pair, &Memory::default()));
    assert_eq!((text.reason, text.is_warning), ("NotTaken", true));
    let explained = Memory {
        explained: Some((fingerprint(&json!(text.message)), Duration::from_secs(600))),
        ..Memory::default()
    };
    assert_eq!(for_pod(pair, &explained), Next::Nothing, "once is enough");
    let old = Pair { existed: true, ..pair };
    assert_eq!(for_pod(old, &Memory::default()), Next::Nothing);
}

#[test]
fn a_pod_goes_from_the_manager_when_its_gate_or_the_pod_itself_is_gone() {
    let held = manifest::for_manager(Kind::Pod, &pod("p"));
    let removal = Next::Do(Action::Remove { uid: Some("uid-p".to_owned()) });
    let pair = Pair { manager: Some(&held), ..Pair::default() };
    assert_eq!(for_pod(pair, &Memory::default()), removal);
    let mut ungated = pod("p");
    ungated["spec"]["schedulingGates"] = json!([]);
    let pair = Pair { cluster: Some(&ungated), ..pair };
    assert_eq!(for_pod(pair, &Memory::default()), removal);
    let grouped = member("p");
    let pair = Pair { cluster: Some(&grouped), ..pair };
    assert_eq!(for_pod(pair, &Memory::default()), removal, "it is a part of another job");
}

#[test]
fn a_group_is_submitted_once_with_its_last_pod() {
    let pods = members(&[member("a"), member("b")]);
    let part = Pair { members: &pods[..1], ..Pair::default() };
    assert_eq!(for_group(part, &Memory::default()), Next::LookIn(Duration::from_secs(5)));
    let text = explanation(for_group(part, &settled()));
    assert_eq!(text.message, "1 of 2 pods of the group exist: it is submitted when the last one is created");
    assert_eq!(part.subjects(), [&*pods[0]]);
    let pair = Pair { members: &pods, existed: true, ..Pair::default() };
    let Next::Do(Action::Submit { manifest, existed: true, inactive: false }) = for_group(pair, &settled())
    else {
        panic!("not submitted");
    };
    assert_eq!(manifest["metadata"]["uid"], json!(uid_of(&pods)));
    let sent = |ago| Memory { sent: Some((fingerprint(&manifest), Duration::from_secs(ago))), ..settled() };
    assert_eq!(for_group(pair, &sent(0)), Next::LookIn(Duration::from_secs(2)), "the watch may not show it");
    let held = group(&pods, running());
    let pair = Pair { manager: Some(&held), ..pair };
    assert_eq!(for_group(pair, &sent(9)), Next::Nothing);
}

#[test]
fn a_group_goes_with_the_first_of_its_pods_and_comes_again_with_another() {
    let pods = members(&[member("a"), member("b")]);
    let held = group(&pods, running());
    let removal = Next::Do(Action::Remove { uid: Some(uid_of(&pods)) });
    for left in 0..2 {
        let pair = Pair { members: &pods[..left], manager: Some(&held), ..Pair::default() };
        assert_eq!(for_group(pair, &settled()), removal, "{left}");
    }
    let mut other = member("b");
    other["metadata"]["uid"] = json!("uid-new");
    let replaced = members(&[member("a"), other]);
    let pair = Pair { members: &replaced, manager: Some(&held), ..Pair::default() };
    assert_eq!(for_group(pair, &settled()), removal);
    let pod = Pair { cluster: Some(&replaced[1]), members: &replaced, group: Some(&held), ..Pair::default() };
    assert_eq!(for_pod(pod, &Memory::default()), Next::Nothing, "the group at the manager isn't its own");
    let mut unfit = member("b");
    unfit["metadata"]["labels"][QUEUE_LABEL] = json!("other");
    let unfit = members(&[member("a"), unfit]);
    let pair = Pair { members: &unfit, ..pair };
    let text = explanation(for_group(pair, &settled()));
    assert!(text.message.contains("differs"), "a running group isn't stopped by a label: {text:?}");
}

#[test]
fn every_pod_of_a_group_shows_its_state_and_its_end() {
    let pods = members(&[member("a"), member("b")]);
    let mut held = group(&pods, running());
    let condition = json!({"type": "Failed", "status": "True", "reason": "PodFailed", "message": "m",
        "lastTransitionTime": AT});
    for pod in &pods {
        let pair = Pair { cluster: Some(pod), members: &pods, group: Some(&held), ..Pair::default() };
        let Next::Do(Action::WriteStatus { status }) = for_pod(pair, &Memory::default()) else { panic!() };
        assert_eq!(status["phase"], "Running");
    }
    held["status"]["conditions"] = json!([condition]);
    let pair = Pair { cluster: Some(&pods[0]), members: &pods, group: Some(&held), ..Pair::default() };
    let Next::Do(Action::WriteStatus { status }) = for_pod(pair, &Memory::default()) else { panic!() };
    assert_eq!((&status["phase"], &status["message"]), (&json!("Failed"), &json!("m")));
}

#[test]
fn a_group_with_an_end_is_not_started_again_by_a_lost_journal() {
    let (mut over, mut shows, new) = (member("a"), member("b"), member("b"));
    over["status"] = json!({"phase": "Succeeded"});
    shows["status"] = json!({"phase": "Running", "startTime": AT});
    let pods = members(&[over.clone(), shows]);
    let pair = Pair { members: &pods, ..Pair::default() };
    assert_eq!(for_group(pair, &settled()), Next::Nothing);
    let pair = Pair { cluster: Some(&pods[1]), ..pair };
    let Next::Do(Action::WriteStatus { status }) = for_pod(pair, &Memory::default()) else { panic!() };
    assert_eq!(status["phase"], "Succeeded", "the end was written to one pod only");
    // somebody made one of the pods again
    let pods = members(&[over, new]);
    let pair = Pair { members: &pods, ..Pair::default() };
    let text = explanation(for_group(pair, &settled()));
    assert!(text.message.contains("pod `a` of the group has ended"), "{text:?}");
    let pair = Pair { cluster: Some(&pods[1]), ..pair };
    assert_eq!(for_pod(pair, &Memory::default()), Next::Nothing);
}

#[test]
fn the_workload_of_a_group_is_owned_by_its_pods() {
    let pods = members(&[member("a"), member("b")]);
    let held = json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload",
        "metadata": {
            "name": "w", "namespace": "team", "annotations": {SOURCE_ANNOTATION: SOURCE_CLUSTER},
            "ownerReferences": [{"kind": "PodGroup", "name": "g", "uid": uid_of(&pods)}],
        },
        "spec": {"active": true, "queueName": "main"}, "status": {},
    });
    let workloads = resource(Kind::Workload, Flow::Workload);
    let pair = Pair { manager: Some(&held), ..Pair::default() };
    assert_eq!(next(&workloads, pair, &Memory::default()), Next::LookIn(SEEN_WITHIN));
    let pair = Pair { members: &pods, ..pair };
    let Next::Do(Action::ApplyWorkload { object }) = next(&workloads, pair, &Memory::default()) else {
        panic!("not made");
    };
    let owners = object["metadata"]["ownerReferences"].as_array().unwrap();
    assert_eq!(owners.len(), 2);
    assert_eq!(owners[1], json!({"apiVersion": "v1", "kind": "Pod", "name": "b", "uid": "uid-b"}));
    let pair = Pair { cluster: Some(&object), ..pair };
    assert_eq!(pair.subjects(), [&*pods[0], &*pods[1]], "its events are about the pods");
}
