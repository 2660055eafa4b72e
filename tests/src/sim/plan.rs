//! What one seed does: which faults, how often, how many clusters, how bad the network is.
//!
//! Each seed switches a random half of the faults on (swarm testing): a fault that is always there hides what others show.

use super::chance::Chance;
use super::people::PLACES;
use meridian_manager_core::Config;
use meridian_manager_core::config::HEADS_MAX_DEFAULT;
use meridian_queueing::settings::{AdmissionFairSharing, FairSharing};
use meridian_shared::mac::ReceiptKey;
use meridian_shared::planted::{Bug, Planted};
use meridian_shared::time::Millis;
use std::collections::BTreeMap;

/// One kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Fault {
    /// An agent's way to the manager is cut: up, down or both.
    NetCut,
    /// An agent's messages are slow for a while.
    NetSlow,
    /// The manager's process ends between two steps; its page cache lives on.
    ManagerKill,
    /// The manager's machine loses power.
    ManagerPower,
    /// The manager's process stands still; its clock doesn't.
    ManagerPause,
    /// The manager's virtual machine stands still, its boot time too.
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
    /// Another manager takes the volume over; the old one is cut off from it and lives on for a while.
    Takeover,
    /// An agent's process ends between two steps.
    AgentKill,
    /// An agent's process stands still.
    AgentPause,
    /// An agent's virtual machine stands still, boot time and gangs too.
    MachineFreeze,
    /// An agent's machine restarts.
    MachineReboot,
    /// An agent's store is deleted.
    StoreLost,
    /// A second agent with a copy of the store, over the same runner.
    Clone,
    /// A second agent of the same name with a store and a machine of its own.
    Rival,
    /// A wall clock jumps.
    WallJump,
    /// A gang's guard is killed.
    GuardKill,
    /// The disk under an agent's store is full for a while.
    StoreFull,
    /// One commit of an agent's store fails, and whether it is there afterwards nobody knows.
    StoreFailSync,
}

impl Fault {
    /// Every kind, with its usual mean interval in milliseconds.
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
    /// Every queue is alone.
    None,
    /// One cohort.
    Flat,
    /// Cohorts within a cohort, with quotas of their own.
    Deep,
}

/// What one seed does.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The seed.
    pub seed: u64,
    /// Honest worker clusters.
    pub clusters: usize,
    /// One more cluster that lies.
    pub liar: bool,
    /// One more cluster that joins only after a while.
    pub late_joiner: bool,
    /// How long faults go on.
    pub active_ms: u64,
    /// The manager's bound on terms.
    pub term_min: Millis,
    /// Mean interval of each fault that happens.
    pub faults: BTreeMap<Fault, u64>,
    /// Messages lost, out of 1000.
    pub lose: u64,
    /// Messages that arrive twice, out of 1000.
    pub duplicate: u64,
    /// Messages that take very long, out of 1000.
    pub stray: u64,
    /// Slowest usual delay in milliseconds.
    pub delay_max: u64,
    /// Slowest usual commit in milliseconds.
    pub commit_max: u64,
    /// Mean pause between what people do.
    pub people_ms: u64,
    /// The manager writes its heartbeat after it has answered, so that only the claim keeps a cut-off one silent.
    pub late_beats: bool,
    /// How queues share quota.
    pub cohorts: Cohorts,
    /// Fair sharing is on.
    pub fair: bool,
    /// After how long room is kept for the head of a queue, if ever.
    pub starvation_guard: Option<Millis>,
    /// How many heads a manager looks at in one turn.
    pub heads_max: usize,
    /// Fair sharing of admissions by past use is on.
    pub by_usage: bool,
    /// Mean pause between losses of nodes, if any are lost.
    pub node_losses: Option<u64>,
    /// How long pods of a lost node wait for another place.
    pub replacement_wait: Millis,
    /// What each place may be believed to have, if anything bounds it.
    pub limits: [Option<i64>; PLACES.len()],
    /// Nodes stand in racks and blocks, and some gangs want their pods near each other.
    pub topology: bool,
    /// What is broken on purpose.
    pub planted: Option<Bug>,
}

/// Half of the fleets have clusters that may have less than they report, though never too little for the largest gang.
fn limits(chance: &mut Chance) -> [Option<i64>; PLACES.len()] {
    let some = chance.of_1000(500);
    std::array::from_fn(|_| {
        chance.pick(&[None, Some(8), Some(10), Some(12)]).copied().flatten().filter(|_| some)
    })
}

