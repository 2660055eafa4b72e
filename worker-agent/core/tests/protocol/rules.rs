//! One test for each rule of the agent that no other test covers.

use super::*;
use meridian_agent_core::durable::Tombstone;
use meridian_agent_core::{OFFERS_MAX, RunnerEvent, TOMBSTONES_MAX};
use meridian_shared::protocol::{End, EndResult, Event, GrantRefusal};

/// A later leadership.
const SUCCESSOR: Leadership = Leadership { epoch: 2, id: 8 };

impl Bench {
    /// The boot time at which the started gang must have ended.
    fn deadline(&self) -> Option<Mono> {
        self.effects.iter().find_map(|effect| match effect {
            Effect::Start(start) => Some(start.lapses()),
            _ => None,
        })
    }

    pub(super) fn runner(&mut self, event: RunnerEvent) {
        self.apply(Input::Runner(event));
    }

    pub(super) fn running(&mut self) {
        self.run();
        self.runner(RunnerEvent::Running { uid: UID, fence: FENCE });
    }

    pub(super) fn ended(&mut self) {
        self.running();
        self.end();
    }

    /// The gang of a test succeeds.
    pub(super) fn end(&mut self) {
        let (result, ran) = (EndResult::Succeeded, Millis(MINUTE));
        self.runner(RunnerEvent::Ended { uid: UID, fence: FENCE, result, pod_failures: 0, ran });
    }

    /// The manager acknowledges everything that was reported, and the end by this record.
    pub(super) fn acknowledge_end(&mut self, record: u64) {
        let request = self.ask();
        let mut response = self.response(&request, Vec::new());
        response.ends_acknowledged = vec![(UID, FENCE, RecordNumber(record))];
        self.deliver(response);
    }
}

/// The same offer for this workload, with this number.
fn offer_of(uid: Uid, number: u64) -> Command {
    let Command::Offer(offer) = offer() else { panic!("it is an offer") };
    Command::Offer(Box::new(Offer { offer: OfferId { counter: number, ..OFFER }, uid, ..*offer }))
}

#[test]
fn a_command_ahead_of_its_turn_counts_its_lease_from_its_own_transmission() {
    let mut bench = Bench::new();
    let first = bench.ask();
    let sent = bench.now.mono;
    bench.pass(5 * MINUTE);
    let second = bench.ask();
    // The manager numbers the offer 1 and the grant 2. The answer with the grant arrives first.
    let mut ahead = bench.response(&first, vec![grant()]);
    ahead.commands_from = 2;
    bench.deliver(ahead);
    assert!(!bench.starts(), "the offer is missing");
    let mut missing = bench.response(&second, vec![offer()]);
    missing.commands_from = 1;
    bench.deliver(missing);
    assert_eq!(bench.deadline(), Some(sent + TERM));
}

#[test]
fn commands_ahead_of_their_turn_end_with_their_leadership() {
    let mut bench = Bench::new();
    let request = bench.ask();
    let mut ahead = bench.response(&request, vec![grant()]);
    ahead.commands_from = 2;
    bench.deliver(ahead);
    let request = bench.ask();
    let mut response = bench.response(&request, vec![offer()]);
    (response.leadership, response.commands_from) = (SUCCESSOR, 1);
    bench.deliver(response);
    assert!(!bench.starts(), "the grant was the second command of another leadership");
    assert!(bench.ask().events.iter().any(|event| matches!(event, Event::Held { .. })), "the offer counts");
}

#[test]
fn commands_ahead_of_their_turn_end_with_their_session() {
    let mut bench = Bench::new();
    bench.offer();
    let old = bench.ask();
    let mut ahead = bench.response(&old, vec![grant()]);
    ahead.commands_from = 3;
    bench.deliver(ahead);
    bench.restart_without_gang();
    // An answer to the old session arrives late, after the new session has sent a transmission of the same
    // number.
    while bench.ask().transmission < old.transmission {}
    let late = bench.response(&old, vec![offer(), grant()]);
    bench.deliver(late);
    bench.commands = 0;
    let request = bench.ask();
    let mut response = bench.response(&request, vec![offer(), offer()]);
    response.commands_from = 1;
    bench.deliver(response);
    assert!(!bench.starts());
    assert_eq!(bench.ask().commands_through, 2);
}

#[test]
fn a_tombstone_survives_its_acknowledgement_and_a_restart() {
    let mut bench = Bench::new();
    bench.ended();
    bench.acknowledge_end(5);
    assert!(bench.ask().events.is_empty(), "everything is acknowledged");
    bench.restart_without_gang();
    assert!(bench.agent.durable().tombstones().contains_key(&(UID, FENCE)));
    // A copy of the grant arrives late.
    let request = bench.ask();
    bench.answer(&request, vec![offer(), grant()]);
    assert!(!bench.starts());
    let events = bench.ask().events;
    let is_end = |event: &Event| matches!(event, Event::Ended(end) if end.result == EndResult::Succeeded);
    assert!(events.iter().any(is_end), "{events:?}");
}

