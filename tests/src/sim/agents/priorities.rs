//! An agent that has applied all commands knows the priority of each of its gangs.

use crate::sim::invariants::violation::violation;
use crate::sim::reference_model::residency;
use crate::sim::world::Simulation;
use meridian_manager_core::state::workload::phase::Phase;

impl Simulation {
    /// P7: once no command is under way, an agent has the priorities of the manager that it follows.
    pub(crate) fn check_agent_priorities(&mut self, a: usize) {
        let host = &self.agents[a];
        let honest = self.machines[host.machine].honest;
        let Some(agent) = host.agent.as_ref().filter(|_| honest) else { return };
        let follows = agent.durable().follows();
        let worlds = self.managers.iter().filter_map(|manager| manager.leading_world());
        let Some(world) = worlds.into_iter().find(|world| Some(world.state().leadership()) == follows) else {
            return;
        };
        let settled = world.live().cluster(&host.cluster).filter(|live| {
            live.session() == agent.session() && live.outbox().quiet() && live.inventory().is_taken()
        });
        if settled.is_none_or(|live| live.events_through() < agent.events_last()) {
            return;
        }
        let (mut known_priorities, mut wrong) = (0, None);
        for (uid, fence, known) in agent.priorities() {
            let Some(workload) = world.state().workloads().get(&uid) else { continue };
            // A cluster that a residency policy denies gets no priority.
            let is_allowed = residency::allows(world, uid, &host.cluster).is_ok();
            let phase = workload.phase();
            let is_granted = phase.granted() && phase != Phase::Stopping;
            if !is_allowed || !is_granted || workload.leg_of(fence).is_none() {
                continue;
            }
            known_priorities += 1;
            if known != workload.priority() {
                wrong = Some(format!(
                    "{uid} (fence {fence}) has priority {}, and agent {} knows {known}",
                    workload.priority(),
                    host.name
                ));
            }
        }
        self.cx.counters.add("priorities known", known_priorities);
        if let Some(details) = wrong {
            self.cx.record_verdict(violation("P7", details));
        }
    }
}
