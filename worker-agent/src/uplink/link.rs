//! The connection to the manager that syncs, logs and renewals share.

use super::Error;
use crate::identity;
use meridian_telemetry::with_causes;
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

/// Characters of a failed answer that are shown.
const TEXT_CHARS_MAX: usize = 400;
/// Bytes of a failed answer that are read.
const FAILED_BYTES_MAX: usize = 64 << 10;

type Connect = dyn Fn() -> Result<reqwest::Client, Error> + Send + Sync;

/// The manager's address and the current client. Clones share the client. Requests in flight keep the client
/// that they began with, so a swap drops nothing.
#[derive(Clone)]
pub struct Link {
    manager: Arc<str>,
    connect: Arc<Connect>,
    client: Arc<RwLock<reqwest::Client>>,
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("manager", &self.manager).finish_non_exhaustive()
    }
}

impl Link {
    /// A link to `manager` (`https://HOST:PORT`); `connect` makes a client with the current identity. Fails
    /// if that fails.
    pub fn open(
        manager: &str,
        connect: impl Fn() -> Result<reqwest::Client, Error> + Send + Sync + 'static,
    ) -> Result<Self, Error> {
        let client = connect()?;
        Ok(Self {
            manager: manager.trim_end_matches('/').into(),
            connect: Arc::new(connect),
            client: Arc::new(RwLock::new(client)),
        })
    }

    /// A link without an identity, for tests.
    #[cfg(test)]
    pub(crate) fn plain(manager: &str, client: impl Fn() -> reqwest::Client + Send + Sync + 'static) -> Self {
        Self::open(manager, move || Ok(client())).expect("such a client can be made")
    }

    /// The current client.
    pub fn client(&self) -> reqwest::Client {
        self.client.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Makes a new client with new connections and the current identity. If that fails, the old client stays.
    pub fn reconnect(&self) {
        match (self.connect)() {
            Ok(client) => *self.client.write().unwrap_or_else(PoisonError::into_inner) = client,
            Err(error) => tracing::error!("the old connection stays: {}", with_causes(&error)),
        }
    }

    /// The full address of `path`.
    pub fn url(&self, path: &str) -> String {
        format!("{}{path}", self.manager)
    }
}

/// The body of a successful answer. Fails for other answers, and for a body longer than `bytes_max`.
pub(crate) async fn body(mut response: reqwest::Response, bytes_max: usize) -> Result<Vec<u8>, Error> {
    let status = response.status();
    let bytes_max = if status.is_success() { bytes_max } else { FAILED_BYTES_MAX };
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(Error::Unreachable)? {
        if body.len() + chunk.len() > bytes_max {
            return Err(Error::TooLong { what: "the manager's answer", bytes_max });
        }
        body.extend_from_slice(&chunk);
    }
    if status.is_success() {
        return Ok(body);
    }
    let text = identity::message_of(&body);
    Err(match status {
        reqwest::StatusCode::FORBIDDEN => Error::Locked(text),
        status => Error::Status { status: status.as_u16(), text },
    })
}

/// Foreign text without control characters, so that a terminal does not act on it.
pub(crate) fn printable(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(TEXT_CHARS_MAX).collect()
}
