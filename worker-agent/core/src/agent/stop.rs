//! Stops, and reports of an attempt's state.

use super::Agent;
use super::grant::stopped;
use crate::durable::Tombstone;
use crate::leg::{LegEvent, Phase, Step, step};
use crate::runs::StopCause;
use crate::turn::{Effect, Outcome};
use meridian_shared::ids::{Fence, Uid};
use meridian_shared::planted::Bug;
use meridian_shared::protocol::{Event, StopReason};

impl Agent {
    pub(super) fn on_stop(&mut self, uid: Uid, fence: Fence, reason: StopReason, out: &mut Outcome) {
        match step(self.phase(uid, fence), LegEvent::Stop) {
            Step::Stop => self.order_stop(uid, StopCause::Requested(reason), out),
            // The attempt is not known here. The tombstone answers a grant that is still under way. The end
            // is reported once the runner has seen that nothing of the attempt runs: a copy of this store may
            // have started it.
            Step::End => {
                out.act(Effect::Stop { uid, fence });
                let end = stopped(uid, fence);
                if !self.config.planted.has(Bug::UnknownStopForgotten) {
                    self.durable.put_tombstone(Tombstone::of_end(end.clone()), out.writes());
                }
                self.strays.insert((uid, fence), end);
            }
            Step::Repeat => self.repeat_state(uid, fence),
            Step::Start | Step::Run | Step::Ignore => {}
        }
    }

    /// Stops a live run.
    pub(super) fn order_stop(&mut self, uid: Uid, cause: StopCause, out: &mut Outcome) {
        let run = self.runs.get_mut(uid).expect("the caller found this run");
        run.phase = Phase::Stopping;
        run.record.stopped_by = Some(cause);
        let fence = run.record.fence;
        self.store_run(uid, out);
        out.act(Effect::Stop { uid, fence });
    }

    /// Reports the state of an attempt again.
    pub(super) fn repeat_state(&mut self, uid: Uid, fence: Fence) {
        if self.strays.contains_key(&(uid, fence)) {
            return; // The runner has yet to report its end.
        }
        if let Some(tombstone) = self.durable.tombstones().get(&(uid, fence)) {
            let event = match &tombstone.refused {
                Some(why) => Event::GrantRefused { uid, fence, why: why.clone() },
                None => Event::Ended(tombstone.end.clone()),
            };
            return self.events.push(event);
        }
        match self.phase(uid, fence) {
            Phase::Starting | Phase::Stopping => self.report_accepted(uid, fence),
            Phase::Running => self.report_running(uid, fence),
            Phase::Absent | Phase::Ended => {}
        }
    }

    pub(super) fn report_accepted(&mut self, uid: Uid, fence: Fence) {
        let placement = self.runs.get(uid).map(|run| run.record.placed.clone());
        self.events.push(Event::Accepted { uid, fence, placement });
    }

    pub(super) fn report_running(&mut self, uid: Uid, fence: Fence) {
        let placement = self.runs.get(uid).map(|run| run.record.placed.clone());
        self.events.push(Event::Running { uid, fence, placement });
    }

    pub(super) fn phase(&self, uid: Uid, fence: Fence) -> Phase {
        match self.runs.attempt(uid, fence) {
            Some(run) => run.phase,
            None if self.durable.tombstones().contains_key(&(uid, fence)) => Phase::Ended,
            None => Phase::Absent,
        }
    }
}
