//! Creates and deletes the pods of a group except the first one: no controller does it.

use super::perform::{PODS_AT_ONCE, Performer, Target, creation, failed};
use super::request::Answer;
use crate::error::{Failure, classify};
use crate::facts::JobFacts;
use crate::labels::{self, RunKey};
use futures::StreamExt as _;
use kube::Api;
use kube::api::DynamicObject;
use serde_json::Value;

impl Performer {
    /// Creates the pods, each with its scheduling gate. An existing pod was made by an earlier try.
    pub(super) async fn create_pods(&self, target: &Target, pods: &[Value]) -> Answer {
        let api = self.jobs(target);
        let one = async |pod: &Value| self.create_pod(target, &api, pod).await;
        let answers: Vec<Answer> =
            futures::stream::iter(pods).map(one).buffer_unordered(PODS_AT_ONCE).collect().await;
        answers.into_iter().find(|answer| *answer != Answer::Done).unwrap_or(Answer::Done)
    }

    async fn create_pod(&self, target: &Target, api: &Api<DynamicObject>, pod: &Value) -> Answer {
        let pod: DynamicObject = match serde_json::from_value(pod.clone()) {
            Ok(pod) => pod,
            Err(error) => return Answer::Refused(error.to_string()),
        };
        match api.create(&creation(), &pod).await {
            Ok(_) => Answer::Done,
            Err(error) if classify(&error) == Failure::Exists => {
                let name = pod.metadata.name.unwrap_or_default();
                self.take_existing(target, api, &name).await
            }
            Err(error) => failed(&error),
        }
    }

    /// Reads an existing pod with the name of a pod of the group. Deletes it if it is left from an earlier
    /// attempt.
    async fn take_existing(&self, target: &Target, api: &Api<DynamicObject>, name: &str) -> Answer {
        let found = match api.get(name).await {
            Ok(mut found) => {
                labels::disown_other(&mut found.metadata, self.cluster());
                JobFacts::read(target.kind, &found)
            }
            Err(error) => return failed(&error),
        };
        if found.run == Some(target.key) {
            return Answer::Done;
        }
        if !is_left_of_the_group(&found, target) {
            return Answer::Refused(format!(
                "pod `{}/{name}` exists, and Meridian didn't make it for this group: delete or rename one of \
                 the two",
                target.namespace
            ));
        }
        match self.end_pods(&target.namespace, &[(found.name, found.uid)]).await {
            Answer::Done => Answer::Unknown(format!("pod `{name}` of an earlier attempt is deleted first")),
            other => other,
        }
    }

    /// Deletes the pods of a group except the first, which stands for the group and has this uid. Does
    /// nothing for jobs of other kinds, whose pods are deleted with them.
    pub(super) async fn delete_others(&self, target: &Target, first: &str) -> Answer {
        if !target.kind.is_pod_group() {
            return Answer::Done;
        }
        match self.list_pods(target).await {
            Answer::Pods(pods) => {
                let others = pods.into_iter().filter(|pod| pod.uid != first);
                let others: Vec<(String, String)> = others.map(|pod| (pod.name, pod.uid)).collect();
                self.end_pods(&target.namespace, &others).await
            }
            other => other,
        }
    }
}

/// Whether a pod is one of an earlier attempt of this group, or of an earlier group of its name. The manager
/// starts neither again before their pods have ended.
fn is_left_of_the_group(found: &JobFacts, target: &Target) -> bool {
    let (uid, fence) = target.key;
    let is_earlier = |(found_uid, found_fence): RunKey| found_uid != uid || found_fence < fence;
    let of_group = found.group.as_ref().map(|group| &group.name);
    found.run.is_some_and(is_earlier) && of_group == target.group.as_ref()
}
