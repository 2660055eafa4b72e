//! The agent's durable store: one table of keyed text in one redb file.
//!
//! Owns the file, its format version and its exclusive lock; knows nothing of what the keys mean (that is
//! `meridian_agent_core::durable`). Invariants: [`Store::commit`] is one transaction and has reached the disk when it
//! returns; two processes never have one store open.
//!
//! A store counts where it was made, in that file and on that machine. On another machine a copy would take that machine's boot for a
//! reboot, say that its original's runs are over, and have them started elsewhere while they go on; and a restored backup has forgotten
//! what was refused and buried since. Both are refused.
//!
//! A commit that fails leaves the core's memory ahead of the disk. Nothing that follows from it may be done and nothing of
//! it may be said, so the caller must end the process; its successor goes on from what is durable.

use meridian_agent_core::durable::{self, StoreOp};
use redb::{Database, DatabaseError, ReadableDatabase, ReadableTable, TableDefinition};
use std::fs::Permissions;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

/// The file in the agent's directory.
pub const FILE: &str = "agent.redb";
/// Raised when the meaning of the file changes.
pub const FORMAT: u32 = 1;
/// Everything is held in memory by the core, so pages are read once only.
const CACHE_BYTES: usize = 8 << 20;

const VALUES: TableDefinition<'_, &str, &str> = TableDefinition::new("agent");
const META: TableDefinition<'_, &str, u32> = TableDefinition::new("meta");
const FORMAT_KEY: &str = "format";
const PLACE: TableDefinition<'_, &str, &str> = TableDefinition::new("place");
const PLACE_KEY: &str = "made";
/// Which runner started what runs, in the same table.
const RUNNER_KEY: &str = "runner";
/// What tells machines apart, where there is such a file.
const MACHINE_ID: &str = "/etc/machine-id";

/// What can go wrong with the store.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Its directory can't be made.
    #[error("cannot make the directory `{}`", dir.display())]
    Directory {
        /// Which.
        dir: PathBuf,
        /// Why not.
        #[source]
        source: std::io::Error,
    },
    /// Another process has it.
    #[error("`{}` is in use by another agent: stop that one first, or give this one a `--data-dir` of its own", path.display())]
    InUse {
        /// Which file.
        path: PathBuf,
    },
    /// Written by another version of this program.
    #[error("`{}` has format {found}, this agent knows {FORMAT}: use the version that wrote it, or a newer one", path.display())]
    Format {
        /// Which file.
        path: PathBuf,
        /// Its format.
        found: u32,
    },
    /// It was made in another file, or on another machine.
    #[error(
        "`{}` is a copy, or was brought here from another machine: what its original runs isn't here. Only one of them may speak for the cluster: go on with the original, or move this one away and join again with `--replace`",
        path.display()
    )]
    Copied {
        /// Which file.
        path: PathBuf,
    },
    /// Another runner started what runs, and only that one can see it and end it.
    #[error(
        "`{}` says that the `{was}` runner started gangs here which may still run, and the `{asked}` runner can neither see nor end them: start the agent with `--runner {was}`, and change it once they have ended (`meridian cluster drain` ends them)",
        path.display()
    )]
    OtherRunner {
        /// Which file.
        path: PathBuf,
        /// Who started them.
        was: String,
        /// Who was to go on.
        asked: String,
    },
    /// It can't be opened or read.
    #[error("cannot {doing} `{}`{}", path.display(), remedy(source))]
    Unusable {
        /// What was tried, as a verb.
        doing: &'static str,
        /// Which file.
        path: PathBuf,
        /// Why not.
        #[source]
        source: Box<redb::Error>,
    },
    /// A transaction did not become durable.
    #[error(
        "cannot make {changes} changes durable in `{}`{}; nothing that follows from them was done, and the agent goes on from what is durable when it is started again",
        path.display(),
        remedy(source)
    )]
    Commit {
        /// How many.
        changes: usize,
        /// Which file.
        path: PathBuf,
        /// Why not.
        #[source]
        source: Box<redb::Error>,
    },
}

