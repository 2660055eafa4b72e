//! Finds and ends processes through `/proc`.
//!
//! A process belongs to a gang if it descends from the gang's guard (which adopts orphans), if it is in the
//! guard's session, or if the environment it was started with has the run's marks (uid and fence). A process
//! that loses all three isn't found; in a PID namespace it still ends, because the namespace ends with its
//! init.

use meridian_shared::ids::{Fence, Uid};
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid, waitpid};
use nix::unistd::Pid;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Read as _;
use std::path::Path;

/// Environment variable with the uid of a run.
pub const MARK_UID: &str = "MERIDIAN_WORKLOAD_UID";
/// Environment variable with the fence of a run.
pub const MARK_FENCE: &str = "MERIDIAN_FENCE";
/// Bytes of an environment that are read; the marks are among the first.
const ENVIRON_BYTES_MAX: u64 = 256 << 10;

/// The used part of `/proc/<pid>/stat`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    pub pid: i32,
    /// One letter, as in proc(5).
    pub state: char,
    pub parent: i32,
    pub session: i32,
    /// Start time in clock ticks since boot.
    pub started_ticks: u64,
}

impl Stat {
    /// Reads the stat of `pid`, which may be `self`. `None` if there is no such process.
    pub fn of(pid: impl std::fmt::Display) -> Option<Self> {
        Self::parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    fn parse(text: &str) -> Option<Self> {
        // The name is in parentheses and may contain parentheses, so the last one ends it.
        let (pid, rest) = (text.split_once(' ')?.0, text.rsplit_once(')')?.1);
        let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
        Some(Self {
            pid: pid.parse().ok()?,
            state: fields.first()?.chars().next()?,
            parent: fields.get(1)?.parse().ok()?,
            session: fields.get(3)?.parse().ok()?,
            started_ticks: fields.get(19)?.parse().ok()?,
        })
    }

    /// Whether the process can still run: it is neither a zombie nor dead.
    pub fn lives(&self) -> bool {
        !matches!(self.state, 'Z' | 'X' | 'x')
    }
}

/// Whether the process that was `pid` and started at `started_ticks` still lives.
pub fn lives(pid: i32, started_ticks: u64) -> bool {
    Stat::of(pid).is_some_and(|s| s.started_ticks == started_ticks && s.lives())
}

/// Whether `/proc` shows the processes of this process's own PID namespace.
pub fn proc_is_ours() -> bool {
    fs::read_link("/proc/self").is_ok_and(|own| own == Path::new(&std::process::id().to_string()))
}

fn all() -> impl Iterator<Item = Stat> {
    fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .filter_map(|e| Stat::of(e.ok()?.file_name().to_str()?.parse::<i32>().ok()?))
}

/// Whether `pid` was started with every one of `marks` (`NAME=value`) in its environment.
fn carries(pid: i32, marks: &[String]) -> bool {
    let mut environ = Vec::new();
    let read = fs::File::open(format!("/proc/{pid}/environ"))
        .and_then(|f| f.take(ENVIRON_BYTES_MAX).read_to_end(&mut environ));
    read.is_ok() && marks.iter().all(|mark| environ.split(|b| *b == 0).any(|entry| entry == mark.as_bytes()))
}

/// The marks of a run, as `NAME=value`.
pub fn marks(uid: Uid, fence: Fence) -> Vec<String> {
    vec![format!("{MARK_UID}={uid}"), format!("{MARK_FENCE}={fence}")]
}

/// Living processes that carry `marks`.
pub fn marked(marks: &[String]) -> Vec<i32> {
    all().filter(|s| s.lives() && carries(s.pid, marks)).map(|s| s.pid).collect()
}

/// Living processes of the session of `leader`, which was started at `started_ticks`. Empty if its process id
/// has a new owner.
pub fn of_session(leader: i32, started_ticks: u64) -> Vec<i32> {
    if Stat::of(leader).is_some_and(|s| s.started_ticks != started_ticks) {
        return Vec::new();
    }
    all()
        .filter(|s| s.lives() && s.session == leader && s.started_ticks >= started_ticks)
        .map(|s| s.pid)
        .collect()
}

/// Living descendants of `ancestor`, without itself.
fn descendants(ancestor: i32) -> Vec<i32> {
    let mut children: BTreeMap<i32, Vec<Stat>> = BTreeMap::new();
    for stat in all() {
        children.entry(stat.parent).or_default().push(stat);
    }
    let (mut found, mut open, mut seen) = (Vec::new(), vec![ancestor], BTreeSet::from([ancestor]));
    while let Some(parent) = open.pop() {
        for child in children.get(&parent).into_iter().flatten().filter(|c| seen.insert(c.pid)) {
            open.push(child.pid);
            if child.lives() {
                found.push(child.pid);
            }
        }
    }
    found
}

/// Kills `pids`; those that are gone are skipped.
pub fn kill_all(pids: &[i32]) {
    for pid in pids.iter().filter(|p| **p > 1) {
        // Fails for a process that has ended, or belongs to another user. The caller lists the processes
        // again.
        let _ = kill(Pid::from_raw(*pid), Signal::SIGKILL);
    }
}

/// Kills everything below this process: its whole PID namespace if it is init of one, else all its
/// descendants.
pub fn kill_everything_below(namespace: bool) {
    if namespace {
        // For init, -1 is every other process of the namespace at once, so that none can escape by forking.
        let _ = kill(Pid::from_raw(-1), Signal::SIGKILL);
    } else {
        kill_all(&descendants(i32::try_from(std::process::id()).unwrap_or(i32::MAX)));
    }
}

/// Signals the process group of `leader`.
pub fn signal_group(leader: i32, signal: Signal) {
    // Fails if the group is gone, which is the purpose of the signal.
    let _ = kill(Pid::from_raw(-leader), signal);
}

/// The children of this process, its own and adopted ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Children {
    /// This child has ended and was not collected; until then its process id is not reused.
    Ended(i32),
    /// There are children, and none has ended.
    Living,
    /// There are no children.
    None,
}

/// Finds an ended child without collecting it.
pub fn ended_child() -> Children {
    loop {
        match waitid(Id::All, WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT) {
            Ok(WaitStatus::StillAlive) => return Children::Living,
            Ok(status) => match status.pid() {
                Some(pid) => return Children::Ended(pid.as_raw()),
                None => return Children::Living,
            },
            Err(Errno::EINTR) => {}
            Err(_) => return Children::None,
        }
    }
}

/// Collects an ended child. Returns its exit code, or 128 plus the signal that ended it; `None` if `pid` is
/// not an ended child.
pub fn collect(pid: i32) -> Option<i32> {
    loop {
        match waitpid(Pid::from_raw(pid), Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::Exited(_, code)) => return Some(code),
            Ok(WaitStatus::Signaled(_, signal, _)) => return Some(128 + signal as i32),
            Err(Errno::EINTR) => {}
            Ok(_) | Err(_) => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_name_with_parentheses_is_parsed() {
        let text = "42 (a) R (b) S 7 42 40 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 98765 1 2";
        assert_eq!(
            Stat::parse(text),
            Some(Stat { pid: 42, state: 'S', parent: 7, session: 40, started_ticks: 98765 })
        );
    }

    #[test]
    fn another_start_of_a_process_id_does_not_live() {
        let own = Stat::of("self").unwrap();
        assert!(lives(own.pid, own.started_ticks));
        assert!(!lives(own.pid, own.started_ticks + 1));
        assert!(of_session(own.pid, own.started_ticks + 1).is_empty());
    }
}
