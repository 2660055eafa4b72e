//! What the shell reads of an agent.

use super::*;
use meridian_agent_core::runtime::NEVER;
use meridian_agent_core::{RunnerEvent, Start};
use meridian_shared::lease::stop_budget;

#[test]
fn the_shell_sees_whether_anything_waits_to_be_sent() {
    let mut bench = Bench::new();
    let request = bench.ask();
    bench.answer(&request, Vec::new());
    let request = bench.ask();
    bench.answer(&request, Vec::new());
    assert!(!bench.agent.has_news());
    let before = bench.agent.events_last();
    bench.offer();
    assert!(bench.agent.has_news(), "the hold");
    assert_eq!(bench.agent.events_last(), before + 1);
    let request = bench.ask();
    let mut response = bench.response(&request, Vec::new());
    response.want_inventory = true;
    bench.deliver(response);
    assert!(bench.agent.has_news(), "the inventory");
}

#[test]
fn the_shell_sees_usage_that_waits_to_be_sent() {
    let mut bench = Bench::new();
    bench.running();
    for _ in 0..2 {
        let request = bench.ask();
        bench.answer(&request, Vec::new());
    }
    assert!(!bench.agent.has_news());
    bench.runner(RunnerEvent::PodsFailed { uid: UID, fence: FENCE, failures: 1 });
    assert!(bench.agent.has_news());
}

#[test]
fn the_shell_sees_the_commands_that_were_done_and_those_that_wait_for_their_turn() {
    let mut bench = Bench::new();
    assert_eq!(bench.agent.commands_done(), (0, false));
    bench.offer();
    assert_eq!(bench.agent.commands_done(), (1, false));
    let request = bench.ask();
    let mut response = bench.response(&request, vec![grant()]);
    response.commands_from = 3;
    bench.deliver(response);
    assert_eq!(bench.agent.commands_done(), (1, true));
}

#[test]
fn the_shell_sees_how_long_a_poll_may_be_parked() {
    let mut bench = Bench::new();
    let request = bench.ask();
    let mut response = bench.response(&request, Vec::new());
    response.poll = Millis(4_321);
    bench.deliver(response);
    assert_eq!(bench.agent.poll(), Millis(4_321));
}

#[test]
fn the_shell_sees_the_time_until_the_first_gang_must_stop() {
    let mut bench = Bench::new();
    assert_eq!(bench.agent.lease_left(bench.now), None);
    bench.run();
    let whole = Millis(TERM.0 - stop_budget(TERM).0);
    assert_eq!(bench.agent.lease_left(bench.now), Some(whole));
    bench.pass(MINUTE);
    assert_eq!(bench.agent.lease_left(bench.now), Some(Millis(whole.0 - MINUTE)));
}

#[test]
fn the_shell_gets_writes_and_effects_of_a_turn() {
    let mut bench = Bench::new();
    bench.offer();
    let request = bench.ask();
    let response = bench.response(&request, vec![grant()]);
    let out = bench.agent.apply(bench.now, Input::Answer(Box::new(SyncAnswer::Ok(Box::new(response)))));
    assert!(out.store().iter().any(|op| op.key.starts_with("run/")));
    let start = out.effects().iter().find_map(|effect| match effect {
        Effect::Start(start) => Some((**start).clone()),
        _ => None,
    });
    let start = start.expect("it starts");
    assert_eq!(Some(start.lapses()), start.deadline);
    assert_eq!(Start { deadline: None, ..start }.lapses(), NEVER);
    let effects = out.effects().to_vec();
    assert_eq!(out.clone().into_effects(), effects);
    assert_eq!(out.clone().into_parts(), (out.store().to_vec(), effects));
    bench.take(out);
}

#[test]
fn the_shell_sees_how_many_nodes_a_report_leaves_out() {
    let mut bench = Bench::new();
    let labelled = |number: usize| NodeSpec {
        name: format!("n{number}"),
        labels: BTreeMap::from([("asset".into(), format!("{number:0400}"))]),
        ..NodeSpec::default()
    };
    assert_eq!(bench.agent.unreported_nodes(), 0);
    bench.apply(Input::Nodes { nodes: (0..3_000).map(labelled).collect(), pools: Vec::new() });
    let report = bench.ask().capacity.expect("it is the first");
    assert!(bench.agent.unreported_nodes() > 1);
    assert_eq!(report.blocks.len() + bench.agent.unreported_nodes() as usize, 3_000);
}

#[test]
fn each_start_is_a_new_session() {
    let mut bench = Bench::new();
    for counter in 1..=3 {
        assert_eq!((bench.agent.session().counter, bench.stored().sessions()), (counter, counter));
        bench.restart_without_gang();
    }
}

#[test]
fn only_a_poll_that_reports_nothing_may_be_parked() {
    let mut bench = Bench::new();
    let poll = |bench: &mut Bench| bench.agent.compose(bench.now, Lane::Poll);
    assert!(!poll(&mut bench).may_wait(), "it has the capacity and the inventory");
    let request = bench.ask();
    let mut response = bench.response(&request, Vec::new());
    response.capacity_acknowledged = request.capacity.as_ref().map_or(0, |capacity| capacity.version);
    bench.deliver(response);
    let quiet = poll(&mut bench);
    assert!(quiet.may_wait() && !bench.ask().may_wait());
    let full = bench.ask();
    assert!(!SyncRequest { capacity: request.capacity, ..quiet.clone() }.may_wait());
    assert!(!SyncRequest { inventory: Some(Default::default()), ..quiet.clone() }.may_wait());
    bench.running();
    let events = bench.ask().events;
    assert!(full.events.is_empty() && !SyncRequest { events, ..quiet.clone() }.may_wait());
    bench.runner(RunnerEvent::PodsFailed { uid: UID, fence: FENCE, failures: 1 });
    assert!(!SyncRequest { spare: bench.ask().spare, ..quiet }.may_wait());
}
