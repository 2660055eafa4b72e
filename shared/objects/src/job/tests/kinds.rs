//! Jobs of operators, as their users write them, and their gangs.

use super::*;
use crate::kind::Kind;

/// Name and number of pods of each pod set, and the cpus of each pod in thousandths.
fn sets(manifest: Value) -> Vec<(String, u32, i64)> {
    let job = read(manifest).unwrap();
    job.gang.pod_sets.into_iter().map(|set| (set.name, set.count, set.per_pod["cpu"])).collect()
}

fn set(name: &str, count: u32, cpus: i64) -> (String, u32, i64) {
    (name.to_owned(), count, cpus * 1_000)
}

fn check_refused(manifest: Value, expect: &str) {
    let errors = read(manifest).unwrap_err();
    assert!(errors.iter().any(|error| error.contains(expect)), "wanted `{expect}` in {errors:?}");
}

fn manifest(api_version: &str, kind: &str, spec: Value) -> Value {
    json!({
        "apiVersion": api_version, "kind": kind,
        "metadata": {"name": "train", "namespace": "ml", "labels": {QUEUE_LABEL: "team"}},
        "spec": spec,
    })
}

/// A pod template with one container of this name.
fn pods(container: &str, cpus: u32) -> Value {
    json!({"spec": {"containers": [{
        "name": container, "image": "registry.example.com/train:1", "command": ["python", "train.py"],
        "resources": {"requests": {"cpu": cpus, "memory": "1Gi"}},
    }]}})
}

fn pytorch_job() -> Value {
    manifest(
        "kubeflow.org/v1",
        "PyTorchJob",
        json!({
            "nprocPerNode": "auto",
            "runPolicy": {"ttlSecondsAfterFinished": 60, "activeDeadlineSeconds": 3600,
                "cleanPodPolicy": "Running"},
            "pytorchReplicaSpecs": {
                "Worker": {"replicas": 3, "restartPolicy": "OnFailure", "template": pods("pytorch", 4)},
                "Master": {"replicas": 1, "restartPolicy": "OnFailure", "template": pods("pytorch", 1)},
            },
        }),
    )
}

#[test]
fn a_pytorch_job_is_a_master_and_workers() {
    assert_eq!(sets(pytorch_job()), [set("master", 1, 1), set("worker", 3, 4)]);
    let job = read(pytorch_job()).unwrap();
    assert_eq!(
        (job.ttl_after_finished, job.gang.active_deadline),
        (Some(Millis::secs(60)), Some(Millis::mins(60)))
    );
    let kind = Kind::PyTorchJob.job().unwrap();
    let sent = kind.for_cluster(pytorch_job());
    assert_eq!(
        sent["spec"]["runPolicy"],
        json!({"activeDeadlineSeconds": 3600, "cleanPodPolicy": "Running", "suspend": true})
    );
    assert_eq!(kind.resuming_patch(&sent), json!({"spec": {"runPolicy": {"suspend": false}}}));
    let mut other = pytorch_job();
    other["spec"]["runPolicy"]["managedBy"] = json!("example.com/mine");
    check_refused(other, "spec.runPolicy.managedBy: `example.com/mine` would run this job");
    let mut typo = pytorch_job();
    typo["spec"]["pytorchReplicaSpecs"]["Worker"]["replicas"] = json!("3");
    check_refused(typo, "spec.pytorchReplicaSpecs.Worker.replicas: must be a whole number");
    check_refused(
        manifest("kubeflow.org/v1", "PyTorchJob", json!({"pytorchReplicaSpecs": {}})),
        "spec.pytorchReplicaSpecs: describes no pods",
    );
}

