//! What goes into the core and what comes out. Closed enums: a new kind of input is a new line here.

use meridian_shared::ids::ClusterName;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Who caused something: `user:NAME`, `agent:CLUSTER` or `system`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Actor(pub Arc<str>);

impl Actor {
    /// The manager itself.
    pub fn system() -> Self {
        Self(Arc::from("system"))
    }

    /// A person or a program with a user's identity.
    pub fn user(name: &str) -> Self {
        Self(Arc::from(format!("user:{name}")))
    }

    /// A worker agent.
    pub fn agent(cluster: &ClusterName) -> Self {
        Self(Arc::from(format!("agent:{cluster}")))
    }
}

/// Actor of timers and decisions that nobody asked for.
pub(crate) fn system() -> Actor {
    Actor::system()
}
