//! Gangs of other kinds than Job.

use super::*;
use crate::hub::Booking;
use meridian_shared::time::Now;

/// A JobSet with one driver and two Jobs of two workers.
fn job_set() -> Start {
    let template = |app: &str| {
        let containers = json!([{"name": "c", "image": "i"}]);
        json!({"metadata": {"labels": {"app": app}}, "spec": {"containers": containers}})
    };
    let spec = json!({
        "apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet",
        "metadata": {"name": "train", "namespace": "ml", "labels": {"kueue.x-k8s.io/queue-name": "q"}},
        "spec": {
            "managedBy": "kueue.x-k8s.io/multikueue", "ttlSecondsAfterFinished": 5,
            "failurePolicy": {"maxRestarts": 2},
            "replicatedJobs": [
                {"name": "driver", "template": {"spec": {"template": template("driver")}}},
                {"name": "workers", "replicas": 2, "template": {"spec": {
                    "parallelism": 2, "completions": 2, "backoffLimit": 3, "template": template("worker")}}},
            ],
        },
    });
    let pod = |pod_set: &str, index: u32| PodPlacement {
        pod_set: pod_set.into(),
        index,
        node: format!("{pod_set}-{index}"),
        accelerators: BTreeMap::new(),
    };
    let placement = std::iter::once(pod("driver", 0)).chain((0..4).map(|index| pod("workers", index)));
    Start { spec: spec.to_string().into(), placement: placement.collect(), ..start(1) }
}

#[test]
fn a_job_set_is_created_suspended_with_every_template_marked() {
    let built = manifest::build(&job_set(), "worker-eu", None).unwrap();
    let at = |path: &str| built.manifest.pointer(path).cloned().unwrap_or(Value::Null);
    assert_eq!((at("/apiVersion"), at("/kind")), (json!("jobset.x-k8s.io/v1alpha2"), json!("JobSet")));
    assert_eq!((at("/spec/suspend"), at("/spec/failurePolicy/maxRestarts")), (json!(true), json!(2)));
    assert_eq!(built.resume, json!({"spec": {"suspend": false}}));
    for absent in ["/spec/managedBy", "/spec/ttlSecondsAfterFinished", "/spec/backoffLimit"] {
        assert_eq!(at(absent), Value::Null, "{absent}");
    }
    for (index, set) in ["driver", "workers"].into_iter().enumerate() {
        let template = at(&format!("/spec/replicatedJobs/{index}/template/spec/template"));
        assert_eq!(template["metadata"]["labels"]["meridian.dev/pod-set"], set);
        assert_eq!(template["metadata"]["labels"]["meridian.dev/uid"], KEY.0.to_string());
        assert_eq!(template["spec"]["schedulingGates"], json!([{"name": GATE}]));
    }
    assert_eq!(
        at("/spec/replicatedJobs/1/template/spec/backoffLimit"),
        3,
        "the JobSet counts its own failures"
    );
}

#[test]
fn only_the_pods_that_nodes_were_made_for_name_the_request() {
    let booking = Booking {
        request: "meridian-request".into(),
        class: "queued-provisioning.gke.io".into(),
        pod_sets: ["workers".to_owned()].into(),
        ends: None,
    };
    let built = manifest::build(&job_set(), "worker-eu", Some(&booking)).unwrap();
    let consumed = |index: usize| {
        let template = format!("/spec/replicatedJobs/{index}/template/spec/template");
        let annotations = built.manifest.pointer(&template)?.pointer("/metadata/annotations")?;
        Some(annotations["autoscaling.x-k8s.io/consume-provisioning-request"].clone())
    };
    assert_eq!([consumed(0), consumed(1)], [None, Some(json!("meridian-request"))]);
    let kind = meridian_objects::Kind::JobSet.job().unwrap();
    let facts = JobFacts::read(kind, &serde_json::from_value(built.manifest).unwrap());
    assert_eq!(facts.consumes.as_deref(), Some("meridian-request"), "a request in use isn't swept");
}

/// A JobSet that was resumed, with these late pod sets.
fn resumed(late_sets: &[&str]) -> (Run, Cluster) {
    let granted = job_set();
    let mut run = Run::granted(&granted, manifest::build(&granted, "worker", None).unwrap());
    let mut cluster = Cluster { job: None, pods: Vec::new(), version: 3, made: 0, nodes_answer: true };
    for _ in 0..2 {
        let request = run.next(Mono(0)).unwrap();
        let answer = match &request {
            Request::Create(_) => {
                cluster.create(&json!({"spec": {"parallelism": 5}}));
                let job = cluster.job.take().unwrap();
                let late_sets = late_sets.iter().map(|set| (*set).to_owned()).collect();
                cluster.job = Some(JobFacts { kind: meridian_objects::Kind::JobSet, late_sets, ..job });
                cluster.answer()
            }
            other => cluster.perform(other),
        };
        run.answered(Mono(0), Wall(0), &request, answer, &|_| true);
    }
    (run, cluster)
}

