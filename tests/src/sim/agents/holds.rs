//! A cluster's answers about holds: whether the objects that a job names exist, and whether the capacity is
//! held.

use crate::sim::context::event::SimEvent;
use crate::sim::world::Simulation;
use meridian_agent_core::{HoldEvent, Input};
use meridian_shared::ids::OfferId;

impl Simulation {
    /// The agent looks up what the pods of an offer name.
    pub(crate) fn check_references(&mut self, a: usize, offer: OfferId) {
        let is_missing = self.cx.random.runners.permille(100);
        let event =
            if is_missing { failed(offer, "a Secret is missing") } else { HoldEvent::Checked { offer } };
        self.cx.counters.one("references checked");
        self.schedule_hold_event(a, 600, event);
    }

    /// The cluster is asked to hold an allocation. It may lose it at any later time.
    pub(crate) fn secure_hold(&mut self, a: usize, offer: OfferId) {
        if self.cx.random.runners.permille(100) {
            return self.schedule_hold_event(a, 4_000, failed(offer, "a pod of others took the room"));
        }
        self.cx.counters.one("holds secured");
        self.schedule_hold_event(a, 1_500, HoldEvent::Secured { offer });
        if self.cx.random.runners.permille(100) {
            self.schedule_hold_event(a, 20_000, failed(offer, "the cluster evicted the gang"));
        }
    }

    fn schedule_hold_event(&mut self, a: usize, latest: u64, event: HoldEvent) {
        let at = self.cx.now + self.cx.random.runners.between(5, latest);
        let life = self.agents[a].life;
        self.cx.schedule(at, SimEvent::HoldReports { agent: a, life, event });
    }

    pub(crate) fn hold_reports(&mut self, a: usize, life: u64, event: HoldEvent) {
        if self.agents[a].life == life {
            self.agents[a].inbox.push(Input::Hold(event));
            self.wake_agent(a, self.cx.now);
        }
    }
}

fn failed(offer: OfferId, reason: &str) -> HoldEvent {
    HoldEvent::Failed { offer, reason: reason.into() }
}
