mod pods;
mod workload;

use super::*;
use kube::api::ApiResource;
use kube::core::GroupVersionKind;
use meridian_objects::job::{QUEUE_LABEL, SOURCE_ANNOTATION, SOURCE_CLUSTER, SUBMITTED_KIND};
use serde_json::json;

fn resource(kind: Kind, flow: Flow) -> Resource {
    let gvk = GroupVersionKind::gvk(kind.group(), kind.storage_version(), kind.name());
    Resource { kind, flow, api: ApiResource::from_gvk_with_plural(&gvk, kind.plural()), has_status: true }
}

fn jobs() -> Resource {
    resource(SUBMITTED_KIND, Flow::Job)
}

/// A job of the cluster, as its API server shows it.
fn job(uid: &str) -> Value {
    json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": "train", "namespace": "team", "uid": uid, "labels": {QUEUE_LABEL: "main"},
            "creationTimestamp": "2026-01-01T00:00:00Z", "generation": 1},
        "spec": {
            "suspend": true, "managedBy": "kueue.x-k8s.io/multikueue", "parallelism": 2,
            "selector": {"matchLabels": {"batch.kubernetes.io/controller-uid": uid}},
            "template": {"metadata": {"labels": {"job-name": "train", "app": "x"}}, "spec": {}},
        },
        "status": {},
    })
}

/// The manager's version of it.
fn held(uid: &str, status: Value) -> Value {
    let mut held = crate::manifest::for_manager(SUBMITTED_KIND, &job(uid));
    held["status"] = status;
    held
}

fn decided(cluster: Option<&Value>, manager: Option<&Value>, memory: &Memory) -> Next {
    next(&jobs(), Pair { cluster, manager, existed: true, ..Pair::default() }, memory)
}

fn in_line(uid: &str) -> Memory {
    let manifest = crate::manifest::for_manager(SUBMITTED_KIND, &job(uid));
    Memory { sent: Some((fingerprint(&manifest), Duration::from_secs(9))), ..Memory::default() }
}

#[test]
fn a_new_job_is_submitted_under_its_uid_and_without_what_the_server_added() {
    let Next::Do(Action::Submit { manifest, existed: true, inactive: false }) =
        decided(Some(&job("u1")), None, &Memory::default())
    else {
        panic!("not submitted");
    };
    assert_eq!(manifest["metadata"]["uid"], "u1");
    assert_eq!(manifest["spec"]["template"]["metadata"]["labels"], json!({"app": "x"}));
    assert!(manifest["spec"].get("selector").is_none() && manifest.get("status").is_none());
    assert_eq!(manifest["spec"]["suspend"], false, "the queue decides");
}

#[test]
fn a_job_that_its_own_controller_runs_or_that_has_ended_is_left_alone() {
    let mut local = job("u1");
    local["spec"]["managedBy"] = json!("kubernetes.io/job-controller");
    local["spec"]["suspend"] = json!(false);
    assert_eq!(decided(Some(&local), None, &Memory::default()), Next::Nothing);
    let mut unqueued = job("u1");
    unqueued["metadata"]["labels"] = json!({});
    assert_eq!(decided(Some(&unqueued), None, &Memory::default()), Next::Nothing);
    let mut over = job("u1");
    over["status"] = json!({"conditions": [{"type": "Complete", "status": "True"}]});
    assert_eq!(decided(Some(&over), None, &Memory::default()), Next::Nothing, "it would run twice");
}

#[test]
fn a_job_that_was_made_again_follows_once_the_old_one_is_gone() {
    let old = held("u1", json!({"active": 2}));
    let removal = Next::Do(Action::Remove { uid: Some("u1".to_owned()) });
    assert_eq!(decided(Some(&job("u2")), Some(&old), &Memory::default()), removal);
    let mut stopping = old;
    stopping["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:01:00Z");
    assert_eq!(decided(Some(&job("u2")), Some(&stopping), &Memory::default()), Next::Nothing);
}

#[test]
fn a_job_that_was_submitted_at_the_manager_is_not_replaced_by_one_of_its_name() {
    let mut direct = held("u1", json!({"active": 2}));
    direct["metadata"]["annotations"] = json!({});
    let Next::Do(Action::Explain { text }) = decided(Some(&job("u2")), Some(&direct), &Memory::default())
    else {
        panic!("nothing is explained");
    };
    assert!(text.reason == "Refused" && text.message.contains("Job `train`"), "{text:?}");
    let said = (fingerprint(&json!(text.message)), Duration::from_secs(600));
    let memory = Memory { explained: Some(said), ..Memory::default() };
    assert_eq!(decided(Some(&job("u2")), Some(&direct), &memory), Next::Nothing, "once is enough");
}

