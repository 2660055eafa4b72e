//! The identity of this agent: joining a manager, renewing the certificate, and connections that use it.
//!
//! ```text
//! identity   the stored identity: one file, whole or absent
//! exchange   join and renew: a key, a signing request, and an answer that is checked before it is stored
//! pin        the verifier of the first connection, which knows only a hash
//! http       settings of every HTTP connection to the manager
//! ```
//!
//! Knows no leases, sessions or runners. Invariants: the private key is made here and never leaves the
//! directory; key, certificate and cluster are checked to fit together before they are stored; after the join
//! only the manager's own authority is trusted, never those of the system.

mod exchange;
mod http;
mod pin;

pub(crate) use exchange::message_of;
pub use exchange::{join, join_by_issuer, renew};

use meridian_private_files as files;
use meridian_shared::identity::{CaPin, parse_agent_uri};
use meridian_shared::ids::{ClusterName, Jurisdiction, Region};
use meridian_shared::time::Wall;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::sync::watch;
use x509_parser::extensions::GeneralName;

/// The file in the agent's directory.
const FILE: &str = "identity.json";
/// Version of the file.
const FILE_VERSION: u32 = 1;

/// Errors of the agent's identity.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    File(#[from] files::Error),
    #[error(
        "this agent has already joined as `{cluster}`; to join anew use another directory, or remove `{}` \
         first",
        path.display()
    )]
    AlreadyJoined { cluster: ClusterName, path: PathBuf },
    #[error("no identity in `{}`; run the command that `meridian cluster join` prints", dir.display())]
    NotJoined { dir: PathBuf },
    /// The stored identity is damaged.
    #[error(
        "`{}` is not a usable identity: {reason}; remove it and join again with `meridian cluster join NAME \
         --replace`",
        path.display()
    )]
    Unusable { path: PathBuf, reason: String },
    #[error("`{url}` is not a manager's address: {reason}; it looks like `https://manager.example:7443`")]
    Address { url: String, reason: String },
    /// The server's authority isn't the pinned one.
    #[error(
        "the manager at `{manager}` shows {found}, but the join command pins `{expected}`; the token was not \
         sent: either the address belongs to another manager, or something in between rewrites TLS, or the \
         command is older than the manager's authority; print a fresh command with `meridian cluster join`"
    )]
    Pin {
        /// Address of the manager.
        manager: String,
        expected: CaPin,
        /// A description of what was shown.
        found: String,
    },
    #[error("cannot reach the manager at `{manager}`")]
    Unreachable {
        /// Address of the manager.
        manager: String,
        #[source]
        source: reqwest::Error,
    },
    #[error("the manager refused to {what} (HTTP {status}): {message}")]
    Refused {
        /// The request, as a verb and its object.
        what: &'static str,
        status: u16,
        /// The manager's text, without control characters.
        message: String,
    },
    #[error("the manager's answer can't be used: {0}")]
    Answer(String),
    #[error("cannot make a key or a signing request")]
    Key(#[from] rcgen::Error),
    #[error("cannot set up TLS")]
    Tls(#[from] rustls::Error),
}

/// The stored identity. Its debug form contains no key.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Identity {
    version: u32,
    /// Address as `https://HOST:PORT`.
    pub manager: String,
    /// The cluster that the certificate names.
    pub cluster: ClusterName,
    /// The cluster's region, as declared at the manager.
    pub region: Region,
    /// The cluster's jurisdiction, as declared at the manager.
    pub jurisdiction: Jurisdiction,
    /// Start of the certificate's validity.
    pub not_before: Wall,
    /// End of the certificate's validity.
    pub not_after: Wall,
    certificate_pem: String,
    ca_pem: String,
    key_pem: String,
}

impl std::fmt::Debug for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Identity")
            .field("manager", &self.manager)
            .field("cluster", &self.cluster)
            .field("region", &self.region)
            .field("jurisdiction", &self.jurisdiction)
            .field("not_after", &self.not_after)
            .finish_non_exhaustive()
    }
}

impl Identity {
    /// Loads the identity in `dir`, if there is one. Fails if it can't be read or its parts don't fit
    /// together.
    pub fn load(dir: &Path) -> Result<Option<Self>, Error> {
        let path = dir.join(FILE);
        let Some(text) = files::read(&path)? else { return Ok(None) };
        let unusable = |reason: String| Error::Unusable { path: path.clone(), reason };
        let identity: Self = serde_json::from_str(&text).map_err(|e| unusable(e.to_string()))?;
        if identity.version != FILE_VERSION {
            return Err(unusable(format!(
                "its version is {}, this agent knows {FILE_VERSION}",
                identity.version
            )));
        }
        identity.check().map_err(unusable)?;
        Ok(Some(identity))
    }

    fn store(&self, dir: &Path) -> Result<(), Error> {
        let text = serde_json::to_string_pretty(self).expect("an identity is plain data");
        Ok(files::replace(&dir.join(FILE), &text)?)
    }