impl Error {
    /// Whether it is for want of space: once there is some, the same is worth another try.
    pub fn disk_is_full(&self) -> bool {
        match self {
            Self::Directory { source, .. } => is_full(source),
            Self::Unusable { source, .. } | Self::Commit { source, .. } => {
                matches!(&**source, redb::Error::Io(e) if is_full(e))
            }
            Self::InUse { .. } | Self::Format { .. } | Self::Copied { .. } | Self::OtherRunner { .. } => {
                false
            }
        }
    }
}

/// Whether the operating system said that there is no space, or none for this user.
pub fn is_full(error: &std::io::Error) -> bool {
    matches!(error.kind(), std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded)
}

/// What a person can do about it.
fn remedy(error: &redb::Error) -> &'static str {
    match error {
        redb::Error::Io(e) if is_full(e) => ": the disk is full; free some space on it",
        redb::Error::Io(e) if e.kind() == std::io::ErrorKind::PermissionDenied => {
            ": give the agent's user the right to read and write it"
        }
        redb::Error::Io(e) if e.kind() == std::io::ErrorKind::InvalidData => DAMAGED,
        redb::Error::Corrupted(_) | redb::Error::TableTypeMismatch { .. } | redb::Error::RepairAborted => {
            DAMAGED
        }
        _ => "",
    }
}

const DAMAGED: &str = ": it is damaged or no store of an agent; move it away and join again with `--replace`";

/// One agent's store, held exclusively while it lives.
#[derive(Debug)]
pub struct Store {
    db: Database,
    path: PathBuf,
}

impl Store {
    /// Opens the store in `dir`, making both where they are missing.
    pub fn open(dir: &Path) -> Result<Self, Error> {
        std::fs::create_dir_all(dir).map_err(|source| Error::Directory { dir: dir.to_owned(), source })?;
        let path = dir.join(FILE);
        if !path.exists() {
            make(dir, &path)?;
        }
        restrict(&path).map_err(|source| Error::Unusable {
            doing: "keep to its owner",
            path: path.clone(),
            source: Box::new(redb::Error::Io(source)),
        })?;
        Self::open_file(path)
    }

    fn open_file(path: PathBuf) -> Result<Self, Error> {
        let db = match Database::builder().set_cache_size(CACHE_BYTES).create(&path) {
            Ok(db) => db,
            Err(DatabaseError::DatabaseAlreadyOpen) => return Err(Error::InUse { path }),
            Err(error) => {
                return Err(Error::Unusable { doing: "open", path, source: Box::new(error.into()) });
            }
        };
        let place = place_of(&path, Path::new(MACHINE_ID));
        let place = place.map_err(|source| Error::Unusable {
            doing: "look at",
            path: path.clone(),
            source: Box::new(redb::Error::Io(source)),
        })?;
        let this = Self::of(db, path)?;
        let made = this.made_at(&place).map_err(|source| this.unusable("read", source))?;
        if made == place { Ok(this) } else { Err(Error::Copied { path: this.path }) }
    }

    /// Where it was made; a store that doesn't say it yet was made here.
    fn made_at(&self, here: &str) -> Result<String, redb::Error> {
        let txn = self.db.begin_write()?;
        let known = txn.open_table(PLACE)?.get(PLACE_KEY)?.map(|made| made.value().to_owned());
        match known {
            Some(made) => {
                txn.abort()?;
                Ok(made)
            }
            None => {
                txn.open_table(PLACE)?.insert(PLACE_KEY, here)?;
                txn.commit()?;
                Ok(here.to_owned())
            }
        }
    }

    /// From now on this runner starts what is granted. Refused while another one's gangs may still run.
    pub fn hand_to(&self, runner: &str) -> Result<(), Error> {
        let busy = self.load()?.iter().any(|(key, _)| durable::is_run(key));
        let hand = || -> Result<Option<String>, redb::Error> {
            let txn = self.db.begin_write()?;
            let was = txn.open_table(PLACE)?.get(RUNNER_KEY)?.map(|was| was.value().to_owned());
            match was {
                Some(was) if was == runner => txn.abort()?,
                Some(was) if busy => {
                    txn.abort()?;
                    return Ok(Some(was));
                }
                _ => {
                    txn.open_table(PLACE)?.insert(RUNNER_KEY, runner)?;
                    txn.commit()?;
                }
            }
            Ok(None)
        };
        match hand().map_err(|source| self.unusable("read", source))? {
            Some(was) => Err(Error::OtherRunner { path: self.path.clone(), was, asked: runner.to_owned() }),
            None => Ok(()),
        }
    }

