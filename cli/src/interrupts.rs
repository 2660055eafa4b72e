//! Being told to end: Ctrl-C and SIGTERM. Whoever has started processes listens from before the first of them, so that none is
//! left behind.

use std::io;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// What tells this process to end. From when it is made nothing ends it at once.
#[derive(Debug)]
pub(crate) struct Interrupts {
    interrupt: Signal,
    terminate: Signal,
}

impl Interrupts {
    /// Begins to listen.
    pub(crate) fn listen() -> io::Result<Self> {
        Ok(Self { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? })
    }

    /// Returns once the process is told to end.
    pub(crate) async fn recv(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}
