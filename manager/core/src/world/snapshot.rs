use crate::config::Config;
use crate::facts::submission::{Class, ClassId};
use crate::state::State;
use crate::world::World;
use std::sync::Arc;

/// Version of the snapshot's form.
pub const SNAPSHOT_VERSION: u32 = 2;

/// Everything durable of one moment.
#[derive(Debug)]
pub struct Still {
    pub(super) state: State,
    pub(super) classes: Vec<(ClassId, Arc<Class>)>,
    pub(super) next: ClassId,
}

impl Still {
    /// As a journal keeps it; it will take so many bytes, about.
    pub fn into_bytes(self, size: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(size);
        serde_json::to_writer(&mut bytes, &(SNAPSHOT_VERSION, self.state, self.classes, self.next))
            .expect("our own types serialise");
        bytes
    }
}

impl World {
    /// Everything durable as bytes: what a journal keeps instead of the records before it.
    pub fn snapshot(&self) -> Vec<u8> {
        self.still().into_bytes(0)
    }

    /// Everything durable as it is now, to be put into bytes later. Most of it is shared with the world until that changes.
    pub fn still(&self) -> Still {
        let classes = self.queues.classes().map(|(id, class)| (id, class.clone())).collect();
        Still { state: self.state.clone(), classes, next: self.queues.next_class() }
    }

    /// The world of a snapshot.
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
