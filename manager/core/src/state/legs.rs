//! Legs of a workload that are not over. Nearly always there is one; a race has a few. They are kept in a
//! vector without spare capacity, because hundreds of thousands of workloads may have legs.

pub mod leg;

use crate::facts::submission::Choice;
use crate::state::legs::leg::LegState;
use meridian_shared::ids::{ClusterName, Fence, LedgerId, OfferId};
use meridian_shared::placement::Placement;
use meridian_shared::time::{Millis, Wall};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::BTreeMap;
use std::sync::Arc;

/// One workload on one cluster. Changes as its records are absorbed.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Leg {
    pub(super) cluster: ClusterName,
    pub(super) ledger: LedgerId,
    pub(super) state: LegState,
    pub(super) fence: Option<Fence>,
    pub(super) accepted: bool,
    pub(super) note: Option<String>,
    pub(super) estimate: Option<Millis>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) choice: Option<Choice>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) replaced_ledger: Option<ReplacedLedger>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) placement: Option<Arc<Placement>>,
}

/// The ledger of a granted leg was replaced, so no agent knows its pods any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ReplacedLedger {
    /// When the lease will have lapsed. `None` if only `declare-lost` ends the attempt.
    pub until: Option<Wall>,
}

impl Leg {
    pub fn new(cluster: ClusterName, ledger: LedgerId, state: LegState) -> Self {
        Self {
            cluster,
            ledger,
            state,
            fence: None,
            accepted: false,
            note: None,
            estimate: None,
            choice: None,
            replaced_ledger: None,
            placement: None,
        }
    }

    pub fn cluster(&self) -> &ClusterName {
        &self.cluster
    }

    /// The agent's ledger at the time of the offer. Only this ledger can refuse, end or confirm the leg.
    pub fn ledger(&self) -> LedgerId {
        self.ledger
    }

    pub fn state(&self) -> LegState {
        self.state
    }

    /// Present once granted.
    pub fn fence(&self) -> Option<Fence> {
        self.fence
    }

    /// Whether the agent has confirmed that the grant is durable there.
    pub fn accepted(&self) -> bool {
        self.accepted
    }

    /// The provider's reason for the wait.
    pub fn note(&self) -> Option<&str> {
        self.note.as_deref()
    }

    /// The provider's estimate of the wait.
    pub fn estimate(&self) -> Option<Millis> {
        self.estimate
    }

    /// Why this cluster was chosen.
    pub fn choice(&self) -> Option<Choice> {
        self.choice
    }

    /// Present once the cluster's agent has another ledger.
    pub fn replaced_ledger(&self) -> Option<ReplacedLedger> {
        self.replaced_ledger
    }

    /// Newest placement of the pods that the agent reported.
    pub fn placement(&self) -> Option<&Arc<Placement>> {
        self.placement.as_ref()
    }
}

/// Legs, sorted by offer id.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Legs(Vec<(OfferId, Leg)>);

impl Legs {
    fn find(&self, offer: &OfferId) -> Result<usize, usize> {
        self.0.binary_search_by_key(offer, |(offer, _)| *offer)
    }

    pub fn get(&self, offer: &OfferId) -> Option<&Leg> {
        self.find(offer).ok().map(|at| &self.0[at].1)
    }

    pub(crate) fn get_mut(&mut self, offer: &OfferId) -> Option<&mut Leg> {
        self.find(offer).ok().map(|at| &mut self.0[at].1)
    }

    pub(crate) fn insert(&mut self, offer: OfferId, leg: Leg) {
        match self.find(&offer) {
            Ok(at) => self.0[at].1 = leg,
            Err(at) => {
                self.0.reserve_exact(1);
                self.0.insert(at, (offer, leg));
            }
        }
    }

    pub(crate) fn remove(&mut self, offer: &OfferId) -> Option<Leg> {
        self.find(offer).ok().map(|at| self.0.remove(at).1)
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// In the order of offer ids.
    pub fn iter(&self) -> impl Iterator<Item = (&OfferId, &Leg)> {
        self.0.iter().map(|(offer, leg)| (offer, leg))
    }

    pub fn keys(&self) -> impl Iterator<Item = &OfferId> {
        self.iter().map(|(offer, _)| offer)
    }

    pub fn values(&self) -> impl Iterator<Item = &Leg> {
        self.iter().map(|(_, leg)| leg)
    }

    pub(crate) fn values_mut(&mut self) -> impl Iterator<Item = &mut Leg> {
        self.0.iter_mut().map(|(_, leg)| leg)
    }
}

/// Serialised as a map by offer id.
impl Serialize for Legs {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_map(self.iter())
    }
}

impl<'de> Deserialize<'de> for Legs {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Ok(Self(BTreeMap::deserialize(from)?.into_iter().collect()))
    }
}