#[test]
fn an_end_counts_as_known_by_leadership_and_record_range() {
    let reported = |ranges: Vec<(Leadership, RecordNumber, RecordNumber)>| {
        let mut bench = Bench::new();
        bench.ended();
        bench.acknowledge_end(50);
        let request = bench.ask();
        let mut response = bench.response(&request, Vec::new());
        (response.leadership, response.ranges, response.want_inventory) = (SUCCESSOR, ranges, true);
        bench.deliver(response);
        bench.ask().inventory.expect("it was requested").ends.len()
    };
    let range = |leadership, last| (leadership, RecordNumber(1), RecordNumber(last));
    let twin = Leadership { id: 9, ..LEADERSHIP };
    assert_eq!(reported(vec![range(LEADERSHIP, 60)]), 0, "the journal has the record");
    assert_eq!(reported(vec![range(LEADERSHIP, 49)]), 1, "the journal was cut before the record");
    assert_eq!(reported(vec![range(twin, 60)]), 1, "another leadership wrote that record");
    assert_eq!(reported(Vec::new()), 1);
}

#[test]
fn a_hold_expires_at_the_agent() {
    let mut bench = Bench::new();
    bench.offer();
    assert_eq!(bench.agent.held().count(), 1);
    bench.pass(HOLD.0 - 1);
    assert_eq!(bench.agent.held().count(), 1);
    bench.pass(1);
    assert_eq!(bench.agent.held().count(), 0, "nobody withdrew it");
    let is_expiry = |event: &Event| matches!(event, Event::Gone { offer: OFFER, expired: true, .. });
    assert!(bench.ask().events.iter().any(is_expiry));
    let request = bench.ask();
    bench.answer(&request, vec![grant()]);
    assert!(!bench.starts());
    let is_refusal = |event: &Event| matches!(event, Event::GrantRefused { why: GrantRefusal::NoHold, .. });
    assert!(bench.ask().events.iter().any(is_refusal));
}

#[test]
fn holds_expire_one_after_another() {
    let mut bench = Bench::new();
    bench.offer();
    let first = bench.now.mono + HOLD;
    bench.pass(MINUTE);
    let request = bench.ask();
    bench.answer(&request, vec![offer_of(Uid(2), 2)]);
    assert_eq!((bench.agent.held().count(), bench.agent.next_deadline()), (2, Some(first)));
    bench.pass(HOLD.0 - MINUTE);
    assert_eq!(bench.agent.next_deadline(), Some(first + Millis(MINUTE)));
    assert_eq!(bench.agent.held().map(|(_, uid)| uid).collect::<Vec<_>>(), [Uid(2)]);
    bench.pass(MINUTE);
    assert_eq!((bench.agent.held().count(), bench.agent.next_deadline()), (0, None));
}

#[test]
fn a_grant_that_arrives_at_the_end_of_its_hold_is_refused() {
    let mut bench = Bench::new();
    bench.offer();
    // No tick comes before the grant, which is the first input since the hold ended.
    bench.now = Now { mono: bench.now.mono + HOLD, wall: bench.now.wall + HOLD };
    let request = bench.ask();
    bench.answer(&request, vec![grant()]);
    assert!(!bench.starts());
    let is_refusal = |event: &Event| matches!(event, Event::GrantRefused { why: GrantRefusal::NoHold, .. });
    assert!(bench.ask().events.iter().any(is_refusal));
}

#[test]
fn a_grant_of_an_equal_fence_is_refused_after_its_tombstone_was_dropped() {
    let later = Fence { counter: 2, ..FENCE };
    let grant_in = |number: u64| {
        let Command::Grant(grant) = grant() else { panic!("it is a grant") };
        let offer = OfferId { counter: number, ..OFFER };
        Command::Grant(Box::new(Grant { offer, fence: later, attempt: 2, ..*grant }))
    };
    let mut bench = Bench::new();
    // The first end is never acknowledged, so its tombstone stays, and with it the largest fence.
    bench.ended();
    let request = bench.ask();
    bench.answer(&request, vec![offer_of(UID, 2), grant_in(2)]);
    assert!(bench.starts());
    let (result, ran) = (EndResult::Succeeded, Millis(MINUTE));
    bench.runner(RunnerEvent::Ended { uid: UID, fence: later, result, pod_failures: 0, ran });
    let request = bench.ask();
    let mut response = bench.response(&request, Vec::new());
    response.ends_acknowledged = vec![(UID, later, RecordNumber(5))];
    bench.deliver(response);
    bench.pass(8 * 24 * 60 * MINUTE);
    assert_eq!(bench.agent.durable().tombstones().keys().collect::<Vec<_>>(), [&(UID, FENCE)]);
    bench.effects.clear();
    let request = bench.ask();
    bench.answer(&request, vec![offer_of(UID, 3), grant_in(3)]);
    assert!(!bench.starts());
    let stale = GrantRefusal::StaleFence { known: later };
    let is_refusal = |event: &Event| matches!(event, Event::GrantRefused { why, .. } if *why == stale);
    assert!(bench.ask().events.iter().any(is_refusal));
}