fn pod_of(set: &str, index: u32, number: u32) -> PodFacts {
    PodFacts { pod_set: Some(set.to_owned()), index: Some(index), ..pod(number) }
}

/// Lets the run carry out its next request, and then look at the pods.
fn step(run: &mut Run, cluster: &mut Cluster) -> Vec<RunnerEvent> {
    let mut events = run.observe(cluster.job.as_ref(), &cluster.pods.clone(), &|_| true);
    if let Some(request) = run.next(Mono(0)) {
        let answer = match &request {
            Request::Note { .. } => cluster.answer(),
            other => cluster.perform(other),
        };
        events.extend(run.answered(Mono(0), Wall(0), &request, answer, &|_| true));
    }
    events
}

#[test]
fn a_job_set_runs_and_moves_while_one_of_its_jobs_waits_for_another() {
    for (late, expect) in [(&["workers"][..], 1), (&[], 0), (&["driver", "workers"], 0)] {
        let (mut run, mut cluster) = resumed(late);
        cluster.pods = vec![pod_of("driver", 0, 1)];
        step(&mut run, &mut cluster);
        cluster.pods[0].phase = PodPhase::Running;
        let events = step(&mut run, &mut cluster);
        let is_running = |event: &&RunnerEvent| matches!(event, RunnerEvent::Running { .. });
        assert_eq!(events.iter().filter(is_running).count(), expect, "{late:?}: {events:?}");
    }
    let (mut run, mut cluster) = resumed(&["workers"]);
    cluster.pods = vec![pod_of("driver", 0, 1)];
    step(&mut run, &mut cluster);
    cluster.pods[0].phase = PodPhase::Running;
    let mut placement = job_set().placement;
    placement[4].node = "another".to_owned();
    run.place_anew(1, placement, None);
    let events: Vec<_> = (0..3).flat_map(|_| step(&mut run, &mut cluster)).collect();
    assert!(events.iter().any(|event| matches!(event, RunnerEvent::Moved { number: 1, .. })), "{events:?}");
    // The driver completed, and the workers come.
    cluster.pods.extend((0..4).map(|number| pod_of("workers", number % 2, number + 2)));
    step(&mut run, &mut cluster);
    assert!(cluster.pods.iter().any(|pod| pod.node.as_deref() == Some("another")), "{:?}", cluster.pods);
}

#[test]
fn pods_get_places_of_their_own_pod_set() {
    let (mut run, mut cluster) = resumed(&[]);
    // The second Job's pods come first, and both Jobs number their pods from 0.
    cluster.pods = [("workers", 0), ("workers", 1), ("driver", 0), ("workers", 0), ("workers", 1)]
        .into_iter()
        .zip(1..)
        .map(|((set, index), number)| pod_of(set, index, number))
        .collect();
    step(&mut run, &mut cluster);
    let mut nodes: Vec<_> = cluster.pods.iter().map(|pod| pod.node.clone().unwrap()).collect();
    assert_eq!(nodes[2], "driver-0");
    nodes.sort();
    assert_eq!(nodes, ["driver-0", "workers-0", "workers-1", "workers-2", "workers-3"]);
    for pod in &mut cluster.pods {
        pod.phase = PodPhase::Running;
    }
    let events = run.observe(cluster.job.as_ref(), &cluster.pods.clone(), &|_| true);
    assert!(matches!(&events[..], [RunnerEvent::Running { .. }]), "{events:?}");
    let mut numbers: Vec<_> = run.pods().into_iter().map(|(_, number)| number).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, [0, 1, 2, 3, 4], "logs name every pod of the gang by a number of its own");
}

