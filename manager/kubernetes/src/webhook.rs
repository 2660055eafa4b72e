//! The validating webhook: the API server's requests, and its configuration in the management cluster. Pure.
//!
//! The webhook refuses a job at creation if the manager would refuse it, so that users see the reason in
//! their terminal. Residency doesn't depend on it, because the manager checks residency at every offer.

use crate::manifest;
use crate::pods;
use crate::resources::{Flow, Resource};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use meridian_objects::Kind;
use meridian_objects::job::{POD_GROUP_LABEL, POD_GROUP_TOTAL, QUEUE_LABEL};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Name of the ValidatingWebhookConfiguration. The chart's RBAC names it too.
pub(crate) const CONFIGURATION: &str = "meridian-jobs";
/// Name of the webhook in the configuration.
const WEBHOOK: &str = "jobs.meridian.dev";
/// How long an API server waits for an answer, in seconds. Without one it creates the job unchecked.
const TIMEOUT_SECONDS: u64 = 5;

/// How the API server reaches this manager.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WebhookAddress {
    /// Of the form `https://HOST:PORT`.
    Url(String),
    Service {
        namespace: String,
        name: String,
        port: u16,
    },
}

/// A webhook of this manager.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebhookSettings {
    pub address: WebhookAddress,
    /// Path of the webhook. It contains a secret, because API servers don't authenticate to webhooks.
    pub path: String,
    /// PEM certificate of the authority that signed the manager's certificate.
    pub authority: String,
}

/// The object that registers the webhook at the API server. `None` while no kind of job is followed.
pub(crate) fn configuration(
    settings: &WebhookSettings,
    resources: &BTreeMap<Kind, Arc<Resource>>,
) -> Option<Value> {
    let jobs = resources.values().filter(|resource| resource.flow == Flow::Job);
    let rules: Vec<Value> = jobs
        .map(|resource| {
            json!({
                "apiGroups": [resource.api.group], "apiVersions": [resource.api.version],
                "resources": [resource.api.plural], "operations": ["CREATE", "UPDATE"], "scope": "Namespaced",
            })
        })
        .collect();
    let mut client = match &settings.address {
        WebhookAddress::Url(url) => json!({"url": format!("{url}{}", settings.path)}),
        WebhookAddress::Service { namespace, name, port } => json!({
            "service": {"namespace": namespace, "name": name, "port": port, "path": settings.path},
        }),
    };
    client["caBundle"] = json!(STANDARD.encode(settings.authority.as_bytes()));
    (!rules.is_empty()).then(|| {
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": CONFIGURATION, "labels": {"app.kubernetes.io/part-of": "meridian"}},
            "webhooks": [{
                "name": WEBHOOK,
                "rules": rules,
                "objectSelector": {"matchExpressions": [{"key": QUEUE_LABEL, "operator": "Exists"}]},
                "clientConfig": client,
                "admissionReviewVersions": ["v1"],
                "sideEffects": "None",
                "matchPolicy": "Equivalent",
                "failurePolicy": "Ignore",
                "timeoutSeconds": TIMEOUT_SECONDS,
            }],
        })
    })
}

/// A request of an API server about one object.
#[derive(Clone, Debug, PartialEq)]
pub struct Review {
    uid: Value,
    /// The write at the manager that the object would become: kind, name, and manifest. `None` if the manager
    /// leaves the object alone.
    pub write: Option<(Kind, String, Value)>,
    pub is_update: bool,
}

impl Review {
    /// Reads an `AdmissionReview` of `admission.k8s.io/v1`. `None` if it is something else.
    pub fn read(review: &Value) -> Option<Self> {
        let request = review.get("request")?;
        if review["apiVersion"] != "admission.k8s.io/v1" || !request["uid"].is_string() {
            return None;
        }
        let object = &request["object"];
        let (api_version, kind) = (object["apiVersion"].as_str()?, object["kind"].as_str()?);
        let kind = Kind::from_gvk(api_version, kind)?.0;
        let is_update = request["operation"] == "UPDATE";
        let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let manifest = if kind.is_job() && manifest::is_taken(kind, object) {
            Some(manifest::for_manager(kind, object))
        } else {
            // A pod in a group is checked only at creation, because its changes aren't copied to the manager.
            Some(object).filter(|_| kind == Kind::Pod && !is_update).and_then(alone)
        };
        let write = manifest.map(|manifest| (kind, name, manifest));
        Some(Self { uid: request["uid"].clone(), write, is_update })
    }

    /// The answer: allowed, or refused with the manager's message.
    pub fn answer(&self, refusal: Option<&str>, warnings: &[String]) -> Value {
        let mut response = json!({"uid": self.uid, "allowed": refusal.is_none()});
        if let Some(message) = refusal {
            response["status"] = json!({"code": 403, "reason": "Forbidden", "message": message});
        }
        if !warnings.is_empty() {
            response["warnings"] = json!(warnings);
        }
        json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response})
    }
}

