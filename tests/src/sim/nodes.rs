//! Nodes that fail under gangs and come back: gone from the list, not ready, or driving everybody away by a taint.

use super::nearness::Near;
use super::oracle::broken;
use super::runner::Run;
use super::staying::TAINT;
use super::{Happening, Sim};
use meridian_agent_core::ledger::{NodeSpec, PodPlacement};
use meridian_agent_core::{Input, RunnerEvent};
use meridian_shared::gang::{Taint, TaintEffect};
use meridian_shared::ids::{Fence, Uid};

/// How long a node is away at most.
const AWAY_MS_MAX: u64 = 20_000;

/// Why nobody may stay on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Loss {
    /// It is no longer in the list.
    Gone,
    /// It has failed.
    Unready,
    /// It has a taint that some tolerate, and most of them for a while only.
    Tainted,
}

impl Loss {
    /// A node as its agents are told of it.
    pub(super) fn shown(loss: Option<&Self>, node: NodeSpec) -> NodeSpec {
        let taint = || Taint { key: TAINT.into(), value: String::new(), effect: TaintEffect::NoExecute };
        match loss {
            None | Some(Self::Gone) => node,
            Some(Self::Unready) => NodeSpec { unready: true, ..node },
            Some(Self::Tainted) => NodeSpec { taints: vec![taint()], ..node },
        }
    }
}

impl Sim {
    /// One node fails, and another one later.
    pub(super) fn lose_node(&mut self) {
        let Some(mean) = self.plan.node_losses.filter(|_| !self.healed) else { return };
        let chance = &mut self.chance.nodes;
        let (next, away) = (chance.between(mean / 2, mean * 3 / 2), chance.between(500, AWAY_MS_MAX));
        let (machine, gone) = (chance.index(self.machines.len()), chance.of_1000(350));
        let loss = if gone {
            Loss::Gone
        } else {
            *chance.pick(&[Loss::Unready, Loss::Tainted, Loss::Tainted]).expect("not empty")
        };
        let node = u32::try_from(chance.below(u64::from(self.machines[machine].nodes))).expect("few");
        self.at(self.now + next, Happening::NodeLost);
        self.at(self.now + away, Happening::NodeBack { machine, node });
        self.trace.say(self.now, || format!("node n{node} of machine {machine} is lost: {loss:?}"));
        self.counters.one("nodes lost");
        self.counters.add("nodes tainted", u64::from(loss == Loss::Tainted));
        if self.machines[machine].failed.insert(node, loss).is_some() {
            self.forget_stays(machine);
        }
        self.tell_nodes(machine);
    }

    /// A node works again.
    pub(super) fn bring_back(&mut self, machine: usize, node: u32) {
        if self.machines[machine].failed.remove(&node).is_some() {
            self.forget_stays(machine);
            self.tell_nodes(machine);
        }
    }

    /// Every node works again.
    pub(super) fn heal_nodes(&mut self) {
        for machine in 0..self.machines.len() {
            self.machines[machine].failed.clear();
            self.forget_stays(machine);
            self.tell_nodes(machine);
        }
    }

    fn tell_nodes(&mut self, machine: usize) {
        for a in 0..self.agents.len() {
            if self.agents[a].machine == machine && self.agents[a].agent.is_some() {
                let nodes = self.machines[machine].nodes_input();
                self.agents[a].inbox.push(nodes);
                self.rouse(a, self.now);
            }
        }
    }

    /// An agent moves pods of a gang.
    pub(super) fn move_pods(
        &mut self,
        a: usize,
        machine: usize,
        (uid, fence): (Uid, Fence),
        number: u32,
        placement: Vec<PodPlacement>,
    ) {
        // One commit may carry two moves (simulation seed 7207244).
        let moves = |run: &String| serde_json::from_str::<serde_json::Value>(run).ok()?["moves"].as_u64();
        let stored = self.agents[a]
            .store
            .get(&format!("run/{uid}"))
            .and_then(moves)
            .is_some_and(|moves| moves >= u64::from(number));
        // It may have ended in the very turn that decided this.
        let lives = self.machines[machine].runner.alive().any(|run| run == (uid, fence));
        if !stored && lives {
            self.judge(broken(
                "durable first",
                format!("move {number} of {fence} of {uid} is ordered and not in the agent's store"),
            ));
        }
        self.trace.say(self.now, || format!("agent {a} moves pods of {fence} of {uid}, move {number}"));
        self.counters.one("moves ordered");
        let same = |runs: &[PodPlacement]| {
            runs.iter().map(|p| (&p.pod_set, p.index)).eq(placement.iter().map(|p| (&p.pod_set, p.index)))
        };
        // A twin knows a gang as it was when it was copied; what runs it doesn't heed what is over, or is of other pods (seed 919).
        let heeded = self.agents[a].copy_of.is_none();
        let other = |(key, run): (&(Uid, Fence), &Run)| {
            *key == (uid, fence) && number > run.moved && !same(run.places())
        };
        if heeded && self.machines[machine].runner.runs().any(other) {
            self.judge(broken(
                "P3",
                format!("move {number} of {fence} of {uid} is of other pods than its start"),
            ));
        }
        let now = self.machines[machine].clock.now(self.now);
        if let Some(event) = self.machines[machine].runner.move_pods(now, uid, fence, number, placement) {
            self.agents[a].inbox.push(Input::Runner(event));
            self.rouse(a, self.now);
        }
    }

    /// What a machine says of its gangs, where it is about places.
    pub(super) fn note_moved(&mut self, machine: usize, event: &RunnerEvent) {
        let RunnerEvent::Moved { uid, .. } = event else { return };
        let required =
            self.oracle.jobs.get(uid).is_some_and(|job| matches!(job.near, Some(Near::Required(_))));
        self.counters.one("gangs moved");
        self.counters.add("gangs moved within a domain", u64::from(required));
        if self.machines[machine].honest {
            self.judge_nodes(machine);
            self.judge_nearness(machine);
        }
    }
}
