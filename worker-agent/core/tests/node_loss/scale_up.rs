//! Scale-ups: all added pods get an allocation, or none.

use super::*;
use meridian_shared::protocol::{RefuseReason, ScaleUp};

const JOB: Uid = Uid(1);

fn size(pods: u32) -> Size {
    Size { parallelism: pods, completions: Some(pods) }
}

fn scale_up_order(number: u64, places: u32, pods: u32) -> ScaleUp {
    ScaleUp { number: RecordNumber(number), places: vec![places], size: size(pods), mac: None }
}

impl Bench {
    fn scale_up(&mut self, number: u64, places: u32, pods: u32) {
        self.events.clear();
        self.exchange(Some(Command::ScaleUp {
            uid: JOB,
            fence: fence(1),
            scale_up: Box::new(scale_up_order(number, places, pods)),
        }));
        self.exchange(None);
    }

    /// Answers since the last call: the number, and the reason of a refusal.
    fn answers(&mut self) -> Vec<(u64, Option<RefuseReason>)> {
        let answer = |event| match event {
            Event::ScaledUp { number, .. } => Some((number.0, None)),
            Event::ScaleUpRefused { number, reason, .. } => Some((number.0, Some(reason))),
            _ => None,
        };
        std::mem::take(&mut self.events).into_iter().filter_map(answer).collect()
    }

    /// Orders to the runner since the last call.
    fn orders_given(&mut self) -> Vec<String> {
        let order = |effect| match effect {
            Effect::ScaleUp { number, placement, size, .. } => {
                Some(format!("up {number}: {} positions, {} pods", placement.len(), size.parallelism))
            }
            Effect::ScaleDown { size, .. } => Some(format!("down {}", size.parallelism)),
            Effect::Move { number, .. } => Some(format!("move {number}")),
            Effect::Stop { .. } => Some("stop".to_owned()),
            _ => None,
        };
        std::mem::take(&mut self.effects).into_iter().filter_map(order).collect()
    }
}

#[test]
fn a_scale_up_is_durable_before_pods_start() {
    let mut bench = Bench::new();
    bench.run(1, plain(3));
    let revision = bench.agent.ledger().revision();
    bench.scale_up(7, 5, 5);
    assert!(bench.agent.ledger().revision() > revision, "the manager learns what is free");
    assert_eq!(
        (bench.orders_given(), bench.answers(), bench.free()),
        (vec!["up 1: 5 positions, 5 pods".to_owned()], vec![(7, None)], 19)
    );
    assert!(bench.store["run/00000000-0000-0000-0000-000000000001"].contains("\"number\":7"));
    assert!(bench.agent.is_scaling_up(JOB));
    // A repeated scale-up changes nothing and gets the same answer; an older one is refused.
    bench.scale_up(7, 5, 5);
    assert_eq!((bench.orders_given().len(), bench.answers()), (0, vec![(7, None)]));
    bench.scale_up(6, 6, 6);
    assert_eq!((bench.orders_given().len(), bench.answers()), (0, vec![(6, Some(RefuseReason::StillRuns))]));
    // Until the pods were handed over, no other change is made.
    bench.scale_up(8, 6, 6);
    assert_eq!((bench.orders_given().len(), bench.answers()), (0, vec![(8, Some(RefuseReason::StillRuns))]));
    bench.exchange(Some(Command::ScaleDown { uid: JOB, fence: fence(1), size: size(4) }));
    assert_eq!(bench.orders_given().len(), 0);
    bench.restart();
    assert_eq!(bench.orders_given(), ["up 1: 5 positions, 5 pods"], "the next session orders it again");
    let reported = bench
        .agent
        .compose(at(bench.now), Lane::News)
        .inventory
        .map(|inventory| inventory.runs[0].scale_up.as_ref().map(|scale_up| scale_up.number.0));
    bench.nodes(fleet());
    bench.exchange(None);
    assert!(reported.is_none_or(|number| number == Some(7)));
    bench.confirm(1, 1);
    assert!(!bench.agent.is_scaling_up(JOB));
    assert_eq!(bench.orders_given(), ["down 4"], "the size that was ordered meanwhile");
    assert_eq!(
        bench.reported().last().map(|placed| (placed.revision, placed.pod_sets[0].pods())),
        Some((1, 5))
    );
    bench.confirm(1, 1);
    assert_eq!((bench.orders_given().len(), bench.reported().len()), (0, 0));
    let (uid, fence) = (JOB, fence(1));
    bench.apply(Input::Runner(RunnerEvent::Ended {
        uid,
        fence,
        result: EndResult::Succeeded,
        pod_failures: 0,
        ran: Millis(5),
    }));
    assert_eq!(bench.free(), 24);
}