#[test]
fn an_mpi_job_is_a_launcher_and_workers() {
    let job = manifest(
        "kubeflow.org/v2beta1",
        "MPIJob",
        json!({
            "slotsPerWorker": 1, "runPolicy": {"cleanPodPolicy": "Running"},
            "mpiReplicaSpecs": {
                "Launcher": {"replicas": 1, "template": pods("mpi-launcher", 1)},
                "Worker": {"replicas": 2, "template": pods("mpi-worker", 8)},
            },
        }),
    );
    assert_eq!(sets(job), [set("launcher", 1, 1), set("worker", 2, 8)]);
}

fn ray_cluster() -> Value {
    json!({
        "rayVersion": "2.46.0",
        "headGroupSpec": {"rayStartParams": {"dashboard-host": "0.0.0.0"}, "template": pods("ray-head", 1)},
        "workerGroupSpecs": [
            {"groupName": "small", "replicas": 2, "minReplicas": 2, "maxReplicas": 2, "rayStartParams": {},
             "template": pods("ray-worker", 2)},
            {"groupName": "tpus", "replicas": 1, "numOfHosts": 4, "template": pods("ray-worker", 8)},
        ],
    })
}

fn ray_job() -> Value {
    let spec = json!({
        "entrypoint": "python train.py", "shutdownAfterJobFinishes": true, "rayClusterSpec": ray_cluster(),
    });
    manifest("ray.io/v1", "RayJob", spec)
}

#[test]
fn a_ray_cluster_is_a_head_and_groups_of_workers() {
    let cluster = manifest("ray.io/v1", "RayCluster", ray_cluster());
    assert_eq!(sets(cluster.clone()), [set("head", 1, 1), set("small", 2, 2), set("tpus", 4, 8)]);
    let mut scaled = cluster.clone();
    scaled["spec"]["enableInTreeAutoscaling"] = json!(true);
    check_refused(scaled, "spec.enableInTreeAutoscaling: would change the number of pods");
    let mut unsized_group = cluster.clone();
    unsized_group["spec"]["workerGroupSpecs"][0].as_object_mut().unwrap().remove("replicas");
    check_refused(unsized_group, "spec.workerGroupSpecs[0].replicas: is missing");
    let mut headless = cluster;
    headless["spec"].as_object_mut().unwrap().remove("headGroupSpec");
    check_refused(headless, "spec.headGroupSpec: is missing");
}

/// The operator would make a pod without our labels, and nothing would have counted it.
#[test]
fn the_pod_that_submits_a_ray_job_has_quota_too() {
    let expected = [set("head", 1, 1), set("small", 2, 2), set("tpus", 4, 8)];
    let submitter = ("submitter".to_owned(), 1, 500);
    assert_eq!(sets(ray_job()), [&expected[..], &[submitter]].concat());
    let (object, _) = Object::from_value(ray_job()).unwrap();
    let image = object.stored.pointer("/spec/submitterPodTemplate/spec/containers/0/image");
    assert_eq!(image, Some(&json!("registry.example.com/train:1")), "that of the head");
    let mut own = ray_job();
    own["spec"]["submitterPodTemplate"] = pods("submit", 2);
    assert_eq!(sets(own.clone())[3], set("submitter", 1, 2));
    own["spec"]["submissionMode"] = json!("HTTPMode");
    check_refused(own, "spec.submitterPodTemplate: has no effect with this `submissionMode`");
    let mut by_http = ray_job();
    by_http["spec"]["submissionMode"] = json!("HTTPMode");
    assert_eq!(sets(by_http), expected);
    let mut kept = ray_job();
    kept["spec"]["shutdownAfterJobFinishes"] = json!(false);
    check_refused(kept, "spec.shutdownAfterJobFinishes: must be set");
    let mut elsewhere = ray_job();
    elsewhere["spec"]["clusterSelector"] = json!({"ray.io/cluster": "shared"});
    check_refused(
        elsewhere,
        "spec.clusterSelector: names an existing cluster, for whose pods this job has no quota",
    );
}

