//! A model checker over the protocol's own code.
//!
//! The protocol isn't modelled again: the manager is [`meridian_manager_core::World`], the agents are
//! [`meridian_agent_core::Agent`], and their messages are those of the real link. Modelled is everything
//! around them: a network that delays, loses, repeats and reorders; journals and stores that are copied,
//! restored and deleted; clocks; processes that die; and the runners, which hold the truth about what runs.
//!
//! | module | owns |
//! |---|---|
//! | [`setup`] | the small world, its numbers and its clocks |
//! | [`host`], [`runner`] | one cluster: agent, store, and what really runs |
//! | [`state`], [`canonical_hash`] | one state of everything, and one hash for equivalent states |
//! | [`action`], [`model`] | what may happen next, and what must always hold |
//! | `transition` | what an action does |
//! | [`configs`] | which faults are searched together, to which bound |
//! | [`hunts`] | for each planted bug, the search that must find it |
//! | [`search`] | runs a search, and sums up its result |
//!
//! A lost message needs no action of the model: it never arrives. A search is exhaustive up to its
//! [`state::Budget`].

pub mod action;
pub mod canonical_hash;
pub mod configs;
pub mod host;
pub mod hunts;
pub mod model;
pub mod runner;
pub mod search;
pub mod setup;
pub mod state;
mod transition;
