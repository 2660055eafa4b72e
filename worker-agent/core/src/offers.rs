//! Open offers, and which one is about whom.
//!
//! A newer question about a workload replaces an older one, so each has one open offer at most: it is found by its uid, however
//! many are open.

use crate::{OfferState, OpenOffer};
use meridian_shared::ids::{OfferId, Uid};
use std::collections::BTreeMap;
use std::ops::Deref;

/// Open offers by their numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Offers {
    open: BTreeMap<OfferId, OpenOffer>,
    about: BTreeMap<Uid, OfferId>,
}

impl Deref for Offers {
    type Target = BTreeMap<OfferId, OpenOffer>;

    fn deref(&self) -> &Self::Target {
        &self.open
    }
}

impl Offers {
    /// The one about a workload.
    pub(crate) fn about(&self, uid: Uid) -> Option<OfferId> {
        self.about.get(&uid).copied()
    }

    /// Opens one; an older one about the same workload must be gone.
    pub(crate) fn insert(&mut self, offer: OfferId, open: OpenOffer) {
        self.about.insert(open.uid, offer);
        self.open.insert(offer, open);
    }

    pub(crate) fn remove(&mut self, offer: OfferId) -> Option<OpenOffer> {
        let open = self.open.remove(&offer)?;
        self.about.remove(&open.uid);
        Some(open)
    }

    /// What became of it, for whoever changes that.
    pub(crate) fn state_mut(&mut self, offer: OfferId) -> Option<&mut OfferState> {
        self.open.get_mut(&offer).map(|open| &mut open.state)
    }

    pub(crate) fn check(&self) -> Result<(), String> {
        match self.open.iter().find(|(offer, open)| self.about(open.uid) != Some(**offer)) {
            Some((offer, open)) => {
                Err(format!("offer {offer} isn't the one that is open about {}", open.uid))
            }
            None if self.about.len() != self.open.len() => {
                Err("offers that aren't open are about somebody".into())
            }
            None => Ok(()),
        }
    }
}
