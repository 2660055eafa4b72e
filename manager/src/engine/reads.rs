//! Committed objects for readers and watchers, apart from the engine's thread.
//!
//! Most objects are stored as JSON. For jobs and workloads only the facts are stored, and a read renders them
//! together with the job's body: most are never read, and a queue of a million jobs must not hold a million
//! specs. Changes go into one bounded ring in the order of their versions. A watcher that falls behind the
//! ring must list again ([`Gone`], HTTP 410).

mod listing;
#[cfg(test)]
mod tests;

pub use listing::Listing;

use super::bodies::{Body, BodyStore};
use super::scrub::{ScrubRequest, Suspects};
use crate::locks;
use meridian_manager_core::facts::input::ManifestRead;
use meridian_manager_core::facts::key::Key;
use meridian_manager_core::facts::submission::ClassId;
use meridian_manager_core::queue::pending_reasons::Changed;
use meridian_manager_core::queue::pending_reasons::PendingReason;
use meridian_objects::Kind;
use meridian_objects::job::JobKind;
use meridian_shared::ids::{ClusterName, ContentHash, RecordNumber};
use meridian_views::asker::Asker;
use meridian_views::workloads::Shown;
use serde_json::Value;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ops::Bound;
use std::sync::{Arc, RwLock, RwLockReadGuard, RwLockWriteGuard};
use tokio::sync::watch;

/// Most changes in the ring that watchers read.
const RING_CHANGES_MAX: usize = 65_536;
/// Most bytes of changes in the ring.
const RING_BYTES_MAX: usize = 32 << 20;
/// Assumed size of an object that is stored as JSON. Such objects (rules, clusters) are small.
const VALUE_BYTES: usize = 4_096;
/// Assumed size of half the facts about a workload: the job and the `Workload` share them. A change in the
/// ring keeps the whole earlier state of the workload.
const FACTS_BYTES: usize = 2_048;

/// One object as a reader sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct View {
    pub key: Key,
    /// The object's `resourceVersion`.
    pub version: RecordNumber,
    /// The whole object, in the storage version, with its status.
    pub value: Arc<Value>,
}

/// The type of a watch event, as in Kubernetes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchEventType {
    Added,
    Modified,
    Deleted,
}

/// One change of one object.
#[derive(Clone, Debug, PartialEq)]
pub struct WatchEvent {
    pub event: WatchEventType,
    /// The object after the change, or the last view of a deleted one, with the version of its deletion.
    pub view: Arc<View>,
    /// The version after which a watcher may resume. It equals the view's, unless only a count in the
    /// object's status changed.
    pub at: RecordNumber,
}

/// The requested changes are no longer in the ring: list again (HTTP 410).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the changes since this version are no longer kept: list again and watch from the list's version")]
pub struct Gone;

/// One object in the form in which it is stored.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct StoredObject {
    pub(super) version: RecordNumber,
    pub(super) form: Form,
}

/// Changed objects; `None` stands for a deleted one.
pub(super) type ObjectChanges = Vec<(Key, Option<StoredObject>)>;

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Form {
    Value(Arc<Value>),
    Workload(Arc<Shown>),
    Job(Arc<Shown>),
    /// A deleted job, with its last body if it could still be read.
    DeletedJob {
        body: Option<Arc<str>>,
        shown: Arc<Shown>,
    },
}

impl Form {
    fn bytes(&self) -> usize {
        match self {
            Self::Value(_) => VALUE_BYTES,
            Self::Workload(_) | Self::Job(_) => FACTS_BYTES,
            Self::DeletedJob { body, .. } => FACTS_BYTES + body.as_ref().map_or(0, |b| b.len()),
        }
    }
}

#[derive(Debug)]
struct RingEntry {
    at: RecordNumber,
    event: WatchEventType,
    key: Key,
    entry: Arc<StoredObject>,
}

#[derive(Debug, Default)]
struct Store {
    entries: BTreeMap<Key, Arc<StoredObject>>,
    version: RecordNumber,
    ring: VecDeque<Arc<RingEntry>>,
    ring_bytes: usize,
    /// Number of the oldest change in the ring.
    first: u64,
    /// Changes up to this version may be missing from the ring.
    forgotten: RecordNumber,
    /// Why workloads are pending, by class. The reasons change more often than the workloads do.
    pending_reasons: BTreeMap<ClassId, Arc<PendingReason>>,
}

