//! Keys of the objects that display a workload.

use crate::facts::key::Key;
use crate::facts::names::workload_name;
use crate::facts::submission::Class;
use crate::state::workload::Workload;
use crate::world::World;
use meridian_objects::Kind;
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
        // The object's name contains the job's name, so no search is needed.
        let job = key.name.strip_prefix("job-")?.rsplit_once('-')?.0;
        let uid = self.uid_of(key.namespace.as_deref()?, job)?;
        let workload = &self.state.workloads()[&uid];
        (workload_name(workload.name(), workload.submitted()) == key.name).then_some((uid, workload))
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
