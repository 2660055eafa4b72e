//! The log source of a run of processes: its output files.

use crate::guard::rundir::RunDir;
use crate::job_run::Error;
use meridian_agent_core::runtime::{self, CHUNK_BYTES_MAX, LogChunk, LogSource};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};

/// The output files of a run.
#[derive(Debug)]
pub(crate) struct LogFiles {
    dir: RunDir,
    /// `None` for all pods.
    pod: Option<u32>,
    /// Bytes that were read, by pod and try.
    positions: BTreeMap<(u32, u32), u64>,
    ended: bool,
}

impl LogFiles {
    pub(crate) fn new(dir: RunDir, pod: Option<u32>) -> Self {
        Self { dir, pod, positions: BTreeMap::new(), ended: false }
    }

    fn next(&mut self) -> Result<Option<LogChunk>, Error> {
        // Read first: output was on disk before the end was.
        let over = self.dir.end()?.is_some();
        for (index, attempt) in self.dir.pods() {
            if self.pod.is_some_and(|wanted| wanted != index) {
                continue;
            }
            let position = self.positions.entry((index, attempt)).or_insert(0);
            let bytes = read_at(&self.dir, index, attempt, *position)?;
            if !bytes.is_empty() {
                *position += bytes.len() as u64;
                return Ok(Some(LogChunk { pod: index, attempt, bytes }));
            }
        }
        self.ended = over;
        Ok(None)
    }
}

impl LogSource for LogFiles {
    fn read(&mut self) -> Result<Option<LogChunk>, runtime::Error> {
        Ok(self.next()?)
    }

    fn has_ended(&self) -> bool {
        self.ended
    }
}

fn read_at(dir: &RunDir, index: u32, attempt: u32, position: u64) -> Result<Vec<u8>, Error> {
    let path = dir.pod(index, attempt).join("output.log");
    let read = || {
        let mut file = File::open(&path)?;
        file.seek(SeekFrom::Start(position))?;
        let mut bytes = Vec::new();
        file.take(CHUNK_BYTES_MAX as u64).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    match read() {
        // The try is about to begin, or is so old that its directory was removed.
        Err(e) if std::io::Error::kind(&e) == std::io::ErrorKind::NotFound => Ok(Vec::new()),
        read => read.map_err(|source| Error::File { doing: "read", path: path.clone(), source }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guard::rundir::GuardState;
    use crate::job_run::RunEnd;
    use meridian_shared::protocol::EndResult;

    #[test]
    fn log_files_are_followed_until_the_run_has_ended() {
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
        let mut all = LogFiles::new(dir.clone(), None);
        let mut second = LogFiles::new(dir.clone(), Some(1));
        assert_eq!(all.read().unwrap(), None);
        std::io::Write::write_all(&mut log(0, 0), b"a").unwrap();
        std::io::Write::write_all(&mut log(1, 0), &vec![b'x'; CHUNK_BYTES_MAX + 1]).unwrap();
        assert_eq!(all.read().unwrap(), Some(LogChunk { pod: 0, attempt: 0, bytes: b"a".to_vec() }));
        assert_eq!(second.read().unwrap().unwrap().bytes.len(), CHUNK_BYTES_MAX);
        assert_eq!(second.read().unwrap().unwrap().bytes.len(), 1);
        assert!(second.read().unwrap().is_none() && !second.has_ended());

        std::io::Write::write_all(&mut log(1, 1), b"again").unwrap();
        let end = RunEnd::without_pods(EndResult::Succeeded, 0);
        dir.write_state(&GuardState {
            version: 1,
            pod_failures: 0,
            started: None,
            reclaimable: Vec::new(),
            completed: Default::default(),
            ended: None,
            end: Some(end),
        })
        .unwrap();
        assert_eq!(second.read().unwrap(), Some(LogChunk { pod: 1, attempt: 1, bytes: b"again".to_vec() }));
        assert!(second.read().unwrap().is_none() && second.has_ended());
    }
}
