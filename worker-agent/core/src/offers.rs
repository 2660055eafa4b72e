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
