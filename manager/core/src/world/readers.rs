//! Read access for other crates.

use crate::queue::mirror::QueueMirror;
use crate::world::World;
use crate::world::loads::Loads;

impl World {
    pub fn mirror(&self) -> &QueueMirror {
        &self.mirror
    }

    /// Workloads with open or granted legs, by cluster.
    pub fn loads(&self) -> &Loads {
        &self.loads
    }
}
