//! What happens at the agent's own side: restarts, the runner's and the provider's words, and time.

use crate::durable::{Durable, StoredRun, Tombstone};
use crate::elapsed::Elapsed;
use crate::ledger::{Ledger, Room, Stay};
use crate::leg::{Happening, Phase, Step, step};
use crate::{
    Agent, Config, Effect, Found, FoundState, LiveRun, OfferState, Outcome, ProviderEvent, RunnerEvent,
    StopCause, TOMBSTONE_KEPT, TOMBSTONES_MAX, link,
};
use meridian_shared::ids::{Fence, Leadership, OfferId, RecordNumber, Session, Uid};
use meridian_shared::lease;
use meridian_shared::planted::Bug;
use meridian_shared::protocol::{End, EndResult, Event, Proof, RefuseReason, clean};
use meridian_shared::time::{Millis, Mono, Now, Wall};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// How often old tombstones are looked for.
const PURGE_EVERY: Millis = Millis::mins(60);

pub(crate) fn start(
    config: Config,
    mut durable: Durable,
    found: Vec<Found>,
    random: u64,
    now: Now,
) -> (Agent, Outcome) {
    let mut out = Outcome::default();
    let counter = durable.new_session(&mut out.store);
    let mut agent = Agent {
        session: Session { counter, id: random },
        ledger: Ledger::default(),
        offers: crate::offers::Offers::default(),
        withdrawn: BTreeSet::new(),
        runs: BTreeMap::new(),
        waiting: crate::moving::Waiting::default(),
        strangers: BTreeMap::new(),
        transmissions: 0,
        sent: BTreeMap::new(),
        answered: 0,
        commands_through: 0,
        ahead: BTreeMap::new(),
        events: VecDeque::new(),
        events_from: 1,
        inventory_due: true,
        ranges: Vec::new(),
        capacity: link::CapacityReports::default(),
        spare_news: BTreeMap::new(),
        poll: lease::poll(lease::TERM_MIN_DEFAULT),
        lost: false,
        due: Mono(0),
        purged: now.wall,
        elapsed: Elapsed::since(now),
        durable: Durable::new(durable.ledger),
        config,
    };
    let stored = durable.runs.clone();
    agent.durable = durable;
    agent.ledger.advance(agent.elapsed.calendar(now.mono));
    let outdated = stored.values().any(|run| agent.elapsed.outdates(run.stamp()));
    for (uid, run) in stored {
        agent.adopt(uid, run);
    }
    for this in found {
        agent.on_found(this, &mut out);
    }
    // What is stored but was not found never comes back: occupy its name, then bury it.
    let missing: Vec<(Uid, Fence)> =
        agent.runs.iter().filter(|(_, r)| r.phase == Phase::Absent).map(|(uid, r)| (*uid, r.fence)).collect();
    for (uid, fence) in missing {
        let run = agent.runs.get_mut(&uid).expect("listed just now");
        run.phase = Phase::Stopping;
        out.effects.push(Effect::Stop { uid, fence });
    }
    if outdated {
        agent.store_runs(&mut out);
    }
    agent.on_time(now.mono, now, &mut out);
    (agent, out)
}

impl Agent {
    /// Takes a stored attempt back as *absent* until the runner is seen to have it.
    fn adopt(&mut self, uid: Uid, run: StoredRun) {
        // A deadline of another boot means nothing; on this boot, what a pause skipped while nobody looked counts as elapsed.
        let same_boot = run.boot == self.config.boot;
        let stamp = run.stamp();
        let missed = self.elapsed.missed_since(stamp);
        let lease =
            run.lease.filter(|_| same_boot).map(|l| lease::AgentLease { lapses: l.lapses - missed, ..l });
        // A calendar that was put back meanwhile makes nobody wait longer: on this boot that is known, else it is no later than now.
        let now = self.ledger.now();
        let moment = |at: Wall| if same_boot { self.elapsed.translate(at, stamp) } else { at }.min(now);
        self.ledger.add_provided(run.offer, run.provided);
        self.ledger.adopt(
            run.offer,
            Room { placement: run.placement, per_pod: run.per_pod, leaving: run.leaving, spare: run.spare },
        );
        self.ledger.adopt_stays(
            run.offer,
            run.stays.into_iter().map(|stay| Stay { since: moment(stay.since), ..stay }).collect(),
        );
        self.runs.insert(
            uid,
            LiveRun {
                fence: run.fence,
                offer: run.offer,
                attempt: run.attempt,
                phase: Phase::Absent,
                lease,
                term: run.term,
                on_loss: run.on_loss,
                spec: run.spec,
                mac: run.mac,
                stopped_by: run.stopped_by,
                pod_failures: run.pod_failures,
                placed: run.placed,
                gang: run.gang,
                moves: run.moves,
                stranded: run.stranded,
                size: run.size,
                waits: run.waits.map(moment),
                growth: run.growth,
                priority: run.priority,
            },
        );
        if run.waits.is_some() {
            self.waiting.begin(uid);
        }
    }

