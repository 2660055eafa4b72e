//! Records of a manager as the trace shows them.

use meridian_manager_core::facts::record::Record;
use meridian_manager_core::facts::record::{ObjectFact, WorkloadFact};

/// A record in one line; bodies of objects are left out.
pub(super) fn describe_record(record: &Record) -> String {
    match record {
        Record::Object { key, fact: ObjectFact::Applied { .. } } => format!("applied {key}"),
        Record::Object { key, fact: ObjectFact::Removed { .. } } => format!("removed {key}"),
        Record::Workload { uid, fact: WorkloadFact::Submitted(s) } => {
            let pods: u32 = s.class.gang.pod_sets.iter().map(|set| set.count).sum();
            format!("submitted {uid} to queue `{}`, {pods} pods", s.class.queue)
        }
        record => format!("{record:?}"),
    }
}
