use super::*;
use meridian_agent_core::runtime::PodPlacement;
use meridian_shared::ids::OfferId;
use meridian_shared::protocol::Size;
use meridian_shared::time::{Millis, Wall};

const UID: Uid = Uid(7);
const FENCE: Fence = Fence { epoch: 1, leadership: 2, counter: 3 };

const TEMPLATE: &str = r#" "template":{"spec":{"containers":[{"args":["10s"]}]}}"#;

fn at(millis: u64) -> Now {
    Now { mono: Mono(millis), wall: Wall(millis as i64) }
}

fn start(annotations: &str, spec: &str, pods: u32) -> RunCommand {
    let place = |index| PodPlacement {
        pod_set: "main".into(),
        index,
        node: "n".into(),
        accelerators: BTreeMap::new(),
    };
    RunCommand::Start(Box::new(Start {
        uid: UID,
        fence: FENCE,
        offer: OfferId { epoch: 1, leadership: 1, counter: 1 },
        attempt: 1,
        namespace: "ns".into(),
        name: "job".into(),
        spec: format!(r#"{{"metadata":{{"annotations":{{{annotations}}}}},"spec":{{{spec}{TEMPLATE}}}}}"#)
            .into(),
        placement: (0..pods).map(place).collect(),
        deadline: Some(Mono(60_000)),
        stop_budget: Millis(2_000),
        run_left: None,
        pod_failures: 0,
        completed: meridian_shared::indexes::Indexes::default(),
    }))
}

/// The end of the only run.
fn end(runs: &SimulatedRuns) -> &RunEnd {
    match runs.runs.get(&(UID, FENCE)) {
        Some(SimulatedRun::Ended { end, .. }) => end,
        other => panic!("{other:?}"),
    }
}

/// The events by name, without the reports of completed indexes.
fn results(events: &[RunnerEvent]) -> Vec<String> {
    let name = |event: &RunnerEvent| {
        Some(match event {
            RunnerEvent::Running { .. } => "running".to_owned(),
            RunnerEvent::Moved { number, .. } => format!("moved {number}"),
            RunnerEvent::PodsFailed { failures, .. } => format!("failed {failures}"),
            RunnerEvent::Reclaimable { places, .. } => format!(
                "reclaimable {}",
                places.iter().map(|(_, index)| index.to_string()).collect::<Vec<_>>().join(" ")
            ),
            RunnerEvent::Completed { .. } => return None,
            RunnerEvent::Ended { result, .. } => {
                let debug = format!("{result:?}");
                debug.split_once(' ').map_or_else(|| debug.clone(), |(word, _)| word.to_owned())
            }
        })
    };
    events.iter().filter_map(name).collect()
}

#[test]
fn pods_become_reclaimable_one_by_one() {
    let stagger = r#""simulated.meridian.dev/stagger":"5s""#;
    let mut runs = SimulatedRuns::new(Speed::REAL);
    assert_eq!(
        results(&runs.apply(start(stagger, r#""parallelism":3,"completions":3,"#, 3), at(0))),
        ["running"]
    );
    assert_eq!(results(&runs.advance(at(10_000))), ["reclaimable 0"]);
    assert!(runs.advance(at(14_999)).is_empty());
    assert_eq!(results(&runs.advance(at(15_000))), ["reclaimable 0 1"]);
    assert_eq!(results(&runs.reclaimable()), ["reclaimable 0 1"], "repeated for an agent that starts");
    assert_eq!(results(&runs.advance(at(20_000))), ["Succeeded"]);
    // Without the annotation they end together.
    let mut runs = SimulatedRuns::new(Speed::REAL);
    runs.apply(start("", r#""parallelism":3,"completions":3,"#, 3), at(0));
    assert_eq!(results(&runs.advance(at(10_000))), ["Succeeded"]);
}

#[test]
fn duration_is_divided_by_the_speed() {
    let mut runs = SimulatedRuns::new("10".parse().unwrap());
    assert_eq!(results(&runs.apply(start("", r#""parallelism":3,"completions":3,"#, 3), at(0))), ["running"]);
    assert_eq!(runs.next_due(), Some(Mono(1_000)));
    assert!(runs.advance(at(999)).is_empty());
    let events = runs.advance(at(1_000));
    assert_eq!(results(&events), ["Succeeded"]);
    assert_eq!(end(&runs).pods.len(), 3);
    assert_eq!(runs.next_due(), None);
    assert_eq!(
        results(&runs.apply(start("", "", 3), at(2_000))),
        ["Succeeded"],
        "a repeated start reports the end"
    );
}

#[test]
fn failed_pods_are_tried_again() {
    let mut runs = SimulatedRuns::new(Speed::REAL);
    runs.apply(start(r#""simulated.meridian.dev/fail-first":"1""#, "", 1), at(0));
    assert_eq!(results(&runs.advance(at(10_000))), ["failed 1"]);
    assert_eq!(runs.next_due(), Some(Mono(20_000)), "the retry waits ten seconds");
    assert_eq!(results(&runs.advance(at(20_000))), [""; 0]);
    assert_eq!(results(&runs.advance(at(30_000))), ["Succeeded"]);

    let mut bad = SimulatedRuns::new(Speed::REAL);
    bad.apply(start(r#""simulated.meridian.dev/exit-code":"3""#, r#""backoffLimit":0,"#, 1), at(0));
    assert_eq!(results(&bad.advance(at(10_000))), ["Failed"]);
}

#[test]
fn a_run_ends_when_its_stop_begins() {
    let mut runs = SimulatedRuns::new("0.1".parse().unwrap());
    runs.apply(start("", "", 1), at(0));
    runs.apply(RunCommand::Renew { uid: UID, fence: FENCE, deadline: Mono(70_000) }, at(5_000));
    assert!(runs.advance(at(58_000)).is_empty(), "it was renewed");
    assert_eq!(results(&runs.advance(at(68_000))), ["LeaseLapsed"]);
}

#[test]
fn nothing_runs_after_the_lapse_despite_a_clock_jump() {
    let mut runs = SimulatedRuns::new(Speed::REAL);
    runs.apply(start("", r#""completions":9,"#, 1), at(0));
    // Nine completions of ten seconds, one after another, don't fit into the lease.
    let events = runs.advance(at(600_000));
    assert_eq!(results(&events), ["LeaseLapsed"]);
    assert_eq!(end(&runs).pods.len(), 5);
}

#[test]
fn a_stop_occupies_an_unknown_name() {
    let mut runs = SimulatedRuns::new(Speed::REAL);
    assert_eq!(results(&runs.apply(RunCommand::Stop { uid: UID, fence: FENCE }, at(0))), ["Stopped"]);
    assert_eq!(results(&runs.apply(start("", "", 1), at(1))), ["Stopped"]);
    runs.apply(RunCommand::Forget { uid: UID, fence: FENCE }, at(2));
    assert_eq!(runs.len(), 0);
}

#[test]
fn moved_pods_start_again_and_the_others_continue() {
    let mut runs = SimulatedRuns::new(Speed::REAL);
    runs.apply(start("", r#""parallelism":2,"completions":2,"#, 2), at(0));
    let place = |index, node: &str| PodPlacement {
        pod_set: "main".into(),
        index,
        node: node.into(),
        accelerators: BTreeMap::new(),
    };
    let moved =
        RunCommand::Move { uid: UID, fence: FENCE, number: 1, placement: vec![place(0, "n"), place(1, "m")] };
    assert_eq!(results(&runs.apply(moved.clone(), at(4_000))), ["moved 1"]);
    assert_eq!(runs.found()[0].nodes, ["n", "m"]);
    assert_eq!(results(&runs.apply(moved, at(5_000))), ["moved 1"], "a repetition moves nothing");
    let mut again = SimulatedRuns::new(Speed::REAL);
    for (now, command) in runs.commands() {
        again.apply(command, now);
    }
    assert_eq!((again.next_due(), again.commands()), (runs.next_due(), runs.commands()));
    assert_eq!(results(&runs.advance(at(10_000))), ["reclaimable 0"], "the first pod is done");
    assert_eq!(results(&runs.advance(at(14_000))), ["Succeeded"]);
    assert_eq!(end(&runs).pod_failures, 0);
}

fn scale_down(parallelism: u32, completions: Option<u32>) -> RunCommand {
    RunCommand::ScaleDown { uid: UID, fence: FENCE, size: Size { parallelism, completions } }
}

/// Runs rebuilt from the commands of `runs`.
fn again(runs: &SimulatedRuns) -> SimulatedRuns {
    let mut again = SimulatedRuns::new(Speed::REAL);
    for (now, command) in runs.commands() {
        again.apply(command, now);
    }
    assert_eq!((again.next_due(), again.commands()), (runs.next_due(), runs.commands()));
    again
}

#[test]
fn surplus_pods_end_at_once_and_the_others_continue() {
    let mut runs = SimulatedRuns::new(Speed::REAL);
    assert!(runs.apply(scale_down(2, Some(2)), at(0)).is_empty(), "nothing runs");
    runs.apply(start("", r#""parallelism":4,"completions":4,"#, 4), at(0));
    assert_eq!(results(&runs.apply(scale_down(2, Some(2)), at(4_000))), ["reclaimable 2 3"]);
    assert!(runs.apply(scale_down(2, Some(2)), at(5_000)).is_empty(), "a repetition");
    assert!(runs.apply(scale_down(3, Some(3)), at(5_000)).is_empty(), "larger");
    let mut again = again(&runs);
    assert_eq!(results(&again.reclaimable()), ["reclaimable 2 3"]);
    for runs in [&mut runs, &mut again] {
        let events = runs.advance(at(10_000));
        assert!(
            matches!(events.as_slice(), [RunnerEvent::Completed { .. }, RunnerEvent::Ended { .. }]),
            "{events:?}"
        );
        let end = end(runs);
        assert_eq!((&end.result, end.pods.len(), end.pod_failures), (&EndResult::Succeeded, 2, 0));
    }
    assert!(runs.apply(scale_down(1, Some(1)), at(11_000)).is_empty(), "it is over");
}

#[test]
fn a_scale_down_to_the_successes_completes_the_job() {
    let stagger = r#""simulated.meridian.dev/stagger":"5s""#;
    let mut runs = SimulatedRuns::new(Speed::REAL);
    runs.apply(start(stagger, r#""parallelism":3,"completions":3,"#, 3), at(0));
    runs.advance(at(10_000));
    assert_eq!(results(&runs.apply(scale_down(1, Some(1)), at(12_000))), ["Succeeded"]);
}

#[test]
fn a_scale_down_keeps_all_completions_despite_moves() {
    let mut runs = SimulatedRuns::new(Speed::REAL);
    runs.apply(start("", r#""parallelism":3,"completions":4,"#, 3), at(0));
    assert_eq!(results(&runs.apply(scale_down(1, None), at(4_000))), ["reclaimable 1 2"]);
    let place = |index| PodPlacement {
        pod_set: "main".into(),
        index,
        node: "m".into(),
        accelerators: BTreeMap::new(),
    };
    let moved =
        RunCommand::Move { uid: UID, fence: FENCE, number: 1, placement: (0..3).map(place).collect() };
    assert_eq!(results(&runs.apply(moved, at(6_000))), ["moved 1"]);
    let mut again = again(&runs);
    for runs in [&mut runs, &mut again] {
        assert_eq!(results(&runs.advance(at(45_999))), [""; 0]);
        // The first pod started anew at six seconds, and three more pods came after it.
        assert_eq!(results(&runs.advance(at(46_000))), ["Succeeded"]);
    }
    assert_eq!((end(&runs).pods.len(), end(&runs).pod_failures), (4, 0));
}

#[test]
fn its_commands_make_the_same_runs_again() {
    let mut runs = SimulatedRuns::new(Speed::REAL);
    runs.apply(start("", "", 1), at(0));
    runs.apply(RunCommand::Renew { uid: UID, fence: FENCE, deadline: Mono(90_000) }, at(4_000));
    let mut again = SimulatedRuns::new(Speed::REAL);
    for (now, command) in runs.commands() {
        again.apply(command, now);
    }
    assert_eq!((again.next_due(), again.commands()), (runs.next_due(), runs.commands()));
    again.lose_all();
    assert!(matches!(&again.found()[0].state, FoundState::Ended { result: EndResult::NodeLost { .. }, .. }));
    let (description, is_live) = again.describe(UID, FENCE).unwrap();
    assert!(description.contains("real speed") && !is_live, "{description}");
}
