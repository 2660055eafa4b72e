//! Shares of a limited resource, so that one caller can't use up all of it.

use crate::locks;
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex};

/// A resource with a limit per caller and a limit for all callers together. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct CallerShares<K>(Arc<Inner<K>>);

#[derive(Debug)]
struct Inner<K> {
    per_caller: usize,
    total: usize,
    used: Mutex<Used<K>>,
}

#[derive(Debug)]
struct Used<K> {
    total: usize,
    by_caller: HashMap<K, usize>,
}

impl<K: Clone + Eq + Hash> CallerShares<K> {
    pub(crate) fn new(per_caller: usize, total: usize) -> Self {
        let used = Mutex::new(Used { total: 0, by_caller: HashMap::new() });
        Self(Arc::new(Inner { per_caller, total, used }))
    }

    /// Takes 1 as [`take_some`](Self::take_some) does.
    pub(crate) fn take_one(&self, caller: K) -> Result<Share<K>, usize> {
        self.take_some(caller, 1)
    }

    /// Takes `amount` until the returned value is dropped. A caller that already has a share may take at most
    /// half of the free amount, so that some is left for callers without a share. A caller without a share
    /// may take all that is free. Otherwise returns how much the caller has.
    pub(crate) fn take_some(&self, caller: K, amount: usize) -> Result<Share<K>, usize> {
        let mut used = locks::lock(&self.0.used);
        let own = used.by_caller.get(&caller).copied().unwrap_or(0);
        let free = self.0.total.saturating_sub(used.total);
        let share = self.0.per_caller.min(free / 2);
        if amount > free || (own > 0 && amount > 0 && own + amount > share) {
            return Err(own);
        }
        used.by_caller.insert(caller.clone(), own + amount);
        used.total += amount;
        Ok(Share { of: self.clone(), caller, amount })
    }

    /// Takes `amount` until the returned value is dropped; an amount above a caller's share counts as the
    /// whole share. `None` if too little is left.
    pub(crate) fn take(&self, caller: K, amount: usize) -> Option<Share<K>> {
        let amount = amount.min(self.0.per_caller);
        let mut used = locks::lock(&self.0.used);
        let own = used.by_caller.get(&caller).copied().unwrap_or(0);
        if own + amount > self.0.per_caller || used.total + amount > self.0.total {
            return None;
        }
        used.by_caller.insert(caller.clone(), own + amount);
        used.total += amount;
        Some(Share { of: self.clone(), caller, amount })
    }
}

/// Share of one request, returned on drop.
#[derive(Debug)]
pub(crate) struct Share<K: Clone + Eq + Hash> {
    of: CallerShares<K>,
    caller: K,
    amount: usize,
}

impl<K: Clone + Eq + Hash> Drop for Share<K> {
    fn drop(&mut self) {
        let mut used = locks::lock(&self.of.0.used);
        used.total -= self.amount;
        let own = used.by_caller.get(&self.caller).copied().unwrap_or(0).saturating_sub(self.amount);
        match own {
            0 => drop(used.by_caller.remove(&self.caller)),
            own => drop(used.by_caller.insert(self.caller.clone(), own)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_callers_leave_places_to_others() {
        let shares = CallerShares::new(8, 32);
        let take_all = |caller: &'static str| -> Vec<_> {
            std::iter::from_fn(|| shares.take_one(caller).ok()).collect()
        };
        let callers = ["a", "b", "c", "d", "e", "f", "g", "h"];
        let held: Vec<Vec<_>> = callers.into_iter().map(take_all).collect();
        let counts: Vec<usize> = held.iter().map(Vec::len).collect();
        assert_eq!((counts[0], counts[1]), (8, 8), "{counts:?}");
        assert!(counts.iter().all(|count| *count >= 1) && counts.iter().sum::<usize>() <= 32, "{counts:?}");
        assert_eq!(shares.take_one("a").unwrap_err(), 8);
        drop(held);
        assert!(locks::lock(&shares.0.used).by_caller.is_empty());
    }

    #[test]
    fn large_amounts_leave_room_to_callers_without_any() {
        let shares = CallerShares::new(4 * 32, 16 * 32);
        let take_all =
            |caller: usize| -> Vec<_> { std::iter::from_fn(|| shares.take_some(caller, 32).ok()).collect() };
        let held: Vec<Vec<_>> = (0..6).map(take_all).collect();
        let counts: Vec<usize> = held.iter().map(Vec::len).collect();
        assert_eq!(counts[0], 4);
        assert!(counts.iter().all(|count| *count >= 1), "{counts:?}");
        assert_eq!(shares.take_some(0, 32).unwrap_err(), 4 * 32);
        assert!(shares.take_some(0, 0).is_ok(), "nothing needs no room");
        drop(held);
        assert!(locks::lock(&shares.0.used).by_caller.is_empty());
    }

    #[test]
    fn a_caller_never_gets_more_than_its_share() {
        let shares = CallerShares::new(4, 6);
        let first = shares.take("ada", 3).unwrap();
        assert!(shares.take("ada", 2).is_none(), "beyond the caller's share");
        let second = shares.take("sam", 2).unwrap();
        let third = shares.take("ada", 1).unwrap();
        assert!(shares.take("sam", 1).is_none(), "beyond the total");
        drop((first, third));
        drop(second);
        assert!(shares.take("ada", 1_000).is_some(), "counts as the whole share");
        assert!(locks::lock(&shares.0.used).by_caller.is_empty());
    }
}
