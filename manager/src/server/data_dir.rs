//! Checks which users of the machine may write to the data directory. Such a user can replace the
//! authorities' keys, the users and the journal, so all other protection would be useless.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

const OTHERS_WRITE: u32 = 0o002;
const GROUP_WRITE: u32 = 0o020;
const PERMISSIONS: u32 = 0o7777;
const ROOT: u32 = 0;

/// A file or directory that every user of this machine may write.
#[derive(Debug, thiserror::Error)]
#[error(
    "`{}` may be written by every user of this machine (mode {mode:04o}), who could replace keys, users and \
     journal: run `chmod o-w {}`, or name a directory below it, which is then created with mode 0700",
    path.display(), path.display()
)]
pub(super) struct Exposed {
    path: PathBuf,
    mode: u32,
}

/// Fails if every user may write one of `paths`. If a group or another owner may write, that is only logged,
/// because volumes of container platforms are often set up so. Missing files are skipped.
pub(super) fn check<'p>(paths: impl IntoIterator<Item = &'p Path>) -> Result<(), Exposed> {
    let this_user = rustix::process::geteuid().as_raw();
    for path in paths {
        let Ok(metadata) = fs::metadata(path) else { continue };
        let mode = metadata.mode() & PERMISSIONS;
        if mode & OTHERS_WRITE != 0 {
            return Err(Exposed { path: path.to_owned(), mode });
        }
        if mode & GROUP_WRITE != 0 {
            tracing::warn!(
                path = %path.display(), mode = format!("{mode:04o}"), group = metadata.gid(),
                "the group may replace keys, users and journal: run `chmod g-w` if it has other members"
            );
        }
        if ![this_user, ROOT].contains(&metadata.uid()) {
            tracing::warn!(
                path = %path.display(), owner = metadata.uid(),
                "another user owns this and may replace keys, users and journal: change its owner (`chown`)"
            );
        }
    }
    Ok(())
}

/// Checks every file in a directory like [`check`]. A missing directory is skipped.
pub(super) fn check_files(directory: &Path) -> Result<(), Exposed> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    files.sort();
    check(files.iter().map(PathBuf::as_path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn every_file_of_a_directory_is_checked() {
        let dir = tempfile::tempdir().unwrap();
        assert!(check_files(&dir.path().join("missing")).is_ok());
        for name in ["ca.key", "later.key"] {
            let path = dir.path().join(name);
            fs::write(&path, "").unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        }
        assert!(check_files(dir.path()).is_ok());
        let exposed = dir.path().join("later.key");
        fs::set_permissions(&exposed, fs::Permissions::from_mode(0o606)).unwrap();
        let words = check_files(dir.path()).unwrap_err().to_string();
        assert!(words.contains(&format!("chmod o-w {}", exposed.display())), "{words}");
    }

    #[test]
    fn a_path_that_everybody_may_write_is_refused_with_the_remedy() {
        let dir = tempfile::tempdir().unwrap();
        let (path, missing) = (dir.path().join("data"), dir.path().join("missing"));
        fs::create_dir(&path).unwrap();
        let check_with = |mode| {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            check([path.as_path(), missing.as_path()])
        };
        assert!(check_with(0o700).is_ok() && check_with(0o755).is_ok());
        assert!(check_with(0o2775).is_ok(), "a volume of a container platform");
        for mode in [0o777, 0o1777, 0o702] {
            let words = check_with(mode).unwrap_err().to_string();
            assert!(words.contains(&format!("chmod o-w {}", path.display())), "{words}");
            assert!(words.contains(&format!("{mode:04o}")), "{words}");
        }
    }
}
