//! Effects of an agent on its machine: gangs that start, move and change size, and nodes from a provider.

use crate::sim::context::event::SimEvent;
use crate::sim::hosts::gang::{Gang, PodMove};
use crate::sim::hosts::runner::AttemptKey;
use crate::sim::invariants::violation::{Verdict, violation};
use crate::sim::world::Simulation;
use meridian_agent_core::runtime::PodPlacement;
use meridian_agent_core::{Input, ProviderEvent, RunnerEvent, Start};
use meridian_shared::gang::Gang as GangShape;
use meridian_shared::ids::OfferId;
use meridian_shared::protocol::Size;

impl Simulation {
    /// Puts a confirmation of the runner into the agent's inbox.
    pub(crate) fn confirm_to_agent(&mut self, a: usize, event: RunnerEvent) {
        self.agents[a].inbox.push(Input::Runner(event));
        self.wake_agent(a, self.cx.now);
    }

    /// An agent starts a gang.
    pub(crate) fn start_gang(&mut self, a: usize, start: &Start) {
        let machine = self.agents[a].machine;
        let (uid, fence) = (start.uid, start.fence);
        let fence_field = format!("\"fence\":\"{fence}\"");
        if !self.stored_run(a, (uid, fence)).is_some_and(|run| run.contains(&fence_field)) {
            self.check_not_durable(a, (uid, fence), "starts it");
        }
        let Some((behaviour, has_topology)) =
            self.invariants.jobs.get(&uid).map(|job| (job.behaviour.clone(), job.topology.is_some()))
        else {
            return;
        };
        let now = self.machines[machine].clock.now(self.cx.now);
        let runner = &mut self.machines[machine].runner;
        if !runner.start(now, start, &behaviour, &mut self.cx.random.runners) {
            return;
        }
        self.cx.log(|| format!("machine {machine}: starts {uid} (fence {fence})"));
        self.cx.counters.one("gangs started");
        self.cx.counters.add("gangs started with a topology", u64::from(has_topology));
        let verdict = self.invariants.check_start(uid, fence, start);
        if self.machines[machine].honest {
            self.cx.record_verdict(verdict);
            self.check_runs_once(uid);
            self.check_placement(machine);
            self.check_lease(machine, (uid, fence));
        }
    }

    /// An agent moves pods of a gang.
    pub(crate) fn move_pods(&mut self, a: usize, order: PodMove) {
        let machine = self.agents[a].machine;
        let (uid, fence) = order.key;
        // One commit may carry two moves.
        let moves =
            |run: &str| serde_json::from_str::<serde_json::Value>(run).ok()?["record"]["moves"].as_u64();
        let stored = self.stored_run(a, order.key).and_then(moves);
        // The gang may have ended in the very turn that decided this.
        let lives = self.machines[machine].runner.living(order.key).is_some();
        if stored.is_none_or(|moves| moves < u64::from(order.number)) && lives {
            self.check_not_durable(a, order.key, "moves its pods");
        }
        self.cx.log(|| {
            let name = &self.agents[a].name;
            format!("agent {name}: moves pods of {uid} (fence {fence}), move {}", order.number)
        });
        self.cx.counters.one("moves ordered");
        let pods = |placement: &[PodPlacement]| {
            placement.iter().map(|pod| (pod.pod_set.clone(), pod.index)).collect::<Vec<_>>()
        };
        let is_of_other_pods =
            |gang: &Gang| order.number > gang.last_move() && pods(gang.placement()) != pods(&order.placement);
        // A copied store has an older size of the gang; the runner ignores commands about other pods.
        let runner = &self.machines[machine].runner;
        let known = runner.gangs().find(|(key, _)| **key == order.key).map(|(_, gang)| gang);
        if !self.agents[a].is_copy && known.is_some_and(is_of_other_pods) {
            let details =
                format!("move {} of {uid} (fence {fence}) is of other pods than its start", order.number);
            self.cx.record_verdict(violation("P3", details));
        }
        let now = self.machines[machine].clock.now(self.cx.now);
        if let Some(event) = self.machines[machine].runner.move_pods(now, order) {
            self.confirm_to_agent(a, event);
        }
    }

