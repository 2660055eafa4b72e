//! What the manager would take of a management cluster, before one is started there. Reads only.

use crate::manifest;
use crate::resources::{Flow, served};
use kube::api::{ApiResource, DynamicObject, ListParams};
use kube::discovery::{Discovery, Scope, verbs};
use kube::{Api, Client};
use meridian_kubernetes::connection::within;
use meridian_kubernetes::{Error, Program};
use meridian_objects::Kind;
use meridian_objects::job::{QUEUE_LABEL, SOURCE_ANNOTATION};
use serde_json::{Value, json};

/// A program that only reads, with the rights of its kubeconfig.
pub const PREVIEW: Program =
    Program { name: "command", minor_min: 0, needs: "nothing in particular", permissions: &[] };

/// Most objects of one answer.
const PAGE: u32 = 500;

/// Kinds that Kueue queues, in groups with many others.
const QUEUED_KINDS: [(&str, &str); 4] =
    [("", "Pod"), ("apps", "Deployment"), ("apps", "StatefulSet"), ("batch", "CronJob")];
/// Groups of which every kind may be one that Kueue queues.
const QUEUED_GROUPS: [&str; 5] =
    ["kubeflow.org", "ray.io", "sparkoperator.k8s.io", "trainer.kubeflow.org", "workload.codeflare.dev"];

/// Whether the manager would take this object: a job needs a queue, and a switch that keeps the cluster's own
/// controller from running it.
pub fn is_taken(kind: Kind, object: &Value) -> bool {
    manifest::is_taken(kind, object)
}

/// The object in the version and with the fields that the manager would take.
pub fn as_taken(kind: Kind, object: &Value) -> Value {
    let mut taken = manifest::for_manager(kind, object);
    if let Some(annotations) = taken["metadata"]["annotations"].as_object_mut() {
        annotations.remove(SOURCE_ANNOTATION);
    }
    taken
}

/// Everything in a cluster that queues are about: settings, jobs of all kinds that Meridian runs, and what
/// else has a queue. Fails if the cluster can't be asked, with the right that is missing.
pub async fn read(client: &Client) -> Result<Vec<Value>, Error> {
    let mut objects = Vec::new();
    for resource in served(client).await? {
        let is_listed = match resource.flow {
            Flow::Workload | Flow::Group => false,
            // a pod that runs has lost its gate, and can't get one again
            Flow::Job => resource.kind != Kind::Pod,
            Flow::Settings => true,
        };
        if is_listed {
            objects.extend(list(client, &resource.api, &ListParams::default()).await?);
        }
    }
    let groups: Vec<&str> = QUEUED_GROUPS.into_iter().chain(QUEUED_KINDS.map(|(group, _)| group)).collect();
    let asked = Discovery::new(client.clone()).filter(&groups).run();
    let discovery = within("list the kinds of the management cluster".to_owned(), asked).await?;
    let queued = ListParams::default().labels(QUEUE_LABEL);
    for group in discovery.groups() {
        for (api, capabilities) in group.recommended_resources() {
            let is_known = Kind::from_gvk(&api.api_version, &api.kind).is_some();
            let can_be_queued = QUEUED_GROUPS.contains(&group.name())
                || QUEUED_KINDS.contains(&(group.name(), api.kind.as_str()));
            let is_listed =
                capabilities.scope == Scope::Namespaced && capabilities.supports_operation(verbs::LIST);
            if !is_known && can_be_queued && is_listed {
                let found = list(client, &api, &queued).await?;
                // A controller made it from what has the queue.
                objects.extend(found.into_iter().filter(|object| !is_controlled(object)));
            }
        }
    }
    Ok(objects)
}

fn is_controlled(object: &Value) -> bool {
    let owners = object["metadata"]["ownerReferences"].as_array();
    owners.into_iter().flatten().any(|owner| owner["controller"] == true)
}

async fn list(client: &Client, resource: &ApiResource, which: &ListParams) -> Result<Vec<Value>, Error> {
    let api: Api<DynamicObject> = Api::all_with(client.clone(), resource);
    let mut objects = Vec::new();
    let mut params = which.clone().limit(PAGE);
    loop {
        let page = within(format!("list {} of all namespaces", resource.plural), api.list(&params)).await?;
        for object in page.items {
            // In a list only the list has a type.
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
