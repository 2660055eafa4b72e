use meridian_shared::ids::RecordNumber;
use std::sync::Arc;

/// Longest name of a workload, in characters: it must fit a label, as in Kueue (WorkloadNameShorten).
const NAME_CHARS_MAX: usize = 63;
const PREFIX: &str = "job-";
/// Characters of the hash.
const HASH_CHARS: usize = 5;

/// Kueue's name for the workload of a job: `job-NAME-` and five characters that distinguish submissions of
/// the same name, and jobs whose names are too long and begin alike.
pub fn workload_name(job: &str, submitted: RecordNumber) -> Arc<str> {
    let mixed = meridian_shared::backoff::splitmix(submitted.0);
    Arc::from(format!("{PREFIX}{}-{:0HASH_CHARS$x}", shortened(job), mixed & 0xf_ffff))
}

/// What the name of a workload has of the name of its job.
pub(crate) fn job_part(workload: &str) -> Option<&str> {
    Some(workload.strip_prefix(PREFIX)?.rsplit_once('-')?.0)
}

/// Whether the workload's name has only a part of the job's name.
pub(crate) fn is_shortened(job: &str) -> bool {
    shortened(job).len() < job.len()
}

/// As much of a job's name as fits.
fn shortened(job: &str) -> &str {
    let most = NAME_CHARS_MAX - PREFIX.len() - HASH_CHARS - 1;
    match job.char_indices().nth(most) {
        // What is left must not end in `-` or `.`, or the name would have them side by side.
        Some((end, _)) => job[..end].trim_end_matches(['-', '.']),
        None => job,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_workloads_fit_labels() {
        let name = |job: &str, number: u64| workload_name(job, RecordNumber(number));
        assert!(name("train", 7).starts_with("job-train-"));
        assert_eq!(job_part(&name("train", 7)), Some("train"));
        let long = "a".repeat(63);
        assert_eq!(name(&long, 7).len(), 63);
        assert_ne!(name(&long, 7), name(&format!("{}b", &long[..62]), 8));
        let dashed = format!("{}-{}", "a".repeat(52), "b".repeat(10));
        assert_eq!(job_part(&name(&dashed, 7)), Some("a".repeat(52).as_str()));
    }
}
