//! The state of recovery, and operators' confirmations of recovery and of the rules.

use super::action;
use crate::api::access::{Endpoint, User};
use crate::api::response::error::Error;
use crate::api::state::Api;
use axum::body::Body;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use meridian_manager_core::facts::input::Operator;
use serde_json::Value;

pub(super) async fn get(State(api): State<Api>, Extension(user): Extension<User>) -> Result<Response, Error> {
    user.check_endpoint(Endpoint::Recovery, None)?;
    current(&api, &user).await
}

async fn current(api: &Api, user: &User) -> Result<Response, Error> {
    match api.handle.recovery(user.asker()).await {
        Value::Null => Err(Error::Unavailable(
            "the state of recovery is not known at the moment: try again in a moment".to_owned(),
        )),
        state => Ok(Json(state).into_response()),
    }
}

pub(super) async fn confirm(
    State(api): State<Api>,
    Extension(user): Extension<User>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Error> {
    user.check_endpoint(Endpoint::ConfirmRecovery, None)?;
    action::read_body(&headers, body).await?;
    action::perform(&api, &user, Operator::ConfirmRecovery).await?;
    current(&api, &user).await
}

pub(super) async fn confirm_rules(
    State(api): State<Api>,
    Extension(user): Extension<User>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Error> {
    user.check_endpoint(Endpoint::ConfirmRules, None)?;
    action::read_body(&headers, body).await?;
    action::done(action::perform(&api, &user, Operator::ConfirmRules).await?)
}
