//! Small secret files that are whole or absent: keys, identities, kubeconfigs.
//!
//! Files are always written in the same way: with mode 0600, into a new file in the same folder, flushed,
//! then renamed. So a crash leaves the old file or the new one, never a part. Not for logs, ledgers or other
//! files that grow.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// Largest file that [`read`] takes, in bytes: a chain of certificates with its key is under 16 KiB.
pub const FILE_BYTES_MAX: u64 = 1 << 20;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot {verb} `{}`", path.display())]
    Io {
        /// Operation that failed.
        verb: &'static str,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// Meridian does not write files of this size.
    #[error("`{}` is larger than {FILE_BYTES_MAX} bytes and was not read; it is not a file that meridian \
        wrote", path.display())]
    TooLarge { path: PathBuf },
}

/// Creates `dir` and its parents. Only the owner may enter new folders. Fails if the system refuses.
pub fn make_dir(dir: &Path) -> Result<(), Error> {
    DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(failed("create directory", dir))
}

/// The text of `path`, or `None` if there is no such file. Fails for a file that can't be read or is too
/// large.
pub fn read(path: &Path) -> Result<Option<String>, Error> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(failed("open", path)(e)),
    };
    let mut text = String::new();
    file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text).map_err(failed("read", path))?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(Error::TooLarge { path: path.to_owned() });
    }
    Ok(Some(text))
}

/// Writes `text` to `path`, and replaces an existing file. Fails if the file can't be written; an old file
/// then remains.
pub fn replace(path: &Path, text: &str) -> Result<(), Error> {
    let new_file = write_new_file(path, text)?;
    let placed = fs::rename(&new_file, path).map_err(failed("put in place", path));
    if placed.is_err() {
        remove_quietly(&new_file);
    }
    placed.and_then(|()| flush_dir(path))
}

/// Writes `text` to `path` unless the file exists. Returns whether it was written: true for only one of
/// several concurrent callers. Fails if the file can't be written.
pub fn create(path: &Path, text: &str) -> Result<bool, Error> {
    let new_file = write_new_file(path, text)?;
    // A hard link fails if the name is taken; a rename would overwrite another caller's file.
    let linked = fs::hard_link(&new_file, path);
    remove_quietly(&new_file);
    match linked {
        Ok(()) => flush_dir(path).map(|()| true),
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        Err(e) => Err(failed("put in place", path)(e)),
    }
}

/// Removes `path`. A missing file is no error. Fails if the system refuses.
pub fn remove(path: &Path) -> Result<(), Error> {
    match fs::remove_file(path) {
        Ok(()) => flush_dir(path),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(e) => Err(failed("remove", path)(e)),
    }
}

fn write_new_file(path: &Path, text: &str) -> Result<PathBuf, Error> {
    static COUNTER: AtomicU64 = AtomicU64::new(0);
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{}-{}.new", std::process::id(), COUNTER.fetch_add(1, Ordering::Relaxed)));
    let new_file = PathBuf::from(name);
    // Remove a file that a killed process with the same id may have left.
    remove_quietly(&new_file);
    let write = || -> io::Result<()> {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new_file)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()
    };
    match write() {
        Ok(()) => Ok(new_file),
        Err(e) => {
            remove_quietly(&new_file);
            Err(failed("write", path)(e))
        }
    }
}

/// The directory that a file is in.
pub fn directory_of(path: &Path) -> &Path {
    match path.parent() {
        Some(directory) if !directory.as_os_str().is_empty() => directory,
        _ => Path::new("."),
    }
}

/// Makes the new name durable, because a flushed file without its directory entry is lost.
fn flush_dir(path: &Path) -> Result<(), Error> {
    File::open(directory_of(path)).and_then(|d| d.sync_all()).map_err(failed("flush the directory of", path))
}

/// Removes a leftover file. Ignores an error, because the caller couldn't handle it.
fn remove_quietly(path: &Path) {
    let _ = fs::remove_file(path);
}

fn failed<'a>(verb: &'static str, path: &'a Path) -> impl FnOnce(io::Error) -> Error + 'a {
    move |source| Error::Io { verb, path: path.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn only_the_owner_may_read_and_no_other_file_remains() {
        let dir = tempfile::tempdir().unwrap();
        let inner = dir.path().join("a/b");
        make_dir(&inner).unwrap();
        let path = inner.join("key.pem");
        assert_eq!(read(&path).unwrap(), None);
        replace(&path, "one").unwrap();
        replace(&path, "two").unwrap();
        assert_eq!(read(&path).unwrap().as_deref(), Some("two"));
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::metadata(&inner).unwrap().permissions().mode() & 0o777, 0o700);
        assert_eq!(fs::read_dir(&inner).unwrap().count(), 1);
        remove(&path).unwrap();
        remove(&path).unwrap();
        assert_eq!(read(&path).unwrap(), None);
    }

    #[test]
    fn a_file_without_a_folder_is_in_the_current_one() {
        let folders = ["key.pem", "a/key.pem", "/a/b/key.pem", "/"];
        let folders = folders.map(|path| directory_of(Path::new(path)).to_str().unwrap());
        assert_eq!(folders, [".", "a", "/a/b", "."]);
    }

    #[test]
    fn exactly_one_of_many_creators_wins() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("once");
        let wins: Vec<String> = std::thread::scope(|s| {
            let all: Vec<_> = (0..8)
                .map(|i| {
                    s.spawn({
                        let path = &path;
                        move || create(path, &i.to_string()).unwrap().then(|| i.to_string())
                    })
                })
                .collect();
            all.into_iter().filter_map(|t| t.join().unwrap()).collect()
        });
        assert_eq!(wins.len(), 1);
        assert_eq!(read(&path).unwrap(), wins.first().cloned());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn an_error_names_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let error = replace(&dir.path().join("missing/key.pem"), "x").unwrap_err().to_string();
        assert!(error.contains("missing/key.pem"), "{error}");
        let large = dir.path().join("large");
        fs::write(&large, vec![b'a'; FILE_BYTES_MAX as usize + 1]).unwrap();
        assert!(matches!(read(&large), Err(Error::TooLarge { .. })));
    }
}
