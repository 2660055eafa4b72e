//! The agent's durable store: one table of keyed text in one redb file.
//!
//! Owns the file, its format version and its exclusive lock. Knows nothing of the meaning of the keys, which
//! is that of `meridian_agent_core::durable`. Invariants: [`Store::commit`] is one transaction, and it has
//! reached the disk when it returns; a store is open in at most one process.
//!
//! A store is valid only in the file and on the machine where it was made. On another machine a copy would
//! take that machine's boot for a reboot, report the runs of the original as over, and have them started
//! elsewhere while they run. A restored backup lacks later refusals and ends. Copies and restored backups are
//! refused.
//!
//! After a failed commit the core's memory is ahead of the disk. Nothing that follows from it may be done or
//! sent, so the caller must end the process; its successor continues from what is durable.

use meridian_agent_core::durable::{self, StoreOp};
use redb::{Database, DatabaseError, ReadableDatabase, ReadableTable, TableDefinition};
use std::fs::Permissions;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

/// The file in the agent's directory.
pub const FILE: &str = "agent.redb";
/// Version of the file's format.
pub const FORMAT: u32 = 1;
/// The core keeps everything in memory, so each page is read only once.
const CACHE_BYTES: usize = 8 << 20;

const VALUES: TableDefinition<'_, &str, &str> = TableDefinition::new("agent");
const META: TableDefinition<'_, &str, u32> = TableDefinition::new("meta");
const FORMAT_KEY: &str = "format";
const PLACE: TableDefinition<'_, &str, &str> = TableDefinition::new("place");
const PLACE_KEY: &str = "made";
/// The runner that started the runs; in the same table.
const RUNNER_KEY: &str = "runner";
/// Identity of the Kubernetes cluster in which the runs were started; in the same table.
const CLUSTER_KEY: &str = "cluster";
/// Identity of the machine, if the file exists.
const MACHINE_ID: &str = "/etc/machine-id";

/// Errors of the agent's store.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot make the directory `{}`", dir.display())]
    Directory {
        dir: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error(
        "`{}` is in use by another agent: stop that one first, or give this one another `--data-dir`",
        path.display()
    )]
    InUse { path: PathBuf },
    #[error(
        "`{}` has format {found}, this agent knows {FORMAT}: use the version that wrote it, or a newer one",
        path.display()
    )]
    Format { path: PathBuf, found: u32 },
    /// The store was made in another file, or on another machine.
    #[error(
        "`{}` is a copy, or was moved here from another machine, so the runs of its original are not here. \
         Only one of them may speak for the cluster: continue with the original, or move this one away and \
         join again with `--replace`",
        path.display()
    )]
    Copied { path: PathBuf },
    /// Another runner started the gangs that may still run, and only that runner can see and end them.
    #[error(
        "the `{was}` runner started gangs of `{}` that may still run, and the `{asked}` runner can neither \
         see nor end them: start the agent with `--runner {was}`, and change it when they have ended \
         (`meridian cluster drain` ends them)",
        path.display()
    )]
    OtherRunner {
        path: PathBuf,
        /// The runner that started them.
        was: String,
        /// The runner of the settings.
        asked: String,
    },
    /// The API server is that of another Kubernetes cluster.
    #[error(
        "`{}` has gangs of the Kubernetes cluster whose `kube-system` has uid {was}, and the API server's \
         has {found}, so it can't say whether they run. Give the agent the former cluster's kubeconfig; if \
         that cluster is gone, run `meridian cluster declare-lost` and join with an empty data directory",
        path.display()
    )]
    OtherCluster { path: PathBuf, was: String, found: String },
    /// The store can't be opened or read.
    #[error("cannot {doing} `{}`{}", path.display(), remedy(source))]
    Unusable {
        /// The failed operation, as a verb.
        doing: &'static str,
        path: PathBuf,
        #[source]
        source: Box<redb::Error>,
    },
    /// A transaction did not become durable.
    #[error(
        "cannot make {changes} changes durable in `{}`{}; nothing that follows from them was done, and the \
         agent continues from what is durable when it is started again",
        path.display(),
        remedy(source)
    )]
    Commit {
        /// Number of writes.
        changes: usize,
        path: PathBuf,
        #[source]
        source: Box<redb::Error>,
    },
}

impl Error {
    /// Whether the disk is full, so that another attempt may succeed once there is space.
    pub fn disk_is_full(&self) -> bool {
        match self {
            Self::Directory { source, .. } => is_full(source),
            Self::Unusable { source, .. } | Self::Commit { source, .. } => {
                matches!(&**source, redb::Error::Io(e) if is_full(e))
            }
            Self::InUse { .. }
            | Self::Format { .. }
            | Self::Copied { .. }
            | Self::OtherRunner { .. }
            | Self::OtherCluster { .. } => false,
        }
    }
}

/// Whether the disk has no space, or the user has no quota left.
pub fn is_full(error: &std::io::Error) -> bool {
    matches!(error.kind(), std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded)
}

/// Remedy for the operator.
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

const DAMAGED: &str =
    ": it is damaged or not a store of an agent; move it away and join again with `--replace`";

