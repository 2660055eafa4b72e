//! Who makes nodes when there is no room: the trait that the agent's core commands, and its two plain implementations.
//!
//! A provider decides nothing about gangs: it is asked for one offer's nodes, says in its own words what it waits for, and
//! hands them over for that offer alone. What it could still make is reported as pools.

use meridian_agent_core::ProviderEvent;
use meridian_agent_core::ledger::NodeSpec;
use meridian_shared::gang::Gang;
use meridian_shared::ids::OfferId;
use meridian_shared::packing::Block;
use std::fmt;
use std::sync::Arc;
use tokio::sync::mpsc;

pub mod simulated;

pub use simulated::{Pool, SimulatedProvider};

/// Makes nodes on request.
///
/// Commands are synchronous and never wait; what happens comes back as [`ProviderEvent`]s. A command may repeat, and a
/// request may be forgotten by a restart: then the core asks again, or never comes back to it. Two live copies (an old
/// agent and its successor) may command one provider, so whatever a request makes carries the offer's id. After `Ready` the
/// nodes belong to the offer until `cancel`; after `Failed` or `cancel` nothing more is said of it.
pub trait Provider: Send + fmt::Debug {
    /// Its name, shown to people.
    fn name(&self) -> &'static str;
    /// What could still be made: `nodes` is how many more of each shape.
    fn pools(&self) -> Vec<Block>;
    /// Asks for nodes on which all of `gang` fits. Repeated, it asks for nothing more.
    fn request(&mut self, offer: OfferId, gang: Arc<Gang>);
    /// Gives back what was asked for or made for `offer`. Ignored when that is nothing.
    fn cancel(&mut self, offer: OfferId);
}

/// Nodes are what they are: nothing can be made.
#[derive(Debug)]
pub struct StaticProvider {
    events: mpsc::UnboundedSender<ProviderEvent>,
}

impl StaticProvider {
    /// A provider without pools.
    pub fn new(events: mpsc::UnboundedSender<ProviderEvent>) -> Self {
        Self { events }
    }
}

impl Provider for StaticProvider {
    fn name(&self) -> &'static str {
        "static"
    }

    fn pools(&self) -> Vec<Block> {
        Vec::new()
    }

    fn request(&mut self, offer: OfferId, _gang: Arc<Gang>) {
        say(
            &self.events,
            ProviderEvent::Failed {
                offer,
                reason: "this cluster has fixed nodes, and nothing makes more".to_owned(),
            },
        );
    }

    fn cancel(&mut self, _offer: OfferId) {}
}

/// Nobody listens only when the agent is going; its successor asks anew. A request says at most two things, and the core
/// keeps at most `OFFERS_MAX` requests open, so what waits in the channel is bounded.
fn say(events: &mpsc::UnboundedSender<ProviderEvent>, event: ProviderEvent) {
    let _ = events.send(event);
}

/// A node of a pool, as the core knows nodes.
fn node(name: String, shape: &NodeSpec) -> NodeSpec {
    NodeSpec { name, ..shape.clone() }
}
