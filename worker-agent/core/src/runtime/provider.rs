//! The interface to node providers.

use super::NodeSpec;
use meridian_shared::gang::Gang;
use meridian_shared::ids::{OfferId, Uid};
use meridian_shared::packing::Block;
use meridian_shared::time::Millis;
use std::fmt;
use std::sync::Arc;

/// Progress of the nodes that were requested for one offer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ProviderEvent {
    Waiting {
        offer: OfferId,
        /// The provider's own text.
        reason: String,
        /// Time until the nodes are ready, if the provider reports it.
        estimate: Option<Millis>,
    },
    /// The nodes exist, for this offer only.
    Ready {
        offer: OfferId,
        nodes: Vec<NodeSpec>,
        /// How long the provider keeps the nodes while they have no pods, if that time is limited.
        keeps: Option<Millis>,
    },
    /// The provider takes back the nodes that it made for this offer, although a gang may use them.
    Revoked {
        offer: OfferId,
        /// The provider's own text.
        reason: String,
    },
    /// The provider makes no nodes for this offer.
    Failed {
        offer: OfferId,
        /// The provider's own text.
        reason: String,
    },
}

/// What nodes are requested for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NodeRequest {
    pub offer: OfferId,
    pub uid: Uid,
    /// The namespace of the pods.
    pub namespace: Arc<str>,
    /// The gang, which the nodes must fit. `Gang::max_run` limits the time for which they are needed, if it
    /// is set.
    pub gang: Arc<Gang>,
}

/// Makes nodes on request. It decides nothing about gangs: nodes are requested for one offer and belong to it
/// alone.
///
/// **Commands** only hand an order over and return at once; a provider that has to ask an API server does so
/// in a task of its own. What happens comes back as [`ProviderEvent`]s through the channel that the provider
/// was opened with.
///
/// **Duplicates, lost replies, two live copies.** Requests are named by their offer, and so is everything
/// that is made for them. Commands are idempotent by that name: a command may repeat, and two agents (an old
/// one and its successor) may command one provider. After a lost reply the provider asks again under the same
/// name.
///
/// **Restarts.** Offers end with the session of the agent, so a request may be forgotten: the core requests
/// again under another offer, or never returns to it. A provider with a queue continues with the request of
/// an earlier session for the same gang, so that the gang keeps its place. A provider of real nodes gives
/// back the nodes that belong to no offer and to no run.
///
/// **Unknown is not gone.** A read that failed or timed out changes nothing: a request is `Failed` only when
/// the provider said so, and nodes are gone only when a complete, current answer lacks them. After `Ready`
/// the nodes belong to the offer until `cancel`; after `Failed` or `cancel` nothing more is reported.
pub trait Provider: Send + fmt::Debug {
    /// Name for logs.
    fn name(&self) -> &'static str;

    /// Nodes that can still be made: `nodes` is the number of further nodes of each shape. Answered from
    /// memory.
    fn pools(&self) -> Vec<Block>;

    /// Requests nodes for an offer.
    fn request(&mut self, request: NodeRequest);

    /// Gives back what was requested or made for `offer`. Ignored if there is nothing.
    fn cancel(&mut self, offer: OfferId);
}
