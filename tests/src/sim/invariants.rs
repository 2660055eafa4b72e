//! The promises of the design, checked after every step.
//!
//! The checks see everything and keep separate records. They never ask a core what is allowed: lease
//! arithmetic, residency, quota and the rules of recovery are written here, or in the [reference
//! model](super::reference_model), from the protocol's text.
//!
//! | file | checks |
//! |---|---|
//! | `submissions` | P1: acknowledged requests are remembered |
//! | `attempts` | P2: fences grow, and an attempt that is over never runs again |
//! | `leases` | when a lease may be called lapsed |
//! | `recovery` | what is dispatched while recovery is open, and when it may close |
//! | `capacity` | P4: what clusters may be believed to have |
//! | `quota` | P3, P4 and P7: quota as the records move it, and rights to preempt |
//! | `answers`, `reports` | what is sent to a cluster, and what a cluster reports |
//! | `activity`, `priorities`, `members`, `explanations` | the rules for each of these |

pub(crate) mod activity;
mod answers;
pub(crate) mod attempts;
mod capacity;
pub(crate) mod durability;
pub(crate) mod explanations;
pub(crate) mod leases;
pub(crate) mod members;
pub(crate) mod observation;
pub(crate) mod priorities;
mod quota;
pub(crate) mod recovery;
pub(crate) mod replay;
mod reports;
pub(crate) mod submissions;
pub(crate) mod violation;

use crate::sim::clusters::GpuLimits;
use crate::sim::fleet::job::SimulatedJob;
use activity::check_activity;
use attempts::Attempts;
use leases::Leases;
use members::MemberNames;
use meridian_agent_core::Start;
use meridian_manager_core::World;
use meridian_manager_core::facts::actor::Actor;
use meridian_manager_core::facts::record::Record;
use meridian_manager_core::facts::record::{LeadershipFact, MemberFact, ObjectFact, WorkloadFact};
use meridian_shared::ids::{ClusterName, Fence, Uid};
use meridian_shared::protocol::EndResult;
use observation::Observation;
use quota::replay::QuotaReplay;
use recovery::RecoveryRules;
use std::collections::BTreeMap;
use submissions::Submissions;
use violation::{Verdict, violation};

/// How often one workload may preempt another without a new event. More than once, because a cluster may
/// refuse in between.
const PREEMPTIONS_MAX: u32 = 2;

/// State of the checks.
#[derive(Debug, Default)]
pub(crate) struct Invariants {
    /// Every job that was ever submitted.
    pub(crate) jobs: BTreeMap<Uid, SimulatedJob>,
    pub(crate) submissions: Submissions,
    pub(crate) attempts: Attempts,
    pub(crate) leases: Leases,
    pub(crate) recovery: RecoveryRules,
    pub(crate) members: MemberNames,
    limits: GpuLimits,
    /// Whether fair sharing is on.
    fair: bool,
    /// How often one workload preempted another since something new happened, by preemptor and victim.
    preemptions: BTreeMap<(Uid, Uid), u32>,
}

impl Invariants {
    pub(crate) fn new(fair: bool, limits: GpuLimits) -> Self {
        Self { fair, limits, ..Self::default() }
    }

    /// An older copy of the journal is in use: forgets what it doesn't contain.
    pub(crate) fn history_lost(&mut self, world: &World) {
        self.attempts.history_lost(world);
        self.submissions.history_lost(world);
    }

