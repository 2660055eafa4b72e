//! Grants: check, make durable, start; or refuse durably.

use super::Agent;
use crate::durable::Tombstone;
use crate::ledger::Arrival;
use crate::leg::{LegEvent, Phase, Step, step};
use crate::offers::OpenOffer;
use crate::placement_report;
use crate::runs::{LiveRun, RunRecord, ScaleUps};
use crate::runtime::{PodPlacement, Start};
use crate::turn::{Effect, Outcome};
use meridian_shared::ids::{ContentHash, Fence, Uid};
use meridian_shared::indexes::Indexes;
use meridian_shared::lease::{AgentLease, TERM_MAX, stop_budget};
use meridian_shared::planted::Bug;
use meridian_shared::protocol::{End, EndResult, Event, Grant, GrantRefusal, OnLoss};
use meridian_shared::time::{Millis, Mono};
use std::sync::Arc;

impl Agent {
    pub(super) fn on_grant(&mut self, at: Mono, sent: Mono, grant: Grant, out: &mut Outcome) {
        let (uid, fence) = (grant.uid, grant.fence);
        let phase = self.phase(uid, fence);
        if phase != Phase::Absent && self.config.planted.has(Bug::RepeatedGrantRefused) {
            return self.events.push(Event::GrantRefused { uid, fence, why: GrantRefusal::NoHold });
        }
        match step(phase, LegEvent::Grant) {
            Step::Start => match self.check_grant(at, sent, &grant) {
                Ok(lease) => self.accept(grant, lease, out),
                Err(why) => self.refuse_grant(&grant, why, out),
            },
            Step::Repeat => self.repeat_state(uid, fence),
            Step::Run | Step::Stop | Step::End | Step::Ignore => {}
        }
    }

    /// Checks a grant of an unknown attempt. Returns its lease; `None` for `onClusterLoss: Wait`.
    fn check_grant(&self, at: Mono, sent: Mono, grant: &Grant) -> Result<Option<AgentLease>, GrantRefusal> {
        if let Some(known) = self.durable.fence_of(grant.uid) {
            let is_twin = known.epoch == grant.fence.epoch && known.leadership != grant.fence.leadership;
            if is_twin || grant.fence <= known {
                return Err(GrantRefusal::StaleFence { known });
            }
        }
        let stray = || self.strays.keys().find(|(uid, _)| *uid == grant.uid).map(|(_, fence)| *fence);
        if let Some(fence) = self.runs.get(grant.uid).map(|run| run.record.fence).or_else(stray) {
            return Err(GrantRefusal::StillRuns { fence });
        }
        let holds =
            |open: &OpenOffer| open.uid == grant.uid && open.held_until().is_some_and(|until| at < until);
        if !self.offers.get(grant.offer).is_some_and(holds) {
            return Err(GrantRefusal::NoHold);
        }
        if grant.on_loss == OnLoss::Wait {
            return Ok(None);
        }
        let counts_from = if self.config.planted.has(Bug::AgentCountsFromArrival) { at } else { sent };
        let lease = AgentLease::from_sent(counts_from, grant.term);
        if at >= lease.stop_at() { Err(GrantRefusal::Lapsed) } else { Ok(Some(lease)) }
    }

    fn accept(&mut self, grant: Grant, lease: Option<AgentLease>, out: &mut Outcome) {
        let (uid, fence) = (grant.uid, grant.fence);
        let open = self.offers.remove(grant.offer).expect("a grant without its hold was refused");
        let placement = self.ledger.placement(grant.offer);
        let placed = placement_report::report(0, &open.gang, &placement, &self.ledger);
        self.ledger.count_toleration(grant.offer, &open.gang, Arrival::Pods);
        let record = RunRecord {
            fence,
            offer: grant.offer,
            attempt: grant.attempt,
            job: Some(format!("{}/{}", grant.namespace, grant.name).into()),
            term: grant.term,
            on_loss: grant.on_loss,
            spec: ContentHash::of(grant.spec.as_bytes()),
            mac: grant.mac.clone(),
            stopped_by: None,
            pod_failures: grant.pod_failures,
            completed: grant.completed.clone(),
            placed: Arc::new(placed),
            gang: open.gang,
            moves: 0,
            stranded: None,
            size: None,
            waiting_since: None,
            scale_ups: ScaleUps::default(),
            priority: grant.priority,
        };
        self.runs.insert(uid, LiveRun { record, phase: Phase::Starting, lease });
        self.due = lease.map_or(self.due, |l| self.due.min(l.stop_at()));
        // Durable before anything starts: the shell commits the writes before it does the effects.
        self.durable.raise_fence(uid, fence, out.writes());
        if self.config.planted.has(Bug::StartBeforeDurable) {
            out.writes().lose();
        } else {
            self.store_run(uid, out);
        }
        out.act(Effect::Start(Box::new(self.start_order(grant, lease, placement))));
        self.report_accepted(uid, fence);
    }

    fn start_order(&self, grant: Grant, lease: Option<AgentLease>, placement: Vec<PodPlacement>) -> Start {
        Start {
            uid: grant.uid,
            fence: grant.fence,
            offer: grant.offer,
            attempt: grant.attempt,
            namespace: grant.namespace,
            name: grant.name,
            spec: grant.spec,
            placement,
            deadline: lease.map(|l| self.elapsed.boot_time(l.lapses)),
            stop_budget: stop_budget(lease.map_or(TERM_MAX, |l| l.term)),
            run_left: grant.run_left,
            pod_failures: grant.pod_failures,
            completed: grant.completed,
        }
    }

    fn refuse_grant(&mut self, grant: &Grant, why: GrantRefusal, out: &mut Outcome) {
        let (uid, fence) = (grant.uid, grant.fence);
        // The offer of a live run isn't open any more, and no other workload has an offer with its id, so the
        // run keeps its allocation.
        self.drop_offer(grant.offer, out);
        if !matches!(why, GrantRefusal::StaleFence { .. } | GrantRefusal::StillRuns { .. }) {
            self.durable.raise_fence(uid, fence, out.writes());
        }
        let (pod_failures, completed) = (grant.pod_failures, grant.completed.clone());
        let end = End { pod_failures, completed, ..stopped(uid, fence) };
        self.durable.put_tombstone(Tombstone::of_refusal(end, why.clone()), out.writes());
        self.events.push(Event::GrantRefused { uid, fence, why });
    }
}

/// The end of an attempt that never ran here.
pub(super) fn stopped(uid: Uid, fence: Fence) -> End {
    let (result, completed) = (EndResult::Stopped, Indexes::default());
    End { uid, fence, result, pod_failures: 0, ran: Millis(0), completed, proof: None }
}
