//! One request of a user or an operator.

use crate::sim::fleet::objects::key_of;
use meridian_manager_core::facts::input::Operator;
use meridian_manager_core::facts::key::Key;
use meridian_objects::Kind;
use meridian_shared::ids::Uid;
use serde_json::Value;
use std::fmt;

/// The action that is requested.
#[derive(Clone, Debug)]
pub(crate) enum RequestBody {
    /// These objects are applied.
    Apply(Vec<Value>),
    Remove(Key),
    Submit {
        uid: Uid,
        manifest: Value,
    },
    Delete {
        uid: Uid,
        namespace: String,
        name: String,
    },
    /// A workload is deactivated, or activated again.
    SetActive {
        uid: Uid,
        namespace: String,
        name: String,
        active: bool,
    },
    /// A job gets another number of pods.
    Resize {
        uid: Uid,
        pods: usize,
        manifest: Value,
    },
    Operate(Operator),
}

/// A request that waits for its answer.
#[derive(Clone, Debug)]
pub(crate) struct OpenRequest {
    pub(crate) body: RequestBody,
    /// Number of times that the request was sent.
    pub(crate) tries: u32,
}

impl RequestBody {
    /// Objects with a content that is uncertain until the request is answered.
    pub(crate) fn keys(&self) -> Vec<Key> {
        match self {
            Self::Apply(manifests) => manifests.iter().map(key_of).collect(),
            Self::Remove(key) => vec![key.clone()],
            Self::Operate(Operator::Cordon(c) | Operator::Uncordon(c) | Operator::Drain(c)) => {
                vec![Key::global(Kind::Cluster, c.as_str())]
            }
            _ => Vec::new(),
        }
    }
}

impl fmt::Display for RequestBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Apply(manifests) => {
                f.write_str("apply")?;
                manifests.iter().try_for_each(|m| write!(f, " {}", key_of(m)))
            }
            Self::Remove(key) => write!(f, "remove {key}"),
            Self::Submit { uid, .. } => write!(f, "submit {uid}"),
            Self::Delete { uid, .. } => write!(f, "delete {uid}"),
            Self::SetActive { uid, active: true, .. } => write!(f, "activate {uid}"),
            Self::SetActive { uid, active: false, .. } => write!(f, "deactivate {uid}"),
            Self::Resize { uid, pods, .. } => write!(f, "resize {uid} to {pods} pods"),
            Self::Operate(action) => write!(f, "{action:?}"),
        }
    }
}