    fn of(db: Database, path: PathBuf) -> Result<Self, Error> {
        let this = Self { db, path };
        let found = this.format().map_err(|source| this.unusable("read", source))?;
        match found {
            FORMAT => Ok(this),
            found => Err(Error::Format { path: this.path, found }),
        }
    }

    /// The format of the file; a file without one is new and gets ours.
    fn format(&self) -> Result<u32, redb::Error> {
        let txn = self.db.begin_write()?;
        let found = {
            let mut meta = txn.open_table(META)?;
            let found = meta.get(FORMAT_KEY)?.map(|v| v.value());
            if found.is_none() {
                meta.insert(FORMAT_KEY, FORMAT)?;
            }
            txn.open_table(VALUES)?;
            found
        };
        match found {
            Some(found) => {
                txn.abort()?;
                Ok(found)
            }
            None => {
                txn.commit()?;
                Ok(FORMAT)
            }
        }
    }

    /// Everything that is stored, in the order of the keys.
    pub fn load(&self) -> Result<Vec<(String, String)>, Error> {
        let read = || -> Result<_, redb::Error> {
            let table = self.db.begin_read()?.open_table(VALUES)?;
            let mut pairs = Vec::new();
            for entry in table.iter()? {
                let (key, value) = entry?;
                pairs.push((key.value().to_owned(), value.value().to_owned()));
            }
            Ok(pairs)
        };
        read().map_err(|source| self.unusable("read", source))
    }

    /// Makes `changes` durable, all or none. On an error the caller must end the process (see the module's text).
    pub fn commit(&self, changes: &[StoreOp]) -> Result<(), Error> {
        let write = || -> Result<(), redb::Error> {
            let txn = self.db.begin_write()?;
            {
                let mut table = txn.open_table(VALUES)?;
                for StoreOp { key, value } in changes {
                    match value {
                        Some(value) => table.insert(key.as_str(), value.as_str())?,
                        None => table.remove(key.as_str())?,
                    };
                }
            }
            txn.commit()?;
            Ok(())
        };
        write().map_err(|source| Error::Commit {
            changes: changes.len(),
            path: self.path.clone(),
            source: Box::new(source),
        })
    }

    fn unusable(&self, doing: &'static str, source: redb::Error) -> Error {
        Error::Unusable { doing, path: self.path.clone(), source: Box::new(source) }
    }
}

/// What a file is, but for its name, and on which machine. A device's number changes when a volume is attached anew, so it counts only
/// where the filesystem keeps no births.
fn place_of(path: &Path, machine_id: &Path) -> std::io::Result<String> {
    let seen = std::fs::metadata(path)?;
    let born = seen.created().ok().and_then(|born| born.duration_since(UNIX_EPOCH).ok());
    let born =
        born.map_or_else(|| format!("device {}", seen.dev()), |born| format!("born {}", born.as_nanos()));
    let machine = std::fs::read_to_string(machine_id).unwrap_or_default();
    Ok(format!("inode {} {born} machine {}", seen.ino(), machine.trim()))
}

/// Takes from everybody but the owner what an older version gave them: jobs and their environments are in it.
fn restrict(path: &Path) -> std::io::Result<()> {
    let mode = std::fs::metadata(path)?.permissions().mode();
    if mode & 0o077 == 0 {
        Ok(())
    } else {
        std::fs::set_permissions(path, Permissions::from_mode(mode & 0o600))
    }
}

/// Makes an empty store that appears at `path` whole or not at all: what a full disk cut short would be taken for a damaged one.
fn make(dir: &Path, path: &Path) -> Result<(), Error> {
    let draft = dir.join(format!(".{FILE}.new-{}", std::process::id()));
    let cannot = |source: std::io::Error| Error::Unusable {
        doing: "make",
        path: path.to_owned(),
        source: Box::new(redb::Error::Io(source)),
    };
    // Left by a process of the same number that was killed while it made one.
    drop(std::fs::remove_file(&draft));
    std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft).map_err(cannot)?;
    let made = Store::open_file(draft.clone()).and_then(|store| {
        drop(store);
        match std::fs::hard_link(&draft, path) {
            // Another agent was faster; whose store it is will be seen when it is opened.
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
            linked => linked.and_then(|()| std::fs::File::open(dir)?.sync_all()).map_err(cannot),
        }
    });
    // On every way out: a draft has served, or holds space that is wanted.
    drop(std::fs::remove_file(&draft));
    made
}

