//! The loops around the audit log's segments, with a real engine and files.

use super::super::announce::ensure;
use super::super::health;
use super::*;
use crate::audit::directory::AuditDirectory;
use crate::audit::keeper::Retention;
use crate::engine::{Options, StartMode};
use crate::journal::RedbJournal;
use crate::journal::faulty::{Faults, FaultyDisk};
use crate::metrics::Metrics;
use axum::body::Body;
use axum::http::{Request, StatusCode};
use meridian_manager_core::Config;
use meridian_manager_core::facts::input::PutMode;
use meridian_shared::mac::ReceiptKey;
use meridian_shared::time::Wall;
use serde_json::json;
use std::fs;
use std::io::{self, Write};
use std::sync::{Mutex, PoisonError};
use tower::ServiceExt as _;

const ID: JournalId = JournalId(1);
/// Three or four lines.
const SMALL: Retention = Retention { segment_bytes: 1_000, segments_max: None, bytes_max: None };
/// Passes soon after each other, and damaged segments more often still.
const OFTEN: Schedule = Schedule {
    first: Duration::from_millis(20),
    pass: Duration::from_millis(400),
    recheck: Duration::from_millis(20),
};
/// Reached only if a test fails.
const DEADLINE: Duration = Duration::from_secs(30);

/// The lines that a thread has logged.
#[derive(Clone, Default)]
struct Logged(Arc<Mutex<Vec<u8>>>);

impl Logged {
    fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().unwrap_or_else(PoisonError::into_inner)).into_owned()
    }
}

impl Write for Logged {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

async fn readyz(engine: &Handle) -> (StatusCode, String) {
    let request = Request::get("/readyz").body(Body::empty()).unwrap();
    let answer = health::router(engine.clone(), Vec::new()).oneshot(request).await.unwrap();
    let code = answer.status();
    let text = axum::body::to_bytes(answer.into_body(), usize::MAX).await.unwrap();
    (code, String::from_utf8(text.to_vec()).unwrap())
}

/// Waits until the probe's answer has this beginning.
async fn until_ready_says(engine: &Handle, beginning: &str) -> String {
    let began = Instant::now();
    loop {
        let (code, text) = readyz(engine).await;
        assert_eq!(code, StatusCode::OK, "a leader stays in service: {text}");
        if text.starts_with(beginning) {
            return text;
        }
        assert!(began.elapsed() < DEADLINE, "it says `{text}` instead of `{beginning}`");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

fn has_metric(engine: &Handle, line: &str) -> bool {
    engine.metrics().render(&[]).lines().any(|other| other == line)
}

/// Files that can't be read count as damaged too.
async fn unreadable_files_are_reported(engine: &Handle, directory: &AuditDirectory, logged: &Logged) {
    let segment = directory.segments().unwrap().remove(0);
    let intact = fs::read(&segment.path).unwrap();
    fs::remove_file(&segment.path).unwrap();
    // reads of a directory fail, as those of a bad sector do
    fs::create_dir(&segment.path).unwrap();
    until_ready_says(engine, "degraded: segment 1 of the audit log is damaged or missing").await;
    fs::remove_dir(&segment.path).unwrap();
    fs::write(&segment.path, &intact).unwrap();
    until_ready_says(engine, "ok").await;
    let statement = directory.path().join("removed.json");
    fs::write(&statement, "[").unwrap();
    until_ready_says(engine, "degraded: `removed.json` of the audit log is damaged").await;
    assert!(has_metric(engine, "meridian_journal_damaged{part=\"audit\"} 1"));
    assert!(logged.text().contains("the statement on removed segments of the audit log is damaged"));
    fs::remove_file(&statement).unwrap();
    until_ready_says(engine, "ok").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn damage_of_a_finished_segment_is_reported_without_a_restart() {
    let data = tempfile::tempdir().unwrap();
    let journal = RedbJournal::init_on(FaultyDisk::new(1, 1, Faults::default()), ID, Wall(0)).unwrap();
    let options = Options {
        config: Config::new(ReceiptKey([7; 32])),
        start: StartMode::Init,
        clock: Arc::new(BootClock),
        marks: None,
        metrics: Metrics::new("0"),
        traces: false,
    };
    let (engine, running) = crate::engine::start(Box::new(journal), options).unwrap();
    tokio::time::timeout(DEADLINE, engine.led()).await.unwrap();
    let key = Arc::new(SigningKey::load_or_create(data.path()).unwrap());
    let directory = AuditDirectory::new(&data.path().join("audit"));
    let stop = CancellationToken::new();
    let run = AuditRun { engine: engine.clone(), runtime: runtime::Handle::current(), stop: stop.clone() };
    let mut keeper = Keeper::new(directory.clone(), Arc::clone(&key), (engine.journal(), ID), SMALL).unwrap();
    let mut scrub = SegmentScrub::new(directory.clone(), key.public(), engine.journal());
    let (keeps, verifies, logged) = (run.clone(), run, Logged::default());
    let writer = logged.clone();
    let tasks = [
        tokio::task::spawn_blocking(move || keeps.keep(&mut keeper)),
        tokio::task::spawn_blocking(move || {
            let log = tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone());
            tracing::subscriber::with_default(log.finish(), || verifies.verify(&mut scrub, OFTEN));
        }),
    ];

    let role = |number: u32| {
        let metadata = json!({"name": format!("role-{number}")});
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": metadata,
            "rules": [],
        })
    };
    assert!(ensure(&engine, (0..20).map(role).collect(), PutMode::Create).await, "each is a line");
    let began = Instant::now();
    while engine.journal().audit_cut().unwrap().segments < 2 {
        assert!(began.elapsed() < DEADLINE, "no segments");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    until_ready_says(&engine, "ok").await;
    assert!(has_metric(&engine, "meridian_journal_damaged{part=\"audit\"} 0"));

    let segment = directory.segments().unwrap().remove(0);
    let intact = fs::read(&segment.path).unwrap();
    let mut damaged = intact.clone();
    // in the first line after the opening
    damaged[intact.iter().position(|byte| *byte == b'\n').unwrap() + 50] ^= 1;
    fs::write(&segment.path, damaged).unwrap();
    until_ready_says(&engine, "degraded: segment 1 of the audit log is damaged or missing").await;
    assert!(has_metric(&engine, "meridian_journal_damaged{part=\"audit\"} 1"));
    let log = logged.text();
    let said = ["a segment of the audit log is damaged", "segment=1", "its lines don't match its seal"];
    assert!(log.lines().any(|line| said.iter().all(|what| line.contains(what))), "{log}");

    fs::write(&segment.path, intact).unwrap();
    until_ready_says(&engine, "ok").await;
    assert!(has_metric(&engine, "meridian_journal_damaged{part=\"audit\"} 0"));

    unreadable_files_are_reported(&engine, &directory, &logged).await;

    stop.cancel();
    for task in tasks {
        task.await.unwrap();
    }
    drop(engine);
    tokio::task::spawn_blocking(move || running.stop()).await.unwrap().unwrap();
}
