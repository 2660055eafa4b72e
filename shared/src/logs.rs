//! Messages by which logs get from an agent to a user. The manager can't connect to agents, so the agent
//! polls for requests and posts answers.
//!
//! ```text
//! agent                                              manager
//!   │ GET  REQUESTS_PATH                              ──▶│  parked up to PARK; a list of LogRequest
//!   │ POST answer_path(id), the log as a streamed body ─▶│  bytes as they were printed, to the user
//! ```
//!
//! Both are separate streams and never part of a sync. The body is `application/octet-stream`, or
//! `application/json` with a [`LogRefusal`]. An agent ignores a repeated request. When an answer breaks off,
//! its request is over, and the client must ask again.

use crate::ids::{Fence, Uid};
use crate::time::Millis;
use serde::{Deserialize, Serialize};

pub const REQUESTS_PATH: &str = "/agent/v1/log-requests";
/// How long the manager parks the poll while there is no request.
pub const PARK: Millis = Millis::secs(25);
/// Most requests in one answer.
pub const REQUESTS_MAX: usize = 32;
/// Most logs that one agent sends at the same time; further requests are refused with a message.
pub const STREAMS_MAX: usize = 32;
/// Most bytes in one piece of a streamed body.
pub const CHUNK_BYTES_MAX: usize = 64 << 10;

/// Header that names the attempt of a log by its fence. A client that resumes a broken log must not continue
/// with another attempt's.
pub const ATTEMPT_HEADER: &str = "meridian-attempt";

/// Header with the number of a log's attempt: 1 is the job's first.
pub const ATTEMPT_NUMBER_HEADER: &str = "meridian-attempt-number";

pub fn answer_path(id: u64) -> String {
    format!("/agent/v1/logs/{id}")
}

/// A request for the output of a gang.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogRequest {
    /// Id of the request, never used twice for one agent within a leadership.
    pub id: u64,
    pub uid: Uid,
    /// The attempt; `None` means the newest that the agent knows.
    pub fence: Option<Fence>,
    /// Completion index of a pod. `None` means all pods; then each line begins with `[POD] `.
    pub pod: Option<u32>,
    /// Whether to continue until the run ends.
    pub follow: bool,
    /// Start with this many of the last lines.
    pub tail_lines: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogRefusal {
    pub message: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wire_form_is_fixed() {
        let request = LogRequest {
            id: 7,
            uid: Uid(1),
            fence: Some(Fence { epoch: 2, leadership: 3, counter: 4 }),
            pod: None,
            follow: true,
            tail_lines: Some(10),
        };
        let text = concat!(
            r#"{"id":7,"uid":"00000000-0000-0000-0000-000000000001","fence":"2-3-4","pod":null,"#,
            r#""follow":true,"tail_lines":10}"#
        );
        assert_eq!(serde_json::to_string(&request).unwrap(), text);
        assert_eq!(serde_json::from_str::<LogRequest>(text).unwrap(), request);
    }
}
