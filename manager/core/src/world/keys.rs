//! Keys of the objects that display a workload.

use crate::facts::key::Key;
use crate::facts::names::possible_jobs;
use crate::facts::submission::Class;
use crate::state::workload::Workload;
use crate::world::World;
use meridian_objects::Kind;
use meridian_objects::job::JobKind;
use meridian_shared::ids::Uid;

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
        // The object's name contains the job's name, perhaps shortened, so no search over all workloads is
        // needed.
        let namespace = key.namespace.as_ref()?;
        let found = |uid: Uid| Some((uid, self.state.workloads().get(&uid)?));
        let has_name = |(_, workload): &(Uid, &Workload)| workload.object_name() == key.name;
        let whole = possible_jobs(&key.name)
            .filter_map(|(kind, job)| self.uid_of(kind, namespace, job).and_then(found))
            .find(has_name);
        whole.or_else(|| {
            let shortened = self.names.find_shortened(namespace, &key.name);
            shortened.and_then(found).filter(has_name)
        })
    }

    /// The job or workload with this name, for requests that don't name a kind.
    pub fn uid_by_name(&self, namespace: &str, name: &str) -> Option<Uid> {
        let job = JobKind::all().find_map(|job| self.uid_of(job.kind(), namespace, name));
        let workload = || self.workload_at(&Key::namespaced(Kind::Workload, namespace, name));
        job.or_else(|| workload().map(|(uid, _)| uid))
    }
}

fn workload_key(w: &Workload) -> Key {
    Key { scope: None, kind: Kind::Workload, namespace: Some(w.namespace().clone()), name: w.object_name() }
}
