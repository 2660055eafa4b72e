//! The process runner with real processes: what a gang sees, how it ends, and that nothing of it is ever left.
//!
//! Every test runs with and without PID namespaces where that can differ. No test sleeps for a fixed time: each waits for
//! what should happen, with a bound that fails it.

use meridian_agent::guard::rundir::RunDir;
use meridian_agent::guard::{clock, processes, wire};
use meridian_agent::runner::process::{ProcessRunner, Settings};
use meridian_agent::runner::{
    End, Enforcement, FoundState, JobSpec, PodPlacement, RunResult, Runner, RunnerEvent, Start,
};
use meridian_shared::ids::{Fence, Uid};
use meridian_shared::protocol::Size;
use meridian_shared::time::{Millis, Now, Wall};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokio::sync::mpsc::{Receiver, channel};

#[path = "process_runner/grown.rs"]
mod grown;
#[path = "process_runner/moved.rs"]
mod moved;

/// Longer than anything here takes on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(20);
const BUDGET: Millis = Millis(400);

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

    /// The agent is gone; another one comes.
    fn restart(&mut self) {
        drop(self.runner.take());
        let (runner, events) = open(self.data.path(), self.namespaces);
        (self.runner, self.events) = (Some(runner), events);
    }

    fn next(&mut self) -> RunnerEvent {
        within(|| self.events.try_recv().ok())
    }

    fn until_running(&mut self) {
        assert!(matches!(self.next(), RunnerEvent::Running { .. }));
    }

    fn until_ended(&mut self) -> End {
        loop {
            if let RunnerEvent::Ended { end, .. } = self.next() {
                return end;
            }
        }
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
        assert!(reader.ended());
        String::from_utf8(text).unwrap()
    }
}