#[test]
fn facts_of_a_job_set_come_from_its_own_status() {
    let kind = meridian_objects::Kind::JobSet.job().unwrap();
    let mut job: kube::api::DynamicObject =
        serde_json::from_value(manifest::build(&job_set(), "worker", None).unwrap().manifest).unwrap();
    let facts = JobFacts::read(kind, &job);
    assert!(facts.suspended && facts.end.is_none());
    assert_eq!((facts.run, facts.parallelism, facts.completions), (Some(KEY), 5, None));
    job.data["spec"]["suspend"] = json!(false);
    let annotations = job.metadata.annotations.as_mut().unwrap();
    annotations.insert("meridian.dev/started".to_owned(), "2026-01-01T00:00:00Z".to_owned());
    job.data["status"] = json!({"conditions": [
        {"type": "Suspended", "status": "False"},
        {"type": "Failed", "status": "True", "reason": "FailedJobs", "message": "jobset failed",
         "lastTransitionTime": "2026-01-01T00:10:00Z"},
    ]});
    let facts = JobFacts::read(kind, &job);
    let end = facts.end.unwrap();
    assert_eq!((facts.suspended, end.succeeded, end.reason.as_str()), (false, false, "FailedJobs"));
    assert_eq!(end.at.unwrap().since(facts.started.unwrap()), Millis::mins(10));
}

#[test]
fn a_job_set_whose_time_is_over_ends_as_failed() {
    let granted = Start { run_left: Some(Millis::secs(60)), ..job_set() };
    let mut run = Run::granted(&granted, manifest::build(&granted, "worker", None).unwrap());
    let facts = JobFacts {
        suspended: false,
        started: Some(Wall(1_000)),
        ..read(&manifest::build(&granted, "worker", None).unwrap().manifest)
    };
    let create = run.next(Mono(0)).unwrap();
    run.answered(Mono(0), Wall(0), &create, Answer::Job(Box::new(facts)), &|_| true);
    run.observe_time(Now { mono: Mono(0), wall: Wall(60_999) });
    assert!(!matches!(run.next(Mono(0)), Some(Request::Suspend { .. })));
    let mut adopted = Run::adopted(
        KEY,
        JobFacts {
            suspended: false,
            started: Some(Wall(1_000)),
            ..read(&manifest::build(&granted, "worker", None).unwrap().manifest)
        },
    );
    adopted.observe_time(Now { mono: Mono(0), wall: Wall(61_000) });
    let suspend = adopted.next(Mono(0)).unwrap();
    assert_eq!(suspend, Request::Suspend { why: "the attempt's run time is used up".into() });
    let stopped = JobFacts {
        started: Some(Wall(1_000)),
        ..read(&manifest::build(&granted, "worker", None).unwrap().manifest)
    };
    adopted.answered(Mono(0), Wall(0), &suspend, Answer::Job(Box::new(stopped)), &|_| true);
    let events =
        adopted.answered(Mono(0), Wall(62_000), &Request::ListPods, Answer::Pods(Vec::new()), &|_| true);
    let Some(RunnerEvent::Ended { result: EndResult::Failed { reason, .. }, .. }) = events.last() else {
        panic!("{events:?}")
    };
    assert_eq!(reason, "DeadlineExceeded");
}

/// The facts of an object as the API server has it after its creation.
fn read(manifest: &Value) -> JobFacts {
    let job: kube::api::DynamicObject = serde_json::from_value(manifest.clone()).unwrap();
    JobFacts::read(meridian_objects::Kind::JobSet.job().unwrap(), &job)
}

#[test]
fn the_objects_of_other_kinds_are_suspended_in_their_own_way() {
    let template = json!({"spec": {"containers": [{"name": "c", "image": "i"}]}});
    let built = |api_version: &str, kind: &str, spec: Value| {
        let manifest =
            json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": "t"}, "spec": spec});
        manifest::build(&Start { spec: manifest.to_string().into(), ..start(2) }, "eu", None).unwrap()
    };
    let pytorch = built(
        "kubeflow.org/v1",
        "PyTorchJob",
        json!({"pytorchReplicaSpecs": {
        "Master": {"template": template}, "Worker": {"template": template}}}),
    );
    assert_eq!(pytorch.manifest["spec"]["runPolicy"], json!({"suspend": true}));
    assert_eq!(pytorch.resume, json!({"spec": {"runPolicy": {"suspend": false}}}));
    let worker = pytorch.manifest.pointer("/spec/pytorchReplicaSpecs/Worker/template/metadata/labels");
    assert_eq!(worker.unwrap()["meridian.dev/pod-set"], "worker");
    let ray = built(
        "ray.io/v1",
        "RayJob",
        json!({
            "submitterPodTemplate": template,
            "rayClusterSpec": {"headGroupSpec": {"template": template},
                "workerGroupSpecs": [{"groupName": "g", "replicas": 1, "template": template}]},
        }),
    );
    for (at, set) in [
        ("/spec/submitterPodTemplate", "submitter"),
        ("/spec/rayClusterSpec/headGroupSpec/template", "head"),
        ("/spec/rayClusterSpec/workerGroupSpecs/0/template", "g"),
    ] {
        let template = ray.manifest.pointer(at).unwrap();
        assert_eq!(template["metadata"]["labels"]["meridian.dev/pod-set"], set);
        assert_eq!(template["spec"]["schedulingGates"][0]["name"], GATE);
    }
    let served = built(
        "leaderworkerset.x-k8s.io/v1",
        "LeaderWorkerSet",
        json!({
        "replicas": 2, "leaderWorkerTemplate": {"size": 1, "workerTemplate": template}}),
    );
    assert_eq!(served.manifest["spec"]["replicas"], 0);
    assert_eq!(served.resume, json!({"spec": {"replicas": 2}}));
}

