//! Groups of pods, which only the agent makes, counts and deletes.

use super::*;
use crate::runner::guard;
use kube::api::DynamicObject;
use meridian_objects::Kind;
use meridian_objects::job::JobKind;

/// A pod with labels of the user, which the labels of Kubernetes and Meridian must not replace.
fn pod_of(name: &str, cpus: u32) -> Value {
    json!({
        "metadata": {"name": name, "labels": {"app": name}, "annotations": {"note": name}},
        "spec": {
            "restartPolicy": "Never", "schedulingGates": [{"name": "kueue.x-k8s.io/admission"}],
            "containers": [{"name": "c", "image": "i", "command": ["train"],
                "resources": {"requests": {"cpu": cpus}}}],
        },
    })
}

fn group() -> Start {
    let spec = json!({
        "apiVersion": "meridian.dev/v1alpha1", "kind": "PodGroup",
        "metadata": {"name": "train", "namespace": "ml", "labels": {"kueue.x-k8s.io/queue-name": "q"}},
        "spec": {"pods": [pod_of("driver", 1), pod_of("worker-a", 4), pod_of("worker-b", 4)]},
    });
    let pod = |pod_set: &str, index: u32| PodPlacement {
        pod_set: pod_set.into(),
        index,
        node: format!("{pod_set}-{index}"),
        accelerators: BTreeMap::new(),
    };
    let placement = vec![pod("role-1", 0), pod("role-2", 0), pod("role-2", 1)];
    Start { spec: spec.to_string().into(), placement, run_left: None, ..start(1) }
}

fn granted() -> Run {
    let start = group();
    Run::granted(&start, manifest::build(&start, "worker", None).unwrap())
}

fn kind() -> &'static JobKind {
    Kind::PodGroup.job().unwrap()
}

/// The pods of an API server.
#[derive(Default)]
struct Pods {
    pods: Vec<Value>,
    version: u64,
}

impl Pods {
    fn find(&mut self, name: &str) -> Option<&mut Value> {
        self.pods.iter_mut().find(|pod| pod["metadata"]["name"] == name)
    }

    fn create(&mut self, manifest: &Value) {
        self.version += 1;
        let mut pod = manifest.clone();
        pod["metadata"]["uid"] = json!(format!("uid-{}", self.version));
        pod["metadata"]["resourceVersion"] = json!(self.version.to_string());
        pod["status"] = json!({"phase": "Pending"});
        self.pods.push(pod);
    }

    fn change(&mut self, name: &str, change: impl FnOnce(&mut Value)) {
        self.version += 1;
        let version = self.version.to_string();
        let pod = self.find(name).unwrap();
        change(pod);
        pod["metadata"]["resourceVersion"] = json!(version);
    }

    fn set_phase(&mut self, name: &str, phase: &str) {
        self.change(name, |pod| pod["status"]["phase"] = json!(phase));
    }

    /// The pod fails, or ends because it was deleted.
    fn fail(&mut self, name: &str, code: u32) {
        let ended = json!([{"name": "c", "state": {"terminated": {"exitCode": code, "reason": "Error"}}}]);
        self.change(name, |pod| pod["status"] = json!({"phase": "Failed", "containerStatuses": ended}));
    }

    /// The pods of the attempt.
    fn facts(&self) -> Vec<PodFacts> {
        let all = self.pods.iter().map(|pod| PodFacts::read(&object(pod)).unwrap());
        all.filter(|pod| pod.run == Some(KEY)).collect()
    }

    /// The object that stands for the group.
    fn first(&self) -> Option<JobFacts> {
        let first =
            self.pods.iter().find(|pod| pod["metadata"]["labels"].get("meridian.dev/attempt").is_some());
        first.map(|pod| JobFacts::read(kind(), &object(pod)))
    }

    fn answer(&self) -> Answer {
        self.first().map_or(Answer::Absent, |first| Answer::Job(Box::new(first)))
    }

    /// A running pod is ended by its kubelet later; a pod without a node is gone at once.
    fn delete(&mut self) {
        let ours = KEY.0.to_string();
        for pod in self.pods.iter_mut().filter(|pod| pod["status"]["phase"] == "Running") {
            pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        }
        self.pods.retain(|pod| {
            pod["status"]["phase"] != "Pending" || pod["metadata"]["labels"]["meridian.dev/uid"] != *ours
        });
    }

