//! The embedded journal: one redb file.
//!
//! This module owns the tables, the transaction of a commit, and what happens after a failed one. It must not
//! know the storage under it (a [`Medium`] does) nor what the bytes mean.
//!
//! | table | key → value |
//! |---|---|
//! | `meta` | `format` → header; `meta`, `state`, `snapshot`, `audit` → the journal's own rows |
//! | `log` | record number → record |
//! | `snapshot` | chunk → bytes |
//! | `body` | content hash → bytes |
//! | `body-aside` | as `body`; exists once pages of `body` were damaged, and is only read |
//! | `audit` | audit number → line |
//!
//! redb's lock keeps other processes out. Every transaction also compares and replaces the `state` row, so a
//! reload detects another writer even if the lock failed (a moved volume, a filesystem with unreliable
//! locks).

mod commit;
mod read;

use self::read::{SharedStore, catch_store_panic, into_error};
use super::encoding::{FORMAT, FORMAT_FAMILY, MetaRow, State, decode_cut};
use super::medium::{FileIdentity, FileMedium, Gate, GateStatus, Medium, io_error};
use super::{AuditCut, Batch, Error, Follower, Journal, Meta, Reader, ReloadOutcome, Snapshot, Space, Visit};
use ::redb::{Database, ReadableDatabase, StorageBackend, TableDefinition};
use meridian_shared::ids::{JournalId, Leadership, RecordNumber};
use meridian_shared::time::Wall;
use std::any::Any;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

const META: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("meta");
const LOG: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("log");
const SNAPSHOT: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("snapshot");
const BODY: TableDefinition<'_, u128, &[u8]> = TableDefinition::new("body");
/// Bodies of a table with damaged pages. The table is set aside, because a write to a damaged page would
/// fail, and with it every later commit.
const BODY_ASIDE: TableDefinition<'_, u128, &[u8]> = TableDefinition::new("body-aside");
const AUDIT: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("audit");

const FORMAT_KEY: &str = "format";
const META_KEY: &str = "meta";
const STATE_KEY: &str = "state";
const SNAPSHOT_KEY: &str = "snapshot";
const AUDIT_KEY: &str = "audit";

/// First bytes of every redb file.
const REDB_MAGIC: [u8; 9] = *b"redb\x1A\x0A\xA9\x0D\x0A";

/// Memory for redb's pages. The journal is appended to and read once at the start, so more memory would gain
/// nothing; a large snapshot spills to disk.
const CACHE_BYTES: usize = 16 << 20;

/// Why an operation failed, before it becomes an [`Error`].
enum Failure {
    Store(Box<::redb::Error>),
    Journal(Error),
    /// The caller's own code panicked inside a visit. The panic is passed on.
    Panic(Box<dyn Any + Send>),
}

macro_rules! from_store_error {
    ($($error:ident),+) => {$(
        impl From<::redb::$error> for Failure {
            fn from(error: ::redb::$error) -> Self {
                Self::Store(Box::new(error.into()))
            }
        }
    )+};
}
from_store_error!(StorageError, TableError, TransactionError, CommitError, DatabaseError);

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Journal(error)
    }
}

/// [`Journal`] in a redb file.
#[derive(Debug)]
pub struct RedbJournal {
    shared: Arc<SharedStore>,
    status: Arc<GateStatus>,
    medium: Box<dyn Medium>,
    meta: MetaRow,
    /// Identity of the open file. It differs from the identity in `meta` if the file was copied.
    identity: FileIdentity,
    /// Whether the journal was proved to be an older copy in the same file.
    distrusted: bool,
    /// The journal's state after the last acknowledged commit.
    state: State,
    audit_cut: AuditCut,
    /// The state after a failed commit, until a reload shows whether that commit is durable.
    attempted: Option<State>,
    needs_reload: bool,
    urgent_only: bool,
}

