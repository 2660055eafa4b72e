//! The transaction of a commit, and the use of the reserved space when the disk is full.

use super::super::encoding::{
    CHUNK_BYTES, MetaRow, SnapshotRow, State, Table, encode_cut, seal, seal_record,
};
use super::super::medium::io_error;
use super::super::{AuditCut, BATCH_BYTES_MAX, Batch, Error, ReloadOutcome, Snapshot, VALUE_BYTES_MAX};
use super::read::{catch_store_panic, into_error};
use super::{
    AUDIT, AUDIT_KEY, BODY, BODY_ASIDE, Failure, LOG, META, META_KEY, RedbJournal, SNAPSHOT, SNAPSHOT_KEY,
    STATE_KEY,
};
use ::redb::{TableHandle, WriteTransaction};
use meridian_shared::ids::RecordNumber;

impl RedbJournal {
    pub(super) fn commit_batch(&mut self, batch: &Batch) -> Result<(), Error> {
        self.ready()?;
        validate(batch, self.state.truncated)?;
        if let Some(cut) = &batch.audit_cut {
            validate_cut(cut, &self.audit_cut, self.state.audit_next)?;
        }
        if let Err(error) = self.check_fence(batch) {
            self.shut_until_reload();
            return Err(error);
        }
        if self.urgent_only && !batch.urgent && !self.regain_reserve() {
            return Err(Error::Full { place: self.place() });
        }
        let next = self.state.after(batch);
        let hashes = batch.drop_bodies.iter().chain(batch.bodies.iter().map(|(hash, _)| hash));
        let aside = self.shared.must_set_bodies_aside(hashes.copied());
        let written = self.transact(next, |txn, known| {
            if aside && !txn.list_tables()?.any(|table| table.name() == BODY_ASIDE.name()) {
                txn.rename_table(BODY, BODY_ASIDE)?;
                txn.open_table(BODY)?;
            }
            write_batch(txn, batch, known)
        });
        let written = match written {
            Err(Error::Full { .. }) if batch.urgent && !self.urgent_only => {
                self.commit_with_reserve(batch, next)
            }
            written => written,
        };
        if let (Ok(()), Some(cut)) = (&written, batch.audit_cut) {
            self.audit_cut = cut;
        }
        written
    }

    pub(super) fn accept(&mut self) -> Result<(), Error> {
        self.ready()?;
        let identity = self.medium.identity().map_err(io_error("look at", self.place()))?;
        let meta = MetaRow { identity, ..self.meta };
        let next = State { commits: self.state.commits + 1, ..self.state };
        self.transact(next, |txn, _| {
            Ok(txn.open_table(META)?.insert(META_KEY, meta.encode().as_slice()).map(drop)?)
        })?;
        self.meta = meta;
        self.distrusted = false;
        Ok(())
    }

    /// Tries to reserve space again; returns whether it is reserved.
    pub(super) fn regain_reserve(&mut self) -> bool {
        self.urgent_only = self.medium.hold_reserve().is_err();
        !self.urgent_only
    }

    /// Checks that `batch` comes from the last writer or a later leadership, and follows the last record.
    fn check_fence(&self, batch: &Batch) -> Result<(), Error> {
        let known = self.state;
        let later = batch.leadership.epoch > known.leadership.epoch || batch.leadership == known.leadership;
        let why = if !later {
            format!(
                "leadership `{}` has written, and `{}` is not a later one",
                known.leadership, batch.leadership
            )
        } else if batch.after != known.last {
            format!("its last record is `{}`, not `{}`", known.last, batch.after)
        } else {
            return Ok(());
        };
        Err(Error::Fenced { place: self.place(), why })
    }

    /// Runs one transaction from the known state to `next`. After an error the journal needs a reload, and
    /// `next` is kept as the state that may have become durable.
    fn transact(
        &mut self,
        next: State,
        change: impl FnOnce(&WriteTransaction, &State) -> Result<(), Failure>,
    ) -> Result<(), Error> {
        if self.medium.identity().ok() != Some(self.identity) {
            self.shut_until_reload();
            return Err(Error::Replaced { place: self.place() });
        }
        self.status.take_full();
        let written = catch_store_panic(&self.shared.place, || self.write(next, change))
            .map_err(|failure| into_error("write to", &self.shared.place, Some(&self.status), failure));
        match written {
            Ok(()) => self.state = next,
            Err(_) => {
                self.attempted = Some(next);
                self.shut_until_reload();
            }
        }
        written
    }

