//! A model checker over the protocol's own code.
//!
//! Nothing of the protocol is modelled again: the manager is [`meridian_manager_core::World`], the agents are
//! [`meridian_agent_core::Agent`], and their messages are what the link carries. What is modelled is everything around them:
//! a network that delays, loses, repeats and reorders, journals and stores that are copied, restored and deleted, clocks,
//! processes that die, and the runners, which hold the truth about what runs.
//!
//! | room | owns |
//! |---|---|
//! | [`setup`] | the one small world, its numbers and its clocks |
//! | [`host`], [`runner`] | one cluster: agent, store, and what really runs |
//! | [`state`], [`canon`] | one moment of everything, and one hash for moments that differ in nothing that matters |
//! | [`model`] | what may happen next, and what must always hold |
//! | [`configs`] | which faults are searched together, to which bound |
//! | [`hunts`] | for each planted bug, the search that must find it |
//! | [`search`] | runs them |
//!
//! A lost message needs no action: it is one that never arrives. A search is exhaustive up to its [`state::Budget`].

pub mod canon;
pub mod configs;
pub mod host;
pub mod hunts;
pub mod model;
pub mod runner;
pub mod search;
pub mod setup;
pub mod state;
