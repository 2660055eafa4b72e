//! The directory of one run: everything that agent and guard exchange through files.
//!
//! ```text
//! runs/<uid>/<fence>/start.json   what to run (agent, before the guard starts)
//!                   /move.json    latest placement (agent); the guard copies it into start.json later
//!                   /size.json    size after a scale-down (agent)
//!                   /stop         tombstone: nothing may start here any more (agent)
//!                   /guard.lock   held by the process that may write the end: guard, or agent that cleans up
//!                   /guard.json   identity of the guard (guard, before the first pod)
//!                   /state.json   state of the run; it never changes after the end
//!                   /guard.sock   renewals and stops, agent to guard
//!                   /guard.log    log of the guard
//!                   /pod-<index>-<attempt>/{work/, output.log}
//! ```
//! Invariants: the directory is created exclusively, which occupies the name of the run; files appear whole
//! or not at all (written under another name, synced, renamed, directory synced); `state.json` is written
//! only under `guard.lock`.

use crate::job_run::{Error, RunEnd};
use meridian_agent_core::runtime::{PodPlacement, Start};
use meridian_shared::ids::{ClusterName, Fence, Region, Uid};
use meridian_shared::indexes::Indexes;
use meridian_shared::protocol::Size;
use meridian_shared::time::{Millis, Now, Wall};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// Version of every file of a run directory.
pub const VERSION: u32 = 2;
/// Bytes of a file that are read; the spec of a job is far smaller.
const FILE_BYTES_MAX: u64 = 16 << 20;
/// Only the agent's user may read a run: output and environment can contain secrets.
const DIRECTORY_MODE: u32 = 0o700;
const FILE_MODE: u32 = 0o600;

/// Orders of the agent to a guard.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    pub version: u32,
    /// The boot in which the deadline is valid.
    pub boot_id: String,
    /// The clocks when the deadline was computed.
    pub given: Now,
    pub cluster: ClusterName,
    pub region: Region,
    /// Delay before the first retry of a pod.
    pub retry_delay_first: Millis,
    pub start: Start,
}

/// A new placement of the pods of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Movement {
    pub version: u32,
    /// Number of the move within this run, from 1.
    pub number: u32,
    /// All pods, in the order of the start; added ones last.
    pub placement: Vec<PodPlacement>,
    /// The new size, if pods were added.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scale_up_to: Option<Size>,
}

/// The size of a run after a scale-down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resize {
    pub version: u32,
    pub size: Size,
}

/// Identity of a guard, to find out whether it still lives.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    pub version: u32,
    /// Process id as the agent sees it; also the id of its session.
    pub pid: i32,
    /// Start time in clock ticks since boot, which distinguishes the process from a later one with the same
    /// id.
    pub started_ticks: u64,
    /// Whether the guard is init of a PID namespace, so that its death ends the gang.
    pub namespace: bool,
}

/// The last state that a guard reported of its run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuardState {
    pub version: u32,
    /// Number of failed pods so far, over all attempts.
    pub pod_failures: u32,
    /// When the gang started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started: Option<Wall>,
    /// Indexes into the placement where nothing runs and nothing will start.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reclaimable: Vec<u32>,
    /// Completion indexes that succeeded so far, over all attempts.
    #[serde(default, skip_serializing_if = "Indexes::is_empty")]
    pub completed: Indexes,
    /// When the run was seen ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<Wall>,
    /// Absent while the run lives.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<RunEnd>,
}

/// One run's directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunDir {
    path: PathBuf,
}

impl RunDir {
    /// The directory at `path`, whether or not it exists.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// The directory of the run of `uid` under `fence`, below `runs`.
    pub fn of(runs: &Path, uid: Uid, fence: Fence) -> Self {
        Self { path: runs.join(uid.to_string()).join(fence.to_string()) }
    }

    /// Occupies the name durably. Returns `None` if it is occupied already. Fails if the disk does not take
    /// it.
    pub fn occupy(runs: &Path, uid: Uid, fence: Fence) -> Result<Option<Self>, Error> {
        let dir = Self::of(runs, uid, fence);
        let parent = runs.join(uid.to_string());
        create_directories(&parent).map_err(|e| file_error("create", &parent, e))?;
        match DirBuilder::new().mode(DIRECTORY_MODE).create(&dir.path) {
            Ok(()) => {}
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => return Ok(None),
            Err(e) => return Err(file_error("create", &dir.path, e)),
        }
        sync_directory(&parent)?;
        sync_directory(runs)?;
        Ok(Some(dir))
    }

