//! The directory of one run, and everything that agent and guard tell each other through files.
//!
//! ```text
//! runs/<uid>/<fence>/start.json   what to run (agent, before the guard starts)
//!                   /move.json    the latest places of its pods (agent); the guard writes them into start.json once they count
//!                   /size.json    how many pods it goes on with, where it has shrunk (agent)
//!                   /stop         tombstone: nothing may start here any more (agent)
//!                   /guard.lock   held by whoever may write the end: the living guard, or an agent that clears up
//!                   /guard.json   who the guard is (guard, before the first pod)
//!                   /state.json   where the run is; once it says ended it never changes
//!                   /guard.sock   renewals and stops, agent to guard
//!                   /guard.log    what the guard had to say
//!                   /pod-<index>-<attempt>/{work/, output.log}
//! ```
//! Invariants: the directory is created exclusively, and that occupies the run's name; files appear whole or not at all
//! (written aside, synced, renamed, directory synced); `state.json` is written only under `guard.lock`.

use crate::runner::{End, Error, PodPlacement, Start};
use meridian_shared::ids::{ClusterName, Fence, Region, Uid};
use meridian_shared::protocol::Size;
use meridian_shared::time::{Millis, Now, Wall};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// Version of every file of a run directory.
pub const VERSION: u32 = 1;
/// No file of a run is read beyond this; a job's spec is far smaller.
const FILE_BYTES_MAX: u64 = 16 << 20;
/// Only the agent's own user may look into a run: output and environment can hold secrets.
const DIRECTORY_MODE: u32 = 0o700;
const FILE_MODE: u32 = 0o600;

/// What the agent hands to a guard.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// [`VERSION`].
    pub version: u32,
    /// The boot that the deadline belongs to.
    pub boot_id: String,
    /// Both clocks when the deadline was given.
    pub given: Now,
    /// The cluster that runs it.
    pub cluster: ClusterName,
    /// Its region.
    pub region: Region,
    /// The wait before the first retry of a pod.
    pub retry_delay_first: Millis,
    /// The grant.
    pub start: Start,
}

/// Other places for pods of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Movement {
    /// [`VERSION`].
    pub version: u32,
    /// Counts the moves of this run, from 1.
    pub number: u32,
    /// All places, in the order of the start.
    pub placement: Vec<PodPlacement>,
    /// How many pods it goes on with, where places were added behind the others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grows_to: Option<Size>,
}

/// What a run has shrunk to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resize {
    /// [`VERSION`].
    pub version: u32,
    /// How many pods it goes on with.
    pub size: Size,
}

/// Who a guard is, for finding out whether it still lives.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// [`VERSION`].
    pub version: u32,
    /// Its process id, as the agent sees it; also the id of its session.
    pub pid: i32,
    /// When it started, in clock ticks since boot: tells it from a later process of the same id.
    pub started_ticks: u64,
    /// Whether it is init of a PID namespace, so that its death ends the gang.
    pub namespace: bool,
}

/// Where a run is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    /// [`VERSION`].
    pub version: u32,
    /// Pods that failed, those of earlier attempts included.
    pub failures: u32,
    /// When the gang was started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started: Option<Wall>,
    /// Places of the placement in which nothing is and nothing more will start.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub spare: Vec<u32>,
    /// When it was seen ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<Wall>,
    /// How it ended; absent while it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<End>,
}

/// One run's directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunDir {
    path: PathBuf,
}

impl RunDir {
    /// The directory at `path`, there or not.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// Where the run of `uid` under `fence` is kept below `runs`.
    pub fn of(runs: &Path, uid: Uid, fence: Fence) -> Self {
        Self { path: runs.join(uid.to_string()).join(fence.to_string()) }
    }

    /// Occupies the name durably. `None` when it is occupied already.
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

    /// Every run below `runs`, with its name. What isn't named like a run is skipped.
    pub fn list(runs: &Path) -> Result<Vec<(Uid, Fence, Self)>, Error> {
        let mut found = Vec::new();
        for (uid, path) in named::<Uid>(runs)? {
            found.extend(named::<Fence>(&path)?.into_iter().map(|(fence, path)| (uid, fence, Self { path })));
        }
        found.sort_by_key(|(uid, fence, _)| (*uid, *fence));
        Ok(found)
    }

