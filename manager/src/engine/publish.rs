//! Which views changed with a commit, each rendered once and in the form in which readers keep it.
//!
//! Jobs and workloads are rendered with every change. The status of a queue counts all workloads behind it, so it follows on
//! a timer that leaves the engine most of its time, whatever the size of the queue.

use super::reads::{Entry, Form, Reads};
use meridian_manager_core::World;
use meridian_manager_core::input::{Bodies, Key};
use meridian_objects::Kind;
use meridian_shared::ids::{ContentHash, RecordNumber};
use meridian_shared::time::Now;
use serde_json::Value;
use std::collections::{BTreeSet, HashMap};
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
    /// Queues whose status may have changed.
    stale: BTreeSet<Key>,
}

impl std::fmt::Debug for Publisher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Publisher").field("stale", &self.stale.len()).finish_non_exhaustive()
    }
}

impl Publisher {
    pub(super) fn new() -> Self {
        let blank = r#"{"apiVersion":"batch/v1","kind":"Job","metadata":{},"spec":{}}"#;
        Self { blank: Blank(Arc::from(blank)), stale: BTreeSet::new() }
    }

    /// Publishes what one commit changed.
    pub(super) fn publish(&mut self, reads: &Reads, world: &World, now: Now, changed: BTreeSet<Key>, dropped: &HashMap<ContentHash, Arc<str>>) {
        let mut changes = Vec::with_capacity(changed.len());
        for key in changed {
            if counts_workloads(&key) && unchanged(reads, world, &key) {
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
        let keys: BTreeSet<Key> = world.keys().into_iter().chain(reads.keys()).collect();
        let changes = keys.into_iter().map(|key| (key.clone(), self.entry(world, &key, now))).collect();
        reads.publish(changes, world.state.last, &HashMap::new());
    }

    /// Follows up with statuses that depend on more than one record, and with those of clusters.
    pub(super) fn refresh(&mut self, reads: &Reads, world: &World, now: Now) {
        let clusters = world.state.catalog.iter().map(|(key, _)| key).filter(|key| matches!(key.kind, Kind::Cluster | Kind::MultiKueueCluster));
        let keys: BTreeSet<Key> = clusters.cloned().chain(std::mem::take(&mut self.stale)).collect();
        let mut changes = Vec::new();
        for key in keys {
            let Some(entry) = self.entry(world, &key, now) else { continue };
            match reads.kept(&key) {
                Some(kept) if *kept == entry => {}
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

    fn entry(&self, world: &World, key: &Key, now: Now) -> Option<Entry> {
        let value = world.render(key, &self.blank, now)?;
        let version = version_of(&value);
        let form = match key.kind {
            Kind::Job => {
                let uid = world.uid_of(key.namespace.as_deref()?, &key.name)?;
                Form::Over { body: world.state.workloads.get(&uid)?.body, text: Arc::from(value.to_string()) }
            }
            Kind::Workload => Form::Text(Arc::from(value.to_string())),
            _ => Form::Whole(Arc::new(value)),
        };
        Some(Entry { version, form })
    }
}

fn counts_workloads(key: &Key) -> bool {
    matches!(key.kind, Kind::ClusterQueue | Kind::LocalQueue)
}

/// Whether readers have the object itself as it is, so that at most its status is behind.
fn unchanged(reads: &Reads, world: &World, key: &Key) -> bool {
    match (reads.kept(key), world.state.catalog.get(key)) {
        (Some(kept), Some(stored)) => kept.version == stored.changed,
        (None, None) => true,
        (Some(_), None) | (None, Some(_)) => false,
    }
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
