//! All objects of a kind as of one version, rendered one by one while they are sent. A listing holds
//! references to stored objects, not views, so its cost hardly depends on the size of the objects.

use super::{Form, Gone, Inner, Reads, StoredObject, View, WatchEventType};
use crate::locks;
use meridian_manager_core::facts::key::Key;
use meridian_manager_core::queue::pending_reasons::PendingReason;
use meridian_objects::Kind;
use meridian_shared::ids::{ClusterName, RecordNumber};
use meridian_views::asker::Asker;
use std::collections::HashMap;
use std::ops::Bound;
use std::sync::{Arc, Mutex};

/// Objects of one kind, in the order of their keys.
#[derive(Debug)]
pub struct Listing {
    inner: Arc<Inner>,
    version: RecordNumber,
    objects: Vec<ListedObject>,
    deletions: Mutex<Deletions>,
}

#[derive(Debug)]
struct ListedObject {
    key: Key,
    entry: Arc<StoredObject>,
    reasons: Option<Arc<PendingReason>>,
}

/// Objects that were deleted since, with the positions of these changes in the ring.
#[derive(Debug)]
struct Deletions {
    known: HashMap<Key, u64>,
    /// The first change that the listing hasn't processed.
    next: u64,
}

impl Reads {
    /// All objects of a kind: of one namespace or of all namespaces, and either global or applied for one
    /// worker cluster.
    pub fn listing(&self, kind: Kind, namespace: Option<&str>, scope: Option<&ClusterName>) -> Listing {
        let from =
            Key { scope: scope.cloned(), kind, namespace: namespace.map(Arc::from), name: Arc::from("") };
        let inside = |key: &Key| {
            key.scope.as_ref() == scope
                && key.kind == kind
                && (namespace.is_none() || key.namespace.as_deref() == namespace)
        };
        let store = self.read();
        let range = store.entries.range((Bound::Included(from), Bound::Unbounded));
        let listed = |(key, entry): (&Key, &Arc<StoredObject>)| ListedObject {
            key: key.clone(),
            entry: Arc::clone(entry),
            reasons: store.pending_reasons(entry),
        };
        let objects = range.take_while(|(key, _)| inside(key)).map(listed).collect();
        self.listed(objects, store.version, store.end())
    }

    /// The listing of one object, which is empty if the object doesn't exist.
    pub fn listing_of(&self, key: &Key) -> Listing {
        let store = self.read();
        let listed = |entry: &Arc<StoredObject>| ListedObject {
            key: key.clone(),
            entry: Arc::clone(entry),
            reasons: store.pending_reasons(entry),
        };
        let objects = store.entries.get(key).map(listed).into_iter().collect();
        self.listed(objects, store.version, store.end())
    }

    fn listed(&self, objects: Vec<ListedObject>, version: RecordNumber, next: u64) -> Listing {
        let deletions = Mutex::new(Deletions { known: HashMap::new(), next });
        Listing { inner: Arc::clone(&self.0), version, objects, deletions }
    }
}

impl Listing {
    /// The version from which to watch.
    pub fn version(&self) -> RecordNumber {
        self.version
    }

    pub fn len(&self) -> usize {
        self.objects.len()
    }

    pub fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    /// The object at a position as it was at the listing's version; `None` beyond the end, and for a job with
    /// a damaged body. Fails if the job was deleted so long ago that its last view is no longer kept.
    pub fn view(&self, at: usize, asker: &Asker) -> Result<Option<Arc<View>>, Gone> {
        let Some(ListedObject { key, entry, reasons }) = self.objects.get(at) else { return Ok(None) };
        if let Some(view) = self.inner.view(key, entry, reasons.as_deref(), asker) {
            return Ok(Some(view));
        }
        let Form::Job(shown) = &entry.form else { return Ok(None) };
        let body = {
            let store = locks::read(&self.inner.store);
            let mut deletions = locks::lock(&self.deletions);
            for at in deletions.next.max(store.first)..store.end() {
                if let Some(change) = store.change(at)
                    && change.event == WatchEventType::Deleted
                    && change.key.kind == key.kind
                {
                    deletions.known.entry(change.key.clone()).or_insert(at);
                }
            }
            deletions.next = store.end();
            match deletions.known.get(key).map(|at| store.change(*at)) {
                Some(Some(deleted)) => match &deleted.entry.form {
                    Form::DeletedJob { body, .. } => body.clone(),
                    _ => None,
                },
                None if store.entries.contains_key(key) => return Ok(None),
                Some(None) | None => return Err(Gone),
            }
        };
        let form = Form::DeletedJob { body, shown: Arc::clone(shown) };
        Ok(self.inner.view(key, &StoredObject { version: entry.version, form }, reasons.as_deref(), asker))
    }
}
