//! Which objects changed with a commit, in the form in which readers store them.
//!
//! Jobs and workloads are published with every change. The status of a queue or a cohort changes with every
//! workload in it, so it is refreshed on a timer. Its version is that of the newest record on which it
//! depends. If such a record changed nothing visible, the older view stays. The reason of a pending scale-up
//! changes without a record of its workload, so it is refreshed too, without an event for watchers.

use super::reads::{Form, ObjectChanges, Reads, StoredObject};
use meridian_manager_core::World;
use meridian_manager_core::facts::key::Key;
use meridian_manager_core::facts::submission::Class;
use meridian_manager_core::facts::submission::ClassId;
use meridian_manager_core::state::catalog::Catalog;
use meridian_objects::Kind;
use meridian_shared::ids::{RecordNumber, Uid};
use meridian_shared::time::Now;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound;
use std::sync::Arc;

/// Status fields of a cluster that change with time alone.
const RUNNING_FIELDS: [&str; 1] = ["sinceLastSyncMs"];

/// Most pending scale-ups whose reason one refresh recomputes, because each may evaluate a queue.
const SCALE_UPS_MAX: usize = 32;

/// Collects which objects must be published again.
pub(super) struct Publisher {
    /// Queues and cohorts with a status that may have changed.
    stale: BTreeSet<Key>,
    /// Classes with changed workloads; the statuses of their queues count them.
    moved: BTreeMap<ClassId, Arc<Class>>,
    /// Whether every queue and cohort is stale.
    all_stale: bool,
    /// Workloads that are published with a pending scale-up.
    scale_ups: BTreeSet<Uid>,
    /// The workload whose scale-up reason was recomputed last.
    explained: Option<Uid>,
}

impl std::fmt::Debug for Publisher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Publisher").field("stale", &self.stale.len()).finish_non_exhaustive()
    }
}

impl Publisher {
    pub(super) fn new() -> Self {
        Self {
            stale: BTreeSet::new(),
            moved: BTreeMap::new(),
            all_stale: false,
            scale_ups: BTreeSet::new(),
            explained: None,
        }
    }

    /// Changes of one batch for readers, once it is committed.
    pub(super) fn changes(
        &mut self,
        reads: &Reads,
        world: &World,
        now: Now,
        changed: BTreeSet<Key>,
        workloads: BTreeSet<Uid>,
    ) -> ObjectChanges {
        let mut changes = Vec::with_capacity(changed.len() + 2 * workloads.len());
        for uid in workloads {
            self.scale_ups.remove(&uid);
            let Some(shown) = meridian_views::workloads::shown(world, uid, now.mono) else { continue };
            self.scale_ups.extend(Some(uid).filter(|_| shown.has_scale_up()));
            let [job, workload] = shown.keys();
            let shown = Arc::new(shown);
            let (id, class) = shown.class();
            self.moved.entry(id).or_insert_with(|| class.clone());
            changes.push((
                job,
                Some(StoredObject { version: shown.version(), form: Form::Job(Arc::clone(&shown)) }),
            ));
            changes.push((
                workload,
                Some(StoredObject { version: shown.version(), form: Form::Workload(shown) }),
            ));
        }
        for key in changed {
            // whether a queue is active depends on other objects too
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

    /// Publishes everything. Objects that differ from the published ones become changes.
    pub(super) fn publish_all(&mut self, reads: &Reads, world: &World, now: Now) {
        (self.stale, self.moved, self.all_stale) = Default::default();
        let scale_ups = world.state().workloads().iter().filter(|(_, w)| w.resized().is_some());
        self.scale_ups = scale_ups.map(|(uid, _)| *uid).collect();
        let keys: BTreeSet<Key> = world.keys().into_iter().chain(reads.keys()).collect();
        let changes = keys.into_iter().map(|key| (key.clone(), Self::entry(world, &key, now))).collect();
        reads.clear_pending_reasons();
        reads.set_pending_reasons(world.all_pending_reasons());
        reads.publish(changes, world.state().last(), &HashMap::new());
    }

    /// Refreshes statuses that depend on more than one record, and those of clusters. Returns the changes for
    /// watchers, and the changes without an event. The previous batch must be published already.
    pub(super) fn refresh(
        &mut self,
        reads: &Reads,
        world: &World,
        now: Now,
    ) -> (ObjectChanges, Vec<(Key, StoredObject)>) {
        // the status of an admission check depends on which clusters exist
        let by_clusters =
            |key: &&Key| matches!(key.kind, Kind::Cluster | Kind::MultiKueueCluster | Kind::AdmissionCheck);
        let clusters = world.state().catalog().iter().map(|(key, _)| key).filter(by_clusters);
        let mut keys: BTreeSet<Key> = clusters.cloned().chain(std::mem::take(&mut self.stale)).collect();
        for key in std::mem::take(&mut self.moved).values().flat_map(|class| world.queue_keys(class)) {
            if !keys.contains(&key) {
                keys.extend(cohorts_above(world, &key));
                keys.insert(key);
            }
        }
        if std::mem::take(&mut self.all_stale) {
            keys.extend(
                world
                    .state()
                    .catalog()
                    .iter()
                    .map(|(key, _)| key)
                    .filter(|key| counts_workloads(key))
                    .cloned(),
            );
        }
        let (mut changes, mut without_event) = (Vec::new(), self.explain_scale_ups(reads, world, now));
        for key in keys {
            let Some(entry) = Self::entry(world, &key, now) else { continue };
            match reads.stored(&key) {
                Some(kept) if *kept == entry || differs_in_version_only(&kept, &entry) => {}
                Some(stored) if differs_in_running_fields_only(&stored, &entry) => {
                    without_event.push((key, entry))
                }
                Some(_) => changes.push((key, Some(entry))),
                // the commit that created the object publishes it
                None => {}
            }
        }
        (changes, without_event)
    }

    /// The next workloads with pending scale-ups whose published reason is outdated.
    fn explain_scale_ups(&mut self, reads: &Reads, world: &World, now: Now) -> Vec<(Key, StoredObject)> {
        let after = self.explained.map_or(Bound::Unbounded, Bound::Excluded);
        let due: Vec<Uid> =
            self.scale_ups.range((after, Bound::Unbounded)).copied().take(SCALE_UPS_MAX).collect();
        // After the last workload, start again from the first.
        self.explained = due.last().copied().filter(|_| due.len() == SCALE_UPS_MAX);
        let mut changed = Vec::new();
        for uid in due {
            let shown = meridian_views::workloads::shown(world, uid, now.mono);
            let Some(shown) = shown.filter(meridian_views::workloads::Shown::has_scale_up) else {
                self.scale_ups.remove(&uid);
                continue;
            };
            let (version, keys, shown) = (shown.version(), shown.keys(), Arc::new(shown));
            let forms = [Form::Job(Arc::clone(&shown)), Form::Workload(shown)];
            let entries = keys.into_iter().zip(forms.map(|form| StoredObject { version, form }));
            changed
                .extend(entries.filter(|(key, entry)| reads.stored(key).is_none_or(|kept| *kept != *entry)));
        }
        changed
    }

    fn entry(world: &World, key: &Key, now: Now) -> Option<StoredObject> {
        let uid = match key.kind {
            kind if kind.is_job() => Some(world.uid_of(key.kind, key.namespace.as_deref()?, &key.name)?),
            Kind::Workload => Some(world.workload_at(key)?.0),
            _ => None,
        };
        if let Some(uid) = uid {
            let shown = Arc::new(meridian_views::workloads::shown(world, uid, now.mono)?);
            let version = shown.version();
            return Some(StoredObject {
                version,
                form: if key.kind.is_job() { Form::Job(shown) } else { Form::Workload(shown) },
            });
        }
        let value = meridian_views::objects::stored(world, key, now)?;
        Some(StoredObject { version: version_of(&value), form: Form::Value(Arc::new(value)) })
    }
}

/// The cohorts above a cluster queue: their statuses contain its counts.
fn cohorts_above<'a>(world: &'a World, key: &Key) -> impl Iterator<Item = Key> + 'a {
    let above = if key.kind == Kind::ClusterQueue {
        world.state().catalog().cohorts_above(&key.name)
    } else {
        Vec::new()
    };
    above.into_iter().map(|cohort| Key::global(Kind::Cohort, cohort))
}