#[test]
fn a_grant_of_an_equal_fence_is_answered_with_its_state() {
    let repeated = |bench: &mut Bench| {
        let request = bench.ask();
        bench.answer(&request, Vec::new());
        bench.effects.clear();
        let request = bench.ask();
        bench.answer(&request, vec![grant()]);
        assert!(!bench.starts(), "it starts once");
        bench.ask().events
    };
    let mut bench = Bench::new();
    bench.run();
    assert!(matches!(&repeated(&mut bench)[..], [Event::Accepted { fence: FENCE, .. }]));
    bench.runner(RunnerEvent::Running { uid: UID, fence: FENCE });
    let running = repeated(&mut bench);
    assert!(running.iter().any(|event| matches!(event, Event::Running { fence: FENCE, .. })), "{running:?}");
    assert!(!running.iter().any(|event| matches!(event, Event::GrantRefused { .. })), "{running:?}");
    let mut bench = Bench::new();
    bench.ended();
    assert!(matches!(&repeated(&mut bench)[..], [Event::Ended(end)] if end.fence == FENCE));
}

#[test]
fn a_recorded_end_settles_its_attempt_once() {
    let mut bench = Bench::new();
    bench.ended();
    bench.effects.clear();
    for record in [5, 5, 6] {
        bench.acknowledge_end(record);
    }
    assert_eq!(bench.effects, [Effect::Settle { uid: UID, fence: FENCE }]);
}

