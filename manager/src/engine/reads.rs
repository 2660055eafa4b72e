//! Committed objects for readers and watchers, apart from the engine's thread.
//!
//! Objects are kept as they look, but for jobs and workloads: of those the facts are kept that they are shown with, and put into
//! words, over the job's body, when somebody reads them. Most are never read, and a queue of a million jobs doesn't hold a
//! million specs. Changes go into one bounded ring in the order of their versions; a watcher that fell behind it must list again
//! ([`Gone`], HTTP 410).

use super::bodies::BodyStore;
use meridian_manager_core::facts::key::Key;
use meridian_manager_core::facts::submission::ClassId;
use meridian_manager_core::queue::pending_reasons::{Changed, Hindrance};
use meridian_manager_core::views::workloads::Shown;
use meridian_objects::Kind;
use meridian_shared::ids::{ClusterName, ContentHash, RecordNumber};
use serde_json::Value;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ops::Bound;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use tokio::sync::watch;

/// Changes kept for watchers.
const RING_CHANGES_MAX: usize = 65_536;
/// Bytes of changes kept for watchers.
const RING_BYTES_MAX: usize = 64 << 20;
/// What an object that is kept as a value is reckoned to weigh: rules and clusters are small.
const VALUE_BYTES: usize = 4_096;
/// What the facts about a workload are reckoned to weigh; its job and its `Workload` share them.
const FACTS_BYTES: usize = 1_024;

/// Stands in for the body of a job that is gone.
const NO_BODY: &str = r#"{"apiVersion":"batch/v1","kind":"Job","metadata":{},"spec":{}}"#;

/// One object as a reader sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct View {
    /// Its name.
    pub key: Key,
    /// Its `resourceVersion`.
    pub version: RecordNumber,
    /// The whole of it, in the storage version, with its status.
    pub value: Arc<Value>,
}

/// What happened to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// It is new.
    Added,
    /// It changed.
    Modified,
    /// It is gone; the view is its last one.
    Deleted,
}

/// One change.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// What happened.
    pub event: Event,
    /// The object afterwards, or the last view of one that is gone, with the version of its end.
    pub view: Arc<View>,
    /// The version to resume after. It is the view's own, unless only a count in its status changed.
    pub at: RecordNumber,
}

/// The changes that were asked for are no longer kept: list again (HTTP 410).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the changes since this version are no longer kept: list again and watch from the list's version")]
pub struct Gone;

/// How an object is kept.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Entry {
    pub(super) version: RecordNumber,
    pub(super) form: Form,
}

/// What changes for readers; none is gone.
pub(super) type Changes = Vec<(Key, Option<Entry>)>;

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Form {
    /// As it is.
    Whole(Arc<Value>),
    /// A workload.
    Workload(Arc<Shown>),
    /// A job.
    Job(Arc<Shown>),
    /// A job that is gone, with its body as it was, if it could still be read.
    Last { body: Option<Arc<str>>, shown: Arc<Shown> },
}

impl Form {
    fn bytes(&self) -> usize {
        match self {
            Self::Whole(_) => VALUE_BYTES,
            Self::Workload(_) | Self::Job(_) => FACTS_BYTES,
            Self::Last { body, .. } => FACTS_BYTES + body.as_ref().map_or(0, |b| b.len()),
        }
    }
}

#[derive(Debug)]
struct Happened {
    at: RecordNumber,
    event: Event,
    key: Key,
    entry: Arc<Entry>,
}

#[derive(Debug, Default)]
struct Store {
    entries: BTreeMap<Key, Arc<Entry>>,
    version: RecordNumber,
    ring: VecDeque<Arc<Happened>>,
    ring_bytes: usize,
    /// Number of the ring's first change.
    first: u64,
    /// Changes up to this version may be missing from the ring.
    forgotten: RecordNumber,
    /// What keeps those who wait, by class: it changes more often than they do.
    keeps: BTreeMap<ClassId, Arc<Hindrance>>,
}

impl Store {
    fn end(&self) -> u64 {
        self.first + self.ring.len() as u64
    }

