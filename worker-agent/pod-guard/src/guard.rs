//! Runs the command: passes signals on, reaps orphaned processes, and ends the command with its lease.
//!
//! In a container the guard is the first process, so that its own end ends everything in the container.

use crate::args::Run;
use crate::deadline::{Deadline, Decision, Now};
use crate::lease::Lease;
use crate::{LAPSED, PROGRAM};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::time::{ClockId, clock_gettime};
use nix::unistd::Pid;
use signal_hook::consts::{SIGCHLD, SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGWINCH};
use signal_hook::iterator::Signals;
use std::io::{self, ErrorKind};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

/// Longest pause between two reads of the lease, in milliseconds.
const LOOK_EVERY: u64 = 1_000;
/// Exit codes of a command that can't be started, as of shells.
const NOT_FOUND: u8 = 127;
const NOT_EXECUTABLE: u8 = 126;
/// Added to the number of the signal that ended the command, as shells do.
const BY_SIGNAL: i32 = 128;

/// Signals that the command gets, and the one that says that a process has ended.
const SIGNALS: [i32; 9] = [SIGCHLD, SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGWINCH];

/// Runs the command to its end, and returns the exit code. Fails if the command can't be guarded.
pub(crate) fn run(run: &Run) -> Result<u8, String> {
    let mut arriving = Signals::new(SIGNALS).map_err(|error| format!("cannot receive signals: {error}"))?;
    let (send, signals) = mpsc::channel();
    std::thread::spawn(move || {
        for signal in arriving.forever() {
            if send.send(signal).is_err() {
                return;
            }
        }
    });
    let lease = read_lease(&run.lease)?;
    let mut deadline = Deadline::new(i64::from(run.skew_seconds) * 1_000, lease, now()?);
    if !matches!(deadline.decide(now()?), Decision::Run(_)) {
        eprintln!("{PROGRAM}: the lease has ended, so `{}` is not started", run.command.display());
        return Ok(LAPSED);
    }
    let mut guarded = match Guarded::start(run) {
        Ok(guarded) => guarded,
        Err(error) => {
            eprintln!("{PROGRAM}: cannot start `{}`: {error}", run.command.display());
            return Ok(if error.kind() == ErrorKind::NotFound { NOT_FOUND } else { NOT_EXECUTABLE });
        }
    };
    loop {
        if let Some(code) = guarded.reap() {
            return Ok(if guarded.stopped { LAPSED } else { code });
        }
        let seen = now()?;
        // If the lease can't be read, the last known one counts.
        if let Ok(lease) = read_lease(&run.lease) {
            deadline.observe(lease, seen);
        }
        let pause = match deadline.decide(seen) {
            Decision::Run(left) => left.and_then(|left| u64::try_from(left).ok()).unwrap_or(LOOK_EVERY),
            Decision::Stop(left) => {
                guarded.stop();
                u64::try_from(left).unwrap_or(0)
            }
            Decision::Kill => {
                guarded.kill();
                return Ok(LAPSED);
            }
        };
        match signals.recv_timeout(Duration::from_millis(pause.clamp(1, LOOK_EVERY))) {
            Ok(signal) => guarded.pass_on(signal),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Err("signals are no longer received".to_owned()),
        }
    }
}

/// The command and its processes.
struct Guarded {
    own: Pid,
    child: Pid,
    /// Whether the command was told to stop because of its lease.
    stopped: bool,
}

impl Guarded {
    fn start(run: &Run) -> io::Result<Self> {
        let own = Pid::this();
        let mut command = Command::new(&run.command);
        command.args(&run.arguments);
        if own.as_raw() != 1 {
            // The PID namespace has other processes too, so a process group marks those of the command.
            command.process_group(0);
        }
        let child = command.spawn()?;
        let child = Pid::from_raw(i32::try_from(child.id()).map_err(io::Error::other)?);
        Ok(Self { own, child, stopped: false })
    }

    /// The processes that are killed: all of the container, or the command's group.
    fn all(&self) -> Pid {
        Pid::from_raw(if self.own.as_raw() == 1 { -1 } else { -self.child.as_raw() })
    }

    fn pass_on(&self, signal: i32) {
        if let Some(signal) = Signal::try_from(signal).ok().filter(|signal| *signal != Signal::SIGCHLD) {
            // Fails only if the command has ended, which is seen next.
            let _ = kill(self.child, signal);
        }
    }

    /// Reaps ended processes. Returns the exit code of the command if it is among them.
    fn reap(&self) -> Option<u8> {
        loop {
            let code = match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
                Ok(WaitStatus::Exited(pid, code)) if pid == self.child => code,
                Ok(WaitStatus::Signaled(pid, signal, _)) if pid == self.child => BY_SIGNAL + signal as i32,
                Ok(WaitStatus::StillAlive) | Err(_) => return None,
                Ok(_) => continue,
            };
            return Some(u8::try_from(code).unwrap_or(u8::MAX));
        }
    }

    fn stop(&mut self) {
        if !std::mem::replace(&mut self.stopped, true) {
            eprintln!("{PROGRAM}: the lease ends and was not renewed: the command is stopped");
            let _ = kill(self.child, Signal::SIGTERM);
        }
    }

    fn kill(&mut self) {
        self.stopped = true;
        eprintln!("{PROGRAM}: the lease has ended: the command is killed");
        let _ = kill(self.all(), Signal::SIGKILL);
    }
}

fn read_lease(path: &Path) -> Result<Lease, String> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| format!("cannot read the lease `{}`: {error}", path.display()))?;
    Lease::parse(&text).map_err(|why| format!("cannot read the lease `{}`: {why}", path.display()))
}

fn now() -> Result<Now, String> {
    let read = |clock: ClockId| {
        let time = clock_gettime(clock).map_err(|errno| format!("cannot read a clock: {errno}"))?;
        Ok::<i64, String>(time.tv_sec().saturating_mul(1_000).saturating_add(time.tv_nsec() / 1_000_000))
    };
    Ok(Now { boot: read(ClockId::CLOCK_BOOTTIME)?, wall: read(ClockId::CLOCK_REALTIME)? })
}
