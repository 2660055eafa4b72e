//! Finds the objects that a manager would take from a management cluster, for a check before the manager is
//! started. Only reads.

use crate::groups::{self, Group};
use crate::manifest;
use crate::pods;
use crate::resources::{Flow, served};
use kube::api::{ApiResource, DynamicObject, ListParams};
use kube::discovery::{Discovery, Scope, verbs};
use kube::{Api, Client};
use meridian_kubernetes::connection::within;
use meridian_kubernetes::{Error, Program};
use meridian_objects::Kind;
use meridian_objects::job::{QUEUE_LABEL, SOURCE_ANNOTATION};
use serde_json::{Value, json};
use std::sync::Arc;

/// The program that checks: a command that only reads, with the permissions of its kubeconfig.
pub const PREVIEW: Program =
    Program { name: "command", minor_min: 0, needs: "nothing in particular", permissions: &[] };

/// Most objects in one answer of an API server.
const PAGE: u32 = 500;

const CRON_JOB: &str = "CronJob";
/// Kinds that Kueue can queue, in API groups that also have many other kinds.
const QUEUED_KINDS: [(&str, &str); 4] =
    [("", "Pod"), ("apps", "Deployment"), ("apps", "StatefulSet"), ("batch", CRON_JOB)];
/// API groups in which Kueue may queue every kind.
const QUEUED_GROUPS: [&str; 5] =
    ["kubeflow.org", "ray.io", "sparkoperator.k8s.io", "trainer.kubeflow.org", "workload.codeflare.dev"];

/// Whether the manager would take this object: a job needs a queue, and a switch that keeps the cluster's own
/// controller from running it. A pod may be one of a group.
pub fn is_taken(kind: Kind, object: &Value) -> bool {
    match kind {
        Kind::Pod => pods::is_taken(object),
        _ => manifest::is_taken(kind, object),
    }
}

/// Why a pod with a queue isn't taken, and the remedy. `None` if no user would expect the pod to be taken.
pub fn pod_refusal(pod: &Value) -> Option<String> {
    pods::refusal(pod).map(|text| text.message)
}

/// The name of the group that a pod belongs to.
pub fn group_of(pod: &Value) -> Option<&str> {
    pods::group_of(pod)
}

/// Why pods with the name of one group aren't taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GroupFault {
    /// Pods of the group are missing.
    Incomplete { here: usize, total: usize },
    /// The manager never takes these pods as a group, with the reason.
    Unfit(String),
}

/// Checks the pods of a group as the manager would. `None` if they make a whole group.
pub fn group_fault(pods: &[Arc<Value>]) -> Option<GroupFault> {
    match groups::read(pods)? {
        Group::Incomplete { here, total } => Some(GroupFault::Incomplete { here, total }),
        Group::Unfit(reason) => Some(GroupFault::Unfit(reason)),
        Group::Whole(_) => None,
    }
}

/// Whether a controller made the object, so that the decision about its owner covers it.
pub fn is_controlled(object: &Value) -> bool {
    manifest::is_controlled(object)
}

/// The object in the version and with the fields that the manager would take.
pub fn as_taken(kind: Kind, object: &Value) -> Value {
    let mut taken = manifest::for_manager(kind, object);
    if let Some(annotations) = taken["metadata"]["annotations"].as_object_mut() {
        annotations.remove(SOURCE_ANNOTATION);
    }
    taken
}

/// All objects of a cluster that concern queues: settings, jobs of all kinds that Meridian runs, and other
/// objects with a queue. If a permission is missing, the error names it.
pub async fn read(client: &Client) -> Result<Vec<Value>, Error> {
    let mut objects = Vec::new();
    let (all, queued) = (ListParams::default(), ListParams::default().labels(QUEUE_LABEL));
    for resource in served(client).await? {
        match resource.flow {
            Flow::Group => {}
            Flow::Job if resource.kind == Kind::Pod => {
                objects.extend(list(client, &resource.api, &queued).await?);
            }
            // Workloads first, because they show which jobs Kueue has started before the jobs do.
            Flow::Job | Flow::Settings | Flow::Workload => {
                objects.extend(list(client, &resource.api, &all).await?);
            }
        }
    }
    let groups: Vec<&str> = QUEUED_GROUPS.into_iter().chain(QUEUED_KINDS.map(|(group, _)| group)).collect();
    let asked = Discovery::new(client.clone()).filter(&groups).run();
    let discovery = within("list the kinds of the management cluster".to_owned(), asked).await?;
    for group in discovery.groups() {
        for (api, capabilities) in group.recommended_resources() {
            let is_known = Kind::from_gvk(&api.api_version, &api.kind).is_some();
            let can_be_queued = QUEUED_GROUPS.contains(&group.name())
                || QUEUED_KINDS.contains(&(group.name(), api.kind.as_str()));
            let is_listed =
                capabilities.scope == Scope::Namespaced && capabilities.supports_operation(verbs::LIST);
            if !is_known && can_be_queued && is_listed {
                // The queue of a CronJob's jobs is a label of its template.
                let which = if api.kind == CRON_JOB { &all } else { &queued };
                let found = list(client, &api, which).await?;
                // Skip objects that a controller made from the object that has the queue.
                objects.extend(found.into_iter().filter(|object| !is_controlled(object)));
            }
        }
    }
    Ok(objects)
}

async fn list(client: &Client, resource: &ApiResource, which: &ListParams) -> Result<Vec<Value>, Error> {
    let api: Api<DynamicObject> = Api::all_with(client.clone(), resource);
    let mut objects = Vec::new();
    let mut params = which.clone().limit(PAGE);
    loop {
        let page = within(format!("list {} of all namespaces", resource.plural), api.list(&params)).await?;
        for object in page.items {
            // The items of a list lack apiVersion and kind.
            if let Ok(Value::Object(mut fields)) = serde_json::to_value(object) {
                fields.insert("apiVersion".to_owned(), json!(resource.api_version));
                fields.insert("kind".to_owned(), json!(resource.kind));
                objects.push(Value::Object(fields));
            }
        }
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => return Ok(objects),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_is_shown_as_the_users_own() {
        let queue = json!({
            "apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "LocalQueue",
            "metadata": {"name": "q", "namespace": "a", "resourceVersion": "7", "annotations": {"team": "x"}},
            "spec": {"clusterQueue": "dws"}, "status": {"pendingWorkloads": 3},
        });
        let taken = as_taken(Kind::LocalQueue, &queue);
        assert_eq!(taken["metadata"]["annotations"], json!({"team": "x"}));
        assert!(taken.get("status").is_none() && taken["metadata"].get("resourceVersion").is_none());
    }
}
