//! A job's output, through the agent of its cluster.

use super::named_job::NamedJob;
use super::why::explain;
use crate::api::access::{ObjectAccess, OpenStream, User};
use crate::api::logs::LogBytes;
use crate::api::response::error::Error;
use crate::api::state::{Api, LOGS_PER_CALLER_MAX};
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
use meridian_shared::logs::{ATTEMPT_HEADER, ATTEMPT_NUMBER_HEADER, LogRequest, STREAMS_MAX};
use serde::Deserialize;
use serde_json::Value;
use std::io;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

#[derive(Debug, Deserialize)]
pub(super) struct LogQuery {
    #[serde(default)]
    follow: bool,
    pod: Option<u32>,
    tail: Option<u64>,
    /// Number of an attempt, from 1.
    attempt: Option<u64>,
    /// The attempt before the newest one.
    #[serde(default)]
    previous: bool,
    /// Kind of the job, if several have its name.
    kind: Option<String>,
}

/// The attempt whose output to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wanted {
    Newest,
    Previous,
    Number(u64),
}

impl LogQuery {
    fn wanted(&self) -> Result<Wanted, Error> {
        match (self.attempt, self.previous) {
            (None, false) => Ok(Wanted::Newest),
            (None, true) => Ok(Wanted::Previous),
            (Some(number), false) => Ok(Wanted::Number(number)),
            (Some(_), true) => {
                Err(Error::BadRequest("`attempt` and `previous` exclude each other".to_owned()))
            }
        }
    }
}

/// An attempt whose output can be read.
#[derive(Clone, Debug, PartialEq)]
struct Attempt {
    number: u64,
    cluster: ClusterName,
    request: LogRequest,
}

pub(super) async fn logs(
    State(api): State<Api>,
    Extension(user): Extension<User>,
    Path((namespace, name)): Path<(String, String)>,
    query: Result<Query<LogQuery>, QueryRejection>,
) -> Result<Response, Error> {
    let Query(query) = query.map_err(|error| Error::BadRequest(error.body_text()))?;
    let named = NamedJob::of(api.handle.reads(), &user, &namespace, &name, query.kind.as_deref())?;
    let access = ObjectAccess::logs(named.job().kind, &namespace, &named.job().name);
    user.check(&access.access())?;
    let wanted = query.wanted()?;
    let explained = explain(&api, &user, &namespace, &named).await?;
    let attempts = attempts(&explained);
    if attempts.is_empty() {
        return Err(Error::Conflict(without_attempt(&explained, &namespace, &name)));
    }
    let Attempt { number, cluster, request } = select(attempts, wanted)
        .map_err(|why| Error::BadRequest(format!("job `{namespace}/{name}` {why}")))?;
    let request = LogRequest { pod: query.pod, follow: query.follow, tail_lines: query.tail, ..request };
    let attempt = request.fence.map(|fence| fence.to_string());
    let share = api.open_logs.take(&user.name, &cluster).map_err(|own| too_many(own, &cluster))?;
    let unavailable =
        |why: String| Error::Unavailable(format!("no logs available from cluster `{cluster}`: {why}"));
    let bytes = api.logs.open(cluster.clone(), request).await.map_err(unavailable)?;
    let right = lost(api.authority.open(&user, access));
    let mut response =
        Response::new(Body::from_stream(until(api.stop.clone(), right, bytes).inspect(move |_| {
            // the caller's share is in use until the stream ends
            let _ = &share;
        })));
    if let Some(Ok(attempt)) = attempt.map(HeaderValue::try_from) {
        response.headers_mut().insert(ATTEMPT_HEADER, attempt);
    }
    response.headers_mut().insert(ATTEMPT_NUMBER_HEADER, HeaderValue::from(number));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    Ok(response)
}

/// Refuses a user that has `own` open logs of the cluster another one.
fn too_many(own: usize, cluster: &ClusterName) -> Error {
    Error::Busy(match own {
        0 => format!("cluster `{cluster}` already sends {STREAMS_MAX} logs, which is the limit"),
        LOGS_PER_CALLER_MAX => format!("you have {own} open logs of cluster `{cluster}` already: close one"),
        _ => format!(
            "you have {own} open logs of cluster `{cluster}`, and the rest of its limit of {STREAMS_MAX} is \
             for other users: close one"
        ),
    })
}

/// Waits until the user may no longer read the log.
async fn lost(mut right: OpenStream) -> Error {
    loop {
        if let Err(error) = right.change().await {
            return error;
        }
    }
}

/// The log until it ends. If the manager stops first, or the right to read the log is lost, the stream ends
/// with an error, so that the client knows.
fn until(
    stop: CancellationToken,
    lost: impl Future<Output = Error> + Send + 'static,
    bytes: LogBytes,
) -> LogBytes {
    let (why, broken) = oneshot::channel();
    let end = async move {
        let error = tokio::select! {
            error = lost => error.to_string(),
            () = stop.cancelled() => "the manager is stopping".to_owned(),
        };
        // the receiver is in the same stream
        drop(why.send(error));
    };
    let broken = stream::once(async move { broken.await.ok().map(|why| Err(io::Error::other(why))) });
    bytes.take_until(end).chain(broken.filter_map(future::ready)).boxed()
}

