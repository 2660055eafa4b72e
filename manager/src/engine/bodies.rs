//! Large bodies (manifests): stored in the journal by content hash, behind a bounded cache, so that
//! structures in memory stay small.

use crate::journal::{self, Reader};
use crate::locks;
use meridian_manager_core::facts::outcome::Bodies;
use meridian_shared::ids::ContentHash;
use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::mem;
use std::sync::{Arc, Mutex};

/// Bytes of bodies kept in memory: about five thousand usual jobs, so that a dispatch soon after the
/// submission needs no read from the disk.
const CACHE_BYTES_MAX: usize = 16 << 20;

/// Committed bodies, readable from any thread.
pub(super) struct BodyStore {
    reader: Arc<dyn Reader>,
    cache: Mutex<Cache>,
    /// Bodies that the commit in progress drops.
    dropping: Mutex<BTreeSet<ContentHash>>,
}

impl fmt::Debug for BodyStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BodyStore").finish_non_exhaustive()
    }
}

/// A cache of recently used bodies in two generations: when the young generation is full, it replaces the old
/// one.
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

/// Result of reading a stored body.
#[derive(Clone, Debug)]
pub(super) enum Body {
    Intact(Arc<str>),
    Missing,
    /// The body fails its check, or isn't the content that its hash names.
    Damaged,
    /// The body can't be read now: the disk fails, or the journal is being read again or closed.
    Unavailable,
}

impl BodyStore {
    pub(super) fn new(reader: Arc<dyn Reader>) -> Self {
        Self { reader, cache: Mutex::default(), dropping: Mutex::default() }
    }

    pub(super) fn reader(&self) -> Arc<dyn Reader> {
        Arc::clone(&self.reader)
    }

    /// A committed body, if it can be read.
    pub(super) fn get(&self, hash: ContentHash) -> Option<Arc<str>> {
        match self.read(hash) {
            Body::Intact(body) => Some(body),
            Body::Missing | Body::Damaged | Body::Unavailable => None,
        }
    }

    /// A committed body, from the cache if possible.
    pub(super) fn read(&self, hash: ContentHash) -> Body {
        if let Some(body) = locks::lock(&self.cache).get(hash) {
            return Body::Intact(body);
        }
        let body = self.read_stored(hash);
        if let Body::Intact(body) = &body {
            self.keep(hash, Arc::clone(body));
        }
        body
    }

    /// A committed body as the journal has it now.
    pub(super) fn read_stored(&self, hash: ContentHash) -> Body {
        match self.reader.body(hash) {
            Ok(Some(bytes)) if ContentHash::of(&bytes) == hash => {
                String::from_utf8(bytes).map_or(Body::Damaged, |text| Body::Intact(text.into()))
            }
            Ok(Some(_)) | Err(journal::Error::Damaged { .. }) => Body::Damaged,
            Ok(None) => Body::Missing,
            Err(error) => {
                tracing::warn!(%hash, %error, "a body can't be read now");
                Body::Unavailable
            }
        }
    }

    /// Caches a committed body.
    pub(super) fn keep(&self, hash: ContentHash, body: Arc<str>) {
        locks::lock(&self.cache).put(hash, body);
    }

    /// Notes the bodies that a commit drops. Until the commit is published, readers that miss them must not
    /// take them for lost.
    pub(super) fn set_dropping(&self, hashes: BTreeSet<ContentHash>) {
        *locks::lock(&self.dropping) = hashes;
    }

    pub(super) fn is_dropping(&self, hash: ContentHash) -> bool {
        locks::lock(&self.dropping).contains(&hash)
    }
}

impl Bodies for BodyStore {
    fn body(&self, hash: ContentHash) -> Option<Arc<str>> {
        self.get(hash)
    }
}

/// Bodies of earlier batches: those of the batch that is being committed, and stored bodies.
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
