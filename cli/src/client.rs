//! The manager's client: kubeconfig, REST requests, watches and logs.
//!
//! Owns URLs, headers, time limits, sizes, paging, and the parsing of answers and errors. Must not know
//! commands, tables or the meaning of an object's fields.
//!
//! Invariants: every answer is bounded in bytes; every exchange except a stream is bounded in time. A token
//! never follows a redirect and is never logged. Only reads that follow something (a watch, a followed log)
//! are repeated here; each command decides whether its write may be repeated.

mod endpoints;
mod error;
mod http;
mod job_name;
pub(crate) mod kubeconfig;
mod logs;
mod objects;
mod retry;
mod status;
mod stream_lines;
mod warnings;
mod watch;

pub(crate) use self::endpoints::{ApplyOptions, ApplyResult, Bulk, ClusterAction, JoinRequest};
pub(crate) use self::error::Error;
pub(crate) use self::http::Client;
pub(crate) use self::job_name::JobName;
pub(crate) use self::logs::{AttemptId, LogAttempt, LogEvent, LogQuery, LogStream};
pub(crate) use self::objects::{CreateOptions, Created, DeleteOptions, List, Selection};
pub(crate) use self::status::Status;
pub(crate) use self::watch::{ChangeKind, WatchEvent};

#[cfg(test)]
pub(crate) mod fake;
#[cfg(test)]
mod tests;
