//! Which views changed with a commit, each rendered once and in the form in which readers keep it.
//!
//! Jobs and workloads are rendered with every change. The status of a queue or a cohort changes with every workload behind
//! it, so it follows on a timer, once for all that happened meanwhile. Its version is that of the newest record that it
//! follows from; where such a record changed nothing that is shown, the older view stays.

use super::reads::{Entry, Form, Reads};
use meridian_manager_core::World;
use meridian_manager_core::catalog::Catalog;
use meridian_manager_core::input::{Bodies, Key};
use meridian_manager_core::queues::ClassId;
use meridian_objects::Kind;
use meridian_shared::ids::{ContentHash, RecordNumber};
use meridian_shared::time::Now;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

/// The fields of a cluster's status that change by themselves.
const RUNNING_FIELDS: [&str; 1] = ["silentForMs"];

/// Stands in for a job's body, so that only what Meridian says of it is rendered.
struct Blank(Arc<str>);

impl Bodies for Blank {
    fn body(&self, _: ContentHash) -> Option<Arc<str>> {
        Some(Arc::clone(&self.0))
    }
}

/// Renders for readers.
pub(super) struct Publisher {
    blank: Blank,
    /// Queues and cohorts whose status may have changed.
    stale: BTreeSet<Key>,
    /// All of them may have.
    all_stale: bool,
    /// Pod sets of classes that readers have workloads of, as JSON to lay a workload over.
    pod_sets: BTreeMap<ClassId, Arc<str>>,
}

impl std::fmt::Debug for Publisher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Publisher").field("stale", &self.stale.len()).finish_non_exhaustive()
    }
}

impl Publisher {
    pub(super) fn new() -> Self {
        let blank = r#"{"apiVersion":"batch/v1","kind":"Job","metadata":{},"spec":{}}"#;
        Self { blank: Blank(Arc::from(blank)), stale: BTreeSet::new(), all_stale: false, pod_sets: BTreeMap::new() }
    }

    /// Publishes what one commit changed.
    pub(super) fn publish(&mut self, reads: &Reads, world: &World, now: Now, changed: BTreeSet<Key>, dropped: &HashMap<ContentHash, Arc<str>>) {
        let mut changes = Vec::with_capacity(changed.len());
        for key in changed {
            // Whether a queue is active follows from other objects too.
            self.all_stale |= Catalog::is_declaration(key.kind) && !(counts_workloads(&key) && unchanged(reads, world, &key));
            if counts_workloads(&key) && unchanged(reads, world, &key) {
                if key.kind == Kind::ClusterQueue {
                    self.stale.extend(world.state.catalog.cohorts_above(&key.name).into_iter().map(|cohort| Key::global(Kind::Cohort, cohort)));
                }
                self.stale.insert(key);
                continue;
            }
            let entry = self.entry(world, &key, now);
            changes.push((key, entry));
        }
        reads.publish(changes, world.state.last, dropped);
    }

    /// Publishes everything, as at the start: what differs from what readers have are changes.
    pub(super) fn publish_all(&mut self, reads: &Reads, world: &World, now: Now) {
        self.stale.clear();
        self.pod_sets.clear();
        self.all_stale = false;
        let keys: BTreeSet<Key> = world.keys().into_iter().chain(reads.keys()).collect();
        let changes = keys.into_iter().map(|key| (key.clone(), self.entry(world, &key, now))).collect();
        reads.publish(changes, world.state.last, &HashMap::new());
    }

