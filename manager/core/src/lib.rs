//! The manager's decisions on queueing, quota, residency, placement, dispatch, leases and recovery.
//!
//! Pure and deterministic: no clock, file, thread or hash order. [`World::apply`] is the only entry point. It
//! turns an input into *records* (facts that the world absorbs at once and the caller commits), a reply, and
//! the names of agents to wake; the caller sends both after the commit. [`World::absorb`] is the only writer
//! of durable state. It decides nothing, so replaying the records of an older version gives the same world,
//! even if today's algorithms would decide otherwise.
//!
//! Folders don't use each other in a circle (`tests/tidy` checks this). A folder uses the folders above it in
//! this table.
//!
//! | folder | owns |
//! |---|---|
//! | [`facts`] | inputs and outputs: inputs, records, reasons, audit lines |
//! | [`config`] | settings that a manager is started with |
//! | [`state`] | durable state: objects, workloads and their legs, members, histories |
//! | [`queue`] | caches over workloads: classes, counts, the queue state that scheduling needs |
//! | [`sessions`] | volatile state of each connected agent: outbox, budget, capacity |
//! | [`live`] | all volatile state of one leadership: sessions, leases, backoffs, what recovery waits for |
//! | [`world`] | all of the above as one value; absorbing records; the turn of one input |
//! | [`capacity`] | whether a gang fits in a cluster, now or after simulated evictions |
//! | [`dispatch`] | the scheduling pass: candidates, offers, grants, stops, preemption, starvation guard |
//! | [`leadership`] | recovery, lease deadlines and other timers, orphans |
//! | [`link`] | the manager's half of the protocol with one agent |
//! | [`requests`] | changes by users and operators |
//! | [`apply`] | `World::apply`, which calls the folders above |
//! | [`check`] | recount of every cache |

pub mod apply;
pub mod capacity;
pub mod check;
pub mod config;
pub mod dispatch;
pub mod facts;
mod fingerprint;
pub mod leadership;
pub mod link;
pub mod live;
pub mod queue;
pub mod requests;
pub mod sessions;
pub mod state;
pub mod world;

pub use config::{Config, Start};
pub use world::World;
