//! Workloads by number and by name.

use crate::model::{Workload, WorkloadId};
use crate::names::Id;
use std::collections::BTreeMap;
use std::sync::Arc;

#[derive(Clone, Debug, Default)]
pub(super) struct Workloads {
    list: Vec<Option<Workload>>,
    free: Vec<u32>,
    /// Numbers by namespace and name.
    keys: BTreeMap<Arc<str>, WorkloadId>,
}

impl std::ops::Index<&WorkloadId> for Workloads {
    type Output = Workload;

    fn index(&self, id: &WorkloadId) -> &Workload {
        self.list[id.index()].as_ref().expect("the number belongs to this state")
    }
}

impl Workloads {
    pub(super) fn get(&self, id: &WorkloadId) -> Option<&Workload> {
        self.list.get(id.index()).and_then(Option::as_ref)
    }

    pub(super) fn get_mut(&mut self, id: WorkloadId) -> Option<&mut Workload> {
        self.list.get_mut(id.index()).and_then(Option::as_mut)
    }

    /// The number of a workload by namespace and name.
    pub(super) fn find(&self, key: &str) -> Option<WorkloadId> {
        self.keys.get(key).copied()
    }

    /// Adds a workload. Numbers of removed workloads are reused.
    pub(super) fn insert(&mut self, workload: Workload) -> WorkloadId {
        let key = workload.key.clone();
        let id = if let Some(at) = self.free.pop() {
            self.list[at as usize] = Some(workload);
            WorkloadId(at)
        } else {
            self.list.push(Some(workload));
            WorkloadId(u32::try_from(self.list.len() - 1).unwrap_or(u32::MAX))
        };
        self.keys.insert(key, id);
        id
    }

    pub(super) fn remove(&mut self, id: WorkloadId) -> Option<Workload> {
        let removed = self.list.get_mut(id.index())?.take()?;
        self.free.push(id.0);
        self.keys.remove(&removed.key);
        Some(removed)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (WorkloadId, &Workload)> {
        self.list
            .iter()
            .enumerate()
            .filter_map(|(at, w)| Some((WorkloadId(u32::try_from(at).ok()?), w.as_ref()?)))
    }
}
