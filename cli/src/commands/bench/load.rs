//! Clients that submit jobs: as fast as answers come, or on a schedule that slow answers don't delay.

use super::shapes;
use crate::client::kubeconfig::Access;
use crate::client::{self, Client, CreateOptions};
use crate::error::Error;
use crate::objects::fields::name_of;
use meridian_objects::job::SUBMITTED_KIND;
use serde_json::Value;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::Instant;

/// Concurrent clients, each with its own connection.
pub(super) const CLIENTS: u64 = 8;
/// Jobs per request.
pub(super) const BATCH: u64 = 100;
/// A send that is later than this is reported: the bench was too slow, not the manager.
const LATE: Duration = Duration::from_millis(10);

/// The jobs of one run.
#[derive(Clone, Debug)]
pub(super) struct JobSeries {
    /// Prefix of their names.
    pub(super) prefix: String,
    /// Seed of their shapes.
    pub(super) seed: u64,
    /// Simulated duration of each, such as `1s`.
    pub(super) duration: &'static str,
}

impl JobSeries {
    fn job(&self, number: u64) -> Value {
        shapes::job(self.seed, &self.prefix, number, self.duration)
    }
}

/// When clients stop.
#[derive(Clone, Debug)]
pub(super) enum StopAt {
    Time(Instant),
    Jobs(u64),
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Acknowledged {
    pub(super) jobs: u64,
    /// From the first send to the last answer.
    pub(super) took: Duration,
}

/// Sends batches from all clients; each client sends its next batch as soon as its last one was answered. A
/// client waits while `may_send` is false. Fails if a request does.
pub(super) async fn batches(
    access: &Access,
    series: &JobSeries,
    stop_at: StopAt,
    may_send: Arc<dyn Fn() -> bool + Send + Sync>,
) -> Result<Acknowledged, Error> {
    let (next, acknowledged) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let mut clients = JoinSet::new();
    let began = Instant::now();
    for _ in 0..CLIENTS {
        let (client, series, stop_at) = (Client::new(access)?, series.clone(), stop_at.clone());
        let may_send = Arc::clone(&may_send);
        let (next, acknowledged) = (Arc::clone(&next), Arc::clone(&acknowledged));
        clients.spawn(async move {
            loop {
                while !may_send() {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                let first = next.fetch_add(BATCH, Ordering::Relaxed);
                let end = match stop_at {
                    StopAt::Time(moment) if Instant::now() >= moment => return Ok(()),
                    StopAt::Time(_) => first + BATCH,
                    StopAt::Jobs(jobs) if first >= jobs => return Ok(()),
                    StopAt::Jobs(jobs) => jobs.min(first + BATCH),
                };
                let jobs = (first..end).map(|n| series.job(n)).collect();
                client.bulk(&jobs).await?;
                acknowledged.fetch_add(end - first, Ordering::Relaxed);
            }
        });
    }
    while let Some(done) = clients.join_next().await {
        done.map_err(|e| Error::Refused(format!("a client panicked: {e}")))?
            .map_err(|e: client::Error| Error::from(e))?;
    }
    Ok(Acknowledged { jobs: acknowledged.load(Ordering::Relaxed), took: began.elapsed() })
}

#[derive(Clone, Debug)]
pub(super) struct ScheduledJob {
    pub(super) name: String,
    /// Latency is measured from this time, not from the send, so a late send counts as latency.
    pub(super) due: Instant,
}

/// Sends single jobs at `rate` per second for `length`, however long answers take. Returns them, and how many
/// were sent late. Fails if a request does.
pub(super) async fn on_schedule(
    access: &Access,
    series: &JobSeries,
    rate: u64,
    length: Duration,
) -> Result<(Vec<ScheduledJob>, u64), Error> {
    let clients: Vec<Client> = (0..CLIENTS).map(|_| Client::new(access)).collect::<Result<_, _>>()?;
    let count = rate * length.as_secs();
    let jobs: Vec<Value> = (0..count).map(|n| series.job(n)).collect();
    let (mut sends, mut sent, mut late) = (JoinSet::new(), Vec::new(), 0);
    let began = Instant::now();
    for (number, job) in jobs.into_iter().enumerate() {
        let due = began + Duration::from_secs_f64(number as f64 / rate as f64);
        tokio::time::sleep_until(due).await;
        late += u64::from(due.elapsed() > LATE);
        let client = clients[number % clients.len()].clone();
        sent.push(ScheduledJob { name: name_of(&job).to_owned(), due });
        sends.spawn(async move {
            let options = CreateOptions::default();
            client.create(SUBMITTED_KIND, Some("default"), &job, options).await.map(drop)
        });
    }
    while let Some(done) = sends.join_next().await {
        done.map_err(|e| Error::Refused(format!("a client panicked: {e}")))??;
    }
    Ok((sent, late))
}
