//! The endpoint through which an agent gets copies of ConfigMaps and Secrets of the management cluster.
//!
//! The core decides which cluster may have which objects; their content comes from the management cluster.
//! The content is never stored, logged or traced here.

use super::request::{Failure, json_of, parsed, read};
use super::state::Agents;
use crate::tls::Peer;
use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use futures::future::BoxFuture;
use futures::{StreamExt, TryStreamExt};
use meridian_manager_core::facts::input::Input;
use meridian_manager_core::facts::outcome::{NoCopies, Reply};
use meridian_manager_core::state::certificates::CertificateUse;
use meridian_shared::copies::{CopyAnswer, CopyOutcome, CopyRequest};
use meridian_shared::protocol::Reference;
use std::fmt;
use std::sync::Arc;

/// Largest request in bytes: names only.
const BYTES_MAX: usize = 1 << 20;
/// Objects of one request that are read at the same time.
const READS_MAX: usize = 8;

/// Reads objects of the management cluster that may be copied.
pub trait CopySource: Send + Sync + fmt::Debug {
    /// Whether an object may be copied or, if so requested, its content. Fails with a message for users.
    fn read<'a>(
        &'a self,
        namespace: &'a str,
        reference: &'a Reference,
        with_content: bool,
    ) -> BoxFuture<'a, Result<CopyOutcome, String>>;
}

pub(super) async fn copies(
    State(agents): State<Arc<Agents>>,
    Extension(peer): Extension<Peer>,
    body: Body,
) -> Result<Response, Failure> {
    let agent = agents.admit(&peer, CertificateUse::Request).await?;
    let cluster = agent.cluster.clone();
    let _permit = agents.enter(&cluster)?;
    let request: CopyRequest = parsed(&read(body, BYTES_MAX).await?)?;
    let refused = |message: String| Failure::new(StatusCode::FORBIDDEN, message);
    let source = agents.parts.copies.as_deref().ok_or_else(|| {
        refused("this manager doesn't copy objects of a management cluster: set its `copy-references`".into())
    })?;
    let with_content = request.fence.is_some();
    if with_content && request.references.len() != 1 {
        let message = "the content of one object is sent at a time".to_owned();
        return Err(Failure::new(StatusCode::BAD_REQUEST, message));
    }
    agents.check(agent, CertificateUse::Request)?;
    let references = request.references.clone();
    let namespace = match agents.parts.engine.ask(Input::Copies { cluster, request }).await? {
        Reply::Copies(Ok(namespace)) => namespace,
        Reply::Copies(Err(why @ NoCopies::NotLeading)) => {
            return Err(Failure::new(StatusCode::SERVICE_UNAVAILABLE, why.to_string()));
        }
        Reply::Copies(Err(why)) => return Err(refused(why.to_string())),
        _ => {
            return Err(Failure::new(
                StatusCode::INTERNAL_SERVER_ERROR,
                "internal error: unexpected reply about copies: please report this".into(),
            ));
        }
    };
    // collect the reads first, because a closure over all lifetimes can't be sent to another thread
    let mut reads = Vec::with_capacity(references.len());
    for reference in &references {
        reads.push(source.read(&namespace, reference, with_content));
    }
    let objects = futures::stream::iter(reads)
        .buffered(READS_MAX)
        .try_collect()
        .await
        .map_err(|why| Failure::new(StatusCode::SERVICE_UNAVAILABLE, why))?;
    // don't send content if the certificate was revoked while it was read
    agents.check(agent, CertificateUse::Request)?;
    Ok(json_of(&CopyAnswer { objects }))
}