    fn write(
        &self,
        next: State,
        change: impl FnOnce(&WriteTransaction, &State) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let slot = self.shared.read();
        let database = slot.as_ref().ok_or_else(|| Error::ReloadRequired { place: self.place() })?;
        // redb's default is durable on return. No quick repair: it would make the start faster, but halve the
        // rate of small commits.
        let txn = database.begin_write()?;
        {
            let mut own = txn.open_table(META)?;
            let stored = own.insert(STATE_KEY, next.encode().as_slice())?.map(|value| value.value().to_vec());
            if stored.as_deref() != Some(&self.state.encode()) {
                return Err(Error::Fenced {
                    place: self.place(),
                    why: "another writer has changed it".into(),
                }
                .into());
            }
        }
        change(&txn, &self.state)?;
        Ok(txn.commit()?)
    }

    fn commit_with_reserve(&mut self, batch: &Batch, next: State) -> Result<(), Error> {
        self.medium.release_reserve().map_err(io_error("free space for", self.place()))?;
        self.urgent_only = true;
        let known = self.state;
        match self.reopen()? {
            ReloadOutcome::CommitCompleted => Ok(()),
            ReloadOutcome::Acknowledged => self.transact(next, |txn, known| write_batch(txn, batch, known)),
            ReloadOutcome::ForeignWriter => {
                // restore the known state, so that the engine's own reload finds the foreign writer as well
                self.state = known;
                self.shut_until_reload();
                Err(Error::Fenced { place: self.place(), why: "another writer has changed it".into() })
            }
        }
    }
}

/// Checks that the batch is consistent and within the limits.
fn validate(batch: &Batch, truncated: RecordNumber) -> Result<(), Error> {
    let values = || batch.records.iter().chain(&batch.audit).chain(batch.bodies.iter().map(|(_, body)| body));
    let largest = values().map(Vec::len).max().unwrap_or(0);
    let total: usize = values().map(Vec::len).sum();
    let why = if batch.first <= batch.after {
        format!("its first record `{}` is not after `{}`", batch.first, batch.after)
    } else if batch.records.len() as u64 > u64::MAX - batch.first.0 {
        "record numbers would overflow".into()
    } else if largest > VALUE_BYTES_MAX {
        format!("a value of `{largest}` bytes is larger than `{VALUE_BYTES_MAX}`")
    } else if total > BATCH_BYTES_MAX {
        format!("`{total}` bytes are more than `{BATCH_BYTES_MAX}`")
    } else if batch
        .snapshot
        .as_ref()
        .is_some_and(|snapshot| snapshot.through > batch.last() || snapshot.through < truncated)
    {
        format!("its snapshot is not between `{truncated}` and `{}`", batch.last())
    } else {
        return Ok(());
    };
    Err(Error::Invalid { why })
}

/// Checks that a cut follows the previous cut, and leaves the newest line in the journal.
fn validate_cut(cut: &AuditCut, before: &AuditCut, audit_next: u64) -> Result<(), Error> {
    let same = (cut.segments, cut.through, cut.seal) == (before.segments, before.through, before.seal);
    let next = cut.segments == before.segments + 1 && cut.through > before.through;
    let drops = before.first <= cut.first && cut.first.0 <= cut.through.0 + 1;
    if (same || next) && drops && cut.through.0 + 1 < audit_next {
        return Ok(());
    }
    let at = |cut: &AuditCut| format!("segment {}, line {}", cut.segments, cut.through.0);
    Err(Error::Invalid {
        why: format!("the audit log can't be cut at {}, because the last cut was at {}", at(cut), at(before)),
    })
}

fn write_batch(txn: &WriteTransaction, batch: &Batch, known: &State) -> Result<(), Failure> {
    if !batch.records.is_empty() {
        let mut log = txn.open_table(LOG)?;
        let mut after = batch.after.0;
        for (number, record) in (batch.first.0..).zip(&batch.records) {
            log.insert(number, seal_record(number, after, record).as_slice())?;
            after = number;
        }
    }
    if !batch.audit.is_empty() {
        let mut audit = txn.open_table(AUDIT)?;
        for (number, line) in (known.audit_next..).zip(&batch.audit) {
            audit.insert(number, seal(Table::Audit, number.into(), line).0.as_slice())?;
        }
    }
    if let Some(cut) = &batch.audit_cut {
        txn.open_table(META)?.insert(AUDIT_KEY, encode_cut(cut).as_slice())?;
        txn.open_table(AUDIT)?.retain_in(..cut.first.0, |_, _| false)?;
    }
    if !batch.bodies.is_empty() || !batch.drop_bodies.is_empty() {
        let mut bodies = txn.open_table(BODY)?;
        for hash in &batch.drop_bodies {
            bodies.remove(hash.0)?;
        }
        for (hash, body) in &batch.bodies {
            bodies.insert(hash.0, seal(Table::Body, hash.0, body).0.as_slice())?;
        }
    }
    match &batch.snapshot {
        Some(snapshot) => write_snapshot(txn, snapshot, batch.last()),
        None => Ok(()),
    }
}

