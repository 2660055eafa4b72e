//! Snapshots: all durable state as bytes, which a journal keeps instead of older records.

use crate::config::Config;
use crate::facts::submission::{Class, ClassId};
use crate::state::State;
use crate::world::World;
use std::sync::Arc;

/// Version of the snapshot format.
pub const SNAPSHOT_VERSION: u32 = 4;

/// All durable state at one moment. Cheap to take, because it shares most of its data with the world.
#[derive(Debug)]
pub struct Still {
    pub(super) state: State,
    pub(super) classes: Vec<(ClassId, Arc<Class>)>,
    pub(super) next: ClassId,
}

impl Still {
    /// Serialises the state. `size_hint` is the expected length in bytes.
    pub fn into_bytes(self, size_hint: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(size_hint);
        serde_json::to_writer(&mut bytes, &(SNAPSHOT_VERSION, self.state, self.classes, self.next))
            .expect("plain data always serialises");
        bytes
    }
}

impl World {
    pub fn snapshot(&self) -> Vec<u8> {
        self.still().into_bytes(0)
    }

    /// The durable state as it is now, to be serialised later.
    pub fn still(&self) -> Still {
        let classes = self.queues.classes().map(|(id, class)| (id, class.clone())).collect();
        Still { state: self.state.clone(), classes, next: self.queues.next_class() }
    }

    /// Reads a snapshot. Fails if the bytes aren't a snapshot of version [`SNAPSHOT_VERSION`].
    pub fn restore(bytes: &[u8], config: Config) -> Result<Self, String> {
        let (version, state, classes, next): (u32, State, Vec<(ClassId, Class)>, ClassId) =
            serde_json::from_slice(bytes).map_err(|e| format!("the snapshot can't be read: {e}"))?;
        if version != SNAPSHOT_VERSION {
            return Err(format!(
                "the snapshot has version {version}, this manager reads version {SNAPSHOT_VERSION}"
            ));
        }
        let mut world = Self::empty(state.journal(), config);
        world.state = state;
        world.recount(classes, next);
        Ok(world)
    }
}
