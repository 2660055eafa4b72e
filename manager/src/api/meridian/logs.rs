//! A job's output, through the agent that has it.

use super::explain;
use crate::agents::LogRelay;
use crate::api::Api;
use crate::api::access::{self, Own};
use crate::api::error::Error;
use crate::auth::User;
use axum::Extension;
use axum::body::{Body, Bytes};
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::http::HeaderValue;
use axum::http::header::CONTENT_TYPE;
use axum::response::Response;
use futures::StreamExt as _;
use futures::future::{self, BoxFuture};
use futures::stream::{self, BoxStream};
use meridian_shared::ids::ClusterName;
use meridian_shared::logs::{ATTEMPT_HEADER, LogRequest};
use serde::Deserialize;
use serde_json::Value;
use std::io;
use tokio_util::sync::CancellationToken;

/// The bytes as they were printed; an error where the stream broke off.
pub type LogBytes = BoxStream<'static, io::Result<Bytes>>;

/// Asks agents for logs. A request may be lost with its agent: then it is refused or breaks off, and asking again is the
/// asker's. Two requests for one log are two streams.
pub trait Logs: Send + Sync {
    /// Opens one log, whose request's `id` is chosen there; an error says in words why there is none.
    fn open(&self, cluster: ClusterName, request: LogRequest) -> BoxFuture<'_, Result<LogBytes, String>>;
}

impl Logs for LogRelay {
    fn open(&self, cluster: ClusterName, request: LogRequest) -> BoxFuture<'_, Result<LogBytes, String>> {
        Box::pin(async move {
            let stream = self.begin(&cluster, request).await.map_err(|why| why.to_string())?;
            Ok(stream.boxed())
        })
    }
}

#[derive(Debug, Deserialize)]
pub(super) struct Asked {
    #[serde(default)]
    follow: bool,
    pod: Option<u32>,
    tail: Option<u64>,
}

pub(super) async fn logs(
    State(api): State<Api>,
    Extension(user): Extension<User>,
    Path((namespace, name)): Path<(String, String)>,
    asked: Result<Query<Asked>, QueryRejection>,
) -> Result<Response, Error> {
    access::own(&user, Own::Logs)?;
    let Query(asked) = asked.map_err(|error| Error::BadRequest(error.body_text()))?;
    let explained = explain(&api, &namespace, &name).await?;
    let Some((cluster, request)) = newest_attempt(&explained) else {
        let summary = text(&explained, "/summary").unwrap_or_default();
        return Err(Error::Conflict(format!(
            "job `{namespace}/{name}` has not run yet, so there are no logs: {summary}"
        )));
    };
    let request = LogRequest { pod: asked.pod, follow: asked.follow, tail_lines: asked.tail, ..request };
    let attempt = request.fence.map(|fence| fence.to_string());
    let unavailable =
        |why: String| Error::Unavailable(format!("the logs can't be had from cluster `{cluster}`: {why}"));
    let bytes = api.logs.open(cluster.clone(), request).await.map_err(unavailable)?;
    let mut response = Response::new(Body::from_stream(until(api.stop.clone(), bytes)));
    if let Some(Ok(attempt)) = attempt.map(HeaderValue::try_from) {
        response.headers_mut().insert(ATTEMPT_HEADER, attempt);
    }
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    Ok(response)
}

/// The log until it ends, or breaks off because this manager ends: a reader must know the one from the other.
fn until(stop: CancellationToken, bytes: LogBytes) -> LogBytes {
    let stopped = stop.clone();
    let broken =
        stream::once(
            async move { stopped.is_cancelled().then(|| Err(io::Error::other("the manager ends"))) },
        );
    bytes.take_until(async move { stop.cancelled().await }).chain(broken.filter_map(future::ready)).boxed()
}

/// Which cluster has, or had, the newest attempt; and what to ask of it.
fn newest_attempt(explained: &Value) -> Option<(ClusterName, LogRequest)> {
    let uid = text(explained, "/uid")?.parse().ok()?;
    let stay = explained.get("history")?.as_array()?.last()?;
    let fence = text(stay, "/fence")?.parse().ok();
    let request = LogRequest { id: 0, uid, fence, pod: None, follow: false, tail_lines: None };
    Some((ClusterName::new(text(stay, "/cluster")?), request))
}

fn text<'v>(value: &'v Value, pointer: &str) -> Option<&'v str> {
    value.pointer(pointer)?.as_str()
}

#[cfg(test)]
mod tests {
    use super::*;
    use meridian_shared::ids::{Fence, Uid};
    use serde_json::json;

    #[tokio::test]
    async fn a_manager_that_ends_breaks_logs_off_and_does_not_end_them() {
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
    fn the_newest_attempt_is_asked() {
        let uid = "00000000-0000-0000-0000-00000000000a";
        let stay = |cluster: &str, fence: &str| json!({"cluster": cluster, "fence": fence, "granted": 1, "over": null, "end": null});
        let explained = json!({"uid": uid, "history": [stay("eu", "1-2-3"), stay("us", "1-2-4")]});
        let (cluster, request) = newest_attempt(&explained).unwrap();
        assert_eq!((cluster.as_str(), request.uid), ("us", Uid(10)));
        assert_eq!(request.fence, Some(Fence { epoch: 1, leadership: 2, counter: 4 }));
        assert_eq!(newest_attempt(&json!({"uid": uid, "history": []})), None);
    }
}
