//! P1: what was answered is remembered. Looked at whenever a leadership begins, after every record by which a world could forget
//! something, and at the end.

use super::Sim;
use super::oracle::Verdict;
use meridian_manager_core::World;
use meridian_manager_core::facts::record::Record;

/// Whether a record changes or removes what somebody may have been promised.
pub(super) fn may_forget(record: &Record) -> bool {
    matches!(
        record,
        Record::Forgotten { .. }
            | Record::Removed { .. }
            | Record::Applied { .. }
            | Record::Resized { .. }
            | Record::Activated { .. }
            | Record::Deactivated { .. }
            | Record::DeletionAsked { .. }
            | Record::Adopted { .. }
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
