//! The interface to the objects in the cluster that a hold needs in addition to the ledger.

use super::PodPlacement;
use meridian_shared::gang::Gang;
use meridian_shared::ids::{OfferId, Uid};
use meridian_shared::protocol::Reference;
use std::fmt;
use std::sync::Arc;

/// The objects that an offer's pods name, to be looked up before anything is held.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ReferenceCheck {
    pub offer: OfferId,
    pub uid: Uid,
    pub namespace: Arc<str>,
    pub references: Vec<Reference>,
}

/// An allocation of the ledger, to be held in the cluster too.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HoldOrder {
    pub offer: OfferId,
    pub uid: Uid,
    /// The namespace of the gang's pods.
    pub namespace: Arc<str>,
    pub gang: Arc<Gang>,
    /// One entry for each pod, in the order of a later start.
    pub placement: Vec<PodPlacement>,
}

/// Answers and reports about one offer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum HoldEvent {
    /// Nothing that can be looked up is missing.
    Checked { offer: OfferId },
    /// The cluster holds the whole allocation.
    Secured { offer: OfferId },
    Waiting {
        offer: OfferId,
        /// The cluster's own text.
        reason: String,
    },
    /// The offer can't be held, or its hold was lost. A hold can also be lost after its run has started.
    Failed {
        offer: OfferId,
        /// Message for users.
        reason: String,
    },
}

/// Looks up what offers need, and holds their allocations where the ledger alone can't.
///
/// Commands only hand an order over and return at once; what happens comes back as [`HoldEvent`]s. Everything
/// is named by its offer, and commands are idempotent by that name. After `Failed` and after
/// [`Holds::release`] nothing more is reported. Objects that belong to no offer and to no run are given back,
/// because offers end with the session that made the objects.
///
/// **Unknown is not gone.** A read that failed says nothing: it is repeated, or the offer fails with a reason
/// that says so.
pub trait Holds: Send + fmt::Debug {
    fn check(&mut self, check: ReferenceCheck);

    /// Holds an allocation in the cluster, until `release`.
    fn secure(&mut self, order: HoldOrder);

    /// Gives back what is held for `offer`. Ignored if nothing is held.
    fn release(&mut self, offer: OfferId);
}
