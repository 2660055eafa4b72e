//! One turn of an agent: apply inputs, make the result durable, do the effects, then send.

use super::situations;
use crate::sim::context::event::SimEvent;
use crate::sim::hosts::gang::PodMove;
use crate::sim::invariants::violation::violation;
use crate::sim::machines::events::CLOCK_READ_MS;
use crate::sim::world::Simulation;
use meridian_agent_core::{Effect, Input};
use meridian_shared::ids::Leadership;

impl Simulation {
    /// Wakes an agent's loop at `at`, unless it wakes earlier.
    pub(crate) fn wake_agent(&mut self, a: usize, at: u64) {
        let at = at.max(self.cx.now);
        if let Some(turn) = self.agents[a].plan_turn(at) {
            self.cx.schedule(at, SimEvent::AgentTurn { agent: a, turn });
        }
    }

    /// One round of an agent's loop: inputs, time, then both lanes.
    pub(crate) fn agent_turn(&mut self, a: usize, turn: u64) {
        let host = &mut self.agents[a];
        if !host.begin_turn(turn) || host.agent.is_none() {
            return;
        }
        let mut inputs = std::mem::take(&mut host.inbox);
        inputs.push(Input::Tick);
        self.apply_to_agent(a, inputs);
        while let Some(lane) = self.next_lane(a) {
            self.transmit(a, lane);
        }
        let host = &self.agents[a];
        let Some(agent) = &host.agent else { return };
        let now = self.cx.now;
        let clock = &self.machines[host.machine].clock;
        let deadline = agent.next_deadline().map_or(u64::MAX, |at| clock.when(at));
        let pause_end = if host.link.pause_until > now { host.link.pause_until } else { u64::MAX };
        self.wake_agent(a, deadline.min(pause_end).min(now + CLOCK_READ_MS).max(now + 1));
    }

    /// Applies inputs, makes the result durable and does the effects.
    pub(crate) fn apply_to_agent(&mut self, a: usize, inputs: Vec<Input>) {
        let now = self.machines[self.agents[a].machine].clock.now(self.cx.now);
        let Some(agent) = &mut self.agents[a].agent else { return };
        let (mut store, mut effects) = (Vec::new(), Vec::new());
        for input in inputs {
            situations::count_input(agent, &input, &mut self.cx.counters);
            let outcome = agent.apply(now, input);
            let (writes, acts) = outcome.into_parts();
            store.extend(writes);
            effects.extend(acts);
        }
        let sound = agent.check();
        let follows = agent.durable().follows();
        self.cx.record_verdict(sound.or_else(|details| violation("Agent::check", details)));
        // An agent that ends before this leadership is durable has not followed it.
        if !self.cx.has_failed() && self.persist(a, store) {
            self.agents[a].unseen_back = false;
            self.check_followed_leadership(a, follows);
            self.perform_effects(a, effects);
            self.check_tolerations(a);
            self.check_agent_priorities(a);
        }
    }

    /// An agent never returns to an older leadership, and no two leaderships have the same epoch.
    fn check_followed_leadership(&mut self, a: usize, follows: Option<Leadership>) {
        let before = std::mem::replace(&mut self.agents[a].follows, follows);
        if let (Some(before), Some(after)) = (before, follows)
            && (after.epoch < before.epoch || (after.epoch == before.epoch && after.id != before.id))
        {
            let details = format!("agent {} follows {after} after {before}", self.agents[a].name);
            self.cx.record_verdict(violation("leadership", details));
        }
    }

    /// Does the effects of one turn, in order. The process may end between any two.
    pub(crate) fn perform_effects(&mut self, a: usize, effects: Vec<Effect>) {
        let machine = self.agents[a].machine;
        for (done, effect) in effects.into_iter().enumerate() {
            if done > 0 && self.ends_between_effects(a) {
                break;
            }
            // Gangs that a superseded agent has just started continue under their guards.
            let is_superseded = matches!(effect, Effect::Superseded);
            self.perform_effect(a, effect);
            if is_superseded {
                break;
            }
        }
        self.schedule_machine_tick(machine);
    }

    fn perform_effect(&mut self, a: usize, effect: Effect) {
        let machine = self.agents[a].machine;
        let now = self.machines[machine].clock.now(self.cx.now);
        match effect {
            Effect::Start(start) => self.start_gang(a, &start),
            Effect::Renew { uid, fence, deadline } => {
                self.machines[machine].runner.renew(now, (uid, fence), deadline);
                self.check_lease(machine, (uid, fence));
            }
            Effect::Move { uid, fence, number, placement } => {
                self.move_pods(a, PodMove { key: (uid, fence), number, placement });
            }
            Effect::ScaleUp { uid, fence, number, placement, size } => {
                self.scale_up_gang(a, PodMove { key: (uid, fence), number, placement }, size);
            }
            Effect::ScaleDown { uid, fence, size } => self.scale_down_gang(a, (uid, fence), size),
            Effect::Stop { uid, fence } => {
                self.cx.log(|| format!("agent {}: stops {uid} (fence {fence})", self.agents[a].name));
                if let Some(event) = self.machines[machine].runner.stop(now, (uid, fence)) {
                    self.confirm_to_agent(a, event);
                }
            }
            Effect::Forget { uid, fence } => self.machines[machine].runner.forget((uid, fence)),
            Effect::Check(check) => self.check_references(a, check.offer),
            Effect::Secure(order) => self.secure_hold(a, order.offer),
            Effect::Provision(request) => self.provision(a, request.offer, &request.gang),
            // The simulated runner keeps what is left, as the process runner does.
            Effect::Deprovision { .. } | Effect::Settle { .. } => {}
            Effect::SendNews => self.agents[a].link.has_news = true,
            Effect::Superseded => self.supersede_agent(a),
        }
    }
}
