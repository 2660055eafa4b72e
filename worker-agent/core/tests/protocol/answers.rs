//! Which answers count, and what each part of an answer does.

use super::*;
use meridian_agent_core::{RunnerEvent, TOMBSTONE_KEPT};
use meridian_shared::ids::Session;
use meridian_shared::protocol::{Digest, Event, RefuseReason, SyncRefusal};

const OLDER: Leadership = Leadership { epoch: 0, id: 6 };
const TWIN: Leadership = Leadership { id: 9, ..LEADERSHIP };
const NEWER: Leadership = Leadership { epoch: 2, id: 8 };

impl Bench {
    fn refuse(&mut self, why: SyncRefusal) {
        self.apply(Input::Answer(Box::new(SyncAnswer::Refused(why))));
    }

    /// Delivers an answer with an offer that was changed like this. Returns whether it counted.
    fn takes(&mut self, change: impl FnOnce(&mut SyncResponse)) -> bool {
        let request = self.ask();
        let before = self.commands;
        let mut response = self.response(&request, vec![offer()]);
        change(&mut response);
        self.deliver(response);
        self.commands = before;
        self.ask().events.iter().any(|event| matches!(event, Event::Held { .. }))
    }

    fn renew_by(&mut self, request: &SyncRequest) {
        let mut response = self.response(request, Vec::new());
        response.renewals = vec![(UID, FENCE)];
        self.deliver(response);
    }

    fn renewals(&self) -> Vec<Mono> {
        let renewed = |effect: &Effect| match effect {
            Effect::Renew { deadline, .. } => Some(*deadline),
            _ => None,
        };
        self.effects.iter().filter_map(renewed).collect()
    }

    fn stops_ordered(&self) -> usize {
        self.effects.iter().filter(|effect| **effect == Effect::Stop { uid: UID, fence: FENCE }).count()
    }

    fn exits(&self) -> bool {
        self.effects.contains(&Effect::Superseded)
    }
}

#[test]
fn an_answer_counts_for_a_transmission_of_its_session_in_the_spoken_version() {
    assert!(Bench::new().takes(|_| ()));
    assert!(!Bench::new().takes(|response| response.version = VERSION + 1));
    assert!(!Bench::new().takes(|response| response.session.id += 1));
    assert!(!Bench::new().takes(|response| response.transmission = 99), "it was never sent");
}

#[test]
fn only_a_newer_leadership_is_followed() {
    let mut bench = Bench::new();
    let request = bench.ask();
    bench.answer(&request, Vec::new());
    bench.commands = 0;
    for leadership in [OLDER, TWIN] {
        assert!(!bench.takes(|response| response.leadership = leadership));
        assert_eq!(bench.agent.durable().follows(), Some(LEADERSHIP));
        assert!(bench.ask().inventory.is_none());
    }
    let request = bench.ask();
    let mut response = bench.response(&request, Vec::new());
    (response.leadership, response.want_inventory) = (NEWER, true);
    bench.deliver(response);
    assert_eq!(bench.agent.durable().follows(), Some(NEWER));
    assert!(bench.ask().inventory.is_some_and(|inventory| inventory.for_leadership == Some(NEWER)));
    assert!(!bench.takes(|_| ()), "the earlier leadership is over");
}

#[test]
fn a_process_exits_when_another_session_has_superseded_it() {
    let mut bench = Bench::new();
    let own = bench.agent.session();
    for why in [SyncRefusal::Superseded { by: own }, SyncRefusal::NotLeading, SyncRefusal::UnknownCluster] {
        bench.refuse(why);
        assert!(!bench.exits());
    }
    bench.refuse(SyncRefusal::Superseded { by: Session { counter: own.counter + 1, ..own } });
    assert!(bench.exits());
}

