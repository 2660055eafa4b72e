//! The embedded journal: one redb file.
//!
//! It owns the tables, the transaction of a commit and what happens after one failed. It must not know what lies beneath
//! (a [`Medium`] does) nor what the bytes mean.
//!
//! | table | key → value |
//! |---|---|
//! | `meta` | `format` → header; `meta`, `state`, `snapshot` → rows of the journal's own |
//! | `log` | record number → record |
//! | `snapshot` | chunk → bytes |
//! | `body` | content hash → bytes |
//! | `audit` | audit number → line |
//!
//! redb's own lock keeps other processes out; the `state` row, which every transaction compares and replaces, tells
//! after a reload whether one got in all the same (a volume that moved, a filesystem whose locks lie).

mod commit;
mod read;

use self::read::{Shared, blame, contained};
use super::encoding::{FORMAT, FORMAT_FAMILY, State};
use super::medium::{FileMedium, Gate, Medium, Watch, io_error};
use super::{Batch, Error, Found, Journal, Meta, Reader, Snapshot, Visit};
use ::redb::{Database, ReadableDatabase, StorageBackend, TableDefinition};
use meridian_shared::ids::{JournalId, Leadership, RecordNumber};
use meridian_shared::time::Wall;
use std::any::Any;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::{Arc, RwLock};

const META: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("meta");
const LOG: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("log");
const SNAPSHOT: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("snapshot");
const BODY: TableDefinition<'_, u128, &[u8]> = TableDefinition::new("body");
const AUDIT: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("audit");

const FORMAT_KEY: &str = "format";
const META_KEY: &str = "meta";
const STATE_KEY: &str = "state";
const SNAPSHOT_KEY: &str = "snapshot";

/// What every redb file begins with.
const REDB_MAGIC: [u8; 9] = *b"redb\x1A\x0A\xA9\x0D\x0A";

/// Memory for redb's pages. The journal is written at its end and read once at the start, so more buys nothing; a large
/// snapshot spills.
const CACHE_BYTES: usize = 64 << 20;

/// Why the store or the journal itself gave up, before it is put into words.
enum Trouble {
    Store(Box<::redb::Error>),
    Said(Error),
    /// The caller's own code panicked inside a walk: passed on as it was.
    Panic(Box<dyn Any + Send>),
}

macro_rules! store_trouble {
    ($($error:ident),+) => {$(
        impl From<::redb::$error> for Trouble {
            fn from(error: ::redb::$error) -> Self {
                Self::Store(Box::new(error.into()))
            }
        }
    )+};
}
store_trouble!(StorageError, TableError, TransactionError, CommitError, DatabaseError);

impl From<Error> for Trouble {
    fn from(error: Error) -> Self {
        Self::Said(error)
    }
}

/// [`Journal`] in a redb file.
#[derive(Debug)]
pub struct RedbJournal {
    shared: Arc<Shared>,
    watch: Arc<Watch>,
    medium: Box<dyn Medium>,
    meta: Meta,
    identity: super::Identity,
    /// As of the last acknowledged commit.
    state: State,
    /// What a failed commit would have left, until a reload tells whether it did.
    attempted: Option<State>,
    poisoned: bool,
    urgent_only: bool,
}

struct Opened {
    database: Database,
    watch: Arc<Watch>,
    meta: Meta,
    identity: super::Identity,
    state: State,
}

impl RedbJournal {
    /// Makes a journal at `path`, where nothing may be, and opens it. It appears there whole or not at all.
    pub fn init(path: &Path, journal: JournalId, created: Wall) -> Result<Self, Error> {
        let target = FileMedium::new(path);
        let place = target.place();
        if path.try_exists().map_err(io_error("look for", place.clone()))? {
            return Err(Error::Exists { place });
        }
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let draft = FileMedium::new(path.with_file_name(format!(".{name}.new-{journal}")));
        draft.make_empty().map_err(io_error("make", place.clone()))?;
        let made = lay_out(&draft, journal, created).and_then(|()| {
            draft.publish(&target).map_err(|error| match error.kind() {
                ErrorKind::AlreadyExists => Error::Exists { place: place.clone() },
                _ => io_error("make", place.clone())(error),
            })
        });
        if let Err(error) = made {
            // the draft may be gone already; the error that matters is the first one
            drop(std::fs::remove_file(draft.path()));
            return Err(error);
        }
        Self::open(path)
    }

    /// Opens the journal at `path`.
    pub fn open(path: &Path) -> Result<Self, Error> {
        Self::open_on(FileMedium::new(path))
    }

    /// Makes a journal on an empty medium and opens it.
    pub fn init_on(medium: impl Medium + 'static, journal: JournalId, created: Wall) -> Result<Self, Error> {
        lay_out(&medium, journal, created)?;
        Self::open_on(medium)
    }

