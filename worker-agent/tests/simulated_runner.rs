//! The simulated runner with its thread and its input log.

use futures::FutureExt as _;
use meridian_agent::guard::clock;
use meridian_agent::runner::simulated::{Settings, SimulatedRunner};
use meridian_agent_core::runtime::{Found, FoundState, PodPlacement, Runner, RunnerEvent, Start};
use meridian_shared::ids::{Fence, OfferId, Uid};
use meridian_shared::protocol::EndResult;
use meridian_shared::time::Millis;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};
use tokio::sync::mpsc::{Receiver, channel};

const PATIENCE: Duration = Duration::from_secs(20);

fn open(data: &Path) -> (SimulatedRunner, Receiver<RunnerEvent>) {
    // The channel takes one event only: further ones must be delayed, not lost.
    let (sender, events) = channel(1);
    (
        SimulatedRunner::open(Settings { data: data.to_owned(), speed: "100".parse().unwrap() }, sender)
            .unwrap(),
        events,
    )
}

fn next(events: &mut Receiver<RunnerEvent>) -> RunnerEvent {
    let begun = Instant::now();
    loop {
        match events.try_recv() {
            Ok(event) => return event,
            Err(_) => assert!(begun.elapsed() < PATIENCE, "no event within {PATIENCE:?}"),
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn adopt(runner: &mut SimulatedRunner) -> Vec<Found> {
    runner.adopt().now_or_never().expect("the simulated runner answers at once").unwrap()
}

fn start(number: u64, seconds: u32) -> Start {
    Start {
        uid: Uid(number.into()),
        fence: Fence { epoch: 1, leadership: 2, counter: number },
        offer: OfferId { epoch: 1, leadership: 1, counter: number },
        attempt: 1,
        namespace: "ns".into(),
        name: "job".into(),
        spec: format!(r#"{{"spec":{{"template":{{"spec":{{"containers":[{{"args":["{seconds}s"]}}]}}}}}}}}"#)
            .into(),
        placement: vec![PodPlacement {
            pod_set: "main".into(),
            index: 0,
            node: "n".into(),
            accelerators: BTreeMap::from([("nvidia.com/gpu".into(), vec![0])]),
        }],
        deadline: Some(clock::now().mono + Millis::mins(5)),
        stop_budget: Millis::secs(2),
        run_left: None,
        pod_failures: 0,
        completed: meridian_shared::indexes::Indexes::default(),
    }
}

#[test]
fn runs_survive_a_restart_of_the_agent() {
    let data = tempfile::tempdir().unwrap();
    let (mut runner, mut events) = open(data.path());
    assert_eq!(runner.name(), "simulated");
    assert!(adopt(&mut runner).is_empty());
    let (short, long) = (start(1, 10), start(2, 90));
    let begun = clock::now().mono;
    runner.start(short.clone(), clock::now());
    runner.start(long.clone(), clock::now());
    let mut ended = None;
    // both run, one completes and ends
    for _ in 0..4 {
        if let RunnerEvent::Ended { uid, result, .. } = next(&mut events) {
            ended = Some((uid, result));
        }
    }
    assert_eq!(ended, Some((short.uid, EndResult::Succeeded)));

    drop(runner);
    let (mut runner, mut events) = open(data.path());
    let found = adopt(&mut runner);
    assert!(
        matches!(
            &found[..],
            [short, long] if matches!(short.state, FoundState::Ended { .. })
                && long.state == FoundState::Live { running: true }
        ),
        "{found:?}"
    );
    let mut followed = runner.logs(long.uid, long.fence, None).unwrap();
    assert!(followed.read().unwrap().is_some() && followed.read().unwrap().is_none());
    assert!(!followed.has_ended(), "a followed log ends with its run");
    let completed = next(&mut events);
    assert!(matches!(completed, RunnerEvent::Completed { uid, .. } if uid == long.uid), "{completed:?}");
    let event = next(&mut events);
    assert!(
        matches!(&event, RunnerEvent::Ended { uid, result: EndResult::Succeeded, .. } if *uid == long.uid),
        "{event:?}"
    );
    let took = clock::now().mono.since(begun);
    assert!(took >= Millis(900), "ninety seconds at a hundred times real speed took {took}");
    let mut logs = runner.logs(long.uid, long.fence, None).unwrap();
    assert!(String::from_utf8(logs.read().unwrap().unwrap().bytes).unwrap().starts_with("simulated: "));
    assert!(followed.read().unwrap().is_none() && followed.has_ended());
}
