//! Bounded sets of members that aren't authenticated yet. A new member is always admitted: when the set is
//! full, its oldest member is cut. Honest members leave within moments, so an old member is probably hostile
//! or dead.

use crate::locks;
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::sync::{Arc, Mutex};
use tokio_util::sync::CancellationToken;

/// Bounds of a [`Pool`]; a bound of 0 counts as 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolLimits {
    pub total: usize,
    /// Members with the same key, such as the connections of one address.
    pub per_key: usize,
}

/// The bound that was reached when a member was added. An older member was cut for the new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Full {
    /// The oldest member with the new member's key was cut.
    Key,
    /// The oldest member of the key with the most members was cut.
    Total,
}

/// A bounded set. Clones share it.
#[derive(Debug)]
pub(crate) struct Pool<K>(Arc<Inner<K>>);

#[derive(Debug)]
struct Inner<K> {
    limits: PoolLimits,
    members: Mutex<Members<K>>,
}

#[derive(Debug)]
struct Members<K> {
    next: u64,
    count: usize,
    /// Members in the order of their arrival.
    by_key: HashMap<K, BTreeMap<u64, CancellationToken>>,
}

impl<K> Clone for Pool<K> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<K: Clone + Eq + Hash> Pool<K> {
    pub(crate) fn new(limits: PoolLimits) -> Self {
        let members = Members { next: 0, count: 0, by_key: HashMap::new() };
        Self(Arc::new(Inner { limits, members: Mutex::new(members) }))
    }

    /// Adds a member until the returned value is dropped. `cut` is cancelled if a later member needs its
    /// place.
    pub(crate) fn enter(&self, key: K, cut: CancellationToken) -> (Member<K>, Option<Full>) {
        let PoolLimits { total, per_key } = self.0.limits;
        let mut members = locks::lock(&self.0.members);
        let full = if members.by_key.get(&key).map_or(0, BTreeMap::len) >= per_key.max(1) {
            members.cut_oldest(&key);
            Some(Full::Key)
        } else if members.count >= total.max(1)
            && let Some(largest) = members.largest_key()
        {
            members.cut_oldest(&largest);
            Some(Full::Total)
        } else {
            None
        };
        let id = members.next;
        members.next += 1;
        members.count += 1;
        members.by_key.entry(key.clone()).or_default().insert(id, cut);
        drop(members);
        (Member { pool: self.clone(), key, id }, full)
    }
}

impl<K: Clone + Eq + Hash> Members<K> {
    /// The key with the most members; among equals, the one with the oldest member.
    fn largest_key(&self) -> Option<K> {
        let rank = |members: &BTreeMap<u64, CancellationToken>| {
            (members.len(), Reverse(members.keys().next().copied()))
        };
        self.by_key.iter().max_by_key(|(_, members)| rank(members)).map(|(key, _)| key.clone())
    }

    fn cut_oldest(&mut self, key: &K) {
        let oldest = self.by_key.get(key).and_then(|members| members.keys().next().copied());
        if let Some(cut) = oldest.and_then(|id| self.remove(key, id)) {
            cut.cancel();
        }
    }

    fn remove(&mut self, key: &K, id: u64) -> Option<CancellationToken> {
        let members = self.by_key.get_mut(key)?;
        let removed = members.remove(&id)?;
        if members.is_empty() {
            self.by_key.remove(key);
        }
        self.count -= 1;
        Some(removed)
    }
}

/// A place in a [`Pool`], released on drop.
#[derive(Debug)]
pub(crate) struct Member<K: Clone + Eq + Hash> {
    pool: Pool<K>,
    key: K,
    id: u64,
}

impl<K: Clone + Eq + Hash> Drop for Member<K> {
    fn drop(&mut self) {
        // gone already if it was cut
        locks::lock(&self.pool.0.members).remove(&self.key, self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_newcomer_takes_the_place_of_the_oldest_member() {
        let pool = Pool::new(PoolLimits { total: 4, per_key: 3 });
        let enter = |key: &'static str| {
            let cut = CancellationToken::new();
            let (member, full) = pool.enter(key, cut.clone());
            (member, cut, full)
        };
        let first = enter("flood");
        let others: Vec<_> = (0..2).map(|_| enter("flood")).collect();
        assert!(others.iter().all(|(_, _, full)| full.is_none()));
        assert_eq!(enter("flood").2, Some(Full::Key), "one key has its share");
        assert!(first.1.is_cancelled());
        drop(first);

        let honest = enter("honest");
        let another = enter("another");
        let last = enter("last");
        assert_eq!((honest.2, another.2, last.2), (None, None, Some(Full::Total)));
        assert!(others[0].1.is_cancelled(), "the key with the most members loses its oldest one");
        assert!(!others[1].1.is_cancelled() && !honest.1.is_cancelled() && !another.1.is_cancelled());
        drop((honest, another, last, others));
        assert_eq!(locks::lock(&pool.0.members).count, 0);
        assert!(locks::lock(&pool.0.members).by_key.is_empty());
    }
}