struct OpenStore {
    database: Database,
    status: Arc<GateStatus>,
    meta: MetaRow,
    identity: FileIdentity,
    state: State,
    audit_cut: AuditCut,
}

impl RedbJournal {
    /// Creates a journal at `path` and opens it. The file appears complete or not at all.
    ///
    /// # Errors
    /// [`Error::Exists`] if anything is at `path`; otherwise if the file can't be written or opened.
    pub fn init(path: &Path, journal: JournalId, created: Wall) -> Result<Self, Error> {
        let target = FileMedium::new(path);
        let place = target.place();
        if path.try_exists().map_err(io_error("look for", place.clone()))? {
            return Err(Error::Exists { place });
        }
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let draft = FileMedium::new(path.with_file_name(format!(".{name}.new-{journal}")));
        draft.make_empty().map_err(io_error("make", place.clone()))?;
        let made = create_store(&draft, journal, created).and_then(|()| {
            draft.publish(&target).map_err(|error| match error.kind() {
                ErrorKind::AlreadyExists => Error::Exists { place: place.clone() },
                _ => io_error("make", place.clone())(error),
            })
        });
        if let Err(error) = made {
            // ignore a failed removal: the draft may be gone already, and the first error matters more
            drop(std::fs::remove_file(draft.path()));
            return Err(error);
        }
        Self::open(path)
    }

    /// Opens the journal at `path`.
    ///
    /// # Errors
    /// If there is no journal, another process has it open, it is damaged, or it can't be read.
    pub fn open(path: &Path) -> Result<Self, Error> {
        Self::open_on(FileMedium::new(path))
    }

    /// Creates a journal on an empty medium and opens it. Fails as [`RedbJournal::init`].
    pub fn init_on(medium: impl Medium + 'static, journal: JournalId, created: Wall) -> Result<Self, Error> {
        create_store(&medium, journal, created)?;
        Self::open_on(medium)
    }

    /// Opens the journal on a medium. Fails as [`RedbJournal::open`].
    pub fn open_on(medium: impl Medium + 'static) -> Result<Self, Error> {
        let opened = open_store(&medium)?;
        let place = medium.place();
        let urgent_only = match medium.hold_reserve() {
            Err(error) if super::medium::is_full(&error) => true,
            held => held.map(|()| false).map_err(io_error("keep space back for", place.clone()))?,
        };
        Ok(Self {
            shared: Arc::new(SharedStore::new(opened.database, place)),
            status: opened.status,
            medium: Box::new(medium),
            meta: opened.meta,
            identity: opened.identity,
            state: opened.state,
            audit_cut: opened.audit_cut,
            attempted: None,
            distrusted: false,
            needs_reload: false,
            urgent_only,
        })
    }

    fn place(&self) -> String {
        self.shared.place.clone()
    }

    fn ready(&self) -> Result<(), Error> {
        if self.needs_reload { Err(Error::ReloadRequired { place: self.place() }) } else { Ok(()) }
    }

    /// Closes the medium, so that nothing is written any more, not even by a store that is closing.
    fn shut_until_reload(&mut self) {
        self.status.shut();
        self.needs_reload = true;
    }

    fn reopen(&mut self) -> Result<ReloadOutcome, Error> {
        self.shut_until_reload();
        // held until the new store is in place, so that readers wait and never see the gap
        let mut slot = self.shared.write();
        // a store that failed may fail again while it closes, which doesn't matter: everything is read again
        let old = slot.take();
        drop(catch_store_panic(&self.shared.place, move || {
            drop(old);
            Ok(())
        }));
        self.medium.drop_cache().map_err(io_error("read again", self.shared.place.clone()))?;
        let opened = match open_store(&*self.medium) {
            Err(Error::Full { .. }) if !self.urgent_only && self.medium.release_reserve().is_ok() => {
                self.urgent_only = true;
                open_store(&*self.medium)?
            }
            opened => opened?,
        };
        if opened.meta.meta.journal != self.meta.meta.journal {
            return Err(Error::Replaced { place: self.shared.place.clone() });
        }
        let found = match opened.state {
            state if state == self.state => ReloadOutcome::Acknowledged,
            state if Some(state) == self.attempted => ReloadOutcome::CommitCompleted,
            _ => ReloadOutcome::ForeignWriter,
        };
        *slot = Some(opened.database);
        (self.status, self.meta, self.identity) = (opened.status, opened.meta, opened.identity);
        (self.state, self.audit_cut) = (opened.state, opened.audit_cut);
        self.attempted = None;
        self.needs_reload = false;
        Ok(found)
    }
}

