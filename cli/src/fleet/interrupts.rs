//! Ctrl-C and SIGTERM. A command that starts processes listens before it starts the first, so that none is
//! left behind.

use std::io;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// While it exists, neither signal ends this process by itself.
#[derive(Debug)]
pub(crate) struct Interrupts {
    interrupt: Signal,
    terminate: Signal,
}

impl Interrupts {
    /// Fails if the kernel refuses a signal handler.
    pub(crate) fn listen() -> io::Result<Self> {
        Ok(Self { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? })
    }

    /// Waits for either signal.
    pub(crate) async fn recv(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}
