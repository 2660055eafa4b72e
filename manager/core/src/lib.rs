//! The manager's decisions: one queue, quota, residency, placement, dispatch, leases and recovery, with a reason for each.
//!
//! Pure and deterministic: no clock, file, thread or hash order. [`World::apply`] is the one door. It turns an input into
//! *records* (facts, absorbed at once and committed by the shell), a reply (sent after the commit) and wake-ups (also after
//! the commit). [`World::absorb`] is the only writer of durable state, so a replay of records gives the same world
//! whatever today's algorithms would decide.
//!
//! Folders depend on those above them in this table and on nothing below (`tests/tidy` checks it):
//!
//! | folder | owns |
//! |---|---|
//! | [`config`] | settings a manager is started with |
//! | [`facts`] | what goes in and out: inputs, records, reasons, audit lines |
//! | [`state`] | durable state: objects, workloads and their legs, members, histories |
//! | [`queue`] | caches over workloads: classes, counts, the queue state in the form decisions need |
//! | [`placement`] | capacity of one cluster, and capacity reserved for preemptors |
//! | [`sessions`] | what is known of a connected agent: its outbox, budget and capacity |
//! | [`world`] | all of the above as one value; absorbing records; the turn of one input |
//! | [`capacity`] | whether a cluster can take a gang, now or after simulated evictions |
//! | [`dispatch`] | the scheduling pass: candidates, offers, grants, stops, preemption, the starvation guard |
//! | [`leadership`] | recovery, lease deadlines and other timers, orphans |
//! | [`link`] | the manager's half of the protocol with one agent |
//! | [`requests`] | changes by users and operators |
//! | [`door`] | `World::apply`, which calls the folders above |
//! | [`views`] | objects, statuses, explanations and metrics as readers see them |
//! | [`check`], [`fingerprint`] | recount of every cache; what a model checker compares |

pub mod capacity;
pub mod check;
pub mod config;
pub mod dispatch;
pub mod door;
pub mod facts;
pub mod fingerprint;
pub mod leadership;
pub mod link;
pub mod placement;
pub mod queue;
pub mod requests;
pub mod sessions;
pub mod state;
pub mod views;
pub mod world;

pub use config::{Config, Start};
pub use world::World;
