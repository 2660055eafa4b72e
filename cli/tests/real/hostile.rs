//! An agent gone bad, with a real certificate: it floods the manager with everything that can be sent, and stalls whatever it opens.
//! Nobody else may notice: leases of others are renewed, gangs start and end, the manager's memory and journal stay bounded.

use super::crew::{KUBECONFIG, MANAGER, TERM};
use super::door::Door;
use super::gangs::{self, Dice, JOBS};
use super::leases::{FOR_EVER_MILLIS, job, run_one, set_up};
use super::stage::{Stage, until};
use futures::stream::{self, StreamExt as _};
use meridian_shared::ids::{Fence, LedgerId, OfferId, Session, Uid};
use meridian_shared::protocol::{
    Capacity, Digest, EVENTS_MAX, Event, Lane, RunnerKind, Spare, SyncRequest, VERSION,
};
use reqwest::Body;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::Instant;

/// How long it goes on: others' leases would lapse twice in that time.
const FLOOD_FOR: Duration = Duration::from_secs(20);
/// Those who send without a pause, each on a connection of its own.
const SENDERS: u64 = 12;
/// Connections on which nothing is ever said, and bodies that never end.
const SILENT: usize = 200;
const STALLED: usize = 100;
/// Gangs of others meanwhile, one after another.
const GANGS: usize = 12;
/// From a submission to the end of a gang that does nothing, with both cores as busy as the flood makes them.
const ENDS_WITHIN: Duration = Duration::from_secs(20);
/// By then it has recounted its world once.
const RECOUNTED_AFTER: Duration = Duration::from_secs(75);
/// What a manager of three small clusters takes at most, whatever is thrown at it.
const MEMORY_MAX_MIB: u64 = 600;
const JOURNAL_MAX_MIB: u64 = 64;

/// The bad agent's way to the manager, as itself.
struct Villain {
    http: reqwest::Client,
    url: String,
}

impl Villain {
    /// With what an agent keeps of its identity.
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

    /// What became of it: a status, or none where the connection was closed.
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

/// A request of the right form, in which everything is made up.
fn made_up(dice: &mut Dice, transmission: u64) -> SyncRequest {
    let offer = |f: Fence| OfferId { epoch: f.epoch, leadership: f.leadership, counter: f.counter };
    let event = |dice: &mut Dice| match dice.below(3) {
        0 => Event::Held { offer: offer(fence(dice)), uid: uid(dice) },
        1 => Event::Running { uid: uid(dice), fence: fence(dice), placement: None },
        _ => Event::Gone { offer: offer(fence(dice)), uid: uid(dice), expired: true },
    };
    let events: Vec<Event> = (0..EVENTS_MAX).map(|_| event(dice)).collect();
    // Now and then it is another agent with a life of its own.
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
        spare: vec![Spare {
            uid: uid(dice),
            fence: fence(dice),
            pods: BTreeMap::from([("main".to_owned(), u32::MAX)]),
            failures: u32::MAX,
        }],
        shrinks: true,
        grows: true,
        ranks: true,
    }
}

/// One sender, until the end: requests, garbage, and bodies that are too large. Which answers it got, and how often.
async fn flood(villain: Villain, seed: u64, end: Instant) -> BTreeMap<Option<u16>, u64> {
    let (mut dice, mut got, mut sent) = (Dice::new(3, seed), BTreeMap::new(), 0);
    while Instant::now() < end {
        sent += 1;
        let body = match dice.below(8) {
            0 => "{".repeat(5_000).into_bytes(),
            1 => vec![b'['; 12 << 20],
            2 => b"\xff\xfe{}".to_vec(),
            _ => serde_json::to_vec(&made_up(&mut dice, sent)).unwrap(),
        };
        *got.entry(villain.post(body).await).or_insert(0) += 1;
    }
    got
}

/// Resident memory of a process.
fn memory_mib(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() / 1_024
}

