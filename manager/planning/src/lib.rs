//! From objects to decisions and back to words: what `meridian plan` prints, without any I/O.
//!
//! [`load`] turns objects into a [`meridian_queueing::Brain`]; [`decide`] lets it decide, cycle by cycle; a [`Report`] turns
//! what came of it into text or JSON, and a [`WhatIf`] says what a change of the objects would change. It must not know
//! files, the network, or a running manager.

#![warn(missing_docs)]

pub mod decide;
mod in_turn;
pub mod load;
pub mod report;
pub mod what_if;

pub use decide::{Limits, Outcome, decide};
pub use report::Report;
pub use what_if::WhatIf;
