//! Requests of a run to the API server, and their answers.

use crate::facts::{JobFacts, PodFacts};
use meridian_shared::indexes::Indexes;
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
    /// Reads the Lease, then lets the job's pods be made by the patch that resumes it, if the job still has
    /// this version.
    Start { resource_version: String, resume: Value },
    /// Writes nodes into pods and lets them be scheduled.
    Place(Vec<Placing>),
    /// Writes a newer lease into pods that have guards.
    RenewLeases(Vec<Placing>),
    /// Writes the notes.
    Note { notes: String },
    /// Ends pods with their grace, by name and uid.
    EndPods(Vec<(String, String)>),
    /// Changes the number of pods, and writes the notes.
    Resize { parallelism: u32, completions: Option<u32>, notes: String },
    /// Suspends the job, which ends its pods, and notes why.
    Suspend { why: String },
    /// Ends all pods of the run with their grace, in place of the job controller.
    EndAllPods,
    /// Lists the pods of the run, completely and from the server's current state.
    ListPods,
    /// Deletes the job with this uid.
    Delete { uid: String },
}

/// A pod and the patch that lets it go to its node.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Placing {
    pub(super) pod: String,
    pub(super) uid: String,
    /// Its place among all pods of the gang, which its placeholder has too. `None` for a pod that runs.
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
