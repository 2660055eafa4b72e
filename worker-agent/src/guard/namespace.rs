//! PID namespaces: the kernel ends a gang with its guard.
//!
//! As root (or with the capability) the namespaces are made directly, and the gang sees a `/proc` of its own. Otherwise a
//! user namespace is made around them in which the user stays who they are; its init has no capability left after `exec`,
//! so the gang keeps the machine's `/proc`, which shows other process ids than `getpid`.

use super::OWN_BINARY;
use crate::runner::Error;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::unistd::{getegid, geteuid};
use std::process::Command;

/// Makes the namespaces: the next child is init of a new PID namespace. This process must be single-threaded.
pub(super) fn enter() -> Result<(), Error> {
    let flags = CloneFlags::CLONE_NEWPID | CloneFlags::CLONE_NEWNS;
    let (user, group) = (geteuid(), getegid());
    if unshare(flags).is_ok() {
        return Ok(());
    }
    unshare(CloneFlags::CLONE_NEWUSER | flags)
        .map_err(|e| Error::System { doing: "make a PID namespace", source: e.into() })?;
    // A process may map itself only after it has given up changing its groups.
    let map = |file: &'static str, text: String| {
        std::fs::write(file, text)
            .map_err(|source| Error::System { doing: "map the user into its namespace", source })
    };
    map("/proc/self/setgroups", "deny".into())?;
    map("/proc/self/uid_map", format!("{user} {user} 1"))?;
    map("/proc/self/gid_map", format!("{group} {group} 1"))
}

/// Finds out whether [`enter`] works here, in a process that ends afterwards.
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

/// Gives the namespace a `/proc` that shows its own processes, where that is allowed. Without it, everything still ends.
pub(super) fn mount_own_proc() {
    let none: Option<&str> = None;
    let private = mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_SLAVE, none);
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    if let Err(error) = private.and_then(|()| mount(Some("proc"), "/proc", Some("proc"), flags, none)) {
        super::remark(&format!("the gang sees the machine's `/proc`: {error}"));
    }
}
