//! The row of `batch/v1` Jobs, and other kinds of jobs that rows can describe.

use super::*;
use crate::job::pod_set_paths::PodSetName;
use crate::job::state;
use crate::job::status::StateSign;

fn job() -> &'static JobKind {
    JobKind::usual()
}

#[test]
fn kinds_are_found_by_each_name() {
    for job in JobKind::all() {
        assert_eq!(JobKind::of(job.kind()).unwrap().name(), job.name());
        assert_eq!(JobKind::by_name(job.name()).unwrap().kind(), job.kind());
        let manifest = json!({"apiVersion": job.api_version(), "kind": job.name()});
        assert_eq!(JobKind::of_manifest(&manifest).unwrap().kind(), job.kind());
    }
    assert!(Kind::ClusterQueue.job().is_none() && JobKind::by_name("Deployment").is_none());
    assert!(JobKind::of_manifest(&json!({"kind": "Job"})).is_none());
}

#[test]
fn how_a_job_ended_comes_before_where_it_is() {
    let of = |status: Value| state(&json!({"status": status})).to_owned();
    let ended = |kind: &str| json!([{"type": kind, "status": "True"}]);
    assert_eq!(of(json!({"conditions": ended("Complete"), "meridian": {"state": "Finished"}})), "Finished");
    assert_eq!(of(json!({"conditions": ended("Failed"), "meridian": {"state": "Finished"}})), "Failed");
    assert_eq!(of(json!({"conditions": ended("Suspended"), "meridian": {"state": "Running"}})), "Running");
    assert_eq!(
        (of(json!({"active": 2})), of(json!({})), of(json!(null))),
        ("Running".into(), "Pending".into(), "Pending".into())
    );
    let mut status = Map::new();
    let finish = JobFinish { succeeded: false, reason: "BackoffLimitExceeded", message: "m", at: "now" };
    job().write_finish(&mut status, &finish);
    let failed = json!({"status": status});
    assert!(job().has_ended(&failed) && !job().has_ended(&json!({})));
    assert_eq!(job().failure(&failed), Some(["BackoffLimitExceeded", "m"]));
}

#[test]
fn sizes_are_read_and_written() {
    let size = |parallelism, completions| Some(Size { parallelism, completions });
    let of = |spec: Value| job().size(&json!({"spec": spec}));
    assert_eq!(of(json!({})), size(1, None));
    assert_eq!(of(json!({"parallelism": 3, "completions": 3})), size(3, None));
    assert_eq!(
        of(json!({"parallelism": 3, "completions": 3, "completionMode": "Indexed"})),
        size(3, Some(3))
    );
    assert_eq!(of(json!({"parallelism": 3, "completions": 9, "completionMode": "Indexed"})), size(3, None));
    assert_eq!(of(json!({"parallelism": "3"})), None);
    let mut manifest = json!({"spec": {"parallelism": 2, "completions": 9}});
    job().set_size(&mut manifest, Size { parallelism: 4, completions: None });
    assert_eq!(manifest, json!({"spec": {"parallelism": 4, "completions": 9}}));
    job().set_size(&mut manifest, Size { parallelism: 5, completions: Some(5) });
    assert_eq!(manifest, json!({"spec": {"parallelism": 5, "completions": 5}}));
}

#[test]
fn the_suspend_switch_is_read_and_written() {
    let mut manifest = json!({});
    assert!(!job().is_suspended(&manifest));
    job().set_suspended(&mut manifest, true);
    assert_eq!(manifest, json!({"spec": {"suspend": true}}));
    assert!(job().is_suspended(&manifest));
    manifest["spec"]["parallelism"] = json!(4);
    job().remove_mutable_fields(&mut manifest);
    assert_eq!(manifest, json!({"spec": {}}));
}

#[test]
fn only_jobs_of_known_controllers_are_taken() {
    let manifest = json!({"spec": {"managedBy": "kueue.x-k8s.io/multikueue"}});
    assert!(job().manager(&manifest).is_some_and(|manager| job().takes_over_from(manager)));
    assert!(!job().takes_over_from("example.com/mine"));
}

#[test]
fn an_annotation_makes_a_job_elastic() {
    let annotated = |value: &str| BTreeMap::from([(ELASTIC_ANNOTATION.to_owned(), value.to_owned())]);
    assert!(job().is_elastic(&annotated("true")));
    assert!(!job().is_elastic(&annotated("yes")) && !job().is_elastic(&BTreeMap::new()));
}

/// A kind that is described only here: what is not about its shape is that of a Job.
fn described(pod_sets: &'static [PodSetPaths], suspend: Switch, states: StateRules) -> JobKind {
    let JobKind { kind, managed_by, managers, name_chars_max, ttl, .. } = *job();
    let JobKind { deadline, spec, check, complete, ignored, read, write_progress, .. } = *job();
    JobKind {
        kind,
        pod_sets,
        find: None,
        size: None,
        suspend,
        managed_by,
        managers,
        name_chars_max,
        ttl,
        deadline,
        spec,
        check,
        complete,
        ignored,
        states,
        read,
        write_progress,
    }
}

