//! The whole agent with a fake manager and a fake runner: real HTTP, a real store, no sleeps.

use super::*;
use crate::guard::lease::Deadline;
use crate::logs;
use crate::uplink::Link;
use meridian_agent_core::HoldSettings;
use meridian_agent_core::durable::Durable;
use meridian_agent_core::runtime::{Found, FoundState, Start};
use meridian_shared::gang::Amounts;
use meridian_shared::ids::{Leadership, Session, Uid};
use meridian_shared::planted::Planted;
use meridian_shared::protocol::{Command, EndResult, Event, RunnerKind, Size, StopReason, SyncRefusal};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::watch;

mod fake_runner;
mod manager;

use fake_runner::{FakeRunner, Order};
use manager::{Manager, PATIENCE, fence, grant, offer};

const JOB: Uid = Uid(0x51);

/// One running agent.
struct Running {
    runner: FakeRunner,
    events: mpsc::Sender<RunnerEvent>,
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
    async fn start(manager: &Manager, store: Store, found: Vec<Found>) -> Self {
        Self::start_on(manager, store, found, Arc::default()).await
    }

    /// On a machine with pauses, in milliseconds, that only its wall clock shows.
    async fn start_on(manager: &Manager, store: Store, found: Vec<Found>, paused: Arc<AtomicU64>) -> Self {
        crate::install_crypto();
        let runner = FakeRunner::new(found);
        let (events, runner_events) = mpsc::channel(16);
        let (provider_sender, provider_events) = mpsc::unbounded_channel();
        let (query_sender, log_queries) = mpsc::channel(4);
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
        let logs = tokio::spawn(logs::serve(link.clone(), query_sender, 1));
        let config = Config {
            cluster: "eu".into(),
            runner: RunnerKind::Simulated,
            guarded: true,
            located: None,
            boot: 1,
            replacement_wait: Millis(0),
            holds: HoldSettings::default(),
            managed: meridian_shared::managed::ManagedResources::default(),
            planted: Planted::NONE,
        };
        let node = NodeSpec {
            name: "n".into(),
            capacity: Amounts::from([("nvidia.com/gpu".into(), 4)]),
            ..NodeSpec::default()
        };
        let (nodes, followed) = watch::channel(vec![node]);
        let stop = CancellationToken::new();
        let metrics = Metrics::new("fake", "eu");
        let parts = Parts {
            config,
            store,
            runner: Box::new(runner.clone()),
            runner_events,
            provider: Box::new(crate::provider::StaticProvider::new(provider_sender)),
            provider_events,
            holds: None,
            hold_events: mpsc::unbounded_channel().1,
            nodes: followed,
            unavailable_kinds: watch::channel(BTreeMap::new()).1,
            uplink: Uplink::new(link, 3),
            log_queries,
            metrics: Arc::clone(&metrics),
            clock: Arc::clone(&clock),
            random: 99,
            stop: stop.clone(),
        };
        let server = Server::open(parts, LedgerId(5)).await.unwrap();
        Self { runner, events, nodes, metrics, ahead, clock, stop, server: tokio::spawn(server.run()), logs }
    }

    /// Offers and grants one gang, and waits until it was started.
    async fn run_one(&self, manager: &Manager) -> Start {
        manager.command(offer(1, JOB, 2));
        manager.event("the offer is held", |e| matches!(e, Event::Held { .. })).await;
        manager.command(grant(1, JOB));
        let Order::Start(start, _) = self.runner.until("start", |t| matches!(t, Order::Start(..))).await
        else {
            unreachable!("only a start matches")
        };
        *start
    }

    async fn report(&self, event: RunnerEvent) {
        self.events.send(event).await.unwrap();
    }

    async fn exit(self) -> Result<Exit, Error> {
        self.stop.cancel();
        self.logs.abort();
        tokio::time::timeout(PATIENCE, self.server).await.expect("it ends on request").unwrap()
    }
}

fn running() -> RunnerEvent {
    RunnerEvent::Running { uid: JOB, fence: fence(1) }
}

fn ended(result: EndResult) -> RunnerEvent {
    RunnerEvent::Ended { uid: JOB, fence: fence(1), result, pod_failures: 0, ran: Millis(5) }
}

