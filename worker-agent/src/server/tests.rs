//! The whole agent over a fake manager and a fake runner: real HTTP, a real store, no sleeps.

use super::*;
use crate::guard::lease::Deadline;
use crate::logs;
use crate::runner::{
    End, Enforcement, Found, FoundState, JobSpec, LogChunk, LogReader, RunResult, RunnerEvent, Start,
};
use crate::uplink::Link;
use meridian_agent_core::durable::Durable;
use meridian_shared::gang::Amounts;
use meridian_shared::ids::{Fence, Leadership, Session, Uid};
use meridian_shared::planted::Planted;
use meridian_shared::protocol::{EndResult, Event, RunnerKind, Size, StopReason, SyncRefusal};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::watch;

mod manager;

use manager::{Manager, PATIENCE, fence, grant, offer};

const JOB: Uid = Uid(0x51);

/// What the runner was told.
#[derive(Clone, Debug, PartialEq)]
enum Told {
    Start(Box<Start>, Now),
    Renew(Uid, Fence, Mono),
    Move(Uid, Fence, u32, Vec<String>),
    Shrink(Uid, Fence, Size),
    Stop(Uid, Fence),
}

/// A runner that does what the test says.
#[derive(Clone, Debug)]
struct Stage {
    told: Arc<Mutex<Vec<Told>>>,
    found: Vec<Found>,
    changed: watch::Sender<u64>,
}

impl Stage {
    fn new(found: Vec<Found>) -> Self {
        Self { told: Arc::default(), found, changed: watch::Sender::new(0) }
    }

    fn note(&self, told: Told) {
        self.told.lock().unwrap().push(told);
        self.changed.send_modify(|n| *n += 1);
    }

    fn starts(&self) -> usize {
        self.told.lock().unwrap().iter().filter(|t| matches!(t, Told::Start(..))).count()
    }

    async fn until(&self, what: &str, is: impl Fn(&Told) -> bool) -> Told {
        let mut changes = self.changed.subscribe();
        let waiting = async {
            loop {
                changes.borrow_and_update();
                if let Some(told) = self.told.lock().unwrap().iter().find(|t| is(t)) {
                    return told.clone();
                }
                changes.changed().await.unwrap();
            }
        };
        tokio::time::timeout(PATIENCE, waiting)
            .await
            .unwrap_or_else(|_| panic!("the runner was never told: {what}"))
    }
}

impl Runner for Stage {
    fn name(&self) -> &'static str {
        "stage"
    }
    fn enforcement(&self) -> Enforcement {
        Enforcement::Guarded
    }
    fn accepts(&self, _spec: &JobSpec) -> Result<(), String> {
        Ok(())
    }
    fn start(&mut self, start: Start, decided: Now) {
        self.note(Told::Start(Box::new(start), decided));
    }
    fn renew(&mut self, uid: Uid, fence: Fence, deadline: Mono, _decided: Now) {
        self.note(Told::Renew(uid, fence, deadline));
    }
    fn stop(&mut self, uid: Uid, fence: Fence) {
        self.note(Told::Stop(uid, fence));
    }
    fn move_pods(&mut self, uid: Uid, fence: Fence, number: u32, placement: Vec<runner::PodPlacement>) {
        self.note(Told::Move(uid, fence, number, placement.into_iter().map(|place| place.node).collect()));
    }
    fn shrink(&mut self, uid: Uid, fence: Fence, size: Size) {
        self.note(Told::Shrink(uid, fence, size));
    }
    fn grow(
        &mut self,
        uid: Uid,
        fence: Fence,
        number: u32,
        placement: Vec<runner::PodPlacement>,
        _size: Size,
    ) {
        self.note(Told::Move(uid, fence, number, placement.into_iter().map(|place| place.node).collect()));
    }
    fn adopt(&mut self) -> Vec<Found> {
        self.found.clone()
    }
    fn forget(&mut self, _uid: Uid, _fence: Fence) {}
    fn logs(&self, uid: Uid, fence: Fence, pod: Option<u32>) -> Result<LogReader, runner::Error> {
        if uid != JOB {
            return Err(runner::Error::Unknown { uid, fence });
        }
        Ok(LogReader::text(vec![LogChunk {
            pod: pod.unwrap_or(0),
            attempt: 0,
            bytes: b"one\ntwo\nthree\n".to_vec(),
        }]))
    }
}

