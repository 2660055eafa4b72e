//! One cluster: its agent, the agent's store, and its runner, in the order that the real agent's shell has.

use crate::canonical_hash::{CanonicalHasher, transmission};
use crate::runner::{Runner, RunnerOutcome};
use crate::setup;
use meridian_agent_core::durable::{Durable, StoreOp};
use meridian_agent_core::{Agent, Input, Outcome, RunnerEvent};
use meridian_shared::ids::{Fence, LedgerId, Uid};
use meridian_shared::planted::Planted;
use meridian_shared::protocol::{EndResult, Lane, SyncAnswer, SyncRequest};
use meridian_shared::time::{Millis, Now};
use std::collections::{BTreeMap, BTreeSet};
use std::hash::Hash;
use std::sync::Arc;

/// How far an agent gets with an outcome before it is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reach {
    /// The agent does everything.
    All,
    /// The agent is killed between the store's commit and the effects.
    Stored,
    /// The agent is killed before the store's commit.
    Nothing,
}

/// One cluster with its agent.
#[derive(Clone, Debug)]
pub struct Host {
    index: usize,
    planted: Planted,
    agent: Arc<Agent>,
    store: Arc<BTreeMap<String, String>>,
    durable: Arc<Durable>,
    /// The gangs that really run on the cluster.
    pub runner: Runner,
    lives: u64,
    ledgers: u128,
    /// Attempts that were started since this was last emptied.
    pub started: Vec<(Uid, Fence)>,
}

impl Host {
    /// A cluster that has just joined.
    pub fn new(index: usize, planted: Planted, now: Now) -> Self {
        let durable = Durable::new(LedgerId(0));
        let (agent, _) =
            Agent::start(setup::agent_config(index, planted), durable.clone(), Vec::new(), 0, now);
        let mut host = Self {
            index,
            planted,
            agent: Arc::new(agent),
            store: Arc::default(),
            durable: Arc::new(durable),
            runner: Runner::default(),
            lives: 0,
            ledgers: 0,
            started: Vec::new(),
        };
        host.lose_ledger(now);
        host
    }

    pub fn agent(&self) -> &Agent {
        &self.agent
    }

    /// What a restart would read from the store.
    pub fn durable(&self) -> &Durable {
        &self.durable
    }

    /// Composes a transmission for the manager.
    pub fn send(&mut self, now: Now) -> SyncRequest {
        Arc::make_mut(&mut self.agent).compose(now, Lane::News)
    }

    /// Takes an answer of the manager.
    pub fn take(&mut self, now: Now, answer: &SyncAnswer, reach: Reach) {
        self.apply(now, Input::Answer(Box::new(answer.clone())), reach);
    }

    /// The guards' and the agent's clocks reached `now`.
    pub fn tick(&mut self, now: Now) {
        for (uid, fence) in self.runner.guard(now.mono) {
            self.report_end(now, uid, fence, EndResult::Stopped);
        }
        self.apply(now, Input::Tick, Reach::All);
    }

    /// All pods of an attempt have started.
    pub fn runs(&mut self, now: Now, uid: Uid, fence: Fence) {
        self.runner.runs(uid, fence);
        self.apply(now, Input::Runner(RunnerEvent::Running { uid, fence }), Reach::All);
    }

    /// An attempt ends.
    pub fn ends(&mut self, now: Now, uid: Uid, fence: Fence, how: EndResult) {
        self.runner.end(uid, fence, how.clone());
        self.report_end(now, uid, fence, how);
    }

    /// The agent is killed and started again.
    pub fn restart(&mut self, now: Now) {
        self.lives += 1;
        let config = setup::agent_config(self.index, self.planted);
        let durable = (*self.durable).clone();
        let random = 10 * self.lives + self.index as u64;
        let (agent, out) = Agent::start(config, durable, self.runner.found(), random, now);
        self.agent = Arc::new(agent);
        self.conclude(now, out, Reach::All);
        self.apply(now, Input::Nodes { nodes: setup::nodes(), pools: Vec::new() }, Reach::All);
    }

    /// The agent is killed and its store is deleted; the runner continues.
    pub fn lose_ledger(&mut self, now: Now) {
        self.ledgers += 1;
        let durable = Durable::new(LedgerId(100 * (self.index as u128 + 1) + self.ledgers));
        self.store = Arc::default();
        self.keep(&[durable.birth()]);
        self.restart(now);
    }

    /// Whether its store was ever deleted.
    pub fn lost_its_store(&self) -> bool {
        self.ledgers > 1
    }

    /// Feeds what matters to a hash. `flying` are the transmissions with an answer that may still arrive.
    pub fn hash(&self, now: Now, flying: &BTreeSet<u64>, into: &mut CanonicalHasher) {
        self.agent.hash_fingerprint(now.mono, flying, &|n| transmission(self.index, n), into);
        let same = *self.durable == *self.agent.durable();
        same.hash(into);
        if !same {
            self.durable.hash_fingerprint(into);
        }
        self.runner.hash(into);
        (self.lives, self.ledgers).hash(into);
    }

    fn report_end(&mut self, now: Now, uid: Uid, fence: Fence, result: EndResult) {
        self.apply(
            now,
            Input::Runner(RunnerEvent::Ended { uid, fence, result, pod_failures: 0, ran: Millis(0) }),
            Reach::All,
        );
    }

    fn apply(&mut self, now: Now, input: Input, reach: Reach) {
        let out = Arc::make_mut(&mut self.agent).apply(now, input);
        self.conclude(now, out, reach);
    }

    /// Store first, then effects; a kill in between starts the agent anew.
    fn conclude(&mut self, now: Now, out: Outcome, reach: Reach) {
        if reach == Reach::Nothing {
            return self.restart(now);
        }
        self.keep(out.store());
        if reach == Reach::Stored {
            return self.restart(now);
        }
        for effect in out.effects() {
            match self.runner.perform(now.mono, effect) {
                Some(RunnerOutcome::Started(uid, fence)) => self.started.push((uid, fence)),
                Some(RunnerOutcome::NothingToStop(uid, fence)) => {
                    self.report_end(now, uid, fence, EndResult::Stopped)
                }
                None => {}
            }
        }
    }

    fn keep(&mut self, ops: &[StoreOp]) {
        if ops.is_empty() {
            return;
        }
        let store = Arc::make_mut(&mut self.store);
        for StoreOp { key, value } in ops {
            match value {
                Some(value) => store.insert(key.clone(), value.clone()),
                None => store.remove(key),
            };
        }
        let read = Durable::load(store.iter().map(|(k, v)| (k.as_str(), v.as_str())));
        self.durable =
            Arc::new(read.expect("the core reads what it stores").expect("a store begins with its birth"));
    }
}
