//! `spec.active` of Workloads, in both directions.

use super::*;

/// A Workload, as the manager or the cluster has it.
fn workload(active: bool) -> Value {
    json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload",
        "metadata": {
            "name": "w", "namespace": "team", "resourceVersion": "7",
            "annotations": {SOURCE_ANNOTATION: SOURCE_CLUSTER},
        },
        "spec": {"active": active, "queueName": "main"}, "status": {},
    })
}

/// The manager's Workload after it deactivated it by itself at this time.
fn timed_out(at: &str) -> Value {
    let mut held = workload(false);
    held["status"]["meridian"]["deactivated"] = json!(at);
    held
}

/// The cluster's Workload after that was written there.
fn marked(active: bool, at: &str) -> Value {
    let mut written = workload(active);
    written["metadata"]["annotations"][DEACTIVATED] = json!(at);
    written
}

fn decided(cluster: Option<&Value>, manager: Option<&Value>) -> Next {
    let pair = Pair { cluster, manager, ..Pair::default() };
    next(&resource(Kind::Workload, Flow::Workload), pair, &Memory::default())
}

fn deactivation(mark: &str) -> Next {
    Next::Do(Action::Deactivate { mark: mark.to_owned(), version: json!("7") })
}

#[test]
fn a_deactivation_by_the_manager_is_written_to_the_cluster_and_does_not_come_back() {
    let held = timed_out("1");
    assert_eq!(decided(Some(&workload(true)), Some(&held)), deactivation("1"));
    assert_eq!(decided(Some(&marked(false, "1")), Some(&held)), Next::Nothing);
    let next_limit = timed_out("2");
    let older = marked(true, "1");
    assert_eq!(decided(Some(&older), Some(&next_limit)), deactivation("2"), "it ran into its limit again");
}

#[test]
fn a_person_activates_again_what_the_manager_deactivated() {
    let activation = Next::Do(Action::SetActive(true));
    assert_eq!(decided(Some(&marked(true, "1")), Some(&timed_out("1"))), activation);
    assert_eq!(decided(Some(&marked(true, "1")), Some(&workload(true))), Next::Nothing);
    let stop = Next::Do(Action::SetActive(false));
    assert_eq!(decided(Some(&marked(false, "1")), Some(&workload(true))), stop, "a person stopped it again");
    assert_eq!(
        decided(Some(&workload(true)), Some(&workload(false))),
        activation,
        "a person stopped it first"
    );
}

#[test]
fn a_workload_of_an_inactive_job_is_created_inactive() {
    for (held, mark) in [(workload(false), Value::Null), (timed_out("1"), json!("1"))] {
        let Next::Do(Action::CreateWorkload { object }) = decided(None, Some(&held)) else {
            panic!("not created");
        };
        assert_eq!(object["spec"]["active"], false);
        assert_eq!(object["metadata"]["annotations"][DEACTIVATED], mark);
        let mut seen = object.clone();
        seen["status"] = json!({});
        assert_eq!(decided(Some(&seen), Some(&held)), Next::Nothing);
        let pair = Pair { manager: Some(&held), ..Pair::default() };
        let created = Memory { applied: Some((fingerprint(&object), Duration::ZERO)), ..Memory::default() };
        let again = next(&resource(Kind::Workload, Flow::Workload), pair, &created);
        assert_eq!(again, Next::LookIn(SEEN_WITHIN), "the watch may not show it");
    }
    let Next::Do(Action::ApplyWorkload { object }) = decided(None, Some(&workload(true))) else {
        panic!("not made");
    };
    assert!(object["spec"].get("active").is_none(), "users set it");
}

#[test]
fn a_job_that_was_stopped_in_the_cluster_is_submitted_inactive_and_keeps_its_workload_until_then() {
    let stopped = job("u1");
    let pair = Pair { cluster: Some(&stopped), existed: true, is_stopped: true, ..Pair::default() };
    let submitted = next(&jobs(), pair, &Memory::default());
    assert!(matches!(submitted, Next::Do(Action::Submit { inactive: true, .. })), "{submitted:?}");
    let workloads = resource(Kind::Workload, Flow::Workload);
    let left = workload(false);
    let pair = Pair { cluster: Some(&left), awaits_job: true, ..Pair::default() };
    assert!(matches!(next(&workloads, pair, &Memory::default()), Next::LookIn(_)));
    let pair = Pair { awaits_job: false, ..pair };
    let removal = Next::Do(Action::RemoveWorkload { uid: None });
    assert_eq!(next(&workloads, pair, &Memory::default()), removal);
}