#[test]
fn a_ray_job_ends_as_its_operator_says() {
    let kind = Kind::RayJob.job().unwrap();
    let of = |status: Value| kind.state(&json!({"status": status})).to_owned();
    assert_eq!(of(json!({"jobStatus": "SUCCEEDED", "jobDeploymentStatus": "Complete"})), "Finished");
    assert_eq!(of(json!({"jobStatus": "FAILED", "jobDeploymentStatus": "Failed"})), "Failed");
    assert_eq!(of(json!({"jobStatus": "STOPPED", "jobDeploymentStatus": "Complete"})), "Failed");
    assert_eq!(of(json!({"jobStatus": "FAILED", "jobDeploymentStatus": "Retrying"})), "Pending");
    let ended = json!({"status": {"jobDeploymentStatus": "Failed", "reason": "AppFailed", "message": "m",
        "endTime": "2026-01-01T00:00:00Z"}});
    let end = kind.end(&ended).unwrap();
    assert_eq!((end.succeeded, end.reason, end.at), (false, "AppFailed", "2026-01-01T00:00:00Z"));
}

fn leader_worker_set(leader: Value) -> Value {
    let mut template = json!({"size": 4, "workerTemplate": pods("worker", 2)});
    if !leader.is_null() {
        template["leaderTemplate"] = leader;
    }
    let spec = json!({"replicas": 3, "leaderWorkerTemplate": template});
    manifest("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", spec)
}

#[test]
fn a_leader_worker_set_is_groups_of_pods_and_their_leaders() {
    assert_eq!(sets(leader_worker_set(Value::Null)), [set("main", 12, 2)]);
    assert_eq!(sets(leader_worker_set(pods("leader", 1))), [set("leader", 3, 1), set("workers", 9, 2)]);
    let mut wrong = leader_worker_set(Value::Null);
    wrong["spec"]["replicas"] = json!(-1);
    check_refused(wrong, "spec.replicas: `-1` is too small");
    let mut alone = leader_worker_set(pods("leader", 1));
    alone["spec"]["leaderWorkerTemplate"]["size"] = json!(1);
    assert_eq!(read(alone).unwrap().gang.pod_sets[1].count, 0);
}

#[test]
fn pod_sets_with_equal_templates_are_known_as_such() {
    let job = |(name, container): (&str, &str)| {
        let mut template = pods(container, 1);
        template["spec"]["restartPolicy"] = json!("Never");
        json!({"name": name, "template": {"spec": {"template": template}}})
    };
    let jobs: Vec<Value> = [("a", "x"), ("b", "y"), ("c", "x"), ("d", "x")].map(job).into();
    let read = read(manifest("jobset.x-k8s.io/v1alpha2", "JobSet", json!({"replicatedJobs": jobs}))).unwrap();
    let same: Vec<Option<&str>> = read.gang.pod_sets.iter().map(|set| set.same_template.as_deref()).collect();
    assert_eq!(same, [None, None, Some("a"), Some("a")]);
}

/// It has no suspend switch.
#[test]
fn a_suspended_leader_worker_set_has_no_groups() {
    let kind = Kind::LeaderWorkerSet.job().unwrap();
    let sent = kind.for_cluster(leader_worker_set(Value::Null));
    assert_eq!((&sent["spec"]["replicas"], kind.is_suspended(&sent)), (&json!(0), true));
    let resumed = kind.resuming_patch(&leader_worker_set(Value::Null));
    assert_eq!(resumed, json!({"spec": {"replicas": 3}}));
    let mut shown = leader_worker_set(Value::Null);
    kind.set_suspended(&mut shown, true);
    assert_eq!(shown["spec"]["replicas"], 3, "a pending one is shown as it was submitted");
}

#[test]
fn what_is_ignored_is_named_in_each_pod_set() {
    let mut job = pytorch_job();
    let spread = json!([{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}]);
    let worker = &mut job["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"];
    worker["topologySpreadConstraints"] = spread;
    worker["containers"][0]["securityContext"] = json!({"runAsUser": 1000});
    let (object, _) = Object::from_value(job).unwrap();
    let ignored: Vec<_> = ignored_fields(&object).iter().map(|ignored| ignored.field.to_string()).collect();
    assert_eq!(ignored, ["spec.pytorchReplicaSpecs.Worker.template.spec.topologySpreadConstraints"]);
}