/// A pod of a group, as a job of its own: any fault that it has alone is a fault in the group too. `None` if
/// the manager doesn't take the pod, or the pod isn't in a group.
fn alone(pod: &Value) -> Option<Value> {
    pods::group_of(pod).filter(|_| pods::is_taken(pod))?;
    let mut manifest = manifest::for_manager(Kind::Pod, pod);
    for (map, key) in [("labels", POD_GROUP_LABEL), ("annotations", POD_GROUP_TOTAL)] {
        if let Some(map) = manifest["metadata"][map].as_object_mut() {
            map.remove(key);
        }
    }
    Some(manifest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::api::ApiResource;
    use kube::core::GroupVersionKind;
    use meridian_objects::job::SUBMITTED_KIND;

    fn review(object: Value) -> Value {
        json!({
            "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
            "request": {"uid": "r-1", "operation": "CREATE", "object": object},
        })
    }

    fn job(labels: Value) -> Value {
        json!({
            "apiVersion": "batch/v1", "kind": "Job",
            "metadata": {"name": "train", "namespace": "team", "uid": "u-1", "labels": labels},
            "spec": {"suspend": true, "template": {"spec": {}}}, "status": {},
        })
    }

    #[test]
    fn only_jobs_that_the_manager_takes_are_checked() {
        let taken = Review::read(&review(job(json!({QUEUE_LABEL: "main"})))).unwrap();
        let (kind, name, manifest) = taken.write.clone().unwrap();
        assert_eq!((kind, name.as_str(), taken.is_update), (SUBMITTED_KIND, "train", false));
        assert_eq!(
            (&manifest["spec"]["suspend"], &manifest["metadata"]["uid"]),
            (&json!(false), &json!("u-1"))
        );
        assert_eq!(Review::read(&review(job(json!({})))).unwrap().write, None);
        let other = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}});
        assert_eq!(Review::read(&review(other)), None);
        assert_eq!(Review::read(&json!({"apiVersion": "admission.k8s.io/v1beta1"})), None);
    }

    #[test]
    fn a_pod_of_a_group_is_checked_as_if_it_were_alone() {
        let mut pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": "driver", "namespace": "team", "uid": "u-1",
                "labels": {QUEUE_LABEL: "main", POD_GROUP_LABEL: "train"},
                "annotations": {POD_GROUP_TOTAL: "2"},
            },
            "spec": {"schedulingGates": [{"name": "kueue.x-k8s.io/admission"}], "containers": []},
        });
        let (kind, name, manifest) = Review::read(&review(pod.clone())).unwrap().write.unwrap();
        assert_eq!((kind, name.as_str()), (Kind::Pod, "driver"));
        assert_eq!(manifest["metadata"]["labels"], json!({QUEUE_LABEL: "main"}));
        assert!(manifest["metadata"]["annotations"].get(POD_GROUP_TOTAL).is_none());
        let mut update = review(pod.clone());
        update["request"]["operation"] = json!("UPDATE");
        assert_eq!(Review::read(&update).unwrap().write, None);
        pod["spec"]["schedulingGates"] = json!([]);
        assert_eq!(Review::read(&review(pod)).unwrap().write, None, "the cluster runs it itself");
    }

    #[test]
    fn an_answer_names_the_request_and_the_reason() {
        let asked = Review::read(&review(job(json!({QUEUE_LABEL: "main"})))).unwrap();
        let allowed = asked.answer(None, &["a field is ignored".to_owned()]);
        assert_eq!(allowed["response"]["uid"], "r-1");
        assert_eq!(allowed["response"]["allowed"], true);
        assert_eq!(allowed["response"]["warnings"], json!(["a field is ignored"]));
        let refused = asked.answer(Some("no cluster of its queue may run it"), &[]);
        assert_eq!(refused["response"]["allowed"], false);
        assert_eq!(refused["response"]["status"]["message"], "no cluster of its queue may run it");
    }

    #[test]
    fn every_followed_kind_of_job_is_checked_at_this_manager() {
        let resource = |kind: Kind, flow| {
            let gvk = GroupVersionKind::gvk(kind.group(), kind.storage_version(), kind.name());
            let api = ApiResource::from_gvk_with_plural(&gvk, kind.plural());
            (kind, Arc::new(Resource { kind, flow, api, has_status: true }))
        };
        let mut settings = WebhookSettings {
            address: WebhookAddress::Url("https://manager:7443".to_owned()),
            path: "/admission/v1/secret".to_owned(),
            authority: "PEM".to_owned(),
        };
        let queues = BTreeMap::from([resource(Kind::LocalQueue, Flow::Settings)]);
        assert_eq!(configuration(&settings, &queues), None);
        let all = BTreeMap::from([
            resource(Kind::LocalQueue, Flow::Settings),
            resource(SUBMITTED_KIND, Flow::Job),
            resource(Kind::JobSet, Flow::Job),
        ]);
        let object = configuration(&settings, &all).unwrap();
        let webhook = &object["webhooks"][0];
        assert_eq!(webhook["rules"].as_array().unwrap().len(), 2);
        assert_eq!(webhook["clientConfig"]["url"], "https://manager:7443/admission/v1/secret");
        assert_eq!(webhook["clientConfig"]["caBundle"], "UEVN");
        settings.address = WebhookAddress::Service {
            namespace: "meridian".to_owned(),
            name: "manager".to_owned(),
            port: 7443,
        };
        let object = configuration(&settings, &all).unwrap();
        let client = &object["webhooks"][0]["clientConfig"];
        assert_eq!((&client["service"]["path"], client.get("url")), (&json!("/admission/v1/secret"), None));
    }
}
