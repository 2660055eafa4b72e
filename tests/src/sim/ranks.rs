//! People change the values of priority classes, and who has to hear of that.

use super::Sim;
use super::chance::Chance;
use super::oracle::{Verdict, broken};
use super::people::Wish;
use super::queues::PRIORITIES;
use super::residency;
use meridian_manager_core::World;
use meridian_manager_core::state::workload::phase::Phase;
use meridian_objects::job::PRIORITY_LABEL;
use serde_json::json;

/// Values that a class may have.
const VALUES: [i64; 5] = [-10, 0, 10, 50, 100];

/// Every workload that isn't over has the priority that its class says.
pub(super) fn judge_priorities(world: &World) -> Verdict {
    for (uid, w) in world.state.workloads.iter().filter(|(_, w)| w.finished.is_none()) {
        let class = world
            .queues
            .class(w.class)
            .labels
            .get(PRIORITY_LABEL)
            .and_then(|class| world.state.catalog.workload_priority(class));
        if let Some(value) = class.filter(|value| *value != w.priority) {
            return broken("P7", format!("{uid} has priority {}, and its class says {value}", w.priority));
        }
    }
    Ok(())
}

impl Sim {
    /// Sometimes a class gets another value. Drawn beside everything else.
    pub(super) fn revalue_one(&mut self) {
        let mut chance = Chance::new(self.plan.seed, &format!("priority at {}", self.now));
        if !self.people.declared.shared || !chance.of_1000(100) {
            return;
        }
        let (name, _) = *chance.pick(&PRIORITIES).expect("not empty");
        let value = *chance.pick(&VALUES).expect("not empty");
        self.counters.one("priorities changed");
        let class = json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "WorkloadPriorityClass", "metadata": {"name": name}, "value": value});
        self.ask(Wish::Objects(vec![class]));
    }

    /// An agent that has taken all that it was told knows how important each of its gangs is.
    pub(super) fn judge_ranks(&mut self, a: usize) {
        let host = &self.agents[a];
        let Some(agent) = host.agent.as_ref().filter(|_| self.machines[host.machine].honest) else { return };
        let follows = agent.durable().follows;
        let worlds = self.managers.iter().filter(|m| m.leading && !m.cut).filter_map(|m| m.world.as_ref());
        let Some(world) = worlds.into_iter().find(|world| Some(world.state.leadership) == follows) else {
            return;
        };
        let settled = world
            .live
            .clusters
            .get(&host.cluster)
            .filter(|live| live.session == agent.session() && live.outbox.quiet() && live.inventoried);
        if settled.is_none_or(|live| live.events_through < agent.events_last()) {
            return;
        }
        let ranked = agent.priorities().filter_map(|(uid, fence, known)| {
            let workload = world.state.workloads.get(&uid)?;
            let phase = workload.phase;
            // What is forbidden there since, and only flagged, is told ids and nothing else.
            let known_there = residency::verdict(world, uid, &host.cluster).is_ok();
            let runs = known_there
                && phase.granted()
                && phase != Phase::Stopping
                && workload.leg_of(fence).is_some();
            runs.then_some((uid, fence, known, workload.priority))
        });
        let (mut told, mut wrong) = (0, None);
        for (uid, fence, known, priority) in ranked {
            told += 1;
            if known != priority {
                wrong = Some(format!(
                    "agent {a} takes {fence} of {uid} for {known}, and it has priority {priority}"
                ));
            }
        }
        self.counters.add("priorities known", told);
        if let Some(words) = wrong {
            self.judge(broken("P7", words));
        }
    }
}