    /// What keeps whom an entry is about.
    fn keeps(&self, entry: &Entry) -> Option<Arc<Hindrance>> {
        match &entry.form {
            Form::Whole(_) => None,
            Form::Workload(shown) | Form::Job(shown) | Form::Last { shown, .. } => {
                self.keeps.get(&shown.class().0).cloned()
            }
        }
    }

    fn push(&mut self, happened: Happened) {
        self.ring_bytes += happened.entry.form.bytes();
        self.ring.push_back(Arc::new(happened));
        while self.ring.len() > RING_CHANGES_MAX || self.ring_bytes > RING_BYTES_MAX {
            let Some(old) = self.ring.pop_front() else { break };
            self.ring_bytes -= old.entry.form.bytes();
            self.forgotten = old.at;
            self.first += 1;
        }
    }
}

/// Committed state, for readers; clones share it.
#[derive(Clone, Debug)]
pub struct Reads(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    store: RwLock<Store>,
    end: watch::Sender<u64>,
    bodies: Arc<BodyStore>,
}

impl Reads {
    pub(super) fn new(bodies: Arc<BodyStore>, version: RecordNumber) -> Self {
        let store = Store { version, forgotten: version, ..Store::default() };
        Self(Arc::new(Inner { store: RwLock::new(store), end: watch::channel(0).0, bodies }))
    }

    fn read(&self) -> RwLockReadGuard<'_, Store> {
        self.0.store.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Store> {
        self.0.store.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// The newest committed record: the version of every list that is made now.
    pub fn version(&self) -> RecordNumber {
        self.read().version
    }

    /// One object.
    pub fn get(&self, key: &Key) -> Option<Arc<View>> {
        let (entry, keeps) = {
            let store = self.read();
            let entry = store.entries.get(key).cloned()?;
            let keeps = store.keeps(&entry);
            (entry, keeps)
        };
        self.0.view(key, &entry, keeps.as_deref())
    }

    /// All objects of a kind: of one namespace or of all, global ones or those applied for one worker cluster; with the
    /// version to watch from.
    pub fn list(
        &self,
        kind: Kind,
        namespace: Option<&str>,
        scope: Option<&ClusterName>,
    ) -> (Vec<Arc<View>>, RecordNumber) {
        let from =
            Key { scope: scope.cloned(), kind, namespace: namespace.map(Arc::from), name: Arc::from("") };
        let inside = |key: &Key| {
            key.scope.as_ref() == scope
                && key.kind == kind
                && (namespace.is_none() || key.namespace.as_deref() == namespace)
        };
        let (found, version): (Vec<(Key, Arc<Entry>, _)>, RecordNumber) = {
            let store = self.read();
            let range = store
                .entries
                .range((Bound::Included(from), Bound::Unbounded))
                .take_while(|(key, _)| inside(key));
            (
                range.map(|(key, entry)| (key.clone(), Arc::clone(entry), store.keeps(entry))).collect(),
                store.version,
            )
        };
        (
            found
                .iter()
                .filter_map(|(key, entry, keeps)| self.0.view(key, entry, keeps.as_deref()))
                .collect(),
            version,
        )
    }

    /// All changes after a version, from now on and for ever.
    pub fn watch(&self, since: RecordNumber) -> Result<Watch, Gone> {
        let store = self.read();
        if since < store.forgotten || since > store.version {
            return Err(Gone);
        }
        let skip = store.ring.partition_point(|happened| happened.at <= since);
        let next = store.first + skip as u64;
        Ok(Watch { inner: Arc::clone(&self.0), next, end: self.0.end.subscribe() })
    }

    /// Takes what one commit changed; `None` is gone. Bodies that the commit dropped come along for the last views.
    pub(super) fn publish(
        &self,
        changes: Changes,
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
                    (Event::Modified, Arc::clone(old))
                }
                (None, Some(new)) => {
                    let entry = Arc::new(new);
                    store.entries.insert(key.clone(), Arc::clone(&entry));
                    (Event::Added, entry)
                }
                (Some(old), None) => {
                    let last = Arc::new(last_of(old, at, dropped));
                    store.entries.remove(&key);
                    (Event::Deleted, last)
                }
            };
            // A change that no record of this commit made (a count in a status) takes the commit's own version.
            let at = if entry.version > before { entry.version.min(at) } else { at };
            events.push(Happened { at, event, key, entry });
        }
        events.sort_by_key(|happened| happened.at);
        events.into_iter().for_each(|happened| store.push(happened));
        store.version = store.version.max(at);
        let end = store.end();
        drop(store);
        self.0.end.send_if_modified(|known| std::mem::replace(known, end) != end);
    }

    /// Takes what keeps classes now.
    pub(super) fn keep(&self, changed: Changed) {
        if changed.is_empty() {
            return;
        }
        let mut store = self.write();
        for (class, keeps) in changed {
            match keeps {
                Some(keeps) => drop(store.keeps.insert(class, Arc::new(keeps))),
                None => drop(store.keeps.remove(&class)),
            }
        }
    }

    /// Forgets what kept any.
    pub(super) fn keep_nothing(&self) {
        self.write().keeps.clear();
    }

    /// Takes a view that differs only in what no watcher needs to hear.
    pub(super) fn replace_quietly(&self, key: &Key, entry: Entry) {
        if let Some(kept) = self.write().entries.get_mut(key) {
            *kept = Arc::new(entry);
        }
    }

    /// How an object is kept now.
    pub(super) fn kept(&self, key: &Key) -> Option<Arc<Entry>> {
        self.read().entries.get(key).cloned()
    }

    /// Every key that is kept.
    pub(super) fn keys(&self) -> Vec<Key> {
        self.read().entries.keys().cloned().collect()
    }
}

