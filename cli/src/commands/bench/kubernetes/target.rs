//! The manager or management cluster where jobs are created, and the checks before the first one.

use super::progress::JobState;
use crate::commands::api_servers::refused;
use crate::error::Error;
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, ListParams, PostParams};
use meridian_kubernetes::connection::within;
use meridian_kubernetes::error::{Failure, classify};
use meridian_kubernetes::{Client, Connection};
use serde_json::Value;

const KUEUE: &str = "kueue.x-k8s.io";
/// Versions of Kueue's API, the preferred one first.
const KUEUE_VERSIONS: [&str; 2] = ["v1beta2", "v1beta1"];
/// Part of the version that a manager reports of itself.
const MANAGER_MARK: &str = "+meridian.";

/// The kind of server that users submit to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TargetKind {
    /// The manager's own API.
    Manager,
    /// A Kubernetes cluster whose jobs a manager takes.
    ManagementCluster,
}

impl TargetKind {
    /// Tells them apart by the version that the server reports.
    pub(super) fn of_version(version: &str) -> Self {
        if version.contains(MANAGER_MARK) { Self::Manager } else { Self::ManagementCluster }
    }

    /// The name in text and in documents.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Manager => "manager",
            Self::ManagementCluster => "management cluster",
        }
    }

    /// The states that the target's Job shows.
    pub(super) fn states_of_job(self, job: &Value) -> &'static [JobState] {
        use JobState::{Admitted, Running};
        match self {
            Self::Manager => match job.pointer("/status/meridian/state").and_then(Value::as_str) {
                Some("Granted") => &[Admitted],
                Some("Running" | "Finished") => &[Admitted, Running],
                _ => &[],
            },
            Self::ManagementCluster => {
                let is_active = job["status"]["active"].as_u64().is_some_and(|pods| pods > 0);
                if is_active || is_true(job, "Complete") { &[Running] } else { &[] }
            }
        }
    }
}

/// The states that a Workload of the management cluster shows: admitted once it names the worker cluster.
pub(super) fn states_of_workload(workload: &Value) -> &'static [JobState] {
    let is_placed = workload["status"]["clusterName"].as_str().is_some_and(|name| !name.is_empty());
    if is_placed && is_true(workload, "Admitted") { &[JobState::Admitted] } else { &[] }
}

/// The states that a worker cluster's Job shows.
pub(super) fn states_of_worker_job(job: &Value) -> &'static [JobState] {
    let is_suspended = job["spec"]["suspend"].as_bool().unwrap_or(false);
    if is_suspended { &[] } else { &[JobState::Resumed] }
}

fn is_true(object: &Value, condition: &str) -> bool {
    let conditions = object["status"]["conditions"].as_array().into_iter().flatten();
    conditions.into_iter().any(|found| found["type"] == condition && found["status"] == "True")
}

/// A kind of objects in a namespace.
pub(super) fn objects(client: &Client, namespace: &str, resource: &ApiResource) -> Api<DynamicObject> {
    Api::namespaced_with(client.clone(), namespace, resource)
}

pub(super) fn job_resource() -> ApiResource {
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("batch", "v1", "Job"), "jobs")
}

/// Rights that the account needs in the namespace of the jobs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Right {
    group: &'static str,
    resource: &'static str,
    verbs: &'static [&'static str],
}

/// Rights at the target for jobs themselves.
const SUBMITTER: Right =
    Right { group: "batch", resource: "jobs", verbs: &["create", "delete", "list", "watch"] };
/// Right to see admissions in a management cluster.
const WORKLOADS: Right = Right { group: KUEUE, resource: "workloads", verbs: &["list", "watch"] };
const QUEUES: Right = Right { group: KUEUE, resource: "localqueues", verbs: &["list"] };
/// Right to see jobs in a worker cluster.
pub(super) const WATCHER: Right = Right { group: "batch", resource: "jobs", verbs: &["list", "watch"] };

/// A checked target.
pub(super) struct Target {
    pub(super) client: Client,
    pub(super) kind: TargetKind,
    /// The URL of its API.
    pub(super) server: String,
    pub(super) version: String,
    pub(super) namespace: String,
    pub(super) queue: String,
    /// Kueue's Workloads, in the version that the target serves.
    pub(super) workloads: ApiResource,
}

impl Target {
    /// Checks rights and queue. Fails with all rights that are missing, or with the queues that exist.
    pub(super) async fn check(
        connection: &Connection,
        namespace: String,
        queue: String,
    ) -> Result<Self, Error> {
        let kind = TargetKind::of_version(connection.version());
        let rights: &[Right] = match kind {
            TargetKind::Manager => &[SUBMITTER, QUEUES],
            TargetKind::ManagementCluster => &[SUBMITTER, QUEUES, WORKLOADS],
        };
        let client = connection.client.clone();
        check_rights(&client, connection.server(), &namespace, rights).await?;
        let version = check_queue(&client, connection.server(), &namespace, &queue).await?;
        let workload = GroupVersionKind::gvk(KUEUE, version, "Workload");
        Ok(Self {
            kind,
            client,
            server: connection.server().to_owned(),
            version: connection.version().to_owned(),
            namespace,
            queue,
            workloads: ApiResource::from_gvk_with_plural(&workload, "workloads"),
        })
    }
}

