//! Limits on the records that one agent can cause, however often it reports.

use super::*;
use meridian_manager_core::facts::record::{MemberFact, WorkloadFact};
use meridian_manager_core::live::counts::Count;
use meridian_shared::ids::Session;
use meridian_shared::placement::Placement;
use meridian_shared::protocol::{SyncRefusal, VERSION, VERSIONS};

/// Records of the smallest size that a cluster may cause within a second, with a full budget at its start.
const RECORDS_MAX: usize = 5_000;
/// Reports that each flood sends.
const REPORTS: u64 = 10_000;

struct Flood {
    f: Fleet,
    uid: Uid,
}

fn eu() -> ClusterName {
    ClusterName::new("eu")
}

impl Flood {
    /// Sends all events, a thousand per request, each time from the first one that isn't accepted yet.
    /// Returns the number of accepted events.
    fn send(&mut self, events: &[Event]) -> usize {
        let mut accepted = 0;
        for _ in 0..events.len().div_ceil(1_000) {
            let composed = self.f.agents.get_mut(&eu()).unwrap().compose(now(self.f.now), Lane::News);
            let before = self.f.world.live().clusters()[&eu()].events_through();
            let batch: Vec<Event> = events[accepted..].iter().take(1_000).cloned().collect();
            let events_last = before + batch.len() as u64;
            let request = SyncRequest {
                events_from: before + 1,
                events_last,
                events: batch,
                inventory: None,
                answered: 0,
                ..composed
            };
            self.f.input(Input::Sync { cluster: eu(), request: Box::new(request), may_park: false });
            accepted +=
                usize::try_from(self.f.world.live().clusters()[&eu()].events_through() - before).unwrap();
        }
        accepted
    }

    /// Sends once per second until all events are accepted. Returns the number of seconds.
    fn send_all(&mut self, events: &[Event]) -> u64 {
        let (mut accepted, mut seconds) = (0, 0);
        while accepted < events.len() {
            assert!(seconds < 1_000, "the last event is never accepted");
            self.f.now += 1_000;
            self.f.world.committed(Mono(self.f.now));
            accepted += self.send(&events[accepted..]);
            seconds += 1;
        }
        seconds
    }

    fn written(&self, matches: fn(&Record) -> bool) -> usize {
        self.f.records.iter().filter(|(_, record)| matches(record)).count()
    }
}

/// An agent that answers an offer with many `Waiting` events, each with this estimate.
fn waiting(estimate: impl Fn(u64) -> u64) -> (Flood, Vec<Event>) {
    let mut f = Fleet::new(EU);
    f.disconnected.push(eu());
    let uid = f.submit("job", 3);
    let offer = *f.world.state().workloads()[&uid].legs().keys().next().unwrap();
    let event = |n| Event::Waiting {
        offer,
        uid,
        reason: "no capacity yet".into(),
        estimate: Some(Millis(estimate(n))),
    };
    (Flood { f, uid }, (0..REPORTS).map(event).collect())
}

const fn is_waiting(record: &Record) -> bool {
    matches!(record, Record::Workload { fact: WorkloadFact::Waiting { .. }, .. })
}

const fn is_pods_placed(record: &Record) -> bool {
    matches!(record, Record::Workload { fact: WorkloadFact::PodsPlaced { .. }, .. })
}

#[test]
fn repeated_equal_reports_cause_one_record() {
    let (mut flood, events) = waiting(|_| 60_000);
    assert_eq!(flood.send(&events), events.len(), "no report is put off");
    assert_eq!(flood.written(is_waiting), 1);
}

#[test]
fn reports_over_the_limit_are_put_off_and_the_last_is_kept() {
    let (mut flood, events) = waiting(|n| n);
    let accepted = flood.send(&events);
    assert!(accepted < events.len() && accepted <= RECORDS_MAX, "{accepted}");
    assert_eq!(flood.written(is_waiting), accepted);
    assert!(flood.f.world.live().counts().of(Count::PutOff) > 0);
    let seconds = flood.send_all(&events[accepted..]);
    assert!((2..100).contains(&seconds), "{seconds}");
    let leg = flood.f.world.state().workloads()[&flood.uid].legs().values().next().unwrap();
    assert_eq!(leg.estimate(), Some(Millis(REPORTS - 1)));
}

