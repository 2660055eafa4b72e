//! Which views changed with a commit, in the form in which readers keep them: facts of jobs and workloads, and everything else
//! as it is shown.
//!
//! Jobs and workloads follow with every change. The status of a queue or a cohort changes with every workload behind
//! it, so it follows on a timer, once for all that happened meanwhile. Its version is that of the newest record that it
//! follows from; where such a record changed nothing that is shown, the older view stays.

use super::reads::{Changes, Entry, Form, Reads};
use meridian_manager_core::World;
use meridian_manager_core::facts::key::Key;
use meridian_manager_core::facts::outcome::Bodies;
use meridian_manager_core::facts::submission::Class;
use meridian_manager_core::facts::submission::ClassId;
use meridian_manager_core::state::catalog::Catalog;
use meridian_objects::Kind;
use meridian_shared::ids::{ContentHash, RecordNumber, Uid};
use meridian_shared::time::Now;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

/// The fields of a cluster's status that change by themselves.
const RUNNING_FIELDS: [&str; 1] = ["silentForMs"];

/// Objects other than jobs have no body.
struct NoBodies;

impl Bodies for NoBodies {
    fn body(&self, _: ContentHash) -> Option<Arc<str>> {
        None
    }
}

/// Takes down what readers see.
pub(super) struct Publisher {
    /// Queues and cohorts whose status may have changed.
    stale: BTreeSet<Key>,
    /// Classes of which some changed; what is counted of them is in the statuses of their queues.
    moved: BTreeMap<ClassId, Arc<Class>>,
    /// All of them may have.
    all_stale: bool,
}

impl std::fmt::Debug for Publisher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Publisher").field("stale", &self.stale.len()).finish_non_exhaustive()
    }
}

impl Publisher {
    pub(super) fn new() -> Self {
        Self { stale: BTreeSet::new(), moved: BTreeMap::new(), all_stale: false }
    }

    /// What one batch changes for readers once it is committed.
    pub(super) fn changes(
        &mut self,
        reads: &Reads,
        world: &World,
        now: Now,
        (changed, workloads): (BTreeSet<Key>, BTreeSet<Uid>),
    ) -> Changes {
        let mut changes = Vec::with_capacity(changed.len() + 2 * workloads.len());
        for shown in workloads.into_iter().filter_map(|uid| world.shown(uid)) {
            let [job, workload] = shown.keys();
            let shown = Arc::new(shown);
            let (id, class) = shown.class();
            self.moved.entry(id).or_insert_with(|| class.clone());
            changes
                .push((job, Some(Entry { version: shown.version(), form: Form::Job(Arc::clone(&shown)) })));
            changes.push((workload, Some(Entry { version: shown.version(), form: Form::Workload(shown) })));
        }
        for key in changed {
            // Whether a queue is active follows from other objects too.
            self.all_stale |= Catalog::is_declaration(key.kind)
                && !(counts_workloads(&key) && unchanged(reads, world, &key));
            if counts_workloads(&key) && unchanged(reads, world, &key) {
                self.stale.extend(cohorts_above(world, &key));
                self.stale.insert(key);
                continue;
            }
            let entry = Self::entry(world, &key, now);
            changes.push((key, entry));
        }
        changes
    }

    /// Publishes everything, as at the start: what differs from what readers have are changes.
    pub(super) fn publish_all(&mut self, reads: &Reads, world: &World, now: Now) {
        (self.stale, self.moved, self.all_stale) = Default::default();
        let keys: BTreeSet<Key> = world.keys().into_iter().chain(reads.keys()).collect();
        let changes = keys.into_iter().map(|key| (key.clone(), Self::entry(world, &key, now))).collect();
        reads.keep_nothing();
        reads.keep(world.all_hindrances());
        reads.publish(changes, world.state.last, &HashMap::new());
    }

