use meridian_objects::Kind;
use meridian_objects::job::JobKind;
use meridian_shared::ids::RecordNumber;
use std::sync::Arc;

/// Longest name of a workload, in characters: it must fit a label, as in Kueue (WorkloadNameShorten).
const NAME_CHARS_MAX: usize = 63;
/// Characters of the hash.
const HASH_CHARS: usize = 5;

/// Kueue's name for the workload of a job: `KIND-NAME-` and five characters. These distinguish submissions of
/// the same name, and long job names that are shortened to the same text.
pub fn workload_name(kind: Kind, job: &str, submitted: RecordNumber) -> Arc<str> {
    let mixed = meridian_shared::backoff::splitmix(submitted.0);
    let (kind, job) = (kind.singular(), shortened(kind, job));
    Arc::from(format!("{kind}-{job}-{:0HASH_CHARS$x}", mixed & 0xf_ffff))
}

/// The kinds and names of jobs whose workload may have this name. The job's name may be shortened.
pub(crate) fn possible_jobs(workload: &str) -> impl Iterator<Item = (Kind, &str)> {
    JobKind::all().map(JobKind::kind).filter_map(move |kind| {
        let rest = workload.strip_prefix(kind.singular())?.strip_prefix('-')?;
        Some((kind, rest.rsplit_once('-')?.0))
    })
}

/// Whether the workload's name has only a part of the job's name.
pub(crate) fn is_shortened(kind: Kind, job: &str) -> bool {
    shortened(kind, job).len() < job.len()
}

/// A job's name, shortened to the length that fits.
fn shortened(kind: Kind, job: &str) -> &str {
    let most = NAME_CHARS_MAX - kind.singular().len() - HASH_CHARS - 2;
    match job.char_indices().nth(most) {
        // The shortened name must not end in `-` or `.`, because a separator follows it.
        Some((end, _)) => job[..end].trim_end_matches(['-', '.']),
        None => job,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_workloads_fit_labels() {
        let name = |job: &str, number: u64| workload_name(Kind::Job, job, RecordNumber(number));
        assert!(name("train", 7).starts_with("job-train-"));
        assert_eq!(possible_jobs(&name("train", 7)).collect::<Vec<_>>(), [(Kind::Job, "train")]);
        let long = "a".repeat(63);
        assert_eq!(name(&long, 7).len(), 63);
        assert_ne!(name(&long, 7), name(&format!("{}b", &long[..62]), 8));
        let dashed = format!("{}-{}", "a".repeat(52), "b".repeat(10));
        let shortened = name(&dashed, 7);
        assert_eq!(possible_jobs(&shortened).collect::<Vec<_>>(), [(Kind::Job, "a".repeat(52).as_str())]);
    }
}