#[test]
fn placements_over_the_limit_delay_no_other_cluster() {
    let mut f = Fleet::new(&[("eu", "europe-west4", "EU"), ("us", "us-east4", "US")]);
    f.input(Input::Operator { actor: Actor::user("op"), action: Operator::Cordon("us".into()) });
    let uid = f.submit("job", 3);
    f.settle();
    assert_eq!(f.cluster_of(uid).as_deref(), Some("eu"));
    let (_, leg) = f.world.state().workloads()[&uid].legs().iter().next().unwrap();
    let (fence, placement) = (leg.fence().unwrap(), leg.placement().unwrap().clone());
    let mut flood = Flood { f, uid };
    let nth_placement = |n: u64| {
        Arc::new(Placement {
            revision: placement.revision + u32::try_from(n).unwrap(),
            ..(*placement).clone()
        })
    };
    let events: Vec<Event> =
        (1..=REPORTS).map(|n| Event::Running { uid, fence, placement: Some(nth_placement(n)) }).collect();
    let accepted = flood.send(&events);
    assert!(accepted < events.len() && accepted <= RECORDS_MAX, "{accepted}");
    assert_eq!(flood.written(is_pods_placed), accepted);
    // A job for the other cluster starts meanwhile.
    flood.f.disconnected.push(eu());
    flood.f.input(Input::Operator { actor: Actor::user("op"), action: Operator::Uncordon("us".into()) });
    let other = flood.f.submit("other", 3);
    flood.f.settle();
    assert_eq!(flood.f.cluster_of(other).as_deref(), Some("us"));
    flood.send_all(&events[accepted..]);
    let (_, leg) = flood.f.world.state().workloads()[&uid].legs().iter().next().unwrap();
    assert_eq!(leg.placement(), Some(&nth_placement(REPORTS)));
}

#[test]
fn a_new_session_brings_no_new_budget() {
    let (mut flood, events) = waiting(|n| n);
    let accepted = flood.send(&events);
    assert!(accepted < events.len());
    let agent = flood.f.agents.get_mut(&eu()).unwrap();
    let durable = agent.durable().clone();
    let config = AgentConfig {
        cluster: eu(),
        runner: RunnerKind::Simulated,
        guarded: true,
        located: None,
        boot: 1,
        replacement_wait: Millis(0),
        holds: meridian_agent_core::HoldSettings::default(),
        managed: meridian_shared::managed::ManagedResources::default(),
        planted: Planted::NONE,
    };
    *agent = Agent::start(config, durable, Vec::new(), 2, now(flood.f.now)).0;
    let node =
        NodeSpec { name: "eu-1".into(), capacity: Amounts::from([(GPU.into(), 4)]), ..NodeSpec::default() };
    agent.apply(now(flood.f.now), AgentInput::Nodes { nodes: vec![node], pools: Vec::new() });
    let offer = |flood: &Flood| flood.f.world.state().workloads()[&flood.uid].legs().keys().next().copied();
    let exchange = |flood: &mut Flood| {
        let agent = flood.f.agents.get_mut(&eu()).unwrap();
        let request = Box::new(agent.compose(now(flood.f.now), Lane::News));
        let Reply::Sync(answer) = flood.f.input(Input::Sync { cluster: eu(), request, may_park: false })
        else {
            panic!("not answered")
        };
        flood.f.agents.get_mut(&eu()).unwrap().apply(now(flood.f.now), AgentInput::Answer(answer));
        flood.f.input(Input::Turn);
        flood.f.world.committed(Mono(flood.f.now));
    };
    // The first reports of the new session would cause records, and are put off too.
    for _ in 0..10 {
        exchange(&mut flood);
    }
    assert_eq!(offer(&flood), None);
    for _ in 0..10 {
        flood.f.now += 500;
        exchange(&mut flood);
    }
    assert!(offer(&flood).is_some(), "the agent gets no new offer: {:#}", flood.f.why(flood.uid));
}

