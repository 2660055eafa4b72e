//! Jobs: the kinds of jobs, and the conversion of a manifest to a workload.
//!
//! [`JobKind`] is the table of kinds. Each kind reads its manifest into a [`JobWorkload`]: the gang, and
//! settings for runners. Labels and annotations have the same meaning for every kind.

mod batch;
mod job_set;
mod keys;
mod kind;
mod kubeflow;
mod leader_worker_set;
mod metadata;
mod mutable_fields;
mod pod;
mod pod_group;
mod pod_set_paths;
mod pod_set_reader;
mod pod_shapes;
mod ray;
mod references;
mod regular;
mod schema;
mod selector;
pub mod simulated;
mod start_order;
mod status;
mod table;
pub(crate) mod topology;
mod train_job;

pub(crate) use batch::SECURITY_CONTEXT;
pub use keys::*;
pub use kind::{JobKind, SizePaths, Switch};
pub use pod_set_paths::{FoundPodSet, PodSetName, PodSetPaths};
pub use pod_shapes::GroupPod;
pub use simulated::{
    SIMULATED_DURATION, SIMULATED_EXIT_CODE, SIMULATED_FAIL_FIRST, SIMULATED_STAGGER, Simulated,
};
pub use status::{JobFinish, PodProgress, StateRules, StateSign};
pub use table::{SUBMITTED_KIND, of_object, state};

use crate::pod::PodTemplate;
use meridian_shared::gang::Gang;
use meridian_shared::ids::Region;
use meridian_shared::time::Millis;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Name of a Job's pod set, as in Kueue.
pub const POD_SET: &str = "main";

/// Most pods of a gang: more than the largest cluster has nodes, and small enough that sums don't overflow.
pub const MAX_PODS: u32 = 100_000;

/// How a Job counts successful pods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum CompletionMode {
    /// The job needs any `completions` successes.
    #[default]
    NonIndexed,
    /// The job needs one success for every index.
    Indexed,
}

/// Facts about a job that Meridian uses.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobWorkload {
    /// The pods that must start together.
    pub gang: Gang,
    pub queue: String,
    pub priority_class: Option<String>,
    pub pod_priority_class: Option<String>,
    /// Pods that may fail before the job has failed.
    pub backoff_limit: u32,
    /// How long the finished job is kept; `None` leaves it to the manager.
    pub ttl_after_finished: Option<Millis>,
    /// Successes that end the job; `None` when any success does.
    pub completions: Option<u32>,
    /// Pods that run at the same time, as written.
    pub parallelism: u32,
    pub completion_mode: CompletionMode,
    /// Whether the job's manifest is suspended. As in Kueue, its queue starts the job nevertheless.
    pub suspend: bool,
    /// Time for a pod to stop, the longest of all pod sets; `None` leaves it to the cluster.
    pub grace_period: Option<Millis>,
    /// Containers of a pod, without init containers.
    pub containers: u32,
    /// Whether every container has a `command`, as the process runner requires.
    pub has_command: bool,
    /// Regions to which the job is limited. Empty means no limit.
    pub regions: BTreeSet<Region>,
    /// Whether pods restart in place (`restartPolicy: OnFailure`).
    pub restarts_in_place: bool,
    /// The pod templates without labels and annotations, in the order of the gang's pod sets. Empty if the
    /// manifest has errors.
    pub templates: Vec<PodTemplate>,
}

#[cfg(test)]
mod tests;
