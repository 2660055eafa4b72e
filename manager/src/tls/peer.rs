//! The peer of a connection, and the list of open connections.

use dashmap::DashMap;
use meridian_shared::identity::{CertificateBinding, Fingerprint, parse_agent_uri};
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
    /// `None` for a peer without a certificate: a user, or an agent that joins. The certificate may be
    /// expired or revoked; each request checks both.
    pub agent: Option<AgentIdentity>,
}

/// The content of a verified agent certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentIdentity {
    /// The cluster that the agent may speak for.
    pub cluster: ClusterName,
    pub binding: CertificateBinding,
    pub not_after: Wall,
    pub fingerprint: Fingerprint,
}

/// The agent that `certificate` names by its only alternative name. The signature isn't checked here.
pub(super) fn agent_identity(certificate: &CertificateDer<'_>) -> Option<AgentIdentity> {
    let (_, parsed) = x509_parser::parse_x509_certificate(certificate).ok()?;
    let names = &parsed.subject_alternative_name().ok()??.value.general_names;
    let [GeneralName::URI(uri)] = names.as_slice() else { return None };
    let (cluster, binding) = parse_agent_uri(uri)?;
    Some(AgentIdentity {
        cluster,
        binding,
        not_after: Wall(parsed.validity().not_after.timestamp().checked_mul(1_000)?),
        fingerprint: Fingerprint::of(certificate),
    })
}

/// The list of open connections, to cut those of a revoked agent. Clones share the list.
#[derive(Clone, Debug, Default)]
pub struct Connections {
    live: Arc<DashMap<u64, Live>>,
    next: Arc<AtomicU64>,
}

#[derive(Debug)]
struct Live {
    agent: Option<AgentIdentity>,
    cut: CancellationToken,
}

impl Connections {
    /// Cuts every connection of agents that `accepts` refuses at once, including requests in flight. Returns
    /// their number.
    pub fn cut_agents(&self, accepts: impl Fn(&AgentIdentity) -> bool) -> usize {
        self.cut_where(|live| live.agent.as_ref().is_some_and(|agent| !accepts(agent)))
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

    pub(super) fn register(&self, agent: Option<AgentIdentity>) -> Registered {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let cut = CancellationToken::new();
        self.live.insert(id, Live { agent, cut: cut.clone() });
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
    use meridian_shared::ids::{RecordNumber, Uid};

    fn agent(cluster: &str) -> AgentIdentity {
        AgentIdentity {
            cluster: cluster.into(),
            binding: CertificateBinding { cluster_uid: Uid(1), generation: RecordNumber(1) },
            not_after: Wall(1_000),
            fingerprint: Fingerprint([0; 32]),
        }
    }

    #[test]
    fn cutting_one_agent_leaves_the_others() {
        let connections = Connections::default();
        let eu = connections.register(Some(agent("eu")));
        let us = connections.register(Some(agent("us")));
        let anonymous = connections.register(None);
        let accepts = |agent: &AgentIdentity| agent.cluster.as_str() != "eu";
        assert_eq!(connections.cut_agents(accepts), 1);
        assert!(eu.cut.is_cancelled() && !us.cut.is_cancelled() && !anonymous.cut.is_cancelled());
        drop(eu);
        assert_eq!(connections.open(), 2);
        assert_eq!(connections.cut_agents(accepts), 0);
        assert_eq!(connections.cut_all(), 2);
    }
}
