//! Agents that say again and again what is known: what of it is written down.

use super::*;
use meridian_manager_core::facts::record::{MemberFact, WorkloadFact};
use meridian_shared::ids::Session;
use meridian_shared::placement::Placement;
use meridian_shared::protocol::{SyncRefusal, VERSION, VERSIONS};

/// What a cluster may have written in one second, in records of the smallest size, and a full budget with it.
const WRITTEN_MAX: usize = 5_000;
const SAID: u64 = 10_000;

struct Flood {
    f: Fleet,
    uid: Uid,
}

fn eu() -> ClusterName {
    ClusterName::new("eu")
}

impl Flood {
    /// Says all of these, a thousand at once, from the first that wasn't taken. How many were.
    fn send(&mut self, events: &[Event]) -> usize {
        let mut taken = 0;
        for _ in 0..events.len().div_ceil(1_000) {
            let composed = self.f.agents.get_mut(&eu()).unwrap().compose(now(self.f.now), Lane::News);
            let before = self.f.world.live.clusters[&eu()].events_through;
            let some: Vec<Event> = events[taken..].iter().take(1_000).cloned().collect();
            let events_last = before + some.len() as u64;
            let request = SyncRequest {
                events_from: before + 1,
                events_last,
                events: some,
                inventory: None,
                answered: 0,
                ..composed
            };
            self.f.input(Input::Sync { cluster: eu(), request: Box::new(request), may_park: false });
            taken += usize::try_from(self.f.world.live.clusters[&eu()].events_through - before).unwrap();
        }
        taken
    }

    /// The same until all is taken, a second after the other. How many seconds it took.
    fn say_all(&mut self, events: &[Event]) -> u64 {
        let (mut taken, mut seconds) = (0, 0);
        while taken < events.len() {
            assert!(seconds < 1_000, "the last word is lost");
            self.f.now += 1_000;
            self.f.world.committed(Mono(self.f.now));
            taken += self.send(&events[taken..]);
            seconds += 1;
        }
        seconds
    }

    fn written(&self, which: fn(&Record) -> bool) -> usize {
        self.f.records.iter().filter(|(_, record)| which(record)).count()
    }
}

fn waiting(estimate: impl Fn(u64) -> u64) -> (Flood, Vec<Event>) {
    let mut f = Fleet::new(&[("eu", "europe-west4", "EU")]);
    f.cut.push(eu());
    let uid = f.submit("job", 3);
    let offer = *f.world.state.workloads()[&uid].legs().keys().next().unwrap();
    let say = |n| Event::Waiting {
        offer,
        uid,
        reason: "no capacity yet".into(),
        estimate: Some(Millis(estimate(n))),
    };
    (Flood { f, uid }, (0..SAID).map(say).collect())
}

const fn waited(record: &Record) -> bool {
    matches!(record, Record::Workload { fact: WorkloadFact::Waiting { .. }, .. })
}

const fn placed(record: &Record) -> bool {
    matches!(record, Record::Workload { fact: WorkloadFact::PodsPlaced { .. }, .. })
}

#[test]
fn the_same_word_is_written_once() {
    let (mut flood, events) = waiting(|_| 60_000);
    assert_eq!(flood.send(&events), events.len(), "nothing of it has to wait");
    assert_eq!(flood.written(waited), 1);
}

#[test]
fn another_estimate_each_time_waits_for_its_turn_and_the_last_one_comes_through() {
    let (mut flood, events) = waiting(|n| n);
    let taken = flood.send(&events);
    assert!(taken < events.len() && flood.written(waited) == taken && taken <= WRITTEN_MAX, "{taken}");
    assert!(flood.f.world.live.counts.put_off > 0);
    let seconds = flood.say_all(&events[taken..]);
    assert!((2..100).contains(&seconds), "{seconds}");
    let leg = flood.f.world.state.workloads()[&flood.uid].legs().values().next().unwrap();
    assert_eq!(leg.estimate, Some(Millis(SAID - 1)));
}