#[test]
fn a_job_whose_change_is_refused_still_gets_its_status() {
    let running = held("u1", json!({"active": 2, "ready": 2, "startTime": "2026-01-01T00:00:10Z"}));
    let mut moved = job("u1");
    moved["metadata"]["labels"] = json!({QUEUE_LABEL: "other"});
    let Next::Do(Action::Change { manifest }) = decided(Some(&moved), Some(&running), &in_line("u1")) else {
        panic!("not changed");
    };
    let refused =
        |ago| Memory { refused: Some((fingerprint(&manifest), Duration::from_secs(ago))), ..in_line("u1") };
    let next = decided(Some(&moved), Some(&running), &refused(2));
    let Next::Do(Action::WriteStatus { status }) = next else { panic!("no status: {next:?}") };
    moved["status"] = status;
    let next = decided(Some(&moved), Some(&running), &refused(2));
    assert_eq!(next, Next::LookIn(Duration::from_secs(3)));
    let next = decided(Some(&moved), Some(&running), &refused(5));
    assert!(matches!(next, Next::Do(Action::Change { .. })), "it may be possible now: {next:?}");
}

#[test]
fn a_new_job_of_another_kind_without_a_switch_is_left_alone_with_a_word() {
    for (kind, field) in [
        (Kind::JobSet, "spec.managedBy"),
        (Kind::RayJob, "spec.managedBy"),
        (Kind::PyTorchJob, "spec.runPolicy.managedBy"),
        (Kind::LeaderWorkerSet, "schedulingGates"),
    ] {
        let open = json!({
            "kind": kind.name(),
            "metadata": {"name": "train", "namespace": "team", "labels": {QUEUE_LABEL: "main"}}, "spec": {},
        });
        let jobs = resource(kind, Flow::Job);
        let decided = |job: &Value, existed| {
            next(&jobs, Pair { cluster: Some(job), existed, ..Pair::default() }, &Memory::default())
        };
        let Next::Do(Action::Explain { text }) = decided(&open, false) else { panic!("{kind}: silent") };
        assert!(text.reason == "NotTaken" && text.message.contains(field), "{text:?}");
        assert_eq!(decided(&open, true), Next::Nothing, "it was there before the manager");
        let mut owned = open.clone();
        owned["metadata"]["ownerReferences"] = json!([{"controller": true}]);
        let mut unqueued = open;
        unqueued["metadata"]["labels"] = json!({});
        for job in [owned, unqueued] {
            assert_eq!(decided(&job, false), Next::Nothing);
        }
    }
}

#[test]
fn a_policy_is_taken_once_the_manager_has_what_the_cluster_says() {
    let policy = |region: &str| {
        json!({
            "apiVersion": "meridian.dev/v1alpha1", "kind": "ResidencyPolicy", "metadata": {"name": "closed"},
            "spec": {"deny": {"regions": [region]}},
        })
    };
    let kind = Kind::ResidencyPolicy;
    let sent = fingerprint(&crate::manifest::for_manager(kind, &policy("eu")));
    let memory = Memory { sent: Some((sent, Duration::ZERO)), ..Memory::default() };
    assert!(was_taken(kind, &policy("eu"), &memory));
    assert!(!was_taken(kind, &policy("us"), &memory), "the older one is at the manager");
    assert!(!was_taken(kind, &policy("eu"), &Memory::default()));
    let mut leaving = policy("us");
    leaving["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:01:00Z");
    assert!(was_taken(kind, &leaving, &memory));
}

#[test]
fn only_what_came_from_the_cluster_is_deleted_with_it() {
    let removal = Next::Do(Action::Remove { uid: Some("u1".to_owned()) });
    assert_eq!(decided(None, Some(&held("u1", json!({}))), &Memory::default()), removal);
    let mut others = held("u1", json!({}));
    others["metadata"]["annotations"] = json!({});
    assert_eq!(decided(None, Some(&others), &Memory::default()), Next::Nothing);
}