/// Names, numbers of pods and images of a manifest's pod sets.
fn sets(kind: &JobKind, manifest: &Value) -> Vec<(String, Option<u32>, String)> {
    let image = |template: &Value| {
        template.pointer("/spec/containers/0/image").and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    let templates = kind.templates(manifest);
    let found = kind.pod_sets(manifest).into_iter().zip(templates);
    found.map(|(set, template)| (set.name, set.count, image(template))).collect()
}

fn template(image: &str) -> Value {
    json!({"spec": {"containers": [{"name": "main", "image": image}]}})
}

fn set(name: &str, count: u32, image: &str) -> (String, Option<u32>, String) {
    (name.to_owned(), Some(count), image.to_owned())
}

#[test]
fn a_row_describes_a_list_of_replicated_jobs() {
    let job_set = described(
        &[PodSetPaths {
            at: "/spec/replicatedJobs/*",
            name: PodSetName::At("/name"),
            template: "/template/spec/template",
            counts: &["/replicas", "/template/spec/parallelism"],
            completions: Some("/template/spec/completions"),
        }],
        Switch::Flag("/spec/suspend"),
        StateRules {
            succeeded: StateSign::Condition("Completed"),
            failed: StateSign::Condition("Failed"),
            active: "/status/replicatedJobsStatus/*/active",
        },
    );
    let mut manifest = json!({"spec": {"replicatedJobs": [
        {"name": "driver", "template": {"spec": {"template": template("driver")}}},
        {"name": "workers", "replicas": 2,
         "template": {"spec": {"parallelism": 4, "completions": 3, "template": template("worker")}}},
    ]}});
    assert_eq!(sets(&job_set, &manifest), [set("driver", 1, "driver"), set("workers", 6, "worker")]);
    assert_eq!(job_set.pods(&manifest), Some(7));
    assert_eq!(job_set.template_field(), "spec.replicatedJobs[*].template.spec.template");
    assert_eq!((job_set.size(&manifest).unwrap().parallelism, job_set.is_suspended(&manifest)), (7, false));
    manifest["status"] = json!({"replicatedJobsStatus": [{"active": 1}, {"active": 2}]});
    assert_eq!((job_set.active(&manifest), job_set.state(&manifest)), (3, "Running"));
    manifest["status"]["conditions"] = json!([{"type": "Completed", "status": "True"}]);
    assert_eq!(job_set.state(&manifest), "Finished");
    manifest["spec"]["replicatedJobs"][1]["replicas"] = json!("2");
    assert_eq!(job_set.pods(&manifest), None);
}

#[test]
fn rows_describe_named_replica_specs() {
    const fn replica(at: &'static str, name: &'static str) -> PodSetPaths {
        let name = PodSetName::Fixed(name);
        PodSetPaths { at, name, template: "/template", counts: &["/replicas"], completions: None }
    }
    const REPLICAS: [PodSetPaths; 2] = [
        replica("/spec/pytorchReplicaSpecs/Master", "master"),
        replica("/spec/pytorchReplicaSpecs/Worker", "worker"),
    ];
    let pytorch = described(
        &REPLICAS,
        Switch::Flag("/spec/runPolicy/suspend"),
        StateRules {
            succeeded: StateSign::Condition("Succeeded"),
            failed: StateSign::Condition("Failed"),
            active: "/status/replicaStatuses/Worker/active",
        },
    );
    let mut manifest = json!({"spec": {"pytorchReplicaSpecs": {
        "Worker": {"replicas": 3, "template": template("worker")},
        "Master": {"template": template("master")},
    }}});
    assert_eq!(sets(&pytorch, &manifest), [set("master", 1, "master"), set("worker", 3, "worker")]);
    pytorch.set_suspended(&mut manifest, true);
    assert_eq!(manifest["spec"]["runPolicy"], json!({"suspend": true}));
    manifest["spec"]["pytorchReplicaSpecs"].as_object_mut().unwrap().remove("Master");
    assert_eq!(sets(&pytorch, &manifest), [set("worker", 3, "worker")]);
}

#[test]
fn rows_describe_a_head_and_groups_of_workers() {
    let ray = described(
        &[
            PodSetPaths {
                at: "/spec/rayClusterSpec/headGroupSpec",
                name: PodSetName::Fixed("head"),
                template: "/template",
                counts: &[],
                completions: None,
            },
            PodSetPaths {
                at: "/spec/rayClusterSpec/workerGroupSpecs/*",
                name: PodSetName::At("/groupName"),
                template: "/template",
                counts: &["/replicas", "/numOfHosts"],
                completions: None,
            },
        ],
        Switch::Flag("/spec/suspend"),
        StateRules {
            succeeded: StateSign::Fields(&[("jobStatus", "SUCCEEDED")]),
            failed: StateSign::Fields(&[("jobStatus", "FAILED")]),
            active: "/status/rayClusterStatus/readyWorkerReplicas",
        },
    );
    let mut manifest = json!({"spec": {"rayClusterSpec": {
        "headGroupSpec": {"template": template("head")},
        "workerGroupSpecs": [
            {"groupName": "small", "replicas": 2, "template": template("cpu")},
            {"groupName": "large", "replicas": 3, "numOfHosts": 4, "template": template("tpu")},
        ],
    }}});
    assert_eq!(
        sets(&ray, &manifest),
        [set("head", 1, "head"), set("small", 2, "cpu"), set("large", 12, "tpu")]
    );
    let mut status = Map::new();
    ray.write_finish(
        &mut status,
        &JobFinish { succeeded: false, reason: "AppFailed", message: "exit code 1", at: "now" },
    );
    manifest["status"] = Value::Object(status);
    assert_eq!(ray.state(&manifest), "Failed");
    assert_eq!(ray.failure(&manifest), Some(["AppFailed", "exit code 1"]));
}