impl Store {
    fn end(&self) -> u64 {
        self.first + self.ring.len() as u64
    }

    /// The change with this number, unless the ring has forgotten it.
    fn change(&self, number: u64) -> Option<&Arc<RingEntry>> {
        self.ring.get(usize::try_from(number.checked_sub(self.first)?).ok()?)
    }

    /// Why the workload of a stored object is pending.
    fn pending_reasons(&self, entry: &StoredObject) -> Option<Arc<PendingReason>> {
        match &entry.form {
            Form::Value(_) => None,
            Form::Workload(shown) | Form::Job(shown) | Form::DeletedJob { shown, .. } => {
                self.pending_reasons.get(&shown.class().0).cloned()
            }
        }
    }

    fn push(&mut self, change: RingEntry) {
        self.ring_bytes += change.entry.form.bytes();
        self.ring.push_back(Arc::new(change));
        while self.ring.len() > RING_CHANGES_MAX || self.ring_bytes > RING_BYTES_MAX {
            let Some(old) = self.ring.pop_front() else { break };
            self.ring_bytes -= old.entry.form.bytes();
            self.forgotten = old.at;
            self.first += 1;
        }
    }
}

/// Committed state for readers. Clones share it.
#[derive(Clone, Debug)]
pub struct Reads(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    store: RwLock<Store>,
    end: watch::Sender<u64>,
    /// Counts commits that changed a `Cluster` object or its status.
    clusters: watch::Sender<u64>,
    /// Counts commits that changed a role or a binding.
    roles: watch::Sender<u64>,
    bodies: Arc<BodyStore>,
    /// Manifests that a reader couldn't read, for the scrub to check.
    suspects: Suspects,
}

impl Reads {
    pub(super) fn new(bodies: Arc<BodyStore>, version: RecordNumber, suspects: Suspects) -> Self {
        let store = Store { version, forgotten: version, ..Store::default() };
        Self(Arc::new(Inner {
            store: RwLock::new(store),
            end: watch::channel(0).0,
            clusters: watch::channel(0).0,
            roles: watch::channel(0).0,
            bodies,
            suspects,
        }))
    }

    fn read(&self) -> RwLockReadGuard<'_, Store> {
        locks::read(&self.0.store)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Store> {
        locks::write(&self.0.store)
    }

    /// The newest committed record: the version of every list made now.
    pub fn version(&self) -> RecordNumber {
        self.read().version
    }

    /// The object as `asker` may read it.
    pub fn get(&self, key: &Key, asker: &Asker) -> Option<Arc<View>> {
        let (entry, reasons) = {
            let store = self.read();
            let entry = store.entries.get(key).cloned()?;
            let reasons = store.pending_reasons(&entry);
            (entry, reasons)
        };
        self.0.view(key, &entry, reasons.as_deref(), asker)
    }

    /// All objects of a kind, as `asker` may read them: of one namespace or of all namespaces, and either
    /// global or applied for one worker cluster. Also returns the version from which to watch.
    pub fn list(
        &self,
        kind: Kind,
        namespace: Option<&str>,
        scope: Option<&ClusterName>,
        asker: &Asker,
    ) -> (Vec<Arc<View>>, RecordNumber) {
        let listing = self.listing(kind, namespace, scope);
        let views = (0..listing.len()).filter_map(|at| listing.view(at, asker).ok().flatten()).collect();
        (views, listing.version())
    }

    /// All changes after the version `since`, as `asker` may read them. Fails if some of them are no longer
    /// in the ring.
    pub fn watch(&self, since: RecordNumber, asker: Asker) -> Result<Watch, Gone> {
        let store = self.read();
        if since < store.forgotten || since > store.version {
            return Err(Gone);
        }
        let skip = store.ring.partition_point(|change| change.at <= since);
        let next = store.first + skip as u64;
        Ok(Watch { inner: Arc::clone(&self.0), next, end: self.0.end.subscribe(), asker })
    }

    /// Changes with each commit that changes a cluster. Cheaper than a watch, which renders every change.
    pub fn cluster_changes(&self) -> watch::Receiver<u64> {
        self.0.clusters.subscribe()
    }

    /// Changes with each commit that changes a role or a binding.
    pub fn role_changes(&self) -> watch::Receiver<u64> {
        self.0.roles.subscribe()
    }

