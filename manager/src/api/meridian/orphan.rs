//! Orphans: runs of unknown workloads. An operator stops them, or adopts them by submitting their job again.

use super::action;
use super::many::one_object;
use crate::api::access::{Endpoint, User};
use crate::api::request::body::{self, OBJECT_BYTES_MAX};
use crate::api::response::error::Error;
use crate::api::state::Api;
use axum::Extension;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::HeaderMap;
use axum::response::Response;
use meridian_manager_core::facts::input::Operator;
use meridian_shared::ids::{Fence, Uid};

pub(super) async fn stop(
    State(api): State<Api>,
    Extension(user): Extension<User>,
    Path(run): Path<(String, String)>,
) -> Result<Response, Error> {
    user.check_endpoint(Endpoint::StopOrphan, Some(&run.0))?;
    let (uid, fence) = named(&run)?;
    action::done(action::perform(&api, &user, Operator::StopOrphan { uid, fence }).await?)
}

/// Adopts an orphan. The body is its job, as it was submitted.
pub(super) async fn adopt(
    State(api): State<Api>,
    Extension(user): Extension<User>,
    Path(run): Path<(String, String)>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Error> {
    user.check_endpoint(Endpoint::AdoptOrphan, Some(&run.0))?;
    let (uid, fence) = named(&run)?;
    body::must_be_json(&headers)?;
    let bytes = body::read(&headers, body, OBJECT_BYTES_MAX).await?;
    let job = Box::new(one_object(&bytes)?);
    action::done(action::perform(&api, &user, Operator::AdoptOrphan { uid, fence, job }).await?)
}

fn named((uid, fence): &(String, String)) -> Result<(Uid, Fence), Error> {
    let uid = uid.parse().map_err(|_| Error::BadRequest(format!("`{uid}` is not a uid")))?;
    let fence = fence.parse().map_err(|_| Error::BadRequest(format!("`{fence}` is not a fence")))?;
    Ok((uid, fence))
}
