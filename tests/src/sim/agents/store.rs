//! An agent's durable store, on a disk that fills up or fails.
//!
//! The real store commits a turn in one transaction that is on the disk when it returns, so neither a kill
//! nor a power loss takes any of it. A commit that fails ends the process, and nothing that follows from it
//! is done or sent. An agent that finds its disk full tries again after a pause, from what is durable.

use crate::sim::world::Simulation;
use meridian_agent_core::durable::StoreOp;

/// Pause of an agent that found its disk full, as in the real one.
const FULL_PAUSE_MS: u64 = 2_000;
/// The process ends after one of this number of commits, and before another one.
const COMMITS_PER_END: u64 = 900;
/// One effect in this number is followed by the end of the process.
const EFFECTS_PER_END: u64 = 60;

impl Simulation {
    /// Fills the disk under an agent's store for a while.
    pub(crate) fn fill_store(&mut self, a: usize) {
        self.agents[a].disk.full_until = self.cx.now + self.cx.random.faults.between(500, 9_000);
    }

    /// Makes the next commit of an agent fail.
    pub(crate) fn spoil_store(&mut self, a: usize) {
        self.agents[a].disk.fails_next = true;
    }

    /// Makes a turn's writes durable. False if the process ended before or after the commit, or because the
    /// commit failed.
    pub(crate) fn persist(&mut self, a: usize, ops: Vec<StoreOp>) -> bool {
        if ops.is_empty() {
            return true;
        }
        let fate =
            if self.may_kill_agent(a) { self.cx.random.faults.below(COMMITS_PER_END) } else { u64::MAX };
        if fate == 0 {
            self.cx.log(|| format!("agent {}: ends before its store is durable", self.agents[a].name));
            self.cx.counters.one("agents ended before a commit");
            self.end_agent(a, true);
            return false;
        }
        if !self.commit_store(a, ops) {
            return false;
        }
        if fate == 1 {
            self.cx.log(|| format!("agent {}: ends right after its store is durable", self.agents[a].name));
            self.cx.counters.one("agents ended after a commit");
            self.end_agent(a, true);
            return false;
        }
        true
    }

    /// Commits one transaction, all or nothing. False if that failed, which ends the process.
    pub(crate) fn commit_store(&mut self, a: usize, ops: Vec<StoreOp>) -> bool {
        let host = &mut self.agents[a];
        if self.cx.now < host.disk.full_until {
            self.cx.log(|| format!("agent {}: ends, its disk is full", host.name));
            self.cx.counters.one("agents' disks found full");
            self.end_agent_for(a, Some(FULL_PAUSE_MS));
            return false;
        }
        let fails = std::mem::take(&mut host.disk.fails_next);
        let durable = !fails || self.cx.random.faults.permille(500);
        for op in ops.into_iter().filter(|_| durable) {
            if let Some(stored) = op.value.as_ref().filter(|_| op.key.starts_with("receipts/")) {
                self.invariants.members.remembered(&host.cluster, stored);
            }
            match op.value {
                Some(value) => host.store.insert(op.key, value),
                None => host.store.remove(&op.key),
            };
        }
        if fails {
            let outcome = if durable { "is durable" } else { "is lost" };
            self.cx.log(|| format!("agent {}: ends, a commit failed and {outcome}", host.name));
            self.cx.counters.one("agents' commits failed");
            self.end_agent(a, true);
        }
        !fails
    }

    /// Whether an agent's process ends between two effects of one turn; the remaining effects are never done.
    pub(crate) fn ends_between_effects(&mut self, a: usize) -> bool {
        let ends = self.may_kill_agent(a) && self.cx.random.faults.below(EFFECTS_PER_END) == 0;
        if ends {
            self.cx.log(|| format!("agent {}: ends between two effects", self.agents[a].name));
            self.cx.counters.one("agents ended between effects");
            self.end_agent(a, true);
        }
        ends
    }
}
