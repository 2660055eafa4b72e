//! Commands to the simulated runs; also the lines of the input log.

use crate::job_run::RunEnd;
use meridian_agent_core::runtime::{PodPlacement, Start};
use meridian_shared::ids::{Fence, Uid};
use meridian_shared::protocol::Size;
use meridian_shared::time::Mono;
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum RunCommand {
    Start(Box<Start>),
    Renew {
        uid: Uid,
        fence: Fence,
        deadline: Mono,
    },
    Move {
        uid: Uid,
        fence: Fence,
        number: u32,
        placement: Vec<PodPlacement>,
    },
    ScaleUp {
        uid: Uid,
        fence: Fence,
        number: u32,
        placement: Vec<PodPlacement>,
        size: Size,
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
    Forget {
        uid: Uid,
        fence: Fence,
    },
    /// The run is known to have ended; only in input logs.
    Ended {
        uid: Uid,
        fence: Fence,
        end: RunEnd,
    },
}
