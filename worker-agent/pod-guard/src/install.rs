//! Copies the program into a volume that all containers of the pod can mount.

use crate::PROGRAM;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

pub(crate) fn install(dir: &Path) -> Result<(), String> {
    let own = std::env::current_exe().map_err(|error| format!("cannot find this program: {error}"))?;
    let target = dir.join(PROGRAM);
    fs::copy(&own, &target)
        .and_then(|_| fs::set_permissions(&target, Permissions::from_mode(0o755)))
        .map_err(|error| format!("cannot write `{}`: {error}", target.display()))
}