/// Why a job without attempts has no output.
fn without_attempt(explained: &Value, namespace: &str, name: &str) -> String {
    let summary = text(explained, "/summary").unwrap_or_default();
    let never = if text(explained, "/state") == Some("Finished") { "never ran" } else { "has not run yet" };
    format!("job `{namespace}/{name}` {never}, so there are no logs: {summary}")
}

/// The attempts that the manager remembers, the oldest first.
fn attempts(explained: &Value) -> Vec<Attempt> {
    let (Some(uid), Some(history)) =
        (text(explained, "/uid").and_then(|uid| uid.parse().ok()), explained["history"].as_array())
    else {
        return Vec::new();
    };
    let count = history.len() as u64;
    let forgotten = explained["attempts"].as_u64().unwrap_or(count).saturating_sub(count);
    let attempt = |(number, attempt): (u64, &Value)| {
        let fence = text(attempt, "/fence")?.parse().ok();
        let request = LogRequest { id: 0, uid, fence, pod: None, follow: false, tail_lines: None };
        Some(Attempt { number, cluster: ClusterName::new(text(attempt, "/cluster")?), request })
    };
    (forgotten + 1..).zip(history).filter_map(attempt).collect()
}

/// The wanted one of a job's attempts. The error names the existing ones.
fn select(mut attempts: Vec<Attempt>, wanted: Wanted) -> Result<Attempt, String> {
    let (Some(first), Some(last)) = (attempts.first(), attempts.last()) else {
        return Err("has no attempt".to_owned());
    };
    let (first, last) = (first.number, last.number);
    let number = match wanted {
        Wanted::Newest => last,
        Wanted::Previous if last == 1 => {
            return Err("has no previous attempt: it was started once".to_owned());
        }
        Wanted::Previous => last - 1,
        Wanted::Number(number) => number,
    };
    attempts.retain(|attempt| attempt.number == number);
    attempts.pop().ok_or_else(|| {
        let known = if first == last {
            format!("its only one is {last}")
        } else {
            format!("it has {first} to {last}")
        };
        format!("has no attempt {number}: {known}")
    })
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
        let never = future::pending::<Error>;
        let ended: Vec<_> = until(CancellationToken::new(), never(), piece().boxed()).collect().await;
        assert!(matches!(ended.as_slice(), [Ok(_)]), "{ended:?}");
        let stop = CancellationToken::new();
        let mut log = until(stop.clone(), never(), piece().chain(stream::pending()).boxed());
        assert!(log.next().await.unwrap().is_ok());
        stop.cancel();
        assert!(log.next().await.unwrap().is_err());
        assert!(log.next().await.is_none());
        let revoked = future::ready(Error::Unauthorized);
        let mut log = until(CancellationToken::new(), revoked, stream::pending().boxed());
        assert!(log.next().await.unwrap().is_err() && log.next().await.is_none());
    }

    #[test]
    fn an_attempt_is_selected_by_its_number() {
        let uid = "00000000-0000-0000-0000-00000000000a";
        let attempt = |cluster: &str, fence: &str| {
            let (over, end) = (Value::Null, Value::Null);
            json!({"cluster": cluster, "fence": fence, "granted": 1, "over": over, "end": end})
        };
        let history = json!([attempt("eu", "1-2-3"), attempt("us", "1-2-4")]);
        let explained = json!({"uid": uid, "attempts": 2, "history": history});
        let selected = |wanted| {
            let selected = select(attempts(&explained), wanted)?;
            Ok::<_, String>((selected.number, selected.cluster.to_string(), selected.request))
        };
        let (number, cluster, request) = selected(Wanted::Newest).unwrap();
        assert_eq!((number, cluster.as_str(), request.uid), (2, "us", Uid(10)));
        assert_eq!(request.fence, Some(Fence { epoch: 1, leadership: 2, counter: 4 }));
        assert_eq!(selected(Wanted::Previous).unwrap().1, "eu");
        assert_eq!(selected(Wanted::Number(1)).unwrap().1, "eu");
        assert_eq!(selected(Wanted::Number(3)).unwrap_err(), "has no attempt 3: it has 1 to 2");
        // Only the newest attempts are remembered.
        let long = json!({"uid": uid, "attempts": 104, "history": history});
        assert_eq!(select(attempts(&long), Wanted::Newest).unwrap().number, 104);
        assert!(select(attempts(&long), Wanted::Number(1)).unwrap_err().ends_with("it has 103 to 104"));
        let once = json!({"uid": uid, "attempts": 1, "history": [attempt("eu", "1-2-3")]});
        assert!(select(attempts(&once), Wanted::Previous).unwrap_err().contains("no previous attempt"));
        assert!(attempts(&json!({"uid": uid, "history": []})).is_empty());
    }
}
