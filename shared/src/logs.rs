//! How logs get from an agent to whoever asked: the manager can't dial in, so the agent asks for requests and posts answers.
//!
//! ```text
//! agent                                              manager
//!   │ GET  REQUESTS_PATH                              ──▶│  parked up to PARK; a list of LogRequest, maybe empty
//!   │ POST answer_path(id), the log as a streamed body ─▶│  bytes as they were printed, to whoever asked
//! ```
//!
//! Both are streams of their own and never part of a sync. The body is `application/octet-stream`; one that the agent can't
//! answer comes as `application/json` with a [`LogRefusal`]. A request that the agent has already is ignored when it is
//! repeated; one whose answer breaks off is over, and asking again is the asker's.

use crate::ids::{Fence, Uid};
use crate::time::Millis;
use serde::{Deserialize, Serialize};

/// Where an agent asks for requests.
pub const REQUESTS_PATH: &str = "/agent/v1/log-requests";
/// How long the manager parks the question when nobody wants a log.
pub const PARK: Millis = Millis::secs(25);
/// Most requests in one answer.
pub const REQUESTS_MAX: usize = 32;
/// Most logs that one agent sends at the same time; more are refused in words.
pub const STREAMS_MAX: usize = 32;
/// Most bytes in one piece of a streamed body.
pub const CHUNK_BYTES_MAX: usize = 64 << 10;

/// The header of a log's answer to a person that names the attempt whose output it is, by its fence: whoever goes on with a log
/// that broke off must not take another attempt's for the same.
pub const ATTEMPT_HEADER: &str = "meridian-attempt";

/// Where the agent posts the answer to request `id`.
pub fn answer_path(id: u64) -> String {
    format!("/agent/v1/logs/{id}")
}

/// Somebody wants to see what a gang printed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogRequest {
    /// Names the request; the manager never gives the same twice to one agent within its leadership.
    pub id: u64,
    /// The workload.
    pub uid: Uid,
    /// Which attempt; the newest that the agent knows when absent.
    pub fence: Option<Fence>,
    /// Which pod, by its completion index. When absent, all of them, and each line begins with `[POD] `.
    pub pod: Option<u32>,
    /// Whether to go on until the run ends.
    pub follow: bool,
    /// Begin with the last so many lines of what is there.
    pub tail_lines: Option<u64>,
}

/// Why there is no log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogRefusal {
    /// In words.
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
        let text = r#"{"id":7,"uid":"00000000-0000-0000-0000-000000000001","fence":"2-3-4","pod":null,"follow":true,"tail_lines":10}"#;
        assert_eq!(serde_json::to_string(&request).unwrap(), text);
        assert_eq!(serde_json::from_str::<LogRequest>(text).unwrap(), request);
    }
}