/// One running agent.
struct Running {
    stage: Stage,
    tell: mpsc::Sender<RunnerEvent>,
    nodes: watch::Sender<Vec<NodeSpec>>,
    metrics: Arc<Metrics>,
    /// How far its clocks are ahead of the machine's, in milliseconds.
    ahead: Arc<AtomicU64>,
    clock: Clock,
    stop: CancellationToken,
    server: tokio::task::JoinHandle<Result<Exit, Error>>,
    logs: tokio::task::JoinHandle<()>,
}

impl Running {
    fn start(manager: &Manager, store: Store, found: Vec<Found>) -> Self {
        Self::start_on(manager, store, found, Arc::default())
    }

    /// On a machine whose pauses, in milliseconds, only its wall clock shows.
    fn start_on(manager: &Manager, store: Store, found: Vec<Found>, paused: Arc<AtomicU64>) -> Self {
        crate::install_crypto();
        let stage = Stage::new(found);
        let (tell, runner_events) = mpsc::channel(16);
        let (provider_tells, provider_events) = mpsc::unbounded_channel();
        let (asks, log_queries) = mpsc::channel(4);
        let ahead = Arc::new(AtomicU64::new(0));
        let shift = Arc::clone(&ahead);
        let clock: Clock = Arc::new(move || {
            let (now, ahead) = (crate::guard::clock::now(), Millis(shift.load(Ordering::Relaxed)));
            Now { mono: now.mono + ahead, wall: now.wall + ahead + Millis(paused.load(Ordering::Relaxed)) }
        });
        let link = Link::plain(&manager.address, || {
            reqwest::Client::builder()
                .http2_prior_knowledge()
                .retry(reqwest::retry::never())
                .no_proxy()
                .build()
                .unwrap()
        });
        let logs = tokio::spawn(logs::serve(link.clone(), asks, 1));
        let config = Config {
            cluster: "eu".into(),
            runner: RunnerKind::Simulated,
            guarded: true,
            located: None,
            boot: 1,
            replacement_wait: Millis(0),
            planted: Planted::NONE,
        };
        let node = NodeSpec {
            name: "n".into(),
            capacity: Amounts::from([("nvidia.com/gpu".into(), 4)]),
            ..NodeSpec::default()
        };
        let (nodes, told) = watch::channel(vec![node]);
        let stop = CancellationToken::new();
        let metrics = Metrics::new("stage");
        let parts = Parts {
            config,
            store,
            runner: Box::new(stage.clone()),
            runner_events,
            provider: Box::new(crate::provider::StaticProvider::new(provider_tells)),
            provider_events,
            nodes: told,
            uplink: Uplink::new(link, 3),
            log_queries,
            metrics: Arc::clone(&metrics),
            clock: Arc::clone(&clock),
            random: 99,
            stop: stop.clone(),
        };
        let server = Server::open(parts, LedgerId(5)).unwrap();
        Self { stage, tell, nodes, metrics, ahead, clock, stop, server: tokio::spawn(server.run()), logs }
    }

    /// Offers and grants one gang, and waits until it was started.
    async fn run_one(&self, manager: &Manager) -> Start {
        manager.command(offer(1, JOB, 2));
        manager.event("the offer is held", |e| matches!(e, Event::Held { .. })).await;
        manager.command(grant(1, JOB));
        let Told::Start(start, _) = self.stage.until("start", |t| matches!(t, Told::Start(..))).await else {
            unreachable!("asked for a start")
        };
        *start
    }

    async fn tell(&self, event: RunnerEvent) {
        self.tell.send(event).await.unwrap();
    }

    async fn exit(self) -> Result<Exit, Error> {
        self.stop.cancel();
        self.logs.abort();
        tokio::time::timeout(PATIENCE, self.server).await.expect("it ends when it is asked to").unwrap()
    }
}

fn running() -> RunnerEvent {
    RunnerEvent::Running { uid: JOB, fence: fence(1) }
}

fn ended(result: RunResult) -> RunnerEvent {
    RunnerEvent::Ended {
        uid: JOB,
        fence: fence(1),
        end: End { result, pods: Vec::new(), failures: 0, ran: Millis(5) },
    }
}