    fn perform(&mut self, request: &Request) -> Answer {
        match request {
            Request::Create(manifest) => {
                if self.find(manifest["metadata"]["name"].as_str().unwrap()).is_some() {
                    return Answer::Exists;
                }
                self.create(manifest);
                self.answer()
            }
            Request::Read => self.answer(),
            Request::Start { resource_version, others, .. } => {
                for other in others.iter() {
                    if self.find(other["metadata"]["name"].as_str().unwrap()).is_none() {
                        self.create(other);
                    }
                }
                match self.first() {
                    None => return Answer::Absent,
                    Some(first) if first.resource_version != *resource_version => return Answer::Conflict,
                    Some(_) => {}
                }
                self.change("driver", |pod| {
                    pod["metadata"]["annotations"]["meridian.dev/started"] = json!("2026-01-01T00:00:00Z");
                });
                self.answer()
            }
            Request::Place(placings) => {
                assert_eq!(self.pods.len(), 3, "a pod is sent to its node before all are there");
                for placing in placings {
                    self.change(&placing.pod, |pod| {
                        pod["spec"]["schedulingGates"] = Value::Null;
                        pod["spec"]["nodeName"] = json!(node_of(&placing.patch));
                        let position = &placing.patch["metadata"]["annotations"]["meridian.dev/position"];
                        pod["metadata"]["annotations"]["meridian.dev/position"] = position.clone();
                        pod["status"]["phase"] = json!("Running");
                    });
                }
                Answer::Placed(placings.iter().map(|placing| placing.uid.clone()).collect())
            }
            Request::Suspend { why } => {
                let Some(first) = self.first() else { return Answer::Absent };
                self.change(&first.name, |pod| {
                    pod["metadata"]["annotations"]["meridian.dev/stopped"] = json!(why)
                });
                let first = self.first().unwrap();
                self.delete();
                Answer::Job(Box::new(JobFacts { deleting: true, ..first }))
            }
            Request::EndAllPods => {
                self.delete();
                Answer::Done
            }
            Request::ListPods => Answer::Pods(self.facts()),
            Request::Delete { .. } => {
                self.pods.clear();
                Answer::Done
            }
            other => panic!("{other:?}"),
        }
    }

    /// The kubelets end the pods that are deleted.
    fn end_deleted(&mut self) {
        self.pods.retain(|pod| pod["metadata"].get("deletionTimestamp").is_none());
    }
}

fn object(pod: &Value) -> DynamicObject {
    serde_json::from_value(pod.clone()).unwrap()
}

/// A run and its cluster, some seconds at a time.
struct Scene {
    pods: Pods,
    run: Run,
    now: Mono,
    events: Vec<RunnerEvent>,
}

impl Scene {
    fn new() -> Self {
        Self { pods: Pods::default(), run: granted(), now: Mono(60_000), events: Vec::new() }
    }

    fn step(&mut self, answer: impl FnOnce(&mut Pods, &Request) -> Answer) {
        self.now = self.now + Millis::secs(1);
        if let Some(request) = self.run.next(self.now) {
            let answer = answer(&mut self.pods, &request);
            self.events.extend(self.run.answered(self.now, Wall(0), &request, answer, &|_| true));
        }
        let (first, pods) = (self.pods.first(), self.pods.facts());
        self.events.extend(self.run.observe(first.as_ref(), &pods, &|_| true));
    }

    fn settle(&mut self) {
        for _ in 0..40 {
            self.step(Pods::perform);
        }
    }

    fn running() -> Self {
        let mut scene = Self::new();
        scene.settle();
        assert!(scene.events.iter().any(|event| matches!(event, RunnerEvent::Running { .. })));
        scene
    }

    fn end(&self) -> Option<&EndResult> {
        let ends = self.events.iter().filter_map(|event| match event {
            RunnerEvent::Ended { result, .. } => Some(result),
            _ => None,
        });
        let ends: Vec<&EndResult> = ends.collect();
        assert!(ends.len() <= 1, "{ends:?}");
        ends.first().copied()
    }

    fn restart(&mut self) {
        self.run = match self.pods.first() {
            Some(first) => Run::adopted(KEY, first),
            None => Run::unknown(KEY),
        };
    }
}

