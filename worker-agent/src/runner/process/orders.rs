//! Orders of the agent to the supervisor's thread.

use meridian_agent_core::runtime::{PodPlacement, Start};
use meridian_shared::ids::{Fence, Uid};
use meridian_shared::protocol::Size;
use meridian_shared::time::{Mono, Now};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::OwnedFd;
use std::collections::VecDeque;
use std::io;
use std::sync::{Mutex, PoisonError};

#[derive(Debug)]
pub(super) enum RunnerOrder {
    Start {
        start: Box<Start>,
        /// Why the job can't run here.
        refused: Option<String>,
        given: Now,
    },
    Renew {
        uid: Uid,
        fence: Fence,
        deadline: Mono,
        given: Now,
    },
    Move {
        uid: Uid,
        fence: Fence,
        number: u32,
        placement: Vec<PodPlacement>,
        /// The new size, where pods are added.
        scale_up_to: Option<Size>,
    },
    ScaleDown {
        uid: Uid,
        fence: Fence,
        size: Size,
    },
    Stop {
        uid: Uid,
        fence: Fence,
    },
    Adopt {
        uid: Uid,
        fence: Fence,
    },
    Forget {
        uid: Uid,
        fence: Fence,
    },
    Quit,
}

/// Orders that wait for the thread. One turn of the agent brings a few per run, and the thread takes all at
/// once.
#[derive(Debug)]
pub(super) struct Orders {
    queue: Mutex<VecDeque<RunnerOrder>>,
    wake: OwnedFd,
}

impl Orders {
    pub(super) fn new() -> io::Result<Self> {
        let wake = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        Ok(Self { queue: Mutex::default(), wake })
    }

    pub(super) fn push(&self, order: RunnerOrder) {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner).push_back(order);
        // Fails only if the counter is full; then the thread is awake.
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
    }

    pub(super) fn take(&self) -> VecDeque<RunnerOrder> {
        std::mem::take(&mut *self.queue.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Readable when an order was pushed.
    pub(super) fn wake(&self) -> &OwnedFd {
        &self.wake
    }

    /// Makes [`Orders::wake`] unreadable again.
    pub(super) fn clear_wake(&self) {
        let mut counter = [0; 8];
        // Empty if something else woke the thread.
        let _ = rustix::io::read(&self.wake, &mut counter);
    }
}
