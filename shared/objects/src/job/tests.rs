//! Jobs and the gangs that they become.

mod job_set;
mod kinds;
mod metadata;
mod pods;
mod references;
mod refused;
mod topology;

use super::*;
use crate::ignored::ignored_fields;
use crate::object::{Object, job_to_workload};
use meridian_shared::gang::{Amounts, Operator, TaintEffect};
use meridian_shared::topology::{Constraint, TopologyRequest};
use serde_json::{Value, json};

fn base() -> Value {
    json!({
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "j", "labels": {QUEUE_LABEL: "q"}},
        "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c"}]}}},
    })
}

/// `base` with the value at each JSON pointer replaced; parents must exist or be mappings.
fn with(changes: &[(&str, Value)]) -> Value {
    let mut job = base();
    for (path, value) in changes {
        let (parent, name) = path.rsplit_once('.').unwrap_or(("", path));
        let mut at = &mut job;
        for key in parent.split('.').filter(|key| !key.is_empty()) {
            at = match key.parse::<usize>() {
                Ok(index) => &mut at[index],
                Err(_) => &mut at[key],
            };
        }
        at[name] = value.clone();
    }
    job
}

fn read(job: Value) -> Result<JobWorkload, Vec<String>> {
    match Object::from_value(job) {
        Ok((object, _)) => Ok(job_to_workload(&object).unwrap()),
        Err(errors) => Err(errors.iter().map(ToString::to_string).collect()),
    }
}

fn check_error(changes: &[(&str, Value)], expect: &str) {
    let errors = read(with(changes)).unwrap_err();
    assert!(errors.iter().any(|error| error.contains(expect)), "wanted `{expect}` in {errors:?}");
}

const POD: &str = "spec.template.spec";

#[test]
fn defaults_follow_kubernetes() {
    let job = read(base()).unwrap();
    assert_eq!(job.gang.pod_sets.len(), 1);
    assert_eq!((job.gang.pod_sets[0].name.as_str(), job.gang.pod_sets[0].count), ("main", 1));
    assert_eq!((job.backoff_limit, job.completions, job.parallelism), (6, Some(1), 1));
    assert_eq!((job.queue.as_str(), job.suspend, job.has_command, job.containers), ("q", false, false, 1));
    assert_eq!((job.grace_period, job.ttl_after_finished, job.gang.max_run), (None, None, None));
    assert!(job.regions.is_empty() && job.gang.pod_sets[0].per_pod.is_empty());
}

#[test]
fn pods_are_the_smaller_of_parallelism_and_completions() {
    let check = |parallelism: Value, completions: Value, expect: u32| {
        let job =
            read(with(&[("spec.parallelism", parallelism), ("spec.completions", completions)])).unwrap();
        assert_eq!(job.gang.pod_sets[0].count, expect);
    };
    check(json!(3), json!(3), 3);
    check(json!(4), json!(2), 2);
    check(json!(2), json!(9), 2);
    check(json!(5), Value::Null, 5);
    check(Value::Null, json!(5), 1);
    check_error(&[("spec.parallelism", json!(0))], "spec.parallelism: `0` is too small; the least is 1");
    check_error(&[("spec.completions", json!(-1))], "spec.completions: `-1` is too small");
    check_error(
        &[("spec.parallelism", json!("3"))],
        "spec.parallelism: must be a whole number, not a string; remove the quotes: 3",
    );
    check_error(&[("spec.parallelism", json!(1_000_000))], "the maximum is 100000");
    check_error(
        &[("spec.parallelism", json!(2)), ("spec.completionMode", json!("Indexed"))],
        "spec.completions: is missing",
    );
    let large = [
        ("spec.parallelism", json!(200_000)),
        ("spec.completions", json!(200_000)),
        ("spec.completionMode", json!("Indexed")),
    ];
    assert_eq!(read(with(&large)).unwrap_err().len(), 2, "what is too large is not missing");
    check_error(&[("spec.backoffLimit", json!(-1))], "spec.backoffLimit: `-1` is too small");
    check_error(
        &[("spec.ttlSecondsAfterFinished", json!(1.5))],
        "spec.ttlSecondsAfterFinished: must be a whole number",
    );
}

