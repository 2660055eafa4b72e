//! Suspensions of the job that the API server didn't carry out.

/// What failed, and what was done instead.
#[derive(Debug, Default)]
pub(super) struct Suspensions {
    /// The API server refused one, as while the webhook of the job's kind is away.
    pub(super) failed: bool,
    /// Pods were ended without a suspension, so the job's controller may count them as failed.
    pub(super) ended_pods: bool,
}
