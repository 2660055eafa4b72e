//! Gangs whose pods were moved are as whole as any: their guard ends them at the deadline, with nobody left to ask, renewals
//! and stops reach all of them, and the next agent finds them where they are.

use super::*;
use std::process::{Child, Command, Stdio};

/// Names the directory in which [`an_agent_that_is_killed`] finds what to do; without it that test is none.
const ORDERS: &str = "MERIDIAN_TEST_AGENT_ORDERS";
/// Enough that a gang is up before its first deadline, even on a loaded machine.
const TERM: Millis = Millis(5_000);
/// How much later each renewal sets the deadline.
const MORE: Millis = Millis(1_500);
const STOP_BUDGET: Millis = Millis(800);

/// How far the agent gets before it is killed.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Killed {
    /// The pod that moves was told to end and is still there.
    AmidTheMove,
    /// The move is over.
    AfterTheMove,
    /// It has renewed the lease once more.
    AfterARenewal,
}

/// Two pods that ignore being told to stop, and write down every moment at which they run, where, and in which process.
fn beating(data: &Path) -> Start {
    let script = r#"cd DATA; trap 'echo told >> told-$MERIDIAN_POD_INDEX' TERM
        while :; do read -r up idle < /proc/uptime; echo "$MERIDIAN_NODE $CUDA_VISIBLE_DEVICES $MERIDIAN_POD_ATTEMPT $up" >> beat-$MERIDIAN_POD_INDEX; sleep 0.01; done"#;
    let script = script.replace("DATA", data.to_str().unwrap());
    let mut run =
        start(&job(&script, json!({"parallelism": 2, "completions": 2, "backoffLimit": 0})), 2, TERM);
    run.stop_budget = STOP_BUDGET;
    run
}

/// The second pod belongs elsewhere.
fn elsewhere(run: &Start) -> Vec<PodPlacement> {
    let mut placement = run.placement.clone();
    placement[1] = PodPlacement { node: "m".into(), accelerators: vec![6, 7], ..placement[1].clone() };
    placement
}

/// One moment at which a pod ran.
#[derive(Clone, Debug, PartialEq)]
struct Beat {
    node: String,
    devices: String,
    attempt: u32,
    at: f64,
}

fn beats(data: &Path, pod: u32) -> Vec<Beat> {
    let text = std::fs::read_to_string(data.join(format!("beat-{pod}"))).unwrap_or_default();
    // A pod that is killed may leave half a line.
    let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
    let beat = |line: &str| {
        let mut words = line.split(' ').map(ToOwned::to_owned);
        let mut word = || words.next().unwrap();
        Beat { node: word(), devices: word(), attempt: word().parse().unwrap(), at: word().parse().unwrap() }
    };
    whole.lines().map(beat).collect()
}

/// Waits for a beat of `pod` on `node` after `at`, in seconds.
fn beats_on(data: &Path, pod: u32, node: &str, at: f64) {
    within(|| beats(data, pod).last().is_some_and(|beat| beat.node == node && beat.at > at).then_some(()));
}

fn seconds(at: meridian_shared::time::Mono) -> f64 {
    at.0 as f64 / 1_000.0
}

/// Where each pod was, in order, and never in two places at once nor twice in one.
fn assert_moved_once(data: &Path) {
    let stays = |pod: u32| {
        let mut stays: Vec<(String, String, u32)> =
            beats(data, pod).into_iter().map(|beat| (beat.node, beat.devices, beat.attempt)).collect();
        stays.dedup();
        stays
    };
    let stay = |node: &str, devices: &str, attempt| (node.to_owned(), devices.to_owned(), attempt);
    assert_eq!(stays(0), [stay("n0", "0,1", 0)], "who stands elsewhere stays");
    assert_eq!(stays(1), [stay("n1", "2,3", 0), stay("m", "6,7", 1)]);
}

/// Not a test by itself, but the agent that a test starts as a process of its own, to kill it.
#[test]
fn an_agent_that_is_killed() {
    let Some(data) = std::env::var_os(ORDERS).map(PathBuf::from) else { return };
    let (run, namespaces): (Start, bool) =
        serde_json::from_slice(&std::fs::read(data.join("orders")).unwrap()).unwrap();
    let (mut runner, mut events) = open(&data, namespaces);
    let mut next = || within(|| events.try_recv().ok());
    let done = |what: &str| std::fs::write(data.join(what), "").unwrap();
    runner.start(run.clone(), clock::now());
    assert!(matches!(next(), RunnerEvent::Running { .. }));
    beats_on(&data, 0, "n0", 0.0);
    beats_on(&data, 1, "n1", 0.0);
    let renew_to = |runner: &mut ProcessRunner, deadline| {
        runner.renew(run.uid, run.fence, deadline, clock::now());
        // Nothing answers a renewal; the guard says the deadline that it goes by to whoever asks.
        within(|| {
            (guard_says(&RunDir::of(&data.join("runs"), run.uid, run.fence))?.lapses == deadline)
                .then_some(())
        });
    };
    renew_to(&mut runner, run.deadline + MORE);
    runner.move_pods(run.uid, run.fence, 1, elsewhere(&run));
    assert!(matches!(next(), RunnerEvent::Moved { number: 1, .. }));
    done("moved");
    within(|| data.join("renew").exists().then_some(()));
    renew_to(&mut runner, run.deadline + MORE + MORE);
    done("renewed");
    loop {
        std::thread::park();
    }
}

