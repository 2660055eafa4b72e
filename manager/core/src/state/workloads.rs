use crate::state::by_uid::ByUid;
use crate::state::workload::Workload;
use meridian_shared::ids::Uid;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::BTreeMap;
use std::hash::Hash;
use std::ops::Index;
use std::sync::Arc;

/// Every workload. Who took one down shares it until it changes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Workloads(ByUid<Arc<Workload>>);

impl Workloads {
    /// One of them.
    pub fn get(&self, uid: &Uid) -> Option<&Workload> {
        self.0.get(uid).map(|workload| &**workload)
    }

    /// One of them as it is now.
    pub(crate) fn shared(&self, uid: &Uid) -> Option<&Arc<Workload>> {
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

    /// Whether there is one.
    pub fn contains_key(&self, uid: &Uid) -> bool {
        self.0.get(uid).is_some()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether one of them is so.
    pub fn any(&self, mut so: impl FnMut(&Workload) -> bool) -> bool {
        self.0.any(|workload| so(workload))
    }

    /// All of them, in the order of uids.
    pub fn iter(&self) -> impl Iterator<Item = (&Uid, &Workload)> {
        self.0.iter().map(|(uid, workload)| (uid, &**workload))
    }

    /// Their uids, in order.
    pub fn keys(&self) -> impl Iterator<Item = &Uid> {
        self.iter().map(|(uid, _)| uid)
    }

    /// All of them, in the order of uids.
    pub fn values(&self) -> impl Iterator<Item = &Workload> {
        self.iter().map(|(_, workload)| workload)
    }
}

impl Index<&Uid> for Workloads {
    type Output = Workload;

    fn index(&self, uid: &Uid) -> &Workload {
        self.get(uid).expect("who asks has seen it")
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
    fn what_is_listed_doesnt_depend_on_the_order_in_which_it_came() {
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
