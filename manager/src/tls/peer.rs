//! The peer of a connection, and the list of open connections.

use dashmap::DashMap;
use meridian_shared::identity::{Fingerprint, cluster_of_uri};
use meridian_shared::ids::ClusterName;
use meridian_shared::time::Wall;
use rustls::pki_types::CertificateDer;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio_util::sync::CancellationToken;
use x509_parser::extensions::GeneralName;

/// The peer of one connection. It is a request extension, and axum's `ConnectInfo<Peer>`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    pub addr: SocketAddr,
    /// `None` for a peer without certificate: users, and agents that join.
    pub agent: Option<AgentIdentity>,
    /// Whether the certificate had expired when the connection began. Connections are long, so use
    /// [`Peer::certificate_status`] for each request.
    pub expired: bool,
}

/// The content of a verified agent certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentIdentity {
    /// The cluster that the agent may speak for.
    pub cluster: ClusterName,
    pub not_after: Wall,
    pub fingerprint: Fingerprint,
}

/// What a peer's certificate permits at some time. Revocation is checked elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CertificateStatus<'a> {
    /// The peer has no certificate.
    None,
    Valid(&'a AgentIdentity),
    /// The certificate has expired.
    RenewalOnly(&'a AgentIdentity),
}

impl Peer {
    pub fn certificate_status(&self, now: Wall) -> CertificateStatus<'_> {
        match &self.agent {
            None => CertificateStatus::None,
            Some(agent) if now > agent.not_after => CertificateStatus::RenewalOnly(agent),
            Some(agent) => CertificateStatus::Valid(agent),
        }
    }
}

/// The agent that `certificate` names: the only alternative name, in an agent's form. The signature is not
/// checked here.
pub(super) fn agent_identity(certificate: &CertificateDer<'_>) -> Option<AgentIdentity> {
    let (_, parsed) = x509_parser::parse_x509_certificate(certificate).ok()?;
    let names = &parsed.subject_alternative_name().ok()??.value.general_names;
    let [GeneralName::URI(uri)] = names.as_slice() else { return None };
    Some(AgentIdentity {
        cluster: cluster_of_uri(uri)?,
        not_after: Wall(parsed.validity().not_after.timestamp().checked_mul(1_000)?),
        fingerprint: Fingerprint::of(certificate),
    })
}

/// All open connections, to cut those of a revoked agent. Clones share the list.
#[derive(Clone, Debug, Default)]
pub struct Connections {
    live: Arc<DashMap<u64, Live>>,
    next: Arc<AtomicU64>,
}

#[derive(Debug)]
struct Live {
    cluster: Option<ClusterName>,
    cut: CancellationToken,
}

impl Connections {
    /// Cuts every connection of the agent of `cluster` at once, including requests in flight. Returns their
    /// number.
    pub fn cut(&self, cluster: &ClusterName) -> usize {
        self.cut_where(|live| live.cluster.as_ref() == Some(cluster))
    }

    /// Cuts every connection at once. Returns their number.
    pub(super) fn cut_all(&self) -> usize {
        self.cut_where(|_| true)
    }

    /// Number of open connections.
    pub fn open(&self) -> usize {
        self.live.len()
    }

    fn cut_where(&self, matches: impl Fn(&Live) -> bool) -> usize {
        let hit: Vec<CancellationToken> =
            self.live.iter().filter(|entry| matches(entry.value())).map(|entry| entry.cut.clone()).collect();
        hit.iter().for_each(CancellationToken::cancel);
        hit.len()
    }

    pub(super) fn register(&self, cluster: Option<ClusterName>) -> Registered {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let cut = CancellationToken::new();
        self.live.insert(id, Live { cluster, cut: cut.clone() });
        Registered { id, cut, connections: self.clone() }
    }
}

/// An entry in the list, removed on drop.
#[derive(Debug)]
pub(super) struct Registered {
    id: u64,
    pub(super) cut: CancellationToken,
    connections: Connections,
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.connections.live.remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cutting_one_cluster_leaves_the_others() {
        let connections = Connections::default();
        let eu = connections.register(Some("eu".into()));
        let us = connections.register(Some("us".into()));
        let anonymous = connections.register(None);
        assert_eq!(connections.cut(&"eu".into()), 1);
        assert!(eu.cut.is_cancelled() && !us.cut.is_cancelled() && !anonymous.cut.is_cancelled());
        drop(eu);
        assert_eq!(connections.open(), 2);
        assert_eq!(connections.cut(&"eu".into()), 0);
        assert_eq!(connections.cut_all(), 2);
    }

    #[test]
    fn a_certificate_is_valid_until_its_last_moment() {
        let agent =
            AgentIdentity { cluster: "eu".into(), not_after: Wall(1_000), fingerprint: Fingerprint([0; 32]) };
        let peer = Peer { addr: ([127, 0, 0, 1], 1).into(), agent: Some(agent.clone()), expired: false };
        assert_eq!(peer.certificate_status(Wall(1_000)), CertificateStatus::Valid(&agent));
        assert_eq!(peer.certificate_status(Wall(1_001)), CertificateStatus::RenewalOnly(&agent));
        assert_eq!(Peer { agent: None, ..peer.clone() }.certificate_status(Wall(0)), CertificateStatus::None);
    }
}
