//! What pods printed, read in bounded pieces.
//!
//! A reader keeps its place per try of each pod, so that a stream can be followed while the run goes on: `read` gives what
//! is there and `None` when there is nothing new yet; [`LogReader::ended`] says when nothing more can come.

use super::Error;
use crate::guard::rundir::RunDir;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};

/// One piece is never longer than this: it fits a frame of the uplink's log stream.
pub const CHUNK_BYTES_MAX: usize = 64 << 10;

/// A piece of what one try of one pod printed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogChunk {
    /// Which pod.
    pub pod: u32,
    /// Which try of it.
    pub attempt: u32,
    /// The bytes as printed, which may cut a line or a character.
    pub bytes: Vec<u8>,
}

/// Reads a run's output.
#[derive(Debug)]
pub struct LogReader {
    source: Source,
}

#[derive(Debug)]
enum Source {
    Files { dir: RunDir, pod: Option<u32>, places: BTreeMap<(u32, u32), u64>, ended: bool },
    Text(Vec<LogChunk>),
}

impl LogReader {
    /// Over the files of a run: of one pod, or of all.
    pub(crate) fn files(dir: RunDir, pod: Option<u32>) -> Self {
        Self { source: Source::Files { dir, pod, places: BTreeMap::new(), ended: false } }
    }

    /// Over text that is there already; given in order.
    pub(crate) fn text(mut chunks: Vec<LogChunk>) -> Self {
        chunks.reverse();
        Self { source: Source::Text(chunks) }
    }

    /// The next piece, if there is one by now.
    pub fn read(&mut self) -> Result<Option<LogChunk>, Error> {
        match &mut self.source {
            Source::Text(chunks) => Ok(chunks.pop()),
            Source::Files { dir, pod, places, ended } => {
                // Looked at first: what was printed before the end was on disk before the end was.
                let over = dir.end()?.is_some();
                for (index, attempt) in dir.pods() {
                    if pod.is_some_and(|wanted| wanted != index) {
                        continue;
                    }
                    let place = places.entry((index, attempt)).or_insert(0);
                    let bytes = read_at(dir, index, attempt, *place)?;
                    if !bytes.is_empty() {
                        *place += bytes.len() as u64;
                        return Ok(Some(LogChunk { pod: index, attempt, bytes }));
                    }
                }
                *ended = over;
                Ok(None)
            }
        }
    }

    /// Whether nothing more can come.
    pub fn ended(&self) -> bool {
        match &self.source {
            Source::Text(chunks) => chunks.is_empty(),
            Source::Files { ended, .. } => *ended,
        }
    }
}

fn read_at(dir: &RunDir, index: u32, attempt: u32, place: u64) -> Result<Vec<u8>, Error> {
    let path = dir.pod(index, attempt).join("output.log");
    let read = || {
        let mut file = File::open(&path)?;
        file.seek(SeekFrom::Start(place))?;
        let mut bytes = Vec::new();
        file.take(CHUNK_BYTES_MAX as u64).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    match read() {
        // The try is about to begin, or was so long ago that its directory is gone.
        Err(e) if std::io::Error::kind(&e) == std::io::ErrorKind::NotFound => Ok(Vec::new()),
        read => read.map_err(|source| Error::File { doing: "read", path: path.clone(), source }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guard::rundir::State;
    use crate::runner::{End, RunResult};

    #[test]
    fn a_reader_follows_until_the_run_has_ended() {
        let root = tempfile::tempdir().unwrap();
        let dir = RunDir::at(root.path());
        let log = |index, attempt| {
            std::fs::create_dir_all(dir.pod(index, attempt)).unwrap();
            std::fs::OpenOptions::new()
                .create(true)
                .append(true)
                .open(dir.pod(index, attempt).join("output.log"))
                .unwrap()
        };
        let mut all = LogReader::files(dir.clone(), None);
        let mut second = LogReader::files(dir.clone(), Some(1));
        assert_eq!(all.read().unwrap(), None);
        std::io::Write::write_all(&mut log(0, 0), b"a").unwrap();
        std::io::Write::write_all(&mut log(1, 0), &vec![b'x'; CHUNK_BYTES_MAX + 1]).unwrap();
        assert_eq!(all.read().unwrap(), Some(LogChunk { pod: 0, attempt: 0, bytes: b"a".to_vec() }));
        assert_eq!(second.read().unwrap().unwrap().bytes.len(), CHUNK_BYTES_MAX);
        assert_eq!(second.read().unwrap().unwrap().bytes.len(), 1);
        assert!(second.read().unwrap().is_none() && !second.ended());

        std::io::Write::write_all(&mut log(1, 1), b"again").unwrap();
        let end =
            End { result: RunResult::Succeeded, pods: Vec::new(), failures: 0, ran: Default::default() };
        dir.write_state(&State {
            version: 1,
            failures: 0,
            started: None,
            spare: Vec::new(),
            ended: None,
            end: Some(end),
        })
        .unwrap();
        assert_eq!(second.read().unwrap(), Some(LogChunk { pod: 1, attempt: 1, bytes: b"again".to_vec() }));
        assert!(second.read().unwrap().is_none() && second.ended());
    }
}
