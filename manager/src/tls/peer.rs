//! Who is at the other end of a connection, and the list of connections that are open.

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

/// The other end of one connection; a request extension, and axum's `ConnectInfo<Peer>`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Where it connects from.
    pub addr: SocketAddr,
    /// Who it proved to be; `None` for one that showed no certificate (people, and agents that join).
    pub agent: Option<AgentIdentity>,
    /// Whether its certificate had expired when it connected. Connections are long: ask [`Peer::standing`] per request.
    pub expired: bool,
}

/// What a verified agent certificate says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentIdentity {
    /// The cluster it may speak for.
    pub cluster: ClusterName,
    /// Its last moment.
    pub not_after: Wall,
    /// Which certificate.
    pub fingerprint: Fingerprint,
}

/// What a peer's certificate is good for at some moment, revocation aside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing<'a> {
    /// No certificate.
    Anonymous,
    /// Good for everything an agent may do.
    Agent(&'a AgentIdentity),
    /// Expired: good for renewal only.
    RenewalOnly(&'a AgentIdentity),
}

impl Peer {
    /// What the certificate is good for at `now`.
    pub fn standing(&self, now: Wall) -> Standing<'_> {
        match &self.agent {
            None => Standing::Anonymous,
            Some(agent) if now > agent.not_after => Standing::RenewalOnly(agent),
            Some(agent) => Standing::Agent(agent),
        }
    }
}

/// The agent that `certificate` names: exactly one alternative name, and that of an agent. Says nothing about who signed it.
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

/// All open connections, so that those of a revoked agent can be cut. Clones share one list.
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
    /// Ends every connection of the agent of `cluster` at once, requests in flight included; says how many.
    pub fn cut(&self, cluster: &ClusterName) -> usize {
        self.cut_where(|live| live.cluster.as_ref() == Some(cluster))
    }

    /// Ends every connection at once.
    pub(super) fn cut_all(&self) -> usize {
        self.cut_where(|_| true)
    }

    /// How many connections are open.
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

/// A place in the list; leaves it when dropped.
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
    fn standing_turns_at_the_last_moment() {
        let agent =
            AgentIdentity { cluster: "eu".into(), not_after: Wall(1_000), fingerprint: Fingerprint([0; 32]) };
        let peer = Peer { addr: ([127, 0, 0, 1], 1).into(), agent: Some(agent.clone()), expired: false };
        assert_eq!(peer.standing(Wall(1_000)), Standing::Agent(&agent));
        assert_eq!(peer.standing(Wall(1_001)), Standing::RenewalOnly(&agent));
        assert_eq!(Peer { agent: None, ..peer.clone() }.standing(Wall(0)), Standing::Anonymous);
    }
}
