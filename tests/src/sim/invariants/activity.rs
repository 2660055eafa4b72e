//! Deactivated workloads aren't dispatched, and their running gangs are being stopped.

use crate::sim::invariants::observation::Observation;
use crate::sim::invariants::violation::{Verdict, violation};
use meridian_manager_core::facts::record::Record;
use meridian_manager_core::facts::record::WorkloadFact;
use meridian_shared::ids::Uid;

/// A deactivated workload gets no quota, no offer and no grant; a running one is being stopped.
pub(super) fn check_activity(observation: &Observation<'_>) -> Verdict {
    let mut inactive = observation.before.inactive.clone();
    for (_, record) in &observation.outcome.records {
        match record {
            Record::Workload { uid, fact: WorkloadFact::Deactivated { .. } } => {
                inactive.insert(*uid);
            }
            Record::Workload { uid, fact: WorkloadFact::Activated { .. } }
            | Record::Workload { uid, fact: WorkloadFact::Forgotten } => {
                inactive.remove(uid);
            }
            Record::Workload { uid, fact: WorkloadFact::QuotaReserved { .. } }
            | Record::Workload { uid, fact: WorkloadFact::Offered { .. } }
            | Record::Workload { uid, fact: WorkloadFact::Granted { .. } }
                if inactive.contains(uid) =>
            {
                return violation("activity", format!("{uid} is deactivated, and is dispatched: {record:?}"));
            }
            _ => {}
        }
    }
    let goes_on = |uid: &&Uid| {
        let workload = observation.world.state().workloads().get(uid);
        workload.is_some_and(|w| w.phase().charged() && w.stopping().is_none())
    };
    match inactive.iter().find(goes_on) {
        Some(uid) => {
            violation("activity", format!("{uid} is deactivated, holds quota, and isn't being stopped"))
        }
        None => Ok(()),
    }
}
