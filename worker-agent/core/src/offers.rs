//! Open offers, at most one per workload, and the offers that were withdrawn in this session.
//!
//! A newer offer for a workload replaces an older one, so each offer is also found by its workload's uid.

use meridian_shared::gang::Gang;
use meridian_shared::ids::{OfferId, Uid};
use meridian_shared::time::{Millis, Mono};
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// Most offers open at once; more are refused as overloaded.
pub const OFFERS_MAX: usize = 4_096;
/// Withdrawn offers remembered in a session; the oldest are dropped first.
pub const WITHDRAWN_MAX: usize = 65_536;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct OpenOffer {
    pub(crate) uid: Uid,
    /// The namespace of the pods.
    pub(crate) namespace: Arc<str>,
    pub(crate) gang: Arc<Gang>,
    pub(crate) state: OfferState,
    /// Duration of the hold.
    pub(crate) hold: Millis,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum OfferState {
    /// The objects that the gang's pods name are looked up. The gang has an allocation, unless nodes are to
    /// be made for it.
    Checking,
    /// The pods that need no new nodes have an allocation, which the cluster is asked to hold before the
    /// provider is asked for nodes.
    SecuringPart,
    /// The provider was asked for nodes. The pods that need none have an allocation.
    Waiting,
    /// The whole gang has an allocation, which the cluster is asked to hold.
    Securing,
    /// The whole gang has an allocation.
    Held { until: Mono },
}

impl OpenOffer {
    pub(crate) fn held_until(&self) -> Option<Mono> {
        match self.state {
            OfferState::Held { until } => Some(until),
            OfferState::Checking | OfferState::SecuringPart | OfferState::Waiting | OfferState::Securing => {
                None
            }
        }
    }

    /// Whether only the pods that need no new nodes can have an allocation.
    pub(crate) fn is_partial(&self) -> bool {
        matches!(self.state, OfferState::SecuringPart | OfferState::Waiting)
    }

    pub(crate) fn is_held(&self) -> bool {
        self.held_until().is_some()
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Offers {
    open: BTreeMap<OfferId, OpenOffer>,
    by_workload: BTreeMap<Uid, OfferId>,
    withdrawn: BTreeSet<OfferId>,
}

impl Offers {
    pub(crate) fn get(&self, offer: OfferId) -> Option<&OpenOffer> {
        self.open.get(&offer)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (OfferId, &OpenOffer)> {
        self.open.iter().map(|(id, open)| (*id, open))
    }

    pub(crate) fn held(&self) -> impl Iterator<Item = (OfferId, &OpenOffer)> {
        self.iter().filter(|(_, open)| open.is_held())
    }

    pub(crate) fn len(&self) -> usize {
        self.open.len()
    }

    pub(crate) fn for_workload(&self, uid: Uid) -> Option<OfferId> {
        self.by_workload.get(&uid).copied()
    }

    /// Opens an offer. The workload must have no other one.
    pub(crate) fn insert(&mut self, offer: OfferId, open: OpenOffer) {
        self.by_workload.insert(open.uid, offer);
        self.open.insert(offer, open);
    }

    pub(crate) fn remove(&mut self, offer: OfferId) -> Option<OpenOffer> {
        let open = self.open.remove(&offer)?;
        self.by_workload.remove(&open.uid);
        Some(open)
    }

    /// The provider was asked for the nodes of an open offer.
    pub(crate) fn set_waiting(&mut self, offer: OfferId) {
        if let Some(open) = self.open.get_mut(&offer) {
            open.state = OfferState::Waiting;
        }
    }

    /// Turns an open offer into a hold.
    pub(crate) fn set_held(&mut self, offer: OfferId, until: Mono) {
        if let Some(open) = self.open.get_mut(&offer) {
            open.state = OfferState::Held { until };
        }
    }

    /// Holds past their deadline.
    pub(crate) fn expired(&self, at: Mono) -> Vec<(OfferId, Uid)> {
        let over = |open: &OpenOffer| open.held_until().is_some_and(|until| at >= until);
        self.iter().filter(|(_, open)| over(open)).map(|(id, open)| (id, open.uid)).collect()
    }

    /// When the next hold ends.
    pub(crate) fn next_expiry(&self) -> Option<Mono> {
        self.open.values().filter_map(OpenOffer::held_until).min()
    }

    pub(crate) fn is_withdrawn(&self, offer: OfferId) -> bool {
        self.withdrawn.contains(&offer)
    }

    /// Remembers that an offer was withdrawn, known or not: the offer itself may arrive later.
    pub(crate) fn remember_withdrawn(&mut self, offer: OfferId) {
        self.withdrawn.insert(offer);
        while self.withdrawn.len() > WITHDRAWN_MAX {
            self.withdrawn.pop_first();
        }
    }

    pub(crate) fn check(&self) -> Result<(), String> {
        match self.iter().find(|(offer, open)| self.for_workload(open.uid) != Some(*offer)) {
            Some((offer, open)) => Err(format!("offer {offer} has no entry under its workload {}", open.uid)),
            None if self.by_workload.len() != self.open.len() => {
                Err("a workload names an offer that is not open".into())
            }
            None => Ok(()),
        }
    }

    /// Feeds everything that later behaviour depends on, with remaining times instead of moments.
    pub(crate) fn hash_fingerprint(&self, now: Mono, into: &mut impl Hasher) {
        self.withdrawn.hash(into);
        for (offer, OpenOffer { uid, namespace: _, gang: _, state, hold: _ }) in self.iter() {
            let left = match state {
                OfferState::Checking => (0, None),
                OfferState::Waiting => (1, None),
                OfferState::Securing => (2, None),
                OfferState::Held { until } => (3, Some(until.since(now))),
                OfferState::SecuringPart => (4, None),
            };
            (offer, uid, left).hash(into);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(counter: u64) -> OfferId {
        OfferId { epoch: 1, leadership: 1, counter }
    }

    fn open(uid: u128, state: OfferState) -> OpenOffer {
        OpenOffer { uid: Uid(uid), namespace: "default".into(), gang: Arc::default(), state, hold: Millis(1) }
    }

    fn held(uid: u128, until: u64) -> OpenOffer {
        open(uid, OfferState::Held { until: Mono(until) })
    }

    #[test]
    fn an_offer_is_found_by_its_workload() {
        let mut offers = Offers::default();
        offers.insert(number(1), open(7, OfferState::Waiting));
        assert_eq!((offers.for_workload(Uid(7)), offers.len()), (Some(number(1)), 1));
        offers.check().unwrap();
        assert_eq!(offers.remove(number(2)), None);
        assert_eq!(offers.remove(number(1)).map(|open| open.uid), Some(Uid(7)));
        assert_eq!((offers.for_workload(Uid(7)), offers.len()), (None, 0));
        offers.check().unwrap();
    }

    #[test]
    fn the_check_finds_an_offer_that_its_workload_does_not_name() {
        let mut offers = Offers::default();
        [1, 2].into_iter().for_each(|n| offers.insert(number(n), open(7, OfferState::Waiting)));
        offers.check().unwrap_err();
        let mut offers = Offers::default();
        offers.insert(number(1), open(7, OfferState::Waiting));
        offers.by_workload.insert(Uid(8), number(1));
        offers.check().unwrap_err();
    }

    #[test]
    fn only_holds_end_by_themselves() {
        let mut offers = Offers::default();
        offers.insert(number(1), held(1, 200));
        offers.insert(number(2), held(2, 100));
        offers.insert(number(3), open(3, OfferState::Securing));
        assert_eq!((offers.next_expiry(), offers.held().count()), (Some(Mono(100)), 2));
        assert_eq!(
            (offers.expired(Mono(99)), offers.expired(Mono(100))),
            (vec![], vec![(number(2), Uid(2))])
        );
        offers.set_held(number(3), Mono(50));
        offers.set_waiting(number(2));
        assert_eq!((offers.next_expiry(), offers.held().count()), (Some(Mono(50)), 2));
    }

    #[test]
    fn the_oldest_withdrawn_offers_are_forgotten_first() {
        let mut offers = Offers::default();
        let most = WITHDRAWN_MAX as u64;
        (1..=most).for_each(|n| offers.remember_withdrawn(number(n)));
        assert!(offers.is_withdrawn(number(1)));
        offers.remember_withdrawn(number(most + 1));
        assert!(!offers.is_withdrawn(number(1)) && offers.is_withdrawn(number(2)));
    }
}
