//! Carries out the requests of runs at the API server.

use super::request::{Answer, Placing, Request};
use crate::copies::{Copier, Copies, Owner};
use crate::error::{Failure, classify, words};
use crate::facts::{JobFacts, PodFacts};
use crate::holds::placeholders;
use crate::hub::{self, Hub};
use crate::labels::{self, NOTES, RunKey, STARTED, STOPPED};
use crate::objects;
use futures::StreamExt as _;
use jiff::Timestamp;
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams, Preconditions};
use kube::{Api, Client};
use meridian_kubernetes::connection::ANSWER_WITHIN;
use meridian_kubernetes::election::Leader;
use meridian_objects::job::JobKind;
use meridian_shared::ids::OfferId;
use serde_json::{Value, json};
use std::sync::Arc;

/// Number of requests for single pods that one run has open at the same time.
pub(super) const PODS_AT_ONCE: usize = 16;
/// Names the agent as the writer of fields.
const MANAGER: &str = "meridian-agent";
/// Number of objects in one page of a list.
const PAGE: u32 = 500;

/// The object that a request is about.
#[derive(Clone, Debug)]
pub(super) struct Target {
    pub(super) key: RunKey,
    pub(super) namespace: String,
    pub(super) kind: &'static JobKind,
    /// Name of the job; empty while only the attempt is known.
    pub(super) name: String,
    /// The offer that was held for the run, if that is known.
    pub(super) offer: Option<OfferId>,
    /// The name of the group, for a group of pods.
    pub(super) group: Option<String>,
}

impl Target {
    fn owner(&self, object_uid: &str) -> Owner {
        let (uid, fence) = self.key;
        Owner {
            kind: self.kind,
            namespace: self.namespace.clone(),
            name: self.name.clone(),
            object_uid: object_uid.to_owned(),
            uid,
            fence,
        }
    }
}

impl From<objects::Answer> for Answer {
    fn from(answer: objects::Answer) -> Self {
        match answer {
            objects::Answer::Done => Self::Done,
            objects::Answer::Refused(why) => Self::Refused(why),
            objects::Answer::Unknown(why) => Self::Unknown(why),
        }
    }
}

/// Performs requests at one API server.
#[derive(Clone)]
pub(super) struct Performer {
    client: Client,
    leader: Option<Leader>,
    hub: Arc<Hub>,
    copier: Copier,
}

impl Performer {
    pub(super) fn new(client: Client, leader: Option<Leader>, hub: Arc<Hub>, copies: Option<Copies>) -> Self {
        Self { copier: Copier::new(client.clone(), copies), client, leader, hub }
    }

    /// The cluster's name at the manager.
    pub(super) fn cluster(&self) -> &str {
        self.hub.cluster()
    }

    /// Performs one request. A missing answer counts as [`Answer::Unknown`] after a while.
    pub(super) async fn perform(&self, target: &Target, request: &Request) -> Answer {
        let (seconds, answer) = (ANSWER_WITHIN, self.answer(target, request));
        match tokio::time::timeout(seconds, answer).await {
            Ok(answer) => answer,
            Err(_) => {
                Answer::Unknown(format!("the API server gave no answer within {} s", seconds.as_secs()))
            }
        }
    }

    /// Performs a request, unless another replica may have become the leader: this replica doesn't know the
    /// runs that the other one started, and could delete them.
    async fn answer(&self, target: &Target, request: &Request) -> Answer {
        let allowed = match (request, &self.leader) {
            (Request::Read | Request::ListPods, _) | (_, None) => Ok(true),
            (Request::Start { .. }, Some(leader)) => leader.still_leads().await,
            (_, Some(leader)) => leader.may_write().await,
        };
        match allowed {
            Ok(true) => self.ask(target, request).await,
            Ok(false) => Answer::NotLeading,
            Err(error) => Answer::Unknown(error.to_string()),
        }
    }

