//! Snapshots: when one is due, the engine takes a copy of the world, a separate thread encodes it, and a
//! later batch writes it. Meanwhile the engine continues.

use crate::journal::Snapshot;
use meridian_manager_core::World;
use meridian_shared::ids::RecordNumber;
use std::thread::JoinHandle;

/// A snapshot is due after this many records or [`BYTES`], but not before twice the size of the last snapshot
/// was written.
const RECORDS: u64 = 50_000;
/// Bytes of records after which a snapshot is due.
const BYTES: usize = 32 << 20;

/// Growth of the journal, and the snapshot in progress.
#[derive(Debug, Default)]
pub(super) struct Snapshots {
    records: u64,
    bytes: usize,
    /// Bytes of the last snapshot.
    size: usize,
    /// The last record in the snapshot in progress, and the thread that encodes it.
    under_way: Option<(RecordNumber, JoinHandle<Vec<u8>>)>,
}

impl Snapshots {
    /// Counts records and bytes that were written since the last snapshot.
    pub(super) fn count_written(&mut self, records: u64, bytes: usize) {
        self.records += records;
        self.bytes += bytes;
    }

    /// Drops the snapshot in progress, because its world was dropped: parts of that world may not be durable.
    pub(super) fn forget(&mut self) {
        self.under_way = None;
    }

    /// The finished snapshot, to be written with this batch. If one is due, the encoding of the world as of
    /// this batch is started.
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
                tracing::error!(
                    %through,
                    "a snapshot couldn't be encoded; the journal keeps its records until the next one"
                );
                None
            }
        }
    }

    fn begin(&mut self, world: &World) {
        let (through, still, size) = (world.state().last(), world.still(), self.size);
        match std::thread::Builder::new().name("snapshot".into()).spawn(move || still.into_bytes(size)) {
            Ok(thread) => (self.records, self.bytes, self.under_way) = (0, 0, Some((through, thread))),
            Err(error) => {
                tracing::warn!(%error, "no thread could be started for a snapshot; trying again later")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use meridian_manager_core::Config;
    use meridian_manager_core::facts::actor::Actor;
    use meridian_manager_core::facts::record::{LeadershipFact, Record};
    use meridian_shared::ids::JournalId;
    use meridian_shared::mac::ReceiptKey;

    fn begun() -> (World, Snapshots) {
        let (world, mut snapshots) =
            (World::empty(JournalId(1), Config::new(ReceiptKey([7; 32]))), Snapshots::default());
        assert_eq!(snapshots.with_batch(&world), None, "nothing is due");
        snapshots.count_written(RECORDS, 1);
        assert_eq!(snapshots.with_batch(&world), None, "it is only begun");
        (world, snapshots)
    }

    #[test]
    fn a_snapshot_is_written_with_a_later_batch() {
        let (mut world, mut snapshots) = begun();
        let (through, bytes) = (world.state().last(), world.snapshot());
        world.absorb(
            world.state().last().next(),
            &Record::Leadership(LeadershipFact::RulesConfirmed { by: Actor::System }),
        );
        let written = loop {
            if let Some(snapshot) = snapshots.with_batch(&world) {
                break snapshot;
            }
            std::thread::yield_now();
        };
        assert_eq!(written, Snapshot { through, bytes });
        assert_eq!(snapshots.with_batch(&world), None, "no record was written since");
    }

    #[test]
    fn the_snapshot_of_a_dropped_world_is_never_written() {
        let (world, mut snapshots) = begun();
        while snapshots.under_way.as_ref().is_some_and(|(_, thread)| !thread.is_finished()) {
            std::thread::yield_now();
        }
        snapshots.forget();
        assert_eq!(snapshots.with_batch(&world), None);
    }
}