impl Flood {
    /// Syncs with another session or ledger. Fails if the manager refuses it.
    fn begin_session(&mut self, ledger: LedgerId, counter: u64) -> Result<(), SyncRefusal> {
        let composed = self.f.agents.get_mut(&eu()).unwrap().compose(now(self.f.now), Lane::News);
        let session = Session { counter, id: counter };
        let request = SyncRequest {
            ledger,
            session,
            events_from: 1,
            events_last: 0,
            events: Vec::new(),
            answered: 0,
            ..composed
        };
        self.f.now += 1;
        self.f.world.committed(Mono(self.f.now));
        let Reply::Sync(answer) =
            self.f.input(Input::Sync { cluster: eu(), request: Box::new(request), may_park: false })
        else {
            panic!("not answered")
        };
        match *answer {
            SyncAnswer::Refused(why) => Err(why),
            SyncAnswer::Ok(_) => Ok(()),
        }
    }
}

#[test]
fn new_sessions_over_the_limit_are_refused() {
    let (mut flood, _) = waiting(|n| n);
    let ledger = flood.f.world.state().members()[&eu()].ledger();
    let before = flood.f.now;
    let is_session_opened =
        |record: &Record| matches!(record, Record::Member { fact: MemberFact::SessionOpened { .. }, .. });
    let opened = flood.written(is_session_opened);
    let refused = (10..5_010).filter(|counter| flood.begin_session(ledger, *counter).is_err()).count();
    let seconds = usize::try_from((flood.f.now - before) / 1_000).unwrap();
    let written = flood.written(is_session_opened) - opened;
    assert_eq!(written + refused, 5_000);
    assert!((100..=130 + 17 * seconds).contains(&written), "{written} in {seconds} s");
    flood.f.now += 1_000;
    assert_eq!(flood.begin_session(ledger, 6_000), Ok(()), "a normal restart is accepted a second later");
}

#[test]
fn the_number_of_ledger_replacements_is_limited() {
    let (mut flood, _) = waiting(|n| n);
    let replaced = |flood: &Flood| flood.f.world.state().members()[&eu()].lost().len();
    let mut refused = None;
    for ledger in 0..2_000 {
        flood.f.now += 1_000;
        refused = flood.begin_session(LedgerId(1 << 64 | ledger), 1).err();
    }
    assert_eq!(replaced(&flood), 1_000);
    assert!(
        matches!(refused, Some(SyncRefusal::Malformed(text)) if text.contains("join under another name"))
    );
    let (now, newest) = (
        flood.f.world.state().members()[&eu()].ledger(),
        flood.f.world.state().members()[&eu()].session().counter,
    );
    assert_eq!(flood.begin_session(now, newest + 1), Ok(()), "the current ledger stays valid");
}

#[test]
fn an_agent_is_answered_in_its_own_protocol_version() {
    let (mut flood, _) = waiting(|n| n);
    let mut sync = |version| {
        let composed = flood.f.agents.get_mut(&eu()).unwrap().compose(now(flood.f.now), Lane::News);
        let request = SyncRequest { version, ..composed };
        let Reply::Sync(answer) =
            flood.f.input(Input::Sync { cluster: eu(), request: Box::new(request), may_park: false })
        else {
            panic!("not answered")
        };
        flood.f.world.committed(Mono(flood.f.now));
        match *answer {
            SyncAnswer::Refused(why) => Err(why),
            SyncAnswer::Ok(response) => Ok(response.version),
        }
    };
    let (oldest, newest) = (*VERSIONS.start(), *VERSIONS.end());
    assert!(newest == VERSION && newest - oldest <= 1, "at most the current version and the previous one");
    for version in VERSIONS {
        assert_eq!(sync(version), Ok(version));
    }
    for unknown in [oldest - 1, newest + 1] {
        assert_eq!(sync(unknown), Err(SyncRefusal::Version { oldest, newest }));
    }
}
