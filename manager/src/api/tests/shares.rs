//! One caller's requests, bodies and watches leave room for those of others.

use super::*;
use crate::api::internal::ManagementCluster;
use axum::body::HttpBody;
use axum::http::header::{EXPECT, RETRY_AFTER};
use axum::response::Response;
use hyper::body::{Frame, SizeHint};
use std::pin::Pin;
use std::task::{Context, Poll};

const BULK: &str = "/meridian/v1/bulk";
/// More than any limit of one caller.
const MANY: usize = 2_000;

/// A body of a known size that never arrives.
struct StuckBody(u64);

impl HttpBody for StuckBody {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, std::io::Error>>> {
        Poll::Pending
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.0)
    }
}

/// A request whose client waits for permission to send its body.
fn stuck(rig: &Rig, token: &str, path: &str, bytes: u64) -> Request<Body> {
    let mut request = with(rig.request("POST", path, None), "authorization", &format!("Bearer {token}"));
    request.headers_mut().insert(EXPECT, HeaderValue::from_static("100-continue"));
    request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    *request.body_mut() = Body::new(StuckBody(bytes));
    request
}

/// Sends such requests until one is answered. Returns the others, which are in progress, and that answer.
async fn fill(rig: &Rig, path: &str, bytes: u64) -> (Vec<impl Future<Output = Response>>, Response) {
    let mut held = Vec::new();
    while held.len() < MANY {
        let mut sent = Box::pin(rig.send(stuck(rig, &rig.admin, path, bytes)));
        match futures::poll!(&mut sent) {
            Poll::Pending => held.push(sent),
            Poll::Ready(answer) => return (held, answer),
        }
    }
    panic!("{MANY} requests of one caller are in progress");
}

async fn as_controllers(rig: &Rig, path: &str) -> StatusCode {
    let mut request = rig.request("GET", path, None);
    request.extensions_mut().insert(ManagementCluster);
    rig.send(request).await.status()
}

#[tokio::test]
async fn one_caller_takes_neither_all_requests_nor_the_memory() {
    let rig = Rig::with_queue().await;
    for (path, bytes, most) in [(JOBS, 10, 256), (BULK, 32 << 20, 4)] {
        let (held, refused) = fill(&rig, path, bytes).await;
        assert_eq!((held.len(), refused.status()), (most, StatusCode::TOO_MANY_REQUESTS), "{path}");
        assert!(refused.headers().contains_key(RETRY_AFTER), "{path}");
        assert_eq!(rig.as_user(&rig.submitter, "GET", "/version", None).await.code, 200, "another user");
        assert_eq!(as_controllers(&rig, QUEUES).await, 200);
        drop(held);
        rig.apply(&[queue("q")]).await.ok();
    }
}

#[tokio::test]
async fn a_body_of_many_objects_is_read_only_for_users_that_may_write() {
    let rig = Rig::with_queue().await;
    for path in [BULK, "/meridian/v1/apply"] {
        let sent = rig.read(stuck(&rig, &rig.submitter, path, 32 << 20));
        let refused = tokio::time::timeout(DEADLINE, sent).await.expect("the body isn't waited for");
        let (code, _, message) = refused.failure();
        assert!(code == 403 && message.contains("User \"sam\" cannot write"), "{code}: {message}");
    }
    let roles = Rig::with_roles().await;
    let body = json!({"objects": [job("a")]});
    assert_eq!(roles.as_user(&roles.submitter, "POST", BULK, Some(&body)).await.code, 200);
}

#[tokio::test]
async fn one_caller_leaves_watches_to_others() {
    let rig = Rig::with_roles().await;
    let path = format!("{JOBS}?watch=true");
    let mut open = Vec::new();
    let refused = loop {
        let answer = rig.send(rig.request("GET", &path, None)).await;
        if answer.status() != StatusCode::OK || open.len() == MANY {
            break answer;
        }
        open.push(answer);
    };
    assert_eq!((open.len(), refused.status()), (500, StatusCode::TOO_MANY_REQUESTS));
    let other = with(rig.request("GET", &path, None), "authorization", &format!("Bearer {}", rig.submitter));
    assert_eq!(rig.send(other).await.status(), StatusCode::OK);
    assert_eq!(as_controllers(&rig, &path).await, StatusCode::OK);
    open.pop();
    assert_eq!(rig.send(rig.request("GET", &path, None)).await.status(), StatusCode::OK, "one was closed");
}
