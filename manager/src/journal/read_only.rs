//! A journal opened for reading only. Before it reads, the store repairs the file of an interrupted process,
//! so even reading needs writes. Here those writes stay in memory, and the file is opened for reading only.
//!
//! Invariants: no byte of the file changes, and no file is created next to it. A journal that a manager has
//! open can't be read, and no manager can open a journal while it is read.

use super::medium::{FileIdentity, FileMedium, Medium};
use super::{Error, RedbJournal};
use crate::locks;
use redb::backends::FileBackend;
use redb::{BackendError, StorageBackend};
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::ops::{Bound, Deref};
use std::path::Path;
use std::sync::{Mutex, MutexGuard};

/// The unit in which written data is copied.
const PAGE: u64 = 4_096;

/// A journal that can be read but not written.
#[derive(Debug)]
pub struct ReadOnlyJournal(RedbJournal);

impl ReadOnlyJournal {
    /// Opens the journal at `path`.
    ///
    /// # Errors
    /// If there is no journal, a manager has it open, it is damaged or it can't be read.
    pub fn open(path: &Path) -> Result<Self, Error> {
        RedbJournal::open_on(ReadOnlyMedium(FileMedium::new(path))).map(Self)
    }
}

impl Deref for ReadOnlyJournal {
    type Target = RedbJournal;

    fn deref(&self) -> &RedbJournal {
        &self.0
    }
}

#[derive(Clone, Debug)]
struct ReadOnlyMedium(FileMedium);

impl Medium for ReadOnlyMedium {
    fn backend(&self) -> io::Result<Box<dyn StorageBackend>> {
        // opening a pipe would wait for a writer
        if !std::fs::metadata(self.0.path())?.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
        }
        let file = File::open(self.0.path())?;
        let inner = FileBackend::new(file).map_err(|error| io::Error::other(error.to_string()))?;
        let len = inner.len()?;
        Ok(Box::new(Overlay {
            inner,
            written: Mutex::new(Written { len, visible_len: len, pages: BTreeMap::new() }),
        }))
    }

    fn identity(&self) -> io::Result<FileIdentity> {
        self.0.identity()
    }

    fn hold_reserve(&self) -> io::Result<()> {
        Ok(())
    }

    fn release_reserve(&self) -> io::Result<()> {
        Ok(())
    }

    fn drop_cache(&self) -> io::Result<()> {
        self.0.drop_cache()
    }

    fn place(&self) -> String {
        self.0.place()
    }
}

/// Pages that were written over the file.
#[derive(Debug)]
struct Written {
    /// Length of the file as the store sees it, including the written pages.
    len: u64,
    /// Length of the file's part that is still visible. A truncation hides the rest permanently, even if
    /// `len` grows again.
    visible_len: u64,
    pages: BTreeMap<u64, Vec<u8>>,
}

#[derive(Debug)]
struct Overlay {
    inner: FileBackend,
    written: Mutex<Written>,
}

impl Overlay {
    fn written(&self) -> MutexGuard<'_, Written> {
        locks::lock(&self.written)
    }

    /// One page of the file; zeros beyond its end.
    fn below(&self, written: &Written, page: u64) -> io::Result<Vec<u8>> {
        let (from, to) = (page * PAGE, ((page + 1) * PAGE).min(written.visible_len));
        let mut bytes = vec![0; index(PAGE)?];
        self.inner.read(from, &mut bytes[..index(to.saturating_sub(from))?])?;
        Ok(bytes)
    }
}

fn index(bytes: u64) -> io::Result<usize> {
    usize::try_from(bytes).map_err(io::Error::other)
}

/// The pages under `len` bytes from `offset` on: page number, offset in the page, and number of bytes.
fn pages(offset: u64, len: usize) -> impl Iterator<Item = (u64, usize, usize)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        let at = offset + done as u64;
        let (page, within) = (at / PAGE, usize::try_from(at % PAGE).unwrap_or(0));
        let take = (len - done).min(usize::try_from(PAGE).unwrap_or(usize::MAX) - within);
        done += take;
        (take > 0).then_some((page, within, take))
    })
}

