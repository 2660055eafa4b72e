//! What agents ask over HTTP: to be let in, to sync, and to hand over logs. All of it behind the one TLS port.
//!
//! ```text
//! sync      POST /agent/v1/sync           one transmission; polls are parked until there is something to say
//! identity  POST /agent/v1/join, renew    certificates, for a token or for the one before
//! logs      GET  /agent/v1/log-requests, POST /agent/v1/logs/{id}
//! budget    how much of the manager one agent may take
//! ```
//!
//! The cluster that an agent speaks for is the one in its certificate, and nothing else that it says. Text from agents is
//! never trusted: what is kept of it is cut and cleaned by the core, and what is shown of it here as well. What this room
//! must not know: what a sync means; the core takes and answers it.

mod budget;
mod identity;
mod logs;
mod sync;

pub use logs::{LogRelay, LogStream, NoLog};
pub use sync::SYNC_PATH;

use crate::engine::clock::{BootClock, Clock};
use crate::engine::{Handle, Unavailable};
use crate::tls::{AgentIdentity, Authorities, Peer, Standing};
use axum::Router;
use axum::body::Body;
use axum::extract::DefaultBodyLimit;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use budget::Budgets;
use meridian_manager_core::facts::key::Key;
use meridian_objects::Kind;
use meridian_shared::identity::{JOIN_PATH, RENEW_PATH};
use meridian_shared::ids::{ClusterName, Jurisdiction, Region};
use meridian_shared::logs::REQUESTS_PATH;
use meridian_shared::time::Millis;
use serde::Serialize;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::OwnedSemaphorePermit;
use tokio_util::sync::CancellationToken;

/// Longest time that the body of a request may take to arrive; logs aside.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);

/// What the routes work with.
#[derive(Clone, Debug)]
pub struct Parts {
    /// The engine.
    pub engine: Handle,
    /// What signs certificates.
    pub authorities: Arc<Authorities>,
    /// Logs on their way to whoever asked.
    pub relay: LogRelay,
    /// How long a poll is parked.
    pub poll: Millis,
    /// How long an agent's certificate is good.
    pub certificate_lifetime: Millis,
    /// Ends what is parked.
    pub stop: CancellationToken,
}

/// Everything behind the routes.
#[derive(Debug)]
struct Agents {
    parts: Parts,
    budgets: Budgets,
    joins: identity::Joins,
}

impl Agents {
    /// Takes one request out of a cluster's budget, for as long as the permit lives.
    fn enter(&self, cluster: &ClusterName) -> Result<OwnedSemaphorePermit, Failure> {
        let entered = self.budgets.enter(cluster);
        if entered.is_err() {
            // The name is from a certificate of ours.
            self.parts.engine.metrics().agent_requests_refused.inc([cluster.as_str()]);
        }
        entered
    }
}

/// The routes of agents.
pub fn router(parts: Parts) -> Router {
    let agents = Arc::new(Agents { parts, budgets: Budgets::default(), joins: identity::Joins::default() });
    Router::new()
        .route(SYNC_PATH, post(sync::sync))
        .route(JOIN_PATH, post(identity::join))
        .route(RENEW_PATH, post(identity::renew))
        .route(REQUESTS_PATH, get(logs::requests))
        .route("/agent/v1/logs/{id}", post(logs::answer))
        // Every handler bounds what it reads by itself, after it knows who sends it.
        .layer(DefaultBodyLimit::disable())
        .with_state(agents)
}

impl Agents {
    /// Where a cluster is by the manager's own records; an agent whose cluster is gone has been revoked.
    fn place(&self, cluster: &ClusterName) -> Result<(Region, Jurisdiction), Failure> {
        let view = self.parts.engine.reads().get(&Key::global(Kind::Cluster, cluster.as_str()));
        let place = view.as_ref().and_then(|view| {
            let spec = view.value.get("spec")?;
            Some((
                Region::new(spec.get("region")?.as_str()?),
                Jurisdiction::new(spec.get("jurisdiction")?.as_str()?),
            ))
        });
        place.ok_or_else(|| {
            Failure::new(
                StatusCode::FORBIDDEN,
                format!("there is no cluster `{cluster}` any more: it was removed, and its agent with it"),
            )
        })
    }
}

/// The agent behind a request, whose certificate is good at this moment.
fn agent(peer: &Peer) -> Result<&AgentIdentity, Failure> {
    match peer.standing(BootClock.now().wall) {
        Standing::Agent(agent) => Ok(agent),
        Standing::RenewalOnly(_) => Err(Failure::new(
            StatusCode::UNAUTHORIZED,
            "the certificate has expired: it is good for renewal only".into(),
        )),
        Standing::Anonymous => {
            Err(Failure::new(StatusCode::UNAUTHORIZED, "no agent's certificate was shown: join first".into()))
        }
    }
}

/// A whole body, bounded in bytes and time.
async fn read(body: Body, bytes_max: usize) -> Result<bytes::Bytes, Failure> {
    let reading = axum::body::to_bytes(body, bytes_max);
    match tokio::time::timeout(BODY_TIMEOUT, reading).await {
        Ok(Ok(bytes)) => Ok(bytes),
        Ok(Err(_)) => Err(Failure::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            format!("the body broke off or is longer than {bytes_max} bytes"),
        )),
        Err(_) => Err(Failure::new(
            StatusCode::REQUEST_TIMEOUT,
            format!("the body took longer than {} s", BODY_TIMEOUT.as_secs()),
        )),
    }
}

fn parsed<T: serde::de::DeserializeOwned>(bytes: &[u8]) -> Result<T, Failure> {
    serde_json::from_slice(bytes)
        .map_err(|error| Failure::new(StatusCode::BAD_REQUEST, format!("the body can't be read: {error}")))
}

fn json_of(value: &impl Serialize) -> Response {
    let body = serde_json::to_vec(value).expect("our own types serialise");
    ([(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))], body).into_response()
}

/// A request that is not answered, in the form of a Kubernetes `Status`.
#[derive(Debug)]
struct Failure {
    code: StatusCode,
    message: String,
}

impl Failure {
    fn new(code: StatusCode, message: String) -> Self {
        Self { code, message }
    }
}

impl From<Unavailable> for Failure {
    fn from(why: Unavailable) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, why.to_string())
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let status = json!({
            "kind": "Status", "apiVersion": "v1", "status": "Failure", "message": self.message,
            "reason": self.code.canonical_reason().unwrap_or_default().replace(' ', ""), "code": self.code.as_u16(),
        });
        let mut response = (self.code, json_of(&status)).into_response();
        if matches!(self.code, StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS) {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}
