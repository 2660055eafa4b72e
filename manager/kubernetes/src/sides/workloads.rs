//! Workloads of the cluster: which jobs they stop, and whether their jobs have yet to be submitted.

use super::{ObjectKey, Side, Sides, uid};
use crate::manifest;
use meridian_objects::Kind;
use meridian_objects::spec::workload::JOB_UID_LABEL;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Workloads of the cluster with `spec.active: false`.
#[derive(Debug, Default)]
pub(super) struct Stopped {
    /// Uid of each Workload's job.
    jobs: BTreeMap<ObjectKey, String>,
    /// The same pairs, by job.
    workloads: BTreeSet<(String, ObjectKey)>,
}

impl Stopped {
    /// Takes the new state of a Workload of the cluster; `None` once it is gone.
    pub(super) fn take(&mut self, key: &ObjectKey, workload: Option<&Value>) {
        if let Some(job) = self.jobs.remove(key) {
            self.workloads.remove(&(job, key.clone()));
        }
        let stopped = workload.filter(|workload| workload["spec"]["active"] == false);
        if let Some(job) = stopped.and_then(job_uid) {
            self.jobs.insert(key.clone(), job.to_owned());
            self.workloads.insert((job.to_owned(), key.clone()));
        }
    }

    /// Whether a Workload in the job's namespace stops the job with this uid.
    fn has(&self, namespace: &str, job: &str) -> bool {
        let first = ObjectKey { kind: Kind::Workload, namespace: namespace.to_owned(), name: String::new() };
        let next = self.workloads.range((job.to_owned(), first)..).next();
        next.is_some_and(|(of, workload)| of == job && workload.namespace == namespace)
    }
}

/// The uid of the job that a Workload belongs to.
fn job_uid(workload: &Value) -> Option<&str> {
    workload["metadata"]["labels"][JOB_UID_LABEL].as_str()
}

impl Sides {
    /// Whether the job of a Workload exists in the cluster but not yet at the manager, as after the loss of a
    /// journal. If that isn't known, the job counts as existing.
    pub(super) fn awaits_job(&self, workload: &Value) -> bool {
        let Some(owner) = workload["metadata"]["ownerReferences"].as_array().and_then(|all| all.first())
        else {
            return false;
        };
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let known = Kind::from_gvk(&text(&owner["apiVersion"]), &text(&owner["kind"]));
        let Some((kind, _)) = known else { return false };
        if !kind.is_job() {
            return false;
        }
        let namespace = text(&workload["metadata"]["namespace"]);
        let key = ObjectKey { kind, namespace, name: text(&owner["name"]) };
        if !self.is_complete(kind) {
            return true;
        }
        let job =
            self.get(Side::Cluster, &key).filter(|job| uid(job) == owner["uid"].as_str().map(str::to_owned));
        let is_taken = |job: &Value| match kind {
            Kind::Pod => crate::pods::is_taken(job),
            _ => manifest::is_taken(kind, job),
        };
        let has_ended = |job: &Value| kind.job().is_some_and(|kind| kind.has_ended(job));
        let Some(job) = job.filter(|job| is_taken(job) && !has_ended(job)) else { return false };
        let held = super::groups::key(&job).filter(|_| kind == Kind::Pod).unwrap_or(key);
        let held = self.get(Side::Manager, &held);
        held.and_then(|held| uid(&held)).as_deref() != job_uid(workload)
    }

    /// Whether somebody stopped the job with this uid by `spec.active: false` of its Workload.
    pub(super) fn is_stopped(&self, namespace: &str, job: &str) -> bool {
        self.stopped.has(namespace, job)
    }

    /// Whether the Workloads of the cluster were listed, so that it is known which jobs have none.
    pub(crate) fn knows_stopped(&self) -> bool {
        self.objects.get(&(Side::Cluster, Kind::Workload)).is_some_and(|workloads| workloads.is_complete)
    }
}

#[cfg(test)]
mod tests {
    use super::super::News;
    use super::*;
    use meridian_objects::job::{QUEUE_LABEL, SUBMITTED_KIND};
    use serde_json::json;

    fn job() -> Value {
        json!({
            "apiVersion": "batch/v1", "kind": "Job",
            "metadata": {"namespace": "team", "name": "a", "uid": "u1", "labels": {QUEUE_LABEL: "main"}},
            "spec": {"suspend": true},
        })
    }

    fn workload(active: bool) -> Value {
        json!({
            "metadata": {"namespace": "team", "name": "w", "uid": "uw", "labels": {JOB_UID_LABEL: "u1"},
                "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": "a", "uid": "u1"}]},
            "spec": {"active": active},
        })
    }

    fn list(sides: &mut Sides, side: Side, kind: Kind, objects: &[Value]) {
        sides.take(side, kind, News::ListBegins);
        for object in objects {
            sides.take(side, kind, News::Listed(object.clone()));
        }
        sides.take(side, kind, News::ListEnds);
    }

    #[test]
    fn a_job_is_stopped_while_its_workload_says_so() {
        let mut sides = Sides::default();
        list(&mut sides, Side::Cluster, SUBMITTED_KIND, &[job()]);
        list(&mut sides, Side::Manager, SUBMITTED_KIND, &[]);
        assert!(!sides.knows_stopped());
        list(&mut sides, Side::Cluster, Kind::Workload, &[workload(false)]);
        let is_stopped =
            |sides: &Sides| sides.view(&ObjectKey::of(SUBMITTED_KIND, &job())).unwrap().is_stopped;
        assert!(sides.knows_stopped() && is_stopped(&sides));
        sides.take(Side::Cluster, Kind::Workload, News::Applied(workload(true)));
        assert!(!is_stopped(&sides));
        sides.take(Side::Cluster, Kind::Workload, News::Applied(workload(false)));
        assert!(is_stopped(&sides));
        sides.take(Side::Cluster, Kind::Workload, News::Deleted(workload(false)));
        assert!(!is_stopped(&sides));
        let mut of_others = workload(false);
        of_others["metadata"]["namespace"] = json!("another");
        list(&mut sides, Side::Cluster, Kind::Workload, &[of_others]);
        assert!(!is_stopped(&sides), "a Workload of another namespace decides nothing here");
        list(&mut sides, Side::Cluster, Kind::Workload, &[workload(false)]);
        list(&mut sides, Side::Cluster, Kind::Workload, &[]);
        assert!(!is_stopped(&sides), "a new list says what is left");
    }

    #[test]
    fn a_workload_waits_for_a_job_that_the_manager_is_about_to_get() {
        let mut sides = Sides::default();
        let awaits = |sides: &Sides| sides.awaits_job(&workload(false));
        assert!(awaits(&sides), "the jobs aren't known yet");
        list(&mut sides, Side::Cluster, SUBMITTED_KIND, &[job()]);
        list(&mut sides, Side::Manager, SUBMITTED_KIND, &[]);
        assert!(awaits(&sides));
        list(&mut sides, Side::Manager, SUBMITTED_KIND, &[job()]);
        assert!(!awaits(&sides), "the manager has it, and makes its Workload");
        list(&mut sides, Side::Manager, SUBMITTED_KIND, &[]);
        let mut other = job();
        other["metadata"]["uid"] = json!("u2");
        let mut over = job();
        over["status"] = json!({"conditions": [{"type": "Complete", "status": "True"}]});
        let mut unqueued = job();
        unqueued["metadata"]["labels"] = json!({});
        for gone in [other, over, unqueued] {
            list(&mut sides, Side::Cluster, SUBMITTED_KIND, &[gone]);
            assert!(!awaits(&sides));
        }
    }
}