    /// An agent adds pods to a gang.
    pub(crate) fn scale_up_gang(&mut self, a: usize, order: PodMove, size: Size) {
        let machine = self.agents[a].machine;
        let key = order.key;
        let stored =
            self.stored_run(a, key).is_some_and(|run| run.contains(&format!("\"moves\":{}", order.number)));
        // The gang may have ended in the very turn that decided this.
        let Some(gang) = self.machines[machine].runner.living(key).cloned() else { return };
        if !stored {
            self.check_not_durable(a, key, "makes it larger");
        }
        self.cx.log(|| {
            let (name, PodMove { placement, .. }) = (&self.agents[a].name, &order);
            format!("agent {name}: scales {} (fence {}) up to {size:?}: {placement:?}", key.0, key.1)
        });
        let honest = self.machines[machine].honest;
        if order.number > gang.last_move() {
            self.cx.counters.one("gangs scaled up");
            if honest {
                let (places, pods) = (order.placement.len(), size.parallelism as usize);
                let verdict = self.invariants.check_scale_up(key.0, key.1, places, pods);
                self.cx.record_verdict(verdict);
                self.cx.record_verdict(check_added_places(&gang, &order, size));
            }
        }
        if let Some(event) = self.machines[machine].runner.scale_up(order, size) {
            self.confirm_to_agent(a, event);
        }
        self.check_placement(machine);
    }

    /// An agent removes pods from a gang.
    pub(crate) fn scale_down_gang(&mut self, a: usize, key: AttemptKey, size: Size) {
        let machine = self.agents[a].machine;
        let stored = self.stored_run(a, key).is_some_and(|run| run.contains("\"size\":"));
        // The gang may have ended in the very turn that decided this.
        if !stored && self.machines[machine].runner.living(key).is_some() {
            self.check_not_durable(a, key, "makes it smaller");
        }
        self.cx.log(|| {
            format!("agent {}: scales {} (fence {}) down to {size:?}", self.agents[a].name, key.0, key.1)
        });
        self.cx.counters.one("gangs scaled down");
        let now = self.machines[machine].clock.now(self.cx.now);
        self.machines[machine].runner.scale_down(now, key, size);
    }

    /// The run of a workload as the agent's store has it.
    fn stored_run(&self, a: usize, (uid, _): AttemptKey) -> Option<&str> {
        self.agents[a].store.get(&format!("run/{uid}")).map(String::as_str)
    }

    fn check_not_durable(&mut self, a: usize, (uid, fence): AttemptKey, order: &str) {
        let name = &self.agents[a].name;
        let details = format!("agent {name} {order} before that is in its store: {uid} (fence {fence})");
        self.cx.record_verdict(violation("durable first", details));
    }

    /// Asks the provider for the nodes of a gang.
    pub(crate) fn provision(&mut self, a: usize, offer: OfferId, gang: &GangShape) {
        let pods: u32 = gang.pod_sets.iter().map(|s| s.count).sum();
        let life = self.agents[a].life;
        let at = self.cx.now + self.cx.random.runners.between(300, 4_000);
        let event = if self.cx.random.runners.permille(150) {
            ProviderEvent::Failed { offer, reason: "out of stock".into() }
        } else {
            let machine = &self.machines[self.agents[a].machine];
            let nodes =
                (0..pods.min(machine.pools)).map(|i| machine.node(format!("p-{offer}-{i}"))).collect();
            ProviderEvent::Ready { offer, nodes, keeps: None }
        };
        self.cx.counters.one("provisioned");
        self.cx.schedule(at, SimEvent::ProviderReports { agent: a, life, event });
    }

    /// The provider answers.
    pub(crate) fn provider_reports(&mut self, a: usize, life: u64, event: ProviderEvent) {
        if self.agents[a].life == life {
            self.agents[a].inbox.push(Input::Provider(event));
            self.wake_agent(a, self.cx.now);
        }
    }
}

/// P3: a scale-up keeps the gang's places, and adds one per new pod.
fn check_added_places(gang: &Gang, order: &PodMove, size: Size) -> Verdict {
    let (known, (uid, fence)) = (gang.placement(), order.key);
    if !order.placement.starts_with(known) || order.placement.len() <= known.len() {
        let details = format!(
            "a scale-up of {uid} (fence {fence}) changes places: {:?} after {known:?}",
            order.placement
        );
        return violation("P3", details);
    }
    let added = order.placement.len() - known.len();
    let pods = (size.parallelism as usize).saturating_sub(gang.target_size());
    if added != pods {
        let details = format!("a scale-up of {uid} (fence {fence}) adds {added} places for {pods} pods");
        return violation("P3", details);
    }
    Ok(())
}
