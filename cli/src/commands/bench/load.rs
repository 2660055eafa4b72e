//! Clients that submit: as fast as answers come, or on a schedule that no slow answer delays.

use super::shapes;
use crate::client::Client;
use crate::error::Error;
use crate::kubeconfig::Access;
use meridian_objects::Kind;
use serde_json::Value;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::Instant;

/// Clients at once, each with a connection of its own.
pub(super) const CLIENTS: u64 = 8;
/// Jobs in one request.
pub(super) const BATCH: u64 = 100;
/// A send that is this late was late by the bench's own fault, and is counted.
const LATE: Duration = Duration::from_millis(10);

/// What the jobs of one run are.
#[derive(Clone, Debug)]
pub(super) struct Kinds {
    /// First part of their names.
    pub(super) run: String,
    /// Of their shapes.
    pub(super) seed: u64,
    /// How long each runs, simulated.
    pub(super) length: &'static str,
}

impl Kinds {
    fn job(&self, number: u64) -> Value {
        shapes::job(self.seed, &self.run, number, self.length)
    }
}

/// When clients stop.
#[derive(Clone, Debug)]
pub(super) enum Enough {
    /// At a moment.
    At(Instant),
    /// After so many jobs.
    Jobs(u64),
}

/// What was acknowledged.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sent {
    pub(super) jobs: u64,
    /// From the first send to the last answer.
    pub(super) took: Duration,
}

/// Sends batches from all clients, each its next as soon as its last was answered. `room` is asked before each batch, and
/// a client waits while it says no.
pub(super) async fn batches(
    access: &Access,
    kinds: &Kinds,
    enough: Enough,
    room: Arc<dyn Fn() -> bool + Send + Sync>,
) -> Result<Sent, Error> {
    let (next, acknowledged) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let mut clients = JoinSet::new();
    let began = Instant::now();
    for _ in 0..CLIENTS {
        let (client, kinds, enough, room) =
            (Client::new(access)?, kinds.clone(), enough.clone(), Arc::clone(&room));
        let (next, acknowledged) = (Arc::clone(&next), Arc::clone(&acknowledged));
        clients.spawn(async move {
            loop {
                while !room() {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                let first = next.fetch_add(BATCH, Ordering::Relaxed);
                let end = match enough {
                    Enough::At(moment) if Instant::now() >= moment => return Ok(()),
                    Enough::At(_) => first + BATCH,
                    Enough::Jobs(jobs) if first >= jobs => return Ok(()),
                    Enough::Jobs(jobs) => jobs.min(first + BATCH),
                };
                let jobs = (first..end).map(|n| kinds.job(n)).collect();
                client.bulk(&jobs).await?;
                acknowledged.fetch_add(end - first, Ordering::Relaxed);
            }
        });
    }
    while let Some(done) = clients.join_next().await {
        done.map_err(|e| Error::Refused(format!("a client broke: {e}")))?
            .map_err(|e: crate::client::Error| Error::from(e))?;
    }
    Ok(Sent { jobs: acknowledged.load(Ordering::Relaxed), took: began.elapsed() })
}

/// A job that was sent on the schedule.
#[derive(Clone, Debug)]
pub(super) struct Scheduled {
    pub(super) name: String,
    /// When it was due, which is what its time counts from.
    pub(super) due: Instant,
}

/// Sends single jobs at `rate` per second for `length`, whatever the answers take. Returns them, and how many were late.
pub(super) async fn on_schedule(
    access: &Access,
    kinds: &Kinds,
    rate: u64,
    length: Duration,
) -> Result<(Vec<Scheduled>, u64), Error> {
    let clients: Vec<Client> = (0..CLIENTS).map(|_| Client::new(access)).collect::<Result<_, _>>()?;
    let count = rate * length.as_secs();
    let jobs: Vec<Value> = (0..count).map(|n| kinds.job(n)).collect();
    let (mut sends, mut sent, mut late) = (JoinSet::new(), Vec::new(), 0);
    let began = Instant::now();
    for (number, job) in jobs.into_iter().enumerate() {
        let due = began + Duration::from_secs_f64(number as f64 / rate as f64);
        tokio::time::sleep_until(due).await;
        late += u64::from(due.elapsed() > LATE);
        let client = clients[number % clients.len()].clone();
        sent.push(Scheduled { name: job["metadata"]["name"].as_str().unwrap_or_default().to_owned(), due });
        sends.spawn(async move { client.create(Kind::Job, Some("default"), &job).await.map(drop) });
    }
    while let Some(done) = sends.join_next().await {
        done.map_err(|e| Error::Refused(format!("a send broke: {e}")))??;
    }
    Ok((sent, late))
}