    /// Every run below `runs`. Other directories are skipped. Fails if a directory can't be listed
    /// completely.
    pub fn list(runs: &Path) -> Result<Vec<(Uid, Fence, Self)>, Error> {
        let mut found = Vec::new();
        for (uid, path) in named::<Uid>(runs)? {
            found.extend(named::<Fence>(&path)?.into_iter().map(|(fence, path)| (uid, fence, Self { path })));
        }
        found.sort_by_key(|(uid, fence, _)| (*uid, *fence));
        Ok(found)
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The directory of one try of a pod.
    pub fn pod(&self, index: u32, attempt: u32) -> PathBuf {
        self.path.join(format!("pod-{index}-{attempt}"))
    }

    /// Tries with a directory, as (index, attempt), sorted.
    pub fn pods(&self) -> Vec<(u32, u32)> {
        let Ok(entries) = fs::read_dir(&self.path) else { return Vec::new() };
        let mut pods: Vec<(u32, u32)> = entries
            .filter_map(|e| {
                let name = e.ok()?.file_name();
                let (index, attempt) = name.to_str()?.strip_prefix("pod-")?.split_once('-')?;
                Some((index.parse().ok()?, attempt.parse().ok()?))
            })
            .collect();
        pods.sort_unstable();
        pods
    }

    /// Takes the lock that allows writing the end. Returns `None` if another process holds it. Fails if the
    /// lock file can't be used.
    pub fn lock(&self) -> Result<Option<File>, Error> {
        let path = self.path.join("guard.lock");
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(FILE_MODE)
            .open(&path)
            .map_err(|e| file_error("open", &path, e))?;
        match file.try_lock() {
            Ok(()) => Ok(Some(file)),
            Err(fs::TryLockError::WouldBlock) => Ok(None),
            Err(fs::TryLockError::Error(e)) => Err(file_error("lock", &path, e)),
        }
    }

    /// Reads `start.json`. Fails if it exists and can't be read; so do the readers below.
    pub fn plan(&self) -> Result<Option<Plan>, Error> {
        self.read("start.json")
    }

    /// Writes `start.json`. Fails if the disk does not take it; so do the writers below.
    pub fn write_plan(&self, plan: &Plan) -> Result<(), Error> {
        self.write("start.json", plan)
    }

    pub fn movement(&self) -> Result<Option<Movement>, Error> {
        self.read("move.json")
    }

    pub fn write_movement(&self, movement: &Movement) -> Result<(), Error> {
        self.write("move.json", movement)
    }

    pub fn resize(&self) -> Result<Option<Resize>, Error> {
        self.read("size.json")
    }

    pub fn write_resize(&self, resize: &Resize) -> Result<(), Error> {
        self.write("size.json", resize)
    }

    /// Removes `size.json`, because the run was scaled up since.
    pub fn forget_resize(&self) -> Result<(), Error> {
        self.drop_file("size.json")
    }

    pub fn identity(&self) -> Result<Option<Identity>, Error> {
        self.read("guard.json")
    }

    pub fn write_identity(&self, identity: &Identity) -> Result<(), Error> {
        self.write("guard.json", identity)
    }

    pub fn state(&self) -> Result<Option<GuardState>, Error> {
        self.read("state.json")
    }

    /// The end of the run, if it has ended.
    pub fn end(&self) -> Result<Option<RunEnd>, Error> {
        Ok(self.state()?.and_then(|s| s.end))
    }

    /// Writes `state.json`. The caller holds the lock, and the run has not ended.
    pub fn write_state(&self, state: &GuardState) -> Result<(), Error> {
        self.write("state.json", state)
    }

    /// Writes the tombstone, so that this run is never started.
    pub fn forbid_start(&self) -> Result<(), Error> {
        self.write("stop", &VERSION)
    }

    /// Whether the tombstone exists.
    pub fn start_forbidden(&self) -> bool {
        self.path.join("stop").exists()
    }

    /// Removes the directory with everything in it. Fails if some of it can't be removed.
    pub fn remove(&self) -> Result<(), Error> {
        fs::remove_dir_all(&self.path).map_err(|e| file_error("remove", &self.path, e))?;
        if let Some(parent) = self.path.parent() {
            // The removal fails, as intended, while another fence of this workload is kept.
            let _ = fs::remove_dir(parent);
        }
        Ok(())
    }

    /// The log of the guard. Fails if it can't be opened.
    pub fn remarks(&self) -> Result<File, Error> {
        let path = self.path.join("guard.log");
        OpenOptions::new()
            .create(true)
            .append(true)
            .mode(FILE_MODE)
            .open(&path)
            .map_err(|e| file_error("open", &path, e))
    }

    fn read<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>, Error> {
        let path = self.path.join(name);
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(file_error("open", &path, e)),
        };
        let mut text = String::new();
        file.take(FILE_BYTES_MAX).read_to_string(&mut text).map_err(|e| file_error("read", &path, e))?;
        serde_json::from_str(&text).map(Some).map_err(|source| Error::Damaged { path, source })
    }

