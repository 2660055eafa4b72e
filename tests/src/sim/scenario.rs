//! What one seed does: which faults and how often, how many clusters, how bad the network is.
//!
//! Each seed switches on a random subset of the faults (swarm testing): a fault that is always on hides the
//! effects of others.

use crate::sim::clusters::{GpuLimits, HOSTILE, LATE};
use crate::sim::random::Random;
use meridian_agent_core::HoldSettings;
use meridian_manager_core::Config;
use meridian_manager_core::config::HEADS_MAX_DEFAULT;
use meridian_queueing::settings::{AdmissionFairSharing, FairSharing};
use meridian_shared::mac::ReceiptKey;
use meridian_shared::planted::{Bug, Planted};
use meridian_shared::protocol::HoldMethod;
use meridian_shared::time::Millis;
use std::collections::BTreeMap;

/// One kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Fault {
    /// The link between an agent and the manager is cut: up, down or both.
    NetCut,
    /// An agent's messages are slow for a while.
    NetSlow,
    /// The manager's process is killed between two steps; the page cache survives.
    ManagerKill,
    /// The manager's machine loses power.
    ManagerPower,
    /// The manager's process is paused; its clock runs on.
    ManagerPause,
    /// The manager's virtual machine is paused, and its boot time with it.
    ManagerFreeze,
    /// A sync of the manager's disk fails.
    DiskFailSync,
    /// The manager's disk is full for a while.
    DiskFull,
    /// Commits take long.
    DiskSlow,
    /// The journal is replaced by an older copy.
    JournalRestore,
    /// The journal is gone: `init --recover`.
    JournalDelete,
    /// Another manager takes over the volume; the old one is cut off from it and keeps running for a while.
    Takeover,
    /// An agent's process is killed between two steps.
    AgentKill,
    /// An agent's process is paused.
    AgentPause,
    /// An agent's virtual machine is paused, with its boot time and its gangs.
    MachineFreeze,
    /// An agent's machine restarts.
    MachineReboot,
    /// An agent's store is deleted.
    StoreLost,
    /// A second agent starts with a copy of the store, on the same machine.
    Clone,
    /// A second agent of the same name starts, with its own store and machine.
    Rival,
    /// A wall clock jumps.
    WallJump,
    /// A gang's guard is killed.
    GuardKill,
    /// The disk under an agent's store is full for a while.
    StoreFull,
    /// One commit of an agent's store fails; it may be durable or not.
    StoreFailSync,
}

impl Fault {
    /// Every fault, with its usual mean interval in milliseconds.
    pub const ALL: &'static [(Self, u64)] = &[
        (Self::NetCut, 15_000),
        (Self::NetSlow, 20_000),
        (Self::ManagerKill, 15_000),
        (Self::ManagerPower, 40_000),
        (Self::ManagerPause, 30_000),
        (Self::ManagerFreeze, 40_000),
        (Self::DiskFailSync, 25_000),
        (Self::DiskFull, 40_000),
        (Self::DiskSlow, 30_000),
        (Self::JournalRestore, 60_000),
        (Self::JournalDelete, 120_000),
        (Self::Takeover, 50_000),
        (Self::AgentKill, 12_000),
        (Self::AgentPause, 20_000),
        (Self::MachineFreeze, 30_000),
        (Self::MachineReboot, 40_000),
        (Self::StoreLost, 45_000),
        (Self::Clone, 60_000),
        (Self::Rival, 80_000),
        (Self::WallJump, 30_000),
        (Self::GuardKill, 8_000),
        (Self::StoreFull, 25_000),
        (Self::StoreFailSync, 15_000),
    ];
}

/// How cluster queues share quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cohorts {
    /// Queues share no quota.
    None,
    /// In one cohort.
    Flat,
    /// In cohorts within a cohort, with quotas on each level.
    Deep,
}

/// What one seed does. Shares are in thousandths, times in milliseconds.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Seed of all random draws.
    pub seed: u64,
    /// Honest worker clusters.
    pub clusters: usize,
    /// One more cluster with a hostile agent.
    pub hostile_cluster: bool,
    /// One more cluster that joins late.
    pub late_joiner: bool,
    /// How long faults last; then everything heals.
    pub active_ms: u64,
    /// Lower bound of lease terms.
    pub term_min: Millis,
    /// Mean interval of each fault that is on.
    pub faults: BTreeMap<Fault, u64>,
    /// Share of messages that are lost.
    pub lose: u64,
    /// Share of messages that arrive twice.
    pub duplicate: u64,
    /// Share of messages that take very long.
    pub stray: u64,
    /// Longest usual delay of a message.
    pub delay_max: u64,
    /// Longest usual commit.
    pub commit_max: u64,
    /// Mean pause between requests of users.
    pub users_ms: u64,
    /// The manager writes its heartbeat after its answers, so that only its claim stops the answers once it
    /// is cut off.
    pub late_heartbeats: bool,
    /// Operators confirm a restored journal while clusters are still awaited.
    pub early_confirmations: bool,
    /// How cluster queues share quota.
    pub cohorts: Cohorts,
    /// Whether fair sharing is on.
    pub fair: bool,
    /// Waiting time after which capacity is reserved for the head of a queue; `None` is never.
    pub starvation_guard: Option<Millis>,
    /// Most heads of queues that a manager evaluates in one turn.
    pub heads_max: usize,
    /// Whether admissions are ordered by usage history.
    pub by_usage: bool,
    /// Mean pause between losses of nodes, if any.
    pub node_losses: Option<u64>,
    /// How long pods of a lost node wait for another node.
    pub replacement_wait: Millis,
    /// Whether agents look up the objects that jobs name, and hold capacity in the cluster too.
    pub secured_holds: bool,
    /// The most accelerators that each cluster may be believed to have.
    pub(crate) limits: GpuLimits,
    /// Whether nodes are in racks and blocks, and some gangs request a topology.
    pub topology: bool,
    /// A bug that is planted in both cores.
    pub planted: Option<Bug>,
}

