//! PID namespaces: the kernel ends a gang with its guard.
//!
//! As root (or with the capability) the namespaces are made directly, and the gang gets its own `/proc`.
//! Otherwise they are made inside a user namespace that keeps the user's id. Its init has no capability left
//! after `exec`, so the gang keeps the machine's `/proc`, which shows other process ids than `getpid`.

use super::OWN_BINARY;
use crate::job_run::Error;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::unistd::{getegid, geteuid};
use std::process::Command;

/// Makes the namespaces: the next child is init of a new PID namespace. This process must be single-threaded.
/// Fails if the kernel does not allow it.
pub(super) fn enter() -> Result<(), Error> {
    let flags = CloneFlags::CLONE_NEWPID | CloneFlags::CLONE_NEWNS;
    let (user, group) = (geteuid(), getegid());
    if unshare(flags).is_ok() {
        return Ok(());
    }
    unshare(CloneFlags::CLONE_NEWUSER | flags)
        .map_err(|e| Error::System { doing: "make a PID namespace", source: e.into() })?;
    // The kernel allows the mapping only after the process gave up changing its groups.
    let map = |file: &'static str, text: String| {
        std::fs::write(file, text)
            .map_err(|source| Error::System { doing: "map the user into its namespace", source })
    };
    map("/proc/self/setgroups", "deny".into())?;
    map("/proc/self/uid_map", format!("{user} {user} 1"))?;
    map("/proc/self/gid_map", format!("{group} {group} 1"))
}

/// Tries [`enter`], in a process that ends afterwards. Fails if it does not work here.
pub(super) fn probe() -> Result<(), Error> {
    enter()?;
    let init = Command::new(OWN_BINARY).args(["guard", "--probe-init"]).status();
    match init {
        Ok(status) if status.success() => Ok(()),
        Ok(_) => Err(Error::System {
            doing: "be init of a PID namespace",
            source: std::io::ErrorKind::Unsupported.into(),
        }),
        Err(source) => Err(Error::System { doing: "start the namespace's init", source }),
    }
}

/// Mounts a `/proc` that shows the namespace's own processes, if that is allowed. The gang ends with its
/// guard without it.
pub(super) fn mount_own_proc() {
    let none: Option<&str> = None;
    let private = mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_SLAVE, none);
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    if let Err(error) = private.and_then(|()| mount(Some("proc"), "/proc", Some("proc"), flags, none)) {
        super::remark(&format!("the gang has the `/proc` of the machine: {error}"));
    }
}
