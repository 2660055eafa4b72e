//! Reports about the objects in the cluster that a hold depends on.

use super::Agent;
use crate::offers::OfferState;
use crate::runtime::HoldEvent;
use crate::turn::Outcome;
use meridian_shared::ids::OfferId;
use meridian_shared::protocol::{Event, RefuseReason, clean};
use meridian_shared::time::Mono;

impl Agent {
    pub(super) fn on_hold(&mut self, at: Mono, event: HoldEvent, out: &mut Outcome) {
        match event {
            HoldEvent::Checked { offer } => {
                if self.offer_is(offer, OfferState::Checking)
                    && let Some(open) = self.offers.remove(offer)
                {
                    self.place_offer(at, offer, open, None, out);
                }
            }
            HoldEvent::Secured { offer } => {
                if self.offer_is(offer, OfferState::Securing) {
                    self.set_held(at, offer, None);
                } else if self.offer_is(offer, OfferState::SecuringPart) {
                    self.provision(offer, out);
                }
            }
            HoldEvent::Waiting { offer, reason } => {
                if let Some(open) = self.offers.get(offer).filter(|open| !open.is_held()) {
                    let (uid, reason) = (open.uid, clean(&reason));
                    self.events.push(Event::Waiting { offer, uid, reason, estimate: None });
                }
            }
            HoldEvent::Failed { offer, reason } => {
                self.strand_without_nodes(offer, &reason, out);
                self.fail_offer(offer, RefuseReason::Precondition, reason, out);
            }
        }
    }

    fn offer_is(&self, offer: OfferId, state: OfferState) -> bool {
        self.offers.get(offer).is_some_and(|open| open.state == state)
    }
}
