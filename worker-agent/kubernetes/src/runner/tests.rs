//! One run against a cluster that loses requests, loses replies, and restarts the agent at any moment.

mod conflicts;
mod copies;
mod dice;
mod groups;
mod guards;
mod kinds;
mod limits;
mod pods;
mod stops;

use self::dice::Dice;
use self::pods::{node_of, pod};
use super::manifest;
use super::request::{Answer, Placing, Request};
use super::run::{Cause, Run};
use crate::facts::{Exit, JobEnd, JobFacts, PodFacts};
use crate::labels::{GATE, RunKey};
use meridian_agent_core::runtime::{PodPlacement, RunnerEvent, Start};
use meridian_objects::spec::PodPhase;
use meridian_shared::ids::{Fence, OfferId, Uid};
use meridian_shared::indexes::Indexes;
use meridian_shared::protocol::{EndResult, Size};
use meridian_shared::time::{Millis, Mono, Now, Wall};
use serde_json::{Value, json};
use std::collections::BTreeMap;

const KEY: RunKey = (Uid(7), Fence { epoch: 1, leadership: 2, counter: 3 });

fn start(pods: u32) -> Start {
    let spec = json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {
            "name": "train", "namespace": "ml", "uid": "at-the-manager", "resourceVersion": "9",
            "labels": {"kueue.x-k8s.io/queue-name": "q", "team": "vision"},
        },
        "spec": {
            "parallelism": pods, "completions": pods, "suspend": false,
            "managedBy": "kueue.x-k8s.io/multikueue",
            "ttlSecondsAfterFinished": 5, "backoffLimit": 4,
            "selector": {"matchLabels": {"batch.kubernetes.io/controller-uid": "x"}},
            "template": {
                "metadata": {"labels": {"job-name": "train", "app": "t"}},
                "spec": {"containers": [{"name": "c", "image": "i"}], "restartPolicy": "Never"},
            },
        },
        "status": {"active": 1},
    });
    let placement = (0..pods)
        .map(|index| PodPlacement {
            pod_set: "main".into(),
            index,
            node: format!("node-{}", index / 2),
            accelerators: BTreeMap::new(),
        })
        .collect();
    Start {
        uid: KEY.0,
        fence: KEY.1,
        offer: OfferId { epoch: 1, leadership: 2, counter: 9 },
        attempt: 2,
        namespace: "ml".into(),
        name: "train".into(),
        spec: spec.to_string().into(),
        placement,
        deadline: None,
        stop_budget: Millis::secs(5),
        run_left: Some(Millis(90_500)),
        pod_failures: 1,
        completed: Indexes::default(),
    }
}

#[test]
fn the_created_job_is_the_users_without_what_belongs_to_the_manager() {
    let job = manifest::build(&start(4), "worker-eu", None).unwrap().manifest;
    let at = |path: &str| job.pointer(path).cloned().unwrap_or(Value::Null);
    assert_eq!(at("/spec/suspend"), true);
    assert_eq!(at("/spec/backoffLimit"), 3, "an earlier failure counts");
    assert_eq!(at("/spec/activeDeadlineSeconds"), 91);
    for absent in ["/spec/managedBy", "/spec/ttlSecondsAfterFinished", "/spec/selector", "/status"] {
        assert_eq!(at(absent), Value::Null, "{absent}");
    }
    assert_eq!(at("/metadata/uid"), Value::Null);
    assert_eq!(at("/metadata/labels/team"), "vision");
    assert_eq!(at("/metadata/labels/kueue.x-k8s.io~1queue-name"), Value::Null);
    assert_eq!(at("/metadata/labels/meridian.dev~1attempt"), "2");
    assert_eq!(at("/spec/template/metadata/labels/job-name"), Value::Null);
    assert_eq!(at("/spec/template/metadata/labels/app"), "t");
    assert_eq!(at("/spec/template/metadata/labels/meridian.dev~1uid"), KEY.0.to_string());
    assert_eq!(at("/spec/template/spec/schedulingGates/0/name"), GATE);
}

