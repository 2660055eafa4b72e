//! First results by idempotency key, so that a repeated request is answered as the first one was.
//!
//! This is a memory, not the promise: names that a key decides and `Apply` make a repetition harmless even after a restart,
//! when nothing is kept here. What it adds are the first words ("created", not "unchanged"), and that a key which comes with
//! another body is a mistake that shows.

use bytes::Bytes;
use sha2::{Digest as _, Sha256};
use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Results kept at most.
const KEPT_MAX: usize = 4_096;
/// Bytes of results kept at most.
const BYTES_MAX: usize = 64 << 20;
/// How long a result is kept; a client that repeats later asks anew.
const KEPT_FOR: Duration = Duration::from_secs(60 * 60);

/// What is remembered of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Known {
    /// The same request had this answer.
    Same(Bytes),
    /// Another request had this key.
    Other,
}

/// First results.
#[derive(Debug, Default)]
pub(crate) struct Kept(Mutex<VecDeque<First>>);

#[derive(Debug)]
struct First {
    at: Instant,
    user: String,
    key: String,
    request: [u8; 32],
    answer: Bytes,
}

impl Kept {
    /// What the first request of this key was.
    pub(crate) fn look(&self, user: &str, key: &str, request: &[u8]) -> Option<Known> {
        let firsts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let first = firsts
            .iter()
            .find(|first| first.key == key && first.user == user && first.at.elapsed() < KEPT_FOR)?;
        Some(if first.request == hash(request) { Known::Same(first.answer.clone()) } else { Known::Other })
    }

    /// Remembers the answer to a request, if its key is new.
    pub(crate) fn keep(&self, user: &str, key: &str, request: &[u8], answer: Bytes) {
        if answer.len() > BYTES_MAX || self.look(user, key, request).is_some() {
            return;
        }
        let mut firsts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        firsts.retain(|first| first.at.elapsed() < KEPT_FOR);
        let mut bytes = answer.len() + firsts.iter().map(|first| first.answer.len()).sum::<usize>();
        while firsts.len() >= KEPT_MAX || bytes > BYTES_MAX {
            let Some(oldest) = firsts.pop_front() else { break };
            bytes -= oldest.answer.len();
        }
        firsts.push_back(First {
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
        let kept = Kept::default();
        kept.keep("u", "k", b"one", Bytes::from_static(b"first"));
        kept.keep("u", "k", b"one", Bytes::from_static(b"second"));
        assert_eq!(kept.look("u", "k", b"one"), Some(Known::Same(Bytes::from_static(b"first"))));
        assert_eq!(kept.look("u", "k", b"two"), Some(Known::Other));
        assert_eq!(kept.look("v", "k", b"one"), None);
        assert_eq!(kept.look("u", "l", b"one"), None);
    }

    #[test]
    fn the_oldest_makes_room() {
        let kept = Kept::default();
        for i in 0..3 {
            kept.keep("u", &i.to_string(), b"r", Bytes::from(vec![0; BYTES_MAX / 2]));
        }
        assert_eq!(kept.look("u", "0", b"r"), None);
        assert!(kept.look("u", "2", b"r").is_some());
        kept.keep("u", "big", b"r", Bytes::from(vec![0; BYTES_MAX + 1]));
        assert_eq!(kept.look("u", "big", b"r"), None);
    }
}
