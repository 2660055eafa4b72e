//! An agent's durable store, on a disk that fills up or fails, and the process that ends between any two of its steps.
//!
//! The real store commits a turn in one transaction that has reached the disk when it returns, so that neither a kill nor a
//! power loss takes anything of it. A commit that fails ends the process, and nothing that follows from it is done or said:
//! where the disk is full the agent tries again after a pause, and goes on from what is durable.

use super::Sim;
use meridian_agent_core::durable::StoreOp;

/// How long an agent rests that found its disk full, as the real one does.
const FULL_PAUSE_MS: u64 = 2_000;
/// Of so many commits one is the last thing that an agent does, and one comes too late.
const COMMITS: u64 = 900;
/// Between two effects of one turn an agent ends once in so many.
const EFFECTS: u64 = 60;

/// The disk under one agent's store.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct StoreDisk {
    full_until: u64,
    fails_next: bool,
}

impl Sim {
    /// The disk under an agent's store is full for a while.
    pub(super) fn fill_store(&mut self, a: usize) {
        self.agents[a].disk.full_until = self.now + self.chance.faults.between(500, 9_000);
    }

    /// The next commit of an agent fails.
    pub(super) fn spoil_store(&mut self, a: usize) {
        self.agents[a].disk.fails_next = true;
    }

    /// Makes a turn's writes durable, unless the process ends before, right after, or because it can't.
    pub(super) fn keep(&mut self, a: usize, ops: Vec<StoreOp>) -> bool {
        if ops.is_empty() {
            return true;
        }
        let fate = if self.kills_agents(a) { self.chance.faults.below(COMMITS) } else { u64::MAX };
        if fate == 0 {
            self.trace.say(self.now, || format!("agent {a} ends before its store is durable"));
            self.counters.one("agents ended before a commit");
            self.end_agent(a, true);
            return false;
        }
        if !self.commit(a, ops) {
            return false;
        }
        if fate == 1 {
            self.trace.say(self.now, || format!("agent {a} ends right after its store is durable"));
            self.counters.one("agents ended after a commit");
            self.end_agent(a, true);
            return false;
        }
        true
    }

    /// One transaction, all or nothing; false when it failed, and the process is over.
    pub(super) fn commit(&mut self, a: usize, ops: Vec<StoreOp>) -> bool {
        let host = &mut self.agents[a];
        if self.now < host.disk.full_until {
            self.trace.say(self.now, || format!("agent {a} ends: its disk is full"));
            self.counters.one("agents' disks found full");
            self.end_agent_for(a, Some(FULL_PAUSE_MS));
            return false;
        }
        let fails = std::mem::take(&mut host.disk.fails_next);
        let durable = !fails || self.chance.faults.of_1000(500);
        for op in ops.into_iter().filter(|_| durable) {
            if let Some(stored) = op.value.as_ref().filter(|_| op.key.starts_with("receipts/")) {
                self.oracle.remembers(&self.agents[a].cluster, stored);
            }
            match op.value {
                Some(value) => self.agents[a].store.insert(op.key, value),
                None => self.agents[a].store.remove(&op.key),
            };
        }
        if fails {
            self.trace.say(self.now, || {
                format!("agent {a} ends: a commit failed, and all of it is there: {durable}")
            });
            self.counters.one("agents' commits failed");
            self.end_agent(a, true);
        }
        !fails
    }

    /// Whether an agent's process ends between two effects of one turn: the others are never done.
    pub(super) fn ends_between(&mut self, a: usize) -> bool {
        let ends = self.kills_agents(a) && self.chance.faults.below(EFFECTS) == 0;
        if ends {
            self.trace.say(self.now, || format!("agent {a} ends between two effects"));
            self.counters.one("agents ended between effects");
            self.end_agent(a, true);
        }
        ends
    }
}