    fn on_found(&mut self, found: Found, out: &mut Outcome) {
        let Found { uid, fence, nodes, state } = found;
        let known = self.runs.get_mut(&uid).filter(|r| r.fence == fence);
        match (known, state) {
            (Some(run), FoundState::Live { running }) => {
                run.phase = if running { Phase::Running } else { Phase::Starting };
                // Without a lease that counts on this boot, or with a stop already ordered, it must end now.
                let unleased = run.lease.is_none() && run.on_loss == meridian_shared::protocol::OnLoss::Fence;
                if unleased || run.stopped_by.is_some() {
                    let cause = run.stopped_by.unwrap_or(StopCause::Lapse);
                    self.order_stop(uid, cause, out);
                    return;
                }
                if running {
                    self.say_running(uid, fence);
                }
                self.move_again(uid, out);
                self.shrink_again(uid, out);
            }
            (Some(run), FoundState::Ended { result, pod_failures, ran }) => {
                run.phase = Phase::Running;
                self.bury(uid, fence, result, pod_failures, ran, out);
            }
            // Nobody remembers its lease: it is stopped, and until then its nodes are full. What is only a grave already is
            // left alone.
            (None, FoundState::Live { .. }) => {
                let stopped = End {
                    uid,
                    fence,
                    result: EndResult::Stopped,
                    pod_failures: 0,
                    ran: Millis(0),
                    proof: None,
                };
                let end =
                    self.durable.tombstones.get(&(uid, fence)).map_or(stopped, |grave| grave.end.clone());
                self.strangers.insert((uid, fence), end);
                self.ledger.close(uid, fence, nodes);
                out.effects.push(Effect::Stop { uid, fence });
            }
            (None, FoundState::Ended { .. }) => {}
        }
    }

    pub(crate) fn on_runner(&mut self, event: RunnerEvent, out: &mut Outcome) {
        match event {
            RunnerEvent::Running { uid, fence } => match step(self.phase(uid, fence), Happening::Started) {
                Step::Run => {
                    self.runs.get_mut(&uid).expect("a phase other than absent").phase = Phase::Running;
                    self.store_run(uid, out);
                    self.say_running(uid, fence);
                }
                Step::Start | Step::Stop | Step::Bury | Step::Repeat | Step::Ignore => {}
            },
            RunnerEvent::Moved { uid, fence, number } => self.on_moved(uid, fence, number, out),
            RunnerEvent::Spare { uid, fence, places } => self.spare(uid, fence, &places, out),
            RunnerEvent::PodsFailed { uid, fence, failures } => self.pods_failed(uid, fence, failures),
            RunnerEvent::Ended { uid, fence, .. } if self.strangers.contains_key(&(uid, fence)) => {
                let end = self.strangers.remove(&(uid, fence)).expect("seen just now");
                self.ledger.reopen(uid, fence);
                // Found by chance, nobody asked for it, and nobody is told.
                if self.durable.tombstones.contains_key(&(uid, fence))
                    || self.config.planted.has(Bug::UnknownStopForgotten)
                {
                    self.say(Event::Ended(end));
                }
            }
            RunnerEvent::Ended { uid, fence, result, pod_failures, ran } => {
                match step(self.phase(uid, fence), Happening::Over) {
                    Step::Bury => self.bury(uid, fence, result, pod_failures, ran, out),
                    Step::Start | Step::Run | Step::Stop | Step::Repeat | Step::Ignore => {}
                }
            }
        }
    }

    /// Gives back the room of pods that have succeeded. Told twice, it gives nothing back twice.
    fn spare(&mut self, uid: Uid, fence: Fence, places: &[(String, u32)], out: &mut Outcome) {
        let Some(run) = self.runs.get(&uid).filter(|run| run.fence == fence && run.phase == Phase::Running)
        else {
            return;
        };
        if self.ledger.leave(run.offer, places) {
            self.store_run(uid, out);
            self.spare_news.insert(uid, 0);
        }
    }