fn write_snapshot(txn: &WriteTransaction, snapshot: &Snapshot, last: RecordNumber) -> Result<(), Failure> {
    let row = SnapshotRow::of(snapshot.through, &snapshot.bytes);
    txn.open_table(META)?.insert(SNAPSHOT_KEY, row.encode().as_slice())?;
    txn.delete_table(SNAPSHOT)?;
    let mut chunks = txn.open_table(SNAPSHOT)?;
    for (number, chunk) in (0_u64..).zip(snapshot.bytes.chunks(CHUNK_BYTES)) {
        chunks.insert(number, seal(Table::Snapshot, number.into(), chunk).0.as_slice())?;
    }
    if snapshot.through >= last {
        // dropping the table is much faster than removing every record
        txn.delete_table(LOG)?;
        txn.open_table(LOG)?;
        return Ok(());
    }
    txn.open_table(LOG)?.retain_in(..=snapshot.through.0, |_, _| false)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::AuditNumber;
    use meridian_shared::ids::Leadership;

    const AFTER: RecordNumber = RecordNumber(4);

    fn records(first: u64, records: Vec<Vec<u8>>) -> Batch {
        let leadership = Leadership { epoch: 1, id: 1 };
        Batch { first: RecordNumber(first), records, ..Batch::new(leadership, AFTER) }
    }

    #[test]
    fn a_batch_is_as_large_as_its_limits_and_no_larger() {
        let is_valid = |batch: &Batch| validate(batch, RecordNumber(0)).is_ok();
        let of = |bytes| is_valid(&records(5, vec![vec![0; bytes]]));
        assert_eq!([VALUE_BYTES_MAX, VALUE_BYTES_MAX + 1, VALUE_BYTES_MAX + 2].map(of), [true, false, false]);
        let whole = BATCH_BYTES_MAX / VALUE_BYTES_MAX;
        let more = |bytes| {
            let sizes = std::iter::repeat_n(VALUE_BYTES_MAX, whole).chain([bytes]);
            is_valid(&records(5, sizes.map(|bytes| vec![0; bytes]).collect()))
        };
        assert_eq!([0, 1, 2].map(more), [true, false, false]);
        let last = |number| is_valid(&records(number, vec![vec![]; 2]));
        assert_eq!([u64::MAX - 2, u64::MAX - 1, u64::MAX].map(last), [true, false, false]);
        assert_eq!([AFTER.0 - 1, AFTER.0, AFTER.0 + 1].map(last), [false, false, true]);
    }

    #[test]
    fn a_cut_repeats_the_last_one_or_adds_a_segment() {
        let cut = |segments, through, first| AuditCut {
            segments,
            through: AuditNumber(through),
            seal: [segments as u8; 32],
            first: AuditNumber(first),
        };
        let before = cut(2, 10, 5);
        let is_valid = |cut: &AuditCut| validate_cut(cut, &before, 30).is_ok();
        for valid in [cut(2, 10, 5), cut(2, 10, 11), cut(3, 11, 5), cut(3, 28, 29)] {
            assert!(is_valid(&valid), "{valid:?}");
        }
        let other_seal = AuditCut { seal: [9; 32], ..before };
        for bad in [
            other_seal,
            cut(2, 11, 5), // other lines in the same segment
            cut(3, 10, 5), // a segment without lines
            cut(3, 9, 5),
            cut(4, 11, 5), // a segment is left out
            cut(1, 11, 5),
            cut(3, 12, 4),  // lines that are gone
            cut(3, 12, 14), // drops a line that is in no segment
            cut(3, 29, 20), // takes the newest line
        ] {
            assert!(!is_valid(&bad), "{bad:?}");
        }
    }
}
