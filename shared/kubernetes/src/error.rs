//! Errors of an API server: their text, and their consequence.

use kube::core::Status;
use std::path::PathBuf;

/// A request or a connection failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot use the kubeconfig `{}`: {source}", path.display())]
    Kubeconfig {
        path: PathBuf,
        #[source]
        source: Box<kube::config::KubeconfigError>,
    },
    #[error(
        "the text is no kubeconfig: it must be YAML with `clusters`, `users` and `contexts` (`kubectl config \
         view --raw --flatten` prints one)"
    )]
    KubeconfigMalformed,
    #[error("the kubeconfig can't be used: {0}")]
    KubeconfigText(#[source] Box<kube::config::KubeconfigError>),
    #[error(
        "the kubeconfig has {field}: it must contain, not refer to, its API server's address and authority, \
         and a token or a client certificate (`kubectl config view --raw --flatten`)"
    )]
    KubeconfigField { field: &'static str },
    #[error(
        "this process is not in a pod of a Kubernetes cluster ({0}): give `--kubeconfig FILE`, or run it as \
         a pod with a service account"
    )]
    NotInAPod(#[source] Box<kube::config::InClusterError>),
    #[error(
        "the kubeconfig says `insecure-skip-tls-verify`, so anything could answer in the API server's place: \
         write its authority into `certificate-authority-data`"
    )]
    Insecure,
    #[error("the API server is Kubernetes {found}; the {program} needs 1.{minor_min} or later, for {needs}")]
    TooOld { program: &'static str, found: String, minor_min: u32, needs: &'static str },
    #[error(
        "the {program}'s account may not {}: apply the {program} chart's RBAC rules (`kubernetes.*` in its \
         values)",
        missing.join(", nor ")
    )]
    Forbidden { program: &'static str, missing: Vec<String> },
    #[error(
        "the API server `{server}` is of another cluster than before (its namespace `kube-system` has uid \
         {found}, and not {was}), so it can't say which jobs were deleted: give the former cluster's \
         kubeconfig. If this cluster replaces that one, and has its objects, delete `{}`",
        file.display()
    )]
    AnotherCluster {
        server: String,
        was: String,
        found: String,
        /// File with the uid of the former cluster's namespace.
        file: PathBuf,
    },
    #[error(
        "another manager acts for this management cluster: the one {owner}. A cluster has one manager, so \
         this one, {own}, doesn't act for it. If the other manager was uninstalled, has moved, or has a new \
         data directory, release its claim with `{release}`"
    )]
    AnotherManager {
        /// The installation that acts for the cluster, for people.
        owner: String,
        /// This installation, for people.
        own: String,
        /// The command that releases the other installation's claim.
        release: String,
    },
    #[error("cannot {doing}: {}", words(source))]
    Request {
        /// The failed action: a verb and its object.
        doing: String,
        #[source]
        source: Box<kube::Error>,
    },
    #[error("cannot {doing}: no answer within {seconds} s")]
    NoAnswer { doing: String, seconds: u64 },
}

impl Error {
    /// Whether another manager acts for the management cluster.
    pub fn is_another_manager(&self) -> bool {
        matches!(self, Self::AnotherManager { .. })
    }

    /// Whether the API server has no such object or resource.
    pub fn is_absent(&self) -> bool {
        matches!(self, Self::Request { source, .. } if classify(source) == Failure::Absent)
    }

    /// Whether the API server understood the request and refused it.
    pub fn is_refused(&self) -> bool {
        matches!(self, Self::Request { source, .. } if classify(source) == Failure::Refused)
    }

    /// Whether the settings of this process are wrong, so that a retry can't succeed. Unreachable servers and
    /// missing permissions are not lasting.
    pub fn is_lasting(&self) -> bool {
        match self {
            Self::Kubeconfig { .. }
            | Self::KubeconfigMalformed
            | Self::KubeconfigText(_)
            | Self::KubeconfigField { .. }
            | Self::NotInAPod(_)
            | Self::Insecure => true,
            Self::TooOld { .. }
            | Self::Forbidden { .. }
            | Self::AnotherCluster { .. }
            | Self::AnotherManager { .. }
            | Self::Request { .. }
            | Self::NoAnswer { .. } => false,
        }
    }

    /// A failed request; `doing` is a verb and its object.
    pub fn request(doing: impl Into<String>, source: kube::Error) -> Self {
        Self::Request { doing: doing.into(), source: Box::new(source) }
    }
}

/// Consequence of a failed request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The outcome is unknown: the request may have been carried out or not.
    Unknown,
    /// The object does not exist.
    Absent,
    /// An object of that name exists.
    Exists,
    /// The object changed since it was read.
    Conflict,
    /// The server understood and refused the request.
    Refused,
}

/// The consequence of an error.
pub fn classify(error: &kube::Error) -> Failure {
    let kube::Error::Api(status) = error else { return Failure::Unknown };
    match (status.code, status.reason.as_str()) {
        (409, "AlreadyExists") => Failure::Exists,
        (409, _) => Failure::Conflict,
        (404, _) => Failure::Absent,
        (400 | 403 | 405 | 413 | 415 | 422, _) => Failure::Refused,
        // 401 counts as temporary too, because the client renews credentials by itself.
        _ => Failure::Unknown,
    }
}

/// The server's own message, without the debug form of its status.
pub fn words(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status_words(status),
        other => {
            let mut text = other.to_string();
            let mut cause = std::error::Error::source(other);
            while let Some(next) = cause {
                let more = next.to_string();
                if !text.contains(&more) {
                    text = format!("{text}: {more}");
                }
                cause = next.source();
            }
            text
        }
    }
}

fn status_words(status: &Status) -> String {
    match (status.message.is_empty(), status.reason.is_empty()) {
        (false, _) => status.message.clone(),
        (true, false) => format!("HTTP status {} ({})", status.code, status.reason),
        (true, true) => format!("HTTP status {}", status.code),
    }
}