    /// The directory itself.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The directory of one try of one pod.
    pub fn pod(&self, index: u32, attempt: u32) -> PathBuf {
        self.path.join(format!("pod-{index}-{attempt}"))
    }

    /// The tries of pods that have a directory, in order.
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

    /// Who may write the end. `None` when somebody else holds it.
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

    /// What to run.
    pub fn plan(&self) -> Result<Option<Plan>, Error> {
        self.read("start.json")
    }

    /// Writes what to run.
    pub fn write_plan(&self, plan: &Plan) -> Result<(), Error> {
        self.write("start.json", plan)
    }

    /// Where its pods belong, where that changed since the start.
    pub fn movement(&self) -> Result<Option<Movement>, Error> {
        self.read("move.json")
    }

    /// Writes where its pods belong.
    pub fn write_movement(&self, movement: &Movement) -> Result<(), Error> {
        self.write("move.json", movement)
    }

    /// What it has shrunk to, if it has.
    pub fn resize(&self) -> Result<Option<Resize>, Error> {
        self.read("size.json")
    }

    /// Writes what it shrinks to.
    pub fn write_resize(&self, resize: &Resize) -> Result<(), Error> {
        self.write("size.json", resize)
    }

    /// Removes what it shrunk to: it has grown since.
    pub fn forget_resize(&self) -> Result<(), Error> {
        self.drop_file("size.json")
    }

    /// Who the guard is.
    pub fn identity(&self) -> Result<Option<Identity>, Error> {
        self.read("guard.json")
    }

    /// Writes who the guard is.
    pub fn write_identity(&self, identity: &Identity) -> Result<(), Error> {
        self.write("guard.json", identity)
    }

    /// Where the run is.
    pub fn state(&self) -> Result<Option<State>, Error> {
        self.read("state.json")
    }

    /// How the run ended, if it has.
    pub fn end(&self) -> Result<Option<End>, Error> {
        Ok(self.state()?.and_then(|s| s.end))
    }

    /// Writes where the run is. The caller holds the lock, and the run has not ended.
    pub fn write_state(&self, state: &State) -> Result<(), Error> {
        self.write("state.json", state)
    }

    /// Leaves the tombstone: whoever comes to start this run finds it and doesn't.
    pub fn forbid_start(&self) -> Result<(), Error> {
        self.write("stop", &VERSION)
    }

    /// Whether the tombstone is there.
    pub fn start_forbidden(&self) -> bool {
        self.path.join("stop").exists()
    }

    /// Removes the directory with everything in it.
    pub fn remove(&self) -> Result<(), Error> {
        fs::remove_dir_all(&self.path).map_err(|e| file_error("remove", &self.path, e))?;
        if let Some(parent) = self.path.parent() {
            // Fails as long as another fence of this workload is kept, which is right.
            let _ = fs::remove_dir(parent);
        }
        Ok(())
    }

    /// A file for the guard's own remarks.
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

/// Creates `path` and what is missing above it, for this user only.
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
    use crate::runner::RunResult;

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
    fn the_lock_has_one_holder_and_files_of_version_1_are_read() {
        let root = tempfile::tempdir().unwrap();
        let dir = RunDir::occupy(root.path(), UID, FENCE).unwrap().unwrap();
        let held = dir.lock().unwrap();
        assert!(held.is_some() && dir.lock().unwrap().is_none());
        drop(held);
        assert!(dir.lock().unwrap().is_some());

        let golden = r#"{"version":1,"failures":2,"started":5,"ended":9,"end":{"result":{"kind":"Failed","reason":"R","message":"m"},"pods":[{"index":0,"attempt":1,"exit_code":3}],"failures":2,"ran":4}}"#;
        std::fs::write(dir.path().join("state.json"), golden).unwrap();
        let state = dir.state().unwrap().unwrap();
        assert!(matches!(state.end.as_ref().unwrap().result, RunResult::Failed { .. }));
        assert_eq!(serde_json::to_string(&state).unwrap(), golden);

        std::fs::write(dir.path().join("state.json"), "{").unwrap();
        assert!(dir.state().unwrap_err().to_string().contains("state.json"));
    }
}
