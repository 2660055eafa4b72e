//! A hash map by uid, for values that are looked up far more often than listed.
//!
//! Iteration sorts by uid, so that no decision depends on hash or insertion order. The hash needs no random
//! seed: the manager makes uids at random, so nobody can choose uids that collide.

use indexmap::IndexMap;
use meridian_shared::ids::Uid;
use std::hash::{BuildHasherDefault, DefaultHasher, Hash, Hasher};

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

    /// Whether any value satisfies `predicate`. Needs no order, so nothing is sorted.
    pub(crate) fn any(&self, predicate: impl FnMut(&V) -> bool) -> bool {
        self.0.values().any(predicate)
    }

    /// In the order of uids.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Uid, &V)> {
        let mut all: Vec<_> = self.0.iter().collect();
        all.sort_unstable_by_key(|(uid, _)| **uid);
        all.into_iter()
    }
}

impl<V: Hash> Hash for ByUid<V> {
    fn hash<H: Hasher>(&self, into: &mut H) {
        self.len().hash(into);
        self.iter().for_each(|entry| entry.hash(into));
    }
}

impl<V> FromIterator<(Uid, V)> for ByUid<V> {
    fn from_iter<I: IntoIterator<Item = (Uid, V)>>(all: I) -> Self {
        Self(all.into_iter().collect())
    }
}