/// What the guard says to whoever comes.
fn guard_says(dir: &RunDir) -> Option<wire::Status> {
    let mut line = wire::Line::connect(dir.path()).ok()?;
    let mut heard: Vec<wire::Status> = Vec::new();
    within(|| {
        // A guard that hangs up has said what it had to.
        let over = line.receive(&mut heard).is_err();
        (over || !heard.is_empty()).then_some(())
    });
    heard.pop()
}

/// An agent of its own, killed at the end of the test at the latest.
struct Agent(Child);

impl Agent {
    fn start(data: &Path, run: &Start, namespaces: bool) -> Self {
        std::fs::write(data.join("orders"), serde_json::to_vec(&(run, namespaces)).unwrap()).unwrap();
        let name = format!("{}::an_agent_that_is_killed", module_path!().split_once("::").unwrap().1);
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", &name]).env(ORDERS, data).stdout(Stdio::null()).stderr(Stdio::null());
        Self(command.spawn().unwrap())
    }

    /// As `kill -9` ends it: it can say nothing to anybody.
    fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        // It may be gone already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Kills the agent of a moved gang, and sees the whole gang ended by its guard in time.
fn killed(namespaces: bool, killed: Killed) {
    let mut bench = Bench::new(namespaces);
    drop(bench.runner.take());
    let data = bench.data.path().to_owned();
    let run = beating(&data);
    let mut agent = Agent::start(&data, &run, namespaces);
    let once = run.deadline + MORE;
    let deadline = if killed == Killed::AfterARenewal { once + MORE } else { once };
    match killed {
        Killed::AmidTheMove => within(|| data.join("told-1").exists().then_some(())),
        Killed::AfterTheMove => within(|| data.join("moved").exists().then_some(())),
        Killed::AfterARenewal => {
            within(|| data.join("moved").exists().then_some(()));
            std::fs::write(data.join("renew"), "").unwrap();
            within(|| data.join("renewed").exists().then_some(()));
        }
    }
    agent.kill();
    let dir = bench.dir(&run);
    let end = within(|| dir.end().unwrap());
    assert_eq!(end.result, RunResult::LeaseLapsed, "{killed:?}");
    assert!(left(&run).is_empty(), "{killed:?}");
    assert_moved_once(&data);
    for pod in 0..2 {
        let (last, due) = (beats(&data, pod).last().unwrap().at, seconds(deadline));
        assert!(last < due, "{killed:?}: pod {pod} still ran at {last}, and nothing may run at {due}");
        let earliest = due - seconds(meridian_shared::time::Mono(STOP_BUDGET.0));
        assert!(
            last > earliest,
            "{killed:?}: pod {pod} was cut off at {last}, before its stop was due at {earliest}"
        );
    }
    bench.restart();
    let found = bench.runner().adopt();
    assert!(
        matches!(&found[..], [found] if found.state == FoundState::Ended(end.clone()) && found.nodes == ["n0", "m"]),
        "{found:?}"
    );
}

/// Every way of holding a gang together at once, for their deadlines take real time.
fn each(test: impl Fn(bool) + Sync) {
    std::thread::scope(|scope| {
        for namespaces in [true, false] {
            let test = &test;
            scope.spawn(move || test(namespaces));
        }
    });
}

#[test]
fn a_moved_gang_whose_agent_was_killed_is_ended_whole_at_its_deadline() {
    each(|namespaces| killed(namespaces, Killed::AfterTheMove));
}

#[test]
fn a_gang_whose_agent_was_killed_amid_a_move_is_moved_and_ended_whole_at_its_deadline() {
    each(|namespaces| killed(namespaces, Killed::AmidTheMove));
}

#[test]
fn a_moved_gang_whose_lease_was_renewed_runs_until_the_new_deadline_and_no_longer() {
    each(|namespaces| killed(namespaces, Killed::AfterARenewal));
}

#[test]
fn the_next_agent_finds_a_moved_gang_where_it_is_and_renews_and_stops_all_of_it() {
    each(|namespaces| {
        let mut bench = Bench::new(namespaces);
        let data = bench.data.path().to_owned();
        let run = beating(&data);
        bench.runner().start(run.clone(), clock::now());
        bench.until_running();
        beats_on(&data, 0, "n0", 0.0);
        beats_on(&data, 1, "n1", 0.0);
        bench.runner().move_pods(run.uid, run.fence, 1, elsewhere(&run));
        assert_eq!(bench.next(), RunnerEvent::Moved { uid: run.uid, fence: run.fence, number: 1 });
        bench.restart();
        let found = bench.runner().adopt();
        assert!(
            matches!(&found[..], [found] if found.nodes == ["n0", "m"] && found.state == FoundState::Running { failures: 0 }),
            "{found:?}"
        );
        bench.runner().renew(run.uid, run.fence, run.deadline + LONG, clock::now());
        for (pod, node) in [(0, "n0"), (1, "m")] {
            beats_on(&data, pod, node, seconds(run.deadline));
        }
        assert_moved_once(&data);
        bench.runner().stop(run.uid, run.fence);
        let end = bench.until_ended();
        assert_eq!((end.result, end.failures), (RunResult::Stopped, 0));
        assert!(left(&run).is_empty());
        for pod in 0..2 {
            assert_eq!(
                std::fs::read_to_string(data.join(format!("told-{pod}"))).unwrap().lines().count(),
                1 + pod as usize,
                "both were told to stop"
            );
        }
    });
}
