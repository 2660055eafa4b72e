//! Copies of ConfigMaps and Secrets of the management cluster, for gangs that name what this cluster lacks.
//!
//! A copy belongs to the jobs that use it: each is an owner in its metadata, so that the cluster's own
//! garbage collector deletes copies that no job uses any more, even if the agent is gone. The agent is
//! quicker: it deletes a copy when the last job that uses it ends. [`plan`] decides about one object and is
//! pure.
//!
//! Content comes from the manager at the start of a gang, and is neither kept nor logged.

use crate::error::{Error, Failure, classify, words};
use crate::hub;
use crate::labels::COPIES;
use crate::objects::Answer;
use futures::future::BoxFuture;
use kube::api::{ApiResource, DeleteParams, DynamicObject, ObjectMeta, Preconditions};
use kube::{Api, Client};
use meridian_kubernetes::quiet::QuietApi;
use meridian_kubernetes::{Connection, Permission};
use meridian_objects::job::JobKind;
use meridian_shared::copies::{Content, CopyAnswer, CopyOutcome, CopyRequest};
use meridian_shared::ids::{Fence, OfferId, Uid};
use meridian_shared::protocol::{Reference, ReferenceKind};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

mod plan;

use plan::{Arrival, Departure};

/// Names the agent as the writer of fields.
const WRITER: &str = "meridian-agent";

/// Why the manager gave no answer about copies.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotCopied {
    /// The manager refused, and would refuse again.
    #[error("{0}")]
    Refused(String),
    #[error("{0}")]
    NoAnswer(String),
}

/// Asks the manager for objects of the management cluster.
pub trait CopyAsker: Send + Sync + fmt::Debug {
    fn ask(&self, request: CopyRequest) -> BoxFuture<'static, Result<CopyAnswer, NotCopied>>;
}

/// The kinds that are copied, and the source of the copies.
#[derive(Clone, Debug)]
pub struct Copies {
    kinds: BTreeSet<ReferenceKind>,
    source: Arc<dyn CopyAsker>,
}

impl Copies {
    /// Fails if a permission is missing.
    pub async fn open(
        kinds: BTreeSet<ReferenceKind>,
        source: Arc<dyn CopyAsker>,
        connection: &Connection,
    ) -> Result<Self, Error> {
        let needed: Vec<Permission> = kinds
            .iter()
            .filter_map(|kind| Some(("", kind.copied_plural()?, &["get", "create", "update", "delete"][..])))
            .collect();
        connection.check_permissions(&needed).await?;
        Ok(Self::of(kinds, source))
    }

    pub(crate) fn of(kinds: BTreeSet<ReferenceKind>, source: Arc<dyn CopyAsker>) -> Self {
        Self { kinds, source }
    }

    pub(crate) fn kinds(&self) -> BTreeSet<ReferenceKind> {
        self.kinds.clone()
    }

    pub(crate) fn ask(&self, request: CopyRequest) -> BoxFuture<'static, Result<CopyAnswer, NotCopied>> {
        self.source.ask(request)
    }

    /// Notes in a job, before it is created, which of the objects that its pods name may have to be copied.
    pub(crate) fn mark(&self, kind: &JobKind, job: &mut Value) {
        let mut references = kind.references(job);
        references.retain(|reference| self.kinds.contains(&reference.kind));
        if !references.is_empty() {
            job["metadata"]["annotations"][COPIES] = json!(json!(references).to_string());
        }
    }
}

/// The job that copies belong to.
#[derive(Clone, Debug)]
pub(crate) struct Owner {
    pub(crate) kind: &'static JobKind,
    pub(crate) namespace: String,
    pub(crate) name: String,
    /// The uid of the job's object.
    pub(crate) object_uid: String,
    pub(crate) uid: Uid,
    pub(crate) fence: Fence,
}

/// Makes and deletes copies at one API server.
#[derive(Clone)]
pub(crate) struct Copier {
    client: Client,
    /// `None`: nothing is copied any more; copies of an earlier setting are still deleted.
    copies: Option<Copies>,
}

impl Copier {
    pub(crate) fn new(client: Client, copies: Option<Copies>) -> Self {
        Self { client, copies }
    }

    /// Makes the copies that a job lacks, one after the other. After a failure, a repetition finds the copies
    /// that were made before.
    pub(crate) async fn make(&self, owner: &Owner, offer: OfferId, references: &[Reference]) -> Answer {
        for reference in references {
            match self.make_one(owner, offer, reference).await {
                Answer::Done => {}
                other => return other,
            }
        }
        Answer::Done
    }

