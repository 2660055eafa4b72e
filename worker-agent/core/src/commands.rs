//! What the manager asks of an agent: offers, withdraws, grants and stops (the protocol's section 3, agent's half).

use crate::durable::Tombstone;
use crate::growing::Growths;
use crate::ledger::Arrival;
use crate::leg::{Happening, Phase, Step, step};
use crate::placed;
use crate::placing::Misfit;
use crate::{
    Agent, Effect, LiveRun, OFFERS_MAX, OfferState, OpenOffer, Outcome, Start, StopCause, TOMBSTONES_MAX,
    WITHDRAWN_MAX,
};
use meridian_shared::ids::{ContentHash, Fence, OfferId, Uid};
use meridian_shared::lease::{AgentLease, stop_budget};
use meridian_shared::planted::Bug;
use meridian_shared::protocol::{
    Command, End, EndResult, Event, Grant, GrantRefusal, Offer, OnLoss, RUNS_MAX, RefuseReason, Size,
    StopReason, clean,
};
use meridian_shared::time::{Millis, Mono};
use std::sync::Arc;

impl Agent {
    /// Does one command. `sent` is when the transmission was sent that its answer echoes.
    pub(crate) fn on_command(&mut self, at: Mono, sent: Mono, command: Command, out: &mut Outcome) {
        match command {
            Command::Offer(offer) => self.on_offer(at, *offer, out),
            Command::Withdraw { offer, uid } => self.on_withdraw(offer, uid, out),
            Command::Grant(grant) => self.on_grant(at, sent, *grant, out),
            Command::Stop { uid, fence, reason } => self.on_stop(uid, fence, reason, out),
            Command::Shrink { uid, fence, size } => self.on_shrink(uid, fence, size, out),
            Command::Grow { uid, fence, growth } => self.on_grow((uid, fence), *growth, out),
            Command::Rank { uid, fence, priority } => self.on_rank(uid, fence, priority, out),
        }
    }

    fn on_offer(&mut self, at: Mono, asked: Offer, out: &mut Outcome) {
        let (offer, uid) = (asked.offer, asked.uid);
        if self.withdrawn.contains(&offer) {
            return self.say(Event::Gone { offer, uid, expired: false });
        }
        if let Some(open) = self.offers.get(&offer) {
            let event = match open.state {
                OfferState::Held { .. } => Event::Held { offer, uid },
                OfferState::Waiting => {
                    Event::Waiting { offer, uid, reason: "asked the provider".into(), estimate: None }
                }
            };
            return self.say(event);
        }
        if let Some(run) = self.runs.get(&uid) {
            if run.offer != offer {
                self.refuse(
                    offer,
                    uid,
                    RefuseReason::StillRuns,
                    format!("attempt {} still runs here", run.fence),
                );
            }
            return;
        }
        if self.offers.len() + self.runs.len() >= RUNS_MAX {
            return self.refuse(
                offer,
                uid,
                RefuseReason::Overloaded,
                format!("it holds and runs {RUNS_MAX} gangs, the most that it reports at once"),
            );
        }
        if self.offers.len() >= OFFERS_MAX || self.durable.tombstones.len() >= TOMBSTONES_MAX {
            return self.refuse(
                offer,
                uid,
                RefuseReason::Overloaded,
                "too many open offers or unacknowledged ends".into(),
            );
        }
        if asked.requires_guarded && !self.config.guarded {
            return self.refuse(
                offer,
                uid,
                RefuseReason::Unsupported,
                "the policy requires guarded gangs, this runner only supervises".into(),
            );
        }
        // A newer question about the same workload replaces an older one: two rooms for one gang help nobody.
        if let Some(id) = self.offers.about(uid) {
            self.drop_offer(id, out);
            self.say(Event::Gone { offer: id, uid, expired: false });
        }
        let mut open = OpenOffer { uid, gang: asked.gang, state: OfferState::Waiting, hold: asked.hold };
        match self.try_hold(offer, &open) {
            Ok(()) => {
                open.state = OfferState::Held { until: at + open.hold };
                self.due = self.due.min(at + open.hold);
                self.offers.insert(offer, open);
                self.say(Event::Held { offer, uid });
            }
            Err(_) if self.ledger.provisionable(&open.gang) => {
                out.effects.push(Effect::Provision { offer, gang: open.gang.clone() });
                self.offers.insert(offer, open);
                self.say(Event::Waiting { offer, uid, reason: "asked the provider".into(), estimate: None });
            }
            Err(misfit) => {
                let reason = if misfit.fits_empty { RefuseReason::NoRoom } else { RefuseReason::NeverFits };
                self.refuse(offer, uid, reason, misfit.to_string());
            }
        }
    }

