//! Moved gangs without an agent: their guard ends them whole at the deadline, renewals and stops reach all
//! pods, and the next agent finds them on their new nodes.

use super::*;
use std::process::{Child, Command, Stdio};

/// Variable with the directory of the orders for [`agent_process`]; that test does nothing without it.
const ORDERS: &str = "MERIDIAN_TEST_AGENT_ORDERS";
/// Long enough to start a gang on a loaded machine.
const TERM: Millis = Millis(5_000);
/// Extension by each renewal.
const MORE: Millis = Millis(1_500);
const STOP_BUDGET: Millis = Millis(800);

/// When the agent is killed.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Killed {
    /// The moving pod was signalled and still runs.
    DuringTheMove,
    /// The move is finished.
    AfterTheMove,
    /// The lease was renewed once more.
    AfterARenewal,
}

/// Two pods that ignore the stop signal, and write the time, node and try while they run.
fn beating(data: &Path) -> Start {
    let script = r#"cd DATA; trap 'echo signalled >> signalled-$MERIDIAN_POD_INDEX' TERM
        while :; do read -r up idle < /proc/uptime
            echo "$MERIDIAN_NODE $CUDA_VISIBLE_DEVICES $MERIDIAN_POD_ATTEMPT $up" >> beat-$MERIDIAN_POD_INDEX
            sleep 0.01
        done"#;
    let script = script.replace("DATA", data.to_str().unwrap());
    let mut run =
        start(&job(&script, json!({"parallelism": 2, "completions": 2, "backoffLimit": 0})), 2, TERM);
    run.stop_budget = STOP_BUDGET;
    run
}

/// The placement with the second pod on another node.
fn elsewhere(run: &Start) -> Vec<PodPlacement> {
    let mut placement = run.placement.clone();
    placement[1] = PodPlacement { node: "m".into(), accelerators: gpus(&[6, 7]), ..placement[1].clone() };
    placement
}

/// One line of a pod.
#[derive(Clone, Debug, PartialEq)]
struct Beat {
    node: String,
    devices: String,
    attempt: u32,
    at: f64,
}

fn beats(data: &Path, pod: u32) -> Vec<Beat> {
    let text = std::fs::read_to_string(data.join(format!("beat-{pod}"))).unwrap_or_default();
    // A killed pod may leave an incomplete line.
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

/// Checks that only the second pod moved, once.
fn assert_moved_once(data: &Path) {
    let stays = |pod: u32| {
        let mut stays: Vec<(String, String, u32)> =
            beats(data, pod).into_iter().map(|beat| (beat.node, beat.devices, beat.attempt)).collect();
        stays.dedup();
        stays
    };
    let stay = |node: &str, devices: &str, attempt| (node.to_owned(), devices.to_owned(), attempt);
    assert_eq!(stays(0), [stay("n0", "0,1", 0)], "the other pod stays");
    assert_eq!(stays(1), [stay("n1", "2,3", 0), stay("m", "6,7", 1)]);
}

/// This is no test of its own: other tests start it as the process of an agent, and kill it.
#[test]
fn agent_process() {
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
        // A renewal is not answered, but the guard reports its deadline to each connection.
        within(|| {
            (guard_status(&RunDir::of(&data.join("runs"), run.uid, run.fence))?.lapses == deadline)
                .then_some(())
        });
    };
    renew_to(&mut runner, run.lapses() + MORE);
    runner.move_pods(run.uid, run.fence, 1, elsewhere(&run));
    assert!(matches!(next(), RunnerEvent::Moved { number: 1, .. }));
    done("moved");
    within(|| data.join("renew").exists().then_some(()));
    renew_to(&mut runner, run.lapses() + MORE + MORE);
    done("renewed");
    loop {
        std::thread::park();
    }
}

/// The status that the guard reports to a new connection.
fn guard_status(dir: &RunDir) -> Option<wire::Status> {
    let mut line = wire::Line::connect(dir.path()).ok()?;
    let mut statuses: Vec<wire::Status> = Vec::new();
    within(|| {
        // A guard that closes the connection has sent its status.
        let over = line.receive(&mut statuses).is_err();
        (over || !statuses.is_empty()).then_some(())
    });
    statuses.pop()
}

/// An agent process, killed at the end of the test at the latest.
struct Agent(Child);

impl Agent {
    fn start(data: &Path, run: &Start, namespaces: bool) -> Self {
        std::fs::write(data.join("orders"), serde_json::to_vec(&(run, namespaces)).unwrap()).unwrap();
        let name = format!("{}::agent_process", module_path!().split_once("::").unwrap().1);
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", &name]).env(ORDERS, data).stdout(Stdio::null()).stderr(Stdio::null());
        Self(command.spawn().unwrap())
    }

    /// As by `kill -9`.
    fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        // The process may be gone already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Kills the agent of a moved gang, and checks that the guard ends the whole gang in time.
fn killed(namespaces: bool, killed: Killed) {
    let mut bench = Bench::new(namespaces);
    drop(bench.runner.take());
    let data = bench.data.path().to_owned();
    let run = beating(&data);
    let mut agent = Agent::start(&data, &run, namespaces);
    let once = run.lapses() + MORE;
    let deadline = if killed == Killed::AfterARenewal { once + MORE } else { once };
    match killed {
        Killed::DuringTheMove => within(|| data.join("signalled-1").exists().then_some(())),
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
    assert_eq!(end.result, EndResult::LeaseLapsed, "{killed:?}");
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
    let found = bench.adopt();
    assert!(
        matches!(
            &found[..],
            [f] if f.nodes == ["n0", "m"]
                && matches!(&f.state, FoundState::Ended { result, .. } if *result == end.result)
        ),
        "{found:?}"
    );
}

/// Runs `test` with and without PID namespaces in parallel, because deadlines take real time.
fn each(test: impl Fn(bool) + Sync) {
    std::thread::scope(|scope| {
        for namespaces in [true, false] {
            let test = &test;
            scope.spawn(move || test(namespaces));
        }
    });
}

#[test]
fn after_a_move_the_gang_ends_at_its_deadline() {
    each(|namespaces| killed(namespaces, Killed::AfterTheMove));
}

#[test]
fn during_a_move_the_gang_is_moved_and_ends_at_its_deadline() {
    each(|namespaces| killed(namespaces, Killed::DuringTheMove));
}

#[test]
fn after_a_renewal_the_gang_ends_at_the_new_deadline() {
    each(|namespaces| killed(namespaces, Killed::AfterARenewal));
}

#[test]
fn the_next_agent_adopts_a_moved_gang() {
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
        let found = bench.adopt();
        assert!(
            matches!(&found[..], [found] if found.nodes == ["n0", "m"] && found.state == LIVE),
            "{found:?}"
        );
        bench.runner().renew(run.uid, run.fence, run.lapses() + LONG, clock::now());
        for (pod, node) in [(0, "n0"), (1, "m")] {
            beats_on(&data, pod, node, seconds(run.lapses()));
        }
        assert_moved_once(&data);
        bench.runner().stop(run.uid, run.fence);
        let end = bench.until_ended();
        assert_eq!((end.result, end.pod_failures), (EndResult::Stopped, 0));
        assert!(left(&run).is_empty());
        for pod in 0..2 {
            assert_eq!(
                std::fs::read_to_string(data.join(format!("signalled-{pod}"))).unwrap().lines().count(),
                1 + pod as usize,
                "both were signalled to stop"
            );
        }
    });
}
