//! The fields that the agent uses of a ProvisioningRequest.

use super::moment;
use crate::facts::wall;
use crate::labels::{FINGERPRINT, OFFER, UID};
use kube::api::DynamicObject;
use meridian_shared::ids::{OfferId, Uid};
use meridian_shared::time::Wall;
use serde_json::Value;
use std::collections::BTreeMap;

/// One condition of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Condition {
    pub(crate) holds: bool,
    pub(crate) reason: String,
    pub(crate) message: String,
    /// When the condition last changed.
    pub(crate) since: Option<Wall>,
}

impl Condition {
    /// The condition's reason and message.
    pub(crate) fn words(&self) -> String {
        match (self.reason.is_empty(), self.message.is_empty()) {
            (false, false) => format!("{}: {}", self.reason, self.message),
            (_, true) => self.reason.clone(),
            (true, _) => self.message.clone(),
        }
    }
}

/// The conditions of an object, by type.
pub(super) fn conditions(object: &Value) -> BTreeMap<String, Condition> {
    let text = |from: &Value, name: &str| from.get(name).and_then(Value::as_str).unwrap_or("").to_owned();
    let all = object.pointer("/status/conditions").and_then(Value::as_array).into_iter().flatten();
    all.map(|condition| {
        let read = Condition {
            holds: text(condition, "status") == "True",
            reason: text(condition, "reason"),
            message: text(condition, "message"),
            since: condition.get("lastTransitionTime").and_then(moment),
        };
        (text(condition, "type"), read)
    })
    .collect()
}

/// A ProvisioningRequest, as far as this agent follows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RequestFacts {
    pub(crate) namespace: String,
    pub(crate) name: String,
    /// The offer that it was made for; `None` if the label is damaged.
    pub(crate) offer: Option<OfferId>,
    /// The workload that it was made for; `None` if an older agent made it.
    pub(crate) uid: Option<Uid>,
    /// A hash of everything that it asks for; `None` if an older agent made it.
    pub(crate) fingerprint: Option<String>,
    pub(crate) created: Option<Wall>,
    pub(crate) deleting: bool,
    /// The names of its pod templates.
    pub(crate) templates: Vec<String>,
    pub(crate) conditions: BTreeMap<String, Condition>,
    /// The class's own facts about the nodes (`status.provisioningClassDetails`).
    pub(crate) details: BTreeMap<String, String>,
}

impl RequestFacts {
    pub(crate) fn read(request: &DynamicObject) -> Self {
        let meta = &request.metadata;
        let list = |at: &str| request.data.pointer(at).and_then(Value::as_array).into_iter().flatten();
        let details = request.data.pointer("/status/provisioningClassDetails").and_then(Value::as_object);
        let detail = |(name, value): (&String, &Value)| Some((name.clone(), value.as_str()?.to_owned()));
        Self {
            namespace: meta.namespace.clone().unwrap_or_default(),
            name: meta.name.clone().unwrap_or_default(),
            offer: meta.labels.as_ref().and_then(|labels| labels.get(OFFER)?.parse().ok()),
            uid: meta.labels.as_ref().and_then(|labels| labels.get(UID)?.parse().ok()),
            fingerprint: meta.annotations.as_ref().and_then(|all| all.get(FINGERPRINT).cloned()),
            created: meta.creation_timestamp.as_ref().map(|time| wall(time.0)),
            deleting: meta.deletion_timestamp.is_some(),
            templates: list("/spec/podSets")
                .filter_map(|set| set.pointer("/podTemplateRef/name")?.as_str().map(str::to_owned))
                .collect(),
            conditions: conditions(&request.data),
            details: details.into_iter().flatten().filter_map(detail).collect(),
        }
    }

    /// Namespace and name.
    pub(crate) fn key(&self) -> (String, String) {
        (self.namespace.clone(), self.name.clone())
    }

    /// A condition whose status is `True`.
    pub(crate) fn holds(&self, kind: &str) -> Option<&Condition> {
        self.conditions.get(kind).filter(|condition| condition.holds)
    }
}