    pub(crate) fn try_hold(&mut self, offer: OfferId, open: &OpenOffer) -> Result<(), Misfit> {
        let whole = self.ledger.hold(offer, &open.gang);
        if whole.is_err() && self.config.planted.has(Bug::HalfGangHeld) {
            let mut half = (*open.gang).clone();
            half.pod_sets.iter_mut().for_each(|s| s.count = s.count.div_ceil(2));
            return self.ledger.hold(offer, &half);
        }
        whole
    }

    fn refuse(&mut self, offer: OfferId, uid: Uid, reason: RefuseReason, text: String) {
        self.say(Event::Refused { offer, uid, reason, text: clean(&text) });
    }

    /// Gives back what an open offer held or asked for.
    pub(crate) fn drop_offer(&mut self, offer: OfferId, out: &mut Outcome) -> bool {
        let Some(open) = self.offers.remove(offer) else { return false };
        if matches!(open.state, OfferState::Waiting) || self.ledger.has_room(offer) {
            out.effects.push(Effect::Deprovision { offer });
        }
        self.ledger.release(offer);
        true
    }

    fn on_withdraw(&mut self, offer: OfferId, uid: Uid, out: &mut Outcome) {
        if self.runs.get(&uid).is_some_and(|r| r.offer == offer) {
            return; // It was granted: only a stop ends it.
        }
        self.drop_offer(offer, out);
        self.withdrawn.insert(offer);
        while self.withdrawn.len() > WITHDRAWN_MAX {
            self.withdrawn.pop_first();
        }
        self.say(Event::Gone { offer, uid, expired: false });
    }

    fn on_grant(&mut self, at: Mono, sent: Mono, grant: Grant, out: &mut Outcome) {
        let (uid, fence) = (grant.uid, grant.fence);
        let phase = self.phase(uid, fence);
        if phase != Phase::Absent && self.config.planted.has(Bug::RepeatedGrantRefused) {
            return self.say(Event::GrantRefused { uid, fence, why: GrantRefusal::NoHold });
        }
        match step(phase, Happening::Grant) {
            Step::Start => match self.judge(at, sent, &grant) {
                Ok(lease) => self.accept(grant, lease, out),
                Err(why) => self.refuse_grant(&grant, why, out),
            },
            Step::Repeat => self.repeat(uid, fence),
            Step::Run | Step::Stop | Step::Bury | Step::Ignore => {}
        }
    }

    /// Whether a grant of an unknown attempt may be accepted.
    fn judge(&self, at: Mono, sent: Mono, grant: &Grant) -> Result<Option<AgentLease>, GrantRefusal> {
        if let Some(known) = self.durable.fence_of(grant.uid) {
            let twin = known.epoch == grant.fence.epoch && known.leadership != grant.fence.leadership;
            if twin || grant.fence <= known {
                return Err(GrantRefusal::StaleFence { known });
            }
        }
        let stranger = || self.strangers.keys().find(|(uid, _)| *uid == grant.uid).map(|(_, fence)| *fence);
        if let Some(fence) = self.runs.get(&grant.uid).map(|r| r.fence).or_else(stranger) {
            return Err(GrantRefusal::StillRuns { fence });
        }
        match self.offers.get(&grant.offer) {
            Some(OpenOffer { uid, state: OfferState::Held { until }, .. })
                if *uid == grant.uid && at < *until => {}
            _ => return Err(GrantRefusal::NoHold),
        }
        match grant.on_loss {
            OnLoss::Wait => Ok(None),
            OnLoss::Fence => {
                let counts_from =
                    if self.config.planted.has(Bug::AgentCountsFromArrival) { at } else { sent };
                let lease = AgentLease::from_sent(counts_from, grant.term);
                if at >= lease.stop_at() { Err(GrantRefusal::Lapsed) } else { Ok(Some(lease)) }
            }
        }
    }

