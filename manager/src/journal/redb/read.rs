//! Reads of committed data, and the conversion of the store's errors.

use super::super::encoding::{SnapshotRow, State, Table, unseal};
use super::super::medium::{GateStatus, io_error};
use super::super::{AuditNumber, Error, Reader, Snapshot, Visit};
use super::{AUDIT, BODY, Failure, LOG, META, SNAPSHOT, SNAPSHOT_KEY, STATE_KEY};
use crate::locks;
use ::redb::{Database, ReadOnlyTable, ReadTransaction, ReadableDatabase, ReadableTableMetadata};
use meridian_shared::ids::{ContentHash, RecordNumber};
use std::ops::RangeBounds;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// The store, shared between the writer and its readers. Empty after a reload that failed.
#[derive(Debug)]
pub(super) struct SharedStore {
    pub(super) slot: RwLock<Option<Database>>,
    pub(super) place: String,
}

impl Drop for SharedStore {
    /// A store with damaged pages, or that another process has written to, may panic while it closes. All
    /// commits are durable by then.
    fn drop(&mut self) {
        let store = self.slot.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        let closed = catch_store_panic(&self.place, move || {
            drop(store);
            Ok(())
        });
        if closed.is_err() {
            tracing::error!(place = %self.place, "the journal could not be closed in order");
        }
    }
}

impl SharedStore {
    pub(super) fn read(&self) -> RwLockReadGuard<'_, Option<Database>> {
        // the slot is replaced in one step, so a panic elsewhere leaves no half of it
        locks::read(&self.slot)
    }

    pub(super) fn write(&self) -> RwLockWriteGuard<'_, Option<Database>> {
        locks::write(&self.slot)
    }

    fn read_transaction<T>(
        &self,
        act: impl FnOnce(&ReadTransaction) -> Result<T, Failure>,
    ) -> Result<T, Error> {
        let slot = self.read();
        let database = slot.as_ref().ok_or_else(|| Error::ReloadRequired { place: self.place.clone() })?;
        let done = catch_store_panic(&self.place, || act(&database.begin_read()?));
        done.map_err(|failure| into_error("read", &self.place, None, failure))
    }

    fn damaged(&self, what: String) -> Failure {
        Error::Damaged { place: self.place.clone(), what }.into()
    }

    /// Visits the entries of one numbered table in `range`.
    fn visit_range(
        &self,
        entries: ReadOnlyTable<u64, &'static [u8]>,
        table: Table,
        range: impl RangeBounds<u64>,
        visit: Visit<'_, u64>,
    ) -> Result<(), Failure> {
        for entry in entries.range::<u64>(range)? {
            let (number, value) = entry?;
            let number = number.value();
            let payload = unseal(table, number.into(), value.value()).map_err(|what| self.damaged(what))?;
            let visited =
                catch_unwind(AssertUnwindSafe(|| visit(number, payload))).map_err(Failure::Panic)?;
            visited.map_err(|reason| Error::Rejected { place: self.place.clone(), number, reason })?;
        }
        Ok(())
    }

    pub(super) fn replay(&self, after: RecordNumber, visit: Visit<'_, RecordNumber>) -> Result<(), Error> {
        let range = after.0.saturating_add(1)..;
        self.read_transaction(|txn| {
            self.visit_range(txn.open_table(LOG)?, Table::Log, range, &mut |number, payload| {
                visit(RecordNumber(number), payload)
            })
        })
    }

    pub(super) fn snapshot(&self) -> Result<Option<Snapshot>, Error> {
        self.read_transaction(|txn| {
            let Some(row) = txn.open_table(META)?.get_owned(SNAPSHOT_KEY)? else {
                return Ok(None);
            };
            let row = SnapshotRow::decode(row.value()).map_err(|what| self.damaged(what))?;
            if txn.open_table(SNAPSHOT)?.len()? != row.chunks {
                return Err(self.damaged("the snapshot lacks a chunk".into()));
            }
            let mut bytes = Vec::new();
            self.visit_range(txn.open_table(SNAPSHOT)?, Table::Snapshot, .., &mut |_, chunk| {
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

impl Reader for SharedStore {
    fn body(&self, hash: ContentHash) -> Result<Option<Vec<u8>>, Error> {
        self.read_transaction(|txn| match txn.open_table(BODY)?.get_owned(hash.0)? {
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
        self.read_transaction(|txn| {
            self.visit_range(txn.open_table(AUDIT)?, Table::Audit, from.0..until.0, &mut |number, line| {
                visit(AuditNumber(number), line)
            })
        })
    }

    fn audit_head(&self) -> Result<Option<(AuditNumber, Vec<u8>)>, Error> {
        self.read_transaction(|txn| {
            let Some(row) = txn.open_table(META)?.get_owned(STATE_KEY)? else {
                return Err(self.damaged("the row `state` is missing".into()));
            };
            let next = State::decode(row.value()).map_err(|what| self.damaged(what))?.audit_next;
            let mut head = None;
            if next > 1 {
                self.visit_range(
                    txn.open_table(AUDIT)?,
                    Table::Audit,
                    next - 1..next,
                    &mut |number, line| {
                        head = Some((AuditNumber(number), line.to_vec()));
                        Ok(())
                    },
                )?;
                if head.is_none() {
                    return Err(self.damaged("the audit log lacks its last line".into()));
                }
            }
            Ok(head)
        })
    }
}

/// Runs `act` on the store. The store verifies its checksums only when it repairs, and panics on some damaged
/// pages. Such a panic becomes an error about the file instead of ending the process.
pub(super) fn catch_store_panic<T>(
    place: &str,
    act: impl FnOnce() -> Result<T, Failure>,
) -> Result<T, Failure> {
    match catch_unwind(AssertUnwindSafe(act)) {
        Ok(Err(Failure::Panic(panic))) => resume_unwind(panic),
        Ok(done) => done,
        Err(_) => {
            Err(Error::Damaged { place: place.to_owned(), what: "its pages contradict each other".into() }
                .into())
        }
    }
}

/// Converts a failure. `status` knows of a full disk even where the store reports something vaguer.
pub(super) fn into_error(
    operation: &'static str,
    place: &str,
    status: Option<&GateStatus>,
    failure: Failure,
) -> Error {
    let place = place.to_owned();
    let error = match failure {
        Failure::Journal(error) => return error,
        Failure::Panic(panic) => resume_unwind(panic),
        Failure::Store(error) => *error,
    };
    if status.is_some_and(GateStatus::take_full) {
        return Error::Full { place };
    }
    match error {
        ::redb::Error::Io(source) => io_error(operation, place)(source),
        ::redb::Error::DatabaseAlreadyOpen => Error::Locked { place },
        ::redb::Error::UpgradeRequired(version) => {
            Error::FormatVersion { place, found: format!("store version {version}") }
        }
        ::redb::Error::Corrupted(what) => Error::Damaged { place, what },
        ::redb::Error::PreviousIo => Error::ReloadRequired { place },
        other => Error::Storage { operation, place, source: Box::new(other) },
    }
}