#[test]
fn only_jobs_can_be_admitted_in_part() {
    let mut job = pytorch_job();
    job["metadata"]["annotations"] = json!({MIN_PARALLELISM_ANNOTATION: "2"});
    let (object, warnings) = Object::from_value(job).unwrap();
    assert!(job_to_workload(&object).unwrap().gang.pod_sets.iter().all(|set| set.min_count.is_none()));
    let warnings: Vec<_> = warnings.iter().map(ToString::to_string).collect();
    assert!(warnings[0].contains("has no effect: a PyTorchJob is started whole"), "{warnings:?}");
}

fn train_job() -> Value {
    manifest(
        "trainer.kubeflow.org/v1alpha1",
        "TrainJob",
        json!({
            "runtimeRef": {"name": "torch-distributed"},
            "trainer": {
                "image": "registry.example.com/train:1", "command": ["torchrun", "train.py"],
                "numNodes": 4, "numProcPerNode": 2,
                "resourcesPerNode": {
                    "requests": {"cpu": 8, "memory": "64Gi", "nvidia.com/gpu": 2},
                    "limits": {"nvidia.com/gpu": 2},
                },
            },
        }),
    )
}

/// The template of a TrainJob's pods is in the runtime: the agent marks them by a patch.
#[test]
fn a_train_job_is_its_nodes() {
    let (object, warnings) = Object::from_value(train_job()).unwrap();
    let job = job_to_workload(&object).unwrap();
    assert_eq!(sets(train_job()), [set("node", 4, 8)]);
    assert_eq!(job.gang.pod_sets[0].per_pod["nvidia.com/gpu"], 2);
    assert_eq!((job.parallelism, job.templates.len()), (4, 1));
    let warnings: Vec<_> = warnings.iter().map(ToString::to_string).collect();
    assert!(warnings[0].starts_with("spec.runtimeRef.name: the runtime isn't known here"), "{warnings:?}");
    let kind = Kind::TrainJob.job().unwrap();
    let found = kind.pod_sets(&object.stored);
    let template =
        "/spec/runtimePatches/0/trainingRuntimeSpec/template/spec/replicatedJobs/0/template/spec/template";
    assert_eq!((found[0].template.as_str(), found[0].count), (template, Some(4)));
    assert_eq!(object.stored["spec"]["runtimePatches"][0]["manager"], "meridian.dev/manager");
    assert_eq!(kind.for_cluster(object.stored)["spec"]["suspend"], true);
    let of = |kind: &str| kind_state(json!([{"type": kind, "status": "True"}]));
    assert_eq!([of("Complete"), of("Failed"), of("Suspended")], ["Finished", "Failed", "Pending"]);
}

fn kind_state(conditions: Value) -> String {
    Kind::TrainJob.job().unwrap().state(&json!({"status": {"conditions": conditions}})).to_owned()
}