/// The store of one agent, held exclusively while it is open.
#[derive(Debug)]
pub struct Store {
    db: Database,
    path: PathBuf,
}

impl Store {
    /// Opens the store in `dir` and creates both if they are missing. Fails if the store is in use, of
    /// another format, a copy, or can't be read.
    pub fn open(dir: &Path) -> Result<Self, Error> {
        std::fs::create_dir_all(dir).map_err(|source| Error::Directory { dir: dir.to_owned(), source })?;
        let path = dir.join(FILE);
        if !path.exists() {
            make(dir, &path)?;
        }
        restrict(&path).map_err(|source| Error::Unusable {
            doing: "set mode 0600 on",
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

    /// Where the store was made; a new store is made here.
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

    /// Notes that this runner starts gangs from now on. Fails while gangs of another runner may still run.
    pub fn set_runner(&self, runner: &str) -> Result<(), Error> {
        match self.set_unless_busy(RUNNER_KEY, runner)? {
            Some(was) => Err(Error::OtherRunner { path: self.path.clone(), was, asked: runner.to_owned() }),
            None => Ok(()),
        }
    }

    /// Notes the Kubernetes cluster in which gangs start from now on, by the uid of its `kube-system`. Fails
    /// while gangs of another cluster may still run: their absence in this cluster would be taken for their
    /// end.
    pub fn set_cluster(&self, uid: &str) -> Result<(), Error> {
        match self.set_unless_busy(CLUSTER_KEY, uid)? {
            Some(was) => Err(Error::OtherCluster { path: self.path.clone(), was, found: uid.to_owned() }),
            None => Ok(()),
        }
    }

    /// Sets a value, or returns the different one that must stay while gangs may run.
    fn set_unless_busy(&self, key: &str, value: &str) -> Result<Option<String>, Error> {
        let busy = self.load()?.iter().any(|(key, _)| durable::is_run(key));
        let set = || -> Result<Option<String>, redb::Error> {
            let txn = self.db.begin_write()?;
            let was = txn.open_table(PLACE)?.get(key)?.map(|was| was.value().to_owned());
            match was {
                Some(was) if was == value => txn.abort()?,
                Some(was) if busy => {
                    txn.abort()?;
                    return Ok(Some(was));
                }
                _ => {
                    txn.open_table(PLACE)?.insert(key, value)?;
                    txn.commit()?;
                }
            }
            Ok(None)
        };
        set().map_err(|source| self.unusable("read", source))
    }

    fn of(db: Database, path: PathBuf) -> Result<Self, Error> {
        let this = Self { db, path };
        let found = this.format().map_err(|source| this.unusable("read", source))?;
        match found {
            FORMAT => Ok(this),
            found => Err(Error::Format { path: this.path, found }),
        }
    }

    /// The format of the file; a new file gets ours.
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

    /// All keys and values, sorted by key. Fails if the file can't be read.
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

    /// Makes `changes` durable, all or none. If it fails, the caller must end the process (see the module
    /// documentation).
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

/// Identity of a file apart from its name, and of its machine. The number of a device changes when a volume
/// is attached anew, so it is used only if the file system keeps no birth times.
fn place_of(path: &Path, machine_id: &Path) -> std::io::Result<String> {
    let seen = std::fs::metadata(path)?;
    let born = seen.created().ok().and_then(|born| born.duration_since(UNIX_EPOCH).ok());
    let born =
        born.map_or_else(|| format!("device {}", seen.dev()), |born| format!("born {}", born.as_nanos()));
    let machine = std::fs::read_to_string(machine_id).unwrap_or_default();
    Ok(format!("inode {} {born} machine {}", seen.ino(), machine.trim()))
}

/// Removes all rights of other users: the store contains jobs and their environments.
fn restrict(path: &Path) -> std::io::Result<()> {
    let mode = std::fs::metadata(path)?.permissions().mode();
    if mode & 0o077 == 0 {
        Ok(())
    } else {
        std::fs::set_permissions(path, Permissions::from_mode(mode & 0o600))
    }
}

/// Makes an empty store that appears at `path` whole or not at all. A full disk would leave a partial file,
/// which would look damaged.
fn make(dir: &Path, path: &Path) -> Result<(), Error> {
    let draft = dir.join(format!(".{FILE}.new-{}", std::process::id()));
    let cannot = |source: std::io::Error| Error::Unusable {
        doing: "make",
        path: path.to_owned(),
        source: Box::new(redb::Error::Io(source)),
    };
    // Left by a killed process with the same id.
    drop(std::fs::remove_file(&draft));
    std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft).map_err(cannot)?;
    let made = Store::open_file(draft.clone()).and_then(|store| {
        drop(store);
        match std::fs::hard_link(&draft, path) {
            // Another agent has made the store meanwhile; only one of the two can open it.
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
            linked => linked.and_then(|()| std::fs::File::open(dir)?.sync_all()).map_err(cannot),
        }
    });
    // In every case the draft is deleted, since it only uses space now.
    drop(std::fs::remove_file(&draft));
    made
}

#[cfg(test)]
pub(crate) mod disk;
#[cfg(test)]
mod tests;
