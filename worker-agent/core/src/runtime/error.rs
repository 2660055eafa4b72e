//! The error of the interfaces in this folder.

/// A runner, a provider or an inventory source could not answer. The state behind the interface is *unknown*,
/// which never means *gone*.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct Error(Box<dyn std::error::Error + Send + Sync>);

impl Error {
    pub fn new(cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self(cause.into())
    }
}

/// The answer of an implementation that may have to ask an API server.
pub type Answer<'a, T> = std::pin::Pin<Box<dyn Future<Output = T> + Send + 'a>>;
