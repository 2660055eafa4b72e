//! Reads of committed data, and the conversion of the store's errors.

use super::super::encoding::{SnapshotRow, State, Table, decode_cut, split_record, unseal};
use super::super::medium::{GateStatus, io_error};
use super::super::{AuditCut, AuditNumber, Error, Part, Reader, Snapshot, Verified, Visit};
use super::{AUDIT, AUDIT_KEY, BODY, BODY_ASIDE, Failure, LOG, META, SNAPSHOT, SNAPSHOT_KEY, STATE_KEY};
use crate::locks;
use ::redb::{Database, ReadOnlyTable, ReadTransaction, ReadableDatabase, TableError};
use meridian_shared::ids::{ContentHash, RecordNumber};
use std::ops::{ControlFlow, RangeBounds};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// The store, shared between the writer and its readers. Empty after a reload that failed.
#[derive(Debug)]
pub(super) struct SharedStore {
    pub(super) slot: RwLock<Option<Database>>,
    pub(super) place: String,
    /// Whether a page of the table of bodies was found to be damaged.
    body_pages_damaged: AtomicBool,
}

impl Drop for SharedStore {
    /// Catches a panic of a closing store, which may have damaged pages or writes of another process. All
    /// commits are already durable.
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
    pub(super) fn new(database: Database, place: String) -> Self {
        Self { slot: RwLock::new(Some(database)), place, body_pages_damaged: AtomicBool::new(false) }
    }

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

    /// The value of a body, in its envelope. Notes if its table has a damaged page.
    fn body_value(&self, hash: ContentHash) -> Result<Option<Vec<u8>>, Error> {
        let read = self.read_transaction(|txn| {
            Ok(txn.open_table(BODY)?.get_owned(hash.0)?.map(|value| value.value().to_vec()))
        });
        if matches!(read, Err(Error::Damaged { .. })) {
            self.body_pages_damaged.store(true, Ordering::Relaxed);
        }
        read
    }

    /// Like [`Self::body_value`], for a body in the table that was set aside.
    fn aside_value(&self, hash: ContentHash) -> Result<Option<Vec<u8>>, Error> {
        self.read_transaction(|txn| match txn.open_table(BODY_ASIDE) {
            Ok(aside) => Ok(aside.get_owned(hash.0)?.map(|value| value.value().to_vec())),
            Err(TableError::TableDoesNotExist(_)) => Ok(None),
            Err(error) => Err(error.into()),
        })
    }

    /// Whether the table of bodies must be set aside before these bodies are written, because a write to a
    /// damaged page fails.
    pub(super) fn must_set_bodies_aside(&self, mut hashes: impl Iterator<Item = ContentHash>) -> bool {
        let found = hashes.any(|hash| matches!(self.body_value(hash), Err(Error::Damaged { .. })));
        found || self.body_pages_damaged.load(Ordering::Relaxed)
    }

    fn state(&self, txn: &ReadTransaction) -> Result<State, Failure> {
        let Some(row) = txn.open_table(META)?.get_owned(STATE_KEY)? else {
            return Err(self.damaged("the row `state` is missing".into()));
        };
        State::decode(row.value()).map_err(|what| self.damaged(what))
    }

    fn cut(&self, txn: &ReadTransaction) -> Result<AuditCut, Failure> {
        match txn.open_table(META)?.get_owned(AUDIT_KEY)? {
            Some(row) => decode_cut(row.value()).map_err(|what| self.damaged(what)),
            None => Ok(AuditCut::default()),
        }
    }