    /// Follows up with statuses that depend on more than one record, and with those of clusters.
    pub(super) fn refresh(&mut self, reads: &Reads, world: &World, now: Now) {
        let clusters = world.state.catalog.iter().map(|(key, _)| key).filter(|key| matches!(key.kind, Kind::Cluster | Kind::MultiKueueCluster));
        let mut keys: BTreeSet<Key> = clusters.cloned().chain(std::mem::take(&mut self.stale)).collect();
        if std::mem::take(&mut self.all_stale) {
            keys.extend(world.state.catalog.iter().map(|(key, _)| key).filter(|key| counts_workloads(key)).cloned());
        }
        // A class is forgotten with the last workload that readers had of it.
        self.pod_sets.retain(|_, shared| Arc::strong_count(shared) > 1);
        let mut changes = Vec::new();
        for key in keys {
            let Some(entry) = self.entry(world, &key, now) else { continue };
            match reads.kept(&key) {
                Some(kept) if *kept == entry || differs_in_version_only(&kept, &entry) => {}
                Some(kept) if differs_in_passing_only(&kept, &entry) => reads.replace_quietly(&key, entry),
                Some(_) => changes.push((key, Some(entry))),
                // It is published by the commit that made it.
                None => {}
            }
        }
        if !changes.is_empty() {
            reads.publish(changes, world.state.last, &HashMap::new());
        }
    }

    fn entry(&mut self, world: &World, key: &Key, now: Now) -> Option<Entry> {
        if key.kind == Kind::Workload {
            return self.workload(world, key);
        }
        let value = world.render(key, &self.blank, now)?;
        let version = version_of(&value);
        let form = match key.kind {
            Kind::Job => {
                let uid = world.uid_of(key.namespace.as_deref()?, &key.name)?;
                Form::Over { body: world.state.workloads.get(&uid)?.body, text: Arc::from(value.to_string()) }
            }
            _ => Form::Whole(Arc::new(value)),
        };
        Some(Entry { version, form })
    }

    fn workload(&mut self, world: &World, key: &Key) -> Option<Entry> {
        let (uid, workload) = world.workload_at(key)?;
        let value = world.workload_without_pods(uid, workload);
        let shared = self.pod_sets.entry(workload.class).or_insert_with(|| Arc::from(json!({"spec": {"podSets": world.pod_sets(workload.class)}}).to_string()));
        Some(Entry { version: workload.changed, form: Form::Joined { shared: Arc::clone(shared), text: Arc::from(value.to_string()) } })
    }
}

fn counts_workloads(key: &Key) -> bool {
    key.scope.is_none() && matches!(key.kind, Kind::ClusterQueue | Kind::LocalQueue | Kind::Cohort)
}

/// Whether readers have the object itself as it is, so that at most its status is behind.
fn unchanged(reads: &Reads, world: &World, key: &Key) -> bool {
    match (reads.kept(key), world.state.catalog.get(key)) {
        (Some(kept), Some(stored)) => {
            let Form::Whole(value) = &kept.form else { return false };
            let metadata = &value["metadata"];
            metadata["generation"] == stored.generation && metadata["uid"].as_str() == Some(&stored.uid.to_string())
        }
        (None, None) => true,
        (Some(_), None) | (None, Some(_)) => false,
    }
}

fn differs_in_version_only(kept: &Entry, new: &Entry) -> bool {
    let (Form::Whole(kept), Form::Whole(new)) = (&kept.form, &new.form) else { return false };
    let unversioned = |value: &Value| {
        let mut value = value.clone();
        value["metadata"]["resourceVersion"] = Value::Null;
        value
    };
    unversioned(kept) == unversioned(new)
}

fn version_of(value: &Value) -> RecordNumber {
    RecordNumber(value["metadata"]["resourceVersion"].as_str().and_then(|text| text.parse().ok()).unwrap_or(0))
}

fn differs_in_passing_only(kept: &Entry, new: &Entry) -> bool {
    let (Form::Whole(kept), Form::Whole(new)) = (&kept.form, &new.form) else { return false };
    let lasting = |value: &Value| {
        let mut value = value.clone();
        if let Some(status) = value.get_mut("status").and_then(Value::as_object_mut) {
            RUNNING_FIELDS.iter().for_each(|field| {
                status.remove(*field);
            });
        }
        value
    };
    lasting(kept) == lasting(new)
}
