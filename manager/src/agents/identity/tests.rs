//! Joins by service account: what a request holds while it is verified, and the budget of its cluster.

use super::super::issuers::tests::{Issuer, trusted, written};
use super::super::log_relay::LogRelay;
use super::super::state::Parts;
use super::*;
use crate::engine::{self, Options, Running, StartMode};
use crate::journal::RedbJournal;
use crate::journal::faulty::{Faults, FaultyDisk};
use crate::metrics::Metrics;
use crate::tls::Authorities;
use meridian_manager_core::Config;
use meridian_shared::ids::JournalId;
use meridian_shared::mac::ReceiptKey;
use meridian_shared::time::{Millis, Wall};
use serde_json::json;
use std::time::{Duration, Instant};

/// Reached only if a test fails.
const DEADLINE: Duration = Duration::from_secs(20);

/// A manager that trusts an issuer for cluster `eu`.
struct Rig {
    agents: Arc<Agents>,
    issuer: Issuer,
    running: Option<Running>,
    _dirs: [tempfile::TempDir; 2],
}

impl Drop for Rig {
    fn drop(&mut self) {
        if let Some(running) = self.running.take() {
            let _ = running.stop();
        }
    }
}

impl Rig {
    async fn new() -> Self {
        let journal = RedbJournal::init_on(FaultyDisk::new(1, 1, Faults::default()), JournalId(1), Wall(0));
        let options = Options {
            config: Config::new(ReceiptKey([7; 32])),
            start: StartMode::Init,
            clock: Arc::new(BootClock),
            marks: None,
            metrics: Metrics::new("0"),
            traces: false,
        };
        let (engine, running) = engine::start(Box::new(journal.unwrap()), options).unwrap();
        tokio::time::timeout(DEADLINE, engine.led()).await.unwrap();
        let issuer = Issuer::new("k1");
        let (keys_dir, keys) = written(&issuer.keys());
        let dir = tempfile::tempdir().unwrap();
        let authorities = Authorities::load_or_create(dir.path(), BootClock.now().wall).unwrap();
        let agents = Agents::new(Parts {
            engine,
            authorities: Arc::new(authorities),
            relay: LogRelay::default(),
            poll: Millis::secs(5),
            certificate_lifetime: Millis::mins(10),
            trusted: vec![trusted(Some(keys))],
            copies: None,
            stop: CancellationToken::new(),
        });
        Self { agents: Arc::new(agents), issuer, running: Some(running), _dirs: [keys_dir, dir] }
    }

    async fn join(&self, token: &str) -> StatusCode {
        let key = rcgen::KeyPair::generate().unwrap();
        let csr_pem = rcgen::CertificateParams::default().serialize_request(&key).unwrap().pem().unwrap();
        let request = IssuerJoinRequest { service_account_token: token.to_owned(), csr_pem };
        let body = Body::from(serde_json::to_vec(&request).unwrap());
        let peer = Peer { addr: ([127, 0, 0, 1], 1).into(), agent: None };
        let joined = join_by_issuer(State(Arc::clone(&self.agents)), Extension(peer), body).await;
        joined.map_or_else(|failure| failure.code, |answer| answer.status())
    }

    fn good(&self) -> String {
        self.issuer.token(&json!({}))
    }
}

#[tokio::test]
async fn a_token_is_verified_before_its_join_takes_a_turn() {
    let rig = Rig::new().await;
    let mut turns = Vec::new();
    while let Ok(Some(turn)) = tokio::time::timeout(DEADLINE / 200, rig.agents.joins.turn()).await {
        turns.push(turn);
    }
    let began = Instant::now();
    let forged = Issuer::new("k2").token(&json!({}));
    assert_eq!(rig.join(&forged).await, StatusCode::FORBIDDEN, "it needs no turn");
    assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
    drop(turns);
    assert_eq!(rig.join(&rig.good()).await, StatusCode::OK);
}

#[tokio::test]
async fn a_join_counts_in_the_budget_of_its_cluster() {
    let rig = Rig::new().await;
    let eu = "eu".into();
    let mut held = Vec::new();
    while let Ok(permit) = rig.agents.enter(&eu) {
        held.push(permit);
    }
    assert_eq!(rig.join(&rig.good()).await, StatusCode::TOO_MANY_REQUESTS);
    let forged = Issuer::new("k1").token(&json!({}));
    assert_eq!(rig.join(&forged).await, StatusCode::FORBIDDEN, "others can't use the budget up");
    drop(held);
    assert_eq!(rig.join(&rig.good()).await, StatusCode::OK);
}
