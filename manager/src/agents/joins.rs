//! Joins in progress, and join tokens that were used recently.

use super::state::ClusterPlace;
use crate::locks;
use meridian_shared::identity::{KeyHash, TokenHash};
use std::collections::VecDeque;
use std::sync::Mutex;
use tokio::sync::{Semaphore, SemaphorePermit};

/// Concurrent joins, over all clients: a client that joins has proved nothing about itself yet.
const JOINS_MAX: usize = 16;
/// Remembered joins, so that a join can be repeated if its answer was lost.
const REMEMBERED_MAX: usize = 256;

#[derive(Debug)]
pub(super) struct Joins {
    at_once: Semaphore,
    used: Mutex<VecDeque<UsedToken>>,
}

#[derive(Clone, Debug)]
struct UsedToken {
    token: TokenHash,
    key: KeyHash,
    place: ClusterPlace,
}

impl Default for Joins {
    fn default() -> Self {
        Self { at_once: Semaphore::new(JOINS_MAX), used: Mutex::default() }
    }
}

impl Joins {
    /// Permission for one join; `None` if too many are in progress.
    pub(super) fn try_enter(&self) -> Option<SemaphorePermit<'_>> {
        self.at_once.try_acquire().ok()
    }

    /// The place that the same key got for this token before.
    pub(super) fn repeated(&self, token: &TokenHash, key: &KeyHash) -> Option<ClusterPlace> {
        let used = locks::lock(&self.used);
        used.iter().find(|used| used.token == *token && used.key == *key).map(|used| used.place.clone())
    }

    pub(super) fn remember(&self, token: TokenHash, key: KeyHash, place: ClusterPlace) {
        let mut used = locks::lock(&self.used);
        if used.len() >= REMEMBERED_MAX {
            used.pop_front();
        }
        used.push_back(UsedToken { token, key, place });
    }
}
