//! A body that owns a value, such as a permit, until it is read to its end or dropped.

use axum::body::{Body, HttpBody};
use bytes::Bytes;
use hyper::body::{Frame, SizeHint};
use std::pin::Pin;
use std::task::{Context, Poll};

/// A value that a body owns.
pub(crate) trait Held: Send + Unpin + 'static {
    /// Called when the body is dropped, perhaps before its end.
    fn on_drop(&mut self, _body: &mut Body) {}
}

/// A body with the value that it owns.
pub(crate) struct HeldBody<H: Held> {
    body: Body,
    held: H,
}

impl<H: Held> HeldBody<H> {
    /// The same body; `held` is dropped with it.
    pub(crate) fn wrap(body: Body, held: H) -> Body {
        Body::new(Self { body, held })
    }
}

impl<H: Held> HttpBody for HeldBody<H> {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl<H: Held> Drop for HeldBody<H> {
    fn drop(&mut self) {
        self.held.on_drop(&mut self.body);
    }
}