    /// Verifies the entries of one numbered table in `range`, in order, and passes them to `act` until it
    /// breaks.
    fn each_entry(
        &self,
        entries: ReadOnlyTable<u64, &'static [u8]>,
        table: Table,
        range: impl RangeBounds<u64>,
        mut act: impl FnMut(u64, &[u8]) -> Result<ControlFlow<()>, Failure>,
    ) -> Result<ControlFlow<()>, Failure> {
        for entry in entries.range::<u64>(range)? {
            let (number, value) = entry?;
            let number = number.value();
            let payload = unseal(table, number.into(), value.value()).map_err(|what| self.damaged(what))?;
            if act(number, payload)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Passes one entry to the caller's `visit`.
    fn pass_on<N>(
        &self,
        number: u64,
        of: N,
        payload: &[u8],
        visit: Visit<'_, N>,
    ) -> Result<ControlFlow<()>, Failure> {
        let visited = catch_unwind(AssertUnwindSafe(|| visit(of, payload))).map_err(Failure::Panic)?;
        visited.map_err(|reason| Error::Rejected { place: self.place.clone(), number, reason })?;
        Ok(ControlFlow::Continue(()))
    }

    /// Verifies the records after `after`, and that none of them is missing.
    fn each_record(
        &self,
        txn: &ReadTransaction,
        after: u64,
        mut act: impl FnMut(u64, &[u8]) -> Result<ControlFlow<()>, Failure>,
    ) -> Result<(), Failure> {
        let last = self.state(txn)?.last.0;
        let mut previous = None;
        let range = after.saturating_add(1)..;
        let all = self.each_entry(txn.open_table(LOG)?, Table::Log, range, |number, payload| {
            let (before, record) = split_record(number, payload).map_err(|what| self.damaged(what))?;
            if previous.map_or(before > after, |previous| previous != before) {
                return Err(self.damaged(format!("record `{before}` is missing")));
            }
            previous = Some(number);
            act(number, record)
        })?;
        let end = previous.unwrap_or(after);
        if all.is_continue() && end < last {
            return Err(self.damaged(format!("the records after `{end}` are missing")));
        }
        Ok(())
    }

    /// Verifies the audit lines `from..until` that aren't cut off, and that none of them is missing.
    fn each_audit_line(
        &self,
        txn: &ReadTransaction,
        from: u64,
        until: u64,
        mut act: impl FnMut(u64, &[u8]) -> Result<ControlFlow<()>, Failure>,
    ) -> Result<(), Failure> {
        let until = until.min(self.state(txn)?.audit_next);
        let mut next = from.max(self.cut(txn)?.first.0);
        if next >= until {
            return Ok(());
        }
        let missing = |line: u64| self.damaged(format!("line `{line}` of the audit log is missing"));
        let all = self.each_entry(txn.open_table(AUDIT)?, Table::Audit, next..until, |number, line| {
            if number != next {
                return Err(missing(next));
            }
            next = number + 1;
            act(number, line)
        })?;
        if all.is_continue() && next < until { Err(missing(next)) } else { Ok(()) }
    }

    /// Verifies the chunks of the snapshot from `from` on, and that none of them is missing.
    fn each_chunk(
        &self,
        txn: &ReadTransaction,
        from: u64,
        mut act: impl FnMut(u64, &[u8]) -> Result<ControlFlow<()>, Failure>,
    ) -> Result<Option<SnapshotRow>, Failure> {
        let Some(row) = txn.open_table(META)?.get_owned(SNAPSHOT_KEY)? else {
            return Ok(None);
        };
        let row = SnapshotRow::decode(row.value()).map_err(|what| self.damaged(what))?;
        let mut next = from;
        let missing = || self.damaged("the snapshot lacks a chunk".into());
        let all = self.each_entry(txn.open_table(SNAPSHOT)?, Table::Snapshot, from.., |number, chunk| {
            if number != next {
                return Err(missing());
            }
            next = number + 1;
            act(number, chunk)
        })?;
        if all.is_continue() && next < row.chunks { Err(missing()) } else { Ok(Some(row)) }
    }

    pub(super) fn replay(&self, after: RecordNumber, visit: Visit<'_, RecordNumber>) -> Result<(), Error> {
        self.read_transaction(|txn| {
            self.each_record(txn, after.0, |number, record| {
                self.pass_on(number, RecordNumber(number), record, visit)
            })
        })
    }

    pub(super) fn snapshot(&self) -> Result<Option<Snapshot>, Error> {
        self.read_transaction(|txn| {
            let mut bytes = Vec::new();
            let row = self.each_chunk(txn, 0, |_, chunk| {
                bytes.extend_from_slice(chunk);
                Ok(ControlFlow::Continue(()))
            })?;
            let Some(row) = row else { return Ok(None) };
            if SnapshotRow::of(row.through, &bytes) != row {
                return Err(self.damaged("the snapshot fails its check".into()));
            }
            Ok(Some(Snapshot { through: row.through, bytes }))
        })
    }
}

impl Reader for SharedStore {
    fn body(&self, hash: ContentHash) -> Result<Option<Vec<u8>>, Error> {
        let value = match self.body_value(hash)? {
            None => self.aside_value(hash)?,
            value => value,
        };
        let Some(value) = value else { return Ok(None) };
        unseal(Table::Body, hash.0, &value)
            .map(|body| Some(body.to_vec()))
            .map_err(|what| Error::Damaged { place: self.place.clone(), what })
    }

    fn audit_cut(&self) -> Result<AuditCut, Error> {
        self.read_transaction(|txn| self.cut(txn))
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
            self.each_audit_line(txn, from.0, until.0, |number, line| {
                self.pass_on(number, AuditNumber(number), line, visit)
            })
        })
    }

    fn audit_head(&self) -> Result<Option<(AuditNumber, Vec<u8>)>, Error> {
        self.read_transaction(|txn| {
            let next = self.state(txn)?.audit_next;
            let mut head = None;
            self.each_audit_line(txn, next - 1, next, |number, line| {
                head = Some((AuditNumber(number), line.to_vec()));
                Ok(ControlFlow::Continue(()))
            })?;
            Ok(head)
        })
    }

    fn verify(&self, part: Part, from: u64, bytes_max: usize) -> Result<Verified, Error> {
        self.read_transaction(|txn| {
            let mut verified = Verified::default();
            let mut note = |number: u64, payload: &[u8]| {
                verified.bytes += payload.len();
                if verified.bytes < bytes_max {
                    return Ok(ControlFlow::Continue(()));
                }
                verified.next = Some(number.saturating_add(1));
                Ok(ControlFlow::Break(()))
            };
            match part {
                Part::Records => {
                    // records before it may have been dropped since the previous step
                    let after = from.saturating_sub(1).max(self.state(txn)?.truncated.0);
                    self.each_record(txn, after, &mut note)?;
                }
                Part::Snapshot => drop(self.each_chunk(txn, from, &mut note)?),
                Part::Audit => self.each_audit_line(txn, from, u64::MAX, &mut note)?,
            }
            Ok(verified)
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

/// Converts a failure. `status` tells a full disk even if the store reports only a vague error.
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
