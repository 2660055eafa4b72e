//! Caches over workloads that scheduling reads: candidate clusters, classes, counts, the queue mirror,
//! pending reasons.

pub mod candidate_clusters;
pub mod classes;
pub mod counts;
pub mod mirror;
pub mod pending_reasons;
