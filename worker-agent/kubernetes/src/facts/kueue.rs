//! The fields that the agent uses of a Workload of the cluster's own Kueue.

use super::provisioning::{Condition, conditions};
use crate::labels::OFFER;
use kube::api::DynamicObject;
use meridian_shared::ids::OfferId;
use serde_json::Value;
use std::collections::BTreeMap;

/// A Workload that an agent made for an offer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct WorkloadFacts {
    pub(crate) namespace: String,
    pub(crate) name: String,
    /// The LocalQueue of its namespace.
    pub(crate) queue: String,
    /// `None` if the label is damaged.
    pub(crate) offer: Option<OfferId>,
    pub(crate) deleting: bool,
    pub(crate) conditions: BTreeMap<String, Condition>,
}

impl WorkloadFacts {
    pub(crate) fn read(workload: &DynamicObject) -> Self {
        let meta = &workload.metadata;
        let queue = workload.data.pointer("/spec/queueName").and_then(Value::as_str);
        Self {
            namespace: meta.namespace.clone().unwrap_or_default(),
            name: meta.name.clone().unwrap_or_default(),
            queue: queue.unwrap_or_default().to_owned(),
            offer: meta.labels.as_ref().and_then(|labels| labels.get(OFFER)?.parse().ok()),
            deleting: meta.deletion_timestamp.is_some(),
            conditions: conditions(&workload.data),
        }
    }

    /// A condition whose status is `True`.
    pub(crate) fn holds(&self, kind: &str) -> Option<&Condition> {
        self.conditions.get(kind).filter(|condition| condition.holds)
    }
}
