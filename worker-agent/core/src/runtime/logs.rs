//! Output of a run's pods.

use super::Error;

/// One piece is never longer than this, so that it fits a frame of the log stream.
pub const CHUNK_BYTES_MAX: usize = 64 << 10;

/// A piece of the output of one try of one pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogChunk {
    /// Completion index of the pod.
    pub pod: u32,
    /// Number of the try, from 0.
    pub attempt: u32,
    /// The bytes as printed; may begin or end within a line or a character.
    pub bytes: Vec<u8>,
}

/// Reads the output of a run in pieces. It keeps its position per try of each pod, so that a log can be
/// followed while the run continues.
pub trait LogSource: Send + std::fmt::Debug {
    /// The next piece, or `None` if there is nothing new yet. May read files, so call it where blocking is
    /// allowed. Fails if the output can't be read; a later call may succeed.
    fn read(&mut self) -> Result<Option<LogChunk>, Error>;

    /// Whether the output is complete.
    fn has_ended(&self) -> bool;
}
