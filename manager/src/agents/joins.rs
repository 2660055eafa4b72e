//! Joins in progress, and join tokens that were used recently.

use crate::locks;
use crate::pool::{Member, Pool, PoolLimits};
use crate::tls::Address;
use meridian_manager_core::facts::input::ClusterPlace;
use meridian_shared::identity::{CertificateBinding, KeyHash, TokenHash};
use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Mutex;
use std::time::{Duration, Instant};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio_util::sync::CancellationToken;

/// Requests to join that are read or wait, over all clients. Such clients aren't authenticated yet, so the
/// oldest request is refused when a later one needs its place.
const WAITING: PoolLimits = PoolLimits { total: 256, per_key: 32 };
/// Concurrent joins with a complete request: each checks a signature and waits for a commit.
const JOINS_MAX: usize = 16;
/// Longest wait until one of these joins ends. They take milliseconds.
const TURN_MAX: Duration = Duration::from_secs(5);
/// Most joins that are remembered, so that a join can be repeated if its answer was lost.
const REMEMBERED_MAX: usize = 256;
/// How long a join can be repeated: as long as its printed command is usually valid. Limited, because a key
/// that could repeat its join forever would need no renewals.
const REPEATED_WITHIN: Duration = Duration::from_secs(3_600);

#[derive(Debug)]
pub(super) struct Joins {
    waiting: Pool<Address>,
    at_once: Semaphore,
    used: Mutex<VecDeque<UsedToken>>,
}

#[derive(Clone, Debug)]
struct UsedToken {
    token: TokenHash,
    key: KeyHash,
    joined: Joined,
    at: Instant,
}

/// The outcome of a join.
#[derive(Clone, Debug)]
pub(super) struct Joined {
    pub(super) place: ClusterPlace,
    /// Binding of the agent's certificate.
    pub(super) binding: CertificateBinding,
}

impl Default for Joins {
    fn default() -> Self {
        Self { waiting: Pool::new(WAITING), at_once: Semaphore::new(JOINS_MAX), used: Mutex::default() }
    }
}

impl Joins {
    /// A place among the requests that are read, until the returned value is dropped. `cut` is cancelled if a
    /// later request needs the place.
    pub(super) fn wait(&self, from: IpAddr, cut: CancellationToken) -> Member<Address> {
        self.waiting.enter(Address::of(from), cut).0
    }

    /// Permission for one join with a complete request; `None` if too many are in progress for long.
    pub(super) async fn turn(&self) -> Option<SemaphorePermit<'_>> {
        tokio::time::timeout(TURN_MAX, self.at_once.acquire()).await.ok()?.ok()
    }

    /// The recent join of the same key with this token, if any.
    pub(super) fn repeated(&self, token: &TokenHash, key: &KeyHash) -> Option<Joined> {
        let used = locks::lock(&self.used);
        let recent = used
            .iter()
            .find(|used| used.token == *token && used.key == *key && used.at.elapsed() < REPEATED_WITHIN);
        recent.map(|used| used.joined.clone())
    }

    pub(super) fn remember(&self, token: TokenHash, key: KeyHash, joined: Joined) {
        let mut used = locks::lock(&self.used);
        if used.len() >= REMEMBERED_MAX {
            used.pop_front();
        }
        used.push_back(UsedToken { token, key, joined, at: Instant::now() });
    }
}
