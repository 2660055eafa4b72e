//! The keys of one issuer: when they are read, and which keys are used while they can't be read.
//!
//! Unverified tokens cause these reads, so at most one read runs at a time, and a failed read doesn't discard
//! keys.

use crate::locks;
use jsonwebtoken::jwk::JwkSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::Instant;

/// How long an issuer's keys are used without being read again.
const KEYS_KEPT: Duration = Duration::from_secs(600);
/// How long keys are used while every read fails. A key that an unreadable issuer withdraws stays valid for
/// this long.
const KEYS_KEPT_UNREADABLE: Duration = Duration::from_secs(24 * 3_600);
/// Shortest time between two reads of an issuer's keys, whatever tokens arrive.
const READ_EVERY: Duration = Duration::from_secs(10);
/// Longest time of a read.
const READ_WITHIN: Duration = Duration::from_secs(15);

/// The keys of an issuer, shared by all requests to join.
#[derive(Debug, Default)]
pub(super) struct IssuerKeys {
    known: Mutex<Known>,
    /// Held while the keys are read.
    reading: Arc<tokio::sync::Mutex<()>>,
}

#[derive(Debug, Default)]
struct Known {
    /// The newest keys that could be read, and when.
    keys: Option<(Arc<JwkSet>, Instant)>,
    /// When the newest read ended, and why it failed.
    tried: Option<(Instant, Result<(), String>)>,
}

impl Known {
    /// The keys for a token that names the key `wanted`, or why there are none. `None` if the keys must be
    /// read first.
    fn decide(&self, wanted: Option<&str>, now: Instant) -> Option<Result<Arc<JwkSet>, String>> {
        let kept = |for_long: Duration| {
            let (keys, _) = self.keys.as_ref().filter(|(_, at)| now.duration_since(*at) < for_long)?;
            let has_key = wanted.is_none_or(|id| keys.find(id).is_some());
            has_key.then(|| Ok(Arc::clone(keys)))
        };
        if let Some(found) = kept(KEYS_KEPT) {
            return Some(found);
        }
        let (at, outcome) = self.tried.as_ref()?;
        if now.duration_since(*at) >= READ_EVERY {
            return None;
        }
        Some(match outcome {
            // the issuer doesn't have the token's key; the check of the token will fail
            Ok(()) => Ok(Arc::clone(&self.keys.as_ref()?.0)),
            Err(why) => kept(KEYS_KEPT_UNREADABLE).unwrap_or_else(|| Err(why.clone())),
        })
    }
}

impl IssuerKeys {
    /// The keys for a token that names the key `wanted`. Reads them if that is due; other requests wait for
    /// that read. Fails if there are no keys.
    pub(super) async fn get(
        self: &Arc<Self>,
        wanted: Option<&str>,
        read: impl Future<Output = Result<JwkSet, String>> + Send + 'static,
    ) -> Result<Arc<JwkSet>, String> {
        if let Some(decided) = self.decide(wanted) {
            return decided;
        }
        let turn = Arc::clone(&self.reading).lock_owned().await;
        // another request may have read them meanwhile
        if let Some(decided) = self.decide(wanted) {
            return decided;
        }
        let keys = Arc::clone(self);
        // a separate task, so that a client that goes away doesn't end the read for others that wait
        let reading = tokio::spawn(async move {
            let _turn = turn;
            let outcome = tokio::time::timeout(READ_WITHIN, read).await;
            keys.store(outcome.unwrap_or_else(|_| Err("the issuer doesn't answer".to_owned())));
        });
        let failed = |why: &str| Err(format!("the read ended early: {why}"));
        match reading.await {
            Ok(()) => self.decide(wanted).unwrap_or_else(|| failed("try again")),
            Err(error) => failed(&error.to_string()),
        }
    }

    fn decide(&self, wanted: Option<&str>) -> Option<Result<Arc<JwkSet>, String>> {
        locks::lock(&self.known).decide(wanted, Instant::now())
    }

