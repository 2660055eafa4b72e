//! What a pod prints: taken from its pipe into a file of bounded size, without ever stopping the pod.
//!
//! Standard output and error share one pipe, so their order is kept. Beyond the bound, and when the disk is full, output
//! is read and dropped; a notice in the file says so.

use std::fs::File;
use std::io::{self, PipeReader, Read as _, Write as _};

/// Output kept of one try of one pod.
pub(super) const OUTPUT_BYTES_MAX: u64 = 16 << 20;
/// Output taken of one pod before the others have their turn.
const TURN_BYTES_MAX: usize = 256 << 10;
const CHUNK_BYTES: usize = 16 << 10;

/// The output of one try of one pod.
#[derive(Debug)]
pub(super) struct Output {
    pipe: Option<PipeReader>,
    file: File,
    room: u64,
}

impl Output {
    /// Captures `pipe` into `file`.
    pub(super) fn new(pipe: PipeReader, file: File) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&pipe, true)?;
        Ok(Self { pipe: Some(pipe), file, room: OUTPUT_BYTES_MAX })
    }

    /// The pipe, for polling, while it is open.
    pub(super) fn pipe(&self) -> Option<&PipeReader> {
        self.pipe.as_ref()
    }

    /// Takes a turn's worth of what is there.
    pub(super) fn take(&mut self) {
        let mut chunk = [0; CHUNK_BYTES];
        let mut taken = 0;
        while taken < TURN_BYTES_MAX
            && let Some(pipe) = &mut self.pipe
        {
            match pipe.read(&mut chunk) {
                Ok(0) => self.pipe = None,
                Ok(n) => {
                    taken += n;
                    self.keep(&chunk[..n]);
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return,
                Err(_) => self.pipe = None,
            }
        }
    }

    /// Takes all that is left in the pipe of a pod that has ended. The pipe's own size bounds it.
    pub(super) fn finish(mut self) {
        self.take();
    }

    fn keep(&mut self, bytes: &[u8]) {
        if self.room == 0 {
            return;
        }
        let fits = bytes.len().min(usize::try_from(self.room).unwrap_or(usize::MAX));
        self.room -= fits as u64;
        let kept = self.file.write_all(&bytes[..fits]);
        if kept.is_err() || self.room == 0 {
            self.room = 0;
            let why =
                kept.err().map_or_else(|| format!("more than {OUTPUT_BYTES_MAX} bytes"), |e| e.to_string());
            // Where even this can't be written there is nobody left to tell.
            let _ = writeln!(self.file, "\n[meridian: output is cut here: {why}]");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_beyond_the_bound_is_dropped_with_one_notice_and_the_writer_never_blocks() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("output.log");
        let (reader, mut writer) = io::pipe().unwrap();
        let mut output = Output::new(reader, File::create(&path).unwrap()).unwrap();
        output.room = 10;
        for _ in 0..3 {
            writer.write_all(b"12345678").unwrap();
            output.take();
        }
        drop(writer);
        output.finish();
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.starts_with("1234567812\n[meridian: output is cut here"), "{text}");
        assert_eq!(text.matches("meridian:").count(), 1);
    }
}