    async fn make_one(&self, owner: &Owner, offer: OfferId, reference: &Reference) -> Answer {
        let Some((resource, api)) = self.api(owner, reference) else { return Answer::Done };
        let there = match api.get_metadata(&reference.name).await {
            Ok(object) => Some(object.metadata),
            Err(error) if classify(&error) == Failure::Absent => None,
            Err(error) => return failed(&error),
        };
        let (owners, version) = match plan::arrival(there.as_ref(), owner) {
            Arrival::Nothing => return Answer::Done,
            Arrival::Create { owners } => (owners, None),
            Arrival::Replace { owners, version } => (owners, Some(version)),
        };
        let content = match self.content(owner, offer, reference).await {
            Ok(content) => content,
            Err(answer) => return answer,
        };
        let quiet = QuietApi::new(self.client.clone(), &resource, &owner.namespace);
        let made = plan::manifest(reference, owner, &content, &owners, version.as_deref());
        let written = match version {
            None => quiet.create(&made, WRITER).await,
            Some(_) => quiet.replace(&reference.name, &made, WRITER).await,
        };
        match written {
            Ok(()) => {
                tracing::info!(
                    uid = %owner.uid, fence = %owner.fence, namespace = owner.namespace,
                    kind = reference.kind.name(), name = &*reference.name,
                    "copied from the management cluster"
                );
                Answer::Done
            }
            Err(error) => failed(&error),
        }
    }

    async fn content(&self, owner: &Owner, offer: OfferId, reference: &Reference) -> Result<Content, Answer> {
        let what = format!("{} `{}`", reference.kind.name(), reference.name);
        let refused = |why: &str| Answer::Refused(format!("{what} is not copied: {why}"));
        let unknown = |why: &str| Answer::Unknown(format!("{what} is not copied yet: {why}"));
        let Some(copies) = &self.copies else {
            return Err(refused("the agent's setting `copy-references` is off"));
        };
        let request = CopyRequest {
            uid: owner.uid,
            offer,
            fence: Some(owner.fence),
            references: vec![reference.clone()],
        };
        match copies.ask(request).await.map(|answer| answer.objects.into_iter().next()) {
            Ok(Some(CopyOutcome::Content(content))) => Ok(*content),
            Ok(Some(CopyOutcome::Refused(why))) => Err(refused(&why)),
            Ok(Some(CopyOutcome::Permitted) | None) => Err(unknown("the manager sent no content")),
            Err(NotCopied::Refused(why)) => Err(refused(&why)),
            Err(NotCopied::NoAnswer(why)) => Err(unknown(&why)),
        }
    }

    /// Deletes the copies that no other job uses.
    pub(crate) async fn give_back(&self, owner: &Owner, references: &[Reference]) -> Answer {
        for reference in references {
            match self.give_one_back(owner, reference).await {
                Answer::Done => {}
                other => return other,
            }
        }
        Answer::Done
    }

    async fn give_one_back(&self, owner: &Owner, reference: &Reference) -> Answer {
        let Some((resource, api)) = self.api(owner, reference) else { return Answer::Done };
        let there = match api.get_metadata(&reference.name).await {
            Ok(object) => object.metadata,
            Err(error) if classify(&error) == Failure::Absent => return Answer::Done,
            Err(error) => return failed(&error),
        };
        match plan::departure(&there, owner) {
            Departure::Nothing => Answer::Done,
            Departure::Delete { uid, version } => {
                let preconditions = Some(Preconditions { uid: Some(uid), resource_version: Some(version) });
                let params = DeleteParams { preconditions, ..DeleteParams::background() };
                match api.delete(&reference.name, &params).await {
                    Ok(_) => Answer::Done,
                    Err(error) if classify(&error) == Failure::Absent => Answer::Done,
                    Err(error) => failed(&error),
                }
            }
            Departure::Leave { owners } => {
                let quiet = QuietApi::new(self.client.clone(), &resource, &owner.namespace);
                let mut object = match quiet.get(&reference.name).await {
                    Ok(object) => object,
                    Err(error) => return failed(&error),
                };
                // Replace only the version that was read for the decision: an owner that was added since must
                // not be dropped.
                object["metadata"]["resourceVersion"] = Value::from(there.resource_version);
                object["metadata"]["ownerReferences"] = Value::Array(owners);
                match quiet.replace(&reference.name, &object, WRITER).await {
                    Ok(()) => Answer::Done,
                    Err(error) => failed(&error),
                }
            }
        }
    }

    /// `None` for a kind that is never copied.
    fn api(&self, owner: &Owner, reference: &Reference) -> Option<(ApiResource, Api<DynamicObject>)> {
        let resource = hub::resource("", "v1", reference.kind.name(), reference.kind.copied_plural()?);
        let api = Api::namespaced_with(self.client.clone(), &owner.namespace, &resource);
        Some((resource, api))
    }
}

/// A conflict means that another job got or gave back the same copy, so the object is read again.
fn failed(error: &kube::Error) -> Answer {
    match classify(error) {
        Failure::Refused => Answer::Refused(words(error)),
        Failure::Absent | Failure::Exists | Failure::Conflict | Failure::Unknown => {
            Answer::Unknown(words(error))
        }
    }
}
