//! A hostile agent with a real certificate: it floods the manager with everything it can send, and stalls
//! connections. Other agents must not be affected: leases are renewed, gangs start and end, memory and
//! journal stay bounded.

use super::fleet::{KUBECONFIG, MANAGER, TERM};
use super::gangs::{self, Dice, JOBS};
use super::leases::{ENDLESS_RUN_MS, job, run_one, start_fleet};
use super::rest::RestClient;
use super::sandbox::{Sandbox, wait_until};
use futures::stream::{self, StreamExt as _};
use meridian_shared::ids::{Fence, LedgerId, OfferId, Session, Uid};
use meridian_shared::protocol::{
    Capacity, Digest, EVENTS_MAX, Event, Lane, PodReport, RunnerKind, SyncRequest, VERSION,
};
use reqwest::Body;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::Instant;

/// Duration of the flood: more than two lease terms.
const FLOOD_FOR: Duration = Duration::from_secs(20);
/// Concurrent senders, each with its own connection.
const SENDERS: u64 = 12;
/// Connections that never send, and bodies that never end.
const SILENT: usize = 200;
const STALLED: usize = 100;
/// Gangs on other clusters during the flood, one at a time.
const GANGS: usize = 12;
/// Time limit for a trivial gang while the flood keeps both cores busy.
const END_WITHIN: Duration = Duration::from_secs(20);
/// By then the manager has checked its invariants once.
const RECOUNTED_AFTER: Duration = Duration::from_secs(75);
/// Memory limit of a manager of three small clusters under any load.
const MEMORY_MAX_MIB: u64 = 600;
const JOURNAL_MAX_MIB: u64 = 64;

/// The hostile agent's connections, with its own identity.
struct HostileAgent {
    http: reqwest::Client,
    url: String,
}

impl HostileAgent {
    /// From the identity in an agent's data directory.
    fn of(dir: &Path) -> Self {
        let text = std::fs::read_to_string(dir.join("identity.json")).unwrap();
        let identity: Value = serde_json::from_str(&text).unwrap();
        let field = |name: &str| identity[name].as_str().unwrap().to_owned();
        let pem = format!("{}{}", field("certificate_pem"), field("key_pem"));
        let http = reqwest::Client::builder()
            .no_proxy()
            .tls_certs_only(reqwest::Certificate::from_pem_bundle(field("ca_pem").as_bytes()).unwrap())
            .identity(reqwest::Identity::from_pem(pem.as_bytes()).unwrap())
            .build()
            .unwrap();
        Self { http, url: format!("{}/agent/v1/sync", field("manager")) }
    }

    /// The status of the answer; `None` if the connection was closed.
    async fn post(&self, body: impl Into<Body>) -> Option<u16> {
        let answer = self
            .http
            .post(&self.url)
            .header("content-type", "application/json")
            .body(body)
            .send()
            .await
            .ok()?;
        Some(answer.status().as_u16())
    }
}

fn fence(dice: &mut Dice) -> Fence {
    Fence { epoch: dice.below(u64::MAX), leadership: dice.below(u64::MAX), counter: dice.below(u64::MAX) }
}

fn uid(dice: &mut Dice) -> Uid {
    Uid(u128::from(dice.below(u64::MAX)) << 64 | u128::from(dice.below(u64::MAX)))
}

/// A well-formed request with invented content.
fn made_up(dice: &mut Dice, transmission: u64) -> SyncRequest {
    let offer = |f: Fence| OfferId { epoch: f.epoch, leadership: f.leadership, counter: f.counter };
    let event = |dice: &mut Dice| match dice.below(3) {
        0 => Event::Held { offer: offer(fence(dice)), uid: uid(dice) },
        1 => Event::Running { uid: uid(dice), fence: fence(dice), placement: None },
        _ => Event::Gone { offer: offer(fence(dice)), uid: uid(dice), expired: true },
    };
    let events: Vec<Event> = (0..EVENTS_MAX).map(|_| event(dice)).collect();
    // A changing ledger id pretends to be another agent's life.
    let life = dice.below(40);
    SyncRequest {
        version: VERSION,
        ledger: LedgerId(u128::from(life)),
        session: Session { counter: transmission, id: dice.below(u64::MAX) },
        transmission,
        lane: if dice.below(2) == 0 { Lane::Poll } else { Lane::News },
        follows: None,
        answered: dice.below(u64::MAX),
        commands_through: dice.below(u64::MAX),
        events_from: 1,
        events_last: events.len() as u64,
        events,
        digest: Digest(dice.below(u64::MAX)),
        inventory: None,
        capacity: Some(Capacity {
            version: transmission,
            runner: RunnerKind::Process,
            guarded: true,
            ..Capacity::default()
        }),
        spare: vec![PodReport {
            uid: uid(dice),
            fence: fence(dice),
            pods: BTreeMap::from([("main".to_owned(), u32::MAX)]),
            failures: u32::MAX,
            completed: meridian_shared::indexes::Indexes::default(),
        }],
        supports_scale_down: true,
        supports_scale_up: true,
        supports_priority: true,
    }
}

/// One sender: requests, garbage, and bodies that are too large. Returns the number of answers by status.
async fn flood(agent: HostileAgent, seed: u64, end: Instant) -> BTreeMap<Option<u16>, u64> {
    let (mut dice, mut got, mut sent) = (Dice::new(3, seed), BTreeMap::new(), 0);
    while Instant::now() < end {
        sent += 1;
        let body = match dice.below(8) {
            0 => "{".repeat(5_000).into_bytes(),
            1 => vec![b'['; 12 << 20],
            2 => b"\xff\xfe{}".to_vec(),
            _ => serde_json::to_vec(&made_up(&mut dice, sent)).unwrap(),
        };
        *got.entry(agent.post(body).await).or_insert(0) += 1;
    }
    got
}

