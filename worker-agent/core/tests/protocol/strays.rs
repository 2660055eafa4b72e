//! Attempts that run without a record here, runs that weren't found, and grants beside either.

use super::*;
use meridian_agent_core::RunnerEvent;
use meridian_shared::indexes::Indexes;
use meridian_shared::protocol::{EndResult, Event, GrantRefusal, RUNS_MAX, RefuseReason, StopReason};

const LATER: Fence = Fence { counter: 2, ..FENCE };

/// A running attempt of `uid` on these nodes.
fn live(uid: Uid, nodes: &[&str]) -> Found {
    let nodes = nodes.iter().map(|node| (*node).to_owned()).collect();
    Found {
        uid,
        fence: FENCE,
        nodes,
        completed: Indexes::default(),
        state: FoundState::Live { running: true },
    }
}

/// The grant of a later attempt in the same offer.
fn later_grant() -> Command {
    let Command::Grant(grant) = grant() else { panic!("it is a grant") };
    Command::Grant(Box::new(Grant { fence: LATER, attempt: 2, ..*grant }))
}

fn stop() -> Command {
    Command::Stop { uid: UID, fence: FENCE, reason: StopReason::Cancelled }
}

fn indexes(all: &[u32]) -> Indexes {
    let mut indexes = Indexes::default();
    all.iter().for_each(|index| indexes.insert(*index));
    indexes
}

impl Bench {
    fn sends(&mut self, command: Command) {
        let request = self.ask();
        self.answer(&request, vec![command]);
    }

    /// Why the newest grant was refused.
    fn refusal_of_grant(&mut self) -> Option<GrantRefusal> {
        match self.ask().events.pop() {
            Some(Event::GrantRefused { why, .. }) => Some(why),
            _ => None,
        }
    }

    fn stray_ends(&mut self) {
        let (result, ran) = (EndResult::Stopped, Millis(0));
        self.runner(RunnerEvent::Ended { uid: UID, fence: FENCE, result, pod_failures: 0, ran });
    }

    fn ends_reported(&mut self) -> usize {
        self.ask().events.iter().filter(|event| matches!(event, Event::Ended(_))).count()
    }

    fn settles(&self) -> bool {
        self.effects.contains(&Effect::Settle { uid: UID, fence: FENCE })
    }
}

#[test]
fn a_grant_beside_a_running_attempt_is_refused_and_changes_nothing() {
    let mut bench = Bench::new();
    bench.running();
    bench.sends(later_grant());
    assert_eq!(bench.refusal_of_grant(), Some(GrantRefusal::StillRuns { fence: FENCE }));
    assert_eq!(bench.agent.durable().fence_of(UID), Some(FENCE));
    assert!(bench.agent.ledger().is_allocated(OFFER) && !bench.stops());
}

#[test]
fn a_grant_without_its_hold_is_refused_for_good() {
    let mut bench = Bench::new();
    bench.sends(grant());
    assert_eq!(bench.refusal_of_grant(), Some(GrantRefusal::NoHold));
    assert_eq!(bench.agent.durable().fence_of(UID), Some(FENCE), "a copy that comes late is stale");
}

#[test]
fn a_refused_grant_frees_its_hold() {
    let mut bench = Bench::new();
    bench.sends(grant());
    bench.offer();
    assert!(bench.agent.ledger().is_allocated(OFFER));
    let Command::Grant(stale) = grant() else { panic!("it is a grant") };
    bench.sends(Command::Grant(Box::new(Grant { fence: Fence { counter: 0, ..FENCE }, ..*stale })));
    assert_eq!(bench.refusal_of_grant(), Some(GrantRefusal::StaleFence { known: FENCE }));
    assert!(!bench.agent.ledger().is_allocated(OFFER));
}

#[test]
fn a_grant_beside_a_stray_of_its_workload_is_refused() {
    for (stray, refused) in [(UID, true), (Uid(2), false)] {
        let mut bench = Bench::new();
        bench.restart_with(vec![live(stray, &["elsewhere"])]);
        bench.offer();
        bench.sends(later_grant());
        let why = Some(GrantRefusal::StillRuns { fence: FENCE }).filter(|_| refused);
        assert_eq!((bench.refusal_of_grant(), bench.starts()), (why, !refused));
    }
}

#[test]
fn the_nodes_of_a_stray_are_closed_until_it_has_ended() {
    let mut bench = Bench::new();
    bench.restart_with(vec![live(UID, &["n"])]);
    assert!(bench.stops(), "its lease is unknown");
    let other = Uid(2);
    let Command::Offer(asked) = offer() else { panic!("it is an offer") };
    let asked = |counter| {
        Command::Offer(Box::new(Offer {
            offer: OfferId { counter, ..OFFER },
            uid: other,
            ..(*asked).clone()
        }))
    };
    bench.sends(asked(1));
    let refused = |event: &Event| matches!(event, Event::Refused { reason: RefuseReason::NoCapacity, .. });
    assert!(bench.ask().events.iter().any(refused));
    bench.stray_ends();
    bench.sends(asked(2));
    assert!(bench.ask().events.iter().any(|event| matches!(event, Event::Held { .. })));
}

#[test]
fn the_end_of_a_stray_is_reported_if_its_stop_was_asked_for() {
    let mut bench = Bench::new();
    bench.restart_with(vec![live(UID, &[])]);
    bench.stray_ends();
    assert_eq!(bench.ends_reported(), 0, "the manager didn't ask");

    let mut bench = Bench::new();
    bench.sends(stop());
    assert!(bench.stops() && bench.agent.durable().tombstones().contains_key(&(UID, FENCE)));
    assert_eq!(bench.ends_reported(), 0, "not before the runner has seen that nothing runs");
    bench.sends(stop());
    assert_eq!(bench.ends_reported(), 0, "nor for a repeated stop");
    bench.stray_ends();
    assert_eq!((bench.ends_reported(), bench.settles()), (1, false));
    bench.acknowledge_end(5);
    assert!(bench.settles());
}