fn train_job() -> Start {
    let patched = json!([{"name": "node", "template": {"spec": {"template": {}}}}]);
    let spec = json!({
        "apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob",
        "metadata": {"name": "train", "namespace": "ml"},
        "spec": {
            "runtimeRef": {"name": "torch-distributed"}, "trainer": {"numNodes": 2},
            "runtimePatches": [{"manager": "meridian.dev/manager", "trainingRuntimeSpec":
                {"template": {"spec": {"replicatedJobs": patched}}}}],
        },
    });
    Start { spec: spec.to_string().into(), ..start(2) }
}

#[test]
fn the_pods_of_a_train_job_are_marked_by_a_patch_of_its_runtime() {
    let built = manifest::build(&train_job(), "worker", None).unwrap();
    let template =
        "/spec/runtimePatches/0/trainingRuntimeSpec/template/spec/replicatedJobs/0/template/spec/template";
    let template = built.manifest.pointer(template).unwrap();
    assert_eq!(template["metadata"]["labels"]["meridian.dev/pod-set"], "node");
    assert_eq!(template["spec"]["schedulingGates"], json!([{"name": GATE}]));
    assert_eq!(template["spec"]["tolerations"][0]["key"], "meridian.dev/owned");
    assert_eq!(built.resume, json!({"spec": {"suspend": false}}));
}

/// An API server drops the fields that its version of a kind lacks. Pods without labels belong to no attempt.
#[test]
fn a_job_whose_marks_the_server_drops_is_not_started() {
    let granted = train_job();
    let mut run = Run::granted(&granted, manifest::build(&granted, "worker", None).unwrap());
    let create = run.next(Mono(0)).unwrap();
    let Request::Create(manifest) = &create else { panic!("{create:?}") };
    let kind = meridian_objects::Kind::TrainJob.job().unwrap();
    let mut kept: kube::api::DynamicObject = serde_json::from_value((**manifest).clone()).unwrap();
    assert!(JobFacts::read(kind, &kept).marked);
    kept.data["spec"].as_object_mut().unwrap().remove("runtimePatches");
    let answer = Answer::Job(Box::new(JobFacts::read(kind, &kept)));
    run.answered(Mono(0), Wall(0), &create, answer, &|_| true);
    assert_eq!(run.next(Mono(0)), Some(Request::ListPods));
    let events = run.answered(Mono(0), Wall(0), &Request::ListPods, Answer::Pods(Vec::new()), &|_| true);
    let Some(RunnerEvent::Ended { result: EndResult::NodeLost { message }, .. }) = events.last() else {
        panic!("{events:?}")
    };
    assert!(message.contains("the cluster's TrainJob doesn't keep the labels of its pods"), "{message}");
    run.forget();
    assert!(matches!(run.next(Mono(0)), Some(Request::Delete { .. })));
}

fn lone_pod() -> Start {
    let spec = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "probe", "namespace": "ml", "annotations": {"team": "vision"},
            "labels": {"kueue.x-k8s.io/queue-name": "q", "app": "probe"}},
        "spec": {"containers": [{"name": "c", "image": "i"}],
            "schedulingGates": [{"name": "kueue.x-k8s.io/admission"}]},
    });
    Start { spec: spec.to_string().into(), ..start(1) }
}

/// The pod as the API server has it.
fn pod_object(manifest: &Value) -> kube::api::DynamicObject {
    let mut pod: kube::api::DynamicObject = serde_json::from_value(manifest.clone()).unwrap();
    pod.metadata.uid = Some("pod-1".to_owned());
    pod
}

