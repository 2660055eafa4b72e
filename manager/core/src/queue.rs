pub mod candidate_clusters;
pub mod classes;
pub mod counts;
pub mod mirror;
pub mod pending_reasons;
