//! How a leadership starts, and how it continues after a failed commit (docs/protocol.md, Recovery).
//!
//! After a failed commit the world in memory may be ahead of the journal, so it is dropped and read again,
//! under a higher epoch. If the claim never expired and the reload found no foreign record, no other manager
//! can have led in between: the new leadership skips recovery and continues at once. It keeps only lease
//! deadlines of the volatile state, because this process knows every answer that renewed a lease. Without
//! them, a lost cluster's leases would never lapse on a disk that fails repeatedly. All other volatile state
//! contains effects of the failed batch, so sessions send their inventories again. If the claim did expire,
//! the reload is a normal start: it waits for claims, and recovers.

use crate::host::Host;
use crate::host::replay::{ReplayError, replay};
use crate::journal::{self, Journal, ReloadOutcome};
use meridian_manager_core::facts::outcome::{Bodies, Outcome};
use meridian_manager_core::facts::submission::RecoveryStart;
use meridian_manager_core::{Start, World};
use meridian_shared::ids::RecordNumber;
use meridian_shared::lease::Claim;
use meridian_shared::time::{Millis, Now};

/// How the journal was created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartMode {
    /// The journal existed before this start.
    Open,
    /// The journal was created just now, and the operator asserts that nothing ran before.
    Init,
    /// The journal was created just now in place of a lost one. Running workloads and their clusters are
    /// unknown.
    InitRecover,
}

/// How the next leadership starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeadershipPlan {
    /// Recovery, unless this journal is known to be complete.
    pub recovery: Option<RecoveryStart>,
    /// The operator stated that no workload ran before (`--init`).
    pub fresh: bool,
    /// Time to wait first, until every claim of an earlier leader has expired.
    pub wait: Millis,
}

impl LeadershipPlan {
    const WITHOUT_RECOVERY: Self = Self { recovery: None, fresh: false, wait: Millis(0) };

    fn with(recovery: RecoveryStart, world: &World) -> Self {
        let wait = Claim::takeover_wait(world.config().term_min);
        Self { recovery: Some(recovery), fresh: false, wait }
    }

    fn of_opened(journal: &dyn Journal, world: &World) -> Self {
        // An empty journal doesn't prove that nothing runs: a manager that created it to replace a lost
        // journal may have ended before it wrote a record.
        let members_unknown = world.state().last() == RecordNumber(0);
        Self::with(RecoveryStart { restored: journal.identity_changed(), members_unknown }, world)
    }
}

/// Consequence of a failed commit.
#[derive(Debug)]
pub enum Reloaded {
    /// This process can lead again by this plan. `completed`: the failed commit turned out to be durable.
    Plan { plan: LeadershipPlan, completed: bool },
    /// Another process has written to the journal.
    ForeignWriter,
}

impl<C> Host<C> {
    /// The plan of a process that starts. `vouched`: whether the mark in shared memory proves that this
    /// journal is as the previous process left it.
    pub fn plan_start(&self, mode: StartMode, vouched: bool, journal: &dyn Journal) -> LeadershipPlan {
        match mode {
            StartMode::Init => LeadershipPlan { fresh: true, ..LeadershipPlan::WITHOUT_RECOVERY },
            StartMode::InitRecover => {
                LeadershipPlan::with(RecoveryStart { restored: false, members_unknown: true }, &self.world)
            }
            StartMode::Open if vouched => LeadershipPlan::WITHOUT_RECOVERY,
            StartMode::Open => LeadershipPlan::of_opened(journal, &self.world),
        }
    }

    /// Begins a leadership. Its records must be committed before anything else; they may use the reserved
    /// space.
    pub fn lead(&mut self, plan: &LeadershipPlan, id: u64, now: Now, bodies: &dyn Bodies) -> Outcome {
        self.observe(now);
        // if an earlier leadership left a recovery open, keep all its causes
        let open = self.world.state().recovery().cloned();
        let recovery = plan.recovery.as_ref().map(|start| RecoveryStart {
            restored: start.restored || open.as_ref().is_some_and(|open| open.restored),
            members_unknown: start.members_unknown || open.as_ref().is_some_and(|open| open.members_unknown),
        });
        self.world.lead(Start { id, recovery, fresh: plan.fresh, now }, bodies)
    }

    /// Returns to the durable state after a failed commit.
    ///
    /// # Errors
    /// If the journal can't be read yet, or not at all. The host keeps its world and may try again.
    pub fn reload(&mut self, journal: &mut dyn Journal, now: Now) -> Result<Reloaded, ReplayError> {
        let found = if journal.needs_reload() { journal.reload()? } else { ReloadOutcome::Acknowledged };
        if found == ReloadOutcome::ForeignWriter {
            return Ok(Reloaded::ForeignWriter);
        }
        let mut world = replay(journal, self.world.config().clone())?;
        let kept = self.holds_claim(now);
        if kept {
            world.go_on_from(&self.world);
        }
        self.world = world;
        self.batch = Default::default();
        self.urgent_only = journal.urgent_only();
        let plan = match kept {
            true => LeadershipPlan::WITHOUT_RECOVERY,
            false => LeadershipPlan::of_opened(journal, &self.world),
        };
        Ok(Reloaded::Plan { plan, completed: found == ReloadOutcome::CommitCompleted })
    }
}

/// Whether a further reload can't succeed, because another process leads, or the storage is no longer this
/// journal.
pub fn is_final(error: &ReplayError) -> bool {
    use journal::Error as J;
    match error {
        ReplayError::Journal(cause) => !matches!(
            cause,
            J::Io { .. } | J::Storage { .. } | J::Full { .. } | J::ReloadRequired { .. } | J::Invalid { .. }
        ),
        ReplayError::Undecodable(_) => true,
    }
}
