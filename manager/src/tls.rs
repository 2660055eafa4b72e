//! The manager's certificate authorities, its one port, and the identity of each peer.
//!
//! ```text
//! ca        two authorities and the receipt key in one directory; issues all certificates
//! token     mints join tokens (the core records their cluster, expiry and use)
//! verifier  client certificates are optional; expired ones are accepted, for renewals
//! limits    how many connections of each class there may be, and how long they may be silent
//! shares    the class of each connection, and which one is cut when a share is full
//! listener  handshakes in separate tasks; finished streams carry their `Peer` and can be cut
//! activity  what a connection does, and when it is closed for doing nothing
//! serve     HTTP/1.1 and HTTP/2 over those streams, with keep-alive and an orderly shutdown
//! ```
//!
//! This module must not know the permissions of peers: revocation, tokens and paths belong to the handlers,
//! which get the [`Peer`] as a request extension. Invariant: a [`Peer`] names a cluster only if its
//! certificate was verified against the agents' authority, and the client proved to hold its key, on this
//! very connection.

mod activity;
pub mod ca;
pub mod limits;
pub mod listener;
pub mod peer;
pub mod serve;
mod shares;
pub mod token;
mod verifier;

pub use ca::{Authorities, Issued, ServerTls};
pub use listener::TlsListener;
pub use peer::{AgentIdentity, Connections, Peer};
pub use serve::serve;
pub(crate) use shares::Address;
pub use shares::ConnectionClass;

use std::path::PathBuf;

/// Why keys, certificates or requests for them can't be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    File(#[from] meridian_private_files::Error),
    #[error(
        "`{}` is not a valid authority: {reason}; restore the file from a backup (removing it creates a new \
         authority, after which every agent must join again)",
        path.display()
    )]
    Unusable { path: PathBuf, reason: String },
    #[error(transparent)]
    Random(#[from] crate::random::Error),
    #[error("the signing request is refused: {0}")]
    Request(String),
    #[error("`{0}` is not a valid cluster name: use lower-case letters, digits, `-` and `.`")]
    ClusterName(String),
    /// A name for the server's certificate is neither a host name nor an address.
    #[error(
        "`{name}` can't be used in the server's certificate: {reason}; give a host name or an IP address"
    )]
    ServerName { name: String, reason: String },
    #[error("cannot create a certificate for {what}")]
    Issue {
        what: &'static str,
        #[source]
        source: rcgen::Error,
    },
    #[error("cannot set up TLS")]
    Tls(#[from] rustls::Error),
}