    fn drop_file(&self, name: &str) -> Result<(), Error> {
        let path = self.path.join(name);
        match fs::remove_file(&path) {
            Ok(()) => sync_directory(&self.path),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(e) => Err(file_error("remove", &path, e)),
        }
    }

    fn write<T: Serialize>(&self, name: &str, value: &T) -> Result<(), Error> {
        let path = self.path.join(name);
        let aside = self.path.join(format!("{name}.new"));
        let text =
            serde_json::to_vec(value).map_err(|source| Error::Damaged { path: path.clone(), source })?;
        let write = || {
            let mut file =
                OpenOptions::new().create(true).truncate(true).write(true).mode(FILE_MODE).open(&aside)?;
            file.write_all(&text)?;
            file.sync_all()?;
            fs::rename(&aside, &path)
        };
        write().map_err(|e| file_error("write", &path, e))?;
        sync_directory(&self.path)
    }
}

fn named<T: std::str::FromStr>(directory: &Path) -> Result<Vec<(T, PathBuf)>, Error> {
    let entries = match fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(file_error("list", directory, e)),
    };
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry.map_err(|e| file_error("list", directory, e))?;
        if let Some(name) = entry.file_name().to_str().and_then(|n| n.parse().ok()) {
            found.push((name, entry.path()));
        }
    }
    Ok(found)
}

/// Creates `path` and its missing parents, for this user only. Fails if one can't be created.
pub fn create_directories(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(DIRECTORY_MODE).create(path)
}

fn sync_directory(path: &Path) -> Result<(), Error> {
    File::open(path).and_then(|d| d.sync_all()).map_err(|e| file_error("sync", path, e))
}

fn file_error(doing: &'static str, path: &Path, source: io::Error) -> Error {
    Error::File { doing, path: path.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use super::*;
    use meridian_shared::protocol::EndResult;

    const UID: Uid = Uid(7);
    const FENCE: Fence = Fence { epoch: 3, leadership: u64::MAX, counter: 9 };

    #[test]
    fn a_name_is_occupied_once() {
        let root = tempfile::tempdir().unwrap();
        let dir = RunDir::occupy(root.path(), UID, FENCE).unwrap().unwrap();
        assert_eq!(RunDir::occupy(root.path(), UID, FENCE).unwrap(), None);
        std::fs::create_dir(root.path().join("lost+found")).unwrap();
        assert_eq!(RunDir::list(root.path()).unwrap(), [(UID, FENCE, dir.clone())]);
        dir.remove().unwrap();
        assert!(RunDir::list(root.path()).unwrap().is_empty());
    }

    #[test]
    fn the_lock_has_one_holder_and_version_1_files_are_read() {
        let root = tempfile::tempdir().unwrap();
        let dir = RunDir::occupy(root.path(), UID, FENCE).unwrap().unwrap();
        let held = dir.lock().unwrap();
        assert!(held.is_some() && dir.lock().unwrap().is_none());
        drop(held);
        assert!(dir.lock().unwrap().is_some());

        let golden = concat!(
            r#"{"version":1,"pod_failures":2,"started":5,"ended":9,"end":{"result":{"Failed":{"reason":"R","#,
            r#""message":"m"}},"pods":[{"index":0,"attempt":1,"exit_code":3}],"pod_failures":2,"ran":4}}"#
        );
        std::fs::write(dir.path().join("state.json"), golden).unwrap();
        let state = dir.state().unwrap().unwrap();
        assert!(matches!(state.end.as_ref().unwrap().result, EndResult::Failed { .. }));
        assert_eq!(serde_json::to_string(&state).unwrap(), golden);

        std::fs::write(dir.path().join("state.json"), "{").unwrap();
        assert!(dir.state().unwrap_err().to_string().contains("state.json"));
    }
}
