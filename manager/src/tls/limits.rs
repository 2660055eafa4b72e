//! Limits on the port's connections: how many of each class, and how long they may be silent.
//!
//! A connection begins with a handshake. Afterwards it is an agent's if the client proved to hold an agent's
//! key; otherwise it counts as unauthenticated until its first request with a known user's token. Each class
//! has its own share, so that none can use up the connections of another.

pub use crate::pool::PoolLimits;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::time::Duration;

/// Open connections of all classes, if the limit on open files permits them.
pub const CONNECTIONS_MAX: usize = 16_384;
/// Open files that are not connections: the journal, log lines, and connections that are being closed.
pub const FILES_RESERVED: usize = 128;
/// Least number of connections, even if the limit on open files is lower.
const CONNECTIONS_MIN: usize = 64;
/// Concurrent handshakes of one address. A normal handshake takes a few round trips.
const HANDSHAKES_PER_ADDRESS_MAX: usize = 256;
/// Unauthenticated connections of one address. Users behind one address become known with their first
/// request.
const UNAUTHENTICATED_PER_ADDRESS_MAX: usize = 128;
/// Connections of one agent, which needs a handful. The rest is for dead connections after a network failure.
const AGENT_CONNECTIONS_MAX: usize = 32;

/// Longest time from a connection to its finished handshake.
pub const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest wait for the head of a connection's first request. Clients connect in order to send one.
pub const FIRST_REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a connection may last without valid credentials: enough for a join, a probe or a first request.
pub const UNAUTHENTICATED_TIMEOUT: Duration = Duration::from_secs(60);
/// How long a connection may be without a request in progress. Longer than the 90 s of usual clients, so that
/// they close first and no request meets a closing connection.
pub const IDLE_TIMEOUT: Duration = Duration::from_secs(120);

/// Limits on the connections of a [`super::TlsListener`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    pub handshakes: PoolLimits,
    /// Handshakes of addresses from which agents connected before.
    pub agent_handshakes: PoolLimits,
    pub unauthenticated: PoolLimits,
    /// Connections of known users.
    pub users: usize,
    /// `per_key` bounds the connections of one cluster's agent.
    pub agents: PoolLimits,
    pub deadlines: Deadlines,
}

/// How long a connection may be silent, or without credentials.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadlines {
    pub handshake: Duration,
    pub first_request: Duration,
    pub unauthenticated: Duration,
    pub idle: Duration,
}

impl Limits {
    /// The limits for a process that may open `files` files: half for users, a quarter for agents, an eighth
    /// for unauthenticated connections and an eighth for handshakes.
    pub fn for_files(files: usize) -> Self {
        let connections = files.saturating_sub(FILES_RESERVED).clamp(CONNECTIONS_MIN, CONNECTIONS_MAX);
        let pool = |total: usize, per_key: usize| PoolLimits { total, per_key: per_key.min(total) };
        Self {
            handshakes: pool(connections / 16, HANDSHAKES_PER_ADDRESS_MAX),
            agent_handshakes: pool(connections / 16, HANDSHAKES_PER_ADDRESS_MAX),
            unauthenticated: pool(connections / 8, UNAUTHENTICATED_PER_ADDRESS_MAX),
            users: connections / 2,
            agents: pool(connections / 4, AGENT_CONNECTIONS_MAX),
            deadlines: Deadlines {
                handshake: HANDSHAKE_TIMEOUT,
                first_request: FIRST_REQUEST_TIMEOUT,
                unauthenticated: UNAUTHENTICATED_TIMEOUT,
                idle: IDLE_TIMEOUT,
            },
        }
    }
}

/// Raises this process's limit on open files to what the system permits. Returns the limit in force.
pub fn raise_file_limit() -> usize {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let raised = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    let limit = if raised.is_ok() { maximum } else { current };
    // `None` stands for no limit
    limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shares_never_exceed_the_open_files() {
        for files in [0, 256, 1_024, 4_096, 1 << 20, usize::MAX] {
            let Limits { handshakes, agent_handshakes, unauthenticated, users, agents, .. } =
                Limits::for_files(files);
            let pools = [handshakes, agent_handshakes, unauthenticated, agents];
            let sum: usize = pools.iter().map(|pool| pool.total).sum::<usize>() + users;
            assert!(
                sum <= CONNECTIONS_MAX && (files < 256 || sum + FILES_RESERVED <= files),
                "{files}: {sum}"
            );
            assert!(pools.iter().all(|pool| 0 < pool.per_key && pool.per_key <= pool.total), "{files}");
        }
    }
}
