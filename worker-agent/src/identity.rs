//! Who this agent is to its manager: joining, keeping the certificate fresh, and connections that prove it.
//!
//! ```text
//! identity   what is kept: one file, whole or absent
//! exchange   join and renew: a key, a signing request, an answer that is checked before it is kept
//! pin        the verifier of the first connection, which knows nothing but a hash
//! http       one HTTP client's settings, the same for every connection to the manager
//! ```
//!
//! It must not know leases, sessions or runners. Invariants: a private key is made here and never leaves the directory;
//! what is stored was checked to fit together (key, certificate, cluster); after the join only the manager's own authority
//! is trusted, never the system's.

mod exchange;
mod http;
mod pin;

pub use exchange::{join, renew};

use meridian_private_files as files;
use meridian_shared::identity::{CaPin, agent_uri};
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
/// Raised when the file's shape changes.
const FILE_VERSION: u32 = 1;

/// What went wrong between an agent and its manager's authority.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file can't be read or written.
    #[error(transparent)]
    File(#[from] files::Error),
    /// There is an identity already.
    #[error("this agent has already joined as `{cluster}`; to join anew give another directory, or remove `{}` first", path.display())]
    AlreadyJoined {
        /// As whom.
        cluster: ClusterName,
        /// Where it is kept.
        path: PathBuf,
    },
    /// There is no identity yet.
    #[error("no identity in `{}`; run the command that `meridian cluster join` prints", dir.display())]
    NotJoined {
        /// Where it was looked for.
        dir: PathBuf,
    },
    /// The kept identity is damaged.
    #[error("`{}` is not a usable identity: {reason}; remove it and join again with `meridian cluster join NAME --replace`", path.display())]
    Unusable {
        /// Which file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// The address can't be used.
    #[error("`{url}` is not a manager's address: {reason}; it looks like `https://manager.example:7443`")]
    Address {
        /// The address.
        url: String,
        /// What is wrong.
        reason: String,
    },
    /// Another authority than the pinned one answered.
    #[error(
        "the manager at `{manager}` shows {found}, but the join command pins `{expected}`; the token was not sent: either the address is another manager's, or something between rewrites TLS, or the command is older than the manager's authority; print a fresh command with `meridian cluster join`"
    )]
    Pin {
        /// Its address.
        manager: String,
        /// What was pinned.
        expected: CaPin,
        /// What was shown, in words.
        found: String,
    },
    /// No answer.
    #[error("cannot reach the manager at `{manager}`")]
    Unreachable {
        /// Its address.
        manager: String,
        /// Why not.
        #[source]
        source: reqwest::Error,
    },
    /// The manager said no.
    #[error("the manager refused to {what} (HTTP {status}): {message}")]
    Refused {
        /// What was asked.
        what: &'static str,
        /// Its status.
        status: u16,
        /// Its words, made safe to show.
        message: String,
    },
    /// The manager's answer makes no sense.
    #[error("the manager's answer can't be used: {0}")]
    Answer(String),
    /// A key or a signing request can't be made.
    #[error("cannot make a key or a signing request")]
    Key(#[from] rcgen::Error),
    /// The TLS library refuses our own settings.
    #[error("cannot set up TLS")]
    Tls(#[from] rustls::Error),
}

/// All that makes this agent itself. The debug form shows no key.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Identity {
    version: u32,
    /// `https://HOST:PORT` of the manager.
    pub manager: String,
    /// The cluster that the certificate names.
    pub cluster: ClusterName,
    /// Where the manager says it is.
    pub region: Region,
    /// Under whose law.
    pub jurisdiction: Jurisdiction,
    /// First moment of the certificate.
    pub not_before: Wall,
    /// Last moment of the certificate.
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
    /// The identity kept in `dir`, if any.
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

    /// Settings for TLS: our certificate, the manager's authority and no other, HTTP/2.
    pub fn client_config(&self) -> Result<rustls::ClientConfig, Error> {
        let damaged = |what: &str| Error::Answer(format!("unreadable {what}"));
        let certificate = CertificateDer::from_pem_slice(self.certificate_pem.as_bytes())
            .map_err(|_| damaged("certificate"))?;
        let key = PrivateKeyDer::from_pem_slice(self.key_pem.as_bytes()).map_err(|_| damaged("key"))?;
        let ca = CertificateDer::from_pem_slice(self.ca_pem.as_bytes()).map_err(|_| damaged("authority"))?;
        http::client_config(ca, Some((certificate, key)))
    }

    /// A client for requests to the manager: HTTP/2 over mutual TLS, nothing retried or redirected behind our back. It has
    /// no overall time limit, because syncs are long polls: every request sets its own.
    pub fn http_client(&self) -> Result<reqwest::Client, Error> {
        http::client(self.client_config()?, &self.manager)
    }

    /// When to renew: two thirds of the lifetime, moved by up to a twenty-fourth of it either way, so that agents that joined
    /// together do not renew together. `jitter` is any random number, kept for the life of this certificate.
    pub fn renew_at(&self, jitter: u64) -> Wall {
        let lifetime = self.not_after.since(self.not_before).0;
        let window = lifetime / 12;
        let moved = if window == 0 { 0 } else { jitter % window };
        let after = lifetime / 3 * 2 - window / 2 + moved;
        Wall(self.not_before.0.saturating_add(i64::try_from(after).unwrap_or(i64::MAX)))
    }

    /// Whether the parts fit together; otherwise what does not.
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
        let expected = agent_uri(&self.cluster);
        let names = certificate
            .subject_alternative_name()
            .ok()
            .flatten()
            .map(|e| e.value.general_names.clone())
            .unwrap_or_default();
        match names.as_slice() {
            [GeneralName::URI(uri)] if *uri == expected => {}
            _ => return Err(format!("the certificate does not name `{expected}` and nothing else")),
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

/// Whether an agent has joined that keeps what it is in `dir`.
pub fn is_joined(dir: &Path) -> bool {
    dir.join(FILE).exists()
}

/// The identity in use: kept on the disk, renewed in place, watched by whoever holds connections.
#[derive(Debug)]
pub struct Keeper {
    dir: PathBuf,
    current: watch::Sender<Arc<Identity>>,
}

impl Keeper {
    /// Opens the identity in `dir`.
    pub fn open(dir: &Path) -> Result<Self, Error> {
        let identity = Identity::load(dir)?.ok_or_else(|| Error::NotJoined { dir: dir.to_owned() })?;
        Ok(Self { dir: dir.to_owned(), current: watch::Sender::new(Arc::new(identity)) })
    }

    /// The identity now.
    pub fn current(&self) -> Arc<Identity> {
        self.current.borrow().clone()
    }

    /// Tells of every swap, so that a holder of a client can make a new one.
    pub fn subscribe(&self) -> watch::Receiver<Arc<Identity>> {
        self.current.subscribe()
    }

    /// Goes to the manager at another address from now on; kept on the disk with the next renewal.
    pub fn move_to(&self, manager: &str) -> Result<(), Error> {
        let manager = exchange::checked_address(manager)?;
        self.current.send_modify(|identity| Arc::make_mut(identity).manager = manager);
        Ok(())
    }

    /// Asks for the next certificate over `client`, keeps it on the disk, then swaps it in. On any error the present one stays.
    pub async fn renew(&self, client: &reqwest::Client) -> Result<(), Error> {
        let next = renew(&self.current(), client, &self.dir).await?;
        tracing::info!(cluster = %next.cluster, "renewed the certificate");
        self.current.send_replace(Arc::new(next));
        Ok(())
    }
}
