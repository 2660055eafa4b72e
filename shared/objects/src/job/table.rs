//! All kinds of jobs.

use super::batch;
use super::kind::JobKind;
use super::{job_set, kubeflow, leader_worker_set, pod, pod_group, ray, train_job};
use crate::kind::Kind;
use serde_json::Value;

/// All rows. The first row reads manifests without a kind.
static KINDS: [&JobKind; 10] = [
    &batch::JOB,
    &job_set::JOB_SET,
    &kubeflow::PYTORCH_JOB,
    &kubeflow::MPI_JOB,
    &ray::RAY_JOB,
    &ray::RAY_CLUSTER,
    &leader_worker_set::LEADER_WORKER_SET,
    &train_job::TRAIN_JOB,
    &pod::POD,
    &pod_group::POD_GROUP,
];

/// A pattern with all kinds of jobs, for an exhaustive `match` over [`Kind`].
#[macro_export]
macro_rules! any_job {
    () => {
        $crate::Kind::Job
            | $crate::Kind::JobSet
            | $crate::Kind::PyTorchJob
            | $crate::Kind::MPIJob
            | $crate::Kind::RayJob
            | $crate::Kind::RayCluster
            | $crate::Kind::LeaderWorkerSet
            | $crate::Kind::TrainJob
            | $crate::Kind::Pod
            | $crate::Kind::PodGroup
    };
}

/// The kind of the jobs that `meridian submit` makes.
pub const SUBMITTED_KIND: Kind = Kind::Job;

impl Kind {
    /// The row of this kind, if it is a kind of job.
    pub fn job(self) -> Option<&'static JobKind> {
        JobKind::of(self)
    }

    /// Whether objects of this kind are jobs: each is run as one workload.
    pub fn is_job(self) -> bool {
        self.job().is_some()
    }
}

impl JobKind {
    /// The kind of a job if a request names only the job's name.
    pub fn usual() -> &'static Self {
        KINDS[0]
    }

    /// The kind of job whose objects come first in the order of [`Kind`].
    pub fn first() -> Kind {
        Self::all().map(Self::kind).min().unwrap_or(KINDS[0].kind)
    }

    pub fn all() -> impl Iterator<Item = &'static Self> {
        KINDS.into_iter()
    }

    /// The row of a kind; `None` for a kind that is no job.
    pub fn of(kind: Kind) -> Option<&'static Self> {
        Self::all().find(|job| job.kind == kind)
    }

    /// The row of the kind that a manifest names by `apiVersion` and `kind`.
    pub fn of_manifest(manifest: &Value) -> Option<&'static Self> {
        let text = |name: &str| manifest.get(name).and_then(Value::as_str);
        Self::of(Kind::from_gvk(text("apiVersion")?, text("kind")?)?.0)
    }

    /// The row by a kind's name, as in offers.
    pub fn by_name(name: &str) -> Option<&'static Self> {
        Self::all().find(|job| job.name() == name)
    }
}

/// The row of a job's kind. A manifest that names no known kind is read as a `batch/v1` Job.
pub fn of_object(job: &Value) -> &'static JobKind {
    JobKind::of_manifest(job).unwrap_or_else(JobKind::usual)
}

/// The state of a job in one word; see [`JobKind::state`].
pub fn state(job: &Value) -> &str {
    of_object(job).state(job)
}
