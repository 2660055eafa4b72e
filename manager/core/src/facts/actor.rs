//! The user, agent or manager that caused a record.

use meridian_shared::ids::ClusterName;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::fmt;
use std::sync::Arc;

/// The cause of a record. Serialised as `system`, `management-cluster`, `user:NAME` or `agent:CLUSTER`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Actor {
    /// The manager itself: its timers and its own decisions.
    System,
    /// The Kubernetes management cluster: somebody changed an object there.
    ManagementCluster,
    /// A person or a program that authenticated as a user.
    User(Arc<str>),
    Agent(ClusterName),
}

impl Actor {
    pub fn user(name: &str) -> Self {
        Self::User(Arc::from(name))
    }

    pub fn agent(cluster: &ClusterName) -> Self {
        Self::Agent(cluster.clone())
    }
}

impl fmt::Display for Actor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::System => f.write_str("system"),
            Self::ManagementCluster => f.write_str("management-cluster"),
            Self::User(name) => write!(f, "user:{name}"),
            Self::Agent(cluster) => write!(f, "agent:{cluster}"),
        }
    }
}

impl Serialize for Actor {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Actor {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(d)?;
        match text.split_once(':') {
            None if text == "system" => Ok(Self::System),
            None if text == "management-cluster" => Ok(Self::ManagementCluster),
            Some(("user", name)) => Ok(Self::user(name)),
            Some(("agent", cluster)) => Ok(Self::Agent(ClusterName::from(cluster))),
            _ => Err(de::Error::custom(format!(
                "`{text}` is neither `system`, `management-cluster`, `user:NAME` nor `agent:CLUSTER`"
            ))),
        }
    }
}
