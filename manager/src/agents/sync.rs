//! One transmission of an agent: taken by the engine, answered after the commit, parked when there is nothing to say.

use super::{Agents, Failure, agent, json_of, parsed, read};
use crate::tls::Peer;
use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use dashmap::DashMap;
use meridian_manager_core::input::{Input, Reply};
use meridian_shared::ids::{ClusterName, Session};
use meridian_shared::protocol::{BODY_BYTES_MAX, Lane, SyncRequest};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;

/// Where agents sync.
pub const SYNC_PATH: &str = "/agent/v1/sync";

/// Polls that are parked: one per cluster at most, the newest.
#[derive(Debug, Default)]
pub(super) struct Polls {
    parked: Arc<DashMap<ClusterName, (u64, CancellationToken)>>,
    next: AtomicU64,
}

/// A parked poll; gives its place back when it is dropped.
struct Parked {
    cluster: ClusterName,
    number: u64,
    replaced: CancellationToken,
    polls: Arc<DashMap<ClusterName, (u64, CancellationToken)>>,
}

impl Polls {
    /// Parks, in place of an older poll of this cluster. The engine has admitted the newer one, so the older belongs to the
    /// same session, or to one that counts no more.
    fn park(&self, cluster: &ClusterName) -> Parked {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let replaced = CancellationToken::new();
        if let Some((_, older)) = self.parked.insert(cluster.clone(), (number, replaced.clone())) {
            older.cancel();
        }
        Parked { cluster: cluster.clone(), number, replaced, polls: Arc::clone(&self.parked) }
    }
}

impl Drop for Parked {
    fn drop(&mut self) {
        self.polls.remove_if(&self.cluster, |_, (number, _)| *number == self.number);
    }
}

pub(super) async fn sync(State(agents): State<Arc<Agents>>, Extension(peer): Extension<Peer>, body: Body) -> Result<Response, Failure> {
    let cluster = agent(&peer)?.cluster.clone();
    let _permit = agents.budgets.enter(&cluster)?;
    let started = Instant::now();
    let request: SyncRequest = parsed(&read(body, BODY_BYTES_MAX).await?)?;
    let lane = match request.lane {
        Lane::Poll => "poll",
        Lane::News => "news",
    };
    let answered = exchange(&agents, cluster.clone(), request).await;
    let metrics = agents.parts.engine.metrics();
    // The name is from a certificate of ours, and the lane from a closed list.
    metrics.sync_requests.inc([cluster.as_str(), lane]);
    metrics.sync_seconds.took([lane], started.elapsed());
    answered
}

async fn exchange(agents: &Agents, cluster: ClusterName, request: SyncRequest) -> Result<Response, Failure> {
    let engine = &agents.parts.engine;
    let (session, transmission, may_park) = (request.session, request.transmission, request.lane == Lane::Poll);
    // Before the engine looks, so that a wake right after it looked isn't missed.
    let mut wake = engine.wakes().listen(&cluster);
    match engine.ask(Input::Sync { cluster: cluster.clone(), request: Box::new(request), may_park }).await? {
        Reply::Sync(answer) => return Ok(json_of(&*answer)),
        Reply::Park => {}
        _ => return Err(unexpected()),
    }
    let parked = agents.polls.park(&cluster);
    let again = |why: &str| Failure::new(StatusCode::SERVICE_UNAVAILABLE, why.to_owned());
    tokio::select! {
        () = wake.woken() => {}
        () = tokio::time::sleep(Duration::from_millis(agents.parts.poll.0)) => {}
        () = parked.replaced.cancelled() => return Err(again("a newer poll of this agent took this one's place")),
        () = agents.parts.stop.cancelled() => return Err(again("the manager is shutting down: try again in a moment")),
    }
    unpark(agents, cluster, session, transmission).await
}

async fn unpark(agents: &Agents, cluster: ClusterName, session: Session, transmission: u64) -> Result<Response, Failure> {
    match agents.parts.engine.ask(Input::Unpark { cluster, session, transmission }).await? {
        Reply::Sync(answer) => Ok(json_of(&*answer)),
        _ => Err(unexpected()),
    }
}

fn unexpected() -> Failure {
    Failure::new(StatusCode::INTERNAL_SERVER_ERROR, "the engine gave another kind of answer than a sync's: please report this".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_newer_poll_takes_the_place_of_an_older_one_and_only_its_own_is_given_back() {
        let polls = Polls::default();
        let older = polls.park(&"eu".into());
        let other = polls.park(&"us".into());
        let newer = polls.park(&"eu".into());
        assert!(older.replaced.is_cancelled() && !newer.replaced.is_cancelled() && !other.replaced.is_cancelled());
        drop(older);
        assert_eq!(polls.parked.len(), 2, "the newer one stays");
        drop((newer, other));
        assert!(polls.parked.is_empty());
    }
}
