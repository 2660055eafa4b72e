//! All parts of a simulation together, and the one function that handles an event.

mod dispatch;
mod end_check;

use crate::sim::clock::HostClock;
use crate::sim::clusters::{CLUSTERS, HOSTILE, LATE};
use crate::sim::context::SimContext;
use crate::sim::context::event::SimEvent;
use crate::sim::context::trace::Keep;
use crate::sim::fleet::objects::declared_queues;
use crate::sim::fleet::topology::NodeLabels;
use crate::sim::hosts::agent::AgentHost;
use crate::sim::hosts::machine::Machine;
use crate::sim::hosts::manager::ManagerHost;
use crate::sim::invariants::Invariants;
use crate::sim::invariants::explanations::Explanations;
use crate::sim::network::Network;
use crate::sim::random::Random;
use crate::sim::requests::UserRequests;
use crate::sim::scenario::Scenario;
use meridian_manager::host::leadership::StartMode;
use meridian_manager::journal::faulty::{Faults, FaultyDisk};
use meridian_shared::ids::ClusterName;
use std::collections::BTreeSet;

/// Lasting results of faults.
#[derive(Debug, Default)]
pub(crate) struct FaultState {
    /// Managers with a disk that fails or is full.
    pub(crate) faulty_disks: BTreeSet<usize>,
    /// Copies of the journal, the oldest first.
    pub(crate) backups: Vec<Vec<u8>>,
    /// Number of the journal's history, increased when an older copy or a new journal is used.
    pub(crate) history: u32,
    /// The next leadership begins on an older copy or a new journal.
    pub(crate) history_is_lost: bool,
    /// Disks that were made so far.
    disks: u64,
}

/// One simulated fleet.
#[derive(Debug)]
pub(crate) struct Simulation {
    pub(crate) cx: SimContext,
    /// One manager, or two after a takeover, of which the old one may be cut off.
    pub(crate) managers: Vec<ManagerHost>,
    pub(crate) machines: Vec<Machine>,
    pub(crate) agents: Vec<AgentHost>,
    pub(crate) network: Network,
    pub(crate) users: UserRequests,
    pub(crate) faults: FaultState,
    pub(crate) invariants: Invariants,
    pub(crate) explanations: Explanations,
    ended: bool,
}

impl Simulation {
    pub(crate) fn new(scenario: Scenario, keep: Keep) -> Self {
        let users = UserRequests::new(declared_queues(&scenario));
        let invariants = Invariants::new(scenario.fair, scenario.limits);
        let mut simulation = Self {
            cx: SimContext::new(scenario, keep),
            managers: Vec::new(),
            machines: Vec::new(),
            agents: Vec::new(),
            network: Network::default(),
            users,
            faults: FaultState::default(),
            invariants,
            explanations: Explanations::default(),
            ended: false,
        };
        simulation.set_up();
        simulation
    }

    /// The next event, unless the run is over.
    pub(crate) fn next_event(&mut self) -> Option<SimEvent> {
        if self.ended { None } else { self.cx.next_event() }
    }

    fn set_up(&mut self) {
        let scenario = self.cx.scenario.clone();
        self.cx.log(|| format!("{scenario:?}"));
        let disk = self.new_disk(Vec::new());
        let manager = self.new_manager(disk);
        self.managers.push(manager);
        let start = SimEvent::ManagerStarts { manager: 0, life: 0, mode: StartMode::Init };
        self.cx.schedule(0, start);
        for cluster in self.cx.scenario.cluster_indexes() {
            let agent = self.new_worker(cluster);
            let at = if cluster == LATE {
                self.cx.scenario.active_ms / 3
            } else {
                self.cx.random.agents.between(0, 500)
            };
            self.agents[agent].hostile = cluster == HOSTILE;
            let machine = self.agents[agent].machine;
            self.machines[machine].honest = cluster != HOSTILE;
            self.cx.schedule(at, SimEvent::AgentStarts { agent, life: 0 });
        }
        for (fault, mean) in self.cx.scenario.faults.clone() {
            let at = 3_000 + self.cx.random.faults.between(0, mean);
            self.cx.schedule(at, SimEvent::FaultStrikes(fault));
        }
        if let Some(mean) = self.cx.scenario.node_losses {
            self.cx.schedule(2_000 + mean, SimEvent::NodeFails);
        }
        self.cx.schedule(1_000, SimEvent::UsersAct);
        self.cx.schedule(2_000, SimEvent::OperatorsAct);
        self.cx.schedule(4_000, SimEvent::Backup);
        self.cx.schedule(self.cx.scenario.active_ms, SimEvent::FaultsEnd);
    }

    /// A disk with this content.
    pub(crate) fn new_disk(&mut self, image: Vec<u8>) -> FaultyDisk {
        self.faults.disks += 1;
        FaultyDisk::from_image(image, self.cx.random.disk.bits(), self.faults.disks, Faults::default())
    }

    fn new_clock(&mut self) -> HostClock {
        let random = &mut self.cx.random.agents;
        let ppm = drift_ppm(random);
        let ahead = i64::try_from(random.between(0, 20_000)).expect("small") - 10_000;
        let mono = random.between(5_000, 1_000_000);
        HostClock::new(self.cx.now, mono, ppm, ahead)
    }

    /// A machine for a manager, on this disk.
    pub(crate) fn new_manager(&mut self, disk: FaultyDisk) -> ManagerHost {
        let boot = self.cx.random.manager.wide();
        ManagerHost::new(self.new_clock(), boot, disk)
    }

    /// A machine with an agent for a cluster; returns the agent.
    pub(crate) fn new_worker(&mut self, cluster: usize) -> usize {
        let random = &mut self.cx.random.agents;
        let guarded = cluster == HOSTILE || random.permille(750);
        let nodes = 2 + u32::from(cluster != 0 && random.permille(500));
        let pools = if random.permille(250) { 4 } else { 0 };
        let boot = random.wide();
        let clock = self.new_clock();
        let scenario = &self.cx.scenario;
        let mut machine = Machine::new(clock, boot, guarded);
        // With a topology there must be two racks.
        machine.nodes = if scenario.topology { nodes + 2 } else { nodes };
        machine.pools = pools;
        machine.labels = NodeLabels::of(scenario, cluster);
        let stream = format!("namespaces of {cluster}");
        machine.namespaces = Random::new(scenario.seed, &stream).permille(500);
        self.machines.push(machine);
        self.add_agent(AgentHost::new(ClusterName::new(CLUSTERS[cluster].0), self.machines.len() - 1))
    }

    /// Adds an agent and its link; returns its index.
    pub(crate) fn add_agent(&mut self, mut host: AgentHost) -> usize {
        let earlier = self.agents.iter().filter(|other| other.cluster == host.cluster).count();
        if earlier > 0 {
            host.name = format!("{}-{}", host.cluster, earlier + 1);
        }
        self.agents.push(host);
        self.network.add_link();
        self.agents.len() - 1
    }
}

/// The drift of a machine's clock, in parts per million: within ±0.05 %.
fn drift_ppm(random: &mut Random) -> i64 {
    let extremes = [-500, 500];
    if random.permille(400) {
        *random.pick(&extremes).expect("not empty")
    } else {
        i64::try_from(random.between(0, 1_000)).expect("small") - 500
    }
}