fn counts_workloads(key: &Key) -> bool {
    key.scope.is_none() && matches!(key.kind, Kind::ClusterQueue | Kind::LocalQueue | Kind::Cohort)
}

/// Whether readers have the current generation of the object, so that at most its status is outdated.
fn unchanged(reads: &Reads, world: &World, key: &Key) -> bool {
    match (reads.stored(key), world.state().catalog().get(key)) {
        (Some(kept), Some(stored)) => {
            let Form::Value(value) = &kept.form else { return false };
            let metadata = &value["metadata"];
            metadata["generation"] == stored.generation
                && metadata["uid"].as_str() == Some(&stored.uid.to_string())
        }
        (None, None) => true,
        (Some(_), None) | (None, Some(_)) => false,
    }
}

fn differs_in_version_only(kept: &StoredObject, new: &StoredObject) -> bool {
    same_but(kept, new, "metadata", &["resourceVersion"])
}

fn version_of(value: &Value) -> RecordNumber {
    RecordNumber(
        value["metadata"]["resourceVersion"].as_str().and_then(|text| text.parse().ok()).unwrap_or(0),
    )
}

fn differs_in_running_fields_only(kept: &StoredObject, new: &StoredObject) -> bool {
    same_but(kept, new, "status", &RUNNING_FIELDS)
}

/// Whether two objects are equal except for some fields of one part.
fn same_but(kept: &StoredObject, new: &StoredObject, part: &str, fields: &[&str]) -> bool {
    fn rest<'a>(part: &'a Value, fields: &'a [&str]) -> impl Iterator<Item = (&'a String, &'a Value)> {
        part.as_object().into_iter().flatten().filter(|(name, _)| !fields.contains(&name.as_str()))
    }
    let (Form::Value(kept), Form::Value(new)) = (&kept.form, &new.form) else { return false };
    let (Some(kept), Some(new)) = (kept.as_object(), new.as_object()) else { return kept == new };
    let same = |((name, kept), (other, new)): ((&String, &Value), (&String, &Value))| {
        name == other && if name == part { rest(kept, fields).eq(rest(new, fields)) } else { kept == new }
    };
    kept.len() == new.len() && kept.iter().zip(new).all(same)
}
