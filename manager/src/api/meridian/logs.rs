//! A job's output, through the agent of its cluster.

use super::why::explain;
use crate::api::access::{self, Endpoint};
use crate::api::logs::LogBytes;
use crate::api::response::error::Error;
use crate::api::state::{Api, LOGS_PER_CALLER_MAX};
use crate::auth::User;
use axum::Extension;
use axum::body::Body;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::http::HeaderValue;
use axum::http::header::CONTENT_TYPE;
use axum::response::Response;
use futures::StreamExt as _;
use futures::future;
use futures::stream;
use meridian_shared::ids::ClusterName;
use meridian_shared::logs::{ATTEMPT_HEADER, LogRequest};
use serde::Deserialize;
use serde_json::Value;
use std::io;
use tokio_util::sync::CancellationToken;

#[derive(Debug, Deserialize)]
pub(super) struct LogQuery {
    #[serde(default)]
    follow: bool,
    pod: Option<u32>,
    tail: Option<u64>,
}

pub(super) async fn logs(
    State(api): State<Api>,
    Extension(user): Extension<User>,
    Path((namespace, name)): Path<(String, String)>,
    query: Result<Query<LogQuery>, QueryRejection>,
) -> Result<Response, Error> {
    access::check_endpoint(&user, Endpoint::Logs)?;
    let Query(query) = query.map_err(|error| Error::BadRequest(error.body_text()))?;
    let explained = explain(&api, &namespace, &name).await?;
    let Some((cluster, request)) = newest_attempt(&explained) else {
        let summary = text(&explained, "/summary").unwrap_or_default();
        return Err(Error::Conflict(format!(
            "job `{namespace}/{name}` has not run yet, so there are no logs: {summary}"
        )));
    };
    let request = LogRequest { pod: query.pod, follow: query.follow, tail_lines: query.tail, ..request };
    let attempt = request.fence.map(|fence| fence.to_string());
    let share = api.open_logs.take((user.name, cluster.clone()), 1).ok_or_else(|| {
        Error::Busy(format!(
            "you have {LOGS_PER_CALLER_MAX} open logs of cluster `{cluster}` already: close one"
        ))
    })?;
    let unavailable =
        |why: String| Error::Unavailable(format!("no logs available from cluster `{cluster}`: {why}"));
    let bytes = api.logs.open(cluster.clone(), request).await.map_err(unavailable)?;
    let mut response = Response::new(Body::from_stream(until(api.stop.clone(), bytes).inspect(move |_| {
        // the caller's share is in use as long as the stream
        let _ = &share;
    })));
    if let Some(Ok(attempt)) = attempt.map(HeaderValue::try_from) {
        response.headers_mut().insert(ATTEMPT_HEADER, attempt);
    }
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    Ok(response)
}

/// The log until it ends. If the manager stops first, the stream ends with an error, so that the client
/// knows.
fn until(stop: CancellationToken, bytes: LogBytes) -> LogBytes {
    let stopped = stop.clone();
    let broken = stream::once(async move {
        stopped.is_cancelled().then(|| Err(io::Error::other("the manager is stopping")))
    });
    bytes.take_until(async move { stop.cancelled().await }).chain(broken.filter_map(future::ready)).boxed()
}

/// The cluster of the newest attempt, and the request for its log.
fn newest_attempt(explained: &Value) -> Option<(ClusterName, LogRequest)> {
    let uid = text(explained, "/uid")?.parse().ok()?;
    let attempt = explained.get("history")?.as_array()?.last()?;
    let fence = text(attempt, "/fence")?.parse().ok();
    let request = LogRequest { id: 0, uid, fence, pod: None, follow: false, tail_lines: None };
    Some((ClusterName::new(text(attempt, "/cluster")?), request))
}

fn text<'v>(value: &'v Value, pointer: &str) -> Option<&'v str> {
    value.pointer(pointer)?.as_str()
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::Bytes;
    use meridian_shared::ids::{Fence, Uid};
    use serde_json::json;

    #[tokio::test]
    async fn a_stopping_manager_breaks_a_log_off() {
        let piece = || stream::iter([Ok(Bytes::from_static(b"a"))]);
        let ended: Vec<_> = until(CancellationToken::new(), piece().boxed()).collect().await;
        assert!(matches!(ended.as_slice(), [Ok(_)]), "{ended:?}");
        let stop = CancellationToken::new();
        let mut log = until(stop.clone(), piece().chain(stream::pending()).boxed());
        assert!(log.next().await.unwrap().is_ok());
        stop.cancel();
        assert!(log.next().await.unwrap().is_err());
        assert!(log.next().await.is_none());
    }

    #[test]
    fn the_newest_attempt_is_selected() {
        let uid = "00000000-0000-0000-0000-00000000000a";
        let attempt = |cluster: &str, fence: &str| {
            let (over, end) = (Value::Null, Value::Null);
            json!({"cluster": cluster, "fence": fence, "granted": 1, "over": over, "end": end})
        };
        let explained = json!({"uid": uid, "history": [attempt("eu", "1-2-3"), attempt("us", "1-2-4")]});
        let (cluster, request) = newest_attempt(&explained).unwrap();
        assert_eq!((cluster.as_str(), request.uid), ("us", Uid(10)));
        assert_eq!(request.fence, Some(Fence { epoch: 1, leadership: 2, counter: 4 }));
        assert_eq!(newest_attempt(&json!({"uid": uid, "history": []})), None);
    }
}