#[test]
fn patches_of_a_train_job_decide_about_its_nodes() {
    let pods = json!({"nodeSelector": {"pool": "training"},
        "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
            {"nodeSelectorTerms": [{"matchExpressions":
                [{"key": "zone", "operator": "In", "values": ["a"]}]}]}}}});
    let template = json!({"spec": pods,
        "metadata": {"annotations": {"kueue.x-k8s.io/podset-required-topology": "rack"}}});
    let mut newer = train_job();
    newer["spec"]["runtimePatches"] = json!([{"manager": "me", "trainingRuntimeSpec": {"template": {"spec":
        {"replicatedJobs": [{"name": "node", "template": {"spec": {"template": template}}}]}}}}]);
    let mut older = train_job();
    older["spec"]["podTemplateOverrides"] = json!([{"targetJobs": [{"name": "node"}],
        "spec": template["spec"], "metadata": template["metadata"]}]);
    for manifest in [newer, older] {
        let (object, _) = Object::from_value(manifest).unwrap();
        let set = &job_to_workload(&object).unwrap().gang.pod_sets[0];
        assert_eq!(set.node_selector["pool"], "training");
        assert_eq!((set.tolerations.len(), set.affinity.len(), set.topology.is_some()), (1, 1, true));
        let patches = ["runtimePatches", "podTemplateOverrides"].map(|form| &object.stored["spec"][form]);
        let count: usize = patches.iter().filter_map(|all| all.as_array()).map(Vec::len).sum();
        assert_eq!(count, 1, "the job's own patch is used");
    }
    let mut others = train_job();
    others["spec"]["podTemplateOverrides"] = json!([]);
    let (object, _) = Object::from_value(others).unwrap();
    assert_eq!(object.stored["spec"]["podTemplateOverrides"][0]["targetJobs"], json!([{"name": "node"}]));
}

#[test]
fn a_train_job_whose_pods_are_not_known_is_refused() {
    let check = |field: &str, value: Value, expect: &str| {
        let mut job = train_job();
        job["spec"][field] = value;
        check_refused(job, expect);
    };
    check("runtimeRef", Value::Null, "spec.runtimeRef: is missing; name the runtime");
    check(
        "initializer",
        json!({"dataset": {"storageUri": "hf://x"}}),
        "spec.initializer: has pods whose requests",
    );
    check("trainer", json!({}), "spec.trainer.numNodes: is missing, and the runtime isn't known here");
    check("trainer", json!({"numNodes": 2}), "spec.trainer.resourcesPerNode: is missing");
    check("trainer", json!({"numNodes": 0}), "spec.trainer.numNodes: `0` is too small");
    let devices = json!({"numNodes": 2, "resourcesPerNode": {"requests": {"nvidia.com/gpu": 1}}});
    check("trainer", devices, "spec.trainer.resourcesPerNode.limits: has no limit of `nvidia.com/gpu`");
    let target = |name: &str| json!({"targetJobs": [{"name": name}]});
    let launcher = "spec.podTemplateOverrides[0]: the pods of the runtime's job `launcher` have no quota";
    check("podTemplateOverrides", json!([target("launcher")]), launcher);
    let twice = "spec.podTemplateOverrides[1]: `node` is patched twice";
    check("podTemplateOverrides", json!([target("node"), target("node")]), twice);
    let mut both = train_job();
    both["spec"]["podTemplateOverrides"] = json!([target("node")]);
    both["spec"]["runtimePatches"] = json!([{"manager": "me"}]);
    check_refused(both, "spec.podTemplateOverrides: can't be combined with `runtimePatches`");
}

fn lone_pod() -> Value {
    let mut pod = pods("main", 2);
    pod["spec"]["restartPolicy"] = json!("Never");
    pod["spec"]["activeDeadlineSeconds"] = json!(60);
    json!({"apiVersion": "v1", "kind": "Pod", "spec": pod["spec"],
        "metadata": {"name": "probe", "namespace": "ml", "labels": {QUEUE_LABEL: "team"},
            "annotations": {REGION_KEY: "europe-west4"}}})
}

#[test]
fn a_pod_with_a_queue_is_a_gang_of_one() {
    let job = read(lone_pod()).unwrap();
    assert_eq!(sets(lone_pod()), [set("main", 1, 2)]);
    assert_eq!((job.queue.as_str(), job.regions.len(), job.parallelism), ("team", 1, 1));
    assert_eq!(job.gang.active_deadline, Some(Millis::secs(60)));
    let refused = |change: &dyn Fn(&mut Value), expect: &str| {
        let mut pod = lone_pod();
        change(&mut pod);
        check_refused(pod, expect);
    };
    refused(
        &|pod| pod["metadata"]["labels"] = json!({}),
        "metadata.labels[kueue.x-k8s.io/queue-name]: is missing",
    );
    refused(&|pod| pod["spec"]["nodeName"] = json!("n1"), "spec.nodeName: would bind the pod before");
    refused(&|pod| pod["spec"]["containers"] = json!([]), "spec.containers: is missing");
    let grouped = "metadata.labels[kueue.x-k8s.io/pod-group-name]: makes the pod a part of a group";
    refused(&|pod| pod["metadata"]["labels"]["kueue.x-k8s.io/pod-group-name"] = json!("g"), grouped);
}

