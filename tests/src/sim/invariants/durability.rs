//! Records that could make a world forget what was acknowledged.

use meridian_manager_core::facts::record::Record;
use meridian_manager_core::facts::record::{ObjectFact, WorkloadFact};

/// Whether a record changes or removes something that may have been acknowledged.
pub(crate) fn may_forget(record: &Record) -> bool {
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
