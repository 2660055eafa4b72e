//! P1: everything that was acknowledged is remembered. It is checked when a leadership begins, after every
//! record by which a world could forget something, and at the end.

use crate::sim::invariants::violation::Verdict;
use crate::sim::world::Simulation;
use meridian_manager_core::World;

impl Simulation {
    /// The world has every acknowledged change.
    pub(crate) fn check_durability(&self, world: &World) -> Verdict {
        self.invariants
            .submissions
            .check_durability(world, &self.users.objects)
            .and_then(|()| self.users.activity.check_durability(world))
            .and_then(|()| self.users.resizes.check_durability(world))
    }
}