    fn store(&self, outcome: Result<JwkSet, String>) {
        let (mut known, now) = (locks::lock(&self.known), Instant::now());
        let outcome = outcome.map(|keys| known.keys = Some((Arc::new(keys), now)));
        if let Err(why) = &outcome {
            tracing::warn!(why, "the keys of an issuer can't be read");
        }
        known.tried = Some((now, outcome));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use tokio::sync::Semaphore;
    use tokio::time::advance;

    fn set(id: &str) -> JwkSet {
        let key = json!({"kty": "OKP", "crv": "Ed25519", "kid": id, "x": "AAAA"});
        serde_json::from_value(json!({"keys": [key]})).unwrap()
    }

    async fn read(keys: &Arc<IssuerKeys>, wanted: &str, outcome: Result<&str, &str>) -> Result<(), String> {
        let outcome = outcome.map(set).map_err(str::to_owned);
        let found = keys.get(Some(wanted), async move { outcome }).await?;
        if found.find(wanted).is_some() { Ok(()) } else { Err("not the issuer's".to_owned()) }
    }

    #[tokio::test(start_paused = true)]
    async fn a_failed_read_takes_no_keys_away() {
        let keys = Arc::new(IssuerKeys::default());
        assert_eq!(read(&keys, "a", Err("down")).await, Err("down".to_owned()));
        advance(READ_EVERY).await;
        assert_eq!(read(&keys, "a", Ok("a")).await, Ok(()));
        // an unknown key causes a read, which fails
        advance(READ_EVERY).await;
        assert_eq!(read(&keys, "b", Err("down")).await, Err("down".to_owned()), "no verdict on the token");
        assert_eq!(read(&keys, "a", Err("unused")).await, Ok(()));
        advance(KEYS_KEPT).await;
        assert_eq!(read(&keys, "a", Err("down")).await, Ok(()), "as long as the issuer can't be read");
        advance(KEYS_KEPT_UNREADABLE).await;
        assert_eq!(read(&keys, "a", Err("down")).await, Err("down".to_owned()));
    }

    #[tokio::test(start_paused = true)]
    async fn keys_that_the_issuer_withdrew_are_used_no_longer() {
        let keys = Arc::new(IssuerKeys::default());
        assert_eq!(read(&keys, "a", Ok("a")).await, Ok(()));
        assert_eq!(read(&keys, "b", Ok("unused")).await, Err("not the issuer's".to_owned()));
        advance(KEYS_KEPT).await;
        assert_eq!(read(&keys, "a", Ok("b")).await, Err("not the issuer's".to_owned()));
        assert_eq!(read(&keys, "b", Ok("unused")).await, Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn one_read_runs_at_a_time() {
        let keys = Arc::new(IssuerKeys::default());
        assert_eq!(read(&keys, "a", Ok("a")).await, Ok(()));
        advance(READ_EVERY).await;
        let (reads, answers) = (Arc::new(AtomicUsize::new(0)), Arc::new(Semaphore::new(0)));
        let forged = || {
            let (keys, reads, answers) = (Arc::clone(&keys), Arc::clone(&reads), Arc::clone(&answers));
            tokio::spawn(async move {
                let read = async move {
                    reads.fetch_add(1, Ordering::Relaxed);
                    answers.acquire().await.unwrap().forget();
                    Ok(set("a"))
                };
                keys.get(Some("forged"), read).await
            })
        };
        let first = forged();
        tokio::task::yield_now().await;
        let others: Vec<_> = (0..40).map(|_| forged()).collect();
        tokio::time::sleep(READ_WITHIN / 3).await;
        assert_eq!(read(&keys, "a", Err("unused")).await, Ok(()), "a known key waits for no read");
        // the client of the running read goes away
        first.abort();
        tokio::time::sleep(READ_WITHIN / 3).await;
        answers.add_permits(1);
        for other in others {
            assert!(other.await.unwrap().unwrap().find("forged").is_none());
        }
        assert_eq!(reads.load(Ordering::Relaxed), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_issuer_is_waited_for_within_bounds() {
        let keys = Arc::new(IssuerKeys::default());
        let began = Instant::now();
        let error = keys.get(None, std::future::pending()).await.unwrap_err();
        assert!(error.contains("doesn't answer"), "{error}");
        assert!(began.elapsed() < READ_WITHIN * 2, "{:?}", began.elapsed());
    }
}
