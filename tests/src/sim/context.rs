//! What all parts of a simulation share: virtual time, the events to come, random numbers, counters and the
//! trace.
//!
//! Parts schedule events here and report violations here; the first violation ends the run.

pub(crate) mod counters;
pub(crate) mod event;
pub(crate) mod trace;

use crate::sim::invariants::violation::{Verdict, Violation};
use crate::sim::random::Random;
use crate::sim::scenario::Scenario;
use counters::Counters;
use event::SimEvent;
use std::collections::BTreeMap;
use std::fmt;
use trace::{Keep, Trace};

/// One stream of random numbers per purpose, so that a new draw for one purpose doesn't change the others.
#[derive(Debug)]
pub(crate) struct RandomStreams {
    pub(crate) net: Random,
    pub(crate) faults: Random,
    pub(crate) users: Random,
    pub(crate) disk: Random,
    pub(crate) runners: Random,
    pub(crate) agents: Random,
    pub(crate) manager: Random,
    pub(crate) hostile: Random,
    pub(crate) nodes: Random,
    pub(crate) restores: Random,
}

impl RandomStreams {
    /// The streams of a seed. Their names are part of the seed: another name changes every draw of the
    /// stream.
    fn new(seed: u64) -> Self {
        let stream = |purpose| Random::new(seed, purpose);
        Self {
            net: stream("net"),
            faults: stream("faults"),
            users: stream("people"),
            disk: stream("disk"),
            runners: stream("runners"),
            agents: stream("agents"),
            manager: stream("manager"),
            hostile: stream("liar"),
            nodes: stream("nodes"),
            restores: stream("restores"),
        }
    }
}

/// A broken promise, and when it was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Number of the event that was handled, from 1.
    pub step: u64,
    /// Virtual time in milliseconds.
    pub at_ms: u64,
    /// The broken promise.
    pub violation: Violation,
}

/// The result of one run.
#[derive(Debug)]
pub struct Report {
    /// The seed that was run.
    pub seed: u64,
    /// The first broken promise.
    pub failure: Option<Failure>,
    /// Counts of what the run exercised.
    pub counters: Counters,
    /// The part of the trace that was kept.
    pub trace: String,
    /// Virtual time that passed, in milliseconds.
    pub virtual_ms: u64,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.failure {
            None => write!(f, "seed {}: every promise holds", self.seed),
            Some(Failure { step, at_ms, violation }) => {
                let (seconds, ms) = (at_ms / 1_000, at_ms % 1_000);
                write!(f, "seed {}, step {step}, {seconds}.{ms:03} s: {violation}", self.seed)
            }
        }
    }
}

/// State that all parts of a simulation share.
#[derive(Debug)]
pub(crate) struct SimContext {
    /// What this seed does.
    pub(crate) scenario: Scenario,
    /// True time in milliseconds. No simulated clock is exact.
    pub(crate) now: u64,
    pub(crate) random: RandomStreams,
    pub(crate) counters: Counters,
    /// All faults are over; from now on every feasible workload must end.
    pub(crate) healed: bool,
    trace: Trace,
    events: BTreeMap<(u64, u64), SimEvent>,
    scheduled: u64,
    step: u64,
    failure: Option<Failure>,
}

impl SimContext {
    pub(crate) fn new(scenario: Scenario, keep: Keep) -> Self {
        let random = RandomStreams::new(scenario.seed);
        Self {
            scenario,
            now: 0,
            random,
            counters: Counters::default(),
            healed: false,
            trace: Trace::new(keep),
            events: BTreeMap::new(),
            scheduled: 0,
            step: 0,
            failure: None,
        }
    }

    /// Schedules an event, at once if its time is over. Events of one moment happen in the order of
    /// scheduling.
    pub(crate) fn schedule(&mut self, at: u64, event: SimEvent) {
        self.scheduled += 1;
        self.events.insert((at.max(self.now), self.scheduled), event);
    }

    /// Moves to the next event; `None` where nothing is left to happen or a promise is broken.
    pub(crate) fn next_event(&mut self) -> Option<SimEvent> {
        if self.failure.is_some() {
            return None;
        }
        let ((at, _), event) = self.events.pop_first()?;
        self.step += 1;
        self.now = at;
        Some(event)
    }

    /// Number of the event that is being handled, from 1.
    pub(crate) fn step(&self) -> u64 {
        self.step
    }

    /// Takes a verdict; the first violation ends the run.
    pub(crate) fn record_verdict(&mut self, verdict: Verdict) {
        if let Err(mut violation) = verdict
            && self.failure.is_none()
        {
            violation.details = self.trace.with_names(&violation.details);
            self.log(|| violation.to_string());
            self.failure = Some(Failure { step: self.step, at_ms: self.now, violation });
        }
    }

    /// Whether a promise is broken.
    pub(crate) fn has_failed(&self) -> bool {
        self.failure.is_some()
    }

    /// Adds a line to the trace, if lines are kept.
    pub(crate) fn log(&mut self, line: impl FnOnce() -> String) {
        self.trace.add(self.step, self.now, line);
    }

    /// Gives an id the name that traces and messages show instead: workloads are `namespace/name`,
    /// leaderships `L1` by their epoch (so that a fence is `L1-7`), sessions `cluster#1` by their counter.
    pub(crate) fn name(&mut self, id: impl ToString, name: String) {
        self.trace.name(id.to_string(), name);
    }

    pub(crate) fn into_report(mut self) -> Report {
        self.counters.add("steps", self.step);
        Report {
            seed: self.scenario.seed,
            failure: self.failure,
            counters: self.counters,
            trace: self.trace.text(),
            virtual_ms: self.now,
        }
    }
}
