//! Commands that agents of older versions don't know.

use meridian_shared::protocol::SyncRequest;

/// What the agent can do to a running gang, as its last request says. Nothing before the first request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Features {
    scale_down: bool,
    scale_up: bool,
    priority: bool,
}

impl Features {
    pub(crate) fn of(request: &SyncRequest) -> Self {
        Self {
            scale_down: request.supports_scale_down,
            scale_up: request.supports_scale_up,
            priority: request.supports_priority,
        }
    }

    /// Whether the agent can scale down a running gang.
    pub(crate) fn scale_down(self) -> bool {
        self.scale_down
    }

    /// Whether the agent can scale up a running gang.
    pub(crate) fn scale_up(self) -> bool {
        self.scale_up
    }

    /// Whether the agent can change the priority of a running gang.
    pub(crate) fn priority(self) -> bool {
        self.priority
    }
}