    fn accept(&mut self, grant: Grant, lease: Option<AgentLease>, out: &mut Outcome) {
        let (uid, fence) = (grant.uid, grant.fence);
        let asked = self.offers.remove(grant.offer).expect("a grant without its hold was refused");
        let placement = self.ledger.placement(grant.offer);
        let run = LiveRun {
            fence,
            offer: grant.offer,
            attempt: grant.attempt,
            phase: Phase::Starting,
            lease,
            term: grant.term,
            on_loss: grant.on_loss,
            spec: ContentHash::of(grant.spec.as_bytes()),
            mac: grant.mac.clone(),
            stopped_by: None,
            pod_failures: grant.pod_failures,
            placed: Some(Arc::new(placed::told(0, &asked.gang, &placement, &self.ledger))),
            gang: Some(asked.gang),
            moves: 0,
            stranded: None,
            size: None,
            waits: None,
            growth: Growths { able: true, ..Growths::default() },
            priority: grant.priority,
        };
        if let Some(gang) = &run.gang {
            self.ledger.count_stays(run.offer, gang, Arrival::Pods);
        }
        self.runs.insert(uid, run);
        self.due = lease.map_or(self.due, |l| self.due.min(l.stop_at()));
        // Durable before anything starts: the shell commits `store` before it looks at `effects`.
        self.durable.raise_fence(uid, fence, &mut out.store);
        if self.config.planted.has(Bug::StartBeforeDurable) {
            out.store.clear();
        } else {
            self.store_run(uid, out);
        }
        out.effects.push(Effect::Start(Box::new(Start {
            uid,
            fence,
            attempt: grant.attempt,
            namespace: grant.namespace,
            name: grant.name,
            spec: grant.spec,
            placement,
            deadline: lease.map(|l| self.elapsed.boot_time(l.lapses)),
            stop_budget: lease.map_or(Millis(0), |l| stop_budget(l.term)),
            run_left: grant.run_left,
            pod_failures: grant.pod_failures,
        })));
        self.say_accepted(uid, fence);
    }

    fn refuse_grant(&mut self, grant: &Grant, why: GrantRefusal, out: &mut Outcome) {
        let (uid, fence) = (grant.uid, grant.fence);
        // A live run keeps its own record; everything else of this offer is given back.
        if !self.runs.values().any(|r| r.offer == grant.offer) {
            self.drop_offer(grant.offer, out);
        }
        let end = End {
            uid,
            fence,
            result: EndResult::Stopped,
            pod_failures: grant.pod_failures,
            ran: Millis(0),
            proof: None,
        };
        if !matches!(why, GrantRefusal::StaleFence { .. } | GrantRefusal::StillRuns { .. }) {
            self.durable.raise_fence(uid, fence, &mut out.store);
        }
        self.durable.bury(Tombstone { end, refused: Some(why.clone()), acknowledged: None }, &mut out.store);
        self.say(Event::GrantRefused { uid, fence, why });
    }

