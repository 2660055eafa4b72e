//! Why a workload is where it is.

use crate::api::access::{self, Endpoint};
use crate::api::response::error::{Error, Subject};
use crate::api::state::Api;
use crate::auth::User;
use crate::job_kinds;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use serde_json::Value;

pub(super) async fn why(
    State(api): State<Api>,
    Extension(user): Extension<User>,
    Path((namespace, name)): Path<(String, String)>,
) -> Result<Response, Error> {
    access::check_endpoint(&user, Endpoint::Why)?;
    Ok(Json(explain(&api, &namespace, &name).await?).into_response())
}

/// The core's explanation of the job or workload `name`. Fails if there is none, or if the manager is
/// unavailable.
pub(super) async fn explain(api: &Api, namespace: &str, name: &str) -> Result<Value, Error> {
    let missing = || Error::NotFound(Subject::new(job_kinds::DEFAULT, name));
    let found =
        api.handle.explain(namespace, name).await.map_err(|why| Error::Unavailable(why.to_string()))?;
    found.ok_or_else(missing)
}
