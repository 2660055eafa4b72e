//! The guard of one container: it runs the container's command, and ends it when the lease of its gang ends.
//!
//! An agent and an API server end pods on Kubernetes, so a node that is cut off from them can run its pods
//! beyond the lease. The guard is in the pod, needs no network and no rights, and ends its own container.
//!
//! | module | owns |
//! |---|---|
//! | [`lease`] | the text by which an agent passes a lease on, as an annotation of the pod |
//! | [`deadline`] | when the command must end, by the leases that were seen and two clocks. Pure |
//! | `guard` | the command: signals to it, its exit code, its end |
//! | `install` | copies the program from its image into a volume of the pod |
//! | `args` | the command line |
//!
//! The kubelet writes the annotation into a file of the pod and refreshes it after some time. [`deadline`]
//! says why a late refresh can't lengthen a lease.

mod args;
pub mod deadline;
mod guard;
mod install;
pub mod lease;

pub use args::{Args, parse};

use std::process::ExitCode;

/// Folder of the program in a guarded pod.
pub const GUARD_DIR: &str = "/meridian-guard";
/// Name of the program.
pub const PROGRAM: &str = "meridian-pod-guard";
/// Folder of the lease in a guarded pod.
pub const LEASE_DIR: &str = "/meridian-lease";
/// Name of the file with the lease.
pub const LEASE_FILE: &str = "lease";

/// Exit code of a guard whose lease ended, as of `timeout`.
pub const LAPSED: u8 = 124;
/// Exit code of a guard that could not guard.
pub const FAILED: u8 = 125;

/// Does what the command line says, and returns the exit code.
pub fn main(args: Args) -> ExitCode {
    let done = match args {
        Args::Install { dir } => install::install(&dir).map(|()| 0),
        Args::Run(run) => guard::run(&run),
    };
    ExitCode::from(done.unwrap_or_else(|why| {
        eprintln!("{PROGRAM}: {why}");
        FAILED
    }))
}
