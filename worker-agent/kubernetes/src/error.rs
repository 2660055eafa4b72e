//! Errors of the runner, the provider and the connection.

pub(crate) use meridian_kubernetes::error::{Failure, classify, words};

/// A request or a connection failed, or an order names an unknown attempt.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Server(#[from] meridian_kubernetes::Error),
    #[error(
        "the cluster doesn't serve `{versions}` of `{api}`: install the ProvisioningRequest API and an \
         autoscaler that follows it, or leave the provider out"
    )]
    NotServed { api: &'static str, versions: String },
    #[error(
        "the cluster doesn't serve `{versions}` of `{api}`: install Kueue there, or choose another \
         `--hold`"
    )]
    NoKueue { api: &'static str, versions: String },
    #[error("no attempt `{uid}` under fence `{fence}` is known here")]
    UnknownRun { uid: String, fence: String },
}

impl Error {
    /// Whether only a change of the cluster helps: an API that it must serve, or a permission.
    pub const fn needs_an_operator(&self) -> bool {
        matches!(self, Self::NotServed { .. } | Self::Server(meridian_kubernetes::Error::Forbidden { .. }))
    }
}

impl From<Error> for meridian_agent_core::runtime::Error {
    fn from(error: Error) -> Self {
        Self::new(error)
    }
}
