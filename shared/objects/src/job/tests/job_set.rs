//! JobSets and their gangs.

use super::*;
use crate::fields::FieldValidation;
use crate::kind::Kind;

/// A training with a driver and two groups of workers, as its users write it.
fn job_set() -> Value {
    let template = |image: &str, requests: Value| {
        json!({
            "metadata": {"annotations": {"kueue.x-k8s.io/podset-required-topology": "example.com/rack"}},
            "spec": {
                "restartPolicy": "Never",
                "terminationGracePeriodSeconds": 20,
                "nodeSelector": {"pool": image},
                "containers": [{"name": "main", "image": image, "resources": {"requests": requests}}],
            },
        })
    };
    json!({
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "pretrain", "namespace": "ml", "labels": {QUEUE_LABEL: "team"}},
        "spec": {
            "network": {"enableDNSHostnames": true},
            "failurePolicy": {"maxRestarts": 3},
            "successPolicy": {"operator": "All", "targetReplicatedJobs": ["workers"]},
            "ttlSecondsAfterFinished": 600,
            "replicatedJobs": [
                {"name": "driver", "template": {"spec": {
                    "template": template("driver", json!({"cpu": "500m"}))}}},
                {"name": "workers", "replicas": 2, "template": {"spec": {
                    "parallelism": 4, "completions": 4, "completionMode": "Indexed", "backoffLimit": 0,
                    "template": template("worker", json!({"cpu": "2"}))}}},
            ],
        },
    })
}

/// `job_set` with the value at each JSON pointer replaced.
fn changed(changes: &[(&str, Value)]) -> Result<JobWorkload, Vec<String>> {
    let mut manifest = job_set();
    for (pointer, value) in changes {
        let (parent, name) = pointer.rsplit_once('/').unwrap();
        manifest.pointer_mut(parent).unwrap()[name] = value.clone();
    }
    read(manifest)
}

#[test]
fn each_replicated_job_is_a_pod_set_of_one_gang() {
    let job = read(job_set()).unwrap();
    let sets: Vec<_> =
        job.gang.pod_sets.iter().map(|set| (set.name.as_str(), set.count, set.per_pod["cpu"])).collect();
    assert_eq!(sets, [("driver", 1, 500), ("workers", 8, 2_000)]);
    assert_eq!((job.queue.as_str(), job.ttl_after_finished), ("team", Some(Millis::secs(600))));
    assert_eq!((job.templates.len(), job.grace_period), (2, Some(Millis::secs(20))));
    let workers = &job.gang.pod_sets[1];
    assert_eq!(workers.node_selector["pool"], "worker");
    assert!(matches!(workers.topology.as_ref().unwrap().constraint, Some(Constraint::Required(_))));
}

#[test]
fn problems_of_a_job_set_name_their_field() {
    let check = |changes: &[(&str, Value)], expect: &str| {
        let errors = changed(changes).unwrap_err();
        assert!(errors.iter().any(|error| error.contains(expect)), "wanted `{expect}` in {errors:?}");
    };
    let workers = "/spec/replicatedJobs/1";
    check(
        &[(&format!("{workers}/template/spec/parallelism"), json!("4"))],
        "spec.replicatedJobs[1].template.spec.parallelism: must be a whole number, not a string; remove the \
            quotes: 4",
    );
    check(
        &[(
            &format!("{workers}/template/spec/template/spec/containers/0/resources/requests/cpu"),
            json!("x"),
        )],
        "spec.replicatedJobs[1].template.spec.template.spec.containers[0].resources.requests",
    );
    check(&[(&format!("{workers}/name"), json!("driver"))], "spec.replicatedJobs[1]: `driver` appears twice");
    check(&[(&format!("{workers}/name"), json!(""))], "spec.replicatedJobs[1]: has no name");
    check(
        &[(&format!("{workers}/template/spec/template"), Value::Null)],
        "spec.replicatedJobs[1].template.spec.template: is missing",
    );
    check(&[("/spec/replicatedJobs", json!([]))], "spec.replicatedJobs: describes no pods");
    check(&[("/spec/managedBy", json!("example.com/mine"))], "spec.managedBy: `example.com/mine` would run");
    check(&[("/metadata/name", json!("p".repeat(52)))], "longer than 63 characters");
    check(
        &[(&format!("{workers}/template/spec/template/spec/restartPolicy"), json!("Always"))],
        "restartPolicy: `Always` is not for Jobs",
    );
    check(
        &[(
            &format!("{workers}/template/spec/template/metadata/annotations"),
            json!({"meridian.dev/region": "eu"}),
        )],
        "write it into the job's own `metadata.annotations`",
    );
    assert!(changed(&[("/spec/managedBy", json!("kueue.x-k8s.io/multikueue"))]).is_ok());
}

