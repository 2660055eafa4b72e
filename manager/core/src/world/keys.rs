//! Keys of the objects that display a workload.

use crate::facts::key::Key;
use crate::facts::names::{is_shortened, job_part, workload_name};
use crate::facts::submission::Class;
use crate::state::workload::Workload;
use crate::world::World;
use meridian_objects::Kind;
use meridian_shared::ids::{RecordNumber, Uid};
use std::sync::Arc;

impl World {
    /// The keys of all objects: stored ones, jobs, and the `Workload` object of each job.
    pub fn keys(&self) -> Vec<Key> {
        let jobs = self.state.workloads().values().flat_map(|w| [w.key(), workload_key(w)]);
        self.state.catalog().iter().map(|(k, _)| k.clone()).chain(jobs).collect()
    }

    /// The keys of a workload's job, its `Workload` object, and its queues.
    pub fn keys_of(&self, uid: Uid) -> Vec<Key> {
        let Some(workload) = self.state.workloads().get(&uid) else { return Vec::new() };
        [workload.key(), workload_key(workload)]
            .into_iter()
            .chain(self.queue_keys(self.queues.class(workload.class())))
            .collect()
    }

    /// The keys of a class's local queue and of the cluster queue that it points to.
    pub fn queue_keys(&self, class: &Class) -> impl Iterator<Item = Key> {
        let local = Key {
            scope: None,
            kind: Kind::LocalQueue,
            namespace: Some(class.namespace.clone()),
            name: class.queue.clone(),
        };
        let queue = self.state.catalog().local_queue(&class.namespace, &class.queue);
        std::iter::once(local).chain(queue.map(|queue| Key::global(Kind::ClusterQueue, &queue.cluster_queue)))
    }

    /// The workload that a `Workload` object's key names.
    pub fn workload_at(&self, key: &Key) -> Option<(Uid, &Workload)> {
        // The object's name contains the job's name, so no search is needed; or as much of it as fits.
        let namespace = key.namespace.as_ref()?;
        let whole = || self.uid_of(namespace, job_part(&key.name)?);
        let shortened = || self.shortened_names.get(&(namespace.clone(), key.name.clone())).copied();
        let found = |uid: Uid| Some((uid, self.state.workloads().get(&uid)?));
        let has_name = |(_, workload): &(Uid, &Workload)| {
            workload_name(workload.name(), workload.submitted()) == key.name
        };
        whole().and_then(found).filter(has_name).or_else(|| shortened().and_then(found).filter(has_name))
    }

    pub(super) fn remember_names(
        &mut self,
        namespace: &Arc<str>,
        job: &Arc<str>,
        submitted: RecordNumber,
        uid: Uid,
    ) {
        self.names.entry(namespace.clone()).or_default().insert(job.clone(), uid);
        if is_shortened(job) {
            self.shortened_names.insert((namespace.clone(), workload_name(job, submitted)), uid);
        }
    }

    pub(super) fn forget_names(&mut self, uid: Uid, workload: &Workload) {
        if is_shortened(workload.name()) {
            let name = workload_name(workload.name(), workload.submitted());
            self.shortened_names.remove(&(workload.namespace().clone(), name));
        }
        if let Some(names) =
            self.names.get_mut(workload.namespace()).filter(|names| names.get(workload.name()) == Some(&uid))
        {
            names.remove(workload.name());
            if names.is_empty() {
                self.names.remove(workload.namespace());
            }
        }
    }
}

fn workload_key(w: &Workload) -> Key {
    Key {
        scope: None,
        kind: Kind::Workload,
        namespace: Some(w.namespace().clone()),
        name: workload_name(w.name(), w.submitted()),
    }
}