fn memory_mib(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() / 1_024
}

async fn ends(rest: &RestClient, number: usize) {
    wait_until("a gang on another cluster ends", END_WITHIN, async || {
        let status = job(rest, number).await?["status"]["meridian"].clone();
        if status["state"] == "Finished" { Ok(()) } else { Err(status.to_string()) }
    })
    .await;
}

/// Everything that the hostile agent does at once.
struct Flood {
    senders: JoinSet<BTreeMap<Option<u16>, u64>>,
    stalled: JoinSet<Option<u16>>,
    _silent: Vec<TcpStream>,
}

impl Flood {
    async fn start(dir: &Path, end: Instant) -> Self {
        let mut senders = JoinSet::new();
        for seed in 0..SENDERS {
            senders.spawn(flood(HostileAgent::of(dir), seed, end));
        }
        let url = HostileAgent::of(dir).url;
        let address = url.trim_start_matches("https://").split('/').next().unwrap();
        let mut silent = Vec::new();
        for _ in 0..SILENT {
            silent.push(TcpStream::connect(address).await.unwrap());
        }
        let mut stalled = JoinSet::new();
        for _ in 0..STALLED {
            let agent = HostileAgent::of(dir);
            let begun = stream::once(async { Ok::<_, std::io::Error>(b"{\"version\":1,".to_vec()) });
            stalled.spawn(async move { agent.post(Body::wrap_stream(begun.chain(stream::pending()))).await });
        }
        Self { senders, stalled, _silent: silent }
    }

    /// Waits for the senders; returns the number of answers by status.
    async fn end(mut self) -> BTreeMap<Option<u16>, u64> {
        let mut answers = BTreeMap::new();
        for got in self.senders.join_all().await {
            got.into_iter().for_each(|(status, n)| *answers.entry(status).or_insert(0) += n);
        }
        self.stalled.abort_all();
        answers
    }
}

/// Checks that the manager refused what it must; returns the number of requests.
fn check_answers(answers: &BTreeMap<Option<u16>, u64>) -> u64 {
    let sent: u64 = answers.values().sum();
    assert!(sent > 200, "too few requests: {answers:?}");
    let expected: BTreeSet<Option<u16>> =
        [None, Some(200), Some(400), Some(408), Some(413), Some(429), Some(503)].into();
    assert!(answers.keys().all(|status| expected.contains(status)), "{answers:?}");
    assert!(
        answers.get(&Some(429)).is_some_and(|refused| *refused > 0),
        "an agent that sends too much is refused: {answers:?}"
    );
    sent
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "starts real processes for minutes: cargo test -p meridian --test real -- --ignored"]
async fn a_flooding_agent_delays_no_other_cluster() {
    let sandbox = Sandbox::create(KUBECONFIG).await;
    let began = Instant::now();
    let (mut fleet, rest, proofs) = start_fleet(&sandbox).await;
    let dir = fleet.agent_dir("asia");
    fleet.kill_for_good("asia").await;
    let lasting = run_one(&sandbox, &rest, 0, ENDLESS_RUN_MS, &proofs).await;
    assert_ne!(lasting, "asia");

    let end = Instant::now() + FLOOD_FOR;
    let flood = Flood::start(&dir, end).await;

    // Other clusters continue to work.
    let mut number = 1;
    while Instant::now() < end || number <= GANGS {
        let (status, made) = rest.post(JOBS, &gangs::lasting(number, 100, &proofs)).await.unwrap();
        assert_eq!(status, 201, "{made}");
        ends(&rest, number).await;
        assert_eq!(rest.get("/readyz").await.unwrap().0, 200);
        number += 1;
    }
    let status = job(&rest, 0).await.unwrap()["status"]["meridian"].clone();
    assert!(
        status["state"] == "Running" && status["attempts"] == 1,
        "its lease was renewed over {FLOOD_FOR:?}, {TERM:?} each: {status}"
    );

    let answers = flood.end().await;
    let sent = check_answers(&answers);

    let memory = memory_mib(fleet.pid(MANAGER));
    assert!(memory <= MEMORY_MAX_MIB, "the manager takes {memory} MiB");
    let journal = std::fs::metadata(sandbox.path("manager/journal.redb")).unwrap().len() >> 20;
    assert!(journal <= JOURNAL_MAX_MIB, "its journal takes {journal} MiB");
    // The manager checks its invariants once a minute.
    tokio::time::sleep_until(began + RECOUNTED_AFTER).await;
    let metrics = rest.text("/metrics").await.unwrap();
    let broken = metrics.lines().find(|line| line.starts_with("meridian_invariant_violations_total"));
    assert!(broken.is_some_and(|line| line.ends_with(" 0")), "{broken:?}");
    assert_eq!(sandbox.log_lines("panicked"), []);
    assert_eq!(gangs::overlaps(&proofs), "");
    eprintln!(
        "{sent} requests in {FLOOD_FOR:?}: {answers:?}; {} gangs; {memory} MiB, journal {journal} MiB",
        number - 1
    );

    let deleted = sandbox.meridian(&["delete", "job", &gangs::name(0), "--wait"]).await;
    assert_eq!(deleted.code, Some(0), "{deleted:?}");
    fleet.stop().await;
    sandbox.assert_nothing_left().await;
}