fn last_of(entry: &Entry, at: RecordNumber, dropped: &HashMap<ContentHash, Arc<str>>) -> Entry {
    let form = match &entry.form {
        Form::Job(shown) => {
            Form::Last { body: dropped.get(&shown.body()).cloned(), shown: Arc::clone(shown) }
        }
        other => other.clone(),
    };
    Entry { version: at, form }
}

impl Inner {
    /// `None` when a body is gone: the object was deleted since, and the ring says so.
    fn view(&self, key: &Key, entry: &Entry, keeps: Option<&Hindrance>) -> Option<Arc<View>> {
        let parsed = |text: &str| serde_json::from_str::<Value>(text).ok();
        let value = match &entry.form {
            Form::Whole(value) => Arc::clone(value),
            Form::Workload(shown) => Arc::new(shown.workload(keeps)),
            Form::Job(shown) => Arc::new(shown.job(parsed(&self.bodies.get(shown.body())?)?, keeps)),
            Form::Last { body, shown } => {
                Arc::new(shown.job(parsed(body.as_deref().unwrap_or(NO_BODY))?, keeps))
            }
        };
        Some(Arc::new(View { key: key.clone(), version: entry.version, value }))
    }

    fn change(&self, happened: &Happened, keeps: Option<&Hindrance>) -> Option<Change> {
        let mut view = self.view(&happened.key, &happened.entry, keeps)?;
        if happened.event == Event::Deleted {
            let value = Arc::make_mut(&mut Arc::make_mut(&mut view).value);
            value["metadata"]["resourceVersion"] = Value::String(happened.at.to_string());
        }
        Some(Change { event: happened.event, view, at: happened.at })
    }
}

/// A watcher's place among the changes.
#[derive(Debug)]
pub struct Watch {
    inner: Arc<Inner>,
    next: u64,
    end: watch::Receiver<u64>,
}

