use super::*;
use crate::commands::plan::tests::fixtures::{job, plan_object, workload};
use meridian_objects::job::PRIORITY_LABEL;
use serde_json::{Value, json};

/// A manager that has the job and its workload.
fn with_job() -> ManagerState {
    let mut item = workload();
    item["spec"]["podSets"][0]["template"] = job()["spec"]["template"].clone();
    ManagerState { objects: vec![plan_object(&item)], jobs: vec![plan_object(&job())], ..Default::default() }
}

fn flavor(name: &str, label: &str) -> Value {
    json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor", "metadata": {"name": name},
        "spec": {"nodeLabels": {"a": label}},
    })
}

fn high_class() -> PlanObject {
    plan_object(&json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "WorkloadPriorityClass",
        "metadata": {"name": "high"}, "value": 9,
    }))
}

/// The class `high`, and the job with another label or annotation.
fn class_and_job_with(field: &str, key: &str, value: &str) -> Vec<PlanObject> {
    let mut given = job();
    given["metadata"][field][key] = json!(value);
    vec![high_class(), plan_object(&given)]
}

#[test]
fn new_jobs_are_submitted_after_existing_workloads() {
    let existing = ManagerState { last_submission: 1_000, ..Default::default() };
    let mut other = job();
    other["metadata"]["name"] = json!("other");
    let Overlaid { objects, .. } = overlay(existing, vec![plan_object(&job()), plan_object(&other)], 995);
    let [PlanObject::Object(first), PlanObject::Object(second)] = &objects[..] else {
        panic!("not two jobs")
    };
    assert_eq!((first.created, second.created), (Some(1_001), Some(1_002)));
}

#[test]
fn objects_are_merged_as_apply_merges_them() {
    let namespace = |labels: Value| {
        let metadata = json!({"name": "ml", "labels": labels});
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
    };
    let mut existing = namespace(json!({"team": "vision", "residency": "eu"}));
    let last_applied = namespace(json!({"team": "vision"})).to_string();
    let merged = |existing: &Value| {
        let existing = ManagerState { objects: vec![plan_object(existing)], ..Default::default() };
        overlay(existing, vec![plan_object(&namespace(json!({"tier": "1"})))], 0)
    };
    let labels = |overlaid: &Overlaid| match &overlaid.objects[0] {
        PlanObject::Object(planned) => planned.object.labels.keys().cloned().collect::<Vec<_>>(),
        _ => panic!("not a namespace"),
    };
    let unknown = merged(&existing);
    assert_eq!(
        (labels(&unknown), unknown.notes.len()),
        (["residency", "team", "tier"].map(String::from).to_vec(), 1)
    );
    existing["metadata"]["annotations"] = json!({ last_applied::LAST_APPLIED: last_applied });
    let known = merged(&existing);
    assert_eq!((labels(&known), known.notes.len()), (["residency", "tier"].map(String::from).to_vec(), 0));
    assert_eq!(known.changes[0].change, ChangeKind::Replaced);
}

#[test]
fn a_job_keeps_its_quota_when_its_class_or_labels_change() {
    let changes = [
        (class_and_job_with("labels", PRIORITY_LABEL, "high"), Some("high")),
        (class_and_job_with("labels", "team", "vision"), None),
    ];
    for (given, class) in changes {
        let Overlaid { objects, changes, notes } = overlay(with_job(), given, 0);
        let PlanObject::Workload(kept) = &objects[0] else { panic!("{class:?}") };
        assert_eq!(kept.spec.priority_class.as_ref().map(|class| class.name.as_str()), class);
        assert!(kept.status.admission.is_some());
        assert_eq!((notes, changes[1].change), (Vec::new(), ChangeKind::Replaced));
    }
    let mut existing = with_job();
    let PlanObject::Object(planned) = &mut existing.jobs[0] else { panic!("not a job") };
    let Spec::Job(spec) = &mut planned.object.spec else { panic!("not a job") };
    spec.priority_class = Some("high".to_owned());
    let Overlaid { objects, .. } = overlay(existing, vec![plan_object(&job())], 0);
    let [PlanObject::Workload(kept)] = &objects[..] else { panic!("not one workload") };
    assert!(kept.spec.priority_class.is_none() && kept.spec.priority.is_none());
}

#[test]
fn a_change_that_apply_refuses_is_noted() {
    let missing_class = class_and_job_with("labels", PRIORITY_LABEL, "low");
    let Overlaid { notes, .. } = overlay(with_job(), missing_class, 0);
    let expected = "`job/ml/train` stays as it is, because `apply` would refuse the change: \
                    WorkloadPriorityClass `low` not found";
    assert_eq!(notes, [expected]);
    let other_spec = class_and_job_with("annotations", "simulated.meridian.dev/duration", "9s");
    let Overlaid { notes, .. } = overlay(with_job(), other_spec, 0);
    assert!(notes[0].starts_with("`job/ml/train` exists with another spec"), "{notes:?}");
}

