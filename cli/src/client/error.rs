//! Why a request to the manager failed.

use super::status::Status;

#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The kubeconfig's access can't be made into a client.
    #[error("can't use the kubeconfig: {0}")]
    Setup(String),
    #[error("can't reach the manager at `{server}`: {why}")]
    Unreachable {
        server: String,
        why: String,
        /// Whether the request certainly didn't reach the manager.
        unsent: bool,
    },
    #[error(transparent)]
    Status(Box<Status>),
    #[error("can't read the manager's answer to {request}: {why}")]
    Malformed { request: String, why: String },
    #[error("the watch failed {tries} times in a row: {source}")]
    WatchLost {
        tries: u32,
        #[source]
        source: Box<Error>,
    },
    /// A log that isn't followed ended early.
    #[error("the log is incomplete: the connection to the manager or the cluster's agent broke; try again")]
    LogBroken,
    #[error("the log broke and could not be resumed in {tries} tries: {why}")]
    LogLost { tries: u32, why: String },
}

impl Error {
    /// The manager's refusal, if the error is one.
    pub(crate) fn status(&self) -> Option<&Status> {
        match self {
            Self::Status(status) => Some(status),
            _ => None,
        }
    }

    pub(crate) fn is_not_found(&self) -> bool {
        self.status().is_some_and(|status| status.code == 404)
    }

    pub(crate) fn is_forbidden(&self) -> bool {
        self.status().is_some_and(|status| status.code == 403)
    }

    pub(crate) fn is_already_exists(&self) -> bool {
        self.status().is_some_and(|status| status.reason == "AlreadyExists")
    }

    /// Whether the resource version of a watch or page has expired, so that a new list is needed.
    pub(super) fn is_expired(&self) -> bool {
        self.status().is_some_and(|status| status.code == 410)
    }

    /// Whether the same request may succeed a little later.
    pub(crate) fn is_temporary(&self) -> bool {
        match self {
            Self::Unreachable { .. } => true,
            Self::Status(status) => matches!(status.code, 429 | 502..=504),
            _ => false,
        }
    }
}

/// An error and its causes, each once.
pub(super) fn with_causes(error: &dyn std::error::Error) -> String {
    let mut messages = vec![error.to_string()];
    let mut next = error.source();
    while let Some(cause) = next {
        let text = cause.to_string();
        if !messages.iter().any(|message| message.contains(&text)) {
            messages.push(text);
        }
        next = cause.source();
    }
    // reqwest's first message is only the URL; the error that contains this text names the server.
    if messages.len() > 1 && messages[0].starts_with("error sending request") {
        messages.remove(0);
    }
    messages.join(": ")
}
