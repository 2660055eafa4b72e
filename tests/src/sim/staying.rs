//! How long pods stay on nodes whose taint they tolerate for a while, and how long they wait for another place: judged by the
//! machine's own clock, whatever happens to the agent meanwhile.

use super::Sim;
use super::chance::Chance;
use super::oracle::broken;
use super::plan::Plan;
use meridian_agent_core::Input;
use meridian_shared::ids::{Fence, Uid};
use meridian_shared::time::{Millis, Mono};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The taint of a node that is about to be taken away.
pub(super) const TAINT: &str = "example.com/maintenance";

/// How often of 1000 turns an agent is killed that counts a stay or a wait: it must go on where it was.
const KILLED: u64 = 80;

/// What an agent was seen to have counted in its turns, since when.
#[derive(Clone, Debug, Default)]
pub(super) struct Watched {
    /// Pods on a tainted node, and whether they were seen to have had their time.
    stays: BTreeMap<(Uid, Fence, String), (Mono, bool)>,
    /// Gangs that wait for a place.
    waits: BTreeMap<(Uid, Fence), Mono>,
}

impl Watched {
    fn is_empty(&self) -> bool {
        self.stays.is_empty() && self.waits.is_empty()
    }
}

/// For how long pods of a job tolerate the taint, each time that it says so; drawn beside everything else.
pub(super) fn tolerates(plan: &Plan, name: &str) -> Vec<Option<i64>> {
    let mut chance = Chance::new(plan.seed, &format!("tolerates {name}"));
    if plan.node_losses.is_none() || !chance.of_1000(500) {
        return Vec::new();
    }
    chance
        .pick(&[
            vec![Some(1)],
            vec![Some(2)],
            vec![Some(4)],
            vec![None, Some(3)],
            vec![None],
            vec![Some(0), None],
        ])
        .cloned()
        .unwrap_or_default()
}

/// As the job says it.
pub(super) fn tolerations(of: &[Option<i64>]) -> Value {
    let toleration = |seconds: &Option<i64>| match seconds {
        None => json!({"key": TAINT, "operator": "Exists"}),
        Some(seconds) => {
            json!({"key": TAINT, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds})
        }
    };
    of.iter().map(toleration).collect()
}

impl Sim {
    /// A node is another one than it was, as far as anybody counts.
    pub(super) fn forget_stays(&mut self, machine: usize) {
        self.agents
            .iter_mut()
            .filter(|host| host.machine == machine)
            .for_each(|host| host.watched = Watched::default());
    }

    /// What an agent's store says of stays and waits when it starts.
    pub(super) fn count_restarted(&mut self, a: usize) {
        let with =
            |what: &str| self.agents[a].store.values().filter(|value| value.contains(what)).count() as u64;
        let (stays, waits) = (with("\"stays\":["), with("\"waits\":"));
        self.counters.add("stays over a restart", stays);
        self.counters.add("waits over a restart", waits);
    }

    /// After a turn of an agent nobody has stayed or waited for longer than he may.
    pub(super) fn judge_stays(&mut self, a: usize) {
        let host = &self.agents[a];
        let machine = &self.machines[host.machine];
        // A twin knows only what was counted when it was copied, and a blind successor nothing.
        let copied = host.copy_of.is_some() || self.forgetful.contains(&host.machine) || !machine.honest;
        let untold = host.inbox.iter().any(|input| matches!(input, Input::Nodes { .. }));
        let Some(agent) = host.agent.as_ref().filter(|_| !copied && !untold) else { return };
        let now = machine.clock.now(self.now).mono;
        let mut watched = Watched::default();
        let (mut over, mut late) = (0, None);
        for (uid, fence, _, stopping) in agent.runs() {
            let settles = stopping || agent.is_moving(uid) || agent.is_waiting(uid) || agent.is_growing(uid);
            if agent.is_waiting(uid) && !stopping {
                let since = host.watched.waits.get(&(uid, fence)).copied().unwrap_or(now);
                watched.waits.insert((uid, fence), since);
                if now.since(since) >= self.plan.replacement_wait {
                    late = Some(format!("{fence} of {uid} waits for a place since {} of {}", since.0, now.0));
                }
            }
            let seconds = self
                .oracle
                .jobs
                .get(&uid)
                .and_then(|job| job.tolerates.iter().flatten().min().copied())
                .and_then(|s| u64::try_from(s).ok());
            let pods = machine
                .runner
                .runs
                .get(&(uid, fence))
                .filter(|run| run.alive())
                .map(|run| run.there())
                .unwrap_or_default();
            for (pod, seconds) in pods
                .iter()
                .filter(|pod| machine.is_tainted(&pod.node))
                .filter_map(|pod| Some((pod, seconds?)))
            {
                let key = (uid, fence, pod.node.clone());
                let (since, counted) = host.watched.stays.get(&key).copied().unwrap_or((now, false));
                let ended = now.since(since) >= Millis::secs(seconds);
                let left = agent.is_moving(uid) || agent.is_waiting(uid) || agent.is_stranded(uid, fence);
                over += u64::from(ended && left && !counted && !watched.stays.contains_key(&key));
                watched.stays.insert(key, (since, counted || (ended && left)));
                if ended && !settles {
                    late = Some(format!(
                        "{fence} of {uid} stays on `{}` for {seconds} s and longer, since {} of {}",
                        pod.node, since.0, now.0
                    ));
                }
            }
        }
        self.agents[a].watched = watched;
        self.counters.add("stays that ended", over);
        let counts = !self.agents[a].watched.is_empty();
        if let Some(words) = late {
            self.judge(broken("stays", words));
        } else if counts && self.kills_agents(a) && self.chance.nodes.of_1000(KILLED) {
            self.trace.say(self.now, || format!("agent {a} ends while it counts"));
            self.end_agent(a, true);
        }
    }
}
