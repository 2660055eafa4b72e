use meridian_shared::ids::RecordNumber;
use std::sync::Arc;

/// Kueue's name for the workload of a job: `job-NAME-` and five characters that distinguish submissions of
/// the same name.
pub fn workload_name(job: &str, submitted: RecordNumber) -> Arc<str> {
    let mixed = meridian_shared::backoff::splitmix(submitted.0);
    Arc::from(format!("job-{job}-{:05x}", mixed & 0xf_ffff))
}
