//! Bounds of the buckets of histograms.

/// Durations of requests and commits: 0.1 ms doubling to 13 s.
pub(super) fn request_buckets() -> Vec<f64> {
    prometheus::exponential_buckets(0.000_1, 2.0, 18).expect("valid bounds")
}

/// Durations of races: 10 ms doubling to 11 minutes, because clusters may wait for their providers.
pub(super) fn race_buckets() -> Vec<f64> {
    prometheus::exponential_buckets(0.01, 2.0, 17).expect("valid bounds")
}

/// Records in one commit: 1 doubling to 32768.
pub(super) fn batch_buckets() -> Vec<f64> {
    prometheus::exponential_buckets(1.0, 2.0, 16).expect("valid bounds")
}

/// The client library's default buckets, as in Kueue's metrics without explicit buckets: 5 ms to 10 s.
pub(super) fn default_buckets() -> Vec<f64> {
    prometheus::DEFAULT_BUCKETS.to_vec()
}

/// Kueue's buckets: 1 s, then 2.5 s doubling, `count` in all.
pub(super) fn kueue_buckets(count: usize) -> Vec<f64> {
    let doubling = prometheus::exponential_buckets(2.5, 2.0, count - 1).expect("valid bounds");
    [1.0].into_iter().chain(doubling).collect()
}