/// Fails with the rights that the account lacks in the namespace.
pub(super) async fn check_rights(
    client: &Client,
    server: &str,
    namespace: &str,
    rights: &[Right],
) -> Result<(), Error> {
    let reviews: Api<SelfSubjectAccessReview> = Api::all(client.clone());
    let mut missing = Vec::new();
    for Right { group, resource, verbs } in rights {
        for verb in *verbs {
            let attributes = ResourceAttributes {
                namespace: Some(namespace.to_owned()),
                verb: Some((*verb).to_owned()),
                group: Some((*group).to_owned()),
                resource: Some((*resource).to_owned()),
                ..ResourceAttributes::default()
            };
            let spec = SelfSubjectAccessReviewSpec {
                resource_attributes: Some(attributes),
                ..SelfSubjectAccessReviewSpec::default()
            };
            let review = SelfSubjectAccessReview { spec, ..SelfSubjectAccessReview::default() };
            let params = PostParams::default();
            let asked = reviews.create(&params, &review);
            let doing = format!("ask `{server}` whether you may {verb} {resource}");
            let answer = within(doing, asked).await.map_err(refused)?;
            if !answer.status.is_some_and(|status| status.allowed) {
                missing.push(format!("`{verb}` `{resource}.{group}`"));
            }
        }
    }
    if missing.is_empty() {
        return Ok(());
    }
    let missing = missing.join(", nor ");
    Err(Error::Refused(format!(
        "in namespace `{namespace}` of `{server}` your account may not {missing}: ask for a role with these \
         rights, or name another account's context with `--context`"
    )))
}

/// Fails if the namespace has no such local queue. Returns the served version of Kueue's API.
async fn check_queue(
    client: &Client,
    server: &str,
    namespace: &str,
    queue: &str,
) -> Result<&'static str, Error> {
    for version in KUEUE_VERSIONS {
        let kind = GroupVersionKind::gvk(KUEUE, version, "LocalQueue");
        let resource = ApiResource::from_gvk_with_plural(&kind, "localqueues");
        let queues = objects(client, namespace, &resource);
        let params = ListParams::default();
        let asked = async {
            match queues.list(&params).await {
                Err(error) if classify(&error) == Failure::Absent => Ok(None),
                listed => listed.map(Some),
            }
        };
        let doing = format!("list the local queues of namespace `{namespace}`");
        let Some(found) = within(doing, asked).await.map_err(refused)? else { continue };
        let names: Vec<String> = found.items.into_iter().filter_map(|found| found.metadata.name).collect();
        return if names.iter().any(|name| name == queue) {
            Ok(version)
        } else {
            Err(Error::Refused(no_queue(namespace, queue, &names)))
        };
    }
    Err(Error::Refused(format!(
        "`{server}` has no local queues: name the context of a manager or of a management cluster with \
         `--context`"
    )))
}

fn no_queue(namespace: &str, queue: &str, names: &[String]) -> String {
    let known = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    format!(
        "there is no local queue `{queue}` in namespace `{namespace}`, which has {known}: name another one \
         with `--queue`, or its namespace with `--namespace`"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use JobState::{Admitted, Resumed, Running};
    use serde_json::json;

    #[test]
    fn a_manager_is_known_by_its_version() {
        assert_eq!(TargetKind::of_version("v1.33.0+meridian.0.1.0"), TargetKind::Manager);
        assert_eq!(TargetKind::of_version("v1.33.4-gke.1"), TargetKind::ManagementCluster);
    }

    #[test]
    fn a_managers_job_shows_its_state() {
        let states = |state: &str| {
            TargetKind::Manager.states_of_job(&json!({"status": {"meridian": {"state": state}}}))
        };
        assert_eq!((states("Queued"), states("Granted")), (&[][..], &[Admitted][..]));
        assert_eq!(states("Running"), [Admitted, Running]);
        // The job may have ended between two changes that the watch sends.
        assert_eq!(states("Finished"), [Admitted, Running]);
        assert!(TargetKind::Manager.states_of_job(&json!({})).is_empty());
    }

    #[test]
    fn a_management_cluster_shows_admissions_in_workloads_and_pods_in_jobs() {
        let cluster = TargetKind::ManagementCluster;
        assert!(cluster.states_of_job(&json!({"status": {"active": 0}})).is_empty());
        assert_eq!(cluster.states_of_job(&json!({"status": {"active": 1}})), [Running]);
        let condition = |kind: &str, status: &str| json!([{"type": kind, "status": status}]);
        let complete = json!({"status": {"conditions": condition("Complete", "True")}});
        assert_eq!(cluster.states_of_job(&complete), [Running]);
        let workload = |status: &str, name: &str| {
            let conditions = condition("Admitted", status);
            json!({"status": {"clusterName": name, "conditions": conditions}})
        };
        assert_eq!(states_of_workload(&workload("True", "asia")), [Admitted]);
        assert!(states_of_workload(&workload("False", "asia")).is_empty());
        assert!(states_of_workload(&workload("True", "")).is_empty());
    }

    #[test]
    fn a_worker_cluster_shows_resumed_jobs() {
        assert!(states_of_worker_job(&json!({"spec": {"suspend": true}})).is_empty());
        assert_eq!(states_of_worker_job(&json!({"spec": {"suspend": false}})), [Resumed]);
        assert_eq!(states_of_worker_job(&json!({"spec": {}})), [Resumed]);
    }

    #[test]
    fn a_missing_queue_is_refused_with_those_that_exist() {
        let message = no_queue("research", "mian", &["main".to_owned(), "night".to_owned()]);
        assert!(message.contains("`mian` in namespace `research`, which has main, night"), "{message}");
        assert!(no_queue("research", "main", &[]).contains("which has none"));
    }
}