    /// Applies the changes of one commit. `dropped` has the bodies that the commit dropped, for the last
    /// views.
    pub(super) fn publish(
        &self,
        changes: ObjectChanges,
        at: RecordNumber,
        dropped: &HashMap<ContentHash, Arc<str>>,
    ) {
        let mut store = self.write();
        let before = store.version;
        let mut events = Vec::new();
        for (key, new) in changes {
            let (event, entry) = match (store.entries.get_mut(&key), new) {
                (None, None) => continue,
                (Some(old), Some(new)) if **old == new => continue,
                (Some(old), Some(new)) => {
                    *old = Arc::new(new);
                    (WatchEventType::Modified, Arc::clone(old))
                }
                (None, Some(new)) => {
                    let entry = Arc::new(new);
                    store.entries.insert(key.clone(), Arc::clone(&entry));
                    (WatchEventType::Added, entry)
                }
                (Some(old), None) => {
                    let last = Arc::new(last_of(old, at, dropped));
                    store.entries.remove(&key);
                    (WatchEventType::Deleted, last)
                }
            };
            // a change without a record (a count in a status) gets the commit's version
            let at = if entry.version > before { entry.version.min(at) } else { at };
            events.push(RingEntry { at, event, key, entry });
        }
        let clusters_changed = events.iter().any(|change| change.key.kind == Kind::Cluster);
        let roles_changed = events.iter().any(|change| change.key.kind.grants());
        events.sort_by_key(|change| change.at);
        events.into_iter().for_each(|change| store.push(change));
        store.version = store.version.max(at);
        let end = store.end();
        drop(store);
        if clusters_changed {
            self.0.clusters.send_modify(|commits| *commits += 1);
        }
        if roles_changed {
            self.0.roles.send_modify(|commits| *commits += 1);
        }
        self.0.end.send_if_modified(|known| std::mem::replace(known, end) != end);
    }

    /// Replaces the pending reasons of some classes.
    pub(super) fn set_pending_reasons(&self, changed: Changed) {
        if changed.is_empty() {
            return;
        }
        let mut store = self.write();
        for (class, reasons) in changed {
            match reasons {
                Some(reasons) => drop(store.pending_reasons.insert(class, Arc::new(reasons))),
                None => drop(store.pending_reasons.remove(&class)),
            }
        }
    }

    pub(super) fn clear_pending_reasons(&self) {
        self.write().pending_reasons.clear();
    }

    /// Replaces an object without an event for watchers.
    pub(super) fn replace_without_event(&self, key: &Key, entry: StoredObject) {
        if let Some(kept) = self.write().entries.get_mut(key) {
            *kept = Arc::new(entry);
        }
    }

    pub(super) fn stored(&self, key: &Key) -> Option<Arc<StoredObject>> {
        self.read().entries.get(key).cloned()
    }

    /// The job after `after`, in the order of keys.
    pub(super) fn next_job(&self, after: Option<&Key>) -> Option<Key> {
        let first = || Key { scope: None, kind: JobKind::first(), namespace: None, name: Arc::from("") };
        let after = Bound::Excluded(after.cloned().unwrap_or_else(first));
        let store = self.read();
        let keys = store.entries.range((after, Bound::Unbounded)).map(|(key, _)| key);
        keys.take_while(|key| key.scope.is_none()).find(|key| key.kind.is_job()).cloned()
    }

    /// The jobs of this name, of whatever kind.
    pub fn jobs_named(&self, namespace: &str, name: &str) -> Vec<Key> {
        let store = self.read();
        let keys = JobKind::all().map(|job| Key::namespaced(job.kind(), namespace, name));
        keys.filter(|key| store.entries.contains_key(key)).collect()
    }

    /// The keys of a job and its workload, by the key of either.
    pub fn job_and_workload(&self, key: &Key) -> Option<[Key; 2]> {
        match &self.stored(key)?.form {
            Form::Job(shown) | Form::Workload(shown) => Some(shown.keys()),
            Form::Value(_) | Form::DeletedJob { .. } => None,
        }
    }

    /// The manifest of a job, and whether the core considers it intact.
    pub(super) fn manifest(&self, key: &Key) -> Option<ManifestRead> {
        let stored = self.stored(key)?;
        let Form::Job(shown) = &stored.form else { return None };
        Some(ManifestRead { uid: shown.uid(), hash: shown.body(), intact: !shown.is_damaged() })
    }

    pub(super) fn keys(&self) -> Vec<Key> {
        self.read().entries.keys().cloned().collect()
    }
}