/// Gates can only be removed from a pod that exists.
#[test]
fn a_suspended_pod_has_the_gate_of_admission() {
    let kind = Kind::Pod.job().unwrap();
    let mut pod = lone_pod();
    pod["spec"]["schedulingGates"] = json!([{"name": "example.com/data"}]);
    let submitted = pod.clone();
    kind.set_suspended(&mut pod, true);
    assert!(kind.is_suspended(&pod) && read(pod.clone()).unwrap().suspend);
    let gates = json!([{"name": "example.com/data"}, {"name": "kueue.x-k8s.io/admission"}]);
    assert_eq!(pod["spec"]["schedulingGates"], gates);
    assert_eq!(kind.for_cluster(pod.clone()), submitted, "the agent's gate is another one");
    kind.set_suspended(&mut pod, false);
    assert_eq!(pod, submitted);
    pod["spec"]["schedulingGates"] =
        json!([{"name": "example.com/data"}, {"name": "meridian.dev/admission"}]);
    assert!(kind.is_suspended(&pod), "our own gate means the same");
    assert_eq!(kind.for_cluster(pod), submitted);
    let mut status = serde_json::Map::new();
    let finish = JobFinish { succeeded: false, reason: "Error", message: "exit code 1", at: "now" };
    kind.write_finish(&mut status, &finish);
    assert_eq!(status["phase"], "Failed");
    assert_eq!((kind.is_of_pods(), Kind::Job.job().unwrap().is_of_pods()), (true, false));
}

/// The status of a job whose pods are admitted, then run in a cluster, then in one that is lost, and then
/// have succeeded.
fn lives(kind: Kind, mut manifest: Value) -> [Value; 4] {
    let kind = kind.job().unwrap();
    let admitted = PodProgress { pods: 4, ..PodProgress::default() };
    let running = PodProgress { running: true, started: Some("later".into()), ..admitted.clone() };
    let lost = PodProgress { lost: true, ..running.clone() };
    let ended = PodProgress { running: false, succeeded: Some("end".into()), ..running.clone() };
    manifest["metadata"]["creationTimestamp"] = json!("first");
    [admitted, running, lost, ended].map(|progress| {
        let mut status = serde_json::Map::from_iter([("meridian".to_owned(), json!({}))]);
        kind.write_progress(&mut status, &progress, &manifest);
        if progress.succeeded.is_some() {
            let finish = JobFinish { succeeded: true, reason: "r", message: "m", at: "end" };
            kind.write_finish(&mut status, &finish);
        }
        let running = status["meridian"]["runningPods"].as_u64();
        assert_eq!(running, Some(if progress.is_seen_running() { 4 } else { 0 }));
        let job = json!({"status": status});
        assert_eq!((kind.has_succeeded(&job), kind.failure(&job)), (progress.succeeded.is_some(), None));
        job["status"].clone()
    })
}

/// Types of the conditions, with a minus where one doesn't hold.
fn conditions(status: &Value) -> Vec<String> {
    let conditions = status["conditions"].as_array().into_iter().flatten();
    let shown = |condition: &Value| {
        let sign = if condition["status"] == "True" { "" } else { "-" };
        format!("{sign}{}", condition["type"].as_str().unwrap())
    };
    conditions.map(shown).collect()
}

