//! The process runner with real processes.
//!
//! Every test whose result may depend on PID namespaces runs with and without them. No test sleeps for a
//! fixed time: each waits for an event, with a bound that fails it.

use futures::FutureExt as _;
use meridian_agent::guard::rundir::RunDir;
use meridian_agent::guard::{clock, processes, wire};
use meridian_agent::job_run::{JobSpec, RunEnd};
use meridian_agent::runner::process::{ProcessRunner, Settings};
use meridian_agent_core::runtime::{
    Enforcement, Found, FoundState, PodPlacement, Runner, RunnerEvent, Start,
};
use meridian_shared::ids::{Fence, OfferId, Uid};
use meridian_shared::protocol::{EndResult, Size};
use meridian_shared::time::{Millis, Now, Wall};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokio::sync::mpsc::{Receiver, channel};

#[path = "process_runner/guards.rs"]
mod guards;
#[path = "process_runner/killed_agent.rs"]
mod killed_agent;
#[path = "process_runner/leases.rs"]
mod leases;
#[path = "process_runner/lifecycle.rs"]
mod lifecycle;
#[path = "process_runner/moves.rs"]
mod moves;
#[path = "process_runner/scale_down.rs"]
mod scale_down;
#[path = "process_runner/scale_up.rs"]
mod scale_up;
#[path = "process_runner/stops.rs"]
mod stops;

/// Longer than any step takes on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(20);
const BUDGET: Millis = Millis(400);

const LIVE: FoundState = FoundState::Live { running: true };

static NEXT: AtomicU64 = AtomicU64::new(1);

struct Bench {
    runner: Option<ProcessRunner>,
    events: Receiver<RunnerEvent>,
    namespaces: bool,
    data: TempDir,
}

impl Bench {
    fn new(namespaces: bool) -> Self {
        let data = tempfile::tempdir().unwrap();
        let (runner, events) = open(data.path(), namespaces);
        if namespaces && runner.enforcement() != Enforcement::Guarded {
            eprintln!("this machine gives no PID namespaces: the test runs without");
        }
        Self { runner: Some(runner), events, namespaces, data }
    }

    fn runner(&mut self) -> &mut ProcessRunner {
        self.runner.as_mut().unwrap()
    }

    /// Replaces the agent by a new one.
    fn restart(&mut self) {
        drop(self.runner.take());
        let (runner, events) = open(self.data.path(), self.namespaces);
        (self.runner, self.events) = (Some(runner), events);
    }

    /// The next event, without reports of completed indexes: those come with others in any order.
    fn next(&mut self) -> RunnerEvent {
        loop {
            let event = within(|| self.events.try_recv().ok());
            if !matches!(event, RunnerEvent::Completed { .. }) {
                return event;
            }
        }
    }

    fn until_running(&mut self) {
        assert!(matches!(self.next(), RunnerEvent::Running { .. }));
    }

    /// The next end: the one on disk, or the reported one if nothing is on disk.
    fn until_ended(&mut self) -> RunEnd {
        loop {
            let RunnerEvent::Ended { uid, fence, result, pod_failures, ran } = self.next() else { continue };
            let dir = RunDir::of(&self.data.path().join("runs"), uid, fence);
            let completed = meridian_shared::indexes::Indexes::default();
            let reported = RunEnd { result, pods: Vec::new(), pod_failures, ran, completed };
            let Ok(Some(end)) = dir.end() else { return reported };
            let without_pods = RunEnd {
                pods: Vec::new(),
                completed: meridian_shared::indexes::Indexes::default(),
                ..end.clone()
            };
            assert_eq!(without_pods, reported);
            return end;
        }
    }

    fn adopt(&mut self) -> Vec<Found> {
        let found = self.runner().adopt().now_or_never().expect("the process runner answers at once");
        found.unwrap()
    }

    fn dir(&self, start: &Start) -> RunDir {
        RunDir::of(&self.data.path().join("runs"), start.uid, start.fence)
    }