#[test]
fn a_group_is_its_pods_at_their_gates_and_the_first_one_stands_for_it() {
    let built = manifest::build(&group(), "worker", None).unwrap();
    assert_eq!((built.others.len(), &built.resume), (2, &json!({})));
    let sets = ["role-1", "role-2", "role-2"];
    let names = ["driver", "worker-a", "worker-b"];
    let pods = std::iter::once(&built.manifest).chain(&built.others);
    for ((pod, set), name) in pods.zip(sets).zip(names) {
        let metadata = &pod["metadata"];
        assert_eq!((&pod["apiVersion"], &pod["kind"]), (&json!("v1"), &json!("Pod")));
        assert_eq!((&metadata["name"], &metadata["namespace"]), (&json!(name), &json!("ml")));
        assert_eq!(
            (&metadata["labels"]["app"], &metadata["annotations"]["note"]),
            (&json!(name), &json!(name))
        );
        assert_eq!(metadata["labels"]["meridian.dev/pod-set"], set);
        assert_eq!(metadata["labels"]["meridian.dev/pod-group"], "train");
        assert_eq!(metadata["labels"]["meridian.dev/uid"], KEY.0.to_string());
        assert_eq!(pod["spec"]["schedulingGates"], json!([{"name": GATE}]));
        assert_eq!(metadata["labels"].get("meridian.dev/attempt").is_some(), name == "driver");
        assert_eq!(metadata["annotations"].get("meridian.dev/run").is_some(), name == "driver");
    }
    let facts = JobFacts::read(kind(), &object(&built.manifest));
    assert_eq!((facts.kind, facts.parallelism, facts.marked), (Kind::PodGroup, 3, true));
    assert_eq!((facts.suspended, facts.run, facts.name.as_str()), (true, Some(KEY), "driver"));
}

#[test]
fn every_pod_of_a_group_has_its_guard() {
    let start = Start { deadline: Some(Mono(900_000)), ..group() };
    let mut built = manifest::build(&start, "worker", None).unwrap();
    assert_eq!(guard::add(&mut built, &start, "registry.example/agent:1"), Ok(true));
    for pod in std::iter::once(&built.manifest).chain(&built.others) {
        assert_eq!(pod["spec"]["containers"][0]["command"].as_array().unwrap().last(), Some(&json!("train")));
        assert_eq!(pod["spec"]["containers"][0]["command"].as_array().unwrap().len(), 4);
    }
}

#[test]
fn a_group_succeeds_when_all_of_its_pods_did() {
    let mut scene = Scene::running();
    scene.pods.set_phase("driver", "Succeeded");
    scene.pods.set_phase("worker-a", "Succeeded");
    scene.settle();
    assert_eq!(scene.end(), None);
    scene.pods.set_phase("worker-b", "Succeeded");
    scene.settle();
    assert_eq!(scene.end(), Some(&EndResult::Succeeded));
    assert_eq!(scene.pods.pods.len(), 3, "their logs can be read");
    scene.run.forget();
    scene.settle();
    assert!(scene.run.is_over() && scene.pods.pods.is_empty());
}

#[test]
fn a_failed_pod_fails_its_group_and_ends_the_others() {
    for failed in ["driver", "worker-b"] {
        let mut scene = Scene::running();
        scene.pods.fail(failed, 3);
        scene.settle();
        assert_eq!(scene.end(), None, "the others may still run");
        assert!(scene.pods.pods.iter().all(|pod| {
            pod["metadata"].get("deletionTimestamp").is_some() || pod["metadata"]["name"] == failed
        }));
        if failed != "driver" {
            scene.pods.fail("driver", 143);
        }
        let stays = |name: &Value| name == failed || name == "driver";
        scene.pods.pods.retain(|pod| stays(&pod["metadata"]["name"]));
        scene.settle();
        let Some(EndResult::Failed { reason, message }) = scene.end() else { panic!("{:?}", scene.end()) };
        assert_eq!(reason, "PodFailed");
        assert!(message.contains(&format!("pod `{failed}` of the group failed")), "{message}");
        assert!(message.contains("exit code 3") && !message.contains("143"), "{message}");
        // The failed pod is kept for its logs, also when the first pod changes once more.
        scene.pods.change("driver", |pod| pod["status"]["reason"] = json!("Terminated"));
        scene.settle();
        scene.run.settle(Wall(0));
        scene.run.observe_time(Now { mono: scene.now, wall: Wall(60_000) });
        scene.settle();
        assert!(scene.pods.find(failed).is_some() && !scene.run.is_over());
    }
}

