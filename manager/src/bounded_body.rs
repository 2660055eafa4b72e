//! Bodies of requests: read whole up to a limit, or drained if the request was refused before its body was
//! read.

use crate::held_body::{Held, HeldBody};
use axum::body::{Body, BodyDataStream, HttpBody};
use axum::extract::Request;
use axum::http::StatusCode;
use axum::http::header::EXPECT;
use axum::middleware::Next;
use axum::response::Response;
use bytes::{Bytes, BytesMut};
use futures::StreamExt as _;
use std::time::Duration;
use tokio::sync::oneshot;

/// Bytes of an oversized body that are read and dropped.
const DISCARDED_BYTES_MAX: usize = 64 << 20;
/// How long an oversized body is read and dropped.
const DISCARD_MAX: Duration = Duration::from_secs(10);

/// Bytes of an unread body that are read and dropped before a refusal: more than one object has, and less
/// than many objects.
const REFUSED_BYTES_MAX: usize = 4 << 20;
/// How long such a body is read and dropped.
const REFUSED_MAX: Duration = Duration::from_secs(5);

/// Why a body can't be used.
#[derive(Debug)]
pub(crate) enum BodyError {
    /// The body has more bytes than permitted.
    TooLarge,
    /// The body ended early.
    Broken(axum::Error),
}

/// Treatment of the rest of an oversized body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rest {
    /// The rest is read and dropped, because many clients don't look at the answer before they have sent
    /// everything. If the answer came at once, HTTP/2 would reset their streams, and HTTP/1.1 their
    /// connections, so they would never see the answer.
    Discarded,
    /// The rest isn't read: the client waits for permission to send, or is unknown.
    Unread,
}

/// Reads the whole body. Fails if it is larger than `most` bytes or broken off.
pub(crate) async fn read(body: Body, most: usize, rest: Rest) -> Result<Bytes, BodyError> {
    if body.size_hint().lower() > u64::try_from(most).unwrap_or(u64::MAX) {
        return Err(too_large(body, rest).await);
    }
    let (mut pieces, mut bytes) = (body.into_data_stream(), BytesMut::new());
    while let Some(piece) = pieces.next().await {
        let piece = piece.map_err(BodyError::Broken)?;
        if bytes.len() + piece.len() > most {
            return Err(leave(pieces, rest).await);
        }
        bytes.extend_from_slice(&piece);
    }
    Ok(bytes.freeze())
}

/// Handles a body that is too large by its `Content-Length`.
pub(crate) async fn too_large(body: Body, rest: Rest) -> BodyError {
    leave(body.into_data_stream(), rest).await
}

async fn leave(mut pieces: BodyDataStream, rest: Rest) -> BodyError {
    if rest == Rest::Discarded {
        discard(&mut pieces, DISCARDED_BYTES_MAX, DISCARD_MAX).await;
    }
    BodyError::TooLarge
}

/// Reads and drops a body, within bounds. The answer is the same even if the body is longer.
async fn discard(pieces: &mut BodyDataStream, bytes_max: usize, time_max: Duration) {
    let discarding = async {
        let mut discarded = 0;
        while let Some(Ok(piece)) = pieces.next().await
            && discarded <= bytes_max
        {
            discarded += piece.len();
        }
    };
    let _ = tokio::time::timeout(time_max, discarding).await;
}

/// Drains a body that a handler left unread when it refused the request, as with [`Rest::Discarded`].
/// Otherwise HTTP/2 resets the stream of a client that still sends, and the client never sees the refusal.
pub(crate) async fn drain_if_refused(request: Request, next: Next) -> Response {
    let (parts, body) = request.into_parts();
    if parts.headers.contains_key(EXPECT) || body.is_end_stream() {
        return next.run(Request::from_parts(parts, body)).await;
    }
    let (back, mut left) = oneshot::channel();
    let lent = HeldBody::wrap(body, Lender(Some(back)));
    let response = next.run(Request::from_parts(parts, lent)).await;
    let code = response.status();
    // don't wait longer for a body that was too slow
    let refused = (code.is_client_error() || code.is_server_error()) && code != StatusCode::REQUEST_TIMEOUT;
    if refused && let Ok(unread) = left.try_recv() {
        discard(&mut unread.into_data_stream(), REFUSED_BYTES_MAX, REFUSED_MAX).await;
    }
    response
}

