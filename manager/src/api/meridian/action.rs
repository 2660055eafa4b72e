//! Operators' actions: their bodies, their inputs and their answers.

use crate::api::access::User;
use crate::api::request::body::{self, ACTION_BYTES_MAX};
use crate::api::response::error::Error;
use crate::api::state::Api;
use axum::Json;
use axum::body::Body;
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use meridian_manager_core::facts::input::{Input, Operator};
use meridian_manager_core::facts::outcome::Reply;
use serde_json::{Value, json};

/// The JSON object in an action's body. Without a body, an empty object.
pub(super) async fn read_body(headers: &HeaderMap, body: Body) -> Result<Value, Error> {
    body::must_be_json(headers)?;
    let bytes = body::read(headers, body, ACTION_BYTES_MAX).await?;
    match if bytes.is_empty() { json!({}) } else { body::json(&bytes)? } {
        Value::Object(fields) => Ok(Value::Object(fields)),
        _ => Err(Error::BadRequest("the body must be a JSON object".to_owned())),
    }
}

/// Performs an action; returns the core's message.
pub(super) async fn perform(api: &Api, user: &User, action: Operator) -> Result<String, Error> {
    match api.ask(Input::Operator { actor: user.actor(), action }).await? {
        Reply::Done(message) => Ok(message),
        Reply::Rejected(rejections) => Err(Error::refused(&rejections, &user.asker())),
        other => Err(Error::unexpected("an operator's action", &other)),
    }
}

/// The answer to an action that was performed.
pub(super) fn done(message: String) -> Result<Response, Error> {
    Ok(Json(json!({"message": message})).into_response())
}