    fn logs(&mut self, start: &Start, pod: Option<u32>) -> String {
        let mut reader = self.runner().logs(start.uid, start.fence, pod).unwrap();
        let mut text = Vec::new();
        while let Some(chunk) = reader.read().unwrap() {
            text.extend(chunk.bytes);
        }
        assert!(reader.has_ended());
        String::from_utf8(text).unwrap()
    }
}

impl Drop for Bench {
    /// A failed test leaves nothing running.
    fn drop(&mut self) {
        let runs = RunDir::list(&self.data.path().join("runs")).unwrap_or_default();
        let guards = runs.iter().filter_map(|(_, _, dir)| dir.identity().ok().flatten());
        let alive: Vec<i32> = guards
            .filter(|guard| processes::lives(guard.pid, guard.started_ticks))
            .map(|guard| guard.pid)
            .collect();
        processes::kill_all(&alive);
    }
}

fn open(data: &Path, namespaces: bool) -> (ProcessRunner, Receiver<RunnerEvent>) {
    let (sender, events) = channel(64);
    let mut settings = Settings::new(true, data.to_owned(), "eu".into(), "europe-west4".into());
    settings.guard = PathBuf::from(env!("CARGO_BIN_EXE_meridian-agent"));
    settings.namespaces = namespaces;
    settings.retry_delay_first = Millis(10);
    (ProcessRunner::open(settings, sender).unwrap(), events)
}

fn within<T>(mut check: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = check() {
            return found;
        }
        assert!(begun.elapsed() < PATIENCE, "nothing within {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// A job with pods that run `script` in a shell; `spec` is merged into the job's spec.
fn job(script: &str, spec: Value) -> String {
    let container = json!({"name": "c", "image": "none", "command": ["/bin/sh", "-c", script]});
    let mut job = json!({
        "metadata": {"name": "job"},
        "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [container]}}},
    });
    job["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    job.to_string()
}

fn gpus(indexes: &[u32]) -> BTreeMap<String, Vec<u32>> {
    BTreeMap::from([("nvidia.com/gpu".to_owned(), indexes.to_vec())])
}

fn start(spec: &str, pods: u32, term: Millis) -> Start {
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let place = |index| PodPlacement {
        pod_set: "main".into(),
        index,
        node: format!("n{index}"),
        accelerators: gpus(&[2 * index, 2 * index + 1]),
    };
    Start {
        uid: Uid(u128::from(std::process::id()) << 64 | u128::from(number)),
        fence: Fence { epoch: 1, leadership: u64::MAX, counter: number },
        offer: OfferId { epoch: 1, leadership: 1, counter: number },
        attempt: 1,
        namespace: "research".into(),
        name: "train".into(),
        spec: Arc::from(spec),
        placement: (0..pods).map(place).collect(),
        deadline: Some(clock::now().mono + term),
        stop_budget: BUDGET,
        run_left: None,
        pod_failures: 0,
        completed: meridian_shared::indexes::Indexes::default(),
    }
}

const LONG: Millis = Millis::secs(120);

fn left(start: &Start) -> Vec<i32> {
    processes::marked(&processes::marks(start.uid, start.fence))
}

fn kill9(pid: i32) {
    assert!(std::process::Command::new("kill").args(["-9", &pid.to_string()]).status().unwrap().success());
}

fn guard_pid(dir: &RunDir) -> i32 {
    dir.identity().unwrap().unwrap().pid
}

/// Runs `test` with and without PID namespaces.
fn both(test: impl Fn(Bench)) {
    for namespaces in [true, false] {
        test(Bench::new(namespaces));
    }
}

fn wrote(bench: &Bench, name: &str, lines: usize) -> Vec<String> {
    let path = bench.data.path().join(name);
    within(|| {
        let text = std::fs::read_to_string(&path).ok()?;
        (text.lines().count() == lines && text.ends_with('\n'))
            .then(|| text.lines().map(ToOwned::to_owned).collect())
    })
}
