//! The providers of this crate: [`StaticProvider`] and [`SimulatedProvider`].
//!
//! The trait and its rules are `meridian_agent_core::runtime::Provider`.

use meridian_agent_core::runtime::{NodeRequest, Provider, ProviderEvent};
use meridian_shared::ids::OfferId;
use meridian_shared::packing::Block;
use tokio::sync::mpsc;

pub mod simulated;

pub use simulated::SimulatedProvider;

/// Makes no nodes.
#[derive(Debug)]
pub struct StaticProvider {
    events: mpsc::UnboundedSender<ProviderEvent>,
}

impl StaticProvider {
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

    fn request(&mut self, NodeRequest { offer, .. }: NodeRequest) {
        let reason = "this cluster has fixed nodes, and no provider adds nodes".to_owned();
        // A send fails only when the agent ends; its successor requests anew. A request has at most two
        // events, and the core keeps at most `OFFERS_MAX` requests open, so the channel is bounded.
        let _ = self.events.send(ProviderEvent::Failed { offer, reason });
    }

    fn cancel(&mut self, _offer: OfferId) {}
}