#[test]
fn jobs_of_kubeflow_have_the_conditions_and_counts_of_their_operators() {
    let [admitted, running, lost, ended] = lives(Kind::PyTorchJob, pytorch_job());
    assert_eq!(conditions(&admitted), ["Created"]);
    assert_eq!(conditions(&running), ["Created", "Running"]);
    assert_eq!(conditions(&lost), ["Created", "-Running"]);
    assert_eq!(conditions(&ended), ["Created", "-Running", "Succeeded"], "kubectl shows the last one");
    let (created, began) = (&running["conditions"][0], &running["conditions"][1]);
    assert_eq!([&created["reason"], &created["lastUpdateTime"]], ["PyTorchJobCreated", "first"]);
    assert_eq!(began["message"], "PyTorchJob train is running.");
    assert_eq!([&began["lastTransitionTime"], &running["startTime"]], ["later", "later"]);
    assert_eq!(running["replicaStatuses"], json!({"Master": {"active": 1}, "Worker": {"active": 3}}));
    assert_eq!([&lost["replicaStatuses"], &ended["replicaStatuses"]], [&Value::Null; 2]);
}

#[test]
fn a_ray_job_shows_where_it_is_as_its_operator_does() {
    let states = lives(Kind::RayJob, ray_job()).map(|status| {
        let of = |at: &str| status.pointer(at).cloned().unwrap_or_default();
        json!([of("/jobDeploymentStatus"), of("/jobStatus"), of("/rayClusterStatus/readyWorkerReplicas")])
    });
    assert_eq!(states[0], json!(["Suspended", null, 0]));
    assert_eq!(states[1], json!(["Running", "RUNNING", 6]));
    assert_eq!(states[2], json!(["Running", null, 0]));
    assert_eq!(states[3], json!(["Complete", "SUCCEEDED", 0]));
}

#[test]
fn a_train_job_and_a_leader_worker_set_have_the_status_of_their_controllers() {
    let [admitted, running, _, ended] = lives(Kind::TrainJob, train_job());
    assert_eq!(conditions(&admitted), ["Suspended"]);
    assert_eq!(conditions(&running), ["-Suspended"]);
    assert_eq!(conditions(&ended), ["-Suspended", "Complete"]);
    assert_eq!([&running["jobsStatus"][0]["ready"], &ended["jobsStatus"][0]["succeeded"]], [1, 1]);
    let [admitted, running, lost, _] = lives(Kind::LeaderWorkerSet, leader_worker_set(Value::Null));
    assert_eq!([&admitted, &running, &lost].map(|status| status["readyReplicas"].clone()), [0, 3, 0]);
    assert!(admitted.get("conditions").is_none());
    assert_eq!([conditions(&running), conditions(&lost)], [["Available"], ["-Available"]]);
    let reasons = [&running, &lost].map(|status| status["conditions"][0]["reason"].clone());
    assert_eq!(reasons, ["AllGroupsReady", "GroupsNotReady"]);
}

#[test]
fn a_ray_cluster_counts_its_workers_as_its_own_operator_does() {
    let kind = Kind::RayCluster.job().unwrap();
    let mut manifest = manifest("ray.io/v1", "RayCluster", ray_cluster());
    let mut counts = |running, lost| {
        let mut status = serde_json::Map::from_iter([("meridian".to_owned(), json!({"state": "Running"}))]);
        let progress = PodProgress { pods: 4, running, lost, ..PodProgress::default() };
        kind.write_progress(&mut status, &progress, &manifest);
        manifest["status"] = Value::Object(status);
        let status = &manifest["status"];
        let shown = [&status["state"], &status["desiredWorkerReplicas"], &status["readyWorkerReplicas"]];
        (json!(shown), kind.active(&manifest))
    };
    assert_eq!(counts(true, false), (json!(["ready", 3, 3]), 4));
    assert_eq!(counts(false, false), (json!(["suspended", 3, 0]), 0));
    assert_eq!(counts(true, true), (json!(["suspended", 3, 0]), 0));
}