    /// The manager is told how many pods have failed while the job goes on, so that a lost cluster forgives none of them. After a
    /// restart the runner says it again.
    fn pods_failed(&mut self, uid: Uid, fence: Fence, failures: u32) {
        let Some(run) =
            self.runs.get_mut(&uid).filter(|run| run.fence == fence && failures > run.pod_failures)
        else {
            return;
        };
        run.pod_failures = failures;
        self.spare_news.insert(uid, 0);
    }

    /// Writes the tombstone, gives the room back, and says how it ended.
    fn bury(
        &mut self,
        uid: Uid,
        fence: Fence,
        result: EndResult,
        pod_failures: u32,
        ran: Millis,
        out: &mut Outcome,
    ) {
        let run = self.runs.remove(&uid).expect("the caller found this run");
        self.spare_news.remove(&uid);
        let result = match (result, run.stopped_by) {
            (EndResult::Stopped, Some(StopCause::Lapse)) => EndResult::LeaseLapsed,
            (EndResult::Stopped, Some(StopCause::Stranded)) => EndResult::NodeLost {
                message: run.stranded.map_or_else(String::new, |why| (*why).to_owned()),
            },
            (EndResult::Stopped, None) => {
                EndResult::NodeLost { message: "the run was not found after a restart of the agent".into() }
            }
            (other, _) => other,
        };
        self.ledger.release(run.offer);
        out.effects.push(Effect::Deprovision { offer: run.offer });
        self.durable.drop_run(uid, &mut out.store);
        let (offer, attempt, term, on_loss) = (run.offer, run.attempt, run.term, run.on_loss);
        let proof = run.mac.map(|mac| Box::new(Proof { offer, attempt, term, on_loss, mac }));
        let end = End {
            uid,
            fence,
            result: result.cleaned(),
            pod_failures: pod_failures.max(run.pod_failures),
            ran,
            proof,
        };
        if !self.config.planted.has(Bug::EndForgotten) {
            self.durable
                .bury(Tombstone { end: end.clone(), refused: None, acknowledged: None }, &mut out.store);
        }
        self.say(Event::Ended(end));
        if self.lost && self.runs.is_empty() {
            out.effects.push(Effect::Superseded);
        }
    }

    pub(crate) fn on_provider(&mut self, at: Mono, event: ProviderEvent, out: &mut Outcome) {
        match event {
            ProviderEvent::Waiting { offer, reason, estimate } => {
                if let Some(open) = self.offers.get(&offer) {
                    let uid = open.uid;
                    self.say(Event::Waiting { offer, uid, reason: clean(&reason), estimate });
                }
            }
            ProviderEvent::Ready { offer, nodes } => self.on_provided(at, offer, nodes, out),
            ProviderEvent::Failed { offer, reason } => {
                if let Some(open) = self.offers.get(&offer) {
                    let uid = open.uid;
                    self.drop_offer(offer, out);
                    self.say(Event::Refused {
                        offer,
                        uid,
                        reason: RefuseReason::ProviderFailed,
                        text: clean(&reason),
                    });
                }
            }
        }
    }

    fn on_provided(
        &mut self,
        at: Mono,
        offer: OfferId,
        nodes: Vec<crate::ledger::NodeSpec>,
        out: &mut Outcome,
    ) {
        let Some(open) = self.offers.get(&offer).filter(|o| matches!(o.state, OfferState::Waiting)).cloned()
        else {
            out.effects.push(Effect::Deprovision { offer });
            return;
        };
        self.ledger.add_provided(offer, nodes);
        match self.try_hold(offer, &open) {
            Ok(()) => {
                let until = at + open.hold;
                self.due = self.due.min(until);
                *self.offers.state_mut(offer).expect("found above") = OfferState::Held { until };
                self.say(Event::Held { offer, uid: open.uid });
            }
            Err(misfit) => {
                self.drop_offer(offer, out);
                self.say(Event::Refused {
                    offer,
                    uid: open.uid,
                    reason: RefuseReason::ProviderFailed,
                    text: format!("the provider's nodes do not do: {misfit}"),
                });
            }
        }
    }