#[test]
fn run_time_is_the_shortest_bound_and_only_the_maximum_execution_time_adds_up() {
    let left_after = |changes: &[(&str, Value)], ran: Millis| {
        let gang = read(with(changes)).unwrap().gang;
        (gang.run_left(ran), gang.deactivates_when_up(ran))
    };
    let check = |changes: &[(&str, Value)], expect: Option<Millis>| {
        assert_eq!(left_after(changes, Millis(0)).0, expect)
    };
    let annotated = |text: &str| ("metadata.annotations", json!({MAX_RUN_ANNOTATION: text}));
    check(&[("spec.activeDeadlineSeconds", json!(60))], Some(Millis::secs(60)));
    check(&[annotated("600")], Some(Millis::secs(600)));
    check(&[annotated("600"), ("spec.activeDeadlineSeconds", json!(60))], Some(Millis::secs(60)));
    check(
        &[annotated("600"), ("metadata.labels", json!({QUEUE_LABEL: "q", MAX_EXEC_LABEL: "30"}))],
        Some(Millis::secs(30)),
    );
    let bounds = [
        ("spec.activeDeadlineSeconds", json!(60)),
        ("metadata.annotations", json!({MAX_RUN_ANNOTATION: "50"})),
        ("metadata.labels", json!({QUEUE_LABEL: "q", MAX_EXEC_LABEL: "100"})),
    ];
    for (ran, left, deactivates) in [(0, 50, false), (40, 50, false), (50, 50, false), (80, 20, true)] {
        assert_eq!(left_after(&bounds, Millis::secs(ran)), (Some(Millis::secs(left)), deactivates), "{ran}");
    }
    check_error(
        &[annotated("10m")],
        "metadata.annotations[provreq.kueue.x-k8s.io/maxRunDurationSeconds]: `10m` is not a number of \
            seconds",
    );
    check_error(&[annotated("0")], "`0` is not a number of seconds");
    check(&[("metadata.annotations", json!({MAX_RUN_ANNOTATION: 600}))], Some(Millis::secs(600)));
    check_error(
        &[("metadata.annotations", json!({MAX_RUN_ANNOTATION: 600.5}))],
        "must be a string, not the number `600.5`; quote it as it is written",
    );
    check_error(&[("spec.activeDeadlineSeconds", json!(0))], "`0` is too small");
}

#[test]
fn jobs_of_other_controllers_are_refused() {
    assert!(read(with(&[("spec.managedBy", json!("kueue.x-k8s.io/multikueue"))])).is_ok());
    check_error(
        &[("spec.managedBy", json!("example.com/mine"))],
        "spec.managedBy: `example.com/mine` would run this job, not Meridian",
    );
    check_error(
        &[(&format!("{POD}.restartPolicy"), json!("Always"))],
        "`Always` is not a choice; the choices are `Never`, `OnFailure`",
    );
    check_error(&[("spec.template", Value::Null)], "spec.template: is missing");
    check_error(&[("spec", json!([]))], "spec: must be a mapping, not a list");
}

#[test]
fn job_names_fit_into_pod_labels() {
    check_error(&[("metadata.name", json!("a".repeat(64)))], "the maximum is 63 characters");
    assert!(read(with(&[("metadata.name", json!("a".repeat(63)))])).is_ok());
}

#[test]
fn every_ignored_field_is_named() {
    let job = with(&[
        ("metadata.annotations", json!({"kueue.x-k8s.io/priority-boost": "3"})),
        (
            "spec.podFailurePolicy",
            json!({"rules": [{"action": "Ignore",
            "onPodConditions": [{"type": "DisruptionTarget"}]}]}),
        ),
        (
            "spec.template.metadata",
            json!({"annotations": {"kueue.x-k8s.io/podset-required-topology": "rack",
                "kueue.x-k8s.io/podset-group-name": "g"}}),
        ),
        (&format!("{POD}.topologySpreadConstraints"), json!([])),
    ]);
    let (object, warnings) = Object::from_value(job).unwrap();
    assert_eq!(warnings, []);
    let fields: Vec<String> =
        ignored_fields(&object).iter().map(|warning| warning.field.to_string()).collect();
    assert_eq!(
        fields,
        [
            "metadata.annotations[kueue.x-k8s.io/priority-boost]",
            "spec.template.metadata.annotations[kueue.x-k8s.io/podset-group-name]",
            "spec.podFailurePolicy",
        ]
    );
}