    /// Statuses that depend on more than one record, and those of clusters: what watchers hear of, and what they needn't. The
    /// batch before must be shown already.
    pub(super) fn refresh(&mut self, reads: &Reads, world: &World, now: Now) -> (Changes, Vec<(Key, Entry)>) {
        // A check says which of its clusters are there.
        let by_clusters =
            |key: &&Key| matches!(key.kind, Kind::Cluster | Kind::MultiKueueCluster | Kind::AdmissionCheck);
        let clusters = world.state.catalog.iter().map(|(key, _)| key).filter(by_clusters);
        let mut keys: BTreeSet<Key> = clusters.cloned().chain(std::mem::take(&mut self.stale)).collect();
        for key in std::mem::take(&mut self.moved).values().flat_map(|class| world.queue_keys(class)) {
            if !keys.contains(&key) {
                keys.extend(cohorts_above(world, &key));
                keys.insert(key);
            }
        }
        if std::mem::take(&mut self.all_stale) {
            keys.extend(
                world.state.catalog.iter().map(|(key, _)| key).filter(|key| counts_workloads(key)).cloned(),
            );
        }
        let (mut changes, mut quietly) = (Vec::new(), Vec::new());
        for key in keys {
            let Some(entry) = Self::entry(world, &key, now) else { continue };
            match reads.kept(&key) {
                Some(kept) if *kept == entry || differs_in_version_only(&kept, &entry) => {}
                Some(kept) if differs_in_passing_only(&kept, &entry) => quietly.push((key, entry)),
                Some(_) => changes.push((key, Some(entry))),
                // It is published by the commit that made it.
                None => {}
            }
        }
        (changes, quietly)
    }

    fn entry(world: &World, key: &Key, now: Now) -> Option<Entry> {
        let uid = match key.kind {
            Kind::Job => Some(world.uid_of(key.namespace.as_deref()?, &key.name)?),
            Kind::Workload => Some(world.workload_at(key)?.0),
            _ => None,
        };
        if let Some(uid) = uid {
            let shown = Arc::new(world.shown(uid)?);
            let version = shown.version();
            return Some(Entry {
                version,
                form: if key.kind == Kind::Job { Form::Job(shown) } else { Form::Workload(shown) },
            });
        }
        let value = world.render(key, &NoBodies, now)?;
        Some(Entry { version: version_of(&value), form: Form::Whole(Arc::new(value)) })
    }
}

/// The cohorts whose status has in it what a cluster queue counts.
fn cohorts_above<'a>(world: &'a World, key: &Key) -> impl Iterator<Item = Key> + 'a {
    let above = if key.kind == Kind::ClusterQueue {
        world.state.catalog.cohorts_above(&key.name)
    } else {
        Vec::new()
    };
    above.into_iter().map(|cohort| Key::global(Kind::Cohort, cohort))
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
            metadata["generation"] == stored.generation
                && metadata["uid"].as_str() == Some(&stored.uid.to_string())
        }
        (None, None) => true,
        (Some(_), None) | (None, Some(_)) => false,
    }
}

fn differs_in_version_only(kept: &Entry, new: &Entry) -> bool {
    same_but(kept, new, "metadata", &["resourceVersion"])
}

fn version_of(value: &Value) -> RecordNumber {
    RecordNumber(
        value["metadata"]["resourceVersion"].as_str().and_then(|text| text.parse().ok()).unwrap_or(0),
    )
}

fn differs_in_passing_only(kept: &Entry, new: &Entry) -> bool {
    same_but(kept, new, "status", &RUNNING_FIELDS)
}

/// Whether two objects are the same but for some fields of one part.
fn same_but(kept: &Entry, new: &Entry, part: &str, fields: &[&str]) -> bool {
    fn rest<'a>(part: &'a Value, fields: &'a [&str]) -> impl Iterator<Item = (&'a String, &'a Value)> {
        part.as_object().into_iter().flatten().filter(|(name, _)| !fields.contains(&name.as_str()))
    }
    let (Form::Whole(kept), Form::Whole(new)) = (&kept.form, &new.form) else { return false };
    let (Some(kept), Some(new)) = (kept.as_object(), new.as_object()) else { return kept == new };
    let same = |((name, kept), (other, new)): ((&String, &Value), (&String, &Value))| {
        name == other && if name == part { rest(kept, fields).eq(rest(new, fields)) } else { kept == new }
    };
    kept.len() == new.len() && kept.iter().zip(new).all(same)
}