async fn ends(door: &Door, number: usize) {
    until("a gang of somebody else ends", ENDS_WITHIN, async || {
        let status = job(door, number).await?["status"]["meridian"].clone();
        if status["state"] == "Finished" { Ok(()) } else { Err(status.to_string()) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "starts a whole fleet of processes and keeps both cores busy: cargo test -p meridian --test real -- --ignored"]
async fn an_agent_that_floods_and_stalls_delays_nobody_else() {
    let stage = Stage::begin(KUBECONFIG).await;
    let began = Instant::now();
    let (mut crew, door, proofs) = set_up(&stage).await;
    let dir = crew.agent_dir("asia");
    crew.strike("asia").await;
    let lasting = run_one(&stage, &door, 0, FOR_EVER_MILLIS, &proofs).await;
    assert_ne!(lasting, "asia");

    let end = Instant::now() + FLOOD_FOR;
    let mut senders = JoinSet::new();
    for seed in 0..SENDERS {
        senders.spawn(flood(Villain::of(&dir), seed, end));
    }
    let address = Villain::of(&dir).url.trim_start_matches("https://").split('/').next().unwrap().to_owned();
    let mut silent = Vec::new();
    for _ in 0..SILENT {
        silent.push(TcpStream::connect(&address).await.unwrap());
    }
    let mut stalled = JoinSet::new();
    for _ in 0..STALLED {
        let villain = Villain::of(&dir);
        let begun = stream::once(async { Ok::<_, std::io::Error>(b"{\"version\":1,".to_vec()) });
        stalled.spawn(async move { villain.post(Body::wrap_stream(begun.chain(stream::pending()))).await });
    }

    // Others go on as if nothing were.
    let mut number = 1;
    while Instant::now() < end || number <= GANGS {
        let (status, made) = door.post(JOBS, &gangs::lasting(number, 100, &proofs)).await.unwrap();
        assert_eq!(status, 201, "{made}");
        ends(&door, number).await;
        assert_eq!(door.get("/readyz").await.unwrap().0, 200);
        number += 1;
    }
    let status = job(&door, 0).await.unwrap()["status"]["meridian"].clone();
    assert!(
        status["state"] == "Running" && status["attempts"] == 1,
        "its lease was renewed over {FLOOD_FOR:?}, {TERM:?} each: {status}"
    );

    let mut answers: BTreeMap<Option<u16>, u64> = BTreeMap::new();
    for got in senders.join_all().await {
        got.into_iter().for_each(|(status, n)| *answers.entry(status).or_insert(0) += n);
    }
    stalled.abort_all();
    drop(silent);
    let sent: u64 = answers.values().sum();
    assert!(sent > 200, "hardly a flood: {answers:?}");
    let expected: BTreeSet<Option<u16>> =
        [None, Some(200), Some(400), Some(408), Some(413), Some(429), Some(503)].into();
    assert!(answers.keys().all(|status| expected.contains(status)), "{answers:?}");
    assert!(
        answers.get(&Some(429)).is_some_and(|refused| *refused > 0),
        "more than one agent may send is refused: {answers:?}"
    );

    let memory = memory_mib(crew.pid(MANAGER));
    assert!(memory <= MEMORY_MAX_MIB, "the manager takes {memory} MiB");
    let journal = std::fs::metadata(stage.path("manager/journal.redb")).unwrap().len() >> 20;
    assert!(journal <= JOURNAL_MAX_MIB, "its journal takes {journal} MiB");
    // Once a minute the manager recounts all that it knows.
    tokio::time::sleep_until(began + RECOUNTED_AFTER).await;
    let metrics = door.text("/metrics").await.unwrap();
    let broken = metrics.lines().find(|line| line.starts_with("meridian_invariant_violations_total"));
    assert!(broken.is_some_and(|line| line.ends_with(" 0")), "{broken:?}");
    assert_eq!(stage.log_lines("panicked"), []);
    assert_eq!(gangs::overlaps(&proofs), "");
    eprintln!(
        "{sent} requests in {FLOOD_FOR:?}, answered {answers:?}; {} gangs meanwhile; {memory} MiB, a journal of {journal} MiB",
        number - 1
    );

    let deleted = stage.meridian(&["delete", "job", &gangs::name(0), "--wait"]).await;
    assert_eq!(deleted.code, Some(0), "{deleted:?}");
    crew.stop().await;
    stage.nothing_left().await;
}
