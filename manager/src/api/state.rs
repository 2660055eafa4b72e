//! State that the handlers share.

use super::access::Authority;
use super::callers::{CallerShares, Share};
use super::front::Front;
use super::idempotency::IdempotencyCache;
use super::lists::{ListLimits, RunningLists};
use super::logs::Logs;
use super::pages::Pages;
use super::requests::RequestShares;
use super::response::error::Error;
use crate::audit::AuditFiles;
use crate::auth::TokenStore;
use crate::engine::Handle;
use dashmap::DashMap;
use meridian_manager_core::facts::input::Input;
use meridian_manager_core::facts::outcome::Reply;
use meridian_shared::ids::ClusterName;
use meridian_shared::logs::STREAMS_MAX;
use std::num::NonZero;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

/// Open watches. Each holds a connection's stream and a position in the engine's ring of changes.
pub(crate) const WATCHES_MAX: usize = 2_000;
/// Open watches of one caller.
pub(crate) const WATCHES_PER_CALLER_MAX: usize = WATCHES_MAX / 4;

/// Readers of the audit log. Each holds a thread while it reads.
pub(crate) const AUDITS_MAX: usize = 32;
pub(crate) const AUDITS_PER_CALLER_MAX: usize = 4;

/// Open logs of one caller from one cluster: a quarter of the [`STREAMS_MAX`] that its agent sends at once.
pub(crate) const LOGS_PER_CALLER_MAX: usize = STREAMS_MAX / 4;

/// Open logs of each cluster, and each caller's share of them. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct OpenLogs(Arc<DashMap<ClusterName, CallerShares<String>>>);

impl OpenLogs {
    /// A place for one log until the returned value is dropped. Otherwise returns how many logs the caller
    /// has open.
    pub(crate) fn take(&self, caller: &str, cluster: &ClusterName) -> Result<Share<String>, usize> {
        let shares = || CallerShares::new(LOGS_PER_CALLER_MAX, STREAMS_MAX);
        let of_cluster = self.0.entry(cluster.clone()).or_insert_with(shares).clone();
        of_cluster.take_one(caller.to_owned())
    }
}

/// State that the handlers share. Clones share it.
#[derive(Clone)]
pub(crate) struct Api {
    pub(crate) handle: Handle,
    pub(crate) authority: Arc<Authority>,
    pub(crate) logs: Arc<dyn Logs>,
    pub(crate) front: Arc<Front>,
    pub(crate) audit: AuditFiles,
    /// Ends watches and logs, which would otherwise never end.
    pub(crate) stop: CancellationToken,
    pub(crate) pages: Arc<Pages>,
    pub(crate) lists: Arc<RunningLists>,
    pub(crate) open_logs: OpenLogs,
    pub(crate) audits: CallerShares<String>,
    pub(crate) idempotency: Arc<IdempotencyCache>,
    pub(crate) watches: CallerShares<String>,
    pub(crate) requests: RequestShares,
    readers: Arc<Semaphore>,
}

impl Api {
    pub(crate) fn new(
        handle: Handle,
        users: TokenStore,
        logs: Arc<dyn Logs>,
        front: Front,
        stop: CancellationToken,
        lists: ListLimits,
        audit: AuditFiles,
    ) -> Self {
        Self {
            authority: Arc::new(Authority::new(users, handle.reads().clone())),
            handle,
            logs,
            front: Arc::new(front),
            audit,
            stop,
            pages: Arc::new(Pages::new(lists.kept_objects)),
            lists: Arc::new(RunningLists::new(lists)),
            open_logs: OpenLogs::default(),
            audits: CallerShares::new(AUDITS_PER_CALLER_MAX, AUDITS_MAX),
            idempotency: Arc::default(),
            watches: CallerShares::new(WATCHES_PER_CALLER_MAX, WATCHES_MAX),
            requests: RequestShares::default(),
            readers: Arc::new(Semaphore::new(std::thread::available_parallelism().map_or(1, NonZero::get))),
        }
    }

    /// Permission to parse many objects. More parsers than cores would only hold more memory and take the
    /// engine's processor time, because touching fresh memory costs more than parsing.
    pub(crate) async fn read_permit(&self) -> OwnedSemaphorePermit {
        Arc::clone(&self.readers).acquire_owned().await.expect("the semaphore is never closed")
    }

    /// Applies an input by the engine. Fails if the manager is unavailable.
    pub(crate) async fn ask(&self, input: Input) -> Result<Reply, Error> {
        self.handle.ask(input).await.map_err(|why| Error::Unavailable(why.to_string()))
    }
}
