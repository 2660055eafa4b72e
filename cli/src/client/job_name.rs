//! The name of a job as its user wrote it: `train`, or `jobset/train`.

use meridian_objects::Kind;
use reqwest::Url;

/// A job, or a job by its workload's name. Without a kind, the manager finds the only job of this name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct JobName {
    kind: Option<Kind>,
    name: String,
}

impl JobName {
    pub(crate) fn new(kind: Option<Kind>, name: &str) -> Self {
        Self { kind, name: name.to_owned() }
    }

    pub(crate) fn kind(&self) -> Option<Kind> {
        self.kind
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Adds the kind to a request about the job.
    pub(super) fn add_kind(&self, url: &mut Url) {
        if let Some(kind) = self.kind {
            url.query_pairs_mut().append_pair("kind", kind.singular());
        }
    }
}
