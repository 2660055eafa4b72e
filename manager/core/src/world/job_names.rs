//! Workloads by the names of their jobs.

use crate::facts::names::is_shortened;
use crate::state::workload::Workload;
use meridian_objects::Kind;
use meridian_shared::ids::Uid;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Workloads of jobs of one kind, by namespace and name.
type UidsByName = BTreeMap<Arc<str>, BTreeMap<Arc<str>, Uid>>;

/// The workload of each job, by kind, namespace and name.
///
/// A cache over durable state. Empty maps are removed, so that equal states have equal caches.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct JobNames {
    whole: BTreeMap<Kind, UidsByName>,
    /// Workloads whose object names contain only a part of the job's name, by namespace and object name.
    shortened: BTreeMap<(Arc<str>, Arc<str>), Uid>,
}

impl JobNames {
    pub(super) fn find(&self, kind: Kind, namespace: &str, name: &str) -> Option<Uid> {
        self.whole.get(&kind)?.get(namespace)?.get(name).copied()
    }

    /// The workload whose object has this name, which contains only a part of the job's name.
    pub(super) fn find_shortened(&self, namespace: &Arc<str>, object_name: &Arc<str>) -> Option<Uid> {
        self.shortened.get(&(namespace.clone(), object_name.clone())).copied()
    }

    pub(super) fn remember(&mut self, uid: Uid, workload: &Workload) {
        let (kind, namespace, job) = (workload.kind(), workload.namespace(), workload.name());
        self.whole.entry(kind).or_default().entry(namespace.clone()).or_default().insert(job.clone(), uid);
        if is_shortened(kind, job) {
            self.shortened.insert((namespace.clone(), workload.object_name()), uid);
        }
    }

    pub(super) fn forget(&mut self, uid: Uid, workload: &Workload) {
        if is_shortened(workload.kind(), workload.name()) {
            self.shortened.remove(&(workload.namespace().clone(), workload.object_name()));
        }
        let Some(namespaces) = self.whole.get_mut(&workload.kind()) else { return };
        if let Some(names) =
            namespaces.get_mut(workload.namespace()).filter(|names| names.get(workload.name()) == Some(&uid))
        {
            names.remove(workload.name());
            if names.is_empty() {
                namespaces.remove(workload.namespace());
            }
        }
        if namespaces.is_empty() {
            self.whole.remove(&workload.kind());
        }
    }
}