fn stored(dir: &Path) -> Durable {
    let pairs = Store::open(dir).unwrap().load().unwrap();
    Durable::load(pairs.iter().map(|(k, v)| (k.as_str(), v.as_str()))).unwrap().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gang_is_held_granted_run_and_buried() {
    let (dir, manager) = (tempfile::tempdir().unwrap(), Manager::start().await);
    let agent = Running::start(&manager, Store::open(dir.path()).unwrap(), Vec::new());
    manager.until("the first inventory", |book| book.inventories.first().cloned()).await;
    let start = agent.run_one(&manager).await;
    assert_eq!((start.uid, start.fence, start.placement.len()), (JOB, fence(1), 2));
    assert_eq!(start.placement.iter().flat_map(|p| p.accelerators.clone()).collect::<Vec<_>>(), [0, 1]);
    assert!(start.deadline < Mono(u64::MAX) && start.stop_budget == Millis::secs(15));
    manager.event("the grant is accepted", |e| matches!(e, Event::Accepted { .. })).await;

    agent.tell(running()).await;
    manager.event("it runs", |e| matches!(e, Event::Running { .. })).await;
    manager.with(|book| book.renewals = vec![(JOB, fence(1))]);
    agent
        .stage
        .until("the lease is renewed", |t| matches!(t, Told::Renew(_, _, later) if *later > start.deadline))
        .await;
    agent.tell(ended(RunResult::Succeeded)).await;
    manager.event("it ended", |e| matches!(e, Event::Ended(end) if end.ran == Millis(5))).await;
    // The answer that acknowledges the end is taken when a later request says so.
    let acknowledged = manager.with(|book| book.transmissions.len() as u64);
    manager
        .until("the end is acknowledged", |book| {
            book.requests.last().filter(|r| r.answered > acknowledged && r.events.is_empty()).cloned()
        })
        .await;
    assert_eq!(agent.stage.starts(), 1);
    assert_eq!(agent.exit().await.unwrap(), Exit::Asked);
    let graves = stored(dir.path()).tombstones;
    assert!(graves.len() == 1 && graves.values().all(|g| g.acknowledged.is_some()), "{graves:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_fails_moves_its_pods_and_the_manager_is_told() {
    let (dir, manager) = (tempfile::tempdir().unwrap(), Manager::start().await);
    let agent = Running::start(&manager, Store::open(dir.path()).unwrap(), Vec::new());
    let start = agent.run_one(&manager).await;
    agent.tell(running()).await;
    manager.event("it runs", |e| matches!(e, Event::Running { .. })).await;
    agent.nodes.send_modify(|nodes| {
        nodes[0].unready = true;
        nodes.push(NodeSpec { name: "m".into(), unready: false, ..nodes[0].clone() });
    });
    agent
        .stage
        .until("move", |t| *t == Told::Move(JOB, fence(1), 1, vec!["m".into(); start.placement.len()]))
        .await;
    agent.tell(RunnerEvent::Moved { uid: JOB, fence: fence(1), number: 1 }).await;
    manager
        .event(
            "where it is",
            |e| matches!(e, Event::Running { placement: Some(told), .. } if told.to_string() == "main: m 2"),
        )
        .await;
    assert_eq!(agent.stage.starts(), 1);
    agent.tell(RunnerEvent::Moved { uid: JOB, fence: fence(1), number: 1 }).await;
    agent.nodes.send_modify(|nodes| nodes[1].unready = true);
    agent.stage.until("stop", |t| *t == Told::Stop(JOB, fence(1))).await;
    agent.tell(ended(RunResult::Stopped)).await;
    manager
        .event(
            "it ended",
            |e| matches!(e, Event::Ended(end) if matches!(end.result, EndResult::NodeLost { .. })),
        )
        .await;
    let metrics = agent.metrics.text();
    for count in ["gangs_moved_total 1", "pods_moved_total 2", "gangs_stranded_total 1"]
        .map(|line| line.replace(' ', r#"{runner="stage"} "#))
    {
        assert!(metrics.contains(&format!("meridian_agent_{count}\n")), "{count} in {metrics}");
    }
    agent.exit().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gang_shrinks_once_and_the_next_session_orders_it_again() {
    let (dir, manager) = (tempfile::tempdir().unwrap(), Manager::start().await);
    let agent = Running::start(&manager, Store::open(dir.path()).unwrap(), Vec::new());
    agent.run_one(&manager).await;
    agent.tell(running()).await;
    manager.event("it runs", |e| matches!(e, Event::Running { .. })).await;
    let size = Size { parallelism: 1, completions: Some(1) };
    for _ in 0..2 {
        manager.command(meridian_shared::protocol::Command::Shrink { uid: JOB, fence: fence(1), size });
    }
    agent.stage.until("shrink", |t| *t == Told::Shrink(JOB, fence(1), size)).await;
    agent.tell(RunnerEvent::Spare { uid: JOB, fence: fence(1), places: vec![("main".into(), 1)] }).await;
    let told = manager
        .until("a place is free", |book| book.requests.iter().find_map(|r| r.spare.first().cloned()))
        .await;
    assert_eq!((told.uid, told.pods["main"]), (JOB, 1));
    assert_eq!(agent.stage.told.lock().unwrap().iter().filter(|t| matches!(t, Told::Shrink(..))).count(), 1);
    agent.exit().await.unwrap();

    let found =
        Found { uid: JOB, fence: fence(1), nodes: Vec::new(), state: FoundState::Running { failures: 0 } };
    let agent = Running::start(&manager, Store::open(dir.path()).unwrap(), vec![found]);
    agent.stage.until("the runner may not know", |t| *t == Told::Shrink(JOB, fence(1), size)).await;
    agent.exit().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_and_repeated_answers_start_nothing_twice() {
    let (dir, manager) = (tempfile::tempdir().unwrap(), Manager::start().await);
    let agent = Running::start(&manager, Store::open(dir.path()).unwrap(), Vec::new());
    manager.command(offer(1, JOB, 2));
    manager.event("the offer is held", |e| matches!(e, Event::Held { .. })).await;
    manager.with(|book| book.lose = 3);
    manager.command(grant(1, JOB));
    agent.stage.until("start", |t| matches!(t, Told::Start(..))).await;
    assert_eq!(manager.with(|book| book.lose), 0, "it got through only after the losses");
    manager.with(|book| book.repeat = 3);
    agent.tell(running()).await;
    manager.event("it runs", |e| matches!(e, Event::Running { .. })).await;
    manager.until("answers were repeated", |book| (book.repeat == 0).then_some(())).await;
    manager.command(grant(1, JOB));
    manager
        .until("a repeated grant is answered with what it is", |book| {
            (book.events.iter().filter(|e| matches!(e, Event::Running { .. })).count() >= 2).then_some(())
        })
        .await;
    assert_eq!(agent.stage.starts(), 1);
    assert!(manager.with(|book| book.events.iter().all(|e| !matches!(e, Event::GrantRefused { .. }))));
    agent.exit().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_leadership_gets_the_inventory_and_an_old_one_nothing() {
    let (dir, manager) = (tempfile::tempdir().unwrap(), Manager::start().await);
    let agent = Running::start(&manager, Store::open(dir.path()).unwrap(), Vec::new());
    agent.run_one(&manager).await;
    agent.tell(running()).await;
    manager.event("it runs", |e| matches!(e, Event::Running { .. })).await;
    manager.with(|book| book.refuse = Some((2, SyncRefusal::NotLeading)));
    let newer = Leadership { epoch: 2, id: 9 };
    manager.lead(newer);
    let inventory = manager
        .until("the new leadership has an inventory", |book| {
            book.inventories.iter().find(|i| i.for_leadership == Some(newer)).cloned()
        })
        .await;
    assert!(inventory.runs.len() == 1 && inventory.runs[0].running, "{inventory:?}");
    assert_eq!(inventory.receipts.len(), 2);

    manager.lead(Leadership { epoch: 1, id: 8 });
    manager.command(meridian_shared::protocol::Command::Stop {
        uid: JOB,
        fence: fence(1),
        reason: StopReason::Cancelled,
    });
    let seen = manager.with(|book| book.requests.len());
    manager.until("two more syncs", |book| (book.requests.len() > seen + 2).then_some(())).await;
    assert!(manager.with(|book| book.requests.iter().skip(seen).all(|r| r.follows == Some(newer))));
    assert!(
        agent.stage.told.lock().unwrap().iter().all(|t| !matches!(t, Told::Stop(..))),
        "an older leadership stops nothing"
    );
    agent.exit().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_is_confirmed_when_the_runner_has_seen_the_end() {
    let (dir, manager) = (tempfile::tempdir().unwrap(), Manager::start().await);
    let agent = Running::start(&manager, Store::open(dir.path()).unwrap(), Vec::new());
    agent.run_one(&manager).await;
    manager.command(meridian_shared::protocol::Command::Stop {
        uid: JOB,
        fence: fence(1),
        reason: StopReason::Cancelled,
    });
    agent.stage.until("stop", |t| *t == Told::Stop(JOB, fence(1))).await;
    assert!(manager.with(|book| book.events.iter().all(|e| !matches!(e, Event::Ended(_)))));
    agent.tell(ended(RunResult::Stopped)).await;
    manager
        .event(
            "it is confirmed",
            |e| matches!(e, Event::Ended(end) if end.result == meridian_shared::protocol::EndResult::Stopped),
        )
        .await;
    agent.exit().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restarted_agent_takes_up_what_runs() {
    let (dir, manager) = (tempfile::tempdir().unwrap(), Manager::start().await);
    let agent = Running::start(&manager, Store::open(dir.path()).unwrap(), Vec::new());
    agent.run_one(&manager).await;
    agent.tell(running()).await;
    manager.event("it runs", |e| matches!(e, Event::Running { .. })).await;
    agent.exit().await.unwrap();

    let found =
        Found { uid: JOB, fence: fence(1), nodes: Vec::new(), state: FoundState::Running { failures: 0 } };
    let agent = Running::start(&manager, Store::open(dir.path()).unwrap(), vec![found]);
    let second = Session { counter: 2, id: 99 };
    let said = manager
        .until("the second session has spoken", |book| {
            book.requests.iter().rev().find(|r| r.session == second && r.capacity.is_some()).cloned()
        })
        .await;
    assert_eq!(said.ledger, LedgerId(5));
    let free: i64 =
        said.capacity.unwrap().blocks.iter().map(|b| b.free["nvidia.com/gpu"] * i64::from(b.nodes)).sum();
    assert_eq!(free, 2, "its room is still taken");
    manager.with(|book| book.renewals = vec![(JOB, fence(1))]);
    agent.stage.until("the lease goes on", |t| matches!(t, Told::Renew(..))).await;
    assert_eq!(agent.stage.starts(), 0);
    agent.exit().await.unwrap();

    // What the runner has no more is stopped, so that its name is taken, and reported as lost.
    let agent = Running::start(&manager, Store::open(dir.path()).unwrap(), Vec::new());
    agent.stage.until("the lost run is stopped", |t| *t == Told::Stop(JOB, fence(1))).await;
    agent.tell(ended(RunResult::Stopped)).await;
    manager
        .event("it is reported lost", |e| matches!(e, Event::Ended(end) if matches!(end.result, meridian_shared::protocol::EndResult::NodeLost { .. })))
        .await;
    agent.exit().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_that_is_not_renewed_ends_the_run_in_time() {
    let (dir, manager) = (tempfile::tempdir().unwrap(), Manager::start().await);
    let agent = Running::start(&manager, Store::open(dir.path()).unwrap(), Vec::new());
    let start = agent.run_one(&manager).await;
    agent.tell(running()).await;
    manager.event("it runs", |e| matches!(e, Event::Running { .. })).await;
    assert!(agent.stage.told.lock().unwrap().iter().all(|t| !matches!(t, Told::Stop(..))));
    // A minute's term, less the stop budget of a quarter, has gone by.
    agent.ahead.store(45_000, Ordering::Relaxed);
    agent.stage.until("stop at the lapse", |t| *t == Told::Stop(JOB, start.fence)).await;
    manager.with(|book| book.renewals = vec![(JOB, fence(1))]);
    agent.tell(ended(RunResult::Stopped)).await;
    manager.event("it lapsed", |e| matches!(e, Event::Ended(end) if end.result == meridian_shared::protocol::EndResult::LeaseLapsed)).await;
    assert!(
        agent.stage.told.lock().unwrap().iter().all(|t| !matches!(t, Told::Renew(..))),
        "a lease whose stop began is never revived"
    );
    agent.exit().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_commit_starts_nothing_says_nothing_and_ends_the_agent() {
    let manager = Manager::start().await;
    let (store, faults) = crate::store::disk::store().unwrap();
    let agent = Running::start(&manager, store, Vec::new());
    manager.command(offer(1, JOB, 2));
    manager.event("the offer is held", |e| matches!(e, Event::Held { .. })).await;
    faults.full.store(true, Ordering::Relaxed);
    manager.command(grant(1, JOB));
    let Running { stage, server, logs, .. } = agent;
    let error = tokio::time::timeout(PATIENCE, server).await.unwrap().unwrap().unwrap_err();
    logs.abort();
    assert!(error.to_string().contains("the disk is full"), "{error}");
    assert_eq!(stage.starts(), 0);
    assert!(manager.with(|book| book.events.iter().all(|e| !matches!(e, Event::Accepted { .. }))));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pause_during_the_commit_counts_for_the_start_that_waited_for_it() {
    let manager = Manager::start().await;
    let (store, faults) = crate::store::disk::store().unwrap();
    let agent = Running::start_on(&manager, store, Vec::new(), Arc::clone(&faults.paused));
    manager.command(offer(1, JOB, 2));
    manager.event("the offer is held", |e| matches!(e, Event::Held { .. })).await;
    faults.pause.store(60_000, Ordering::Relaxed);
    manager.command(grant(1, JOB));
    let Told::Start(start, decided) = agent.stage.until("start", |t| matches!(t, Told::Start(..))).await
    else {
        unreachable!("asked for a start")
    };
    let (guard, now) = (Deadline::new(start.deadline, start.stop_budget, decided), (agent.clock)());
    assert!(
        guard.stop_at(now) <= now.mono,
        "a term has passed since the grant was judged, and its pods may still start"
    );
    agent.stage.until("stop", |t| *t == Told::Stop(JOB, fence(1))).await;
    agent.exit().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_huge_fleet_of_which_every_node_has_a_label_of_its_own_syncs() {
    let (dir, manager) = (tempfile::tempdir().unwrap(), Manager::start().await);
    let agent = Running::start(&manager, Store::open(dir.path()).unwrap(), Vec::new());
    agent.nodes.send_modify(|nodes| {
        let label = |i| BTreeMap::from([("asset".to_owned(), format!("{i:0300}"))]);
        let node = |i| NodeSpec { name: format!("n{i}"), labels: label(i), ..nodes[0].clone() };
        *nodes = (0..30_000).map(node).collect();
    });
    let request = manager
        .until("what fits is told", |book| {
            book.requests
                .iter()
                .find(|r| r.capacity.as_ref().is_some_and(|c| c.blocks.len() > 1_000))
                .cloned()
        })
        .await;
    let capacity = serde_json::to_vec(&request.capacity).unwrap().len();
    assert!(capacity < meridian_shared::protocol::CAPACITY_BYTES_MAX + 1_024, "{capacity} bytes");
    manager.command(offer(1, JOB, 2));
    manager.event("the offer is held", |e| matches!(e, Event::Held { .. })).await;
    agent.exit().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_superseded_agent_ends() {
    let (dir, manager) = (tempfile::tempdir().unwrap(), Manager::start().await);
    manager.with(|book| {
        book.refuse = Some((u32::MAX, SyncRefusal::Superseded { by: Session { counter: 3, id: 1 } }))
    });
    let agent = Running::start(&manager, Store::open(dir.path()).unwrap(), Vec::new());
    assert_eq!(
        tokio::time::timeout(PATIENCE, agent.server).await.unwrap().unwrap().unwrap(),
        Exit::Superseded
    );
    agent.logs.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn logs_go_to_whoever_asked_and_refusals_in_words() {
    use meridian_shared::logs::LogRequest;
    let (dir, manager) = (tempfile::tempdir().unwrap(), Manager::start().await);
    let agent = Running::start(&manager, Store::open(dir.path()).unwrap(), Vec::new());
    agent.run_one(&manager).await;
    let ask = |id, uid| LogRequest { id, uid, fence: None, pod: Some(1), follow: true, tail_lines: None };
    manager.with(|book| {
        book.log_requests = vec![
            ask(1, JOB),
            LogRequest { pod: None, tail_lines: Some(2), ..ask(2, JOB) },
            ask(3, Uid(9)),
            LogRequest { fence: Some(fence(4)), ..ask(4, Uid(9)) },
        ];
    });
    let logs =
        manager.until("all are answered", |book| (book.logs.len() == 4).then(|| book.logs.clone())).await;
    assert_eq!(logs[&1], ("application/octet-stream".into(), "one\ntwo\nthree\n".into()));
    assert_eq!(logs[&2].1, "[0] two\n[0] three\n");
    for (id, says) in [(3, "no attempt of workload"), (4, "under fence `1-7-4`")] {
        assert!(logs[&id].0 == "application/json" && logs[&id].1.contains(says), "{:?}", logs[&id]);
    }
    agent.exit().await.unwrap();
}
