//! Suspensions of the job that the API server didn't carry out.

/// The failed suspensions of a run, and their replacement.
#[derive(Debug, Default)]
pub(super) struct Suspensions {
    /// The API server refused a suspension, for instance because the webhook of the job's kind doesn't
    /// answer.
    pub(super) failed: bool,
    /// Pods were ended without a suspension, so the job's controller may count them as failed.
    pub(super) ended_pods: bool,
}
