//! Reads of committed data, and errors of the store put into words.

use super::super::encoding::{SnapshotRow, State, Table, unseal};
use super::super::medium::{Watch, io_error};
use super::super::{AuditNumber, Error, Reader, Snapshot, Visit};
use super::{AUDIT, BODY, LOG, META, SNAPSHOT, SNAPSHOT_KEY, STATE_KEY, Trouble};
use ::redb::{
    Database, ReadTransaction, ReadableDatabase, ReadableTable, ReadableTableMetadata, TableDefinition,
};
use meridian_shared::ids::{ContentHash, RecordNumber};
use std::ops::RangeBounds;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// The store, shared between the writer and its readers. Empty after a reload that failed.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) slot: RwLock<Option<Database>>,
    pub(super) place: String,
}

impl Drop for Shared {
    /// A store whose pages rotted, or that somebody else has written to, may panic while it is closed: what it said stands already.
    fn drop(&mut self) {
        let store = self.slot.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        let closed = contained(&self.place, move || {
            drop(store);
            Ok(())
        });
        if closed.is_err() {
            tracing::error!(place = %self.place, "the journal could not be closed in order");
        }
    }
}

impl Shared {
    pub(super) fn read(&self) -> RwLockReadGuard<'_, Option<Database>> {
        // the slot is replaced in one step, so a panic elsewhere leaves no half of it
        self.slot.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn write(&self) -> RwLockWriteGuard<'_, Option<Database>> {
        self.slot.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn look<T>(&self, act: impl FnOnce(&ReadTransaction) -> Result<T, Trouble>) -> Result<T, Error> {
        let slot = self.read();
        let database = slot.as_ref().ok_or_else(|| Error::Poisoned { place: self.place.clone() })?;
        let looked = contained(&self.place, || act(&database.begin_read()?));
        looked.map_err(|trouble| blame("read", &self.place, None, trouble))
    }

    fn damaged(&self, what: String) -> Trouble {
        Error::Corrupt { place: self.place.clone(), what }.into()
    }

    /// Walks over `range` of one numbered table, entry by entry.
    fn walk(
        &self,
        txn: &ReadTransaction,
        (table, definition): (Table, TableDefinition<'_, u64, &[u8]>),
        range: impl RangeBounds<u64>,
        visit: Visit<'_, u64>,
    ) -> Result<(), Trouble> {
        for entry in ReadableTable::range::<u64>(&txn.open_table(definition)?, range)? {
            let (number, value) = entry?;
            let number = number.value();
            let payload = unseal(table, number.into(), value.value()).map_err(|what| self.damaged(what))?;
            let visited =
                catch_unwind(AssertUnwindSafe(|| visit(number, payload))).map_err(Trouble::Panic)?;
            visited.map_err(|reason| Error::Rejected { place: self.place.clone(), number, reason })?;
        }
        Ok(())
    }

    pub(super) fn replay(&self, after: RecordNumber, visit: Visit<'_, RecordNumber>) -> Result<(), Error> {
        let range = after.0.saturating_add(1)..;
        self.look(|txn| {
            self.walk(txn, (Table::Log, LOG), range, &mut |number, payload| {
                visit(RecordNumber(number), payload)
            })
        })
    }

    pub(super) fn snapshot(&self) -> Result<Option<Snapshot>, Error> {
        self.look(|txn| {
            let Some(row) = txn.open_table(META)?.get_owned(SNAPSHOT_KEY)? else {
                return Ok(None);
            };
            let row = SnapshotRow::decode(row.value()).map_err(|what| self.damaged(what))?;
            if txn.open_table(SNAPSHOT)?.len()? != row.chunks {
                return Err(self.damaged("the snapshot lacks a chunk".into()));
            }
            let mut bytes = Vec::new();
            self.walk(txn, (Table::Snapshot, SNAPSHOT), .., &mut |_, chunk| {
                bytes.extend_from_slice(chunk);
                Ok(())
            })?;
            if SnapshotRow::of(row.through, &bytes) != row {
                return Err(self.damaged("the snapshot fails its check".into()));
            }
            Ok(Some(Snapshot { through: row.through, bytes }))
        })
    }
}

impl Reader for Shared {
    fn body(&self, hash: ContentHash) -> Result<Option<Vec<u8>>, Error> {
        self.look(|txn| match txn.open_table(BODY)?.get_owned(hash.0)? {
            Some(value) => unseal(Table::Body, hash.0, value.value())
                .map(|body| Some(body.to_vec()))
                .map_err(|what| self.damaged(what)),
            None => Ok(None),
        })
    }

    fn audit(
        &self,
        from: AuditNumber,
        until: AuditNumber,
        visit: Visit<'_, AuditNumber>,
    ) -> Result<(), Error> {
        if from >= until {
            return Ok(());
        }
        self.look(|txn| {
            self.walk(txn, (Table::Audit, AUDIT), from.0..until.0, &mut |number, line| {
                visit(AuditNumber(number), line)
            })
        })
    }

    fn audit_head(&self) -> Result<Option<(AuditNumber, Vec<u8>)>, Error> {
        self.look(|txn| {
            let Some(row) = txn.open_table(META)?.get_owned(STATE_KEY)? else {
                return Err(self.damaged("the row `state` is missing".into()));
            };
            let next = State::decode(row.value()).map_err(|what| self.damaged(what))?.audit_next;
            let mut head = None;
            if next > 1 {
                self.walk(txn, (Table::Audit, AUDIT), next - 1..next, &mut |number, line| {
                    head = Some((AuditNumber(number), line.to_vec()));
                    Ok(())
                })?;
                if head.is_none() {
                    return Err(self.damaged("the audit log lacks its last line".into()));
                }
            }
            Ok(head)
        })
    }
}

/// Runs `act` on the store. The store verifies its checksums only when it repairs, and panics on some pages that rotted
/// since: that is the file's damage, not our bug, and says so instead of ending the process.
pub(super) fn contained<T>(place: &str, act: impl FnOnce() -> Result<T, Trouble>) -> Result<T, Trouble> {
    match catch_unwind(AssertUnwindSafe(act)) {
        Ok(Err(Trouble::Panic(panic))) => resume_unwind(panic),
        Ok(done) => done,
        Err(_) => {
            Err(Error::Corrupt { place: place.to_owned(), what: "its pages contradict each other".into() }
                .into())
        }
    }
}

/// Puts a trouble into words. `watch` knows of a full disk even where the store reports something vaguer.
pub(super) fn blame(operation: &'static str, place: &str, watch: Option<&Watch>, trouble: Trouble) -> Error {
    let place = place.to_owned();
    let error = match trouble {
        Trouble::Said(error) => return error,
        Trouble::Panic(panic) => resume_unwind(panic),
        Trouble::Store(error) => *error,
    };
    if watch.is_some_and(Watch::take_full) {
        return Error::Full { place };
    }
    match error {
        ::redb::Error::Io(source) => io_error(operation, place)(source),
        ::redb::Error::DatabaseAlreadyOpen => Error::Held { place },
        ::redb::Error::UpgradeRequired(version) => {
            Error::Version { place, found: format!("store version {version}") }
        }
        ::redb::Error::Corrupted(what) => Error::Corrupt { place, what },
        ::redb::Error::PreviousIo => Error::Poisoned { place },
        other => Error::Store { operation, place, source: Box::new(other) },
    }
}