#[test]
fn indexes_of_earlier_attempts_are_written_into_the_status_before_the_start() {
    let mut rest = start(4);
    rest.completed = "0-1".parse().unwrap();
    rest.placement.truncate(2);
    let indexed = "\"completionMode\":\"Indexed\",\"suspend\":false";
    rest.spec = rest.spec.replace("\"suspend\":false", indexed).into();
    let built = manifest::build(&rest, "worker-eu", None).unwrap();
    assert_eq!(["parallelism", "completions"].map(|name| &built.manifest["spec"][name]), [4, 4]);
    let mut run = Run::granted(&rest, built);
    let mut cluster = Cluster { job: None, pods: Vec::new(), version: 3, made: 0, nodes_answer: true };
    for expected in ["create", "seed", "start"] {
        let request = run.next(Mono(0)).unwrap();
        let named = match &request {
            Request::Create(_) => "create",
            Request::Seed { completed } => {
                assert_eq!(completed.to_string(), "0,1");
                "seed"
            }
            Request::Start { .. } => "start",
            other => panic!("{other:?}"),
        };
        assert_eq!(named, expected);
        let answer = cluster.perform(&request);
        run.answered(Mono(0), Wall(0), &request, answer, &|_| true);
    }
    // The API accepts new completions only with an equal parallelism, even if indexes have completed.
    let size = Size { parallelism: 3, completions: Some(5) };
    run.place_anew(1, start(3).placement, Some(size));
    let resize = run.next(Mono(0)).unwrap();
    assert!(
        matches!(resize, Request::Resize { parallelism: 5, size: sent, .. } if sent == size),
        "{resize:?}"
    );
    cluster.job.as_mut().unwrap().completions = Some(5);
    cluster.touch();
    run.answered(Mono(0), Wall(0), &resize, cluster.answer(), &|_| true);
    run.scale_down(Size { completions: None, ..size });
    let resize = run.next(Mono(0)).unwrap();
    assert!(matches!(resize, Request::Resize { parallelism: 3, .. }), "{resize:?}");
}

/// A cluster with a job controller, a scheduler and kubelets.
struct Cluster {
    job: Option<JobFacts>,
    pods: Vec<PodFacts>,
    version: u64,
    made: u32,
    nodes_answer: bool,
}

impl Cluster {
    fn touch(&mut self) {
        self.version += 1;
        let version = self.version.to_string();
        if let Some(job) = &mut self.job {
            job.resource_version = version;
        }
    }

    fn alive(&self) -> Vec<&PodFacts> {
        self.pods.iter().filter(|pod| !pod.is_terminal() && pod.node.is_some()).collect()
    }

    /// Carries a request out.
    fn perform(&mut self, request: &Request) -> Answer {
        match request {
            Request::Create(manifest) => self.create(manifest),
            Request::Read => self.answer(),
            Request::Start { resource_version, .. } => match &mut self.job {
                None => Answer::Absent,
                Some(job) if job.resource_version != *resource_version => Answer::Conflict,
                Some(job) => {
                    job.suspended = false;
                    job.started = Some(Wall(1_000));
                    self.touch();
                    self.answer()
                }
            },
            Request::Seed { completed } => {
                let Some(job) = &mut self.job else { return Answer::Absent };
                job.completed = completed.clone();
                self.touch();
                self.answer()
            }
            Request::Suspend { why } => {
                let Some(job) = &mut self.job else { return Answer::Absent };
                job.suspended = true;
                job.stopped = Some(why.clone());
                self.touch();
                self.answer()
            }
            Request::Place(placings) => self.place(placings),
            Request::EndAllPods => {
                for pod in &mut self.pods {
                    pod.deleting = true;
                }
                Answer::Done
            }
            Request::ListPods => Answer::Pods(self.pods.clone()),
            Request::Delete { uid } => {
                if self.job.as_ref().is_some_and(|job| job.uid == *uid) {
                    self.job = None;
                    self.pods.clear();
                }
                Answer::Done
            }
            Request::RenewLeases(pods) => Answer::Placed(pods.iter().map(|pod| pod.uid.clone()).collect()),
            _ => Answer::Done,
        }
    }

