//! Offers and withdraws: look up what the pods name, hold the whole gang, ask the provider, or refuse.

use super::Agent;
use crate::durable::TOMBSTONES_MAX;
use crate::offers::{OFFERS_MAX, OfferState, OpenOffer};
use crate::placing::Misfit;
use crate::runtime::{HoldOrder, NodeRequest, ReferenceCheck, can_be_guarded};
use crate::turn::{Effect, Outcome};
use meridian_shared::gang::Gang;
use meridian_shared::ids::{OfferId, Uid};
use meridian_shared::managed::Division;
use meridian_shared::planted::Bug;
use meridian_shared::protocol::{Event, HoldMethod, Offer, RUNS_MAX, RefuseReason, RunnerKind, clean};
use meridian_shared::time::{Millis, Mono};
use std::sync::Arc;

/// The only kind of job that can run as processes.
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
        // A newer offer for the same workload replaces an older one, because a second allocation for the same
        // gang would waste capacity.
        if let Some(id) = self.offers.for_workload(uid) {
            self.drop_offer(id, out);
            self.events.push(Event::Gone { offer: id, uid, expired: false });
        }
        let Offer { namespace, gang, hold, references, .. } = asked;
        let check = self.config.holds.checks_references.then(|| ReferenceCheck {
            offer,
            uid,
            namespace: namespace.clone(),
            references,
        });
        let open = OpenOffer { uid, namespace, gang, state: OfferState::Checking, hold };
        self.place_offer(at, offer, open, check, out);
    }

    /// Allocates the gang, or finds that nodes can be made for it; otherwise refuses the offer. Then requests
    /// the next step: the check of references, the cluster's own hold, or the nodes.
    pub(super) fn place_offer(
        &mut self,
        at: Mono,
        offer: OfferId,
        open: OpenOffer,
        check: Option<ReferenceCheck>,
        out: &mut Outcome,
    ) {
        let provisioning = match self.try_hold(offer, &open.gang) {
            Ok(()) => None,
            Err(misfit) => match self.provisioning(offer, &open.gang, misfit) {
                Ok(division) => Some(division),
                Err(misfit) => return self.refuse_misfit(offer, open.uid, &misfit),
            },
        };
        if let Some(check) = check {
            out.act(Effect::Check(check));
            self.offers.insert(offer, open);
        } else if let Some(division) = provisioning {
            self.place_in_part(offer, open, &division, out);
        } else if self.config.holds.method == HoldMethod::Ledger {
            self.offers.insert(offer, open);
            self.set_held(at, offer, None);
        } else {
            out.act(Effect::Secure(self.hold_order(offer, &open, open.gang.clone())));
            self.offers.insert(offer, OpenOffer { state: OfferState::Securing, ..open });
        }
    }

    /// How a gang that doesn't fit is divided between existing nodes and nodes to make. Fails with the
    /// obstacle: `misfit` if no nodes can be made, or the misfit of the pods that need existing nodes.
    fn provisioning(&self, offer: OfferId, gang: &Gang, misfit: Misfit) -> Result<Division, Misfit> {
        let division = self.config.managed.divide(gang);
        if !self.ledger.can_provision(&division) {
            return Err(misfit);
        }
        if division.uses_existing() {
            self.ledger.check_fits(offer, &division.existing)?;
        }
        Ok(division)
    }

    /// Allocates the pods that need no new nodes, and lets the cluster hold them if the settings require
    /// that, before it requests nodes for the others. Otherwise nodes could be made for a gang that still
    /// doesn't fit.
    fn place_in_part(&mut self, offer: OfferId, open: OpenOffer, division: &Division, out: &mut Outcome) {
        let uses_existing = division.uses_existing();
        if uses_existing && let Err(misfit) = self.ledger.hold(offer, &division.existing) {
            return self.refuse_misfit(offer, open.uid, &misfit);
        }
        if uses_existing && self.config.holds.method != HoldMethod::Ledger {
            let existing = Arc::new(division.existing.clone());
            out.act(Effect::Secure(self.hold_order(offer, &open, existing)));
            self.offers.insert(offer, OpenOffer { state: OfferState::SecuringPart, ..open });
        } else {
            self.offers.insert(offer, open);
            self.provision(offer, out);
        }
    }

    /// Asks the provider for the nodes of an open offer.
    pub(super) fn provision(&mut self, offer: OfferId, out: &mut Outcome) {
        let Some(open) = self.offers.get(offer) else { return };
        let gang = match self.config.managed.is_empty() {
            true => open.gang.clone(),
            false => Arc::new(self.config.managed.divide(&open.gang).provisioned),
        };
        let (uid, namespace) = (open.uid, open.namespace.clone());
        out.act(Effect::Provision(NodeRequest { offer, uid, namespace, gang }));
        self.offers.set_waiting(offer);
        self.events.push(waiting_for_provider(offer, uid));
    }

    /// The order that makes the cluster hold the ledger's allocation for `gang`.
    fn hold_order(&self, offer: OfferId, open: &OpenOffer, gang: Arc<Gang>) -> HoldOrder {
        let placement = self.ledger.placement(offer);
        HoldOrder { offer, uid: open.uid, namespace: open.namespace.clone(), gang, placement }
    }

    fn refuse_misfit(&mut self, offer: OfferId, uid: Uid, misfit: &Misfit) {
        let reason = if misfit.fits_empty { RefuseReason::NoCapacity } else { RefuseReason::NeverFits };
        self.refuse(offer, uid, reason, misfit.to_string());
    }

    /// Turns an open offer with an allocation into a hold, which lasts `keeps` at most.
    pub(super) fn set_held(&mut self, at: Mono, offer: OfferId, keeps: Option<Millis>) {
        let Some(open) = self.offers.get(offer) else { return };
        let (uid, until) = (open.uid, at + keeps.map_or(open.hold, |keeps| open.hold.min(keeps)));
        self.due = self.due.min(until);
        self.offers.set_held(offer, until);
        self.events.push(Event::Held { offer, uid });
    }

    /// Answers an offer that is already known (withdrawn or open). Returns whether it was known.
    fn repeat_offer(&mut self, offer: OfferId, uid: Uid) -> bool {
        let event = if self.offers.is_withdrawn(offer) {
            Event::Gone { offer, uid, expired: false }
        } else {
            match self.offers.get(offer) {
                Some(OpenOffer { state: OfferState::Held { .. }, .. }) => Event::Held { offer, uid },
                Some(OpenOffer { state: OfferState::Waiting, .. }) => waiting_for_provider(offer, uid),
                // The answer to the offer follows later.
                Some(_) => return true,
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
            let remedy = match self.config.runner {
                RunnerKind::Kubernetes => ": set `pod-guard-image` for this cluster's agent",
                RunnerKind::Process | RunnerKind::Simulated => "",
            };
            let text = format!(
                "the policy requires guarded gangs, and gangs of this cluster have no guards{remedy}"
            );
            return Some((RefuseReason::Unsupported, text));
        }
        if asked.requires_guarded
            && self.config.runner == RunnerKind::Kubernetes
            && !can_be_guarded(&asked.kind)
        {
            let text = format!(
                "the policy requires guarded gangs, and the operator of {} starts containers by commands of \
                 its own, so no guard can run in them",
                asked.kind
            );
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
        if let Some(container) =
            asked.without_image.as_ref().filter(|_| self.config.runner == RunnerKind::Kubernetes)
        {
            let text = format!(
                "this cluster runs containers, and container `{container}` of the job has no `image`: name \
                 one, or send the job to a cluster that runs processes"
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
        if self.offers.remove(offer).is_some() {
            out.act(Effect::Deprovision { offer });
            self.ledger.release(offer);
        }
    }

    pub(super) fn on_withdraw(&mut self, offer: OfferId, uid: Uid, out: &mut Outcome) {
        if self.runs.get(uid).is_some_and(|run| run.record.offer == offer) {
            return; // The offer was granted: only a stop ends its run.
        }
        self.drop_offer(offer, out);
        self.offers.remember_withdrawn(offer);
        self.events.push(Event::Gone { offer, uid, expired: false });
    }
}

fn waiting_for_provider(offer: OfferId, uid: Uid) -> Event {
    Event::Waiting { offer, uid, reason: "asked the provider".into(), estimate: None }
}
