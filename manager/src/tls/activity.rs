//! Activity of a connection: requests in progress, and silence. Decides when a connection is closed because
//! it is idle, or too old without valid credentials.

use super::limits::Deadlines;
use super::shares::ConnectionClass;
use crate::held_body::{Held, HeldBody};
use crate::locks;
use axum::body::Body;
use axum::http::Response;
use std::sync::{Arc, Mutex};
use tokio::time::Instant;

/// The requests of one connection. Clones share them.
#[derive(Clone, Debug)]
pub(super) struct Activity(Arc<Mutex<Requests>>);

#[derive(Debug)]
struct Requests {
    opened: Instant,
    any: bool,
    in_progress: usize,
    /// When the last request ended.
    idle_since: Instant,
}

/// Why a connection is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Silence {
    /// No request arrived.
    NoRequest,
    /// No request had valid credentials.
    NoCredentials,
    /// No request is in progress, for longer than usual clients keep a connection.
    Idle,
}

impl Silence {
    /// The reason as the metrics name it.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::NoRequest => "first_request_timeout",
            Self::NoCredentials => "unauthenticated_timeout",
            Self::Idle => "idle",
        }
    }
}

impl Activity {
    pub(super) fn new(now: Instant) -> Self {
        Self(Arc::new(Mutex::new(Requests { opened: now, any: false, in_progress: 0, idle_since: now })))
    }

    /// Counts a request until the returned value is dropped.
    pub(super) fn begin(&self) -> InProgress {
        let mut requests = locks::lock(&self.0);
        requests.any = true;
        requests.in_progress += 1;
        InProgress(self.clone())
    }

    /// When to check again, or why the connection must be closed now.
    pub(super) fn check(
        &self,
        now: Instant,
        class: &ConnectionClass,
        deadlines: &Deadlines,
    ) -> Result<Instant, Silence> {
        let requests = locks::lock(&self.0);
        let until = |deadline: Instant, silence| if now >= deadline { Err(silence) } else { Ok(deadline) };
        if !requests.any {
            // check earlier than the deadline, because a request that arrives meanwhile may have a shorter
            // one
            let again = now + deadlines.unauthenticated.min(deadlines.idle);
            return Ok(again.min(until(requests.opened + deadlines.first_request, Silence::NoRequest)?));
        }
        let idle = match requests.in_progress {
            0 => until(requests.idle_since + deadlines.idle, Silence::Idle)?,
            _ => now + deadlines.idle,
        };
        if class.is_authenticated() {
            return Ok(idle);
        }
        Ok(idle.min(until(requests.opened + deadlines.unauthenticated, Silence::NoCredentials)?))
    }
}

/// A request in progress: from its head to the end of its answer.
#[derive(Debug)]
pub(super) struct InProgress(Activity);

impl InProgress {
    /// The answer, which ends the request with its last byte.
    pub(super) fn until_sent(self, answer: Response<Body>) -> Response<Body> {
        answer.map(|body| HeldBody::wrap(body, self))
    }
}

impl Drop for InProgress {
    fn drop(&mut self) {
        let mut requests = locks::lock(&self.0.0);
        requests.in_progress -= 1;
        requests.idle_since = Instant::now();
    }
}

impl Held for InProgress {}