impl Drop for Bench {
    /// A test that failed leaves nothing running.
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

fn within<T>(mut look: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(begun.elapsed() < PATIENCE, "it didn't happen within {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// A job whose pods run `script` in a shell; `spec` is merged into the job's spec.
fn job(script: &str, spec: Value) -> String {
    let mut job = json!({"metadata": {"name": "job"}, "spec": {
        "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "none", "command": ["/bin/sh", "-c", script]}]}}}});
    job["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    job.to_string()
}

fn start(spec: &str, pods: u32, term: Millis) -> Start {
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let place = |index| PodPlacement {
        pod_set: "main".into(),
        index,
        node: format!("n{index}"),
        accelerators: vec![2 * index, 2 * index + 1],
    };
    Start {
        uid: Uid(u128::from(std::process::id()) << 64 | u128::from(number)),
        fence: Fence { epoch: 1, leadership: u64::MAX, counter: number },
        namespace: "research".into(),
        name: "train".into(),
        spec: Arc::from(spec),
        placement: (0..pods).map(place).collect(),
        deadline: clock::now().mono + term,
        stop_budget: BUDGET,
        run_left: None,
        failures: 0,
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

/// Runs `test` in both ways of holding a gang together.
fn both(test: impl Fn(Bench)) {
    for namespaces in [true, false] {
        test(Bench::new(namespaces));
    }
}

#[test]
fn a_gang_of_three_runs_and_tells_exit_codes_output_and_devices() {
    both(|mut bench| {
        let script = r#"echo "pod $JOB_COMPLETION_INDEX of $MERIDIAN_JOB in $MERIDIAN_REGION sees $CUDA_VISIBLE_DEVICES in $PWD"; echo oops >&2"#;
        let run = start(
            &job(script, json!({"parallelism": 3, "completions": 3, "completionMode": "Indexed"})),
            3,
            LONG,
        );
        bench.runner().start(run.clone(), clock::now());
        bench.until_running();
        let end = bench.until_ended();
        assert_eq!(end.result, RunResult::Succeeded);
        assert_eq!(
            end.pods.iter().map(|p| (p.index, p.exit_code)).collect::<Vec<_>>(),
            [(0, 0), (1, 0), (2, 0)]
        );
        let said = bench.logs(&run, Some(1));
        assert!(
            said.starts_with("pod 1 of train in europe-west4 sees 2,3 in ")
                && said.contains("/pod-1-0/work\noops\n"),
            "{said}"
        );
        assert_eq!(bench.logs(&run, None).lines().count(), 6);
        assert!(left(&run).is_empty());

        // The same command again starts nothing and says how it ended.
        bench.runner().start(run.clone(), clock::now());
        assert_eq!(bench.until_ended(), end);
        bench.runner().forget(run.uid, run.fence);
        let dir = bench.dir(&run);
        within(|| (!dir.path().exists()).then_some(()));
    });
}

#[test]
fn failed_pods_are_tried_again_and_counted_until_the_limit() {
    let mut bench = Bench::new(true);
    // The third try finds what the first two left and succeeds.
    let counter = bench.data.path().join("tries");
    let script = format!("echo x >> {0}; test $(wc -l < {0}) -ge 3 || exit 9", counter.display());
    let run = start(&job(&script, json!({"backoffLimit": 2})), 1, LONG);
    bench.runner().start(run.clone(), clock::now());
    bench.until_running();
    for count in 1..=2 {
        assert!(matches!(bench.next(), RunnerEvent::PodFailed { failures, .. } if failures == count));
    }
    let end = bench.until_ended();
    assert_eq!((end.result, end.failures, end.pods[0].attempt), (RunResult::Succeeded, 2, 2));

    let mut hopeless = start(&job("exit 7", json!({"backoffLimit": 3})), 1, LONG);
    hopeless.failures = 2;
    bench.runner().start(hopeless, clock::now());
    let end = bench.until_ended();
    assert!(
        matches!(&end.result, RunResult::Failed { reason, .. } if reason == "BackoffLimitExceeded"),
        "{end:?}"
    );
    assert_eq!((end.failures, end.pods[0].exit_code, end.pods[0].attempt), (4, 7, 1));

    let missing = json!({"spec": {"backoffLimit": 0, "template": {"spec": {"containers": [{"command": ["/no/such/program"]}]}}}}).to_string();
    bench.runner().start(start(&missing, 1, LONG), clock::now());
    let end = bench.until_ended();
    assert_eq!(end.pods[0].exit_code, 127);
    assert!(end.pods[0].message.as_ref().unwrap().contains("/no/such/program"), "{end:?}");
}

#[test]
fn jobs_that_run_too_long_are_ended_with_that_reason() {
    let mut bench = Bench::new(true);
    let run = start(&job("exec sleep 600", json!({"activeDeadlineSeconds": 1})), 1, LONG);
    bench.runner().start(run.clone(), clock::now());
    let end = bench.until_ended();
    assert!(
        matches!(&end.result, RunResult::Failed { reason, .. } if reason == "DeadlineExceeded"),
        "{end:?}"
    );
    assert_eq!(end.pods[0].exit_code, 143);
    assert!(left(&run).is_empty());
}

#[test]
fn a_stop_ends_the_whole_tree_even_a_daemon_that_ignores_it() {
    both(|mut bench| {
        // The daemon leaves its parent, its group and its session, and ignores the signal.
        let ready = bench.data.path().join("ready");
        let daemon = format!("trap '' TERM; echo $$ > {}; while :; do sleep 1; done", ready.display());
        let script = format!(
            "(setsid sh -c \"{}\" &) ; trap 'exit 0' TERM; while :; do sleep 0.01; done",
            daemon.replace('$', "\\$")
        );
        let run = start(&job(&script, json!({})), 1, LONG);
        bench.runner().start(run.clone(), clock::now());
        bench.until_running();
        within(|| std::fs::read_to_string(&ready).ok().filter(|t| t.ends_with('\n')));
        assert!(left(&run).len() >= 2);
        bench.runner().stop(run.uid, run.fence);
        let end = bench.until_ended();
        assert_eq!(
            end.result,
            RunResult::Stopped,
            "a pod that exits 0 when told to stop has not completed the job"
        );
        assert!(left(&run).is_empty());
    });
}

/// Two pods that note where they are, and whether the pod before them is still alive. The second ignores that it is told to stop.
fn movable(bench: &Bench) -> Start {
    let script = r#"cd DATA; echo "$MERIDIAN_NODE $CUDA_VISIBLE_DEVICES" >> at-$MERIDIAN_POD_INDEX
        test -f pid-$MERIDIAN_POD_INDEX && kill -0 $(cat pid-$MERIDIAN_POD_INDEX) 2>/dev/null && echo twice >> twice
        echo $$ > pid-$MERIDIAN_POD_INDEX
        test $MERIDIAN_POD_INDEX = 1 && trap '' TERM
        while ! test -f done; do sleep 0.01; done"#;
    let script = script.replace("DATA", bench.data.path().to_str().unwrap());
    start(&job(&script, json!({"parallelism": 2, "completions": 2, "backoffLimit": 0})), 2, LONG)
}

fn wrote(bench: &Bench, name: &str, lines: usize) -> Vec<String> {
    let path = bench.data.path().join(name);
    within(|| {
        let text = std::fs::read_to_string(&path).ok()?;
        (text.lines().count() == lines && text.ends_with('\n'))
            .then(|| text.lines().map(ToOwned::to_owned).collect())
    })
}

#[test]
fn only_pods_whose_place_differs_start_again_once_they_were_seen_ended() {
    both(|mut bench| {
        let run = movable(&bench);
        bench.runner().start(run.clone(), clock::now());
        bench.until_running();
        wrote(&bench, "at-0", 1);
        wrote(&bench, "at-1", 1);
        let mut placement = run.placement.clone();
        placement[1] = PodPlacement { node: "m".into(), accelerators: vec![6, 7], ..placement[1].clone() };
        bench.runner().move_pods(run.uid, run.fence, 1, placement.clone());
        assert_eq!(bench.next(), RunnerEvent::Moved { uid: run.uid, fence: run.fence, number: 1 });
        assert_eq!(wrote(&bench, "at-1", 2), ["n1 2,3", "m 6,7"]);
        assert_eq!(wrote(&bench, "at-0", 1), ["n0 0,1"]);
        assert!(!bench.data.path().join("twice").exists(), "the pod ran twice at once");
        bench.runner().move_pods(run.uid, run.fence, 1, placement);
        assert_eq!(
            bench.next(),
            RunnerEvent::Moved { uid: run.uid, fence: run.fence, number: 1 },
            "a repetition is only answered"
        );
        std::fs::write(bench.data.path().join("done"), "").unwrap();
        let end = bench.until_ended();
        assert_eq!((end.result, end.failures), (RunResult::Succeeded, 0));
        assert_eq!(wrote(&bench, "at-1", 2).len(), 2);
        assert!(left(&run).is_empty());
    });
}

#[test]
fn a_move_outlives_the_agent_that_ordered_it() {
    both(|mut bench| {
        let run = movable(&bench);
        bench.runner().start(run.clone(), clock::now());
        bench.until_running();
        wrote(&bench, "at-1", 1);
        let mut placement = run.placement.clone();
        placement[1].node = "m".into();
        bench.runner().move_pods(run.uid, run.fence, 1, placement.clone());
        bench.restart();
        let found = bench.runner().adopt();
        assert!(
            found.iter().any(|f| f.uid == run.uid && matches!(f.state, FoundState::Running { .. })),
            "{found:?}"
        );
        bench.runner().move_pods(run.uid, run.fence, 1, placement);
        assert_eq!(bench.next(), RunnerEvent::Moved { uid: run.uid, fence: run.fence, number: 1 });
        assert_eq!(wrote(&bench, "at-1", 2), ["n1 2,3", "m 2,3"]);
        assert!(!bench.data.path().join("twice").exists(), "the pod ran twice at once");
        bench.restart();
        assert_eq!(bench.runner().adopt()[0].nodes, ["n0", "m"], "where it is now is on disk");
        bench.runner().stop(run.uid, run.fence);
        assert_eq!(bench.until_ended().result, RunResult::Stopped);
        assert!(left(&run).is_empty());
    });
}

#[test]
fn places_of_pods_that_have_succeeded_are_told_once_nothing_more_will_start_there() {
    both(|mut bench| {
        // The first ends at once, the others when they are told; the first place has a second pod to run.
        let data = bench.data.path().display().to_string();
        let script = format!(
            "echo > {data}/began-$JOB_COMPLETION_INDEX; while test $JOB_COMPLETION_INDEX != 0 && ! test -f {data}/done-$JOB_COMPLETION_INDEX; do sleep 0.01; done"
        );
        let run = start(
            &job(&script, json!({"parallelism": 3, "completions": 4, "completionMode": "Indexed"})),
            3,
            LONG,
        );
        bench.runner().start(run.clone(), clock::now());
        bench.until_running();
        let done = |index: u32| std::fs::write(format!("{data}/done-{index}"), "").unwrap();
        let spare = |places: &[u32]| RunnerEvent::Spare {
            uid: run.uid,
            fence: run.fence,
            places: places.iter().map(|at| ("main".to_owned(), *at)).collect(),
        };
        wrote(&bench, "began-3", 1);
        done(2);
        assert_eq!(bench.next(), spare(&[2]), "the first place is in use again");
        bench.restart();
        bench.runner().adopt();
        assert_eq!(bench.next(), spare(&[2]), "the next agent may not know");
        // Pods that are left can be moved beside it, and it isn't started again.
        let mut placement = run.placement.clone();
        placement[1].node = "m".into();
        bench.runner().move_pods(run.uid, run.fence, 1, placement);
        assert_eq!(bench.next(), RunnerEvent::Moved { uid: run.uid, fence: run.fence, number: 1 });
        done(1);
        assert_eq!(bench.next(), spare(&[1, 2]));
        done(3);
        let end = bench.until_ended();
        assert_eq!((end.result, end.pods.len(), end.failures), (RunResult::Succeeded, 4, 0));
        assert!(left(&run).is_empty());
    });
}

/// Pods that run until they are told, each noting its starts. The third notes that it is told to stop; the fourth ignores it, and so
/// does what it leaves behind outside its group.
fn shrinkable(bench: &Bench) -> Start {
    let script = r#"cd DATA; trap 'echo told >> told-$JOB_COMPLETION_INDEX; exit 0' TERM
        test $JOB_COMPLETION_INDEX = 3 && trap '' TERM && (setsid sh -c 'trap "" TERM; while ! test -f done-3; do sleep 0.01; done' &)
        echo $MERIDIAN_NODE >> at-$JOB_COMPLETION_INDEX
        while ! test -f done-$JOB_COMPLETION_INDEX; do sleep 0.01; done"#;
    let script = script.replace("DATA", bench.data.path().to_str().unwrap());
    start(
        &job(
            &script,
            json!({"parallelism": 4, "completions": 4, "completionMode": "Indexed", "backoffLimit": 0}),
        ),
        4,
        LONG,
    )
}

fn two() -> Size {
    Size { parallelism: 2, completions: Some(2) }
}

impl Bench {
    fn shrink(&mut self, run: &Start, size: Size) {
        self.runner().shrink(run.uid, run.fence, size);
    }

    /// Waits until these places are told, and looks that nothing is in any that is told on the way.
    fn until_spare(&mut self, run: &Start, wanted: &[u32]) {
        loop {
            let event = self.next();
            let RunnerEvent::Spare { places, .. } = event else { panic!("{event:?}") };
            let told: Vec<u32> = places.into_iter().map(|(_, place)| place).collect();
            for place in &told {
                let mut marks = processes::marks(run.uid, run.fence);
                marks.push(format!("MERIDIAN_POD_SLOT={place}"));
                assert_eq!(
                    processes::marked(&marks),
                    [0; 0],
                    "something is left in place {place}, which was told as spare"
                );
            }
            if told == wanted {
                return;
            }
        }
    }

    /// The first two of [`shrinkable`] have run on undisturbed, and their success is the job's.
    fn first_two_end_it(&mut self, run: &Start) {
        for index in 0..2 {
            assert_eq!(wrote(self, &format!("at-{index}"), 1), [format!("n{index}")]);
            assert!(!self.data.path().join(format!("told-{index}")).exists());
            std::fs::write(self.data.path().join(format!("done-{index}")), "").unwrap();
        }
        let end = self.until_ended();
        assert_eq!((end.result, end.failures), (RunResult::Succeeded, 0));
        assert_eq!(
            end.pods.iter().map(|pod| (pod.index, pod.attempt, pod.exit_code)).collect::<Vec<_>>(),
            [(0, 0, 0), (1, 0, 0)]
        );
        assert!(left(run).is_empty());
    }
}

#[test]
fn a_job_that_shrinks_ends_the_pods_that_are_too_many_and_goes_on_with_the_others() {
    both(|mut bench| {
        let run = shrinkable(&bench);
        bench.runner().start(run.clone(), clock::now());
        bench.until_running();
        for index in 0..4 {
            wrote(&bench, &format!("at-{index}"), 1);
        }
        bench.shrink(&run, two());
        bench.shrink(&run, two());
        bench.until_spare(&run, &[2, 3]);
        assert_eq!(wrote(&bench, "told-2", 1), ["told"]);
        bench.shrink(&run, two());
        bench.shrink(&run, Size { parallelism: 3, completions: Some(3) });
        bench.first_two_end_it(&run);

        // Neither a run that has ended nor an unknown one has a size.
        let unknown = start(&run.spec, 4, LONG);
        bench.shrink(&run, Size { parallelism: 1, completions: Some(1) });
        bench.shrink(&unknown, two());
        bench.runner().start(run.clone(), clock::now());
        assert!(
            matches!(bench.next(), RunnerEvent::Ended { uid, end, .. } if uid == run.uid && end.pods.len() == 2)
        );
        assert!(!bench.dir(&unknown).path().exists());
        assert_eq!(
            bench.dir(&run).resize().unwrap().unwrap().size,
            two(),
            "the smallest that was said while it ran"
        );
    });
}

#[test]
fn a_smaller_size_outlives_the_agent_that_ordered_it() {
    for repeated in [true, false] {
        both(|mut bench| {
            let run = shrinkable(&bench);
            bench.runner().start(run.clone(), clock::now());
            bench.until_running();
            wrote(&bench, "at-3", 1);
            bench.shrink(&run, two());
            bench.restart();
            bench.runner().adopt();
            if repeated {
                bench.shrink(&run, two());
            }
            bench.until_spare(&run, &[2, 3]);
            bench.restart();
            bench.runner().adopt();
            bench.until_spare(&run, &[2, 3]);
            bench.first_two_end_it(&run);
        });
    }
}

#[test]
fn a_pod_that_moves_and_is_too_many_is_not_started_again() {
    both(|mut bench| {
        let run = shrinkable(&bench);
        bench.runner().start(run.clone(), clock::now());
        bench.until_running();
        for index in 0..4 {
            wrote(&bench, &format!("at-{index}"), 1);
        }
        let mut placement = run.placement.clone();
        for place in &mut placement[2..] {
            place.node = "m".into();
        }
        bench.runner().move_pods(run.uid, run.fence, 1, placement);
        bench.shrink(&run, two());
        // Both are said once the last of them is gone; which comes first is nobody's concern.
        let (mut moved, mut spare) = (false, false);
        while !(moved && spare) {
            match bench.next() {
                RunnerEvent::Moved { number: 1, .. } => moved = true,
                RunnerEvent::Spare { places, .. } => spare = places.len() == 2,
                event => panic!("{event:?}"),
            }
            let alive = left(&run).len();
            assert!(!moved || alive <= 4, "{alive} processes: the two that stay, and what they wait with");
        }
        bench.first_two_end_it(&run);
        assert_eq!(
            (wrote(&bench, "at-2", 1), wrote(&bench, "at-3", 1)),
            (vec!["n2".to_owned()], vec!["n3".to_owned()])
        );
    });
}

#[test]
fn where_completions_stay_all_of_them_succeed_in_the_places_that_are_left() {
    both(|mut bench| {
        // The directory is there while a pod works, so two at once are noticed.
        let script = r#"cd DATA; echo x >> up-$JOB_COMPLETION_INDEX
            while ! test -f go; do sleep 0.01; done
            mkdir alone || echo "$JOB_COMPLETION_INDEX" >> together; ls > listing; rmdir alone"#;
        let script = script.replace("DATA", bench.data.path().to_str().unwrap());
        let run = start(
            &job(
                &script,
                json!({"parallelism": 3, "completions": 6, "completionMode": "Indexed", "backoffLimit": 0}),
            ),
            3,
            LONG,
        );
        bench.runner().start(run.clone(), clock::now());
        bench.until_running();
        for index in 0..3 {
            wrote(&bench, &format!("up-{index}"), 1);
        }
        bench.shrink(&run, Size { parallelism: 1, completions: None });
        bench.until_spare(&run, &[1, 2]);
        std::fs::write(bench.data.path().join("go"), "").unwrap();
        let end = bench.until_ended();
        assert_eq!((end.result, end.failures), (RunResult::Succeeded, 0));
        let tries: Vec<_> = end.pods.iter().map(|pod| (pod.index, pod.attempt, pod.exit_code)).collect();
        assert_eq!(tries, [(0, 0, 0), (1, 1, 0), (2, 1, 0), (3, 0, 0), (4, 0, 0), (5, 0, 0)]);
        assert!(!bench.data.path().join("together").exists(), "two at once");
        assert!(left(&run).is_empty());
    });
}

#[test]
fn the_deadline_ends_a_gang_without_any_agent() {
    both(|mut bench| {
        // Both pods ignore the signal and say again and again when they still ran, in seconds of boot time.
        let script = format!(
            "trap '' TERM; while :; do cat /proc/uptime >> {}/beat-$MERIDIAN_POD_INDEX; done",
            bench.data.path().display()
        );
        let mut run = start(&job(&script, json!({"parallelism": 2, "completions": 2})), 2, Millis(2_500));
        run.stop_budget = Millis(1_600);
        bench.runner.as_mut().unwrap().start(run.clone(), clock::now());
        assert!(matches!(bench.next(), RunnerEvent::Running { .. }));
        drop(bench.runner.take());
        let dir = bench.dir(&run);
        let end = within(|| dir.end().unwrap());
        assert_eq!(end.result, RunResult::LeaseLapsed);
        assert!(left(&run).is_empty());
        for pod in 0..2 {
            let beats = std::fs::read_to_string(bench.data.path().join(format!("beat-{pod}"))).unwrap();
            let last: f64 = beats
                .rsplit_once('\n')
                .unwrap()
                .0
                .lines()
                .last()
                .unwrap()
                .split(' ')
                .next()
                .unwrap()
                .parse()
                .unwrap();
            let deadline = run.deadline.0 as f64 / 1_000.0;
            assert!(last < deadline, "pod {pod} still ran at {last}, and nothing may run at {deadline}");
            assert!(last > deadline - 1.6, "pod {pod} was cut off at {last}, before its stop was due");
        }
        bench.restart();
        let found = bench.runner().adopt();
        assert!(matches!(&found[..], [found] if found.state == FoundState::Ended(end.clone())), "{found:?}");
    });
}

#[test]
fn a_renewal_carries_a_gang_over_its_first_deadline_even_from_the_next_agent() {
    for restarted in [false, true] {
        let mut bench = Bench::new(true);
        let script = format!(
            "while test $(cut -d. -f1 /proc/uptime) -le {}; do sleep 0.02; done",
            clock::now().mono.0 / 1_000 + 3
        );
        let run = start(&job(&script, json!({})), 1, Millis(2_000));
        bench.runner().start(run.clone(), clock::now());
        bench.until_running();
        if restarted {
            bench.restart();
            bench.runner().adopt();
        }
        bench.runner().renew(run.uid, run.fence, run.deadline + LONG, clock::now());
        assert_eq!(bench.until_ended().result, RunResult::Succeeded);
        assert!(clock::now().mono > run.deadline);
    }
}

#[test]
fn a_guard_whose_directory_was_removed_ends_with_its_gang() {
    both(|mut bench| {
        let run = start(&job("exec sleep 600", json!({})), 1, LONG);
        bench.runner().start(run.clone(), clock::now());
        bench.until_running();
        let dir = bench.dir(&run);
        let guard = guard_pid(&dir);
        std::fs::remove_dir_all(dir.path()).unwrap();
        bench.runner().stop(run.uid, run.fence);
        within(|| (!Path::new(&format!("/proc/{guard}")).exists()).then_some(()));
        assert!(left(&run).is_empty());
    });
}

#[test]
fn a_killed_guard_takes_its_gang_with_it() {
    both(|mut bench| {
        let script = "(setsid sh -c 'while :; do sleep 0.01; done' &); while :; do sleep 0.01; done";
        let run = start(&job(script, json!({})), 1, LONG);
        bench.runner().start(run.clone(), clock::now());
        bench.until_running();
        within(|| (left(&run).len() >= 2).then_some(()));
        kill9(guard_pid(&bench.dir(&run)));
        let end = bench.until_ended();
        assert!(matches!(end.result, RunResult::NodeLost { .. }), "{end:?}");
        assert!(left(&run).is_empty());
    });
}

#[test]
fn in_a_namespace_a_killed_guard_ends_its_gang_without_any_agent() {
    let mut bench = Bench::new(true);
    if bench.runner().enforcement() != Enforcement::Guarded {
        return;
    }
    let run = start(&job("(setsid sleep 600 &); exec sleep 600", json!({})), 1, LONG);
    bench.runner().start(run.clone(), clock::now());
    bench.until_running();
    drop(bench.runner.take());
    kill9(guard_pid(&bench.dir(&run)));
    within(|| left(&run).is_empty().then_some(()));
}

#[test]
fn a_restarted_agent_takes_its_gangs_up_again() {
    both(|mut bench| {
        let go = bench.data.path().join("go");
        let script = format!("while ! test -e {}; do sleep 0.01; done; echo done; exit 0", go.display());
        let run = start(&job(&script, json!({})), 1, LONG);
        bench.runner().start(run.clone(), clock::now());
        bench.until_running();
        let guard = guard_pid(&bench.dir(&run));
        bench.restart();
        let found = bench.runner().adopt();
        assert!(
            matches!(&found[..], [f] if (f.uid, f.fence) == (run.uid, run.fence) && f.state == FoundState::Running { failures: 0 }),
            "{found:?}"
        );
        bench.runner().renew(run.uid, run.fence, run.deadline + LONG, clock::now());
        // A repeated grant is answered with where the run is.
        bench.runner().start(run.clone(), clock::now());
        bench.until_running();
        assert_eq!(guard_pid(&bench.dir(&run)), guard);
        std::fs::write(&go, "").unwrap();
        assert_eq!(bench.until_ended().result, RunResult::Succeeded);
        assert_eq!(bench.logs(&run, None), "done\n");
    });
}

#[test]
fn a_guard_that_is_stuck_does_not_outlast_its_deadline_while_an_agent_lives() {
    let mut bench = Bench::new(true);
    let run = start(&job("while :; do sleep 0.01; done", json!({})), 1, Millis(1_500));
    bench.runner().start(run.clone(), clock::now());
    bench.until_running();
    let guard = guard_pid(&bench.dir(&run)).to_string();
    assert!(std::process::Command::new("kill").args(["-STOP", &guard]).status().unwrap().success());
    assert_eq!(bench.until_ended().result, RunResult::LeaseLapsed);
    assert!(left(&run).is_empty());
}

#[test]
fn a_run_that_lost_its_guard_while_no_agent_was_there_is_ended_by_the_next() {
    let mut bench = Bench::new(false);
    let run = start(&job("(setsid sleep 600 &); sleep 600", json!({})), 1, LONG);
    bench.runner().start(run.clone(), clock::now());
    bench.until_running();
    within(|| (left(&run).len() >= 2).then_some(()));
    drop(bench.runner.take());
    kill9(guard_pid(&bench.dir(&run)));
    bench.restart();
    let found = bench.runner().adopt();
    assert!(matches!(found[0].state, FoundState::Ending | FoundState::Ended(_) | FoundState::Running { .. }));
    if !matches!(found[0].state, FoundState::Ended(_)) {
        assert!(matches!(bench.until_ended().result, RunResult::NodeLost { .. }));
    }
    assert!(left(&run).is_empty());
}

#[test]
fn a_reboot_loses_every_run() {
    let mut bench = Bench::new(true);
    let run = start(&job("exec sleep 600", json!({})), 1, LONG);
    bench.runner().start(run.clone(), clock::now());
    bench.until_running();
    bench.runner().stop(run.uid, run.fence);
    bench.until_ended();
    drop(bench.runner.take());
    // As a machine finds it that went down in mid-run.
    let dir = bench.dir(&run);
    let mut plan = dir.plan().unwrap().unwrap();
    plan.boot_id = "another boot".into();
    dir.write_plan(&plan).unwrap();
    for gone in ["state.json", "stop"] {
        std::fs::remove_file(dir.path().join(gone)).unwrap();
    }
    bench.restart();
    let found = bench.runner().adopt();
    assert!(
        matches!(&found[0].state, FoundState::Ended(End { result: RunResult::NodeLost { message }, .. }) if message.contains("restarted")),
        "{found:?}"
    );
}

#[test]
fn a_stop_for_an_unknown_fence_forbids_its_start() {
    let mut bench = Bench::new(true);
    let run = start(&job("exec sleep 600", json!({})), 1, LONG);
    bench.runner().stop(run.uid, run.fence);
    assert_eq!(bench.until_ended().result, RunResult::Stopped);
    bench.runner().start(run.clone(), clock::now());
    assert_eq!(bench.until_ended().result, RunResult::Stopped);
    assert!(
        left(&run).is_empty() && bench.dir(&run).identity().unwrap().is_none(),
        "no guard was ever there"
    );
    bench.restart();
    let found = bench.runner().adopt();
    assert!(matches!(&found[0].state, FoundState::Ended(End { result: RunResult::Stopped, .. })));
}

#[test]
fn a_stop_that_the_disk_does_not_take_is_confirmed_once_it_does() {
    let mut bench = Bench::new(true);
    let run = start(&job("exec sleep 600", json!({})), 1, LONG);
    // Nothing can be made below it, as on a disk that is full or broken.
    let in_the_way = bench.data.path().join("runs").join(run.uid.to_string());
    std::fs::write(&in_the_way, "").unwrap();
    bench.runner().stop(run.uid, run.fence);
    // The start comes after it in the same queue, so it is refused by then.
    bench.runner().start(run.clone(), clock::now());
    let other = start(&job("exit 0", json!({})), 1, LONG);
    bench.runner().start(other.clone(), clock::now());
    loop {
        match bench.next() {
            RunnerEvent::Ended { uid, .. } if uid == other.uid => break,
            event => assert_eq!(
                event,
                RunnerEvent::Running { uid: other.uid, fence: other.fence },
                "nothing is confirmed that isn't durable"
            ),
        }
    }
    std::fs::remove_file(&in_the_way).unwrap();
    assert_eq!(bench.until_ended().result, RunResult::Stopped);
    assert!(left(&run).is_empty() && bench.dir(&run).start_forbidden());
}

#[test]
fn a_grant_that_has_lapsed_and_a_job_that_cannot_run_start_nothing() {
    let mut bench = Bench::new(true);
    let late = start(&job("touch ran", json!({})), 1, BUDGET);
    bench.runner().start(late.clone(), clock::now());
    assert_eq!(
        bench.next(),
        RunnerEvent::Ended {
            uid: late.uid,
            fence: late.fence,
            end: End { result: RunResult::LeaseLapsed, pods: vec![], failures: 0, ran: Millis(0) }
        }
    );

    // Within its term by what was said, and not by what the machine missed until it was said.
    let paused = start(&job("touch ran", json!({})), 1, LONG);
    let now = clock::now();
    bench.runner().start(paused.clone(), Now { wall: Wall(now.wall.0 - 120_000), ..now });
    let end = bench.until_ended();
    assert!(end.result == RunResult::LeaseLapsed && end.pods.is_empty(), "{end:?}");

    let no_command =
        start(r#"{"spec":{"template":{"spec":{"containers":[{"image":"x","args":["120s"]}]}}}}"#, 1, LONG);
    let spec = JobSpec::parse(&no_command.spec).unwrap();
    assert!(bench.runner().accepts(&spec).unwrap_err().contains("`command`"));
    bench.runner().start(no_command, clock::now());
    let end = bench.until_ended();
    assert!(
        matches!(&end.result, RunResult::Failed { reason, message } if reason == "NotRunnable" && message.contains("`command`")),
        "{end:?}"
    );
}

#[test]
fn the_runner_is_off_unless_it_is_enabled() {
    let data = tempfile::tempdir().unwrap();
    let (sender, mut events) = channel(4);
    let mut settings = Settings::new(false, data.path().to_owned(), "eu".into(), "r".into());
    settings.guard = PathBuf::from(env!("CARGO_BIN_EXE_meridian-agent"));
    let mut runner = ProcessRunner::open(settings, sender).unwrap();
    let run = start(&job("true", json!({})), 1, LONG);
    assert!(runner.accepts(&JobSpec::parse(&run.spec).unwrap()).unwrap_err().contains("enable"));
    runner.start(run, clock::now());
    let event = within(|| events.try_recv().ok());
    assert!(
        matches!(event, RunnerEvent::Ended { end: End { result: RunResult::Failed { .. }, .. }, .. }),
        "{event:?}"
    );
}