/// In half of the fleets some clusters may be believed to have less than they report, but enough for the
/// largest gang.
fn limits(random: &mut Random) -> GpuLimits {
    let some = random.permille(500);
    std::array::from_fn(|_| {
        random.pick(&[None, Some(8), Some(10), Some(12)]).copied().flatten().filter(|_| some)
    })
}

impl Scenario {
    /// The scenario of a seed.
    pub fn of(seed: u64) -> Self {
        let mut random = Random::new(seed, "plan");
        let mut faults = BTreeMap::new();
        let likely = *random.pick(&[150, 350, 600]).expect("not empty");
        let pace = *random.pick(&[50, 100, 200]).expect("not empty");
        for (fault, mean) in Fault::ALL {
            if random.permille(likely) {
                faults.insert(*fault, mean * pace / 100);
            }
        }
        let rough = random.permille(600);
        let mut sharing = Random::new(seed, "cohorts");
        let cohorts = *sharing.pick(&[Cohorts::None, Cohorts::Flat, Cohorts::Deep]).expect("not empty");
        let fair = cohorts != Cohorts::None && sharing.permille(350);
        Self {
            seed,
            clusters: 2 + random.index(2),
            hostile_cluster: random.permille(150),
            late_joiner: random.permille(250),
            active_ms: random.between(30_000, 70_000),
            term_min: Millis::secs(8),
            faults,
            lose: if rough { random.below(80) } else { 0 },
            duplicate: if rough { random.below(120) } else { 0 },
            stray: if rough { random.below(60) } else { 0 },
            delay_max: *random.pick(&[3, 20, 100, 400]).expect("not empty"),
            commit_max: *random.pick(&[0, 3, 30]).expect("not empty"),
            users_ms: *random.pick(&[800, 1_500, 3_000]).expect("not empty"),
            late_heartbeats: random.permille(500),
            early_confirmations: Random::new(seed, "early confirmations").permille(500),
            cohorts,
            fair,
            starvation_guard: Random::new(seed, "guard")
                .pick(&[None, Some(Millis::secs(3)), Some(Millis::secs(12))])
                .copied()
                .flatten(),
            heads_max: *Random::new(seed, "heads").pick(&[1, 3, HEADS_MAX_DEFAULT]).expect("not empty"),
            by_usage: Random::new(seed, "usage").permille(250),
            node_losses: Random::new(seed, "node losses")
                .pick(&[None, Some(4_000), Some(12_000)])
                .copied()
                .flatten(),
            replacement_wait: *Random::new(seed, "replacement")
                .pick(&[Millis(0), Millis::secs(2), Millis::secs(8)])
                .expect("not empty"),
            secured_holds: Random::new(seed, "holds").permille(250),
            limits: limits(&mut Random::new(seed, "limits")),
            topology: Random::new(seed, "topology").permille(400),
            planted: None,
        }
    }

    /// Indexes of the clusters of this fleet.
    pub(crate) fn cluster_indexes(&self) -> Vec<usize> {
        let mut clusters: Vec<usize> = (0..self.clusters).collect();
        clusters.extend(self.late_joiner.then_some(LATE));
        clusters.extend(self.hostile_cluster.then_some(HOSTILE));
        clusters
    }

    /// What agents of this scenario check and make for a hold.
    pub(crate) fn hold_settings(&self) -> HoldSettings {
        let method = if self.secured_holds { HoldMethod::Placeholders } else { HoldMethod::Ledger };
        HoldSettings { checks_references: self.secured_holds, method }
    }

    /// The configuration of its managers.
    pub(crate) fn config(&self) -> Config {
        let planted = self.planted.map_or(Planted::NONE, Planted::with);
        Config {
            term_min: self.term_min,
            term: self.term_min,
            hold: Millis::secs(10),
            start_timeout: Millis::secs(15),
            planted,
            admission_fair_sharing: self.by_usage.then(|| AdmissionFairSharing {
                half_life_ms: 20_000,
                sampling_ms: 2_000,
                resource_weights: Vec::new(),
            }),
            starvation_guard: self.starvation_guard,
            heads_max: self.heads_max,
            fair_sharing: self.fair.then(FairSharing::default),
            ..Config::new(ReceiptKey([42; 32]))
        }
    }

