//! The endpoint that explains the state of a workload.

use super::named_job::NamedJob;
use crate::api::access::{ObjectAccess, User, Verb};
use crate::api::response::error::{Error, Subject};
use crate::api::state::Api;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use meridian_manager_core::facts::key::Key;
use meridian_objects::Kind;
use serde::Deserialize;
use serde_json::Value;

#[derive(Debug, Deserialize)]
pub(super) struct WhyQuery {
    /// Kind of the job, if several have its name.
    kind: Option<String>,
}

pub(super) async fn why(
    State(api): State<Api>,
    Extension(user): Extension<User>,
    Path((namespace, name)): Path<(String, String)>,
    query: Result<Query<WhyQuery>, QueryRejection>,
) -> Result<Response, Error> {
    let Query(query) = query.map_err(|error| Error::BadRequest(error.body_text()))?;
    let named = NamedJob::of(api.handle.reads(), &user, &namespace, &name, query.kind.as_deref())?;
    // either permission is enough: a role may name jobs or workloads, and so may the request
    let workload = ObjectAccess::of_key(Verb::Get, &Key::namespaced(Kind::Workload, &namespace, &name));
    let may_read_workload = named.by_workload() && user.permissions().allows(&workload.access());
    if !(user.asker().may_name(named.job()) || may_read_workload) {
        user.check(&ObjectAccess::of_key(Verb::Get, named.job()).access())?;
    }
    Ok(Json(explain(&api, &user, &namespace, &named).await?).into_response())
}

/// The core's explanation of a job, as the user may read it. Fails if there is no such job, or if the manager
/// is unavailable.
pub(super) async fn explain(
    api: &Api,
    user: &User,
    namespace: &str,
    named: &NamedJob,
) -> Result<Value, Error> {
    let job = named.job();
    let missing = || Error::NotFound(Subject::new(job.kind, &job.name));
    let found = api.handle.explain(namespace, named.workload()?, user.asker()).await;
    found.map_err(|why| Error::Unavailable(why.to_string()))?.ok_or_else(missing)
}
