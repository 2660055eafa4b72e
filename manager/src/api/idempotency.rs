//! Results by idempotency key, so that a repeated request gets the first answer.
//!
//! This cache is a convenience, not the guarantee: names derived from the key, and apply mode, make a
//! repetition harmless even after a restart. The cache adds the first result ("created" instead of
//! "unchanged"), and an error for a key that is reused with another body.

use crate::locks;
use bytes::Bytes;
use sha2::{Digest as _, Sha256};
use std::collections::VecDeque;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Most results in the cache.
const KEPT_MAX: usize = 4_096;
/// Bytes of all cached results.
const BYTES_MAX: usize = 64 << 20;
/// How long a result is cached. A later repetition is treated as a new request.
const KEPT_FOR: Duration = Duration::from_secs(60 * 60);

/// The cached result of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CachedResult {
    /// The answer to an earlier, identical request.
    SameRequest(Bytes),
    /// Another request used this key.
    OtherRequest,
}

/// The first answer for each user and key.
#[derive(Debug, Default)]
pub(crate) struct IdempotencyCache(Mutex<VecDeque<CachedAnswer>>);

#[derive(Debug)]
struct CachedAnswer {
    at: Instant,
    user: String,
    key: String,
    request: [u8; 32],
    answer: Bytes,
}

impl IdempotencyCache {
    /// The cached result of this key, if there is one.
    pub(crate) fn find(&self, user: &str, key: &str, request: &[u8]) -> Option<CachedResult> {
        let firsts = locks::lock(&self.0);
        let first = firsts
            .iter()
            .find(|first| first.key == key && first.user == user && first.at.elapsed() < KEPT_FOR)?;
        Some(if first.request == hash(request) {
            CachedResult::SameRequest(first.answer.clone())
        } else {
            CachedResult::OtherRequest
        })
    }

    /// Caches the answer to a request, if its key is new.
    pub(crate) fn insert(&self, user: &str, key: &str, request: &[u8], answer: Bytes) {
        if answer.len() > BYTES_MAX || self.find(user, key, request).is_some() {
            return;
        }
        let mut firsts = locks::lock(&self.0);
        firsts.retain(|first| first.at.elapsed() < KEPT_FOR);
        let mut bytes = answer.len() + firsts.iter().map(|first| first.answer.len()).sum::<usize>();
        while firsts.len() >= KEPT_MAX || bytes > BYTES_MAX {
            let Some(oldest) = firsts.pop_front() else { break };
            bytes -= oldest.answer.len();
        }
        firsts.push_back(CachedAnswer {
            at: Instant::now(),
            user: user.to_owned(),
            key: key.to_owned(),
            request: hash(request),
            answer,
        });
    }
}

fn hash(request: &[u8]) -> [u8; 32] {
    Sha256::digest(request).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_belongs_to_a_user_and_a_request() {
        let cache = IdempotencyCache::default();
        cache.insert("u", "k", b"one", Bytes::from_static(b"first"));
        cache.insert("u", "k", b"one", Bytes::from_static(b"second"));
        assert_eq!(
            cache.find("u", "k", b"one"),
            Some(CachedResult::SameRequest(Bytes::from_static(b"first")))
        );
        assert_eq!(cache.find("u", "k", b"two"), Some(CachedResult::OtherRequest));
        assert_eq!(cache.find("v", "k", b"one"), None);
        assert_eq!(cache.find("u", "l", b"one"), None);
    }

    #[test]
    fn the_oldest_answer_is_evicted_first() {
        let cache = IdempotencyCache::default();
        for i in 0..3 {
            cache.insert("u", &i.to_string(), b"r", Bytes::from(vec![0; BYTES_MAX / 2]));
        }
        assert_eq!(cache.find("u", "0", b"r"), None);
        assert!(cache.find("u", "2", b"r").is_some());
        cache.insert("u", "big", b"r", Bytes::from(vec![0; BYTES_MAX + 1]));
        assert_eq!(cache.find("u", "big", b"r"), None);
    }
}
