use crate::state::by_uid::ByUid;
use crate::state::workload::Workload;
use meridian_shared::ids::Uid;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::BTreeMap;
use std::hash::Hash;
use std::ops::Index;
use std::sync::Arc;

/// All workloads by uid. Each is behind an `Arc`, so that a copy of the state shares every workload that
/// doesn't change.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Workloads(ByUid<Arc<Workload>>);

impl Workloads {
    pub fn get(&self, uid: &Uid) -> Option<&Workload> {
        self.0.get(uid).map(|workload| &**workload)
    }

    /// The workload as it is now. Later changes don't affect the returned value.
    pub fn shared(&self, uid: &Uid) -> Option<&Arc<Workload>> {
        self.0.get(uid)
    }

    pub(crate) fn get_mut(&mut self, uid: &Uid) -> Option<&mut Workload> {
        self.0.get_mut(uid).map(Arc::make_mut)
    }

    pub(crate) fn insert(&mut self, uid: Uid, workload: Workload) {
        self.0.insert(uid, Arc::new(workload));
    }

    pub(crate) fn remove(&mut self, uid: &Uid) -> Option<Arc<Workload>> {
        self.0.remove(uid)
    }

    pub fn contains_key(&self, uid: &Uid) -> bool {
        self.0.get(uid).is_some()
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether any workload satisfies `predicate`. Cheaper than [`Self::values`], which sorts.
    pub fn any(&self, mut predicate: impl FnMut(&Workload) -> bool) -> bool {
        self.0.any(|workload| predicate(workload))
    }

    /// In the order of uids. Sorts all workloads first.
    pub fn iter(&self) -> impl Iterator<Item = (&Uid, &Workload)> {
        self.0.iter().map(|(uid, workload)| (uid, &**workload))
    }

    /// Uids in order. Sorts all workloads first.
    pub fn keys(&self) -> impl Iterator<Item = &Uid> {
        self.iter().map(|(uid, _)| uid)
    }

    /// In the order of uids. Sorts all workloads first.
    pub fn values(&self) -> impl Iterator<Item = &Workload> {
        self.iter().map(|(_, workload)| workload)
    }
}

impl Index<&Uid> for Workloads {
    type Output = Workload;

    fn index(&self, uid: &Uid) -> &Workload {
        self.get(uid).expect("the caller knows that the workload exists")
    }
}

impl Serialize for Workloads {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_map(self.iter())
    }
}

impl<'de> Deserialize<'de> for Workloads {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let all = BTreeMap::<Uid, Workload>::deserialize(from)?;
        Ok(Self(all.into_iter().map(|(uid, workload)| (uid, Arc::new(workload))).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::hash::{DefaultHasher, Hasher};

    #[test]
    fn iteration_equality_and_hash_ignore_insertion_order() {
        let (mut some, mut others) = (ByUid::default(), ByUid::default());
        for uid in [3, 1, 2, 4] {
            some.insert(Uid(uid), uid);
        }
        for uid in [4, 2, 5, 3, 1] {
            others.insert(Uid(uid), uid);
        }
        assert_eq!(others.remove(&Uid(5)), Some(5));
        assert_eq!(some.iter().map(|(_, n)| *n).collect::<Vec<_>>(), [1, 2, 3, 4]);
        assert!(some.iter().eq(others.iter()) && some == others);
        let hash = |map: &ByUid<u128>| {
            let mut hasher = DefaultHasher::new();
            map.hash(&mut hasher);
            hasher.finish()
        };
        assert_eq!(hash(&some), hash(&others));
    }
}