impl StorageBackend for Overlay {
    fn len(&self) -> io::Result<u64> {
        Ok(self.written().len)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let written = self.written();
        if offset.checked_add(out.len() as u64).is_none_or(|end| end > written.len) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let mut rest = out;
        for (page, within, take) in pages(offset, rest.len()) {
            let (part, after) = rest.split_at_mut(take);
            match written.pages.get(&page) {
                Some(bytes) => part.copy_from_slice(&bytes[within..within + take]),
                None => part.copy_from_slice(&self.below(&written, page)?[within..within + take]),
            }
            rest = after;
        }
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut written = self.written();
        written.visible_len = written.visible_len.min(len);
        written.pages.split_off(&len.div_ceil(PAGE));
        let edge = len / PAGE;
        if let Some(page) = written.pages.get_mut(&edge) {
            page[index(len % PAGE)?..].fill(0);
        }
        written.len = len;
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut written = self.written();
        let mut rest = data;
        for (page, within, take) in pages(offset, data.len()) {
            if !written.pages.contains_key(&page) {
                let bytes = self.below(&written, page)?;
                written.pages.insert(page, bytes);
            }
            let (part, after) = rest.split_at(take);
            written.pages.get_mut(&page).expect("inserted above if it was missing")[within..within + take]
                .copy_from_slice(part);
            rest = after;
        }
        written.len = written.len.max(offset + data.len() as u64);
        Ok(())
    }

    fn close(&self) -> io::Result<()> {
        self.inner.close()
    }

    // A file that is open for reading only can't be locked exclusively. A shared lock keeps managers out as
    // well, and lets others read at the same time. The length is read again under the lock, because the
    // previous owner of the lock may have written until then. The store locks before it writes.
    fn try_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        let taken = self.inner.try_lock_shared_range(start, end)?;
        let mut written = self.written();
        if taken {
            let len = self.inner.len()?;
            (written.len, written.visible_len) = (len, len);
        }
        Ok(taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Clone, Debug)]
    enum Act {
        Write(u64, Vec<u8>),
        Cut(u64),
    }

    fn act() -> impl Strategy<Value = Act> {
        prop_oneof![
            3 => (0..20_000_u64, proptest::collection::vec(any::<u8>(), 0..9_000))
                .prop_map(|(at, bytes)| Act::Write(at, bytes)),
            1 => (0..25_000_u64).prop_map(Act::Cut),
        ]
    }

    #[test]
    fn the_lock_is_shared_and_released_when_the_overlay_closes() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        std::fs::write(&path, b"some").unwrap();
        let overlay = ReadOnlyMedium(FileMedium::new(&path)).backend().unwrap();
        std::fs::write(&path, b"longer").unwrap();
        assert_eq!(overlay.len().unwrap(), 4);
        assert!(overlay.try_lock_range(Bound::Unbounded, Bound::Unbounded).unwrap());
        assert_eq!(overlay.len().unwrap(), 6, "a manager wrote until its end");
        let writer = FileMedium::new(&path).backend().unwrap();
        let is_free = || writer.try_lock_range(Bound::Unbounded, Bound::Unbounded).unwrap();
        assert!(!is_free());
        overlay.close().unwrap();
        assert!(is_free());
        let late = ReadOnlyMedium(FileMedium::new(&path)).backend().unwrap();
        assert!(!late.try_lock_range(Bound::Unbounded, Bound::Unbounded).unwrap());
        assert!(ReadOnlyMedium(FileMedium::new(directory.path().join("none"))).drop_cache().is_err());
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            cases: 64, failure_persistence: None, ..ProptestConfig::default()
        })]

        #[test]
        fn an_overlay_reads_like_a_written_file(
            acts in proptest::collection::vec(act(), 0..12),
            size in 0..15_000_usize,
        ) {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("file");
            let mut model: Vec<u8> = (0..size).map(|at| (at % 251) as u8).collect();
            std::fs::write(&path, &model).unwrap();
            let before = model.clone();
            let overlay = ReadOnlyMedium(FileMedium::new(&path)).backend().unwrap();
            for act in acts {
                match act {
                    Act::Write(at, bytes) => {
                        overlay.write(at, &bytes).unwrap();
                        let end = at as usize + bytes.len();
                        model.resize(model.len().max(end), 0);
                        model[at as usize..end].copy_from_slice(&bytes);
                    }
                    Act::Cut(len) => {
                        overlay.set_len(len).unwrap();
                        model.resize(len as usize, 0);
                    }
                }
                let mut all = vec![1; model.len()];
                prop_assert_eq!(overlay.len().unwrap(), model.len() as u64);
                overlay.read(0, &mut all).unwrap();
                prop_assert!(all == model);
                prop_assert!(overlay.read(model.len() as u64, &mut [0]).is_err());
            }
            prop_assert!(std::fs::read(&path).unwrap() == before);
        }
    }
}