#[test]
fn a_process_with_a_lost_ledger_exits_when_its_runs_have_ended() {
    let mut bench = Bench::new();
    bench.refuse(SyncRefusal::LedgerLost);
    assert!(bench.exits(), "nothing runs");
    let mut bench = Bench::new();
    bench.running();
    bench.effects.clear();
    bench.refuse(SyncRefusal::LedgerLost);
    bench.refuse(SyncRefusal::LedgerLost);
    assert_eq!((bench.stops_ordered(), bench.exits()), (1, false));
    bench.end();
    assert!(bench.exits());
}

#[test]
fn a_manager_that_does_not_know_of_a_newer_leadership_gets_an_inventory() {
    let mut bench = Bench::new();
    let request = bench.ask();
    bench.answer(&request, Vec::new());
    assert!(bench.ask().inventory.is_none());
    bench.refuse(SyncRefusal::NewerLeadership { follows: NEWER });
    assert!(bench.ask().inventory.is_some());
}

#[test]
fn a_renewal_counts_from_its_transmission_and_only_prolongs() {
    let mut bench = Bench::new();
    bench.run();
    let (older, newer) = (bench.ask(), bench.now.mono + Millis(MINUTE));
    bench.pass(MINUTE);
    let request = bench.ask();
    bench.pass(MINUTE);
    bench.renew_by(&request);
    assert_eq!(bench.renewals(), [newer + TERM]);
    bench.renew_by(&request);
    bench.renew_by(&older);
    assert_eq!(bench.renewals(), [newer + TERM], "the lease has that deadline already, or a later one");
    let request = bench.ask();
    bench.answer(&request, vec![stop()]);
    bench.renew_by(&request);
    assert_eq!(bench.renewals().len(), 1, "a gang that stops isn't renewed");
}

#[test]
fn an_acknowledged_tombstone_is_kept_for_a_week_and_dropped_within_the_next_hour() {
    let ended = || {
        let mut bench = Bench::new();
        bench.ended();
        bench.acknowledge_end(5);
        bench.effects.clear();
        bench
    };
    let is_kept = |bench: &Bench| {
        let kept = bench.agent.durable().tombstones().contains_key(&(UID, FENCE));
        assert_eq!(bench.effects.contains(&Effect::Forget { uid: UID, fence: FENCE }), !kept);
        kept
    };
    let mut bench = ended();
    bench.pass(TOMBSTONE_KEPT.0);
    assert!(!is_kept(&bench));
    let mut bench = ended();
    bench.pass(TOMBSTONE_KEPT.0 - 1);
    assert!(is_kept(&bench));
    bench.pass(60 * MINUTE - 1);
    assert!(is_kept(&bench), "old tombstones are looked for once an hour");
    bench.pass(1);
    assert!(!is_kept(&bench));
}

fn stop() -> Command {
    Command::Stop { uid: UID, fence: FENCE, reason: meridian_shared::protocol::StopReason::Cancelled }
}

#[test]
fn a_transmission_has_the_digest_of_its_offers_and_runs() {
    let mut bench = Bench::new();
    assert_eq!(bench.ask().digest, Digest::default());
    bench.offer();
    let offered = Digest::default().with_offer(OFFER);
    assert_eq!(bench.ask().digest, offered);
    let request = bench.ask();
    bench.answer(&request, vec![grant()]);
    assert_eq!(bench.ask().digest, Digest::default().with_grant(UID, FENCE));
}

#[test]
fn news_are_sent_at_once() {
    let mut bench = Bench::new();
    let sends = |bench: &mut Bench| std::mem::take(&mut bench.effects).contains(&Effect::SendNews);
    sends(&mut bench);
    bench.apply(Input::Tick);
    assert!(!sends(&mut bench), "nothing happened");
    bench.offer();
    assert!(sends(&mut bench), "the offer is held");
    let request = bench.ask();
    bench.answer(&request, Vec::new());
    assert!(!sends(&mut bench), "nothing new");
}

