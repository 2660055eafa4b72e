//! Gangs that grow: all that is added has room, or nothing is.

use super::*;
use meridian_shared::protocol::{Growth, RefuseReason};

const JOB: Uid = Uid(1);

fn size(pods: u32) -> Size {
    Size { parallelism: pods, completions: Some(pods) }
}

fn growth(number: u64, places: u32, pods: u32) -> Growth {
    Growth { number: RecordNumber(number), places: vec![places], size: size(pods), mac: None }
}

impl Bench {
    fn grow(&mut self, number: u64, places: u32, pods: u32) {
        self.events.clear();
        self.exchange(Some(Command::Grow {
            uid: JOB,
            fence: fence(1),
            growth: Box::new(growth(number, places, pods)),
        }));
        self.exchange(None);
    }

    /// What was answered since: the number, and why not.
    fn answer(&mut self) -> Vec<(u64, Option<RefuseReason>)> {
        let answer = |event| match event {
            Event::Grown { number, .. } => Some((number.0, None)),
            Event::NotGrown { number, reason, .. } => Some((number.0, Some(reason))),
            _ => None,
        };
        std::mem::take(&mut self.events).into_iter().filter_map(answer).collect()
    }

    /// What the runner was told since.
    fn grow_orders(&mut self) -> Vec<String> {
        let order = |effect| match effect {
            Effect::Grow { number, placement, size, .. } => {
                Some(format!("grow {number}: {} places, {} pods", placement.len(), size.parallelism))
            }
            Effect::Shrink { size, .. } => Some(format!("shrink {}", size.parallelism)),
            Effect::Move { number, .. } => Some(format!("move {number}")),
            Effect::Stop { .. } => Some("stop".to_owned()),
            _ => None,
        };
        std::mem::take(&mut self.effects).into_iter().filter_map(order).collect()
    }
}