impl Journal for RedbJournal {
    fn meta(&self) -> &Meta {
        &self.meta.meta
    }

    fn identity_changed(&self) -> bool {
        self.distrusted || !self.meta.identity.same_file(&self.identity)
    }

    fn distrust(&mut self) {
        self.distrusted = true;
    }

    fn accept_identity(&mut self) -> Result<(), Error> {
        self.accept()
    }

    fn last(&self) -> RecordNumber {
        self.state.last
    }

    fn leadership(&self) -> Leadership {
        self.state.leadership
    }

    fn chain(&self) -> u64 {
        self.state.chain
    }

    fn snapshot(&self) -> Result<Option<Snapshot>, Error> {
        self.ready()?;
        self.shared.snapshot()
    }

    fn follow(&self, _after: RecordNumber) -> Result<Box<dyn Follower>, Error> {
        Err(Error::NotFollowable { place: self.place() })
    }
    fn replay(&self, after: RecordNumber, visit: Visit<'_, RecordNumber>) -> Result<RecordNumber, Error> {
        self.ready()?;
        if after < self.state.truncated {
            return Err(Error::Compacted { after, through: self.state.truncated });
        }
        self.shared.replay(after, visit)?;
        Ok(self.state.last)
    }

    fn reader(&self) -> Arc<dyn Reader> {
        Arc::clone(&self.shared) as Arc<dyn Reader>
    }

    fn commit(&mut self, batch: &Batch) -> Result<(), Error> {
        self.commit_batch(batch)
    }

    fn heartbeat(&mut self) -> Result<(), Error> {
        self.ready()?;
        if self.urgent_only {
            self.regain_reserve();
        }
        let beat = Batch { urgent: true, ..Batch::new(self.state.leadership, self.state.last) };
        self.commit_batch(&beat)
    }

    fn urgent_only(&self) -> bool {
        self.urgent_only
    }

    fn space(&self) -> Option<Space> {
        self.medium.space()
    }

    fn needs_reload(&self) -> bool {
        self.needs_reload
    }

    fn reload(&mut self) -> Result<ReloadOutcome, Error> {
        self.reopen()
    }
}

/// Opens the store on `medium` behind a gate. Fails unless the store gets its lock.
fn open_database(
    medium: &dyn Medium,
    backend: Box<dyn StorageBackend>,
) -> Result<(Database, Arc<GateStatus>), Error> {
    let place = medium.place();
    let (gate, status) = Gate::new(backend);
    let opened = catch_store_panic(&place, || {
        Ok(Database::builder().set_cache_size(CACHE_BYTES).create_with_backend(gate)?)
    });
    let database = opened.map_err(|failure| into_error("open", &place, Some(&status), failure))?;
    if !status.locked() {
        return Err(io_error("lock", place)(std::io::Error::new(
            ErrorKind::Unsupported,
            "its filesystem has no locks",
        )));
    }
    Ok((database, status))
}

