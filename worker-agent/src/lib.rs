//! The worker agent's shells: everything that touches the network, the disk or the clock around the pure core.

pub mod identity;