#[test]
fn a_pod_waits_at_the_gate_until_its_start_is_noted() {
    let built = manifest::build(&lone_pod(), "worker", None).unwrap();
    let labels = &built.manifest["metadata"]["labels"];
    assert_eq!((&labels["app"], &labels["meridian.dev/pod-set"]), (&json!("probe"), &json!("main")));
    assert_eq!(
        (&labels["meridian.dev/attempt"], labels.get("kueue.x-k8s.io/queue-name")),
        (&json!("2"), None)
    );
    assert_eq!(built.manifest["metadata"]["annotations"]["team"], "vision");
    assert_eq!(built.manifest["spec"]["schedulingGates"], json!([{"name": GATE}]));
    let kind = meridian_objects::Kind::Pod.job().unwrap();
    let mut pod = pod_object(&built.manifest);
    let facts = JobFacts::read(kind, &pod);
    assert_eq!((facts.suspended, facts.marked, facts.parallelism, facts.run), (true, true, 1, Some(KEY)));
    let annotations = pod.metadata.annotations.as_mut().unwrap();
    annotations.insert("meridian.dev/started".to_owned(), "2026-01-01T00:00:00Z".to_owned());
    pod.data["status"] = json!({"phase": "Failed", "reason": "Evicted", "message": "low on memory"});
    let facts = JobFacts::read(kind, &pod);
    let end = facts.end.unwrap();
    assert_eq!((facts.suspended, end.succeeded, end.reason.as_str()), (false, false, "Evicted"));
}

#[test]
fn a_stopped_pod_is_deleted_and_its_successor_knows_why() {
    let granted = lone_pod();
    let built = manifest::build(&granted, "worker", None).unwrap();
    let kind = meridian_objects::Kind::Pod.job().unwrap();
    let created = JobFacts::read(kind, &pod_object(&built.manifest));
    let mut run = Run::granted(&granted, built);
    let answer = |run: &mut Run, request: &Request, job: &JobFacts| {
        run.answered(Mono(0), Wall(0), request, Answer::Job(Box::new(job.clone())), &|_| true);
    };
    let create = run.next(Mono(0)).unwrap();
    answer(&mut run, &create, &created);
    let started = JobFacts { suspended: false, started: Some(Wall(0)), ..created };
    let start = run.next(Mono(0)).unwrap();
    assert!(matches!(&start, Request::Start { resume, .. } if *resume == json!({})), "{start:?}");
    answer(&mut run, &start, &started);
    run.stop(Cause::Ordered);
    let suspend = run.next(Mono(0)).unwrap();
    assert!(matches!(suspend, Request::Suspend { .. }), "{suspend:?}");
    let deleting = JobFacts { deleting: true, stopped: Some("stopped as ordered".into()), ..started };
    answer(&mut run, &suspend, &deleting);
    let mut adopted = Run::adopted(KEY, deleting);
    for run in [&mut run, &mut adopted] {
        assert_eq!(run.next(Mono(0)), Some(Request::ListPods));
        let events = run.answered(Mono(0), Wall(0), &Request::ListPods, Answer::Pods(Vec::new()), &|_| true);
        assert!(
            matches!(events.last(), Some(RunnerEvent::Ended { result: EndResult::Stopped, .. })),
            "{events:?}"
        );
    }
}

#[test]
fn the_end_of_a_stopped_pod_is_not_an_end_of_its_own() {
    let built = manifest::build(&lone_pod(), "worker", None).unwrap();
    let kind = meridian_objects::Kind::Pod.job().unwrap();
    let mut pod = pod_object(&built.manifest);
    let annotations = pod.metadata.annotations.as_mut().unwrap();
    annotations.insert("meridian.dev/started".to_owned(), "2026-01-01T00:00:00Z".to_owned());
    annotations.insert("meridian.dev/stopped".to_owned(), "stopped as ordered".to_owned());
    for phase in ["Failed", "Succeeded"] {
        // The kubelet has ended the containers, and the object isn't gone yet.
        pod.data["status"] = json!({"phase": phase});
        let ended = JobFacts { deleting: true, ..JobFacts::read(kind, &pod) };
        let mut run = Run::adopted(KEY, ended);
        assert_eq!(run.next(Mono(0)), Some(Request::ListPods));
        let events = run.answered(Mono(0), Wall(0), &Request::ListPods, Answer::Pods(Vec::new()), &|_| true);
        assert!(
            matches!(events.last(), Some(RunnerEvent::Ended { result: EndResult::Stopped, .. })),
            "{phase}: {events:?}"
        );
    }
}

#[test]
fn a_grant_of_fewer_pods_makes_a_smaller_job() {
    let mut part = start(4);
    part.placement.truncate(2);
    let job = manifest::build(&part, "worker-eu", None).unwrap().manifest;
    assert_eq!((&job["spec"]["parallelism"], &job["spec"]["completions"]), (&json!(2), &json!(4)));
}
