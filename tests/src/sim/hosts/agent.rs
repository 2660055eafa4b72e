//! One agent's process, store, and link to the manager.

use meridian_agent_core::{Agent, Input};
use meridian_shared::ids::{ClusterName, Fence, Leadership, LedgerId, Uid};
use meridian_shared::protocol::Lane;
use meridian_shared::time::Mono;
use std::collections::BTreeMap;

/// The disk under an agent's store.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct StoreDisk {
    pub(crate) full_until: u64,
    pub(crate) fails_next: bool,
}

/// How a hostile agent keeps the manager waiting, and until when.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Stall {
    /// The agent sends no requests.
    NoRequests(u64),
    /// The agent sends requests without events.
    NoEvents(u64),
}

/// When each toleration and waiting time of an agent began, by its machine's boot time.
#[derive(Clone, Debug, Default)]
pub(crate) struct TolerationTimers {
    /// Pods on a tainted node, and whether the end of their toleration was observed.
    pub(crate) tolerations: BTreeMap<(Uid, Fence, String), (Mono, bool)>,
    /// Gangs that wait for a new node.
    pub(crate) waits: BTreeMap<(Uid, Fence), Mono>,
}

impl TolerationTimers {
    pub(crate) fn is_empty(&self) -> bool {
        self.tolerations.is_empty() && self.waits.is_empty()
    }
}

/// State of the connection between an agent's process and the manager.
#[derive(Debug)]
pub(crate) struct LinkState {
    /// The transmission under way on each lane.
    pub(crate) lanes: BTreeMap<Lane, u64>,
    pub(crate) has_news: bool,
    pub(crate) synced: bool,
    pub(crate) failures: u32,
    pub(crate) pause_until: u64,
}

impl LinkState {
    /// The state of a process that has just started.
    fn new() -> Self {
        Self { lanes: BTreeMap::new(), has_news: true, synced: false, failures: 0, pause_until: 0 }
    }
}

/// One agent's process and store.
#[derive(Debug)]
pub(crate) struct AgentHost {
    /// The cluster, with a number where it is not the cluster's first agent.
    pub(crate) name: String,
    pub(crate) cluster: ClusterName,
    pub(crate) machine: usize,
    pub(crate) store: BTreeMap<String, String>,
    pub(crate) disk: StoreDisk,
    pub(crate) agent: Option<Agent>,
    /// Number of the process, increased each time it ends.
    pub(crate) life: u64,
    /// The agent never starts again.
    pub(crate) gone: bool,
    pub(crate) hostile: bool,
    pub(crate) stall: Option<Stall>,
    pub(crate) paused_until: u64,
    /// The manager that it sends to.
    pub(crate) route: usize,
    pub(crate) link: LinkState,
    pub(crate) inbox: Vec<Input>,
    /// The last leadership that the agent followed.
    pub(crate) follows: Option<Leadership>,
    /// The wall clock of its machine was set back, and its store doesn't contain that yet.
    pub(crate) unseen_back: bool,
    /// The agent's store began as a copy of another agent's.
    pub(crate) is_copy: bool,
    pub(crate) timers: TolerationTimers,
    turn: u64,
    turn_at: u64,
}

impl AgentHost {
    pub(crate) fn new(cluster: ClusterName, machine: usize) -> Self {
        Self {
            name: cluster.to_string(),
            cluster,
            machine,
            store: BTreeMap::new(),
            disk: StoreDisk::default(),
            agent: None,
            life: 0,
            gone: false,
            hostile: false,
            stall: None,
            paused_until: 0,
            route: 0,
            link: LinkState::new(),
            inbox: Vec::new(),
            follows: None,
            unseen_back: false,
            is_copy: false,
            timers: TolerationTimers::default(),
            turn: 0,
            turn_at: u64::MAX,
        }
    }

    /// A new process begins.
    pub(crate) fn begin(&mut self, agent: Agent) {
        self.agent = Some(agent);
        self.link = LinkState::new();
        self.inbox.clear();
    }

    /// Moves the next turn forward to `at`; returns its number unless an earlier one is planned.
    pub(crate) fn plan_turn(&mut self, at: u64) -> Option<u64> {
        if at >= self.turn_at {
            return None;
        }
        self.turn_at = at;
        self.turn += 1;
        Some(self.turn)
    }

    /// Begins the turn with this number; false if another one was planned since.
    pub(crate) fn begin_turn(&mut self, turn: u64) -> bool {
        let is_planned = turn == self.turn;
        if is_planned {
            self.turn_at = u64::MAX;
        }
        is_planned
    }

    /// The ledger of its store.
    pub(crate) fn ledger(&self) -> Option<LedgerId> {
        self.store.get("ledger").and_then(|v| serde_json::from_str(v).ok())
    }

    /// The agent's store is deleted.
    pub(crate) fn lose_store(&mut self) {
        self.store.clear();
        self.follows = None;
    }
}