#[test]
fn a_status_is_written_once_and_repaired_later() {
    let running = held("u1", json!({"active": 2, "ready": 2, "startTime": "2026-01-01T00:00:10Z"}));
    let Next::Do(Action::WriteStatus { status }) = decided(Some(&job("u1")), Some(&running), &in_line("u1"))
    else {
        panic!("no status");
    };
    let mut memory = in_line("u1");
    memory.status = Some((fingerprint(&status), Duration::from_secs(1)));
    let later = decided(Some(&job("u1")), Some(&running), &memory);
    assert_eq!(later, Next::LookIn(Duration::from_secs(29)), "the watch hasn't shown it yet");
    let mut seen = job("u1");
    seen["status"] = status;
    assert_eq!(decided(Some(&seen), Some(&running), &memory), Next::Nothing);
    seen["status"]["active"] = json!(7);
    memory.status = memory.status.map(|(hash, _)| (hash, Duration::from_secs(31)));
    assert!(matches!(decided(Some(&seen), Some(&running), &memory), Next::Do(Action::WriteStatus { .. })));
}

#[test]
fn a_job_that_lost_its_queue_no_longer_shows_pods() {
    let mut left = job("u1");
    left["metadata"]["labels"] = json!({});
    left["status"] = json!({"active": 3, "ready": 3, "startTime": "2026-01-01T00:00:10Z"});
    let running = held("u1", json!({"active": 3}));
    let removal = Next::Do(Action::Remove { uid: Some("u1".to_owned()) });
    assert_eq!(decided(Some(&left), Some(&running), &Memory::default()), removal);
    let Next::Do(Action::WriteStatus { status }) = decided(Some(&left), None, &Memory::default()) else {
        panic!("its last status stays");
    };
    assert!(status.get("active").is_none() && status["conditions"][0]["type"] == "Suspended", "{status}");
    left["status"] = status;
    assert_eq!(decided(Some(&left), None, &Memory::default()), Next::Nothing);
    left["spec"]["managedBy"] = Value::Null;
    left["status"] = json!({"active": 3});
    assert_eq!(decided(Some(&left), None, &Memory::default()), Next::Nothing, "its own controller writes it");
}

#[test]
fn texts_alone_are_written_rarely() {
    let workload = |message: &str| {
        json!({
            "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload",
            "metadata": {
                "name": "w", "namespace": "team", "annotations": {SOURCE_ANNOTATION: SOURCE_CLUSTER},
            },
            "spec": {"active": true, "queueName": "main"},
            "status": {"conditions": [{"type": "QuotaReserved", "status": "False", "message": message}]},
        })
    };
    let workloads = resource(Kind::Workload, Flow::Workload);
    let memory = Memory { status: Some((1, Duration::from_secs(20))), ..Memory::default() };
    let (old, new) = (workload("two before it"), workload("one before it"));
    let pair = Pair { cluster: Some(&old), manager: Some(&new), existed: false, ..Pair::default() };
    assert_eq!(next(&workloads, pair, &memory), Next::LookIn(Duration::from_secs(40)));
    let mut stopped = old.clone();
    stopped["spec"]["active"] = json!(false);
    let pair = Pair { cluster: Some(&stopped), manager: Some(&new), existed: false, ..Pair::default() };
    assert_eq!(next(&workloads, pair, &memory), Next::Do(Action::SetActive(false)));
    let pair = Pair { cluster: Some(&old), manager: None, existed: false, ..Pair::default() };
    assert_eq!(next(&workloads, pair, &memory), Next::Do(Action::RemoveWorkload { uid: None }));
}

#[test]
fn a_workload_that_was_changed_by_hand_is_repaired() {
    let held = json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload",
        "metadata": {
            "name": "w", "namespace": "team", "annotations": {SOURCE_ANNOTATION: SOURCE_CLUSTER},
            "labels": {"kueue.x-k8s.io/job-uid": "u1"},
        },
        "spec": {"active": true, "queueName": "main"}, "status": {},
    });
    let workloads = resource(Kind::Workload, Flow::Workload);
    let pair = Pair { cluster: None, manager: Some(&held), existed: false, ..Pair::default() };
    let Next::Do(Action::ApplyWorkload { object }) = next(&workloads, pair, &Memory::default()) else {
        panic!("not made");
    };
    let mut changed = held.clone();
    changed["metadata"]["labels"] = json!({});
    let pair = Pair { cluster: Some(&changed), ..pair };
    let after = |seconds| Memory {
        applied: Some((fingerprint(&object), Duration::from_secs(seconds))),
        ..Memory::default()
    };
    assert_eq!(next(&workloads, pair, &after(10)), Next::LookIn(Duration::from_secs(20)));
    assert_eq!(
        next(&workloads, pair, &after(30)),
        Next::Do(Action::ApplyWorkload { object: object.clone() })
    );
}

