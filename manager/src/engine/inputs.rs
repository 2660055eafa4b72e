//! How the engine distinguishes inputs before it applies them.

use super::Message;
use meridian_manager_core::facts::input::{Change, Input};

/// Whether the message comes from an agent.
pub(super) fn is_from_agent(message: &Message) -> bool {
    match message {
        Message::PollOver { .. } => true,
        Message::Ask { input, .. } => {
            matches!(**input, Input::Sync { .. } | Input::Unpark { .. } | Input::Copies { .. })
        }
        _ => false,
    }
}

/// Whether an input submits a job.
pub(super) fn submits(input: &Input) -> bool {
    let puts_job = |change: &Change| matches!(change, Change::Put { object, .. } if object.kind.is_job());
    matches!(input, Input::Write(write) if write.changes().iter().any(puts_job))
}