/// Clusters may have a newer JobSet.
#[test]
fn an_unknown_field_is_a_warning_in_a_job_set_and_an_error_in_its_pods() {
    let mut manifest = job_set();
    manifest["spec"]["replicatedJob"] = json!([]);
    let strict = FieldValidation::StrictJobs;
    let (_, warnings) = Object::validated(manifest.clone(), strict).unwrap();
    let warnings: Vec<_> = warnings.iter().map(ToString::to_string).collect();
    assert_eq!(
        warnings,
        ["spec.replicatedJob: is an unknown field, kept as it is; did you mean `replicatedJobs`?"]
    );
    let template = manifest.pointer_mut("/spec/replicatedJobs/1/template/spec/template/spec").unwrap();
    template["containres"] = json!([]);
    let errors = Object::validated(manifest, strict).unwrap_err();
    let at = "spec.replicatedJobs[1].template.spec.template.spec.containres";
    assert_eq!(errors[0].to_string(), format!("{at}: is an unknown field; did you mean `containers`?"));
}

#[test]
fn a_cluster_gets_a_job_set_suspended_and_without_the_managers_fields() {
    let kind = Kind::JobSet.job().unwrap();
    let sent = kind.for_cluster(job_set());
    assert_eq!((&sent["spec"]["suspend"], sent["spec"].get("ttlSecondsAfterFinished")), (&json!(true), None));
    assert_eq!(kind.resuming_patch(&job_set()), json!({"spec": {"suspend": false}}));
    assert_eq!(kind.pod_sets(&sent)[1].template, "/spec/replicatedJobs/1/template/spec/template");
}

#[test]
fn a_job_set_has_the_status_of_its_own_controller() {
    let kind = Kind::JobSet.job().unwrap();
    let mut manifest = job_set();
    let mut status = serde_json::Map::from_iter([("meridian".to_owned(), json!({"state": "Running"}))]);
    let progress =
        PodProgress { pods: 9, running: true, started: Some("now".into()), ..PodProgress::default() };
    kind.write_progress(&mut status, &progress, &manifest);
    assert_eq!(status.get("startTime"), None, "API servers refuse a field that the definition lacks");
    assert_eq!(status["meridian"]["startTime"], "now");
    assert_eq!(status["replicatedJobsStatus"][1]["active"], 2);
    manifest["status"] = Value::Object(status);
    assert_eq!((kind.active(&manifest), kind.state(&manifest)), (9, "Running"));
    let finish = JobFinish { succeeded: true, reason: "AllJobsCompleted", message: "m", at: "now" };
    let mut status = manifest["status"].as_object().unwrap().clone();
    kind.write_finish(&mut status, &finish);
    manifest["status"] = Value::Object(status);
    assert_eq!(manifest["status"]["terminalState"], "Completed");
    assert_eq!(manifest["status"]["conditions"][0].get("lastProbeTime"), None, "no field of a JobSet");
    assert_eq!(
        (&manifest["status"]["conditions"][0]["type"], kind.state(&manifest)),
        (&json!("Completed"), "Finished")
    );
}

#[test]
fn jobs_that_wait_for_others_are_late() {
    let kind = Kind::JobSet.job().unwrap();
    let late = |manifest: &Value| kind.late_pod_sets(manifest).into_iter().collect::<Vec<_>>();
    let mut manifest = job_set();
    assert!(late(&manifest).is_empty(), "all start at once");
    manifest["spec"]["startupPolicy"] = json!({"startupPolicyOrder": "InOrder"});
    assert_eq!(late(&manifest), ["workers"]);
    manifest["spec"]["startupPolicy"] = json!({"startupPolicyOrder": "AnyOrder"});
    manifest["spec"]["replicatedJobs"][1]["dependsOn"] = json!([]);
    assert!(late(&manifest).is_empty());
    manifest["spec"]["replicatedJobs"][1]["dependsOn"] = json!([{"name": "driver", "status": "Complete"}]);
    assert_eq!(late(&manifest), ["workers"]);
}

#[test]
fn pods_of_other_kinds_that_wait_are_late() {
    let late = |kind: Kind, spec: Value| kind.job().unwrap().late_pod_sets(&json!({"spec": spec}));
    for (kind, spec, expect) in [
        (Kind::LeaderWorkerSet, json!({"startupPolicy": "LeaderReady"}), Some("workers")),
        (Kind::LeaderWorkerSet, json!({"startupPolicy": "LeaderCreated"}), None),
        (Kind::MPIJob, json!({"launcherCreationPolicy": "WaitForWorkersReady"}), Some("launcher")),
        (Kind::MPIJob, json!({}), None),
        (Kind::RayJob, json!({}), Some("submitter")),
        (Kind::PyTorchJob, json!({}), None),
    ] {
        assert_eq!(late(kind, spec).into_iter().next().as_deref(), expect, "{kind:?}");
    }
}
