//! From objects to decisions and back to words: what `meridian plan` prints, without any I/O.
//!
//! [`load`] turns objects into a [`meridian_queueing::Brain`]; a report turns what the brain decided into text or JSON. It must
//! not know files, the network, or a running manager.

#![warn(missing_docs)]

pub mod load;
