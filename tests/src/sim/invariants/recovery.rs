//! Recovery: what may be dispatched while it is open, and when it may close.

use crate::sim::invariants::leases::Leases;
use crate::sim::invariants::observation::{Observation, WorldBefore};
use crate::sim::invariants::violation::{Verdict, violation};
use meridian_manager_core::facts::outcome::Outcome;
use meridian_manager_core::facts::record::LeadershipFact;
use meridian_manager_core::facts::record::Record;
use meridian_manager_core::facts::submission::RecoveryStart;
use meridian_manager_core::state::workload::Workload;
use meridian_shared::ids::{ClusterName, Leadership, LedgerId, Session, Uid};
use meridian_shared::protocol::OnLoss;
use std::collections::{BTreeMap, BTreeSet};

/// Inventories that reached each leadership.
#[derive(Debug, Default)]
pub(crate) struct RecoveryRules {
    /// The newest complete inventory that reached a leadership, by the session and transmission that brought
    /// it.
    inventories: BTreeMap<(Leadership, ClusterName), (Session, u64)>,
    /// Clusters with a ledger that was declared lost to a leadership.
    lost: BTreeSet<(Leadership, ClusterName)>,
}

impl RecoveryRules {
    /// A complete inventory reaches a leadership. Returns whether it is the newest so far: runs in an older
    /// inventory may be over.
    pub(crate) fn inventory_arrived(
        &mut self,
        leadership: Leadership,
        cluster: &ClusterName,
        sent: (Session, u64),
    ) -> bool {
        let newest = self.inventories.entry((leadership, cluster.clone())).or_insert(sent);
        *newest = sent.max(*newest);
        *newest == sent
    }

    /// An operator declares a ledger lost.
    pub(crate) fn declared_lost(&mut self, before: &WorldBefore, cluster: &ClusterName, ledger: LedgerId) {
        if before.ledgers.get(cluster) == Some(&ledger) {
            self.lost.insert((before.leadership, cluster.clone()));
        }
    }

    /// While recovery is open, a workload older than the leadership isn't dispatched, unless its own term has
    /// passed.
    pub(crate) fn check_dispatch(
        &self,
        observation: &Observation<'_>,
        leases: &Leases,
        uid: Uid,
        what: &str,
    ) -> Verdict {
        let state = observation.world.state();
        let (Some(recovery), Some(w)) = (&state.recovery(), state.workloads().get(&uid)) else {
            return Ok(());
        };
        let is_old = w.submitted() < state.led_since();
        if observation.before.recovery.is_some() && is_old && !is_released(observation, leases, recovery, w) {
            let details = format!("{uid} is older than the leadership and is {what} while recovery is open");
            return violation("recovery", details);
        }
        Ok(())
    }

    /// Recovery closes by itself only when every cluster has reported everything, or when all terms have
    /// passed.
    pub(crate) fn check_closing(&self, observation: &Observation<'_>, leases: &Leases) -> Verdict {
        let Observation { now, before, world, outcome } = observation;
        let leadership = world.state().leadership();
        let Some(mut recovery) = before.recovery.clone().or_else(|| begun_by(outcome)) else { return Ok(()) };
        let rules_out_copies =
            |record: &Record| matches!(record, Record::Leadership(LeadershipFact::CopiesRuledOut { .. }));
        if outcome.records.iter().any(|(_, record)| rules_out_copies(record)) {
            (recovery.restored, recovery.members_unknown) = (false, false);
        }
        let has_reported = |cluster: &ClusterName| {
            let key = (leadership, cluster.clone());
            self.inventories.contains_key(&key) || self.lost.contains(&key)
        };
        let missing: Vec<&ClusterName> = before.ledgers.keys().filter(|m| !has_reported(m)).collect();
        let is_open = |w: &&Workload| w.submitted() < before.led_since && w.finished().is_none();
        let mut open = world.state().workloads().values().filter(is_open);
        let waited = !recovery.restored
            && open.all(|w| is_released(observation, leases, &recovery, w))
            && leases.full_term_passed(leadership, *now, world.config().term);
        if (recovery.members_unknown || !missing.is_empty()) && !waited {
            let details =
                format!("it closes although {missing:?} haven't reported what they run ({recovery:?})");
            return violation("recovery", details);
        }
        Ok(())
    }
}

/// Whether a workload may be dispatched because its own term has passed since the leadership began.
fn is_released(
    observation: &Observation<'_>,
    leases: &Leases,
    recovery: &RecoveryStart,
    w: &Workload,
) -> bool {
    let leadership = observation.world.state().leadership();
    !recovery.restored
        && w.on_loss() == OnLoss::Fence
        && leases.full_term_passed(leadership, observation.now, w.term())
}

/// The recovery that a new leadership begins.
fn begun_by(outcome: &Outcome) -> Option<RecoveryStart> {
    outcome.records.iter().find_map(|(_, r)| match r {
        Record::Leadership(LeadershipFact::Started { recovery, .. }) => recovery.clone(),
        _ => None,
    })
}
