//! Requests in progress and the bytes of their bodies: each caller has a share, so that no caller can block
//! others or use up the memory.

use super::access::User;
use super::callers::{CallerShares, Share};
use super::request::body::{MANY_BYTES_MAX, OBJECT_BYTES_MAX};
use super::response::error::Error;
use axum::body::HttpBody;
use axum::extract::Request;

/// Requests of users in progress at once; streams count until they begin.
const REQUESTS_MAX: usize = 1_024;
const REQUESTS_PER_CALLER_MAX: usize = 256;
/// Bytes of bodies in memory at once.
const BODY_BYTES_MAX: usize = 512 << 20;
const BODY_BYTES_PER_CALLER_MAX: usize = 128 << 20;

/// Shares of the places and bytes that users' requests hold. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct RequestShares {
    in_progress: CallerShares<String>,
    body_bytes: CallerShares<String>,
}

/// A caller's place for one request, until this is dropped.
#[derive(Debug)]
pub(crate) struct Admitted {
    _request: Share<String>,
    _body: Share<String>,
}

impl Default for RequestShares {
    fn default() -> Self {
        Self {
            in_progress: CallerShares::new(REQUESTS_PER_CALLER_MAX, REQUESTS_MAX),
            body_bytes: CallerShares::new(BODY_BYTES_PER_CALLER_MAX, BODY_BYTES_MAX),
        }
    }
}

impl RequestShares {
    /// A place for a request and its body. `None` for the controllers of the management cluster, whose few
    /// requests must not wait behind a flood of users' requests. Fails if the user has too many.
    pub(crate) fn admit(&self, user: &User, request: &Request) -> Result<Option<Admitted>, Error> {
        if user.is_management_cluster() {
            return Ok(None);
        }
        let in_progress = self.in_progress.take_one(user.name.clone()).map_err(|own| {
            Error::Busy(format!(
                "too many requests are in progress: you have {own}; at most {REQUESTS_PER_CALLER_MAX} per \
                 user and {REQUESTS_MAX} in all are possible; wait for their answers"
            ))
        })?;
        let body = self.body_bytes.take_some(user.name.clone(), body_bytes(request)).map_err(|own| {
            Error::Busy(format!(
                "the bodies of requests in progress are too large: yours have {} MiB; at most {} MiB per \
                 user and {} MiB in all are possible; wait for their answers, or send less at once",
                own >> 20,
                BODY_BYTES_PER_CALLER_MAX >> 20,
                BODY_BYTES_MAX >> 20
            ))
        })?;
        Ok(Some(Admitted { _request: in_progress, _body: body }))
    }
}

/// The most bytes of a request's body that are read into memory. A body of unknown size may become as large
/// as its endpoint permits.
fn body_bytes(request: &Request) -> usize {
    let most = match request.uri().path() {
        "/meridian/v1/apply" | "/meridian/v1/bulk" => MANY_BYTES_MAX,
        _ => OBJECT_BYTES_MAX,
    };
    let announced = request.body().size_hint().upper();
    announced.map_or(most, |bytes| usize::try_from(bytes).unwrap_or(usize::MAX).min(most))
}
