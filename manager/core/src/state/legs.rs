//! The legs of a workload that are not over: one nearly always, a few in a race. Hundreds of thousands of workloads have
//! some, so they take no more room than they need.

pub mod leg;

use crate::facts::submission::Choice;
use crate::state::legs::leg::State;
use meridian_shared::ids::{ClusterName, Fence, LedgerId, OfferId};
use meridian_shared::placement::Placement;
use meridian_shared::time::Millis;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::BTreeMap;
use std::sync::Arc;

/// One workload on one cluster.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Leg {
    /// The cluster.
    pub cluster: ClusterName,
    /// The ledger that was asked: only it can free.
    pub ledger: LedgerId,
    /// Where the leg stands.
    pub state: State,
    /// Its fence, once granted.
    pub fence: Option<Fence>,
    /// Whether the agent is known to have the grant durably.
    pub accepted: bool,
    /// The provider's words.
    pub note: Option<String>,
    /// The provider's estimate.
    pub estimate: Option<Millis>,
    /// Why this cluster was asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub choice: Option<Choice>,
    /// Where its pods are, as the agent said last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub placement: Option<Arc<Placement>>,
}

impl Leg {
    pub fn new(cluster: ClusterName, ledger: LedgerId, state: State) -> Self {
        Self {
            cluster,
            ledger,
            state,
            fence: None,
            accepted: false,
            note: None,
            estimate: None,
            choice: None,
            placement: None,
        }
    }
}

/// Legs in the order of their offers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Legs(Vec<(OfferId, Leg)>);

impl Legs {
    fn find(&self, offer: &OfferId) -> Result<usize, usize> {
        self.0.binary_search_by_key(offer, |(offer, _)| *offer)
    }

    /// The leg of an offer.
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

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Offers and legs.
    pub fn iter(&self) -> impl Iterator<Item = (&OfferId, &Leg)> {
        self.0.iter().map(|(offer, leg)| (offer, leg))
    }

    /// Offers.
    pub fn keys(&self) -> impl Iterator<Item = &OfferId> {
        self.iter().map(|(offer, _)| offer)
    }

    /// Legs.
    pub fn values(&self) -> impl Iterator<Item = &Leg> {
        self.iter().map(|(_, leg)| leg)
    }

    pub(crate) fn values_mut(&mut self) -> impl Iterator<Item = &mut Leg> {
        self.0.iter_mut().map(|(_, leg)| leg)
    }
}

/// As the map that it is.
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