    /// The scenario of a seed without any fault.
    pub fn calm(seed: u64) -> Self {
        Self {
            faults: BTreeMap::new(),
            node_losses: None,
            hostile_cluster: false,
            late_joiner: false,
            lose: 0,
            duplicate: 0,
            stray: 0,
            delay_max: 10,
            commit_max: 3,
            ..Self::of(seed)
        }
    }

    /// The scenario of a seed that hunts a planted bug.
    pub fn hunting(seed: u64, bug: Bug) -> Self {
        Self { planted: Some(bug), ..Self::towards(seed, bug) }
    }

    /// The same without the bug: the faults under which its rule matters are always on.
    pub fn towards(seed: u64, bug: Bug) -> Self {
        let mut scenario = Self::of(seed);
        let needs_cohort =
            matches!(bug, Bug::VictimQuotaGivenAway | Bug::LendingLimitIgnored | Bug::VictimSpared);
        if needs_cohort && scenario.cohorts == Cohorts::None {
            scenario.cohorts = Cohorts::Flat;
        }
        if bug == Bug::CapsIgnored {
            scenario.limits = GpuLimits::default().map(|_| Some(8));
        }
        if bug == Bug::AgentTakesTwinLeadership {
            // Twins have the same epoch, and every other fault that starts a leader raises one of them.
            scenario.faults.clear();
        }
        scenario.faults.extend(faults_for(bug).iter().copied());
        (scenario.lose, scenario.duplicate, scenario.stray) =
            (scenario.lose.max(20), scenario.duplicate.max(60), scenario.stray.max(30));
        scenario.hostile_cluster = false;
        scenario.late_heartbeats |= bug == Bug::AnswersWithoutClaim;
        scenario.early_confirmations |= bug == Bug::ConfirmationAnswersForClusters;
        scenario
    }
}

/// Faults, with their mean intervals, under which the rule that a bug breaks matters.
fn faults_for(bug: Bug) -> &'static [(Fault, u64)] {
    match bug {
        Bug::AgentTakesOlderEpoch => &[(Fault::ManagerKill, 5_000), (Fault::NetSlow, 5_000)],
        Bug::AgentTakesTwinLeadership => &[(Fault::JournalRestore, 8_000), (Fault::ManagerKill, 15_000)],
        Bug::NewLedgerFrees => &[(Fault::StoreLost, 10_000)],
        Bug::TransmissionReused | Bug::AgentCountsFromArrival => {
            &[(Fault::NetSlow, 5_000), (Fault::NetCut, 8_000)]
        }
        Bug::FenceReused | Bug::AnyFenceFrees => {
            &[(Fault::NetCut, 8_000), (Fault::MachineReboot, 15_000), (Fault::AgentKill, 10_000)]
        }
        Bug::StartBeforeDurable | Bug::EndForgotten | Bug::UnknownStopForgotten => {
            &[(Fault::AgentKill, 5_000), (Fault::NetCut, 8_000), (Fault::ManagerKill, 10_000)]
        }
        Bug::RepeatedGrantRefused => &[(Fault::NetCut, 5_000), (Fault::NetSlow, 5_000)],
        Bug::MissingFrees => {
            &[(Fault::NetSlow, 5_000), (Fault::AgentKill, 8_000), (Fault::ManagerKill, 6_000)]
        }
        Bug::ManagerCountsFromAcknowledgement | Bug::NoDriftBound | Bug::DeadlineMovesBack => {
            &[(Fault::NetCut, 6_000)]
        }
        Bug::RestartForgetsLeases => &[(Fault::ManagerKill, 6_000), (Fault::ManagerPower, 12_000)],
        Bug::AnswersWithoutClaim => {
            &[(Fault::Takeover, 12_000), (Fault::ManagerFreeze, 8_000), (Fault::ManagerPause, 8_000)]
        }
        Bug::RecoveryDispatches
        | Bug::RecoveryResends
        | Bug::ReportedRunIgnored
        | Bug::StaleInventoryCounts => &[
            (Fault::JournalRestore, 12_000),
            (Fault::ManagerKill, 10_000),
            (Fault::ManagerPower, 15_000),
            (Fault::NetCut, 8_000),
            (Fault::NetSlow, 8_000),
        ],
        Bug::ConfirmationAnswersForClusters => &[(Fault::JournalRestore, 12_000), (Fault::NetCut, 8_000)],
        Bug::ReplyBeforeCommit => {
            &[(Fault::ManagerKill, 4_000), (Fault::ManagerPower, 8_000), (Fault::DiskFailSync, 8_000)]
        }
        Bug::SlowClusterAwaited => {
            &[(Fault::NetCut, 5_000), (Fault::NetSlow, 5_000), (Fault::AgentPause, 8_000)]
        }
        Bug::HalfGangHeld
        | Bug::QuotaNotCharged
        | Bug::CapsIgnored
        | Bug::ResidencyCheckedOnce
        | Bug::VictimQuotaGivenAway
        | Bug::LendingLimitIgnored
        | Bug::VictimSpared
        | Bug::ReasonForgotten => &[],
    }
}