/// Gives a body back to its owner if it is dropped before its end.
struct Lender(Option<oneshot::Sender<Body>>);

impl Held for Lender {
    fn on_drop(&mut self, body: &mut Body) {
        if let Some(back) = self.0.take().filter(|_| !body.is_end_stream()) {
            // a lender that has gone away needs no body
            let _ = back.send(std::mem::take(body));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::Router;
    use axum::routing::post;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use tower::ServiceExt as _;

    /// The number of KiB of a body of this many that were read when the answer came.
    async fn read_before_answer(path: &str, kibibytes: usize, header: Option<&'static str>) -> usize {
        let read = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&read);
        let body = futures::stream::iter(0..kibibytes).map(move |_| {
            counted.fetch_add(1, Ordering::Relaxed);
            Ok::<_, std::io::Error>(Bytes::from_static(&[b' '; 1 << 10]))
        });
        let router = Router::new()
            .route("/refused", post(|| async { StatusCode::FORBIDDEN }))
            .route("/taken", post(|| async { StatusCode::OK }))
            .route("/read", post(|bytes: Bytes| async move { bytes.len().to_string() }))
            .layer(axum::middleware::from_fn(drain_if_refused));
        let mut request = Request::post(path);
        if let Some(expect) = header {
            request = request.header(EXPECT, expect);
        }
        let response = router.oneshot(request.body(Body::from_stream(body)).unwrap()).await.unwrap();
        if path == "/read" {
            assert_eq!(axum::body::to_bytes(response.into_body(), 100).await.unwrap(), "102400");
        }
        read.load(Ordering::Relaxed)
    }

    #[tokio::test]
    async fn an_unread_body_is_drained_before_a_refusal() {
        assert_eq!(read_before_answer("/refused", 100, None).await, 100);
        assert_eq!(read_before_answer("/nowhere", 100, None).await, 100);
        assert_eq!(read_before_answer("/read", 100, None).await, 100);
        assert_eq!(
            read_before_answer("/taken", 100, None).await,
            0,
            "an answer without a refusal waits for none"
        );
        assert_eq!(read_before_answer("/refused", 100, Some("100-continue")).await, 0, "it isn't sent");
        let most = REFUSED_BYTES_MAX >> 10;
        assert!(read_before_answer("/refused", 2 * most, None).await <= most + 2, "within bounds");
    }

    /// Whether this much time has passed; timers count whole milliseconds.
    fn lasted(began: tokio::time::Instant, span: Duration) -> bool {
        (span..span + Duration::from_millis(2)).contains(&began.elapsed())
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_body_is_drained_for_a_bounded_time() {
        let slow = || {
            let seconds = futures::stream::repeat(Bytes::from_static(b" "));
            Body::from_stream(seconds.then(|byte| async move {
                tokio::time::sleep(Duration::from_secs(1)).await;
                Ok::<_, std::io::Error>(byte)
            }))
        };
        let silent = Body::from_stream(futures::stream::pending::<std::io::Result<Bytes>>());
        for body in [slow(), silent] {
            let router = Router::new()
                .route("/refused", post(|| async { StatusCode::FORBIDDEN }))
                .layer(axum::middleware::from_fn(drain_if_refused));
            let began = tokio::time::Instant::now();
            let response = router.oneshot(Request::post("/refused").body(body).unwrap()).await.unwrap();
            assert_eq!(response.status(), StatusCode::FORBIDDEN);
            assert!(lasted(began, REFUSED_MAX), "{:?}", began.elapsed());
        }
        let began = tokio::time::Instant::now();
        assert!(matches!(too_large(slow(), Rest::Unread).await, BodyError::TooLarge));
        assert_eq!(began.elapsed(), Duration::ZERO, "the rest isn't read");
        assert!(matches!(too_large(slow(), Rest::Discarded).await, BodyError::TooLarge));
        assert!(lasted(began, DISCARD_MAX), "{:?}", began.elapsed());
    }
}