#[test]
fn runs_are_shown_with_their_phase() {
    let mut bench = Bench::new();
    let phase =
        |bench: &Bench| bench.agent.runs().next().map(|(_, _, running, stopping)| (running, stopping));
    bench.run();
    assert_eq!(phase(&bench), Some((false, false)));
    bench.runner(RunnerEvent::Running { uid: UID, fence: FENCE });
    assert_eq!(phase(&bench), Some((true, false)));
    let request = bench.ask();
    bench.answer(&request, vec![stop()]);
    assert_eq!(phase(&bench), Some((false, true)));
    bench.end();
    assert_eq!(phase(&bench), None);
}

#[test]
fn a_repeated_offer_is_answered_with_its_state() {
    let mut bench = Bench::new();
    bench.offer();
    let request = bench.ask();
    bench.answer(&request, vec![offer()]);
    let events = bench.ask().events;
    assert!(matches!(events[..], [Event::Held { offer: OFFER, uid: UID }]), "{events:?}");
    let request = bench.ask();
    bench.answer(&request, vec![Command::Withdraw { offer: OFFER, uid: UID }]);
    let request = bench.ask();
    bench.answer(&request, vec![offer()]);
    let events = bench.ask().events;
    assert!(matches!(events[..], [Event::Gone { offer: OFFER, expired: false, .. }]), "{events:?}");
}

#[test]
fn an_offer_for_a_running_workload_is_refused_unless_it_is_the_runs_own() {
    let mut bench = Bench::new();
    bench.running();
    let request = bench.ask();
    bench.answer(&request, vec![offer(), Command::Withdraw { offer: OFFER, uid: UID }]);
    assert!(bench.ask().events.is_empty(), "only a stop ends a run");
    assert!(bench.agent.ledger().is_allocated(OFFER));
    let (Command::Offer(other), another) = (offer(), OfferId { counter: 2, ..OFFER }) else {
        panic!("an offer")
    };
    let request = bench.ask();
    bench.answer(&request, vec![Command::Offer(Box::new(Offer { offer: another, ..*other }))]);
    let events = bench.ask().events;
    let refused = |event: &Event| match event {
        Event::Refused { offer, reason, .. } => (*offer, reason) == (another, &RefuseReason::StillRuns),
        _ => false,
    };
    assert!(events.iter().all(refused) && events.len() == 1, "{events:?}");
    let request = bench.ask();
    bench.answer(&request, vec![Command::Withdraw { offer: another, uid: UID }]);
    let events = bench.ask().events;
    assert!(matches!(events[..], [Event::Gone { .. }]), "{events:?}");
}

#[test]
fn a_repeated_acknowledgement_writes_nothing_and_a_later_one_is_kept() {
    let mut bench = Bench::new();
    bench.ended();
    let acknowledged = |bench: &Bench| bench.agent.durable().tombstones()[&(UID, FENCE)].acknowledged;
    for (record, writes) in [(5, true), (5, false), (6, true)] {
        let request = bench.ask();
        let mut response = bench.response(&request, Vec::new());
        response.ends_acknowledged = vec![(UID, FENCE, RecordNumber(record))];
        let out = bench.agent.apply(bench.now, Input::Answer(Box::new(SyncAnswer::Ok(Box::new(response)))));
        let is_written = out.store().iter().any(|op| op.key.starts_with("tombstone/"));
        bench.take(out);
        assert_eq!((is_written, acknowledged(&bench).map(|by| by.1)), (writes, Some(RecordNumber(record))));
    }
}