#[test]
fn a_refused_scale_up_stays_refused() {
    let mut bench = Bench::new();
    bench.run(1, plain(4));
    bench.run(2, plain(18));
    assert_eq!(bench.free(), 2);
    bench.scale_up(7, 7, 7);
    assert_eq!(
        (bench.orders_given().len(), bench.answers(), bench.free()),
        (0, vec![(7, Some(RefuseReason::NoCapacity))], 2)
    );
    // Resources that are freed later change no answer, because the manager has released the charge.
    let (uid, fence) = (Uid(2), fence(2));
    bench.apply(Input::Runner(RunnerEvent::Ended {
        uid,
        fence,
        result: EndResult::Succeeded,
        pod_failures: 0,
        ran: Millis(5),
    }));
    bench.scale_up(7, 7, 7);
    assert_eq!(
        (bench.orders_given().len(), bench.answers(), bench.free()),
        (0, vec![(7, Some(RefuseReason::NoCapacity))], 20)
    );
    bench.scale_up(8, 7, 7);
    assert_eq!(
        (bench.orders_given(), bench.answers(), bench.free()),
        (vec!["up 1: 7 positions, 7 pods".to_owned()], vec![(8, None)], 17)
    );
    bench.confirm(1, 1);
    // Positions and size must be those that the manager knows.
    for (places, pods) in [(6, 8), (8, 9), (7, 8)] {
        bench.scale_up(u64::from(10 + places * 10 + pods), places, pods);
        assert_eq!(bench.orders_given().len(), 0, "{places} {pods}");
        assert!(matches!(
            bench.answers().as_slice(),
            [(_, Some(RefuseReason::Unsupported | RefuseReason::StillRuns))]
        ));
    }
}

#[test]
fn a_scale_up_stays_within_the_domain() {
    let mut bench = Bench::new();
    bench.run(1, near(6, "rack"));
    assert_eq!(bench.places(1), "b0-r0-h0=4 b0-r0-h1=2");
    bench.scale_up(7, 11, 11);
    assert_eq!(
        (bench.orders_given(), bench.answers()),
        (vec!["up 1: 11 positions, 11 pods".to_owned()], vec![(7, None)])
    );
    assert_eq!(bench.places(1), "b0-r0-h0=4 b0-r0-h1=3 b0-r0-h2=4");
    bench.confirm(1, 1);
    bench.scale_up(8, 13, 13);
    assert_eq!(
        (bench.orders_given().len(), bench.answers()),
        (0, vec![(8, Some(RefuseReason::NoCapacity))]),
        "the pods would fit the other rack"
    );
    bench.scale_up(9, 12, 12);
    assert_eq!(bench.answers(), [(9, None)]);
}