    /// Ends holds and begins stops that are due, and drops tombstones that were kept long enough.
    pub(crate) fn on_time(&mut self, at: Mono, now: Now, out: &mut Outcome) {
        if at >= self.due {
            let expired: Vec<(OfferId, Uid)> = self
                .offers
                .iter()
                .filter(|(_, o)| matches!(o.state, OfferState::Held { until } if at >= until))
                .map(|(id, o)| (*id, o.uid))
                .collect();
            for (offer, uid) in expired {
                self.drop_offer(offer, out);
                self.say(Event::Gone { offer, uid, expired: true });
            }
            let lapsing: Vec<Uid> = self
                .runs
                .iter()
                .filter(|(_, r)| r.lease.is_some_and(|l| at >= l.stop_at()))
                .map(|(uid, _)| *uid)
                .collect();
            for uid in lapsing {
                let phase = self.runs[&uid].phase;
                if step(phase, Happening::Lapse) == Step::Stop {
                    self.order_stop(uid, StopCause::Lapse, out);
                }
            }
            let holds = self.offers.values().filter_map(|o| match o.state {
                OfferState::Held { until } => Some(until),
                OfferState::Waiting => None,
            });
            let leases = self
                .runs
                .values()
                .filter(|r| r.phase != Phase::Stopping)
                .filter_map(|r| r.lease.map(|l| l.stop_at()));
            self.due = holds.chain(leases).min().unwrap_or(Mono(u64::MAX));
        }
        if self.durable.tombstones.len() >= TOMBSTONES_MAX || now.wall.since(self.purged) >= PURGE_EVERY {
            self.purged = now.wall;
            self.purge(now.wall, out);
        }
    }

    fn purge(&mut self, wall: Wall, out: &mut Outcome) {
        let crowded = self.durable.tombstones.len() >= TOMBSTONES_MAX;
        let mut acknowledged: Vec<(Wall, Uid, Fence)> = self
            .durable
            .tombstones
            .iter()
            .filter_map(|((u, f), t)| t.acknowledged.map(|(_, _, at)| (at, *u, *f)))
            .collect();
        acknowledged.sort_unstable();
        let crowd = if crowded { TOMBSTONES_MAX / 10 } else { 0 };
        for (i, (since, uid, fence)) in acknowledged.into_iter().enumerate() {
            if i < crowd || wall.since(since) >= TOMBSTONE_KEPT {
                self.durable.unbury(uid, fence, &mut out.store);
                out.effects.push(Effect::Forget { uid, fence });
            }
        }
    }

    pub(crate) fn acknowledge_end(
        &mut self,
        uid: Uid,
        fence: Fence,
        by: (Leadership, RecordNumber, Wall),
        out: &mut Outcome,
    ) {
        if let Some(grave) = self
            .durable
            .tombstones
            .get(&(uid, fence))
            .filter(|t| t.acknowledged.is_none_or(|(l, r, _)| (l, r) != (by.0, by.1)))
        {
            let grave = Tombstone { acknowledged: Some(by), ..grave.clone() };
            self.durable.bury(grave, &mut out.store);
        }
    }

    /// Makes the current state of a live attempt durable.
    pub(crate) fn store_run(&mut self, uid: Uid, out: &mut Outcome) {
        let run = &self.runs[&uid];
        let stamp = self.elapsed.stamp();
        let stored = StoredRun {
            fence: run.fence,
            offer: run.offer,
            attempt: run.attempt,
            phase: run.phase,
            term: run.term,
            on_loss: run.on_loss,
            spec: run.spec,
            mac: run.mac.clone(),
            lease: run.lease.map(|l| lease::AgentLease { lapses: self.elapsed.boot_time(l.lapses), ..l }),
            lead: stamp.lead,
            calendar: Some(stamp.calendar).filter(|calendar| *calendar != stamp.lead),
            boot: self.config.boot,
            stopped_by: run.stopped_by,
            placement: self.ledger.placement(run.offer),
            per_pod: self.ledger.per_pod(run.offer),
            pod_failures: run.pod_failures,
            placed: run.placed.clone(),
            gang: run.gang.clone(),
            moves: run.moves,
            leaving: self.ledger.leaving(run.offer).to_vec(),
            provided: self.ledger.provided(run.offer),
            stranded: run.stranded.clone(),
            spare: self.ledger.spare(run.offer).clone(),
            size: run.size,
            waits: run.waits,
            stays: self.ledger.stays(run.offer).to_vec(),
            growth: run.growth.clone(),
            priority: run.priority,
        };
        self.durable.put_run(uid, stored, &mut out.store);
    }

    /// The same of all of them.
    pub(crate) fn store_runs(&mut self, out: &mut Outcome) {
        for uid in self.runs.keys().copied().collect::<Vec<_>>() {
            self.store_run(uid, out);
        }
    }
}