fn create_store(medium: &dyn Medium, journal: JournalId, created: Wall) -> Result<(), Error> {
    let place = medium.place();
    let backend = medium.backend().map_err(io_error("make", place.clone()))?;
    if backend.len().map_err(io_error("make", place.clone()))? > 0 {
        return Err(Error::Exists { place });
    }
    let identity = medium.identity().map_err(io_error("make", place.clone()))?;
    let meta = MetaRow { meta: Meta { journal, created }, identity };
    let (database, status) = open_database(medium, backend)?;
    let write = || -> Result<(), Failure> {
        let txn = database.begin_write()?;
        {
            let mut own = txn.open_table(META)?;
            own.insert(FORMAT_KEY, FORMAT.as_bytes())?;
            own.insert(META_KEY, meta.encode().as_slice())?;
            own.insert(STATE_KEY, State::genesis(journal).encode().as_slice())?;
        }
        txn.open_table(LOG)?;
        txn.open_table(SNAPSHOT)?;
        txn.open_table(BODY)?;
        txn.open_table(AUDIT)?;
        Ok(txn.commit()?)
    };
    write().map_err(|failure| into_error("make", &place, Some(&status), failure))
}

fn open_store(medium: &dyn Medium) -> Result<OpenStore, Error> {
    let place = medium.place();
    let missing = |error: std::io::Error| match error.kind() {
        ErrorKind::NotFound | ErrorKind::NotADirectory => Error::Missing { place: place.clone() },
        _ => io_error("open", place.clone())(error),
    };
    let identity = medium.identity().map_err(missing)?;
    let backend = medium.backend().map_err(missing)?;
    let mut magic = [0; REDB_MAGIC.len()];
    let bytes = backend.len().map_err(io_error("open", place.clone()))?;
    if bytes >= magic.len() as u64 {
        backend.read(0, &mut magic).map_err(io_error("open", place.clone()))?;
    }
    if magic != REDB_MAGIC {
        let why = if bytes == 0 { "it is empty" } else { "it begins with other bytes" };
        return Err(Error::NotAJournal { place, why: why.into() });
    }
    let (database, status) = open_database(medium, backend)?;
    match catch_store_panic(&place, || read_header(&database, &place)) {
        Ok((meta, state, audit_cut)) => Ok(OpenStore { database, status, meta, identity, state, audit_cut }),
        Err(failure) => {
            let error = into_error("open", &place, Some(&status), failure);
            // closing a store with contradictory pages may panic again; the medium is shut, so nothing is
            // written
            status.shut();
            drop(catch_store_panic(&place, move || {
                drop(database);
                Ok(())
            }));
            Err(error)
        }
    }
}

/// Reads the header and the journal's own rows from a store that may belong to another program.
fn read_header(database: &Database, place: &str) -> Result<(MetaRow, State, AuditCut), Failure> {
    let foreign = |why: &str| Error::NotAJournal { place: place.into(), why: why.into() };
    let damaged = |what: String| Error::Damaged { place: place.into(), what };
    let own = match database.begin_read()?.open_table(META) {
        Err(::redb::TableError::Storage(error)) => return Err(error.into()),
        Err(_) => return Err(foreign("it is the store of another program").into()),
        Ok(own) => own,
    };
    let Some(format) = own.get_owned(FORMAT_KEY)? else {
        return Err(foreign("it has no header").into());
    };
    if format.value() != FORMAT.as_bytes() {
        let found = String::from_utf8_lossy(format.value()).into_owned();
        let of_family = found.starts_with(FORMAT_FAMILY);
        return Err(if of_family {
            Error::FormatVersion { place: place.into(), found }
        } else {
            foreign("its header is another program's")
        }
        .into());
    }
    let row = |key: &'static str| -> Result<_, Failure> {
        Ok(own.get_owned(key)?.ok_or_else(|| damaged(format!("the row `{key}` is missing")))?)
    };
    let meta = MetaRow::decode(row(META_KEY)?.value()).map_err(damaged)?;
    let state = State::decode(row(STATE_KEY)?.value()).map_err(damaged)?;
    let cut = match own.get_owned(AUDIT_KEY)? {
        Some(row) => decode_cut(row.value()).map_err(damaged)?,
        None => AuditCut::default(),
    };
    Ok((meta, state, cut))
}
