//! P1: what was answered is remembered. Looked at whenever a leadership begins, after every record by which a world could forget
//! something, and at the end.

use meridian_manager_core::facts::record::{ObjectFact, WorkloadFact};
use super::Sim;
use super::oracle::Verdict;
use meridian_manager_core::World;
use meridian_manager_core::facts::record::Record;

/// Whether a record changes or removes what somebody may have been promised.
pub(super) fn may_forget(record: &Record) -> bool {
    matches!(
        record,
        Record::Workload { fact: WorkloadFact::Forgotten, .. }
            | Record::Object { fact: ObjectFact::Removed { .. }, .. }
            | Record::Object { fact: ObjectFact::Applied { .. }, .. }
            | Record::Workload { fact: WorkloadFact::Resized { .. }, .. }
            | Record::Workload { fact: WorkloadFact::Activated { .. }, .. }
            | Record::Workload { fact: WorkloadFact::Deactivated { .. }, .. }
            | Record::Workload { fact: WorkloadFact::DeletionRequested { .. }, .. }
            | Record::Workload { fact: WorkloadFact::Adopted { .. }, .. }
    )
}

impl Sim {
    /// Whether this world knows all that was promised.
    pub(super) fn check_memory(&self, world: &World) -> Verdict {
        self.oracle
            .check_memory(world, &self.people.rules)
            .and_then(|()| self.people.activity.check_memory(world))
            .and_then(|()| self.people.sizes.check_memory(world))
    }
}