fn last_of(entry: &StoredObject, at: RecordNumber, dropped: &HashMap<ContentHash, Arc<str>>) -> StoredObject {
    let form = match &entry.form {
        Form::Job(shown) => {
            Form::DeletedJob { body: dropped.get(&shown.body()).cloned(), shown: Arc::clone(shown) }
        }
        other => other.clone(),
    };
    StoredObject { version: at, form }
}

impl Inner {
    /// `None` if the job was deleted since.
    fn view(
        &self,
        key: &Key,
        entry: &StoredObject,
        reasons: Option<&PendingReason>,
        asker: &Asker,
    ) -> Option<Arc<View>> {
        let parsed = |text: &str| serde_json::from_str::<Value>(text).ok();
        let value = match &entry.form {
            Form::Value(value) => Arc::clone(value),
            Form::Workload(shown) => Arc::new(shown.workload(reasons, asker)),
            Form::Job(shown) => Arc::new(self.job(key, shown, reasons, asker)?),
            Form::DeletedJob { body, shown } => {
                let lost = || key.kind.job().map(JobKind::empty_manifest);
                Arc::new(shown.job(body.as_deref().map_or_else(lost, parsed)?, reasons, asker))
            }
        };
        Some(Arc::new(View { key: key.clone(), version: entry.version, value }))
    }

    /// Renders a job. If its manifest can't be read, it is rendered as damaged and reported to the scrub.
    fn job(&self, key: &Key, shown: &Shown, reasons: Option<&PendingReason>, asker: &Asker) -> Option<Value> {
        let body = self.bodies.read(shown.body());
        match &body {
            Body::Missing if self.was_dropped(key, shown.body()) => return None,
            Body::Intact(text) if let Ok(manifest) = serde_json::from_str(text) => {
                return Some(shown.job(manifest, reasons, asker));
            }
            Body::Intact(_) | Body::Missing | Body::Damaged | Body::Unavailable => {}
        }
        if !shown.is_damaged() {
            // if the queue is full, the next pass of the scrub finds the damage
            drop(self.suspects.try_send(ScrubRequest::Check(key.clone())));
        }
        Some(shown.job_without_manifest(reasons, asker))
    }

    /// Whether a missing body was dropped by a commit: the commit in progress, or one that is already
    /// published.
    fn was_dropped(&self, key: &Key, hash: ContentHash) -> bool {
        let is_body = |form: &Form| matches!(form, Form::Job(shown) if shown.body() == hash);
        self.bodies.is_dropping(hash)
            || !locks::read(&self.store).entries.get(key).is_some_and(|entry| is_body(&entry.form))
    }

    fn event(
        &self,
        change: &RingEntry,
        reasons: Option<&PendingReason>,
        asker: &Asker,
    ) -> Option<WatchEvent> {
        let mut view = self.view(&change.key, &change.entry, reasons, asker)?;
        if change.event == WatchEventType::Deleted {
            let value = Arc::make_mut(&mut Arc::make_mut(&mut view).value);
            value["metadata"]["resourceVersion"] = Value::String(change.at.to_string());
        }
        Some(WatchEvent { event: change.event, view, at: change.at })
    }
}

/// A watcher's position in the ring.
#[derive(Debug)]
pub struct Watch {
    inner: Arc<Inner>,
    next: u64,
    end: watch::Receiver<u64>,
    asker: Asker,
}

impl Watch {
    /// Renders the following changes for `asker`.
    pub fn show_to(&mut self, asker: Asker) {
        self.asker = asker;
    }

    /// The next change. Cancelling the call loses nothing. Fails if the watcher fell behind the ring.
    pub async fn next(&mut self) -> Result<WatchEvent, Gone> {
        loop {
            self.end.mark_unchanged();
            let change = {
                let store = locks::read(&self.inner.store);
                if self.next < store.first {
                    return Err(Gone);
                }
                let change = store.change(self.next).cloned();
                change.map(|change| (store.pending_reasons(&change.entry), change))
            };
            match change {
                Some((reasons, change)) => {
                    self.next += 1;
                    if let Some(event) = self.inner.event(&change, reasons.as_deref(), &self.asker) {
                        return Ok(event);
                    }
                }
                // the sender is in `inner`, so it can't be gone
                None => self.end.changed().await.map_err(|_| Gone)?,
            }
        }
    }
}
