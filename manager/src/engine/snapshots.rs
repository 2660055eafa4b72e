//! Snapshots: when one is due, the engine takes the world down as it is, a thread of its own puts that into bytes, and a later
//! batch writes them. Meanwhile the engine goes on.

use crate::journal::Snapshot;
use meridian_manager_core::World;
use meridian_shared::ids::RecordNumber;
use std::thread::JoinHandle;

/// Records after which a snapshot replaces them.
const RECORDS: u64 = 50_000;
/// Bytes of records after which a snapshot replaces them; a larger snapshot waits for as many bytes as twice its own.
const BYTES: usize = 32 << 20;

/// What the journal has grown by, and the snapshot that is being made of it.
#[derive(Debug, Default)]
pub(super) struct Snapshots {
    records: u64,
    bytes: usize,
    /// Of the last snapshot.
    size: usize,
    /// The last record that it includes, and who puts it into bytes.
    under_way: Option<(RecordNumber, JoinHandle<Vec<u8>>)>,
}

impl Snapshots {
    /// So much is in the journal since.
    pub(super) fn grown(&mut self, records: u64, bytes: usize) {
        self.records += records;
        self.bytes += bytes;
    }

    /// The world was thrown away, and with it what is being made of it: not all of that may be durable.
    pub(super) fn forget(&mut self) {
        self.under_way = None;
    }

    /// The snapshot that is to be written with a batch, if one is ready. One of the world as it is with this batch is begun if that
    /// is due.
    pub(super) fn with_batch(&mut self, world: &World) -> Option<Snapshot> {
        let due = (self.records >= RECORDS || self.bytes >= BYTES) && self.bytes >= 2 * self.size;
        if self.under_way.is_none() && due {
            self.begin(world);
            return None;
        }
        let (through, thread) = self.under_way.take_if(|(_, thread)| thread.is_finished())?;
        match thread.join() {
            Ok(bytes) => {
                self.size = bytes.len();
                Some(Snapshot { through, bytes })
            }
            Err(_) => {
                tracing::error!(%through, "a snapshot couldn't be put into bytes; the journal keeps its records until the next one");
                None
            }
        }
    }

    fn begin(&mut self, world: &World) {
        let (through, still, size) = (world.state.last, world.still(), self.size);
        match std::thread::Builder::new().name("snapshot".into()).spawn(move || still.into_bytes(size)) {
            Ok(thread) => (self.records, self.bytes, self.under_way) = (0, 0, Some((through, thread))),
            Err(error) => {
                tracing::warn!(%error, "no thread could be started for a snapshot; the next batch tries again")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use meridian_manager_core::Config;
    use meridian_shared::ids::JournalId;
    use meridian_shared::mac::ReceiptKey;

    fn begun() -> (World, Snapshots) {
        let (world, mut snapshots) =
            (World::empty(JournalId(1), Config::new(ReceiptKey([7; 32]))), Snapshots::default());
        assert_eq!(snapshots.with_batch(&world), None, "nothing is due");
        snapshots.grown(RECORDS, 1);
        assert_eq!(snapshots.with_batch(&world), None, "it is only begun");
        (world, snapshots)
    }

    #[test]
    fn a_snapshot_is_written_with_a_later_batch_and_is_of_the_world_before() {
        let (mut world, mut snapshots) = begun();
        let (through, bytes) = (world.state.last, world.snapshot());
        world.state.last = world.state.last.next();
        let written = loop {
            if let Some(snapshot) = snapshots.with_batch(&world) {
                break snapshot;
            }
            std::thread::yield_now();
        };
        assert_eq!(written, Snapshot { through, bytes });
        assert_eq!(snapshots.with_batch(&world), None, "nothing has come since");
    }

    #[test]
    fn what_was_begun_of_a_world_that_was_thrown_away_is_never_written() {
        let (world, mut snapshots) = begun();
        while snapshots.under_way.as_ref().is_some_and(|(_, thread)| !thread.is_finished()) {
            std::thread::yield_now();
        }
        snapshots.forget();
        assert_eq!(snapshots.with_batch(&world), None);
    }
}