    fn on_stop(&mut self, uid: Uid, fence: Fence, reason: StopReason, out: &mut Outcome) {
        match step(self.phase(uid, fence), Happening::Stop) {
            Step::Stop => self.order_stop(uid, StopCause::Asked(reason), out),
            Step::Bury => {
                // Not known here: whoever still carries its grant must find the grave. It is confirmed once the runner has
                // seen that nothing of it is there: a copy of this store may have started it.
                out.effects.push(Effect::Stop { uid, fence });
                let end = End {
                    uid,
                    fence,
                    result: EndResult::Stopped,
                    pod_failures: 0,
                    ran: Millis(0),
                    proof: None,
                };
                if !self.config.planted.has(Bug::UnknownStopForgotten) {
                    self.durable.bury(
                        Tombstone { end: end.clone(), refused: None, acknowledged: None },
                        &mut out.store,
                    );
                }
                self.strangers.insert((uid, fence), end);
            }
            Step::Repeat => self.repeat(uid, fence),
            Step::Start | Step::Run | Step::Ignore => {}
        }
    }

    /// The attempt goes on with fewer pods. The runner says which places are empty once it has seen them so, as it does with pods
    /// that succeed; until then all of them are taken.
    fn on_shrink(&mut self, uid: Uid, fence: Fence, size: Size, out: &mut Outcome) {
        let live =
            |run: &&mut LiveRun| run.fence == fence && matches!(run.phase, Phase::Starting | Phase::Running);
        let Some(run) = self.runs.get_mut(&uid).filter(live) else { return };
        if run.size.is_some_and(|known| known.parallelism <= size.parallelism) {
            return;
        }
        run.size = Some(size);
        let later = run.growth.open;
        self.store_run(uid, out);
        if !later {
            out.effects.push(Effect::Shrink { uid, fence, size });
        }
    }

    fn on_rank(&mut self, uid: Uid, fence: Fence, priority: i64, out: &mut Outcome) {
        if let Some(run) =
            self.runs.get_mut(&uid).filter(|run| run.fence == fence && run.priority != priority)
        {
            run.priority = priority;
            self.store_run(uid, out);
        }
    }

    /// Orders again what an earlier session may not have handed over.
    pub(crate) fn shrink_again(&self, uid: Uid, out: &mut Outcome) {
        let run = &self.runs[&uid];
        if run.growth.open {
            return;
        }
        out.effects.extend(run.size.map(|size| Effect::Shrink { uid, fence: run.fence, size }));
    }

    pub(crate) fn order_stop(&mut self, uid: Uid, cause: StopCause, out: &mut Outcome) {
        let run = self.runs.get_mut(&uid).expect("the caller found this run");
        run.phase = Phase::Stopping;
        run.stopped_by = Some(cause);
        let fence = run.fence;
        self.store_run(uid, out);
        out.effects.push(Effect::Stop { uid, fence });
    }

    /// Says again what an attempt is.
    fn repeat(&mut self, uid: Uid, fence: Fence) {
        if self.strangers.contains_key(&(uid, fence)) {
            return; // The runner's word is awaited.
        }
        if let Some(grave) = self.durable.tombstones.get(&(uid, fence)) {
            let event = match &grave.refused {
                Some(why) => Event::GrantRefused { uid, fence, why: why.clone() },
                None => Event::Ended(grave.end.clone()),
            };
            return self.say(event);
        }
        match self.phase(uid, fence) {
            Phase::Starting | Phase::Stopping => self.say_accepted(uid, fence),
            Phase::Running => self.say_running(uid, fence),
            Phase::Absent | Phase::Buried => {}
        }
    }

    pub(crate) fn say_accepted(&mut self, uid: Uid, fence: Fence) {
        let placement = self.runs.get(&uid).and_then(|run| run.placed.clone());
        self.say(Event::Accepted { uid, fence, placement });
    }

    pub(crate) fn say_running(&mut self, uid: Uid, fence: Fence) {
        let placement = self.runs.get(&uid).and_then(|run| run.placed.clone());
        self.say(Event::Running { uid, fence, placement });
    }

    pub(crate) fn phase(&self, uid: Uid, fence: Fence) -> Phase {
        match self.runs.get(&uid) {
            Some(run) if run.fence == fence => run.phase,
            _ if self.durable.tombstones.contains_key(&(uid, fence)) => Phase::Buried,
            _ => Phase::Absent,
        }
    }
}
