//! The files of segments, and the notes next to them.
//!
//! | file | holds |
//! |---|---|
//! | `audit-0000000001-9f2c1a07.jsonl` | a segment: number, and the first digits of its head's hash |
//! | `exported` | the number of the newest segment that was passed to the hook |
//! | `removed.json` | the signed statement on segments that were removed |
//! | `set-aside/` | segments that contradict the journal, because it was restored |
//! | `.draft` | an incomplete segment, which is ignored |

use super::document::{RemovedLine, SealLine, text};
use super::error::Error;
use meridian_private_files as files;
use sha2::{Digest, Sha256};
use std::fs::{self, File, OpenOptions};
use std::io::{BufReader, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

const DRAFT: &str = ".draft";
const EXPORTED: &str = "exported";
const REMOVED: &str = "removed.json";
const SET_ASIDE: &str = "set-aside";
/// Largest size of a seal, which usually has a few hundred bytes.
const SEAL_BYTES_MAX: u64 = 4 << 10;

/// The directory of segments.
#[derive(Clone, Debug)]
pub struct AuditDirectory {
    path: PathBuf,
}

/// A segment's file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SegmentFile {
    pub number: u64,
    pub path: PathBuf,
}

impl SegmentFile {
    /// Size of the segment file in bytes.
    pub(super) fn bytes(&self) -> Result<u64, Error> {
        Ok(fs::metadata(&self.path).map_err(Error::io("look at", &self.path))?.len())
    }

    /// The seal at the end of the segment. Fails if the seal is missing, because the file was truncated.
    pub(super) fn seal(&self) -> Result<SealLine, Error> {
        let failed = || Error::io("read", &self.path);
        let mut file = File::open(&self.path).map_err(failed())?;
        let length = file.metadata().map_err(failed())?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(SEAL_BYTES_MAX))).map_err(failed())?;
        let mut tail = Vec::new();
        file.read_to_end(&mut tail).map_err(failed())?;
        let line = tail.trim_ascii_end().rsplit(|byte| *byte == b'\n').next().unwrap_or_default();
        serde_json::from_slice(line).map_err(|_| Error::Damaged {
            path: self.path.clone(),
            what: "it doesn't end with a seal".into(),
        })
    }

    /// Whether the bytes before the seal have its digest.
    pub(super) fn has_digest(&self, seal: &SealLine) -> Result<bool, Error> {
        let failed = || Error::io("read", &self.path);
        let before = self.bytes()?.saturating_sub(text(seal).len() as u64);
        let mut reader = BufReader::new(File::open(&self.path).map_err(failed())?).take(before);
        let mut digest = Sha256::new();
        std::io::copy(&mut reader, &mut digest).map_err(failed())?;
        Ok(super::document::hex(&digest.finalize()) == seal.seal.digest)
    }
}

/// A segment that is being written.
pub(super) struct Draft {
    file: std::io::BufWriter<File>,
    path: PathBuf,
    digest: Sha256,
}

impl Draft {
    pub(super) fn add(&mut self, line: &[u8]) -> Result<(), Error> {
        self.digest.update(line);
        self.file.write_all(line).map_err(Error::io("write", &self.path))
    }

    /// Digest of the bytes that were added.
    pub(super) fn digest(&self) -> String {
        super::document::hex(&self.digest.clone().finalize())
    }
}

impl AuditDirectory {
    pub fn new(path: &Path) -> Self {
        Self { path: path.to_owned() }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Creates the directory, and removes a draft that a crash has left.
    pub(super) fn prepare(&self) -> Result<(), Error> {
        files::make_dir(&self.path)?;
        Ok(files::remove(&self.path.join(DRAFT))?)
    }

    /// All segments in the order of their numbers. None if there is no directory.
    pub fn segments(&self) -> Result<Vec<SegmentFile>, Error> {
        let entries = match fs::read_dir(&self.path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(Error::io("read the directory", &self.path))?,
        };
        let mut found = Vec::new();
        for entry in entries {
            let path = entry.map_err(Error::io("read the directory", &self.path))?.path();
            let number = path.file_name().and_then(|name| number_of(name.to_str()?));
            found.extend(number.map(|number| SegmentFile { number, path }));
        }
        found.sort();
        Ok(found)
    }

    pub(super) fn begin(&self) -> Result<Draft, Error> {
        let path = self.path.join(DRAFT);
        let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&path);
        let file = std::io::BufWriter::new(file.map_err(Error::io("write", &path))?);
        Ok(Draft { file, path, digest: Sha256::new() })
    }

    /// Moves a complete segment to its final name. Durable on return.
    pub(super) fn publish(&self, mut draft: Draft, seal: &SealLine) -> Result<(), Error> {
        let written = draft.file.write_all(&text(seal)).and_then(|()| draft.file.flush());
        written.and_then(|()| draft.file.get_ref().sync_all()).map_err(Error::io("write", &draft.path))?;
        let head = seal.seal.head.get(..8).unwrap_or_default();
        let path = self.path.join(format!("audit-{:010}-{head}.jsonl", seal.seal.number));
        fs::rename(&draft.path, &path).map_err(Error::io("put in place", &path))?;
        flush(&self.path)
    }

    /// Moves a segment to `set-aside/`, because the journal contradicts it.
    pub(super) fn set_aside(&self, segment: &SegmentFile, at: i64) -> Result<(), Error> {
        let target = self.path.join(SET_ASIDE).join(at.to_string());
        files::make_dir(&target)?;
        let to = target.join(segment.path.file_name().unwrap_or_default());
        fs::rename(&segment.path, &to).map_err(Error::io("set aside", &segment.path))?;
        flush(&target)?;
        flush(&self.path)
    }

    pub(super) fn remove(&self, segment: &SegmentFile) -> Result<(), Error> {
        Ok(files::remove(&segment.path)?)
    }

    /// The newest segment that was exported, or 0.
    pub(super) fn exported(&self) -> Result<u64, Error> {
        let text = files::read(&self.path.join(EXPORTED))?;
        // if the number can't be read, segments are exported again, which is harmless
        Ok(text.and_then(|text| text.trim().parse().ok()).unwrap_or(0))
    }

    pub(super) fn set_exported(&self, number: u64) -> Result<(), Error> {
        Ok(files::replace(&self.path.join(EXPORTED), &format!("{number}\n"))?)
    }

    pub(super) fn removed(&self) -> Result<Option<RemovedLine>, Error> {
        let path = self.path.join(REMOVED);
        let Some(text) = files::read(&path)? else { return Ok(None) };
        serde_json::from_str(&text)
            .map(Some)
            .map_err(|error| Error::Damaged { path, what: error.to_string() })
    }

    pub(super) fn forget_removed(&self) -> Result<(), Error> {
        Ok(files::remove(&self.path.join(REMOVED))?)
    }

    pub(super) fn set_removed(&self, removed: &RemovedLine) -> Result<(), Error> {
        let text = serde_json::to_string(removed).expect("our own types serialise");
        Ok(files::replace(&self.path.join(REMOVED), &format!("{text}\n"))?)
    }
}

/// The number in the name of a segment's file.
fn number_of(name: &str) -> Option<u64> {
    let (number, hash) = name.strip_prefix("audit-")?.strip_suffix(".jsonl")?.split_once('-')?;
    (hash.len() == 8).then(|| number.parse().ok())?
}

/// Makes the file names in `directory` durable.
pub(super) fn flush(directory: &Path) -> Result<(), Error> {
    File::open(directory).and_then(|file| file.sync_all()).map_err(Error::io("flush", directory))
}