fn stored(dir: &Path) -> Durable {
    let pairs = Store::open(dir).unwrap().load().unwrap();
    Durable::load(pairs.iter().map(|(k, v)| (k.as_str(), v.as_str()))).unwrap().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gang_is_held_granted_run_and_ended() {
    let (dir, manager) = (tempfile::tempdir().unwrap(), Manager::start().await);
    let agent = Running::start(&manager, Store::open(dir.path()).unwrap(), Vec::new()).await;
    manager.until("the first inventory", |state| state.inventories.first().cloned()).await;
    let start = agent.run_one(&manager).await;
    assert_eq!((start.uid, start.fence, start.placement.len()), (JOB, fence(1), 2));
    assert_eq!(
        start.placement.iter().flat_map(|p| p.accelerators["nvidia.com/gpu"].clone()).collect::<Vec<_>>(),
        [0, 1]
    );
    assert!(start.deadline.is_some() && start.stop_budget == Millis::secs(15));
    manager.event("the grant is accepted", |e| matches!(e, Event::Accepted { .. })).await;

    agent.report(running()).await;
    manager.event("it runs", |e| matches!(e, Event::Running { .. })).await;
    manager.with(|state| state.renewals = vec![(JOB, fence(1))]);
    agent
        .runner
        .until("the lease is renewed", |t| matches!(t, Order::Renew(_, _, later) if *later > start.lapses()))
        .await;
    agent.report(ended(EndResult::Succeeded)).await;
    manager.event("it ended", |e| matches!(e, Event::Ended(end) if end.ran == Millis(5))).await;
    // The acknowledgement was applied when a later request shows it.
    let acknowledged = manager.with(|state| state.transmissions.len() as u64);
    manager
        .until("the end is acknowledged", |state| {
            state.requests.last().filter(|r| r.answered > acknowledged && r.events.is_empty()).cloned()
        })
        .await;
    assert_eq!(agent.runner.starts(), 1);
    assert_eq!(agent.exit().await.unwrap(), Exit::Requested);
    let durable = stored(dir.path());
    let tombstones = durable.tombstones();
    assert!(tombstones.len() == 1 && tombstones.values().all(|t| t.acknowledged.is_some()), "{tombstones:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pods_of_a_failed_node_move_and_are_reported() {
    let (dir, manager) = (tempfile::tempdir().unwrap(), Manager::start().await);
    let agent = Running::start(&manager, Store::open(dir.path()).unwrap(), Vec::new()).await;
    let start = agent.run_one(&manager).await;
    agent.report(running()).await;
    manager.event("it runs", |e| matches!(e, Event::Running { .. })).await;
    agent.nodes.send_modify(|nodes| {
        nodes[0].unready = true;
        nodes.push(NodeSpec { name: "m".into(), unready: false, ..nodes[0].clone() });
    });
    agent
        .runner
        .until("move", |t| *t == Order::Move(JOB, fence(1), 1, vec!["m".into(); start.placement.len()]))
        .await;
    agent.report(RunnerEvent::Moved { uid: JOB, fence: fence(1), number: 1 }).await;
    manager
        .event("the new placement", |e| {
            matches!(e, Event::Running { placement: Some(placed), .. } if placed.to_string() == "main: m \
                                                                                                     2")
        })
        .await;
    assert_eq!(agent.runner.starts(), 1);
    agent.report(RunnerEvent::Moved { uid: JOB, fence: fence(1), number: 1 }).await;
    agent.nodes.send_modify(|nodes| nodes[1].unready = true);
    agent.runner.until("stop", |t| *t == Order::Stop(JOB, fence(1))).await;
    agent.report(ended(EndResult::Stopped)).await;
    manager
        .event(
            "it ended",
            |e| matches!(e, Event::Ended(end) if matches!(end.result, EndResult::NodeLost { .. })),
        )
        .await;
    let metrics = agent.metrics.text();
    for count in ["gangs_moved_total 1", "pods_moved_total 2", "gangs_stranded_total 1"]
        .map(|line| line.replace(' ', r#"{cluster="eu",runner="fake"} "#))
    {
        assert!(metrics.contains(&format!("meridian_agent_{count}\n")), "{count} in {metrics}");
    }
    agent.exit().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_scale_down_is_ordered_again_by_the_next_session() {
    let (dir, manager) = (tempfile::tempdir().unwrap(), Manager::start().await);
    let agent = Running::start(&manager, Store::open(dir.path()).unwrap(), Vec::new()).await;
    agent.run_one(&manager).await;
    agent.report(running()).await;
    manager.event("it runs", |e| matches!(e, Event::Running { .. })).await;
    let size = Size { parallelism: 1, completions: Some(1) };
    for _ in 0..2 {
        manager.command(Command::ScaleDown { uid: JOB, fence: fence(1), size });
    }
    agent.runner.until("scale down", |t| *t == Order::ScaleDown(JOB, fence(1), size)).await;
    agent
        .report(RunnerEvent::Reclaimable { uid: JOB, fence: fence(1), places: vec![("main".into(), 1)] })
        .await;
    let report = manager
        .until("a reclaimable pod", |state| state.requests.iter().find_map(|r| r.spare.first().cloned()))
        .await;
    assert_eq!((report.uid, report.pods["main"]), (JOB, 1));
    assert_eq!(
        agent.runner.orders.lock().unwrap().iter().filter(|t| matches!(t, Order::ScaleDown(..))).count(),
        1
    );
    agent.exit().await.unwrap();

    let found = Found {
        uid: JOB,
        fence: fence(1),
        nodes: Vec::new(),
        completed: meridian_shared::indexes::Indexes::default(),
        state: FoundState::Live { running: true },
    };
    let agent = Running::start(&manager, Store::open(dir.path()).unwrap(), vec![found]).await;
    agent.runner.until("the runner may not know", |t| *t == Order::ScaleDown(JOB, fence(1), size)).await;
    agent.exit().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_and_repeated_answers_start_nothing_twice() {
    let (dir, manager) = (tempfile::tempdir().unwrap(), Manager::start().await);
    let agent = Running::start(&manager, Store::open(dir.path()).unwrap(), Vec::new()).await;
    manager.command(offer(1, JOB, 2));
    manager.event("the offer is held", |e| matches!(e, Event::Held { .. })).await;
    manager.with(|state| state.lose = 3);
    manager.command(grant(1, JOB));
    agent.runner.until("start", |t| matches!(t, Order::Start(..))).await;
    assert_eq!(manager.with(|state| state.lose), 0, "the start came only after the lost answers");
    manager.with(|state| state.repeat = 3);
    agent.report(running()).await;
    manager.event("it runs", |e| matches!(e, Event::Running { .. })).await;
    manager.until("answers were repeated", |state| (state.repeat == 0).then_some(())).await;
    manager.command(grant(1, JOB));
    manager
        .until("a repeated grant is answered with what it is", |state| {
            (state.events.iter().filter(|e| matches!(e, Event::Running { .. })).count() >= 2).then_some(())
        })
        .await;
    assert_eq!(agent.runner.starts(), 1);
    assert!(manager.with(|state| state.events.iter().all(|e| !matches!(e, Event::GrantRefused { .. }))));
    agent.exit().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_a_newer_leadership_gets_the_inventory() {
    let (dir, manager) = (tempfile::tempdir().unwrap(), Manager::start().await);
    let agent = Running::start(&manager, Store::open(dir.path()).unwrap(), Vec::new()).await;
    agent.run_one(&manager).await;
    agent.report(running()).await;
    manager.event("it runs", |e| matches!(e, Event::Running { .. })).await;
    manager.with(|state| state.refuse = Some((2, SyncRefusal::NotLeading)));
    let newer = Leadership { epoch: 2, id: 9 };
    manager.lead(newer);
    let inventory = manager
        .until("the new leadership has an inventory", |state| {
            state.inventories.iter().find(|i| i.for_leadership == Some(newer)).cloned()
        })
        .await;
    assert!(inventory.runs.len() == 1 && inventory.runs[0].running, "{inventory:?}");
    assert_eq!(inventory.receipts.len(), 2);

    manager.lead(Leadership { epoch: 1, id: 8 });
    manager.command(Command::Stop { uid: JOB, fence: fence(1), reason: StopReason::Cancelled });
    let seen = manager.with(|state| state.requests.len());
    manager.until("two more syncs", |state| (state.requests.len() > seen + 2).then_some(())).await;
    assert!(manager.with(|state| state.requests.iter().skip(seen).all(|r| r.follows == Some(newer))));
    assert!(
        agent.runner.orders.lock().unwrap().iter().all(|t| !matches!(t, Order::Stop(..))),
        "an older leadership stops nothing"
    );
    agent.exit().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_is_confirmed_after_the_end() {
    let (dir, manager) = (tempfile::tempdir().unwrap(), Manager::start().await);
    let agent = Running::start(&manager, Store::open(dir.path()).unwrap(), Vec::new()).await;
    agent.run_one(&manager).await;
    manager.command(Command::Stop { uid: JOB, fence: fence(1), reason: StopReason::Cancelled });
    agent.runner.until("stop", |t| *t == Order::Stop(JOB, fence(1))).await;
    assert!(manager.with(|state| state.events.iter().all(|e| !matches!(e, Event::Ended(_)))));
    agent.report(ended(EndResult::Stopped)).await;
    manager
        .event("it is confirmed", |e| matches!(e, Event::Ended(end) if end.result == EndResult::Stopped))
        .await;
    agent.exit().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restarted_agent_adopts_its_runs() {
    let (dir, manager) = (tempfile::tempdir().unwrap(), Manager::start().await);
    let agent = Running::start(&manager, Store::open(dir.path()).unwrap(), Vec::new()).await;
    agent.run_one(&manager).await;
    agent.report(running()).await;
    manager.event("it runs", |e| matches!(e, Event::Running { .. })).await;
    agent.exit().await.unwrap();

    let found = Found {
        uid: JOB,
        fence: fence(1),
        nodes: Vec::new(),
        completed: meridian_shared::indexes::Indexes::default(),
        state: FoundState::Live { running: true },
    };
    let agent = Running::start(&manager, Store::open(dir.path()).unwrap(), vec![found]).await;
    let second = Session { counter: 2, id: 99 };
    let said = manager
        .until("the second session has spoken", |state| {
            state.requests.iter().rev().find(|r| r.session == second && r.capacity.is_some()).cloned()
        })
        .await;
    assert_eq!(said.ledger, LedgerId(5));
    let free: i64 =
        said.capacity.unwrap().blocks.iter().map(|b| b.free["nvidia.com/gpu"] * i64::from(b.nodes)).sum();
    assert_eq!(free, 2, "its allocation is still charged");
    manager.with(|state| state.renewals = vec![(JOB, fence(1))]);
    agent.runner.until("the lease continues", |t| matches!(t, Order::Renew(..))).await;
    assert_eq!(agent.runner.starts(), 0);
    agent.exit().await.unwrap();

    // A run that the runner does not have is stopped, so that its name is occupied, and reported as lost.
    let agent = Running::start(&manager, Store::open(dir.path()).unwrap(), Vec::new()).await;
    agent.runner.until("the lost run is stopped", |t| *t == Order::Stop(JOB, fence(1))).await;
    agent.report(ended(EndResult::Stopped)).await;
    manager
        .event(
            "it is reported lost",
            |e| matches!(e, Event::Ended(end) if matches!(end.result, EndResult::NodeLost { .. })),
        )
        .await;
    agent.exit().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lapsing_lease_stops_the_run_in_time() {
    let (dir, manager) = (tempfile::tempdir().unwrap(), Manager::start().await);
    let agent = Running::start(&manager, Store::open(dir.path()).unwrap(), Vec::new()).await;
    let start = agent.run_one(&manager).await;
    agent.report(running()).await;
    manager.event("it runs", |e| matches!(e, Event::Running { .. })).await;
    assert!(agent.runner.orders.lock().unwrap().iter().all(|t| !matches!(t, Order::Stop(..))));
    // The term of a minute, less the stop budget of a quarter, is over.
    agent.ahead.store(45_000, Ordering::Relaxed);
    agent.runner.until("stop at the lapse", |t| *t == Order::Stop(JOB, start.fence)).await;
    manager.with(|state| state.renewals = vec![(JOB, fence(1))]);
    agent.report(ended(EndResult::Stopped)).await;
    manager
        .event("it lapsed", |e| matches!(e, Event::Ended(end) if end.result == EndResult::LeaseLapsed))
        .await;
    assert!(
        agent.runner.orders.lock().unwrap().iter().all(|t| !matches!(t, Order::Renew(..))),
        "a lease is never revived after its stop began"
    );
    agent.exit().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_commit_ends_the_agent_without_effects() {
    let manager = Manager::start().await;
    let (store, faults) = crate::store::disk::store().unwrap();
    let agent = Running::start(&manager, store, Vec::new()).await;
    manager.command(offer(1, JOB, 2));
    manager.event("the offer is held", |e| matches!(e, Event::Held { .. })).await;
    faults.full.store(true, Ordering::Relaxed);
    manager.command(grant(1, JOB));
    let Running { runner, server, logs, .. } = agent;
    let error = tokio::time::timeout(PATIENCE, server).await.unwrap().unwrap().unwrap_err();
    logs.abort();
    assert!(error.to_string().contains("the disk is full"), "{error}");
    assert_eq!(runner.starts(), 0);
    assert!(manager.with(|state| state.events.iter().all(|e| !matches!(e, Event::Accepted { .. }))));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pause_during_the_commit_shortens_the_lease() {
    let manager = Manager::start().await;
    let (store, faults) = crate::store::disk::store().unwrap();
    let agent = Running::start_on(&manager, store, Vec::new(), Arc::clone(&faults.paused)).await;
    manager.command(offer(1, JOB, 2));
    manager.event("the offer is held", |e| matches!(e, Event::Held { .. })).await;
    faults.pause.store(60_000, Ordering::Relaxed);
    manager.command(grant(1, JOB));
    let Order::Start(start, decided) = agent.runner.until("start", |t| matches!(t, Order::Start(..))).await
    else {
        unreachable!("only a start matches")
    };
    let (guard, now) = (Deadline::new(start.lapses(), start.stop_budget, decided), (agent.clock)());
    assert!(
        guard.stop_at(now) <= now.mono,
        "a term has passed since the grant was checked, and its pods may still start"
    );
    agent.runner.until("stop", |t| *t == Order::Stop(JOB, fence(1))).await;
    agent.exit().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_huge_fleet_with_unique_labels_syncs() {
    let (dir, manager) = (tempfile::tempdir().unwrap(), Manager::start().await);
    let agent = Running::start(&manager, Store::open(dir.path()).unwrap(), Vec::new()).await;
    agent.nodes.send_modify(|nodes| {
        let label = |i| BTreeMap::from([("asset".to_owned(), format!("{i:0300}"))]);
        let node = |i| NodeSpec { name: format!("n{i}"), labels: label(i), ..nodes[0].clone() };
        *nodes = (0..30_000).map(node).collect();
    });
    let request = manager
        .until("a bounded report", |state| {
            state
                .requests
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
    manager.with(|state| {
        state.refuse = Some((u32::MAX, SyncRefusal::Superseded { by: Session { counter: 3, id: 1 } }))
    });
    let agent = Running::start(&manager, Store::open(dir.path()).unwrap(), Vec::new()).await;
    assert_eq!(
        tokio::time::timeout(PATIENCE, agent.server).await.unwrap().unwrap().unwrap(),
        Exit::Superseded
    );
    agent.logs.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn logs_and_refusals_are_sent() {
    use meridian_shared::logs::LogRequest;
    let (dir, manager) = (tempfile::tempdir().unwrap(), Manager::start().await);
    let agent = Running::start(&manager, Store::open(dir.path()).unwrap(), Vec::new()).await;
    agent.run_one(&manager).await;
    let ask = |id, uid| LogRequest { id, uid, fence: None, pod: Some(1), follow: true, tail_lines: None };
    manager.with(|state| {
        state.log_requests = vec![
            ask(1, JOB),
            LogRequest { pod: None, tail_lines: Some(2), ..ask(2, JOB) },
            ask(3, Uid(9)),
            LogRequest { fence: Some(fence(4)), ..ask(4, Uid(9)) },
        ];
    });
    let logs =
        manager.until("all are answered", |state| (state.logs.len() == 4).then(|| state.logs.clone())).await;
    assert_eq!(logs[&1], ("application/octet-stream".into(), "one\ntwo\nthree\n".into()));
    assert_eq!(logs[&2].1, "[0] two\n[0] three\n");
    for (id, says) in [(3, "no attempt of workload"), (4, "under fence `1-7-4`")] {
        assert!(logs[&id].0 == "application/json" && logs[&id].1.contains(says), "{:?}", logs[&id]);
    }
    agent.exit().await.unwrap();
}
