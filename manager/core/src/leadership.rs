pub mod orphans;
pub mod receipts;
pub mod recovery;
pub mod timers;
