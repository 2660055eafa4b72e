//! Why a workload is where it is.

use crate::api::access::{ObjectAccess, User, Verb};
use crate::api::response::error::{Error, Subject};
use crate::api::state::Api;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use meridian_manager_core::facts::key::Key;
use meridian_objects::Kind;
use meridian_objects::job::JobKind;
use serde_json::Value;

pub(super) async fn why(
    State(api): State<Api>,
    Extension(user): Extension<User>,
    Path((namespace, name)): Path<(String, String)>,
) -> Result<Response, Error> {
    let key = |kind| Key::namespaced(kind, &namespace, &name);
    let job_kind = |name: &str| api.handle.reads().job_kind(&namespace, name);
    let job = ObjectAccess::of_key(Verb::Get, &key(job_kind(&name)));
    let workload = ObjectAccess::of_key(Verb::Get, &key(Kind::Workload));
    let may_read_workload = user.permissions().allows(&workload.access());
    if !may_read_workload {
        user.check(&job.access())?;
    }
    let explained = explain(&api, &user, &namespace, &name).await?;
    // a role may name jobs or workloads, and the name may be that of either
    let found = explained.get("name").and_then(Value::as_str).unwrap_or_default();
    let is_workload = found != name;
    let found = Key::namespaced(job_kind(found), &namespace, found);
    if !(user.asker().may_name(&found) || (is_workload && may_read_workload)) {
        user.check(&ObjectAccess::of_key(Verb::Get, &found).access())?;
    }
    Ok(Json(explained).into_response())
}

/// The core's explanation of the job or workload `name`, as the user may read it. Fails if there is none, or
/// if the manager is unavailable.
pub(super) async fn explain(api: &Api, user: &User, namespace: &str, name: &str) -> Result<Value, Error> {
    let missing = || Error::NotFound(Subject::new(JobKind::usual().kind(), name));
    let found = api.handle.explain(namespace, name, user.asker()).await;
    found.map_err(|why| Error::Unavailable(why.to_string()))?.ok_or_else(missing)
}
