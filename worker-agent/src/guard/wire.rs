//! Messages between agent and guard: one JSON value per line, over a Unix socket in the run's directory.
//!
//! The agent sends orders, the guard sends its status whenever it changes. Both are idempotent and not
//! answered. The socket is reached through `/proc/self/fd`, because a path in a socket address is limited to
//! 107 bytes.

use meridian_shared::time::{Mono, Now};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

/// Longest message with its line feed.
const LINE_BYTES_MAX: usize = 4 << 10;
const SOCKET: &str = "guard.sock";

/// Agent to guard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Order {
    /// No process may run at or after `deadline`; `given` are the clocks when it was computed.
    Renew { deadline: Mono, given: Now },
    /// Move pods as in `move.json`. Only for guards that report moves.
    Move { number: u32 },
    /// Continue with fewer pods, as in `size.json`. Only for guards that report [`Status::scales_down`].
    ScaleDown,
    /// End the gang.
    Stop,
}

/// State of a guarded run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum GuardPhase {
    /// Some pods haven't been started yet.
    Starting,
    /// All pods of the gang were started.
    Running,
    /// No process is left, and `state.json` has the end.
    Ended,
}

/// Guard to agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    pub phase: GuardPhase,
    /// Number of failed pods so far, over all attempts.
    pub pod_failures: u32,
    /// The guard's deadline.
    pub lapses: Mono,
    /// The last finished move. `None` from a guard of an older binary, which can't move pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moved: Option<u32>,
    /// Number of reclaimable positions; `state.json` lists them.
    #[serde(default)]
    pub reclaimable: u32,
    /// Number of completed indexes; `state.json` lists them.
    #[serde(default)]
    pub completed: u32,
    /// Whether this guard understands [`Order::ScaleDown`].
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub scales_down: bool,
}

/// One end of a connection. Never blocks.
#[derive(Debug)]
pub struct Line {
    stream: UnixStream,
    partial: Vec<u8>,
}

impl Line {
    /// Takes over a connected socket. Fails if it can't be made non-blocking.
    pub fn new(stream: UnixStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Self { stream, partial: Vec::new() })
    }

    /// Connects to the guard of the run in `directory`. Fails if no guard listens.
    pub fn connect(directory: &Path) -> io::Result<Self> {
        Self::new(with_short_path(directory, |path| UnixStream::connect(path))?)
    }

    /// The socket, for polling.
    pub fn stream(&self) -> &UnixStream {
        &self.stream
    }

    /// Sends one message. An error means that the connection is over.
    pub fn send<T: Serialize>(&mut self, message: &T) -> io::Result<()> {
        let mut line = serde_json::to_vec(message)?;
        line.push(b'\n');
        // A message is far smaller than a socket's buffer: if it does not fit, the peer has stopped reading.
        match self.stream.write(&line)? {
            written if written == line.len() => Ok(()),
            _ => Err(io::ErrorKind::WriteZero.into()),
        }
    }

    /// Appends to `into` what has arrived. An error means that the connection is over.
    pub fn receive<T: DeserializeOwned>(&mut self, into: &mut Vec<T>) -> io::Result<()> {
        let mut chunk = [0; LINE_BYTES_MAX];
        loop {
            match self.stream.read(&mut chunk) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(n) => self.partial.extend_from_slice(&chunk[..n]),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) => return Err(e),
            }
            while let Some(end) = self.partial.iter().position(|b| *b == b'\n') {
                into.push(serde_json::from_slice(&self.partial[..end])?);
                self.partial.drain(..=end);
            }
            if self.partial.len() > LINE_BYTES_MAX {
                return Err(io::ErrorKind::InvalidData.into());
            }
        }
    }
}

/// Binds the socket of the guard of the run in `directory`. Fails if it exists or can't be made.
pub fn bind(directory: &Path) -> io::Result<UnixListener> {
    with_short_path(directory, |path| UnixListener::bind(path))
}

fn with_short_path<T>(directory: &Path, act: impl FnOnce(&Path) -> io::Result<T>) -> io::Result<T> {
    let directory = File::open(directory)?;
    act(Path::new(&format!("/proc/self/fd/{}/{SOCKET}", directory.as_raw_fd())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cut_lines_and_long_directory_names_work() {
        let root = tempfile::tempdir().unwrap();
        let deep = root.path().join("d".repeat(120));
        std::fs::create_dir(&deep).unwrap();
        let listener = bind(&deep).unwrap();
        let mut agent = Line::connect(&deep).unwrap();
        let mut guard = Line::new(listener.accept().unwrap().0).unwrap();

        agent.stream.write_all(b"\"sto").unwrap();
        let mut orders: Vec<Order> = Vec::new();
        guard.receive(&mut orders).unwrap();
        assert!(orders.is_empty());
        agent.stream.write_all(b"p\"\n").unwrap();
        agent.send(&Order::Renew { deadline: Mono(4), given: Now::default() }).unwrap();
        drop(agent);
        assert!(guard.receive(&mut orders).is_err(), "the other end is closed");
        assert_eq!(orders, [Order::Stop, Order::Renew { deadline: Mono(4), given: Now::default() }]);
    }
}
