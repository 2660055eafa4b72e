//! Decisions on queues: who is admitted with which flavors, who gives way, who waits and why.
//!
//! Kueue's semantics over one tree of cohorts and cluster queues. `meridian plan` and the engine call the same functions. It
//! must not know clusters, offers, records or time: what is pending and what holds quota come in, decisions go out.

#![warn(missing_docs)]