#[test]
fn a_dropped_tombstone_takes_the_fence_along_unless_the_workload_runs() {
    let mut bench = Bench::new();
    bench.ended();
    bench.acknowledge_end(5);
    bench.pass(TOMBSTONE_KEPT.0);
    assert_eq!(bench.agent.durable().fence_of(UID), None);

    let mut bench = Bench::new();
    bench.ended();
    bench.acknowledge_end(5);
    let (offered, granted, later) = (OfferId { counter: 2, ..OFFER }, grant(), Fence { counter: 2, ..FENCE });
    let (Command::Offer(asked), Command::Grant(granted)) = (offer(), granted) else { panic!("both") };
    let request = bench.ask();
    let grant = Grant { offer: offered, fence: later, on_loss: OnLoss::Wait, ..*granted };
    let commands =
        [Command::Offer(Box::new(Offer { offer: offered, ..*asked })), Command::Grant(Box::new(grant))];
    bench.answer(&request, commands.into());
    bench.pass(TOMBSTONE_KEPT.0);
    assert!(bench.agent.durable().tombstones().is_empty());
    assert_eq!(bench.agent.durable().fence_of(UID), Some(later));
}

#[test]
fn a_withdrawn_wait_for_nodes_cancels_the_request() {
    let mut bench = Bench::new();
    let capacity = Amounts::from([(GPU.into(), 8)]);
    let pool = Block { nodes: 1, free: capacity.clone(), capacity, ..Block::default() };
    bench.set_nodes(vec![pool]);
    let Command::Offer(mut asked) = offer() else { panic!("it is an offer") };
    Arc::make_mut(&mut asked.gang).pod_sets[0].per_pod = Amounts::from([(GPU.into(), 8)]);
    let request = bench.ask();
    bench.answer(&request, vec![Command::Offer(asked)]);
    assert!(
        bench.effects.iter().any(|effect| matches!(effect, Effect::Provision { .. })),
        "{:?}",
        bench.effects
    );
    let request = bench.ask();
    bench.answer(&request, vec![Command::Withdraw { offer: OFFER, uid: UID }]);
    assert!(bench.effects.contains(&Effect::Deprovision { offer: OFFER }));
}

#[test]
fn an_answer_that_is_delivered_twice_does_its_commands_once() {
    let mut bench = Bench::new();
    bench.offer();
    let request = bench.ask();
    let response = bench.response(&request, vec![grant()]);
    bench.deliver(response.clone());
    bench.effects.clear();
    let last = bench.agent.events_last();
    bench.deliver(response);
    assert!(!bench.starts() && bench.agent.events_last() == last, "{:?}", bench.ask().events);
}

#[test]
fn capacity_is_reported_until_the_manager_has_it() {
    let mut bench = Bench::new();
    let capacity = Amounts::from([(GPU.into(), 8)]);
    let pool = Block { nodes: 2, free: capacity.clone(), capacity, ..Block::default() };
    bench.set_nodes(vec![pool.clone()]);
    let request = bench.ask();
    let report = request.capacity.clone().expect("the manager has none");
    assert_eq!(
        (report.blocks, report.provisionable, report.base),
        (bench.agent.ledger().blocks(), vec![pool], None)
    );
    assert_eq!((report.after_command, report.runner, report.guarded), (0, RunnerKind::Simulated, true));
    let mut response = bench.response(&request, vec![offer()]);
    response.capacity_acknowledged = report.version;
    bench.deliver(response);
    let report = bench.ask().capacity.expect("the offer holds an accelerator");
    assert_eq!((report.base, report.after_command), (Some(report.version - 1), 1));
    let request = bench.ask();
    let mut response = bench.response(&request, Vec::new());
    response.capacity_acknowledged = report.version;
    bench.deliver(response);
    assert_eq!(bench.ask().capacity, None);
}

#[test]
fn an_inventory_has_the_receipts_of_the_managers_that_answered() {
    let mut bench = Bench::new();
    let request = bench.ask();
    let mut response = bench.response(&request, Vec::new());
    (response.members, response.want_inventory) = (vec!["eu".into()], true);
    let receipt = response.receipt.clone();
    bench.deliver(response);
    let inventory = bench.ask().inventory.expect("it was asked for");
    assert_eq!(inventory.receipts, [(receipt.clone(), vec!["eu".into()])]);
    let stored = &bench.agent.durable().receipts()[&receipt.journal];
    assert_eq!(stored[&LEADERSHIP], (receipt, vec!["eu".into()]));
}