#[test]
fn a_stray_with_an_acknowledged_end_settles() {
    let mut bench = Bench::new();
    bench.ended();
    bench.acknowledge_end(5);
    bench.restart_with(vec![live(UID, &[])]);
    bench.effects.clear();
    bench.stray_ends();
    assert!(bench.settles());
}

#[test]
fn a_run_that_was_not_found_never_starts_again_and_its_end_is_reported() {
    let mut bench = Bench::new();
    bench.running();
    bench.effects.clear();
    bench.restart_without_gang();
    assert!(bench.stops() && !bench.starts());
    bench.stray_ends();
    let end = bench.ask().events.pop();
    let Some(Event::Ended(end)) = end else { panic!("{end:?}") };
    let message = "the run was not found after a restart of the agent".into();
    assert_eq!(end.result, EndResult::NodeLost { message });
}

#[test]
fn after_a_reboot_only_a_gang_that_waits_for_its_cluster_continues() {
    for (on_loss, stops) in [(OnLoss::Fence, true), (OnLoss::Wait, false)] {
        let mut bench = Bench::new();
        bench.offer();
        let Command::Grant(grant) = grant() else { panic!("it is a grant") };
        bench.sends(Command::Grant(Box::new(Grant { on_loss, ..*grant })));
        bench.effects.clear();
        bench.boot = 2;
        bench.restart_with(vec![live(UID, &["n"])]);
        assert_eq!(bench.stops(), stops, "{on_loss:?}");
    }
}

#[test]
fn an_agent_continues_after_its_last_gang() {
    let mut bench = Bench::new();
    bench.ended();
    assert!(!bench.effects.contains(&Effect::Superseded));
}

#[test]
fn a_fence_of_a_twin_leadership_is_stale_and_one_of_a_later_epoch_is_not() {
    let twin = Fence { leadership: 9, counter: 5, ..FENCE };
    let later = Fence { epoch: 2, leadership: 9, counter: 1 };
    for (fence, starts) in [(twin, false), (later, true)] {
        let mut bench = Bench::new();
        bench.ended();
        bench.effects.clear();
        let id = OfferId { counter: 2, ..OFFER };
        let (Command::Offer(asked), Command::Grant(grant)) = (offer(), grant()) else { panic!("both") };
        bench.sends(Command::Offer(Box::new(Offer { offer: id, ..*asked })));
        bench.sends(Command::Grant(Box::new(Grant { offer: id, fence, ..*grant })));
        let why = (!starts).then_some(GrantRefusal::StaleFence { known: FENCE });
        assert_eq!((bench.refusal_of_grant(), bench.starts()), (why, starts), "{fence}");
    }
}

#[test]
fn a_refused_grant_keeps_what_earlier_attempts_did() {
    let mut bench = Bench::new();
    let completed = indexes(&[0, 2]);
    let Command::Grant(grant) = grant() else { panic!("it is a grant") };
    let grant = Grant { pod_failures: 3, completed: completed.clone(), ..*grant };
    bench.sends(Command::Grant(Box::new(grant)));
    let end = &bench.agent.durable().tombstones()[&(UID, FENCE)].end;
    assert_eq!((end.pod_failures, &end.completed), (3, &completed));
}

#[test]
fn completed_indexes_are_reported_once() {
    let mut bench = Bench::new();
    bench.running();
    let indexes = indexes(&[1]);
    for reported in [Some(indexes.clone()), None] {
        let request = bench.ask();
        bench.answer(&request, Vec::new());
        bench.runner(RunnerEvent::Completed { uid: UID, fence: FENCE, indexes: indexes.clone() });
        let request = bench.ask();
        assert_eq!(request.spare.first().map(|report| report.completed.clone()), reported);
        bench.answer(&request, Vec::new());
    }
}

#[test]
fn gangs_that_run_count_against_the_most_that_an_agent_reports() {
    let mut bench = Bench::new();
    bench.run();
    let (key, record) = bench.store.iter().find(|(key, _)| key.starts_with("run/")).unwrap();
    let (key, record) = (key.replace(&UID.to_string(), "{uid}"), record.clone());
    let refusal = |bench: &mut Bench, runs: u128| {
        for number in 2..=runs {
            bench.store.insert(key.replace("{uid}", &Uid(number).to_string()), record.clone());
        }
        bench.restart_with((1..=runs).map(|number| live(Uid(number), &[])).collect());
        assert_eq!(bench.agent.runs().count() as u128, runs);
        let Command::Offer(mut asked) = offer() else { unreachable!("it is an offer") };
        (asked.uid, asked.offer.counter) = (Uid(runs + 1), 2);
        let request = bench.ask();
        bench.answer(&request, vec![Command::Offer(asked)]);
        bench.ask().events.into_iter().find_map(|event| match event {
            Event::Refused { offer, reason, text, .. } if offer.counter == 2 => Some((reason, text)),
            _ => None,
        })
    };
    let most = RUNS_MAX as u128;
    assert_eq!(refusal(&mut bench, most - 1), None, "one more fits");
    let (reason, text) = refusal(&mut bench, most).unwrap();
    assert_eq!(reason, RefuseReason::Overloaded);
    assert!(text.contains("8192 gangs"), "{text}");
}