impl Plan {
    /// The plan of a seed.
    pub fn of(seed: u64) -> Self {
        let mut chance = Chance::new(seed, "plan");
        let mut faults = BTreeMap::new();
        let likely = *chance.pick(&[150, 350, 600]).expect("not empty");
        let pace = *chance.pick(&[50, 100, 200]).expect("not empty");
        for (fault, mean) in Fault::ALL {
            if chance.of_1000(likely) {
                faults.insert(*fault, mean * pace / 100);
            }
        }
        let rough = chance.of_1000(600);
        let mut sharing = Chance::new(seed, "cohorts");
        let cohorts = *sharing.pick(&[Cohorts::None, Cohorts::Flat, Cohorts::Deep]).expect("not empty");
        let fair = cohorts != Cohorts::None && sharing.of_1000(350);
        Self {
            seed,
            clusters: 2 + chance.index(2),
            liar: chance.of_1000(150),
            late_joiner: chance.of_1000(250),
            active_ms: chance.between(30_000, 70_000),
            term_min: Millis::secs(8),
            faults,
            lose: if rough { chance.below(80) } else { 0 },
            duplicate: if rough { chance.below(120) } else { 0 },
            stray: if rough { chance.below(60) } else { 0 },
            delay_max: *chance.pick(&[3, 20, 100, 400]).expect("not empty"),
            commit_max: *chance.pick(&[0, 3, 30]).expect("not empty"),
            people_ms: *chance.pick(&[800, 1_500, 3_000]).expect("not empty"),
            late_beats: chance.of_1000(500),
            cohorts,
            fair,
            starvation_guard: Chance::new(seed, "guard")
                .pick(&[None, Some(Millis::secs(3)), Some(Millis::secs(12))])
                .copied()
                .flatten(),
            heads_max: *Chance::new(seed, "heads").pick(&[1, 3, HEADS_MAX_DEFAULT]).expect("not empty"),
            by_usage: Chance::new(seed, "usage").of_1000(250),
            node_losses: Chance::new(seed, "node losses")
                .pick(&[None, Some(4_000), Some(12_000)])
                .copied()
                .flatten(),
            replacement_wait: *Chance::new(seed, "replacement")
                .pick(&[Millis(0), Millis::secs(2), Millis::secs(8)])
                .expect("not empty"),
            limits: limits(&mut Chance::new(seed, "limits")),
            topology: Chance::new(seed, "topology").of_1000(400),
            planted: None,
        }
    }

    /// How its managers are set.
    pub fn config(&self) -> Config {
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

    /// A plan without any fault: what must simply work.
    pub fn calm(seed: u64) -> Self {
        Self {
            faults: BTreeMap::new(),
            node_losses: None,
            liar: false,
            late_joiner: false,
            lose: 0,
            duplicate: 0,
            stray: 0,
            delay_max: 10,
            commit_max: 3,
            ..Self::of(seed)
        }
    }

    /// The plan of a seed that looks for one planted bug.
    pub fn hunting(seed: u64, bug: Bug) -> Self {
        Self { planted: Some(bug), ..Self::towards(seed, bug) }
    }

    /// The same without the bug: the faults under which its rule matters are always there.
    pub fn towards(seed: u64, bug: Bug) -> Self {
        let mut plan = Self::of(seed);
        let often: &[(Fault, u64)] = match bug {
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
            Bug::ReplyBeforeCommit => {
                &[(Fault::ManagerKill, 4_000), (Fault::ManagerPower, 8_000), (Fault::DiskFailSync, 8_000)]
            }
            Bug::SlowClusterAwaited => {
                &[(Fault::NetCut, 5_000), (Fault::NetSlow, 5_000), (Fault::AgentPause, 8_000)]
            }
            Bug::HalfGangHeld
            | Bug::QuotaNotCharged
            | Bug::CapsIgnored
            | Bug::ResidencyJudgedOnce
            | Bug::VictimQuotaGivenAway
            | Bug::LendingLimitIgnored
            | Bug::VictimSpared
            | Bug::ReasonForgotten => &[],
        };
        let displaces =
            matches!(bug, Bug::VictimQuotaGivenAway | Bug::LendingLimitIgnored | Bug::VictimSpared);
        if displaces && plan.cohorts == Cohorts::None {
            plan.cohorts = Cohorts::Flat;
        }
        if bug == Bug::CapsIgnored {
            plan.limits = [Some(8); PLACES.len()];
        }
        if bug == Bug::AgentTakesTwinLeadership {
            // Twins are of one epoch, and every other fault that starts a leader parts them.
            plan.faults.clear();
        }
        plan.faults.extend(often.iter().copied());
        (plan.lose, plan.duplicate, plan.stray) =
            (plan.lose.max(20), plan.duplicate.max(60), plan.stray.max(30));
        plan.liar = false;
        plan.late_beats |= bug == Bug::AnswersWithoutClaim;
        plan
    }
}
