//! The shares of connections: the class of each connection, and the connection to cut when a share is full.

use super::limits::Limits;
use crate::locks;
use crate::metrics::{ConnectionMetrics, Entered};
use crate::pool::{Full, Member, Pool};
use meridian_shared::ids::ClusterName;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

/// Addresses of agents that are remembered.
const AGENT_ADDRESSES_MAX: usize = 4_096;

/// Origin of a peer, by which connections are limited: one IPv4 address, or one IPv6 network of 64 bits,
/// because one host may use all addresses of such a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Address(IpAddr);

impl Address {
    pub(crate) fn of(ip: IpAddr) -> Self {
        match ip.to_canonical() {
            IpAddr::V6(ip) => {
                let network = u128::from(ip) & !u128::from(u64::MAX);
                Self(IpAddr::V6(Ipv6Addr::from(network)))
            }
            ip => Self(ip),
        }
    }
}

/// The shares of all classes of one port.
#[derive(Debug)]
pub(super) struct Shares {
    handshakes: Pool<Address>,
    agent_handshakes: Pool<Address>,
    unauthenticated: Pool<Address>,
    agents: Pool<ClusterName>,
    users: Arc<Semaphore>,
    agent_addresses: Mutex<AgentAddresses>,
    metrics: ConnectionMetrics,
}

/// Addresses from which agents connected, each with the number of its last connection.
#[derive(Debug, Default)]
struct AgentAddresses {
    last: HashMap<Address, u64>,
    next: u64,
}

impl AgentAddresses {
    fn remember(&mut self, address: Address) {
        self.next += 1;
        self.last.insert(address, self.next);
        if self.last.len() > AGENT_ADDRESSES_MAX
            && let Some(oldest) = self.last.iter().min_by_key(|(_, at)| **at).map(|(address, _)| *address)
        {
            self.last.remove(&oldest);
        }
    }
}

impl Shares {
    pub(super) fn new(limits: &Limits, metrics: ConnectionMetrics) -> Arc<Self> {
        Arc::new(Self {
            handshakes: Pool::new(limits.handshakes),
            agent_handshakes: Pool::new(limits.agent_handshakes),
            unauthenticated: Pool::new(limits.unauthenticated),
            agents: Pool::new(limits.agents),
            users: Arc::new(Semaphore::new(limits.users)),
            agent_addresses: Mutex::default(),
            metrics,
        })
    }

    /// Counts a connection that was closed or refused for this reason.
    pub(super) fn refused(&self, reason: &'static str) {
        self.metrics.refused.inc([reason]);
    }

    /// A handshake, which is cut when later handshakes need its place.
    pub(super) fn begin_handshake(&self, address: Address, cut: CancellationToken) -> Handshake {
        let known = locks::lock(&self.agent_addresses).last.contains_key(&address);
        let pool = if known { &self.agent_handshakes } else { &self.handshakes };
        let (member, full) = pool.enter(address, cut);
        match full {
            Some(Full::Key) => self.refused("handshakes_of_address"),
            Some(Full::Total) => self.refused("handshakes"),
            None => {}
        }
        Handshake { _member: member, _open: self.metrics.open.enter(["handshake"]) }
    }

    /// The class of a connection after its handshake.
    pub(super) fn classify(
        self: &Arc<Self>,
        address: Address,
        agent: Option<&ClusterName>,
        cut: CancellationToken,
    ) -> ConnectionClass {
        let class = match agent {
            Some(cluster) => {
                locks::lock(&self.agent_addresses).remember(address);
                let (member, full) = self.agents.enter(cluster.clone(), cut);
                match full {
                    Some(Full::Key) => self.refused("connections_of_agent"),
                    Some(Full::Total) => self.refused("agents"),
                    None => {}
                }
                ClassShare::Agent { _member: member, _open: self.metrics.open.enter(["agent"]) }
            }
            None => {
                let (member, full) = self.unauthenticated.enter(address, cut);
                match full {
                    Some(Full::Key) => self.refused("unauthenticated_of_address"),
                    Some(Full::Total) => self.refused("unauthenticated"),
                    None => {}
                }
                ClassShare::Unauthenticated {
                    _member: member,
                    _open: self.metrics.open.enter(["unauthenticated"]),
                }
            }
        };
        ConnectionClass { class: Arc::new(Mutex::new(class)), shares: Arc::clone(self) }
    }
}

/// A handshake in progress.
#[derive(Debug)]
pub(super) struct Handshake {
    _member: Member<Address>,
    _open: Entered,
}

/// The class of an open connection. It is a request extension, through which a request with a known user's
/// token moves its connection into the users' share.
#[derive(Clone, Debug)]
pub struct ConnectionClass {
    class: Arc<Mutex<ClassShare>>,
    shares: Arc<Shares>,
}

#[derive(Debug)]
enum ClassShare {
    Unauthenticated { _member: Member<Address>, _open: Entered },
    User { _permit: OwnedSemaphorePermit, _open: Entered },
    Agent { _member: Member<ClusterName>, _open: Entered },
}

impl ConnectionClass {
    /// Whether the peer has proved to be an agent or a known user.
    pub fn is_authenticated(&self) -> bool {
        !matches!(*locks::lock(&self.class), ClassShare::Unauthenticated { .. })
    }

    /// Moves an unauthenticated connection into the users' share. Returns false if that share is used up.
    pub fn authenticate(&self) -> bool {
        let mut class = locks::lock(&self.class);
        if !matches!(*class, ClassShare::Unauthenticated { .. }) {
            return true;
        }
        let Ok(permit) = Arc::clone(&self.shares.users).try_acquire_owned() else {
            self.shares.refused("users");
            return false;
        };
        *class = ClassShare::User { _permit: permit, _open: self.shares.metrics.open.enter(["user"]) };
        true
    }

    pub(super) fn refused(&self, reason: &'static str) {
        self.shares.refused(reason);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_of_one_host_counts_as_one_address() {
        let of = |text: &str| Address::of(text.parse().unwrap());
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:0:0:2"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_eq!(of("::ffff:192.0.2.1"), of("192.0.2.1"));
        assert_ne!(of("192.0.2.1"), of("192.0.2.2"));
    }

    #[test]
    fn the_addresses_of_agents_are_bounded() {
        let mut addresses = AgentAddresses::default();
        let of = |i: usize| Address::of(IpAddr::from(u32::try_from(i).unwrap().to_be_bytes()));
        (0..=AGENT_ADDRESSES_MAX).for_each(|i| addresses.remember(of(i)));
        assert_eq!(addresses.last.len(), AGENT_ADDRESSES_MAX);
        assert!(!addresses.last.contains_key(&of(0)) && addresses.last.contains_key(&of(1)));
    }
}