    /// Checks the outcome of one input. `is_alive` says whether an honest machine runs an attempt right now.
    pub(crate) fn check(
        &mut self,
        observation: &Observation<'_>,
        is_alive: &dyn Fn(Uid, Fence) -> bool,
    ) -> Verdict {
        let Observation { world, outcome, .. } = observation;
        world.check().or_else(|details| violation("World::check", details))?;
        self.check_quota(observation)?;
        check_activity(observation)?;
        let declared_lost = outcome
            .records
            .iter()
            .any(|(_, r)| matches!(r, Record::Member { fact: MemberFact::DeclaredLost { .. }, .. }));
        for (_, record) in &outcome.records {
            self.check_record(observation, record)?;
            match record {
                Record::Workload { uid, fact: WorkloadFact::LeaseLapsed { fence, .. } } => {
                    if let Some(job) = self.jobs.get(uid).filter(|_| !declared_lost) {
                        self.leases.check_lapse(observation, job, *uid, *fence)?;
                    }
                    self.attempts.over(*uid, *fence, "lapsed", is_alive)?;
                }
                Record::Workload { uid, fact: WorkloadFact::Ended { fence, .. } } => {
                    self.attempts.over(*uid, *fence, "ended", is_alive)?
                }
                Record::Workload { uid, fact: WorkloadFact::GrantRefused { fence, .. } } => {
                    self.attempts.over(*uid, *fence, "refused", is_alive)?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Checks a record that starts or grants something.
    fn check_record(&mut self, observation: &Observation<'_>, record: &Record) -> Verdict {
        let world = observation.world;
        match record {
            Record::Leadership(LeadershipFact::Started { leadership, recovery, foreign, .. }) => {
                let copy = recovery.as_ref().is_some_and(|r| r.restored || r.members_unknown);
                let may_be_old = copy || (recovery.is_some() && !world.state().members().is_empty());
                if may_be_old && foreign.is_empty() && world.state().rules_doubted().is_none() {
                    let details = format!("{leadership} may lead an old copy, and trusts its rules");
                    return violation("rules", details);
                }
                self.leases.led(*leadership, observation.now, None);
            }
            // Until now another copy may have granted and renewed.
            Record::Leadership(LeadershipFact::CopiesRuledOut { .. })
                if observation.before.recovery.as_ref().is_some_and(|r| r.restored) =>
            {
                self.leases.led(observation.before.leadership, observation.now, None);
            }
            Record::Member { cluster, fact: MemberFact::DeclaredLost { ledger, .. } } => {
                self.recovery.declared_lost(observation.before, cluster, *ledger);
            }
            Record::Member { cluster, fact: MemberFact::Admitted { by } } => {
                self.members.check_admission(cluster, by)?
            }
            Record::Workload { uid, fact: WorkloadFact::PodsReclaimed { fence, pods } } => {
                self.check_reclaimed(observation, *uid, *fence, pods)?;
            }
            Record::Workload { uid, fact: WorkloadFact::Granted { fence, .. } } => {
                self.attempts.check_grant(observation, *uid, *fence)?;
                self.recovery.check_dispatch(observation, &self.leases, *uid, "granted")?;
            }
            Record::Workload { uid, fact: WorkloadFact::ScaleUpStarted { fence, places, .. } } => {
                self.attempts.scaled_up(*uid, *fence, places.iter().sum());
                let leg = world.state().workloads().get(uid).and_then(|w| w.leg_of(*fence));
                if let Some(cluster) = leg.map(|(_, leg)| leg.cluster().clone()) {
                    self.check_limit(world, *uid, &cluster)?;
                }
                self.recovery.check_dispatch(observation, &self.leases, *uid, "scaled up")?;
            }
            Record::Workload { uid, fact: WorkloadFact::Offered { .. } }
                if world.state().rules_doubted().is_some() =>
            {
                return violation("rules", format!("{uid} is offered while rules are in doubt"));
            }
            Record::Workload { uid, fact: WorkloadFact::Offered { cluster, .. } } => {
                self.check_limit(world, *uid, cluster)?;
                self.recovery.check_dispatch(observation, &self.leases, *uid, "offered")?;
            }
            Record::Leadership(LeadershipFact::RecoveryClosed { by: Actor::System }) => {
                self.recovery.check_closing(observation, &self.leases)?;
            }
            _ => {}
        }
        Ok(())
    }

    /// P3, P4 and P7: quota as the records move it, and the preemptions among them.
    fn check_quota(&mut self, observation: &Observation<'_>) -> Verdict {
        let mut replay = QuotaReplay::new(&observation.before.quota, &self.jobs, self.fair);
        for (_, record) in &observation.outcome.records {
            replay.apply(record)?;
        }
        replay.check_end(observation.world)?;
        let pairs = replay.preemption_pairs();
        if observation.outcome.records.iter().any(|(_, record)| is_news(record)) {
            self.preemptions.clear();
        }
        for (preemptor, victim) in pairs {
            let times = self.preemptions.entry((preemptor, victim)).or_insert(0);
            *times += 1;
            if *times > PREEMPTIONS_MAX {
                let details =
                    format!("{preemptor} preempts {victim} {times} times while nothing else happens");
                return violation("P7", details);
            }
        }
        Ok(())
    }

    /// A runner starts an attempt: with the pods that are left of the job, and with all the time of its
    /// deadline, whatever ran before.
    pub(crate) fn check_start(&self, uid: Uid, fence: Fence, start: &Start) -> Verdict {
        self.attempts.check_not_over(uid, fence, "starts")?;
        let (pods, completed) = (start.placement.len(), start.completed.len());
        match self.jobs.get(&uid) {
            Some(job) if !job.may_start_with(pods, completed as usize) => {
                let details = format!("{uid} starts with {pods} of {} pods, {completed} completed", job.pods);
                violation("P3", details)
            }
            Some(job) if job.deadline != start.run_left => {
                let (left, deadline) = (start.run_left, job.deadline);
                violation("run time", format!("{uid} may run for {left:?}, its deadline is {deadline:?}"))
            }
            _ => Ok(()),
        }
    }

    /// A runner scales an attempt up to this number of places, with this number of pods in use.
    pub(crate) fn check_scale_up(&self, uid: Uid, fence: Fence, places: usize, pods: usize) -> Verdict {
        self.attempts.check_not_over(uid, fence, "is scaled up")?;
        let granted = self.attempts.places_granted(uid, fence);
        if places > granted as usize || !self.jobs.get(&uid).is_none_or(|job| job.may_grow_to(pods)) {
            let details = format!(
                "{uid} (fence {fence}) gets {places} places for {pods} pods, and {granted} are granted"
            );
            return violation("P3", details);
        }
        Ok(())
    }

    /// The cluster limit of a cluster, if it has one.
    fn limit_of(&self, cluster: &ClusterName) -> Option<i64> {
        crate::sim::clusters::cluster_index(cluster.as_str()).and_then(|cluster| self.limits[cluster])
    }
}

/// Whether a record brings something new, after which an earlier decision may be decided differently.
fn is_news(record: &Record) -> bool {
    match record {
        Record::Workload { fact: WorkloadFact::Ended { result, .. }, .. } => {
            !matches!(result, EndResult::Stopped)
        }
        Record::Leadership(LeadershipFact::Started { .. })
        | Record::Leadership(LeadershipFact::RecoveryClosed { .. })
        | Record::Leadership(LeadershipFact::CopiesRuledOut { .. })
        | Record::Leadership(LeadershipFact::RulesDoubted { .. })
        | Record::Leadership(LeadershipFact::RulesConfirmed { .. })
        | Record::Object { fact: ObjectFact::Applied { .. }, .. }
        | Record::Object { fact: ObjectFact::Removed { .. }, .. }
        | Record::Member { fact: MemberFact::SessionOpened { .. }, .. }
        | Record::Member { fact: MemberFact::Admitted { .. }, .. }
        | Record::Workload { fact: WorkloadFact::Submitted(_), .. }
        | Record::Workload { fact: WorkloadFact::Adopted { .. }, .. }
        | Record::Workload { fact: WorkloadFact::LeaseLapsed { .. }, .. }
        | Record::Workload { fact: WorkloadFact::GrantRefused { .. }, .. }
        | Record::Member { fact: MemberFact::DeclaredLost { .. }, .. }
        | Record::Workload { fact: WorkloadFact::DeletionRequested { .. }, .. }
        | Record::Workload { fact: WorkloadFact::Deactivated { .. }, .. }
        | Record::Workload { fact: WorkloadFact::Activated { .. }, .. }
        | Record::Workload { fact: WorkloadFact::PodsReclaimed { .. }, .. }
        | Record::Workload { fact: WorkloadFact::PodsFailed { .. }, .. }
        | Record::Workload { fact: WorkloadFact::IndexesCompleted { .. }, .. }
        | Record::Workload { fact: WorkloadFact::Resized { .. }, .. }
        | Record::Workload { fact: WorkloadFact::PriorityChanged { .. }, .. }
        | Record::Workload { fact: WorkloadFact::Finished { .. }, .. }
        | Record::Workload { fact: WorkloadFact::Forgotten, .. } => true,
        _ => false,
    }
}