    fn create(&mut self, manifest: &Value) -> Answer {
        if self.job.is_some() {
            return Answer::Exists;
        }
        let count = |name: &str| manifest["spec"][name].as_u64().map(|n| u32::try_from(n).unwrap());
        self.job = Some(JobFacts {
            kind: meridian_objects::Kind::Job,
            namespace: "ml".into(),
            name: "train".into(),
            uid: format!("job-{}", self.version),
            resource_version: String::new(),
            run: Some(KEY),
            suspended: true,
            stopped: None,
            deleting: false,
            failed: 0,
            succeeded: 0,
            completed: Indexes::default(),
            parallelism: count("parallelism").unwrap(),
            completions: count("completions"),
            late_sets: [].into(),
            started: None,
            end: None,
            notes: manifest["metadata"]["annotations"]["meridian.dev/run"].as_str().map(str::to_owned),
            consumes: None,
            marked: true,
            offer: None,
            group: None,
            copies: copies::named(manifest),
        });
        self.touch();
        self.answer()
    }

    fn place(&mut self, placings: &[Placing]) -> Answer {
        let mut placed = Vec::new();
        for placing in placings {
            let Some(pod) = self.pods.iter_mut().find(|pod| pod.uid == placing.uid) else { continue };
            pod.gates.clear();
            pod.node = Some(node_of(&placing.patch).to_owned());
            pod.position = placing.patch["metadata"]["annotations"]["meridian.dev/position"]
                .as_str()
                .unwrap()
                .parse()
                .ok();
            placed.push(placing.uid.clone());
        }
        Answer::Placed(placed)
    }

    fn answer(&self) -> Answer {
        self.job.clone().map_or(Answer::Absent, |job| Answer::Job(Box::new(job)))
    }

    /// One step of the cluster's own controllers.
    fn work(&mut self, dice: &mut Dice, fails: bool) {
        let Some(job) = self.job.clone() else { return };
        let wanted = job.parallelism.min(job.completions.unwrap_or(u32::MAX) - job.succeeded) as usize;
        let live = self.pods.iter().filter(|pod| !pod.is_terminal()).count();
        // No failure is retried: the other pods end too.
        let has_failed = self.pods.iter().any(|pod| pod.failed_container.is_some());
        if job.suspended || has_failed {
            for pod in &mut self.pods {
                pod.deleting = true;
            }
        } else if job.end.is_none() && live < wanted && dice.roll(2) == 0 {
            self.made += 1;
            self.pods.push(pod(self.made));
        }
        for pod in &mut self.pods {
            match pod.phase {
                PodPhase::Pending if pod.deleting && pod.node.is_none() => pod.phase = PodPhase::Failed,
                PodPhase::Pending if pod.node.is_some() && dice.roll(2) == 0 => pod.phase = PodPhase::Running,
                PodPhase::Running if pod.deleting && dice.roll(3) == 0 => pod.phase = PodPhase::Failed,
                PodPhase::Running if !pod.deleting && dice.roll(40) == 0 => {
                    pod.phase = if fails { PodPhase::Failed } else { PodPhase::Succeeded };
                    if fails {
                        let (container, reason) = ("c".to_owned(), "Error".to_owned());
                        pod.failed_container = Some(Exit { container, code: 3, reason });
                    }
                }
                _ => {}
            }
        }
        let succeeded = self.pods.iter().filter(|pod| pod.phase == PodPhase::Succeeded).count();
        let failed = self.pods.iter().filter(|pod| pod.failed_container.is_some()).count();
        let all_terminal = self.pods.iter().all(PodFacts::is_terminal);
        let job = self.job.as_mut().unwrap();
        (job.succeeded, job.failed) = (u32::try_from(succeeded).unwrap(), u32::try_from(failed).unwrap());
        let is_over = succeeded >= 4 || (failed > 0 && all_terminal);
        if is_over && job.end.is_none() && !job.suspended {
            job.end = Some(JobEnd {
                succeeded: failed == 0,
                reason: "BackoffLimitExceeded".into(),
                message: "too many".into(),
                at: Some(Wall(9_000)),
            });
        }
        self.touch();
    }
}