impl Watch {
    /// The next change. Nothing is lost when this is cancelled.
    pub async fn next(&mut self) -> Result<Change, Gone> {
        loop {
            self.end.mark_unchanged();
            let happened = {
                let store = self.inner.store.read().unwrap_or_else(PoisonError::into_inner);
                if self.next < store.first {
                    return Err(Gone);
                }
                let happened =
                    store.ring.get(usize::try_from(self.next - store.first).unwrap_or(usize::MAX)).cloned();
                happened.map(|happened| (store.keeps(&happened.entry), happened))
            };
            match happened {
                Some((keeps, happened)) => {
                    self.next += 1;
                    if let Some(change) = self.inner.change(&happened, keeps.as_deref()) {
                        return Ok(change);
                    }
                }
                // The sender lives in `inner`, so it can't be gone.
                None => self.end.changed().await.map_err(|_| Gone)?,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::faulty::{Faults, FaultyDisk};
    use crate::journal::{Journal, RedbJournal};
    use meridian_shared::ids::JournalId;
    use meridian_shared::time::Wall;
    use serde_json::json;

    fn reads() -> Reads {
        let journal =
            RedbJournal::init_on(FaultyDisk::new(1, 1, Faults::default()), JournalId(1), Wall(0)).unwrap();
        Reads::new(Arc::new(BodyStore::new(journal.reader())), RecordNumber(0))
    }

    fn entry(version: u64) -> Option<Entry> {
        Some(Entry { version: RecordNumber(version), form: Form::Whole(Arc::new(json!({"v": version}))) })
    }

    fn key(name: &str) -> Key {
        Key::namespaced(Kind::LocalQueue, "a", name)
    }

    #[tokio::test]
    async fn a_watch_resumes_in_the_order_of_versions_and_is_gone_beyond_the_ring() {
        let reads = reads();
        let none = HashMap::new();
        // The order of names isn't that of versions.
        reads.publish(
            vec![(key("a"), entry(3)), (key("b"), entry(2)), (key("c"), entry(0))],
            RecordNumber(4),
            &none,
        );
        let mut watch = reads.watch(RecordNumber(2)).unwrap();
        let mut next = async || watch.next().await.unwrap().view.key.name.to_string();
        assert_eq!([next().await, next().await], ["a", "c"]);
        assert_eq!(reads.watch(RecordNumber(5)).unwrap_err(), Gone, "from another journal");
        for n in 5..=u64::try_from(RING_CHANGES_MAX).unwrap() + 5 {
            reads.publish(vec![(key("a"), entry(n))], RecordNumber(n), &none);
        }
        assert_eq!(reads.watch(RecordNumber(3)).unwrap_err(), Gone);
        assert_eq!(watch.next().await.unwrap_err(), Gone, "too slow");
        let mut watch = reads.watch(reads.version()).unwrap();
        reads.publish(vec![(key("a"), None)], reads.version().next(), &none);
        let change = watch.next().await.unwrap();
        assert_eq!(
            (change.event, change.view.version, change.at),
            (Event::Deleted, RecordNumber(65_542), RecordNumber(65_542))
        );
        assert_eq!(change.view.value["metadata"]["resourceVersion"], "65542");
    }

    #[test]
    fn lists_keep_kinds_namespaces_and_scopes_apart() {
        let reads = reads();
        let scoped = Key { scope: Some("eu".into()), ..Key::global(Kind::ClusterQueue, "q") };
        let elsewhere = Key::namespaced(Kind::LocalQueue, "b", "x");
        let all = [key("x"), key("y"), elsewhere, Key::global(Kind::ClusterQueue, "q"), scoped];
        reads.publish(all.iter().map(|k| (k.clone(), entry(1))).collect(), RecordNumber(1), &HashMap::new());
        let names = |kind, namespace, scope: Option<&ClusterName>| reads.list(kind, namespace, scope).0.len();
        assert_eq!(names(Kind::LocalQueue, None, None), 3);
        assert_eq!(names(Kind::LocalQueue, Some("a"), None), 2);
        assert_eq!(names(Kind::LocalQueue, Some("c"), None), 0);
        assert_eq!(names(Kind::ClusterQueue, None, None), 1);
        assert_eq!(names(Kind::ClusterQueue, None, Some(&"eu".into())), 1);
        assert_eq!(names(Kind::ClusterQueue, None, Some(&"us".into())), 0);
    }
}