    /// TLS settings: this certificate, only the manager's authority, HTTP/2. Fails if the identity is
    /// damaged.
    pub fn client_config(&self) -> Result<rustls::ClientConfig, Error> {
        let damaged = |what: &str| Error::Answer(format!("unreadable {what}"));
        let certificate = CertificateDer::from_pem_slice(self.certificate_pem.as_bytes())
            .map_err(|_| damaged("certificate"))?;
        let key = PrivateKeyDer::from_pem_slice(self.key_pem.as_bytes()).map_err(|_| damaged("key"))?;
        let ca = CertificateDer::from_pem_slice(self.ca_pem.as_bytes()).map_err(|_| damaged("authority"))?;
        http::client_config(ca, Some((certificate, key)))
    }

    /// A client for requests to the manager: HTTP/2 over mutual TLS, without retries and redirects of the
    /// library. It has no timeout, because syncs are long polls; every request sets its own. Fails if the
    /// identity is damaged.
    pub fn http_client(&self) -> Result<reqwest::Client, Error> {
        http::client(self.client_config()?, &self.manager)
    }

    /// When to renew: after two thirds of the lifetime, shifted by up to a twenty-fourth either way, so that
    /// agents that joined at the same time do not renew at the same time. `jitter` is any random number, the
    /// same for this certificate.
    pub fn renew_at(&self, jitter: u64) -> Wall {
        let lifetime = self.not_after.since(self.not_before).0;
        let window = lifetime / 12;
        let moved = if window == 0 { 0 } else { jitter % window };
        let after = lifetime / 3 * 2 - window / 2 + moved;
        Wall(self.not_before.0.saturating_add(i64::try_from(after).unwrap_or(i64::MAX)))
    }

    /// Checks that key, certificate, cluster and dates fit together. Fails with what does not.
    fn check(&self) -> Result<(), String> {
        let key = rcgen::KeyPair::from_pem(&self.key_pem).map_err(|e| format!("unreadable key: {e}"))?;
        let ca = CertificateDer::from_pem_slice(self.ca_pem.as_bytes())
            .map_err(|e| format!("unreadable authority: {e}"))?;
        x509_parser::parse_x509_certificate(&ca).map_err(|e| format!("unreadable authority: {e}"))?;
        let der = CertificateDer::from_pem_slice(self.certificate_pem.as_bytes())
            .map_err(|e| format!("unreadable certificate: {e}"))?;
        let (_, certificate) =
            x509_parser::parse_x509_certificate(&der).map_err(|e| format!("unreadable certificate: {e}"))?;
        if certificate.public_key().raw != rcgen::PublicKeyData::subject_public_key_info(&key) {
            return Err("the certificate is for another key".to_owned());
        }
        let names = certificate
            .subject_alternative_name()
            .ok()
            .flatten()
            .map(|e| e.value.general_names.clone())
            .unwrap_or_default();
        match names.as_slice() {
            [GeneralName::URI(uri)]
                if parse_agent_uri(uri).is_some_and(|(cluster, _)| cluster == self.cluster) => {}
            _ => {
                return Err(format!("the certificate must name cluster `{}` and nothing else", self.cluster));
            }
        }
        let validity = certificate.validity();
        if (validity.not_before.timestamp() * 1_000, validity.not_after.timestamp() * 1_000)
            != (self.not_before.0, self.not_after.0)
        {
            return Err("the certificate has other dates".to_owned());
        }
        Ok(())
    }
}

/// Whether there is an identity in `dir`.
pub fn is_joined(dir: &Path) -> bool {
    dir.join(FILE).exists()
}

/// The identity in use: stored on disk, renewed in place, watched by the holders of connections.
#[derive(Debug)]
pub struct Keeper {
    dir: PathBuf,
    current: watch::Sender<Arc<Identity>>,
}

impl Keeper {
    /// Opens the identity in `dir`. Fails if there is none, or it can't be used.
    pub fn open(dir: &Path) -> Result<Self, Error> {
        let identity = Identity::load(dir)?.ok_or_else(|| Error::NotJoined { dir: dir.to_owned() })?;
        Ok(Self { dir: dir.to_owned(), current: watch::Sender::new(Arc::new(identity)) })
    }

    /// The current identity.
    pub fn current(&self) -> Arc<Identity> {
        self.current.borrow().clone()
    }

    /// Notifies of every new identity, so that a holder of a client can make a new one.
    pub fn subscribe(&self) -> watch::Receiver<Arc<Identity>> {
        self.current.subscribe()
    }

    /// Changes the manager's address; stored with the next renewal. Fails if the address is not valid.
    pub fn move_to(&self, manager: &str) -> Result<(), Error> {
        let manager = exchange::checked_address(manager)?;
        self.current.send_modify(|identity| Arc::make_mut(identity).manager = manager);
        Ok(())
    }

    /// Requests the next certificate over `client`, stores it, then swaps it in. If that fails the current
    /// one stays.
    pub async fn renew(&self, client: &reqwest::Client) -> Result<(), Error> {
        let next = renew(&self.current(), client, &self.dir).await?;
        tracing::info!(cluster = %next.cluster, "renewed the certificate");
        self.current.send_replace(Arc::new(next));
        Ok(())
    }
}
