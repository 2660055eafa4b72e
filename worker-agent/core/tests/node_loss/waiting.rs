//! Pods of a lost node that wait for a new node.

use super::*;

#[test]
fn a_waiting_gang_takes_the_first_fitting_node() {
    let mut neighbour = plain(4);
    neighbour.pod_sets[0].node_selector.insert(HOST.into(), "b0-r0-h2".into());
    for fits in [Fits::AnotherGangEnds, Fits::ANodeComes, Fits::TheNodeIsBack] {
        let mut bench = Bench::waiting(WAIT);
        bench.run(1, near(6, "rack"));
        bench.run(4, neighbour.clone());
        bench.reported();
        let before = bench.places(1);
        assert_eq!((before.as_str(), bench.places(4).as_str()), ("b0-r0-h0=4 b0-r0-h1=2", "b0-r0-h2=4"));
        bench.nodes(without(&["b0-r0-h0"]));
        assert_eq!(bench.moved(1), None, "two more pods fit, and four are lost");
        let placements = bench.reported();
        assert_eq!(
            (placements.len(), placements[0].revision, placements[0].unhealthy.as_slice()),
            (1, 1, ["b0-r0-h0".to_owned()].as_slice())
        );
        bench.apply(Input::Tick);
        assert_eq!(
            (bench.moved(1), bench.reported(), bench.places(1)),
            (None, Vec::new(), before.clone()),
            "nothing new is reported"
        );
        match fits {
            Fits::AnotherGangEnds => {
                bench.apply(Input::Runner(RunnerEvent::Ended {
                    uid: Uid(4),
                    fence: fence(4),
                    result: EndResult::Succeeded,
                    pod_failures: 0,
                    ran: Millis(5),
                }));
            }
            Fits::ANodeComes => {
                bench.nodes(without(&["b0-r0-h0"]).into_iter().chain([node("b0-r0-h3")]).collect())
            }
            Fits::TheNodeIsBack => {
                bench.nodes(fleet());
                assert_eq!((bench.moved(1), bench.places(1)), (None, before));
                let placements = bench.reported();
                assert_eq!(
                    (placements.len(), placements[0].revision, placements[0].unhealthy.len()),
                    (1, 2, 0)
                );
                continue;
            }
        }
        assert_eq!(bench.moved(1).unwrap().0, 1);
        assert!(!bench.places(1).contains("b0-r0-h0"));
        bench.events.clear();
        bench.confirm(1, 1);
        let placements = bench.reported();
        assert_eq!((placements.len(), placements[0].revision, placements[0].unhealthy.len()), (1, 2, 0));
    }
}

enum Fits {
    AnotherGangEnds,
    ANodeComes,
    TheNodeIsBack,
}

#[test]
fn a_wait_ends_at_its_limit() {
    let mut bench = Bench::waiting(WAIT);
    bench.run(1, plain(24));
    let begun = bench.now;
    bench.nodes(without(&["b0-r0-h0"]));
    assert_eq!(bench.moved(1), None);
    let due = bench.agent.next_deadline().unwrap();
    assert_eq!(due, Mono(begun + 10) + WAIT, "before any lease ends");
    while bench.now + 10 < due.0 {
        bench.apply(Input::Tick);
        assert_eq!(bench.moved(1), None);
    }
    bench.apply(Input::Tick);
    assert!(bench.agent.is_stranded(Uid(1), fence(1)));
    assert!(lost(bench.ends(1)).contains("fit nowhere else"));
    assert_eq!(bench.agent.next_deadline(), None);
}

#[test]
fn a_second_loss_or_a_stop_ends_the_wait() {
    let mut bench = Bench::waiting(WAIT);
    bench.run(1, near(10, "rack"));
    bench.nodes(without(&["b0-r0-h2"]));
    assert_eq!(bench.moved(1), None);
    bench.nodes(without(&["b0-r0-h2", "b0-r0-h1"]));
    assert!(lost(bench.ends(1)).contains("one node at a time"));

    let mut bench = Bench::waiting(WAIT);
    bench.run(1, plain(24));
    bench.nodes(without(&["b0-r0-h2"]));
    bench.nodes(without(&["b0-r0-h2", "b0-r0-h1"]));
    assert_eq!(bench.moved(1), None);
    assert_eq!(bench.reported().last().unwrap().unhealthy, ["b0-r0-h1", "b0-r0-h2"]);
    bench.exchange(Some(Command::Stop { uid: Uid(1), fence: fence(1), reason: StopReason::Cancelled }));
    assert_eq!(bench.ends(1), EndResult::Stopped);
}

#[test]
fn a_restarted_agent_reports_that_the_node_is_back() {
    let mut bench = Bench::waiting(WAIT);
    bench.run(1, plain(24));
    bench.nodes(unready(&["b0-r0-h0"]));
    bench.restart();
    assert_eq!(bench.agent.runs().count(), 1);
    bench.nodes(unready(&["b0-r0-h0"]));
    assert_eq!(bench.moved(1), None);
    assert_eq!(bench.reported().last().unwrap().unhealthy, ["b0-r0-h0"], "as stored");
    bench.restart();
    bench.nodes(fleet());
    let placements = bench.reported();
    assert_eq!((placements.last().unwrap().unhealthy.len(), placements.last().unwrap().revision), (0, 2));
}

#[test]
fn a_gang_that_may_not_wait_is_stopped_at_once() {
    let mut bench = Bench::waiting(Millis(0));
    bench.run(1, plain(24));
    bench.nodes(without(&["b0-r0-h0"]));
    assert!(bench.agent.is_stranded(Uid(1), fence(1)));
    assert!(lost(bench.ends(1)).contains("fit nowhere else"));
}

#[test]
fn a_wait_goes_on_before_a_restarted_agent_has_seen_its_nodes() {
    let mut bench = Bench::waiting(WAIT);
    bench.run(1, plain(24));
    bench.nodes(unready(&["b0-r0-h0"]));
    let due = bench.agent.next_deadline();
    bench.restart();
    bench.apply(Input::Tick);
    bench.nodes(unready(&["b0-r0-h0"]));
    assert_eq!(bench.agent.next_deadline(), due);
}

#[test]
fn no_wait_ends_before_a_restarted_agent_has_seen_its_nodes() {
    let mut bench = Bench::waiting(WAIT);
    bench.run(1, plain(24));
    bench.nodes(unready(&["b0-r0-h0"]));
    bench.restart();
    bench.now += WAIT.0;
    bench.apply(Input::Tick);
    assert!(!bench.agent.is_stranded(Uid(1), fence(1)), "the node may be back");
    bench.nodes(fleet());
    assert_eq!((bench.moved(1), bench.agent.is_stranded(Uid(1), fence(1))), (None, false));
}
