//! The seeded simulator: one or two managers, worker machines, agents, users and a network, in one thread,
//! under one seed.
//!
//! The cores, the lease arithmetic, the guard's deadline and the journal are the real ones. Hosts, network,
//! disks, clocks and users are models. Every step is checked by [`invariants`], which keep records of their
//! own and compare with a [`reference_model`] written from the specification. The same seed gives the same
//! trace, byte for byte.
//!
//! ```text
//!  users ───┐                    ┌── agents ── machines (the truth)
//!           ├─ network ─ managers┤
//!  faults ──┘     journal on a faulty disk      invariants check every step
//! ```
//!
//! | module | owns |
//! |---|---|
//! | [`scenario`] | what a seed does: faults, sizes, delays |
//! | [`context`] | time, events to come, random numbers, counters, trace |
//! | `clusters` | names and places of the clusters |
//! | [`fleet`] | queues and jobs as users declare them |
//! | [`network`] | messages between agents and managers: lost, late, twice |
//! | [`hosts`] | machines with their gangs, processes of agents and managers: their state |
//! | [`requests`] | requests of users and operators, and what was acknowledged |
//! | [`world`] | all of these together, and the one function that handles an event |
//! | [`managers`] | the steps of a manager: the real core and journal, in the order of the real engine |
//! | [`agents`] | the steps of an agent: the real core over a store that may fail; a hostile agent |
//! | [`machines`] | the steps of a machine: its events, nodes and guards |
//! | [`users`] | what users and operators request, and when |
//! | [`faults`] | what goes wrong, and how it heals |
//!
//! Dependencies go one way. Data types know nothing of [`world`]; steps that concern several hosts are
//! methods of `Simulation`, in a module of their own. Invariant: nothing here reads a clock, a file, a thread
//! or a hash map.

mod agents;
mod clock;
mod clusters;
pub mod context;
mod faults;
mod fleet;
mod hosts;
mod invariants;
mod machines;
mod managers;
mod network;
pub mod planted;
mod random;
mod reference_model;
mod requests;
pub mod scenario;
mod users;
mod world;

pub use context::counters::Counters;
pub use context::trace::Keep;
pub use context::{Failure, Report};
pub use invariants::violation::Violation;

use invariants::violation::violation;
use scenario::Scenario;
use std::panic::{AssertUnwindSafe, catch_unwind};
use world::Simulation;

/// Most events of one run, many times what a long run takes.
const STEPS_MAX: u64 = 2_000_000;

/// Runs one scenario to its end, or to the first broken promise.
pub fn run(scenario: Scenario, keep: Keep) -> Report {
    let mut simulation = Simulation::new(scenario, keep);
    while let Some(event) = simulation.next_event() {
        if simulation.cx.step() > STEPS_MAX {
            let details = format!("{STEPS_MAX} steps, and the next is {event:?}");
            simulation.cx.record_verdict(violation("livelock", details));
        }
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| simulation.handle(event))) {
            let message = panic
                .downcast_ref::<String>()
                .cloned()
                .or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).to_owned()));
            simulation.cx.record_verdict(violation("panic", message.unwrap_or_default()));
        }
    }
    simulation.cx.into_report()
}
