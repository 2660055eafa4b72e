//! What agent and guard say to each other: one JSON value per line, over a Unix socket in the run's directory.
//!
//! The agent gives orders, the guard says where it is whenever that changes. Both are idempotent; nothing is answered. The
//! socket's path is reached through `/proc/self/fd`, because a path in a socket address has room for 107 bytes only.

use meridian_shared::time::{Mono, Now};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

/// A line longer than this is no message of ours.
const LINE_BYTES_MAX: usize = 4 << 10;
const SOCKET: &str = "guard.sock";

/// Agent to guard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Order {
    /// Nothing runs at or after `deadline`, said when the clocks read `given`.
    Renew {
        /// The new deadline.
        deadline: Mono,
        /// Both clocks when it was said.
        given: Now,
    },
    /// Pods belong elsewhere: `move.json` says where. Only for guards that say how often they moved pods.
    Move {
        /// Which move.
        number: u32,
    },
    /// The job goes on with fewer pods: `size.json` says with how many. Only for guards that say that they understand it.
    Shrink,
    /// End the gang.
    Stop,
}

/// Where a guarded run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Phase {
    /// Not every pod was started yet.
    Starting,
    /// Every pod that starts at first was started.
    Running,
    /// Nothing is left, and `state.json` says how it ended.
    Ended,
}

/// Guard to agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// Where the run is.
    pub phase: Phase,
    /// Pods that failed, those of earlier attempts included.
    pub failures: u32,
    /// The deadline that the guard goes by.
    pub lapses: Mono,
    /// The latest move that is done. `None` from a guard of an older binary, which can't move pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moved: Option<u32>,
    /// Places that are free for good; `state.json` names them.
    #[serde(default)]
    pub spare: u32,
    /// This guard understands [`Order::Shrink`].
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub shrinks: bool,
}

/// One end of a conversation. Never blocks.
#[derive(Debug)]
pub struct Line {
    stream: UnixStream,
    partial: Vec<u8>,
}

impl Line {
    /// Takes over a connected socket.
    pub fn new(stream: UnixStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Self { stream, partial: Vec::new() })
    }

    /// Connects to the guard of the run in `directory`.
    pub fn connect(directory: &Path) -> io::Result<Self> {
        Self::new(with_short_path(directory, |path| UnixStream::connect(path))?)
    }

    /// The socket, for polling.
    pub fn stream(&self) -> &UnixStream {
        &self.stream
    }

    /// Sends one message. An error means that the conversation is over.
    pub fn send<T: Serialize>(&mut self, message: &T) -> io::Result<()> {
        let mut line = serde_json::to_vec(message)?;
        line.push(b'\n');
        // Messages are tiny beside a socket's buffer: if one doesn't fit whole, the peer has stopped reading.
        match self.stream.write(&line)? {
            written if written == line.len() => Ok(()),
            _ => Err(io::ErrorKind::WriteZero.into()),
        }
    }

    /// What has arrived. An error means that the conversation is over; what arrived before it is in `into`.
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

/// Binds the socket that the guard of the run in `directory` will listen at.
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
    fn lines_survive_being_cut_and_a_long_directory_name_is_no_obstacle() {
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
