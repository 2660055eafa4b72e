//! How long pods tolerate tainted nodes, and how long gangs wait for a new node, by the clock of the machine.
//!
//! A restart of the agent must not lengthen these times, so an agent with a running timer is killed more
//! often than others.

use crate::sim::fleet::job::SimulatedJob;
use crate::sim::hosts::agent::{AgentHost, TolerationTimers};
use crate::sim::hosts::machine::Machine;
use crate::sim::hosts::runner::AttemptKey;
use crate::sim::invariants::violation::violation;
use crate::sim::world::Simulation;
use meridian_agent_core::Input;
use meridian_shared::time::{Millis, Mono};

/// Probability, in thousandths, that an agent is killed after a turn with a running timer.
const KILL_PERMILLE: u64 = 80;

/// Timers of an agent after one of its turns.
#[derive(Default)]
struct Observed {
    timers: TolerationTimers,
    /// Tolerations that ended in time.
    ended: u64,
    /// The last timer that ran out without effect.
    late: Option<String>,
}

impl Simulation {
    /// The nodes of a machine changed: the timers of its agents start again.
    pub(crate) fn reset_toleration_timers(&mut self, machine: usize) {
        let here = self.agents.iter_mut().filter(|host| host.machine == machine);
        here.for_each(|host| host.timers = TolerationTimers::default());
    }

    /// Counts the timers in the store of a starting agent.
    pub(crate) fn count_restarted_timers(&mut self, a: usize) {
        let with =
            |what: &str| self.agents[a].store.values().filter(|value| value.contains(what)).count() as u64;
        let (tolerations, waits) = (with("\"toleration\":["), with("\"waiting_since\":"));
        self.cx.counters.add("toleration times over a restart", tolerations);
        self.cx.counters.add("waiting times over a restart", waits);
    }

    /// After a turn of an agent no toleration and no waiting time is exceeded.
    pub(crate) fn check_tolerations(&mut self, a: usize) {
        let host = &self.agents[a];
        let machine = &self.machines[host.machine];
        // A copied store has the timers of the time of the copy, and a deleted store has none.
        let may_not_know = host.is_copy || machine.has_unknown_gangs || !machine.honest;
        let has_old_nodes = host.inbox.iter().any(|input| matches!(input, Input::Nodes { .. }));
        let Some(agent) = host.agent.as_ref().filter(|_| !may_not_know && !has_old_nodes) else { return };
        let now = machine.clock.now(self.cx.now).mono;
        let mut observed = Observed::default();
        for (uid, fence, _, stopping) in agent.runs() {
            let key = (uid, fence);
            if agent.is_waiting(uid) && !stopping {
                observed.add_wait(host, key, now, self.cx.scenario.replacement_wait);
            }
            let seconds = self.invariants.jobs.get(&uid).and_then(shortest_toleration);
            if let Some(seconds) = seconds {
                let nodes = tainted_nodes(machine, key);
                let leaves = agent.is_moving(uid) || agent.is_waiting(uid) || agent.is_stranded(uid, fence);
                let settles =
                    stopping || agent.is_moving(uid) || agent.is_waiting(uid) || agent.is_scaling_up(uid);
                let gang = TaintedGang { key, seconds, leaves, settles };
                nodes.into_iter().for_each(|node| observed.add_toleration(host, &gang, node, now));
            }
        }
        let has_timers = !observed.timers.is_empty();
        self.agents[a].timers = observed.timers;
        self.cx.counters.add("toleration times that ended", observed.ended);
        if let Some(details) = observed.late {
            self.cx.record_verdict(violation("tolerations", details));
        } else if has_timers && self.may_kill_agent(a) && self.cx.random.nodes.permille(KILL_PERMILLE) {
            self.cx.log(|| format!("agent {}: ends while it counts a toleration", self.agents[a].name));
            self.end_agent(a, true);
        }
    }
}

/// The shortest time in seconds for which all pods of a job tolerate the taint.
fn shortest_toleration(job: &SimulatedJob) -> Option<u64> {
    job.tolerates.iter().flatten().min().and_then(|seconds| u64::try_from(*seconds).ok())
}

/// Tainted nodes on which a gang has pods, one entry per pod.
fn tainted_nodes(machine: &Machine, key: AttemptKey) -> Vec<String> {
    let pods = machine.runner.living(key).map(|gang| gang.occupied()).unwrap_or_default();
    pods.iter().filter(|pod| machine.is_tainted(&pod.node)).map(|pod| pod.node.clone()).collect()
}

/// A gang with pods on tainted nodes.
struct TaintedGang {
    key: AttemptKey,
    /// Seconds for which its pods tolerate the taint.
    seconds: u64,
    /// The agent moves its pods away, or can't.
    leaves: bool,
    /// The agent is about to end or change the gang.
    settles: bool,
}

impl Observed {
    /// A pod is on a tainted node.
    fn add_toleration(&mut self, host: &AgentHost, gang: &TaintedGang, node: String, now: Mono) {
        let timer = (gang.key.0, gang.key.1, node);
        let (since, counted) = host.timers.tolerations.get(&timer).copied().unwrap_or((now, false));
        let over = now.since(since) >= Millis::secs(gang.seconds);
        let ended = over && gang.leaves;
        self.ended += u64::from(ended && !counted && !self.timers.tolerations.contains_key(&timer));
        if over && !gang.settles {
            let (uid, fence, node) = &timer;
            let stayed = now.since(since).0;
            self.late = Some(format!(
                "{uid} (fence {fence}) tolerates the taint of `{node}` for {} s, and stays for {stayed} ms",
                gang.seconds
            ));
        }
        self.timers.tolerations.insert(timer, (since, counted || ended));
    }

    /// A gang waits for a new node.
    fn add_wait(&mut self, host: &AgentHost, key: AttemptKey, now: Mono, most: Millis) {
        let since = host.timers.waits.get(&key).copied().unwrap_or(now);
        self.timers.waits.insert(key, since);
        if now.since(since) >= most {
            let waited = now.since(since).0;
            self.late = Some(format!("{} (fence {}) waits for a place for {waited} ms", key.0, key.1));
        }
    }
}