#[cfg(test)]
pub(crate) mod disk {
    //! A disk in memory that fills up, and outlasts a pause of the machine, when it is told to.

    use super::{Error, Store};
    use redb::{StorageBackend, backends::InMemoryBackend};
    use std::io;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

    #[derive(Debug)]
    struct Disk {
        memory: InMemoryBackend,
        faults: Arc<Faults>,
    }

    /// What a test does to it.
    #[derive(Debug, Default)]
    pub(crate) struct Faults {
        /// There is no room.
        pub(crate) full: AtomicBool,
        /// During the next flush the machine stands still for so many milliseconds.
        pub(crate) pause: AtomicU64,
        /// For how long it has stood still.
        pub(crate) paused: Arc<AtomicU64>,
    }

    impl Disk {
        fn room(&self) -> io::Result<()> {
            if self.faults.full.load(Ordering::Relaxed) {
                Err(io::ErrorKind::StorageFull.into())
            } else {
                Ok(())
            }
        }
    }

    impl StorageBackend for Disk {
        fn len(&self) -> io::Result<u64> {
            self.memory.len()
        }
        fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
            self.memory.read(offset, out)
        }
        fn set_len(&self, len: u64) -> io::Result<()> {
            self.room()?;
            self.memory.set_len(len)
        }
        fn sync_data(&self) -> io::Result<()> {
            self.faults.paused.fetch_add(self.faults.pause.swap(0, Ordering::Relaxed), Ordering::Relaxed);
            self.room()
        }
        fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
            self.room()?;
            self.memory.write(offset, data)
        }
    }

    /// A store on a disk, and what can be done to that.
    pub(crate) fn store() -> Result<(Store, Arc<Faults>), Error> {
        let faults = Arc::new(Faults::default());
        let disk = Disk { memory: InMemoryBackend::new(), faults: Arc::clone(&faults) };
        let db =
            redb::Database::builder().create_with_backend(disk).expect("an empty disk takes a new store");
        Ok((Store::of(db, "memory".into())?, faults))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(key: &str, value: &str) -> StoreOp {
        StoreOp { key: key.into(), value: Some(value.into()) }
    }

    fn pair(key: &str, value: &str) -> (String, String) {
        (key.to_owned(), value.to_owned())
    }

    #[test]
    fn what_was_committed_is_there_after_a_restart_and_in_order() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path()).unwrap();
        assert_eq!(store.load().unwrap(), []);
        store.commit(&[put("b", "1"), put("a", "2"), put("a", "3")]).unwrap();
        store
            .commit(&[
                StoreOp { key: "b".into(), value: None },
                StoreOp { key: "never".into(), value: None },
                put("c", "4"),
            ])
            .unwrap();
        drop(store);
        let store = Store::open(dir.path()).unwrap();
        assert_eq!(store.load().unwrap(), [pair("a", "3"), pair("c", "4")]);
    }

    #[test]
    fn a_store_that_could_not_be_made_whole_is_none() {
        let dir = tempfile::tempdir().unwrap();
        let draft = dir.path().join(format!(".{FILE}.new-{}", std::process::id()));
        std::fs::create_dir(&draft).unwrap();
        let error = Store::open(dir.path()).unwrap_err();
        assert!(matches!(error, Error::Unusable { .. }) && !dir.path().join(FILE).exists(), "{error}");
        std::fs::remove_dir(&draft).unwrap();
        // As it is left where the disk was full, or the process was killed.
        std::fs::write(&draft, vec![0; 100_000]).unwrap();
        Store::open(dir.path()).unwrap();
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_store_is_held_by_one() {
        let dir = tempfile::tempdir().unwrap();
        let first = Store::open(dir.path()).unwrap();
        let error = Store::open(dir.path()).unwrap_err();
        assert!(
            matches!(error, Error::InUse { .. }) && error.to_string().contains("in use by another agent"),
            "{error}"
        );
        drop(first);
        Store::open(dir.path()).unwrap();
    }

    #[test]
    fn what_one_runner_started_is_handed_to_no_other() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path()).unwrap();
        store.hand_to("simulated").unwrap();
        store.hand_to("process").unwrap();
        store.commit(&[put("run/1", "{}"), put("fence/1", "{}")]).unwrap();
        drop(store);
        let store = Store::open(dir.path()).unwrap();
        let error = store.hand_to("simulated").unwrap_err();
        assert!(
            matches!(error, Error::OtherRunner { .. }) && error.to_string().contains("`--runner process`"),
            "{error}"
        );
        store.hand_to("process").unwrap();
        store.commit(&[StoreOp { key: "run/1".into(), value: None }]).unwrap();
        store.hand_to("simulated").unwrap();
    }

    #[test]
    fn only_its_owner_reads_it_whoever_made_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(FILE);
        let mode = || std::fs::metadata(&path).unwrap().permissions().mode() & 0o777;
        drop(Store::open(dir.path()).unwrap());
        assert_eq!(mode(), 0o600);
        std::fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        drop(Store::open(dir.path()).unwrap());
        assert_eq!(mode(), 0o600);
    }

    #[test]
    fn a_copy_is_refused_and_the_original_goes_on_wherever_it_is_moved() {
        let dir = tempfile::tempdir().unwrap();
        let [original, copy, moved] = ["original", "copy", "moved"].map(|name| dir.path().join(name));
        Store::open(&original).unwrap().commit(&[put("a", "1")]).unwrap();
        std::fs::create_dir(&copy).unwrap();
        std::fs::copy(original.join(FILE), copy.join(FILE)).unwrap();
        let error = Store::open(&copy).unwrap_err();
        assert!(matches!(error, Error::Copied { .. }) && error.to_string().contains("--replace"), "{error}");
        std::fs::rename(&original, &moved).unwrap();
        assert_eq!(Store::open(&moved).unwrap().load().unwrap(), [pair("a", "1")]);
    }

    #[test]
    fn a_disk_in_another_machine_is_another_place() {
        let dir = tempfile::tempdir().unwrap();
        let [one, other, none] = ["one", "other", "none"].map(|name| dir.path().join(name));
        std::fs::write(&one, "0123\n").unwrap();
        std::fs::write(&other, "4567\n").unwrap();
        let at = |machine| place_of(&one, machine).unwrap();
        assert_eq!(at(&one), at(&one));
        assert_ne!(at(&one), at(&other));
        assert!(at(&none).ends_with("machine "), "a machine without an id is like any other without one");
    }

    #[test]
    fn another_format_is_refused_in_words() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path()).unwrap();
        let txn = store.db.begin_write().unwrap();
        txn.open_table(META).unwrap().insert(FORMAT_KEY, FORMAT + 1).unwrap();
        txn.commit().unwrap();
        drop(store);
        let error = Store::open(dir.path()).unwrap_err();
        assert!(
            matches!(error, Error::Format { found, .. } if found == FORMAT + 1)
                && error.to_string().contains("newer"),
            "{error}"
        );
    }

    #[test]
    fn a_file_that_is_no_store_is_refused_with_the_way_out() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join(FILE), vec![b'x'; 100_000]).unwrap();
        let error = Store::open(dir.path()).unwrap_err();
        assert!(error.to_string().contains("--replace") && !error.disk_is_full(), "{error}");
    }

    #[test]
    fn a_full_disk_is_named_and_nothing_of_the_transaction_is_there() {
        let (store, faults) = disk::store().unwrap();
        store.commit(&[put("a", "1")]).unwrap();
        faults.full.store(true, std::sync::atomic::Ordering::Relaxed);
        let error = store.commit(&[put("a", "2"), put("b", "3")]).unwrap_err();
        assert!(
            error.to_string().starts_with("cannot make 2 changes durable in `memory`: the disk is full"),
            "{error}"
        );
        assert!(error.disk_is_full());
        // What comes after a failed commit must fail too, whatever the disk says by then.
        faults.full.store(false, std::sync::atomic::Ordering::Relaxed);
        assert!(store.commit(&[put("c", "4")]).is_err());
    }
}