    async fn ask(&self, target: &Target, request: &Request) -> Answer {
        let (jobs, kind) = (self.jobs(target), target.kind);
        let job = |answer| job(kind, self.cluster(), answer);
        let patch = async |patch: Value| job(jobs.patch(&target.name, &params(), &Patch::Merge(patch)).await);
        match request {
            Request::Create(manifest) => self.create(kind, &jobs, manifest).await,
            Request::Read if target.name.is_empty() => self.find(target.key).await,
            Request::Read => job(jobs.get(&target.name).await),
            Request::Seed { completed } => {
                let status = json!({"completedIndexes": completed.to_string(), "succeeded": completed.len()});
                let patch = Patch::Merge(json!({"status": status}));
                job(jobs.patch_status(&target.name, &params(), &patch).await)
            }
            Request::Copy { object_uid, references } => match target.offer {
                Some(offer) => self.copier.make(&target.owner(object_uid), offer, references).await.into(),
                None => Answer::Refused("the offer of the attempt isn't known".to_owned()),
            },
            Request::GiveCopiesBack { object_uid, references } => {
                self.copier.give_back(&target.owner(object_uid), references).await.into()
            }
            Request::Start { resource_version, resume, others } => {
                match self.create_pods(target, others).await {
                    Answer::Done => {}
                    other => return other,
                }
                let mut resume = resume.clone();
                let annotations = json!({STARTED: Timestamp::now().to_string()});
                resume["metadata"] = json!({"resourceVersion": resource_version, "annotations": annotations});
                patch(resume).await
            }
            Request::Note { notes } => patch(json!({"metadata": {"annotations": {NOTES: notes}}})).await,
            Request::Resize { size, parallelism, notes } => {
                let mut spec = json!({"parallelism": parallelism});
                if let Some(completions) = size.completions {
                    spec["completions"] = json!(completions);
                }
                patch(json!({"metadata": {"annotations": {NOTES: notes}}, "spec": spec})).await
            }
            Request::Suspend { why } => {
                let mut suspend = kind.suspending_patch();
                suspend["metadata"] = json!({"annotations": {STOPPED: why}});
                self.end_suspended(target, &jobs, patch(suspend).await).await
            }
            Request::RenewLeases(placings) => self.place(&target.namespace, placings).await,
            Request::Place(placings) => match self.clear_placeholders(target, placings).await {
                objects::Answer::Done => self.place(&target.namespace, placings).await,
                objects::Answer::Refused(why) | objects::Answer::Unknown(why) => Answer::Unknown(why),
            },
            Request::EndPods(pods) => self.end_pods(&target.namespace, pods).await,
            Request::EndAllPods => self.end_all_pods(target).await,
            Request::ListPods => self.list_pods(target).await,
            Request::Delete { uid } => {
                match self.delete_others(target, uid).await {
                    Answer::Done => {}
                    other => return other,
                }
                let preconditions = Some(Preconditions { uid: Some(uid.clone()), resource_version: None });
                let params = DeleteParams { preconditions, ..DeleteParams::background() };
                match jobs.delete(&target.name, &params).await {
                    Ok(_) => Answer::Done,
                    // An object of another uid is not ours.
                    Err(error) if classify(&error) == Failure::Conflict => Answer::Absent,
                    Err(error) => failed(&error),
                }
            }
        }
    }

