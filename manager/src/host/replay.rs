//! A world from its journal.

use crate::journal::{self, Journal};
use meridian_manager_core::facts::record::Record;
use meridian_manager_core::{Config, World};
use meridian_shared::ids::RecordNumber;

/// Why a journal can't be replayed.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    #[error(transparent)]
    Journal(#[from] journal::Error),
    /// The journal's records or its snapshot can't be decoded.
    #[error(
        "the journal can't be replayed: {0}; use the version that wrote it, or restore a copy with \
         `journal restore`"
    )]
    Undecodable(String),
}

/// Reads the world from a journal.
///
/// # Errors
/// If the journal can't be read or decoded, or its snapshot is another journal's.
pub fn replay(journal: &dyn Journal, config: Config) -> Result<World, ReplayError> {
    let id = journal.meta().journal;
    let (mut world, after) = match journal.snapshot()? {
        Some(snapshot) => {
            let world = World::restore(&snapshot.bytes, config).map_err(ReplayError::Undecodable)?;
            (world, snapshot.through)
        }
        None => (World::empty(id, config), RecordNumber(0)),
    };
    if world.state().journal() != id {
        let other = world.state().journal();
        return Err(ReplayError::Undecodable(format!("its snapshot is of journal `{other}`, not of `{id}`")));
    }
    let mut absorb = |number: RecordNumber, bytes: &[u8]| {
        let record: Record = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
        world.absorb(number, &record);
        Ok(())
    };
    journal.replay(after, &mut absorb)?;
    Ok(world)
}