/// No controller makes the pod again, so the whole group runs again.
#[test]
fn a_pod_that_somebody_deletes_ends_the_attempt() {
    for (deleted, is_adopted) in [("worker-a", false), ("driver", false), ("worker-a", true)] {
        let mut scene = Scene::running();
        scene.pods.pods.retain(|pod| pod["metadata"]["name"] != deleted);
        if is_adopted {
            scene.restart();
        }
        scene.settle();
        scene.pods.end_deleted();
        scene.settle();
        let Some(EndResult::NodeLost { message }) = scene.end() else { panic!("{:?}", scene.end()) };
        assert!(message.contains("was deleted in the cluster"), "{message}");
        assert!(scene.pods.pods.is_empty(), "{deleted}: {:?}", scene.pods.pods);
    }
}

#[test]
fn a_stop_deletes_the_group_as_one_even_when_its_answers_are_lost() {
    for lost in [false, true] {
        let mut scene = Scene::running();
        scene.run.stop(Cause::Ordered);
        if lost {
            scene.step(|pods, request| {
                pods.perform(request);
                Answer::Unknown("lost".into())
            });
            scene.restart();
        }
        scene.settle();
        assert_eq!(scene.end(), None, "the pods have their grace");
        assert!(scene.pods.pods.iter().all(|pod| pod["metadata"].get("deletionTimestamp").is_some()));
        scene.pods.end_deleted();
        scene.settle();
        assert_eq!(scene.end(), Some(&EndResult::Stopped));
    }
}

/// Each request, or only its answer, may be lost, and the agent may restart before the group was started.
#[test]
fn a_group_starts_whole_or_is_taken_back() {
    let (mut started, mut taken_back) = (0, 0);
    for seed in 0..300 {
        let mut dice = Dice(seed * 7_919 + 1);
        let mut scene = Scene::new();
        for _ in 0..200 {
            let roll = dice.roll(4);
            scene.step(|pods, request| match roll {
                0 => Answer::Unknown("lost".into()),
                1 => {
                    pods.perform(request);
                    Answer::Unknown("its answer is lost".into())
                }
                _ => pods.perform(request),
            });
            if dice.roll(30) == 0 && !scene.run.has_ended() {
                scene.restart();
            }
            scene.pods.end_deleted();
        }
        let is_running = |pod: &Value| pod["status"]["phase"] == "Running";
        match scene.end() {
            None => {
                assert_eq!(scene.pods.pods.iter().filter(|pod| is_running(pod)).count(), 3, "seed {seed}");
                started += 1;
            }
            Some(EndResult::Stopped) => {
                assert!(!scene.pods.pods.iter().any(is_running), "seed {seed}");
                taken_back += 1;
            }
            Some(other) => panic!("seed {seed}: {other:?}"),
        }
    }
    assert!(started > 50 && taken_back > 20, "{started} {taken_back}");
}

#[test]
fn a_pod_of_another_group_is_never_touched() {
    let mut scene = Scene::new();
    let create = scene.run.next(scene.now).unwrap();
    let Request::Create(manifest) = &create else { panic!("{create:?}") };
    let mut other = (**manifest).clone();
    other["metadata"]["labels"]["meridian.dev/pod-group"] = json!("another");
    other["metadata"]["labels"]["meridian.dev/uid"] = json!(Uid(8).to_string());
    scene.pods.create(&other);
    let before = scene.pods.pods.clone();
    scene.events.extend(scene.run.answered(scene.now, Wall(0), &create, Answer::Exists, &|_| true));
    for _ in 0..20 {
        scene.step(Pods::perform);
    }
    assert_eq!(scene.pods.pods, before);
    let Some(EndResult::NodeLost { message }) = scene.end() else { panic!("{:?}", scene.end()) };
    assert!(message.contains("a Pod `ml/driver`") && message.contains("left alone"), "{message}");
}

/// Pods that an earlier group of the same name left are deleted first.
#[test]
fn the_ended_pod_of_an_earlier_group_of_the_name_is_replaced() {
    let mut scene = Scene::new();
    let create = scene.run.next(scene.now).unwrap();
    let Request::Create(manifest) = &create else { panic!("{create:?}") };
    let mut earlier = (**manifest).clone();
    earlier["metadata"]["labels"]["meridian.dev/uid"] = json!(Uid(8).to_string());
    earlier["metadata"]["annotations"]["meridian.dev/started"] = json!("2026-01-01T00:00:00Z");
    scene.pods.create(&earlier);
    scene.pods.set_phase("driver", "Succeeded");
    scene.events.extend(scene.run.answered(scene.now, Wall(0), &create, Answer::Exists, &|_| true));
    scene.settle();
    assert!(
        scene.events.iter().any(|event| matches!(event, RunnerEvent::Running { .. })),
        "{:?}",
        scene.events
    );
}
