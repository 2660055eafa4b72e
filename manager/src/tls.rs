//! Who may connect, and as whom: the manager's own authorities, its one port, and the identity of each peer.
//!
//! ```text
//! ca        two authorities and the receipt key in one directory; issues agents' and the server's certificates
//! token     join tokens: minting and comparing (which cluster, until when, used: the core's records say)
//! verifier  client certificates are optional; an expired one passes, marked
//! listener  handshakes in bounded tasks; finished streams carry their `Peer` and can be cut
//! serve     HTTP/1.1 and HTTP/2 over those streams, with keep-alive and an orderly end
//! ```
//!
//! It must not know what a peer may do: revocation, tokens' records and paths belong to the handlers, which get the
//! [`Peer`] as a request extension. Invariant: a [`Peer`] names a cluster only when its certificate was verified against
//! the agents' authority, and the client proved to hold its key, on this very connection.

pub mod ca;
pub mod listener;
pub mod peer;
pub mod serve;
pub mod token;
mod verifier;

pub use ca::{Authorities, Issued, ServerTls};
pub use listener::TlsListener;
pub use peer::{AgentIdentity, Connections, Peer, Standing};
pub use serve::serve;

use std::path::PathBuf;

/// What went wrong with keys, certificates or requests for them.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A key file can't be read or written.
    #[error(transparent)]
    File(#[from] meridian_private_files::Error),
    /// A key file holds something else.
    #[error("`{}` is not a usable authority: {reason}; restore the file from a backup (removing it makes a new authority, after which every agent must join again)", path.display())]
    Unusable {
        /// Which file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The system's random source failed.
    #[error("the system's random source failed: {0}")]
    Random(String),
    /// An agent's signing request is refused.
    #[error("the signing request is refused: {0}")]
    Request(String),
    /// A name can't stand in a certificate.
    #[error("`{0}` is not a cluster name; use lower-case letters, digits, `-` and `.`")]
    ClusterName(String),
    /// A name for the server's own certificate is neither a host name nor an address.
    #[error("`{name}` can't stand in the server's certificate: {reason}; give a host name or an IP address")]
    ServerName {
        /// The name.
        name: String,
        /// Why not.
        reason: String,
    },
    /// A certificate can't be made.
    #[error("cannot make a certificate for {what}")]
    Issue {
        /// For whom.
        what: &'static str,
        /// Why not.
        #[source]
        source: rcgen::Error,
    },
    /// The TLS library refuses our own settings.
    #[error("cannot set up TLS")]
    Tls(#[from] rustls::Error),
}
