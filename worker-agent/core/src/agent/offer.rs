//! Offers and withdraws: hold the whole gang, ask the provider, or refuse.

use super::Agent;
use crate::durable::TOMBSTONES_MAX;
use crate::offers::{OFFERS_MAX, OfferState, OpenOffer};
use crate::placing::Misfit;
use crate::runtime::NodeRequest;
use crate::turn::{Effect, Outcome};
use meridian_shared::gang::Gang;
use meridian_shared::ids::{OfferId, Uid};
use meridian_shared::planted::Bug;
use meridian_shared::protocol::{Event, Offer, RUNS_MAX, RefuseReason, RunnerKind, clean};
use meridian_shared::time::Mono;

/// The only kind of job that processes can be.
const KIND_OF_PROCESSES: &str = "Job";

impl Agent {
    pub(super) fn on_offer(&mut self, at: Mono, asked: Offer, out: &mut Outcome) {
        let (offer, uid) = (asked.offer, asked.uid);
        if self.repeat_offer(offer, uid) {
            return;
        }
        if let Some(run) = self.runs.get(uid) {
            if run.record.offer != offer {
                let text = format!("attempt {} still runs here", run.record.fence);
                self.refuse(offer, uid, RefuseReason::StillRuns, text);
            }
            return;
        }
        if let Some((reason, text)) = self.refusal_of_any_gang(&asked) {
            return self.refuse(offer, uid, reason, text);
        }
        // A newer offer for the same workload replaces an older one: two allocations for one gang help
        // nobody.
        if let Some(id) = self.offers.for_workload(uid) {
            self.drop_offer(id, out);
            self.events.push(Event::Gone { offer: id, uid, expired: false });
        }
        let mut open = OpenOffer { uid, gang: asked.gang, state: OfferState::Waiting, hold: asked.hold };
        match self.try_hold(offer, &open.gang) {
            Ok(()) => {
                let until = at + open.hold;
                open.state = OfferState::Held { until };
                self.due = self.due.min(until);
                self.offers.insert(offer, open);
                self.events.push(Event::Held { offer, uid });
            }
            Err(_) if self.ledger.is_provisionable(&open.gang) => {
                let (namespace, gang) = (asked.namespace, open.gang.clone());
                out.effects.push(Effect::Provision(NodeRequest { offer, namespace, gang }));
                self.offers.insert(offer, open);
                self.events.push(waiting_for_provider(offer, uid));
            }
            Err(misfit) => {
                let reason =
                    if misfit.fits_empty { RefuseReason::NoCapacity } else { RefuseReason::NeverFits };
                self.refuse(offer, uid, reason, misfit.to_string());
            }
        }
    }

    /// Answers an offer that is known: withdrawn, or open. Returns whether it was.
    fn repeat_offer(&mut self, offer: OfferId, uid: Uid) -> bool {
        let event = if self.offers.is_withdrawn(offer) {
            Event::Gone { offer, uid, expired: false }
        } else {
            match self.offers.get(offer) {
                Some(open) if open.is_held() => Event::Held { offer, uid },
                Some(_) => waiting_for_provider(offer, uid),
                None => return false,
            }
        };
        self.events.push(event);
        true
    }

    /// Why this agent takes no gang now, or none of this kind.
    fn refusal_of_any_gang(&self, asked: &Offer) -> Option<(RefuseReason, String)> {
        if self.offers.len() + self.runs.len() >= RUNS_MAX {
            let text = format!("the agent holds and runs {RUNS_MAX} gangs, the most that it reports at once");
            return Some((RefuseReason::Overloaded, text));
        }
        if self.offers.len() >= OFFERS_MAX || self.durable.tombstones().len() >= TOMBSTONES_MAX {
            let text = "too many open offers or unacknowledged ends".to_owned();
            return Some((RefuseReason::Overloaded, text));
        }
        if asked.requires_guarded && !self.config.guarded {
            let text = "the policy requires guarded gangs, and this runner only supervises".to_owned();
            return Some((RefuseReason::Unsupported, text));
        }
        if let Some(why) = self.unavailable_kinds.get(&*asked.kind) {
            return Some((RefuseReason::Unsupported, why.clone()));
        }
        if self.config.runner == RunnerKind::Process && &*asked.kind != KIND_OF_PROCESSES {
            let text = format!(
                "this cluster runs processes, which can't be a {}: submit it as a {KIND_OF_PROCESSES}, or \
                 send it to a Kubernetes cluster",
                asked.kind
            );
            return Some((RefuseReason::Unsupported, text));
        }
        if let Some(needs) =
            asked.container_needs.as_ref().filter(|_| self.config.runner == RunnerKind::Process)
        {
            let text = format!(
                "this cluster runs processes, and the job uses `{needs}`: leave it out, or send the job to a \
                 cluster that runs containers"
            );
            return Some((RefuseReason::Unsupported, text));
        }
        None
    }

    /// Allocates the whole gang. Fails if it does not fit.
    pub(super) fn try_hold(&mut self, offer: OfferId, gang: &Gang) -> Result<(), Misfit> {
        let whole = self.ledger.hold(offer, gang);
        if whole.is_err() && self.config.planted.has(Bug::HalfGangHeld) {
            let mut half = gang.clone();
            half.pod_sets.iter_mut().for_each(|s| s.count = s.count.div_ceil(2));
            return self.ledger.hold(offer, &half);
        }
        whole
    }

    pub(super) fn refuse(&mut self, offer: OfferId, uid: Uid, reason: RefuseReason, text: String) {
        self.events.push(Event::Refused { offer, uid, reason, text: clean(&text) });
    }

    /// Closes an open offer and frees what it held or requested.
    pub(super) fn drop_offer(&mut self, offer: OfferId, out: &mut Outcome) {
        let Some(open) = self.offers.remove(offer) else { return };
        if !open.is_held() || self.ledger.is_allocated(offer) {
            out.effects.push(Effect::Deprovision { offer });
        }
        self.ledger.release(offer);
    }

    pub(super) fn on_withdraw(&mut self, offer: OfferId, uid: Uid, out: &mut Outcome) {
        if self.runs.get(uid).is_some_and(|run| run.record.offer == offer) {
            return; // It was granted: only a stop ends it.
        }
        self.drop_offer(offer, out);
        self.offers.remember_withdrawn(offer);
        self.events.push(Event::Gone { offer, uid, expired: false });
    }
}

fn waiting_for_provider(offer: OfferId, uid: Uid) -> Event {
    Event::Waiting { offer, uid, reason: "asked the provider".into(), estimate: None }
}
