//! An agent's two lanes to the manager: requests, answers, and missing answers.

use super::situations;
use crate::sim::context::event::SimEvent;
use crate::sim::invariants::violation::{Verdict, violation};
use crate::sim::world::Simulation;
use meridian_agent_core::Input;
use meridian_shared::protocol::{Event, Lane, SyncAnswer, SyncRequest};
use std::collections::BTreeMap;

/// How long an answer may take beyond the time for which the manager holds a poll.
const ANSWER_MS_MAX: u64 = 1_200;

impl Simulation {
    /// The lane on which an agent sends next, if it sends now.
    pub(crate) fn next_lane(&self, a: usize) -> Option<Lane> {
        let host = &self.agents[a];
        let link = &host.link;
        if host.agent.is_none() || self.cx.now < link.pause_until || self.cx.has_failed() {
            return None;
        }
        let probing = link.failures > 0 || !link.synced;
        if (link.has_news || probing) && !link.lanes.contains_key(&Lane::News) {
            return Some(Lane::News);
        }
        (!probing && !link.lanes.contains_key(&Lane::Poll)).then_some(Lane::Poll)
    }

    /// Composes and sends one request.
    pub(crate) fn transmit(&mut self, a: usize, lane: Lane) {
        let host = &mut self.agents[a];
        let now = self.machines[host.machine].clock.now(self.cx.now);
        let Some(agent) = &mut host.agent else { return };
        let mut request = agent.compose(now, lane);
        situations::count_request(agent, &request, &mut self.cx.counters);
        if lane == Lane::News {
            host.link.has_news = false;
        }
        let transmission = request.transmission;
        host.link.lanes.insert(lane, transmission);
        let patience = ANSWER_MS_MAX + if lane == Lane::Poll { agent.poll().0 } else { 0 };
        let (life, hostile) = (host.life, host.hostile);
        let verdict = if hostile { Ok(()) } else { check_tombstones(&host.store, &request) };
        self.cx.record_verdict(verdict);
        let timeout = SimEvent::AnswerTimeout { agent: a, life, lane, transmission };
        self.cx.schedule(self.cx.now + patience, timeout);
        if !hostile || self.tamper(a, &mut request) {
            let host = &self.agents[a];
            self.network.send_request(&mut self.cx, a, host, self.managers.len(), request);
        }
    }

    /// No answer came in time.
    pub(crate) fn answer_timeout(&mut self, a: usize, life: u64, lane: Lane, transmission: u64) {
        let host = &mut self.agents[a];
        if host.life != life || host.link.lanes.get(&lane) != Some(&transmission) {
            return;
        }
        host.link.lanes.remove(&lane);
        host.link.has_news |= lane == Lane::News;
        self.exchange_failed(a);
    }

    /// An agent pauses after a failed exchange, and tries any manager next.
    fn exchange_failed(&mut self, a: usize) {
        let wait = self.cx.random.agents.between(80, 500);
        let route = self.cx.random.agents.index(self.managers.len());
        let host = &mut self.agents[a];
        host.link.failures += 1;
        host.link.pause_until = self.cx.now + wait;
        host.route = route;
        self.wake_agent(a, self.cx.now + wait);
    }

    /// An answer arrives, perhaps late, perhaps twice, perhaps for an earlier process.
    pub(crate) fn answer_arrives(&mut self, a: usize, life: u64, transmission: u64, answer: SyncAnswer) {
        let host = &mut self.agents[a];
        if host.agent.is_none() {
            return;
        }
        if host.life == life {
            let lane = host.link.lanes.iter().find(|(_, sent)| **sent == transmission).map(|(l, _)| *l);
            if let Some(lane) = lane {
                host.link.lanes.remove(&lane);
                if matches!(answer, SyncAnswer::Ok(_)) {
                    (host.link.failures, host.link.synced) = (0, true);
                } else {
                    host.link.has_news |= lane == Lane::News;
                    self.exchange_failed(a);
                }
            }
        }
        self.agents[a].inbox.push(Input::Answer(Box::new(answer)));
        self.wake_agent(a, self.cx.now);
    }
}

/// Before an agent reports the end of an attempt, its store has the tombstone.
fn check_tombstones(store: &BTreeMap<String, String>, request: &SyncRequest) -> Verdict {
    for event in &request.events {
        let (uid, fence) = match event {
            Event::Ended(end) => (end.uid, end.fence),
            Event::GrantRefused { uid, fence, .. } => (*uid, *fence),
            _ => continue,
        };
        if !store.contains_key(&format!("tombstone/{uid}/{fence}")) {
            let details =
                format!("the end of {uid} (fence {fence}) is reported and isn't in the agent's store");
            return violation("tombstone", details);
        }
    }
    Ok(())
}