#[test]
fn what_is_added_has_room_durably_before_it_starts_and_is_told_once_it_does() {
    let mut bench = Bench::new();
    bench.run(1, plain(3));
    bench.grow(7, 5, 5);
    assert_eq!(
        (bench.grow_orders(), bench.answer(), bench.free()),
        (vec!["grow 1: 5 places, 5 pods".to_owned()], vec![(7, None)], 19)
    );
    assert!(bench.store["run/00000000-0000-0000-0000-000000000001"].contains("\"number\":7"));
    // The same again changes nothing and is answered the same; what is older isn't done.
    bench.grow(7, 5, 5);
    assert_eq!((bench.grow_orders().len(), bench.answer()), (0, vec![(7, None)]));
    bench.grow(6, 6, 6);
    assert_eq!((bench.grow_orders().len(), bench.answer()), (0, vec![(6, Some(RefuseReason::StillRuns))]));
    // Until it was handed over nothing else of it changes.
    bench.grow(8, 6, 6);
    assert_eq!((bench.grow_orders().len(), bench.answer()), (0, vec![(8, Some(RefuseReason::StillRuns))]));
    bench.exchange(Some(Command::Shrink { uid: JOB, fence: fence(1), size: size(4) }));
    assert_eq!(bench.grow_orders().len(), 0);
    bench.restart();
    assert_eq!(bench.grow_orders(), ["grow 1: 5 places, 5 pods"], "the next session orders it again");
    let shown = bench
        .agent
        .compose(at(bench.now), Lane::News)
        .inventory
        .map(|inventory| inventory.runs[0].grown.as_ref().map(|grown| grown.number.0));
    bench.nodes(fleet());
    bench.exchange(None);
    assert!(shown.is_none_or(|shown| shown == Some(7)));
    bench.confirm(1, 1);
    assert_eq!(bench.grow_orders(), ["shrink 4"], "what was said meanwhile");
    assert_eq!(bench.told().last().map(|told| (told.revision, told.pod_sets[0].pods())), Some((1, 5)));
    bench.confirm(1, 1);
    assert_eq!((bench.grow_orders().len(), bench.told().len()), (0, 0));
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
fn all_of_it_or_nothing_and_a_no_stays_a_no() {
    let mut bench = Bench::new();
    bench.run(1, plain(4));
    bench.run(2, plain(18));
    assert_eq!(bench.free(), 2);
    bench.grow(7, 7, 7);
    assert_eq!(
        (bench.grow_orders().len(), bench.answer(), bench.free()),
        (0, vec![(7, Some(RefuseReason::NoRoom))], 2)
    );
    // Room that comes free later changes no answer: the manager has given back what it was for.
    let (uid, fence) = (Uid(2), fence(2));
    bench.apply(Input::Runner(RunnerEvent::Ended {
        uid,
        fence,
        result: EndResult::Succeeded,
        pod_failures: 0,
        ran: Millis(5),
    }));
    bench.grow(7, 7, 7);
    assert_eq!(
        (bench.grow_orders().len(), bench.answer(), bench.free()),
        (0, vec![(7, Some(RefuseReason::NoRoom))], 20)
    );
    bench.grow(8, 7, 7);
    assert_eq!(
        (bench.grow_orders(), bench.answer(), bench.free()),
        (vec!["grow 1: 7 places, 7 pods".to_owned()], vec![(8, None)], 17)
    );
    bench.confirm(1, 1);
    // The places that were given must be those that the manager knows, and so must the size.
    for (places, pods) in [(6, 8), (8, 9), (7, 8)] {
        bench.grow(u64::from(10 + places * 10 + pods), places, pods);
        assert_eq!(bench.grow_orders().len(), 0, "{places} {pods}");
        assert!(matches!(
            bench.answer().as_slice(),
            [(_, Some(RefuseReason::Unsupported | RefuseReason::StillRuns))]
        ));
    }
}

#[test]
fn near_each_other_it_grows_within_its_domain_or_not() {
    let mut bench = Bench::new();
    bench.run(1, near(6, "rack"));
    assert_eq!(bench.places(1), "b0-r0-h0=4 b0-r0-h1=2");
    bench.grow(7, 11, 11);
    assert_eq!(
        (bench.grow_orders(), bench.answer()),
        (vec!["grow 1: 11 places, 11 pods".to_owned()], vec![(7, None)])
    );
    assert_eq!(bench.places(1), "b0-r0-h0=4 b0-r0-h1=3 b0-r0-h2=4");
    bench.confirm(1, 1);
    bench.grow(8, 13, 13);
    assert_eq!(
        (bench.grow_orders().len(), bench.answer()),
        (0, vec![(8, Some(RefuseReason::NoRoom))]),
        "there is room in the other rack"
    );
    bench.grow(9, 12, 12);
    assert_eq!(bench.answer(), [(9, None)]);
}

#[test]
fn what_was_given_up_is_not_taken_again_and_lost_nodes_are_left_afterwards() {
    let mut bench = Bench::new();
    bench.run(1, plain(4));
    bench.exchange(Some(Command::Shrink { uid: JOB, fence: fence(1), size: size(2) }));
    bench.succeed(1, &[2, 3]);
    bench.grow_orders();
    bench.grow(7, 5, 3);
    assert_eq!(
        (bench.grow_orders(), bench.answer(), bench.free()),
        (vec!["grow 1: 5 places, 3 pods".to_owned()], vec![(7, None)], 21)
    );
    let indexes: Vec<u32> = bench.agent.ledger().placement(offer(1)).iter().map(|pod| pod.index).collect();
    assert_eq!(indexes, [0, 1, 2, 3, 4]);
    // A node that goes before it was handed over is left after that.
    bench.nodes(without(&["b0-r0-h0"]));
    assert_eq!(bench.grow_orders().len(), 0);
    bench.confirm(1, 1);
    assert_eq!(bench.grow_orders(), ["move 2"]);
    bench.grow(8, 6, 4);
    assert_eq!(bench.answer(), [(8, Some(RefuseReason::StillRuns))], "while it moves");
    bench.confirm(1, 2);
    bench.grow(9, 6, 4);
    assert_eq!(
        (bench.grow_orders(), bench.answer()),
        (vec!["grow 3: 6 places, 4 pods".to_owned()], vec![(9, None)])
    );
    bench.exchange(Some(Command::Stop { uid: JOB, fence: fence(1), reason: StopReason::Evicted }));
    bench.grow(10, 7, 5);
    assert_eq!(
        (bench.grow_orders(), bench.answer()),
        (vec!["stop".to_owned()], vec![]),
        "who is being stopped doesn't grow"
    );
}
