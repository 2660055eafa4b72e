//! The order in which a job's own controller makes its pods.

use super::kind::JobKind;
use crate::kind::Kind;
use serde_json::Value;
use std::collections::BTreeSet;

impl JobKind {
    /// The pod sets whose pods are created only after pods of other sets are ready or have ended, which may
    /// be late in the job. `manifest` is the job in the version that clusters store.
    pub fn late_pod_sets(&self, manifest: &Value) -> BTreeSet<String> {
        let says = |at: &str, what: &str| manifest.pointer(at).is_some_and(|written| written == what);
        let fixed = |name: &str| BTreeSet::from([name.to_owned()]);
        match self.kind {
            Kind::JobSet => late_jobs(manifest, says("/spec/startupPolicy/startupPolicyOrder", "InOrder")),
            Kind::LeaderWorkerSet if says("/spec/startupPolicy", "LeaderReady") => fixed("workers"),
            Kind::MPIJob if says("/spec/launcherCreationPolicy", "WaitForWorkersReady") => fixed("launcher"),
            Kind::RayJob => fixed("submitter"),
            _ => BTreeSet::new(),
        }
    }
}

/// The replicated jobs of a JobSet that depend on others. If the jobs start in order, all but the first.
fn late_jobs(manifest: &Value, is_in_order: bool) -> BTreeSet<String> {
    let jobs = manifest.pointer("/spec/replicatedJobs").and_then(Value::as_array).into_iter().flatten();
    let depends = |job: &Value| job["dependsOn"].as_array().is_some_and(|others| !others.is_empty());
    let late = jobs.enumerate().filter(|(index, job)| depends(job) || is_in_order && *index > 0);
    late.filter_map(|(_, job)| job["name"].as_str().map(str::to_owned)).collect()
}