/// Writes of one object, by the time at which each happened. `states` are the manager's versions of it from a
/// time on.
fn writes(
    resource: &Resource,
    mut seen: Value,
    states: &[(u64, Value)],
    mut memory: Memory,
) -> Vec<(u64, Value)> {
    let mut written: Vec<(u64, Value)> = Vec::new();
    let born = Duration::from_millis(0);
    let (sent, applied) = (memory.sent.map(|(hash, _)| hash), memory.applied.map(|(hash, _)| hash));
    for now in (0..20_000).step_by(50) {
        let age = Duration::from_millis(now) - born;
        (memory.sent, memory.applied) = (sent.map(|hash| (hash, age)), applied.map(|hash| (hash, age)));
        memory.status =
            written.last().map(|(at, status)| (fingerprint(status), Duration::from_millis(now - at)));
        let Some((_, state)) = states.iter().rfind(|(from, _)| *from <= now) else { continue };
        let pair = Pair { cluster: Some(&seen), manager: Some(state), existed: false, ..Pair::default() };
        if let Next::Do(Action::WriteStatus { status }) = next(resource, pair, &memory) {
            seen["status"] = status.clone();
            written.push((now, status));
        }
    }
    written
}

#[test]
fn a_short_life_takes_two_statuses_of_the_job_and_two_of_its_workload() {
    let done = json!([{"type": "Complete", "status": "True"}]);
    let states = [
        (100, held("u1", json!({"active": 1, "startTime": "2026-01-01T00:00:01Z"}))),
        (400, held("u1", json!({"active": 1, "ready": 1, "startTime": "2026-01-01T00:00:01Z"}))),
        (1_300, held("u1", json!({"succeeded": 1, "conditions": done, "startTime": "2026-01-01T00:00:01Z"}))),
    ];
    let of_job = writes(&jobs(), job("u1"), &states, in_line("u1"));
    let times: Vec<u64> = of_job.iter().map(|(at, _)| *at).collect();
    assert_eq!(times, [1_000, 1_300], "an end is written at once: {of_job:?}");

    let workload = |kinds: &[&str]| {
        let conditions: Vec<Value> =
            kinds.iter().map(|kind| json!({"type": kind, "status": "True"})).collect();
        json!({
            "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload",
            "metadata": {
                "name": "w", "namespace": "team", "annotations": {SOURCE_ANNOTATION: SOURCE_CLUSTER},
            },
            "spec": {"active": true, "queueName": "main"}, "status": {"conditions": conditions},
        })
    };
    let states = [
        (0, workload(&[])),
        (50, workload(&["QuotaReserved"])),
        (100, workload(&["QuotaReserved", "Admitted"])),
        (400, workload(&["QuotaReserved", "Admitted", "PodsReady"])),
        (1_300, workload(&["QuotaReserved", "Admitted", "PodsReady", "Finished"])),
    ];
    let made = Memory { applied: Some((1, Duration::ZERO)), ..Memory::default() };
    let of_workload = writes(&resource(Kind::Workload, Flow::Workload), workload(&[]), &states, made);
    let times: Vec<u64> = of_workload.iter().map(|(at, _)| *at).collect();
    assert_eq!(times, [100, 1_300], "an admission is written at once: {of_workload:?}");
}

#[test]
fn a_start_time_that_was_refused_is_not_written_again() {
    let mut unsuspended = job("u1");
    unsuspended["spec"]["suspend"] = json!(false);
    let condition = json!({"type": "Suspended", "status": "True"});
    unsuspended["status"] = json!({"startTime": "2026-01-01T00:00:10Z", "conditions": [condition]});
    let running = held("u1", json!({"active": 2, "ready": 2, "startTime": "2026-01-01T01:00:00Z"}));
    let mut memory = in_line("u1");
    let written = |memory: &Memory| match decided(Some(&unsuspended), Some(&running), memory) {
        Next::Do(action @ Action::WriteStatus { .. }) => action,
        other => panic!("no status: {other:?}"),
    };
    assert!(changes_start(&written(&memory), Some(&unsuspended)));
    memory.start_is_fixed = true;
    let kept = written(&memory);
    assert!(!changes_start(&kept, Some(&unsuspended)));
    assert!(matches!(kept, Action::WriteStatus { status } if status["active"] == 2));
}