#[test]
fn an_ended_job_stays_as_it_is() {
    let ended_jobs = BTreeSet::from([(Kind::Job, "ml".to_owned(), "train".to_owned())]);
    let existing = ManagerState { ended_jobs, ..Default::default() };
    let Overlaid { objects, changes, notes } = overlay(existing, vec![plan_object(&job())], 0);
    assert!(objects.is_empty() && changes[0].change == ChangeKind::Unchanged, "{changes:?}");
    assert_eq!(notes, ["`job/ml/train` has ended and stays as it is; delete it first to run it again"]);
}

#[test]
fn a_change_of_the_checks_of_a_queue_is_not_evaluated() {
    let queue = |version: &str, more: (&str, Value)| {
        let mut spec = json!({"namespaceSelector": {}});
        spec[more.0] = more.1;
        plan_object(&json!({
            "apiVersion": format!("kueue.x-k8s.io/{version}"), "kind": "ClusterQueue",
            "metadata": {"name": "cq"}, "spec": spec,
        }))
    };
    let checks = |name: &str| ("admissionChecksStrategy", json!({"admissionChecks": [{"name": name}]}));
    let old_form = |name: &str| ("admissionChecks", json!([name]));
    let cases = [
        (queue("v1beta2", checks("eu")), queue("v1beta2", checks("us")), true),
        (queue("v1beta1", old_form("eu")), queue("v1beta1", old_form("us")), true),
        (queue("v1beta2", checks("eu")), queue("v1beta2", ("stopPolicy", json!("Hold"))), true),
        (
            queue("v1beta2", ("cohortName", json!("a"))),
            queue("v1beta2", ("stopPolicy", json!("Hold"))),
            false,
        ),
    ];
    for (number, (before, after, expect)) in cases.into_iter().enumerate() {
        let mut before = before;
        // The given object is complete, as if it was applied before.
        if let PlanObject::Object(planned) = &mut before {
            let applied = planned.object.stored.to_string();
            planned.object.annotations.insert(last_applied::LAST_APPLIED.to_owned(), applied);
        }
        let existing = ManagerState { objects: vec![before], ..Default::default() };
        let Overlaid { changes, notes, .. } = overlay(existing, vec![after], 0);
        let noted = notes.iter().any(|note| {
            note.starts_with("`spec.admissionChecksStrategy` of `clusterqueue/cq` decides which clusters")
        });
        assert_eq!((changes[0].not_evaluated, noted), (expect, expect), "{number}: {notes:?}");
    }
}

#[test]
fn given_objects_replace_existing_ones() {
    let existing = || {
        let mut state = with_job();
        state.objects.splice(0..0, [flavor("x", "1"), flavor("y", "1")].iter().map(plan_object));
        state
    };
    let mut suspended = job();
    suspended["spec"]["suspend"] = json!(true);
    let given = [flavor("x", "2"), flavor("y", "1"), flavor("z", "1"), suspended];
    let Overlaid { objects, changes, notes } =
        overlay(existing(), given.iter().map(plan_object).collect(), 0);
    let kinds: Vec<(&str, ChangeKind)> = changes.iter().map(|c| (c.object.as_str(), c.change)).collect();
    let expected = [
        ("resourceflavor/x", ChangeKind::Replaced),
        ("resourceflavor/y", ChangeKind::Unchanged),
        ("resourceflavor/z", ChangeKind::Added),
        ("job/ml/train", ChangeKind::Unchanged),
    ];
    assert_eq!((kinds.as_slice(), objects.len(), notes.len()), (expected.as_slice(), 4, 2));
    assert!(notes[0].starts_with("`resourceflavor/x`: "), "{notes:?}");
    let of_labels =
        "`spec.nodeLabels` of `resourceflavor/x` decides which clusters may run a workload, which";
    assert!(notes[1].starts_with(of_labels), "{notes:?}");
    let mut smaller = job();
    smaller["spec"]["parallelism"] = json!(1);
    let Overlaid { objects, changes, notes } = overlay(existing(), vec![plan_object(&smaller)], 0);
    assert!(notes[0].starts_with("`job/ml/train` exists with another spec"), "{notes:?}");
    assert_eq!(changes[0].change, ChangeKind::Replaced);
    let workloads = objects.iter().filter(|object| matches!(object, PlanObject::Workload(_)));
    assert_eq!(workloads.count(), 0, "the new job is pending");
}
