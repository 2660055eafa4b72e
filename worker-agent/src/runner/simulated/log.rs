//! The log of a simulated run: one line, and an end when the run ends.

use super::Shared;
use meridian_agent_core::runtime::{self, LogChunk, LogSource};
use meridian_shared::ids::{Fence, Uid};
use std::sync::{Arc, PoisonError};

#[derive(Debug)]
pub(super) struct SimulatedLog {
    shared: Arc<Shared>,
    run: (Uid, Fence),
    pod: u32,
    has_line: bool,
    has_ended: bool,
}

impl SimulatedLog {
    pub(super) fn new(shared: Arc<Shared>, run: (Uid, Fence), pod: u32) -> Self {
        Self { shared, run, pod, has_line: true, has_ended: false }
    }
}

impl LogSource for SimulatedLog {
    fn read(&mut self) -> Result<Option<LogChunk>, runtime::Error> {
        let (uid, fence) = self.run;
        let state = self.shared.state.lock().unwrap_or_else(PoisonError::into_inner);
        let described = state.runs.describe(uid, fence);
        drop(state);
        // A run that was forgotten has ended.
        self.has_ended = described.as_ref().is_none_or(|(_, is_live)| !is_live);
        let line = described.filter(|_| std::mem::take(&mut self.has_line));
        Ok(line.map(|(description, _)| LogChunk {
            pod: self.pod,
            attempt: 0,
            bytes: format!("simulated: no real output; {description}\n").into_bytes(),
        }))
    }

    fn has_ended(&self) -> bool {
        self.has_ended
    }
}
