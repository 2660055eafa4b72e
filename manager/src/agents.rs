//! The HTTP endpoints of agents, behind the one TLS port.
//!
//! ```text
//! sync       POST /agent/v1/sync           one transmission; polls are parked until there is news
//! identity   POST /agent/v1/join, renew    certificates, for a join token or for the previous certificate
//! issuers    agents that join by their service account
//! admission  which certificates are accepted
//! logs       GET  /agent/v1/log-requests, POST /agent/v1/logs/{id}
//! copies     POST /agent/v1/copies         ConfigMaps and Secrets of the management cluster
//! cluster_objects
//!            GET  /agent/v1/cluster-objects  what was applied for the agent's cluster
//! log_relay  hands logs from agents to readers
//! budget     limits the requests of each agent
//! ```
//!
//! An agent speaks only for the cluster in its certificate. Text from agents is never trusted: it is cut and
//! cleaned, by the core where it is stored, and here where it is displayed. This module must not know what a
//! sync means: the core handles it.

mod admission;
mod budget;
mod cluster_objects;
mod copies;
mod identity;
mod issuers;
mod joins;
mod log_relay;
mod logs;
mod request;
mod state;
mod sync;

pub use admission::cut_void_connections;
pub use copies::CopySource;
pub use issuers::TrustedAgent;
pub use log_relay::{LogRelay, LogStream, NoLog};
pub use state::Parts;
pub use sync::SYNC_PATH;

use crate::bounded_body;
use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::middleware;
use axum::routing::{get, post};
use meridian_shared::cluster_objects::CLUSTER_OBJECTS_PATH;
use meridian_shared::copies::COPIES_PATH;
use meridian_shared::identity::{ISSUER_JOIN_PATH, JOIN_PATH, RENEW_PATH};
use meridian_shared::logs::REQUESTS_PATH;
use state::Agents;
use std::sync::Arc;

/// The routes of agents.
pub fn router(parts: Parts) -> Router {
    Router::new()
        .route(SYNC_PATH, post(sync::sync))
        .route(JOIN_PATH, post(identity::join))
        .route(ISSUER_JOIN_PATH, post(identity::join_by_issuer))
        .route(RENEW_PATH, post(identity::renew))
        .route(COPIES_PATH, post(copies::copies))
        .route(CLUSTER_OBJECTS_PATH, get(cluster_objects::cluster_objects))
        .route(REQUESTS_PATH, get(logs::requests))
        .route("/agent/v1/logs/{id}", post(logs::answer))
        // every handler limits its body itself, once it knows the sender
        .layer(DefaultBodyLimit::disable())
        .layer(middleware::from_fn(bounded_body::drain_if_refused))
        .with_state(Arc::new(Agents::new(parts)))
}
