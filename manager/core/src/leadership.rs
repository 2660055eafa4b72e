//! Leading: recovery after a start, foreign receipts, timers, and orphans.

pub mod orphans;
pub mod receipts;
pub mod recovery;
pub mod timers;
