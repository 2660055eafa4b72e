//! Requests of a run to the API server, and their answers.

use crate::facts::{JobFacts, PodFacts};
use meridian_shared::indexes::Indexes;
use meridian_shared::protocol::{Reference, Size};
use serde_json::Value;
use std::sync::Arc;

/// One request. A run has at most one under way.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Request {
    /// Creates the suspended job.
    Create(Arc<Value>),
    /// Reads the job.
    Read,
    /// Writes which completion indexes succeeded in earlier attempts into the job's status, from which its
    /// controller continues.
    Seed { completed: Indexes },
    /// Copies the objects that the job's pods name and the cluster lacks. The job's object owns the copies.
    Copy { object_uid: String, references: Vec<Reference> },
    /// Reads the Lease, then resumes the job, if it still has this version, so that its controller makes the
    /// pods. The other pods of a group are created before, because no controller creates them.
    Start { resource_version: String, resume: Value, others: Arc<Vec<Value>> },
    /// Writes nodes into pods and lets them be scheduled.
    Place(Vec<Placing>),
    /// Writes a newer lease into pods that have guards.
    RenewLeases(Vec<Placing>),
    /// Writes the notes.
    Note { notes: String },
    /// Ends pods with their grace, by name and uid.
    EndPods(Vec<(String, String)>),
    /// Changes the number of pods, and writes the notes. `parallelism` is the object's new value.
    Resize { size: Size, parallelism: u32, notes: String },
    /// Suspends the job, which ends its pods, and notes why.
    Suspend { why: String },
    /// Ends all pods of the run with their grace, in place of the job controller.
    EndAllPods,
    /// Lists the pods of the run, completely and from the server's current state.
    ListPods,
    /// Gives up the copies that were made for the job.
    GiveCopiesBack { object_uid: String, references: Vec<Reference> },
    /// Deletes the job with this uid.
    Delete { uid: String },
}

impl Request {
    /// Changes the size of a job. The API accepts new completions only together with an equal parallelism, so
    /// both are set; indexes that completed in earlier attempts still get no pods.
    pub(super) fn resize(size: Size, job: &JobFacts, notes: String) -> Self {
        let completions = size.completions.filter(|completions| job.completions != Some(*completions));
        Self::Resize { size, parallelism: completions.unwrap_or(size.parallelism), notes }
    }
}

/// A pod and the patch that lets it go to its node.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Placing {
    pub(super) pod: String,
    pub(super) uid: String,
    /// The pod's number in the gang, which is also the number of its placeholder. `None` for a running pod.
    pub(super) number: Option<u32>,
    pub(super) patch: Value,
}

/// The answer to a request.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Answer {
    /// The job as it is now.
    Job(Box<JobFacts>),
    Absent,
    /// An object of that name exists.
    Exists,
    /// The job changed since it was read.
    Conflict,
    /// Another replica holds the Lease.
    NotLeading,
    /// The pods that were placed, by uid.
    Placed(Vec<String>),
    /// All pods of the run.
    Pods(Vec<PodFacts>),
    Done,
    /// The server refused, with its message.
    Refused(String),
    /// Whether the request was carried out is not known.
    Unknown(String),
}
