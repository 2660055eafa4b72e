//! Reports of the provider.

use super::Agent;
use crate::runtime::{NodeSpec, ProviderEvent};
use crate::turn::{Effect, Outcome};
use meridian_shared::ids::OfferId;
use meridian_shared::protocol::{Event, RefuseReason, clean};
use meridian_shared::time::{Millis, Mono};

impl Agent {
    pub(super) fn on_provider(&mut self, at: Mono, event: ProviderEvent, out: &mut Outcome) {
        match event {
            ProviderEvent::Waiting { offer, reason, estimate } => {
                if let Some(uid) = self.offers.get(offer).map(|open| open.uid) {
                    self.events.push(Event::Waiting { offer, uid, reason: clean(&reason), estimate });
                }
            }
            ProviderEvent::Ready { offer, nodes, keeps } => self.on_provided(at, offer, nodes, keeps, out),
            ProviderEvent::Revoked { offer, reason } => {
                self.strand_without_nodes(offer, &reason, out);
                self.fail_offer(offer, RefuseReason::ProviderFailed, reason, out);
            }
            ProviderEvent::Failed { offer, reason } => {
                self.fail_offer(offer, RefuseReason::ProviderFailed, reason, out);
            }
        }
    }

    /// Closes an open offer with a refusal.
    pub(super) fn fail_offer(
        &mut self,
        offer: OfferId,
        reason: RefuseReason,
        text: String,
        out: &mut Outcome,
    ) {
        if let Some(uid) = self.offers.get(offer).map(|open| open.uid) {
            self.drop_offer(offer, out);
            self.refuse(offer, uid, reason, text);
        }
    }

    fn on_provided(
        &mut self,
        at: Mono,
        offer: OfferId,
        nodes: Vec<NodeSpec>,
        keeps: Option<Millis>,
        out: &mut Outcome,
    ) {
        let Some(open) = self.offers.get(offer).filter(|open| !open.is_held()).cloned() else {
            out.act(Effect::Deprovision { offer });
            return;
        };
        self.ledger.add_provided(offer, nodes);
        let placed = if open.is_partial() && self.ledger.is_allocated(offer) {
            self.ledger.hold_provided(offer, &self.config.managed.divide(&open.gang).provisioned)
        } else {
            self.try_hold(offer, &open.gang)
        };
        match placed {
            // A hold must not outlast the nodes.
            Ok(()) => self.set_held(at, offer, keeps),
            Err(misfit) => {
                self.drop_offer(offer, out);
                let text = format!("the gang does not fit the provider's nodes: {misfit}");
                self.refuse(offer, open.uid, RefuseReason::ProviderFailed, text);
            }
        }
    }
}
