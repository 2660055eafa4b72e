//! Placing pod sets in a topology: tree, free room and request in, assignment out.
//!
//! The agent places by this function and `plan` foretells by it, so that both say the same. It must not know queues, quota
//! or what else runs where: only domains, what is free in them, and what is asked.

#![warn(missing_docs)]