/// The random events of one seed.
struct Story {
    dice: Dice,
    cluster: Cluster,
    run: Run,
    now: Mono,
    events: Vec<RunnerEvent>,
    stop_at: Option<u64>,
    fails: bool,
    restarts: u64,
}

impl Story {
    fn new(seed: u64) -> Self {
        let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(1));
        let (stop_at, fails) = ((dice.roll(2) == 0).then(|| dice.roll(300)), dice.roll(4) == 0);
        let restarts = dice.roll(3);
        let cluster = Cluster { job: None, pods: Vec::new(), version: 10, made: 0, nodes_answer: true };
        let granted = start(4);
        let manifest = manifest::build(&granted, "worker", None).unwrap();
        let run = Run::granted(&granted, manifest);
        Self { dice, cluster, run, now: Mono(1_000), events: Vec::new(), stop_at, fails, restarts }
    }

    fn step(&mut self, number: u64) {
        self.now = self.now + Millis(250);
        if self.stop_at == Some(number) {
            self.run.stop(Cause::Ordered);
        }
        if self.restarts > 0 && self.dice.roll(60) == 0 {
            self.restarts -= 1;
            self.restart();
        }
        let answers = self.cluster.nodes_answer;
        if let Some(request) = self.run.next(self.now) {
            // The request is lost before it arrives, or only its reply is.
            let answer = match self.dice.roll(8) {
                0 => Answer::Unknown("lost".into()),
                1 => {
                    self.cluster.perform(&request);
                    Answer::Unknown("reply lost".into())
                }
                _ => self.cluster.perform(&request),
            };
            let events = self.run.answered(self.now, Wall(5_000), &request, answer, &|_| answers);
            self.take(events);
        }
        self.cluster.work(&mut self.dice, self.fails);
        if self.dice.roll(3) > 0 {
            let (job, pods) = (self.cluster.job.clone(), self.cluster.pods.clone());
            let events = self.run.observe(job.as_ref(), &pods, &|_| answers);
            self.take(events);
        }
        let mut positions: Vec<_> = self.cluster.alive().iter().filter_map(|pod| pod.position).collect();
        positions.sort_unstable();
        let live = positions.len();
        positions.dedup();
        assert_eq!(positions.len(), live, "two live pods have one position");
        if self.run.has_ended() {
            assert!(self.cluster.alive().is_empty(), "ended while pods run");
        }
    }

    fn take(&mut self, events: Vec<RunnerEvent>) {
        for event in events {
            if let RunnerEvent::Ended { .. } = &event {
                assert!(self.cluster.alive().is_empty(), "an end was reported while pods run");
            }
            self.events.push(event);
        }
    }

    /// A new agent finds the job, or only knows the attempt.
    fn restart(&mut self) {
        if self.run.has_ended() {
            return;
        }
        self.run = match self.cluster.job.clone() {
            Some(job) => Run::adopted(KEY, job),
            None => Run::unknown(KEY),
        };
    }
}

