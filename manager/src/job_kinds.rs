//! Which kinds are jobs, that is, objects with a workload behind them. The only place to change for another
//! job kind, apart from the exhaustive tables of roles and columns.

use meridian_objects::Kind;

/// The kind that a name stands for if a request names no kind.
pub(crate) const DEFAULT: Kind = Kind::Job;

pub(crate) fn is_job(kind: Kind) -> bool {
    kind == Kind::Job
}

/// Whether `name` is the `kind` field of a job.
pub(crate) fn is_job_name(name: &str) -> bool {
    Kind::ALL.into_iter().any(|kind| is_job(kind) && kind.name() == name)
}