#[test]
fn a_scale_up_follows_a_scale_down_and_precedes_a_move() {
    let mut bench = Bench::new();
    bench.run(1, plain(4));
    bench.exchange(Some(Command::ScaleDown { uid: JOB, fence: fence(1), size: size(2) }));
    bench.succeed(1, &[2, 3]);
    bench.orders_given();
    bench.scale_up(7, 5, 3);
    assert_eq!(
        (bench.orders_given(), bench.answers(), bench.free()),
        (vec!["up 1: 5 positions, 3 pods".to_owned()], vec![(7, None)], 21)
    );
    let indexes: Vec<u32> = bench.agent.ledger().placement(offer(1)).iter().map(|pod| pod.index).collect();
    assert_eq!(indexes, [0, 1, 2, 3, 4]);
    // A node that is lost before the pods were handed over is handled afterwards.
    bench.nodes(without(&["b0-r0-h0"]));
    assert_eq!(bench.orders_given().len(), 0);
    bench.confirm(1, 1);
    assert_eq!(bench.orders_given(), ["move 2"]);
    bench.scale_up(8, 6, 4);
    assert_eq!(bench.answers(), [(8, Some(RefuseReason::StillRuns))], "while pods move");
    bench.confirm(1, 2);
    bench.scale_up(9, 6, 4);
    assert_eq!(
        (bench.orders_given(), bench.answers()),
        (vec!["up 3: 6 positions, 4 pods".to_owned()], vec![(9, None)])
    );
    bench.exchange(Some(Command::Stop { uid: JOB, fence: fence(1), reason: StopReason::Evicted }));
    bench.scale_up(10, 7, 5);
    assert_eq!(
        (bench.orders_given(), bench.answers()),
        (vec!["stop".to_owned()], vec![]),
        "a stopping run is not scaled up"
    );
}

#[test]
fn a_scale_up_older_than_a_refused_one_is_refused_and_the_latest_refusal_is_kept() {
    let mut bench = Bench::new();
    bench.run(1, plain(4));
    bench.scale_up(8, 30, 30);
    assert_eq!(bench.answers(), [(8, Some(RefuseReason::NoCapacity))]);
    bench.scale_up(7, 5, 5);
    assert_eq!(bench.answers(), [(7, Some(RefuseReason::StillRuns))], "the manager knows of the later one");
    bench.scale_up(8, 30, 30);
    assert_eq!(bench.answers(), [(8, Some(RefuseReason::NoCapacity))], "the same answer");
    bench.scale_up(9, 31, 31);
    bench.answers();
    bench.nodes(fleet().into_iter().chain([node("b0-r2-h0"), node("b0-r2-h1")]).collect());
    bench.scale_up(9, 31, 31);
    assert_eq!(bench.answers(), [(9, Some(RefuseReason::NoCapacity))], "though it fits now");
    bench.scale_up(10, 5, 5);
    assert_eq!(bench.answers(), [(10, None)]);
    // A refusal older than what was done is not remembered: the latest number answers it.
    bench.scale_up(9, 31, 31);
    bench.scale_up(5, 6, 6);
    bench.restart();
    bench.nodes(fleet());
    bench.scale_up(10, 5, 5);
    assert_eq!(bench.answers(), [(10, None)]);
}

#[test]
fn no_scale_up_begins_while_pods_move() {
    let mut bench = Bench::new();
    bench.run(1, plain(4));
    bench.nodes(without(&["b0-r0-h0"]));
    assert_eq!(bench.orders_given(), ["move 1"]);
    bench.scale_up(7, 5, 5);
    assert_eq!(bench.answers(), [(7, Some(RefuseReason::StillRuns))]);
    bench.confirm(1, 1);
    bench.scale_up(8, 5, 5);
    assert_eq!(
        (bench.orders_given(), bench.answers()),
        (vec!["up 2: 5 positions, 5 pods".to_owned()], vec![(8, None)])
    );
}

#[test]
fn scale_ups_of_one_attempt_are_bounded() {
    let mut bench = Bench::new();
    bench.run(1, plain(1));
    bench.scale_up(1, 2, 2);
    bench.confirm(1, 1);
    // As if it were one less than the most.
    let stored = bench.store.get_mut("run/00000000-0000-0000-0000-000000000001").expect("it runs");
    let mut run: serde_json::Value = serde_json::from_str(stored).unwrap();
    assert_eq!(run["record"]["scale_ups"]["count"].take(), 1);
    run["record"]["scale_ups"]["count"] = 1_023.into();
    *stored = run.to_string();
    bench.restart();
    bench.nodes(fleet());
    bench.scale_up(2, 3, 3);
    assert_eq!(bench.answers(), [(2, None)]);
    bench.confirm(1, 2);
    bench.scale_up(3, 4, 4);
    assert_eq!(bench.answers(), [(3, Some(RefuseReason::Unsupported))]);
}