#[test]
fn a_run_ends_once_and_only_when_nothing_of_it_runs() {
    let (mut successes, mut failures, mut stops) = (0, 0, 0);
    for seed in 0..600 {
        let mut story = Story::new(seed);
        for number in 0..4_000 {
            story.step(number);
        }
        let ends: Vec<_> = story
            .events
            .iter()
            .filter_map(|event| match event {
                RunnerEvent::Ended { result, .. } => Some(result.clone()),
                _ => None,
            })
            .collect();
        assert_eq!(ends.len(), 1, "seed {seed}: {:?}", story.run);
        match &ends[0] {
            EndResult::Succeeded => successes += 1,
            EndResult::Failed { message, .. } => {
                assert!(message.contains("exit code 3"), "seed {seed}: {message}");
                failures += 1;
            }
            EndResult::Stopped => stops += 1,
            other => panic!("seed {seed}: {other:?}"),
        }
        // The manifest has a time to live of 5 s, which counts for jobs that ended by themselves.
        let stopped = ends[0] == EndResult::Stopped;
        story.run.settle(Wall(1_000));
        story.run.observe_time(Now { mono: story.now, wall: Wall(5_999) });
        for number in 4_000..4_100 {
            story.step(number);
        }
        assert_eq!(story.run.is_over(), stopped, "seed {seed}: logs of a finished job can be read");
        story.run.observe_time(Now { mono: story.now, wall: Wall(6_000) });
        for number in 4_100..4_200 {
            story.step(number);
        }
        assert!(story.run.is_over() && story.cluster.job.is_none(), "seed {seed}: the job stays");
    }
    assert!(successes > 50 && failures > 50 && stops > 50, "{successes} {failures} {stops}");
}

#[test]
fn a_job_of_others_is_never_touched() {
    let granted = start(2);
    let mut run = Run::granted(&granted, manifest::build(&granted, "worker", None).unwrap());
    let mut cluster = Cluster { job: None, pods: Vec::new(), version: 3, made: 0, nodes_answer: true };
    let foreign = {
        let mut maker = Run::granted(&granted, manifest::build(&granted, "worker", None).unwrap());
        cluster.perform(&maker.next(Mono(0)).unwrap());
        JobFacts { run: None, ..cluster.job.clone().unwrap() }
    };
    cluster.job = Some(foreign.clone());
    let mut end = None;
    for tick in 0..100 {
        let now = Mono(tick * 1_000);
        let Some(request) = run.next(now) else { continue };
        assert!(!matches!(request, Request::Start { .. } | Request::Suspend { .. } | Request::Delete { .. }));
        let answer = cluster.perform(&request);
        for event in run.answered(now, Wall(0), &request, answer, &|_| true) {
            if let RunnerEvent::Ended { result, .. } = event {
                end = Some(result);
            }
        }
    }
    assert_eq!(cluster.job, Some(foreign));
    let Some(EndResult::NodeLost { message }) = end else { panic!("{end:?}") };
    assert!(message.contains("`ml/train`") && message.contains("left alone"), "{message}");
}

#[test]
fn a_silent_node_confirms_nothing() {
    let granted = start(2);
    let mut run = Run::granted(&granted, manifest::build(&granted, "worker", None).unwrap());
    let mut cluster = Cluster { job: None, pods: Vec::new(), version: 3, made: 0, nodes_answer: true };
    let mut dice = Dice(5);
    let mut now = Mono(0);
    let mut step = |run: &mut Run, cluster: &mut Cluster, answers: bool, works: bool| {
        now = now + Millis(500);
        let mut events = Vec::new();
        if let Some(request) = run.next(now) {
            let answer = cluster.perform(&request);
            events.extend(run.answered(now, Wall(0), &request, answer, &|_| answers));
        }
        if works {
            cluster.work(&mut dice, false);
        }
        events.extend(run.observe(cluster.job.as_ref(), &cluster.pods, &|_| answers));
        events
    };
    while cluster.alive().len() < 2 || cluster.alive().iter().any(|pod| !pod.has_started()) {
        step(&mut run, &mut cluster, true, true);
    }
    // The node goes silent, and somebody removes its pods from the API server by force.
    run.stop(Cause::Ordered);
    cluster.pods.clear();
    for _ in 0..100 {
        assert_eq!(step(&mut run, &mut cluster, false, false), Vec::new());
    }
    assert!(run.trouble.is_some() || !run.has_ended());
    let mut events = Vec::new();
    for _ in 0..20 {
        events.extend(step(&mut run, &mut cluster, true, false));
    }
    assert!(matches!(&events[..], [RunnerEvent::Ended { result: EndResult::Stopped, .. }]), "{events:?}");
}