#[test]
fn another_place_each_time_waits_for_its_turn_and_the_last_one_comes_through() {
    let mut f = Fleet::new(&[("eu", "europe-west4", "EU"), ("us", "us-east4", "US")]);
    f.input(Input::Operator { actor: Actor::user("op"), action: Operator::Cordon("us".into()) });
    let uid = f.submit("job", 3);
    f.settle();
    assert_eq!(f.at(uid).as_deref(), Some("eu"));
    let (_, leg) = f.world.state.workloads()[&uid].legs().iter().next().unwrap();
    let (fence, placement) = (leg.fence.unwrap(), leg.placement.clone().unwrap());
    let mut flood = Flood { f, uid };
    let place = |n: u64| {
        Arc::new(Placement {
            revision: placement.revision + u32::try_from(n).unwrap(),
            ..(*placement).clone()
        })
    };
    let events: Vec<Event> =
        (1..=SAID).map(|n| Event::Running { uid, fence, placement: Some(place(n)) }).collect();
    let taken = flood.send(&events);
    assert!(taken < events.len() && flood.written(placed) == taken && taken <= WRITTEN_MAX, "{taken}");
    // Nobody else waits for it.
    flood.f.cut.push(eu());
    flood.f.input(Input::Operator { actor: Actor::user("op"), action: Operator::Uncordon("us".into()) });
    let other = flood.f.submit("other", 3);
    flood.f.settle();
    assert_eq!(flood.f.at(other).as_deref(), Some("us"));
    flood.say_all(&events[taken..]);
    let (_, leg) = flood.f.world.state.workloads()[&uid].legs().iter().next().unwrap();
    assert_eq!(leg.placement, Some(place(SAID)));
}

#[test]
fn a_new_session_brings_no_new_budget() {
    let (mut flood, events) = waiting(|n| n);
    let taken = flood.send(&events);
    assert!(taken < events.len());
    let agent = flood.f.agents.get_mut(&eu()).unwrap();
    let durable = agent.durable().clone();
    let config = AgentConfig {
        cluster: eu(),
        runner: RunnerKind::Simulated,
        guarded: true,
        located: None,
        boot: 1,
        replacement_wait: Millis(0),
        planted: Planted::NONE,
    };
    *agent = Agent::start(config, durable, Vec::new(), 2, now(flood.f.now)).0;
    let node =
        NodeSpec { name: "eu-1".into(), capacity: Amounts::from([(GPU.into(), 4)]), ..NodeSpec::default() };
    agent.apply(now(flood.f.now), AgentInput::Nodes { nodes: vec![node], pools: Vec::new() });
    let asked = |flood: &Flood| flood.f.world.state.workloads()[&flood.uid].legs().keys().next().copied();
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
    // What it shows anew would be written anew: that waits for its turn, too.
    for _ in 0..10 {
        exchange(&mut flood);
    }
    assert_eq!(asked(&flood), None);
    for _ in 0..10 {
        flood.f.now += 500;
        exchange(&mut flood);
    }
    assert!(asked(&flood).is_some(), "it isn't asked again: {:#}", flood.f.why(flood.uid));
}

impl Flood {
    /// Syncs with another session or ledger; whether it was taken.
    fn begin(&mut self, ledger: LedgerId, counter: u64) -> Result<(), SyncRefusal> {
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
fn sessions_begun_without_end_wait_for_their_turn() {
    let (mut flood, _) = waiting(|n| n);
    let ledger = flood.f.world.state.members()[&eu()].ledger;
    let (before, begun) = (flood.f.now, |record: &Record| {
        matches!(record, Record::Member { fact: MemberFact::SessionOpened { .. }, .. })
    });
    let opened = flood.written(begun);
    let refused = (10..5_010).filter(|counter| flood.begin(ledger, *counter).is_err()).count();
    let seconds = usize::try_from((flood.f.now - before) / 1_000).unwrap();
    let written = flood.written(begun) - opened;
    assert_eq!(written + refused, 5_000);
    assert!((100..=130 + 17 * seconds).contains(&written), "{written} in {seconds} s");
    flood.f.now += 1_000;
    assert_eq!(flood.begin(ledger, 6_000), Ok(()), "an honest restart is taken a moment later");
}

#[test]
fn ledgers_are_replaced_so_often_and_no_more() {
    let (mut flood, _) = waiting(|n| n);
    let replaced = |flood: &Flood| flood.f.world.state.members()[&eu()].lost.len();
    let mut refused = None;
    for ledger in 0..2_000 {
        flood.f.now += 1_000;
        refused = flood.begin(LedgerId(1 << 64 | ledger), 1).err();
    }
    assert_eq!(replaced(&flood), 1_000);
    assert!(
        matches!(refused, Some(SyncRefusal::Malformed(words)) if words.contains("join under another name"))
    );
    let (now, newest) =
        (flood.f.world.state.members()[&eu()].ledger, flood.f.world.state.members()[&eu()].session.counter);
    assert_eq!(flood.begin(now, newest + 1), Ok(()), "the one that it has goes on");
}

#[test]
fn each_agent_is_answered_in_a_version_that_it_speaks() {
    let (mut flood, _) = waiting(|n| n);
    let mut say = |version| {
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
    assert!(newest == VERSION && newest - oldest <= 1, "this one and the one before");
    for version in VERSIONS {
        assert_eq!(say(version), Ok(version));
    }
    for unknown in [oldest - 1, newest + 1] {
        assert_eq!(say(unknown), Err(SyncRefusal::Version { oldest, newest }));
    }
}
