//! Large bodies: in the journal by content hash, behind a bounded cache, so that frequently used structures
//! stay small.

use crate::journal::Reader;
use crate::locks;
use meridian_manager_core::facts::outcome::Bodies;
use meridian_shared::ids::ContentHash;
use std::collections::HashMap;
use std::fmt;
use std::mem;
use std::sync::{Arc, Mutex};

/// Bytes of bodies kept in memory: some ten thousand usual jobs, so that a dispatch soon after its submission
/// needs no read from the disk.
const CACHE_BYTES_MAX: usize = 32 << 20;

/// Committed bodies, readable from any thread.
pub(super) struct BodyStore {
    reader: Arc<dyn Reader>,
    cache: Mutex<Cache>,
}

impl fmt::Debug for BodyStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BodyStore").finish_non_exhaustive()
    }
}

/// Least recently used, in two generations: a full young generation becomes the old one, and the old one is
/// dropped.
#[derive(Default)]
struct Cache {
    young: HashMap<ContentHash, Arc<str>>,
    old: HashMap<ContentHash, Arc<str>>,
    young_bytes: usize,
}

impl Cache {
    fn get(&mut self, hash: ContentHash) -> Option<Arc<str>> {
        if let Some(body) = self.young.get(&hash) {
            return Some(Arc::clone(body));
        }
        let body = self.old.remove(&hash)?;
        self.put(hash, Arc::clone(&body));
        Some(body)
    }

    fn put(&mut self, hash: ContentHash, body: Arc<str>) {
        self.young_bytes += body.len();
        self.young.insert(hash, body);
        if self.young_bytes > CACHE_BYTES_MAX / 2 {
            self.old = mem::take(&mut self.young);
            self.young_bytes = 0;
        }
    }
}

impl BodyStore {
    pub(super) fn new(reader: Arc<dyn Reader>) -> Self {
        Self { reader, cache: Mutex::default() }
    }

    pub(super) fn reader(&self) -> Arc<dyn Reader> {
        Arc::clone(&self.reader)
    }

    /// A committed body. Damage is logged and reads as missing.
    pub(super) fn get(&self, hash: ContentHash) -> Option<Arc<str>> {
        if let Some(body) = locks::lock(&self.cache).get(hash) {
            return Some(body);
        }
        let bytes = match self.reader.body(hash) {
            Ok(bytes) => bytes?,
            Err(error) => {
                tracing::error!(%hash, %error, "a body can't be read");
                return None;
            }
        };
        let body: Arc<str> =
            String::from_utf8(bytes).map_err(|_| tracing::error!(%hash, "a body is not text")).ok()?.into();
        self.keep(hash, Arc::clone(&body));
        Some(body)
    }

    /// Caches a committed body.
    pub(super) fn keep(&self, hash: ContentHash, body: Arc<str>) {
        locks::lock(&self.cache).put(hash, body);
    }
}

impl Bodies for BodyStore {
    fn body(&self, hash: ContentHash) -> Option<Arc<str>> {
        self.get(hash)
    }
}

/// Bodies of earlier batches: of the one that is being committed, and stored ones.
pub(super) struct EarlierBodies<'a> {
    pub(super) committing: &'a HashMap<ContentHash, Arc<str>>,
    pub(super) store: &'a dyn Bodies,
}

impl Bodies for EarlierBodies<'_> {
    fn body(&self, hash: ContentHash) -> Option<Arc<str>> {
        self.committing.get(&hash).cloned().or_else(|| self.store.body(hash))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cache_is_bounded_and_keeps_what_is_used() {
        let mut cache = Cache::default();
        let text: Arc<str> = "x".repeat(1 << 20).into();
        cache.put(ContentHash(0), Arc::clone(&text));
        for n in 1..100 {
            cache.put(ContentHash(n), Arc::clone(&text));
            assert!(cache.get(ContentHash(0)).is_some(), "used all the time, gone after {n}");
        }
        assert!(cache.get(ContentHash(1)).is_none());
        assert!((cache.young.len() + cache.old.len()) << 20 <= CACHE_BYTES_MAX + (2 << 20));
    }
}