/// Why an agent refuses a job; empty if the agent holds the offer. The policy may require guards.
fn refusal(runner: RunnerKind, guarded: bool, requires_guarded: bool, kind: &str) -> String {
    let mut bench = Bench::with(Config { runner, guarded, ..config() });
    let Command::Offer(mut asked) = offer() else { panic!("it is an offer") };
    (asked.requires_guarded, asked.kind) = (requires_guarded, kind.into());
    let request = bench.ask();
    bench.answer(&request, vec![Command::Offer(asked)]);
    match &bench.ask().events[..] {
        [Event::Refused { text, .. }] => text.to_string(),
        [Event::Held { .. }] => String::new(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_cluster_refuses_what_it_cannot_guard_before_it_holds_room() {
    let kubernetes = |guarded, required, kind| refusal(RunnerKind::Kubernetes, guarded, required, kind);
    assert_eq!(kubernetes(true, true, "Job"), "");
    assert!(kubernetes(false, true, "Job").contains("set `pod-guard-image` for this cluster's agent"));
    let of_operator = kubernetes(true, true, "RayJob");
    assert!(of_operator.contains("the operator of RayJob starts containers by commands of its own"));
    assert_eq!(kubernetes(true, false, "RayJob"), "", "no guard is required");
    assert_eq!(refusal(RunnerKind::Simulated, true, true, "RayJob"), "", "no operator starts anything");
}

#[test]
fn pods_are_running_with_their_accelerators_from_the_report_of_the_runner_until_the_end() {
    let mut bench = Bench::new();
    let gpus = |bench: &Bench| -> Vec<u32> {
        bench.agent.running_pods().flat_map(|pod| pod.accelerators[GPU].clone()).collect()
    };
    bench.run();
    assert!(gpus(&bench).is_empty(), "the gang only starts");
    bench.runner(RunnerEvent::Running { uid: UID, fence: FENCE });
    assert_eq!(gpus(&bench), [0]);
    let (result, ran) = (EndResult::Succeeded, Millis(MINUTE));
    bench.runner(RunnerEvent::Ended { uid: UID, fence: FENCE, result, pod_failures: 0, ran });
    assert!(gpus(&bench).is_empty());
}

/// The grant for that offer.
fn grant_of(uid: Uid, number: u64) -> Command {
    let Command::Grant(grant) = grant() else { panic!("it is a grant") };
    let offer = OfferId { counter: number, ..OFFER };
    Command::Grant(Box::new(Grant { offer, uid, fence: Fence { counter: number, ..FENCE }, ..*grant }))
}

/// Why the newest offer was refused, if it was.
fn newest_refusal(bench: &mut Bench) -> Option<String> {
    match bench.ask().events.pop() {
        Some(Event::Refused { text, .. }) => Some(text.to_string()),
        _ => None,
    }
}

/// An agent with room for any number of small gangs.
fn roomy() -> Bench {
    let mut bench = Bench::new();
    let capacity = Amounts::from([(GPU.into(), 100_000)]);
    let node = NodeSpec { name: "n".into(), capacity, ..NodeSpec::default() };
    bench.apply(Input::Nodes { nodes: vec![node], pools: Vec::new() });
    bench
}

#[test]
fn open_offers_are_bounded() {
    let mut bench = roomy();
    let offers: Vec<Command> = (1..=OFFERS_MAX as u64).map(|n| offer_of(Uid(n.into()), n)).collect();
    for some in offers.chunks(512) {
        let request = bench.ask();
        bench.answer(&request, some.to_vec());
    }
    assert_eq!((bench.agent.held().count(), newest_refusal(&mut bench)), (OFFERS_MAX, None));
    // Runs don't count as offers.
    let request = bench.ask();
    bench.answer(&request, (1..=3).map(|n| grant_of(Uid(n.into()), n)).collect());
    for more in 1..=4 {
        let (number, request) = (OFFERS_MAX as u64 + more, bench.ask());
        bench.answer(&request, vec![offer_of(Uid(number.into()), number)]);
        let refused = (more == 4).then_some("too many open offers or unacknowledged ends");
        assert_eq!(newest_refusal(&mut bench).as_deref(), refused);
    }
}

/// An agent that starts with as many tombstones as it may have. Those that `acknowledged` names were
/// acknowledged, in the order of their workloads.
fn full_of_tombstones(acknowledged: impl Fn(u64) -> bool) -> Bench {
    let mut bench = roomy();
    for number in 1..=TOMBSTONES_MAX as u64 {
        let by = acknowledged(number).then_some((LEADERSHIP, RecordNumber(1), Wall(number as i64)));
        let end = End {
            uid: Uid(number.into()),
            fence: FENCE,
            result: EndResult::Succeeded,
            pod_failures: 0,
            ran: Millis(0),
            completed: meridian_shared::indexes::Indexes::default(),
            proof: None,
        };
        let key = format!("tombstone/{}/{}", end.uid, end.fence);
        let tombstone = Tombstone { end, refused: None, acknowledged: by };
        bench.store.insert(key, serde_json::to_string(&tombstone).unwrap());
    }
    bench.restart_without_gang();
    bench
}

#[test]
fn the_oldest_acknowledged_tombstones_make_room() {
    let mut bench = full_of_tombstones(|number| number % 2 == 0);
    let left = bench.agent.durable().tombstones();
    assert_eq!(left.len(), TOMBSTONES_MAX - TOMBSTONES_MAX / 10);
    let is_left = |number: usize| left.contains_key(&(Uid(number as u128), FENCE));
    let last_dropped = TOMBSTONES_MAX / 10 * 2;
    assert!(is_left(1) && !is_left(2) && !is_left(last_dropped) && is_left(last_dropped + 2));
    bench.offer();
    assert_eq!(newest_refusal(&mut bench), None);
}

#[test]
fn an_agent_full_of_unacknowledged_ends_takes_no_offer() {
    let mut bench = full_of_tombstones(|_| false);
    assert_eq!(bench.agent.durable().tombstones().len(), TOMBSTONES_MAX);
    bench.offer();
    assert_eq!(newest_refusal(&mut bench).as_deref(), Some("too many open offers or unacknowledged ends"));
}

/// Why an agent with this runner refuses an offer that was changed like this, if it does.
fn refusal_of(runner: RunnerKind, change: impl FnOnce(&mut Offer)) -> Option<String> {
    let mut bench = Bench::with(Config { runner, ..config() });
    let Command::Offer(mut asked) = offer() else { panic!("it is an offer") };
    change(&mut asked);
    let request = bench.ask();
    bench.answer(&request, vec![Command::Offer(asked)]);
    newest_refusal(&mut bench)
}

#[test]
fn a_runner_refuses_what_it_cannot_run() {
    let (process, kubernetes) = (RunnerKind::Process, RunnerKind::Kubernetes);
    let of_kind = |runner, kind: &str| refusal_of(runner, |asked| asked.kind = kind.into());
    assert!(of_kind(process, "RayJob").is_some_and(|text| text.contains("submit it as a Job")));
    assert_eq!([of_kind(process, "Job"), of_kind(kubernetes, "RayJob")], [None, None]);
    let needs = |runner| refusal_of(runner, |asked| asked.container_needs = Some("volumes".into()));
    assert!(needs(process).is_some_and(|text| text.contains("`volumes`")));
    assert_eq!(needs(kubernetes), None);
    let without = |runner| refusal_of(runner, |asked| asked.without_image = Some("main".into()));
    assert!(
        without(kubernetes).is_some_and(|text| text.contains("container `main` of the job has no `image`"))
    );
    assert_eq!(without(process), None);
}