    pub(super) fn jobs(&self, target: &Target) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), &target.namespace, &hub::jobs(target.kind))
    }

    fn pods(&self, namespace: &str) -> Api<DynamicObject> {
        if namespace.is_empty() {
            Api::all_with(self.client.clone(), &hub::pods())
        } else {
            Api::namespaced_with(self.client.clone(), namespace, &hub::pods())
        }
    }

    /// Ends the pods of a job that is a pod or a group: pods can't be suspended.
    async fn end_suspended(&self, target: &Target, jobs: &Api<DynamicObject>, suspended: Answer) -> Answer {
        match suspended {
            Answer::Job(first) if target.kind.is_pod_group() => match self.end_all_pods(target).await {
                Answer::Done => Answer::Job(Box::new(JobFacts { deleting: true, ..*first })),
                other => other,
            },
            Answer::Job(pod) if target.kind.is_of_pods() && !pod.deleting => end_pod(jobs, &pod).await,
            answer => answer,
        }
    }

    async fn create(&self, kind: &'static JobKind, jobs: &Api<DynamicObject>, manifest: &Value) -> Answer {
        let object: DynamicObject = match serde_json::from_value(manifest.clone()) {
            Ok(object) => object,
            Err(error) => return Answer::Refused(error.to_string()),
        };
        job(kind, self.cluster(), jobs.create(&creation(), &object).await)
    }

    /// Looks for the job of an attempt among all kinds and in all namespaces.
    async fn find(&self, key: RunKey) -> Answer {
        let kinds = self.hub.view().served_kinds();
        let ours = |kind| labels::of_kind(labels::selector(key), kind);
        for kind in kinds {
            let all: Api<DynamicObject> = Api::all_with(self.client.clone(), &hub::jobs(kind));
            match all.list(&ListParams::default().labels(&ours(kind))).await {
                Ok(list) => {
                    if let Some(found) = list.items.first() {
                        return Answer::Job(Box::new(JobFacts::read(kind, found)));
                    }
                }
                Err(error) => return failed(&error),
            }
        }
        Answer::Absent
    }

    /// Deletes the placeholders of pods that may be scheduled next.
    async fn clear_placeholders(&self, target: &Target, placings: &[Placing]) -> objects::Answer {
        let Some(offer) = target.offer else { return objects::Answer::Done };
        let there = self.hub.view().placeholders_of(offer);
        for placing in placings {
            let Some(number) = placing.number else { continue };
            let name = placeholders::name(offer, number);
            let Some(pod) = there.iter().find(|pod| pod.name == name && !pod.deleting) else { continue };
            match objects::delete(&self.pods(&pod.namespace), &name).await {
                objects::Answer::Done => {}
                other => return other,
            }
        }
        objects::Answer::Done
    }

    async fn place(&self, namespace: &str, placings: &[Placing]) -> Answer {
        let pods = self.pods(namespace);
        let one = async |placing: &Placing| {
            let mut patch = placing.patch.clone();
            // Another pod, with another uid, has this name now.
            patch["metadata"]["uid"] = json!(placing.uid);
            match pods.patch(&placing.pod, &params(), &Patch::Merge(patch)).await {
                Ok(_) => Ok(Some(placing.uid.clone())),
                Err(error) => match classify(&error) {
                    Failure::Absent | Failure::Conflict => Ok(None),
                    _ => Err(words(&error)),
                },
            }
        };
        let results: Vec<Result<Option<String>, String>> =
            futures::stream::iter(placings).map(one).buffer_unordered(PODS_AT_ONCE).collect().await;
        let (mut placed, mut why) = (Vec::new(), None);
        for result in results {
            match result {
                Ok(uid) => placed.extend(uid),
                Err(error) => why = Some(error),
            }
        }
        match why {
            Some(why) if placed.is_empty() => Answer::Unknown(why),
            _ => Answer::Placed(placed),
        }
    }

    pub(super) async fn end_pods(&self, namespace: &str, ended: &[(String, String)]) -> Answer {
        let pods = self.pods(namespace);
        for (name, uid) in ended {
            let preconditions = Some(Preconditions { uid: Some(uid.clone()), resource_version: None });
            let params = DeleteParams { preconditions, ..DeleteParams::default() };
            match pods.delete(name, &params).await {
                Ok(_) => {}
                Err(error) if matches!(classify(&error), Failure::Absent | Failure::Conflict) => {}
                Err(error) => return failed(&error),
            }
        }
        Answer::Done
    }

    async fn end_all_pods(&self, target: &Target) -> Answer {
        match self.list_pods(target).await {
            Answer::Pods(pods) => {
                let alive = pods.iter().filter(|pod| !pod.is_terminal() && !pod.deleting);
                for pod in alive {
                    let one = [(pod.name.clone(), pod.uid.clone())];
                    match self.end_pods(&pod.namespace, &one).await {
                        Answer::Done => {}
                        other => return other,
                    }
                }
                Answer::Done
            }
            other => other,
        }
    }

    /// The pods of the attempt, from the server's current state and not from its cache.
    pub(super) async fn list_pods(&self, target: &Target) -> Answer {
        let api = self.pods(&target.namespace);
        let mut params = ListParams::default().labels(&labels::selector(target.key)).limit(PAGE);
        let mut pods = Vec::new();
        loop {
            let page = match api.list(&params).await {
                Ok(page) => page,
                Err(error) => return failed(&error),
            };
            for pod in &page.items {
                match PodFacts::read(pod) {
                    Ok(pod) => pods.push(pod),
                    Err(why) => return Answer::Unknown(format!("a pod can't be read: {why}")),
                }
            }
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => params = params.continue_token(&token),
                None => return Answer::Pods(pods),
            }
        }
    }
}

/// Ends a pod that is a job by itself, with its grace.
async fn end_pod(jobs: &Api<DynamicObject>, pod: &JobFacts) -> Answer {
    let preconditions = Some(Preconditions { uid: Some(pod.uid.clone()), resource_version: None });
    match jobs.delete(&pod.name, &DeleteParams { preconditions, ..DeleteParams::default() }).await {
        Ok(_) => Answer::Job(Box::new(JobFacts { deleting: true, ..pod.clone() })),
        Err(error) => failed(&error),
    }
}

/// The parameters of a creation.
pub(super) fn creation() -> PostParams {
    PostParams { field_manager: Some(MANAGER.to_owned()), ..PostParams::default() }
}

fn params() -> PatchParams {
    PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() }
}

fn job(kind: &'static JobKind, cluster: &str, answer: kube::Result<DynamicObject>) -> Answer {
    match answer {
        Ok(mut object) => {
            labels::disown_other(&mut object.metadata, cluster);
            Answer::Job(Box::new(JobFacts::read(kind, &object)))
        }
        Err(error) => failed(&error),
    }
}

pub(super) fn failed(error: &kube::Error) -> Answer {
    match classify(error) {
        Failure::Unknown => Answer::Unknown(words(error)),
        Failure::Absent => Answer::Absent,
        Failure::Exists => Answer::Exists,
        Failure::Conflict => Answer::Conflict,
        Failure::Refused => Answer::Refused(words(error)),
    }
}