    /// Opens the journal on a medium.
    pub fn open_on(medium: impl Medium + 'static) -> Result<Self, Error> {
        let opened = open_store(&medium)?;
        let place = medium.place();
        let urgent_only = match medium.hold_reserve() {
            Err(error) if super::medium::is_full(&error) => true,
            held => held.map(|()| false).map_err(io_error("keep space back for", place.clone()))?,
        };
        Ok(Self {
            shared: Arc::new(Shared { slot: RwLock::new(Some(opened.database)), place }),
            watch: opened.watch,
            medium: Box::new(medium),
            meta: opened.meta,
            identity: opened.identity,
            state: opened.state,
            attempted: None,
            poisoned: false,
            urgent_only,
        })
    }

    fn place(&self) -> String {
        self.shared.place.clone()
    }

    fn ready(&self) -> Result<(), Error> {
        if self.poisoned { Err(Error::Poisoned { place: self.place() }) } else { Ok(()) }
    }

    /// Nothing is written from here on, not even by a store that is being closed.
    fn poison(&mut self) {
        self.watch.shut();
        self.poisoned = true;
    }

    fn reopen(&mut self) -> Result<Found, Error> {
        self.poison();
        // held until the new store is in, so that readers wait and never see the gap
        let mut slot = self.shared.write();
        // a store that gave up may give up again while it closes; what counts is what is read next
        let old = slot.take();
        drop(contained(&self.shared.place, move || {
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
        if opened.meta.journal != self.meta.journal {
            return Err(Error::Replaced { place: self.shared.place.clone() });
        }
        let found = match opened.state {
            state if state == self.state => Found::Acknowledged,
            state if Some(state) == self.attempted => Found::Unknown,
            _ => Found::Foreign,
        };
        *slot = Some(opened.database);
        (self.watch, self.meta, self.identity, self.state) =
            (opened.watch, opened.meta, opened.identity, opened.state);
        self.attempted = None;
        self.poisoned = false;
        Ok(found)
    }
}

impl Journal for RedbJournal {
    fn meta(&self) -> &Meta {
        &self.meta
    }

    fn identity_changed(&self) -> bool {
        !self.meta.identity.same_file(&self.identity)
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

    fn poisoned(&self) -> bool {
        self.poisoned
    }

    fn reload(&mut self) -> Result<Found, Error> {
        self.reopen()
    }
}

/// Opens the store on `medium` behind a gate, with the lock held.
fn unlock(medium: &dyn Medium, backend: Box<dyn StorageBackend>) -> Result<(Database, Arc<Watch>), Error> {
    let place = medium.place();
    let (gate, watch) = Gate::new(backend);
    let opened = contained(&place, || {
        Ok(Database::builder().set_cache_size(CACHE_BYTES).create_with_backend(gate)?)
    });
    let database = opened.map_err(|trouble| blame("open", &place, Some(&watch), trouble))?;
    if !watch.locked() {
        return Err(io_error("lock", place)(std::io::Error::new(
            ErrorKind::Unsupported,
            "its filesystem has no locks",
        )));
    }
    Ok((database, watch))
}

fn lay_out(medium: &dyn Medium, journal: JournalId, created: Wall) -> Result<(), Error> {
    let place = medium.place();
    let backend = medium.backend().map_err(io_error("make", place.clone()))?;
    if backend.len().map_err(io_error("make", place.clone()))? > 0 {
        return Err(Error::Exists { place });
    }
    let meta =
        Meta { journal, identity: medium.identity().map_err(io_error("make", place.clone()))?, created };
    let (database, watch) = unlock(medium, backend)?;
    let write = || -> Result<(), Trouble> {
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
    write().map_err(|trouble| blame("make", &place, Some(&watch), trouble))
}

fn open_store(medium: &dyn Medium) -> Result<Opened, Error> {
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
    let (database, watch) = unlock(medium, backend)?;
    match contained(&place, || read_own(&database, &place)) {
        Ok((meta, state)) => Ok(Opened { database, watch, meta, identity, state }),
        Err(trouble) => {
            let error = blame("open", &place, Some(&watch), trouble);
            // a store whose pages contradict each other may panic once more while it closes; nothing of it is written
            watch.shut();
            drop(contained(&place, move || {
                drop(database);
                Ok(())
            }));
            Err(error)
        }
    }
}

/// Reads header, meta and state of a store that may be anybody's.
fn read_own(database: &Database, place: &str) -> Result<(Meta, State), Trouble> {
    let foreign = |why: &str| Error::NotAJournal { place: place.into(), why: why.into() };
    let damaged = |what: String| Error::Corrupt { place: place.into(), what };
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
            Error::Version { place: place.into(), found }
        } else {
            foreign("its header is another program's")
        }
        .into());
    }
    let row = |key: &'static str| -> Result<_, Trouble> {
        Ok(own.get_owned(key)?.ok_or_else(|| damaged(format!("the row `{key}` is missing")))?)
    };
    let meta = Meta::decode(row(META_KEY)?.value()).map_err(damaged)?;
    let state = State::decode(row(STATE_KEY)?.value()).map_err(damaged)?;
    Ok((meta, state))
}
