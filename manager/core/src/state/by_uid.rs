//! Maps by uid, for whoever is looked up far more often than listed: a look is one step, not a walk down a tree.
//!
//! Listed, they are in the order of uids, so that nothing follows from how they are kept. Uids are random numbers of the
//! manager's own, so nobody can choose them to collide.

use indexmap::IndexMap;
use meridian_shared::ids::Uid;
use std::hash::{BuildHasherDefault, DefaultHasher, Hash, Hasher};

/// A map by uid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ByUid<V>(IndexMap<Uid, V, BuildHasherDefault<DefaultHasher>>);

impl<V> Default for ByUid<V> {
    fn default() -> Self {
        Self(IndexMap::default())
    }
}

impl<V> ByUid<V> {
    pub(crate) fn get(&self, uid: &Uid) -> Option<&V> {
        self.0.get(uid)
    }

    pub(crate) fn get_mut(&mut self, uid: &Uid) -> Option<&mut V> {
        self.0.get_mut(uid)
    }

    pub(crate) fn insert(&mut self, uid: Uid, value: V) -> Option<V> {
        self.0.insert(uid, value)
    }

    pub(crate) fn remove(&mut self, uid: &Uid) -> Option<V> {
        self.0.swap_remove(uid)
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether one of them is so. Who asks this sees no order.
    pub(crate) fn any(&self, so: impl FnMut(&V) -> bool) -> bool {
        self.0.values().any(so)
    }

    /// All of them, in the order of uids.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Uid, &V)> {
        let mut all: Vec<_> = self.0.iter().collect();
        all.sort_unstable_by_key(|(uid, _)| **uid);
        all.into_iter()
    }
}

impl<V: Hash> Hash for ByUid<V> {
    fn hash<H: Hasher>(&self, into: &mut H) {
        self.len().hash(into);
        self.iter().for_each(|one| one.hash(into));
    }
}

impl<V> FromIterator<(Uid, V)> for ByUid<V> {
    fn from_iter<I: IntoIterator<Item = (Uid, V)>>(all: I) -> Self {
        Self(all.into_iter().collect())
    }
}
