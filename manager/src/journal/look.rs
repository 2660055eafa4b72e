//! A journal that is only looked at. The store repairs what an interrupted process left before it reads, so to read is to
//! write; here what it writes stays in memory, and the file is opened for reading only.
//!
//! Invariants: not a byte of the file changes, nor is anything made beside it; while a manager has it open it isn't read, and
//! while it is looked at no manager opens it.

use super::medium::{FileMedium, Medium};
use super::{Error, Identity, RedbJournal};
use redb::backends::FileBackend;
use redb::{BackendError, StorageBackend};
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::ops::{Bound, Deref};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What is copied when a part of it is written.
const PAGE: u64 = 4_096;

/// A journal to read. It has no way to commit.
#[derive(Debug)]
pub struct Look(RedbJournal);

impl Look {
    /// Opens the journal at `path` for reading.
    pub fn at(path: &Path) -> Result<Self, Error> {
        RedbJournal::open_on(LookMedium(FileMedium::new(path))).map(Self)
    }
}

impl Deref for Look {
    type Target = RedbJournal;

    fn deref(&self) -> &RedbJournal {
        &self.0
    }
}

#[derive(Clone, Debug)]
struct LookMedium(FileMedium);

impl Medium for LookMedium {
    fn backend(&self) -> io::Result<Box<dyn StorageBackend>> {
        // Opening a pipe waits for somebody who writes.
        if !std::fs::metadata(self.0.path())?.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no regular file"));
        }
        let file = File::open(self.0.path())?;
        let inner = FileBackend::new(file).map_err(|error| io::Error::other(error.to_string()))?;
        let len = inner.len()?;
        Ok(Box::new(Overlay { inner, above: Mutex::new(Above { len, there: len, pages: BTreeMap::new() }) }))
    }

    fn identity(&self) -> io::Result<Identity> {
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

/// What was written, above the file.
#[derive(Debug)]
struct Above {
    /// How long all of it is.
    len: u64,
    /// How much of the file still shows: less where it was cut, and it doesn't come back when it grows again.
    there: u64,
    pages: BTreeMap<u64, Vec<u8>>,
}

#[derive(Debug)]
struct Overlay {
    inner: FileBackend,
    above: Mutex<Above>,
}

impl Overlay {
    fn above(&self) -> MutexGuard<'_, Above> {
        self.above.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One page of the file, zeros where it has none.
    fn below(&self, above: &Above, page: u64) -> io::Result<Vec<u8>> {
        let (from, to) = (page * PAGE, ((page + 1) * PAGE).min(above.there));
        let mut bytes = vec![0; index(PAGE)?];
        if from < to {
            self.inner.read(from, &mut bytes[..index(to - from)?])?;
        }
        Ok(bytes)
    }
}

fn index(bytes: u64) -> io::Result<usize> {
    usize::try_from(bytes).map_err(io::Error::other)
}

/// The pages that `len` bytes from `offset` on lie in: which, from where in it, and how many bytes.
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
        Ok(self.above().len)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let above = self.above();
        if offset.checked_add(out.len() as u64).is_none_or(|end| end > above.len) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let mut rest = out;
        for (page, within, take) in pages(offset, rest.len()) {
            let (part, after) = rest.split_at_mut(take);
            match above.pages.get(&page) {
                Some(bytes) => part.copy_from_slice(&bytes[within..within + take]),
                None => part.copy_from_slice(&self.below(&above, page)?[within..within + take]),
            }
            rest = after;
        }
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut above = self.above();
        if len < above.len {
            above.there = above.there.min(len);
            above.pages.split_off(&len.div_ceil(PAGE));
            let edge = len / PAGE;
            if let Some(page) = above.pages.get_mut(&edge) {
                page[index(len % PAGE)?..].fill(0);
            }
        }
        above.len = len;
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut above = self.above();
        let mut rest = data;
        for (page, within, take) in pages(offset, data.len()) {
            if !above.pages.contains_key(&page) {
                let bytes = self.below(&above, page)?;
                above.pages.insert(page, bytes);
            }
            let (part, after) = rest.split_at(take);
            above.pages.get_mut(&page).expect("it was put there")[within..within + take]
                .copy_from_slice(part);
            rest = after;
        }
        above.len = above.len.max(offset + data.len() as u64);
        Ok(())
    }

    fn close(&self) -> io::Result<()> {
        self.inner.close()
    }

    // What was written before the lock was taken counts: the one who held it may have written until then.
    // A file that is open for reading only can't be locked for itself alone; a shared lock keeps managers away as well, and
    // others may look at the same time.
    fn try_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        let taken = self.inner.try_lock_shared_range(start, end)?;
        let mut above = self.above();
        if taken && above.pages.is_empty() {
            let len = self.inner.len()?;
            (above.len, above.there) = (len, len);
        }
        Ok(taken)
    }

    fn try_lock_shared_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.inner.try_lock_shared_range(start, end)
    }

    fn lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.inner.lock_shared_range(start, end)
    }

    fn lock_shared_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.inner.lock_shared_range(start, end)
    }

    fn unlock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.inner.unlock_range(start, end)
    }

    fn query_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.inner.query_lock_range(start, end)
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
            3 => (0..20_000_u64, proptest::collection::vec(any::<u8>(), 0..9_000)).prop_map(|(at, bytes)| Act::Write(at, bytes)),
            1 => (0..25_000_u64).prop_map(Act::Cut),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn it_reads_like_a_file_that_was_written(acts in proptest::collection::vec(act(), 0..12), size in 0..15_000_usize) {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("file");
            let mut model: Vec<u8> = (0..size).map(|at| (at % 251) as u8).collect();
            std::fs::write(&path, &model).unwrap();
            let before = model.clone();
            let overlay = LookMedium(FileMedium::new(&path)).backend().unwrap();
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
