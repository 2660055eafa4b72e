//! Small secret files that are whole or absent: keys, identities, kubeconfigs.
//!
//! Owns one way to write them: mode 0600, written beside the target, flushed, then put in place in one step, so that a
//! crash at any moment leaves the old file or the new one and never half of either. It knows nothing of what is inside,
//! and is not for logs, ledgers or anything that grows.

#![warn(missing_docs)]

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// Largest file that [`read`] takes, in bytes: a chain of certificates with its key is under 16 KiB.
pub const FILE_BYTES_MAX: u64 = 1 << 20;

/// What could not be done to which file.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The system said no.
    #[error("cannot {verb} `{}`", path.display())]
    Io {
        /// What was tried.
        verb: &'static str,
        /// With which file.
        path: PathBuf,
        /// The system's answer.
        #[source]
        source: io::Error,
    },
    /// The file can't be one of ours.
    #[error("`{}` is larger than {FILE_BYTES_MAX} bytes and was not read; it is not a file that meridian wrote", path.display())]
    TooLarge {
        /// Which file.
        path: PathBuf,
    },
}

/// Makes `dir` and its parents; what is made anew only its owner may enter.
pub fn make_dir(dir: &Path) -> Result<(), Error> {
    DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(failed("create directory", dir))
}

/// The text of `path`, or `None` where there is no such file.
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

/// Puts `text` at `path`, in place of what may be there.
pub fn replace(path: &Path, text: &str) -> Result<(), Error> {
    let beside = written_beside(path, text)?;
    let placed = fs::rename(&beside, path).map_err(failed("put in place", path));
    if placed.is_err() {
        remove_quietly(&beside);
    }
    placed.and_then(|()| flush_dir(path))
}

/// Puts `text` at `path` unless something is there already; says whether it did. Of several callers one wins.
pub fn create(path: &Path, text: &str) -> Result<bool, Error> {
    let beside = written_beside(path, text)?;
    // A hard link fails where the name is taken; a rename would overwrite the other's file.
    let linked = fs::hard_link(&beside, path);
    remove_quietly(&beside);
    match linked {
        Ok(()) => flush_dir(path).map(|()| true),
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        Err(e) => Err(failed("put in place", path)(e)),
    }
}

/// Removes `path`; it is no error when it is gone already.
pub fn remove(path: &Path) -> Result<(), Error> {
    match fs::remove_file(path) {
        Ok(()) => flush_dir(path),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(e) => Err(failed("remove", path)(e)),
    }
}

fn written_beside(path: &Path, text: &str) -> Result<PathBuf, Error> {
    static COUNTER: AtomicU64 = AtomicU64::new(0);
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{}-{}.new", std::process::id(), COUNTER.fetch_add(1, Ordering::Relaxed)));
    let beside = PathBuf::from(name);
    // A process that had our id and was killed here may have left one.
    remove_quietly(&beside);
    let write = || -> io::Result<()> {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&beside)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()
    };
    match write() {
        Ok(()) => Ok(beside),
        Err(e) => {
            remove_quietly(&beside);
            Err(failed("write", path)(e))
        }
    }
}

/// Makes the new name durable: a flushed file whose directory entry was lost is a lost file.
fn flush_dir(path: &Path) -> Result<(), Error> {
    let dir = match path.parent() {
        Some(dir) if !dir.as_os_str().is_empty() => dir,
        _ => Path::new("."),
    };
    File::open(dir).and_then(|d| d.sync_all()).map_err(failed("flush the directory of", path))
}

/// For leftovers whose removal changes nothing that the caller could act on.
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
    fn only_the_owner_may_read_and_nothing_is_left_beside() {
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
    fn of_many_creators_exactly_one_wins() {
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
