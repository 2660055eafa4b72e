//! The API without a network, for the controllers of the management cluster.
//!
//! They use the same requests, checks and audit lines as every client. Only the user differs: it has no
//! token, and it sets the uids of its objects.

use axum::Router;
use axum::body::Body;
use axum::http::{Request, Response};
use std::convert::Infallible;
use std::task::{Context, Poll};
use tower::Service;

/// Marks a request of the management cluster. A request that arrives over a connection can't have this mark.
#[derive(Clone, Copy, Debug)]
pub(super) struct ManagementCluster;

/// The API as a service for the management cluster's controllers.
#[derive(Clone, Debug)]
pub struct InternalApi(Router);

impl InternalApi {
    /// Serves the routes of [`router`](super::router).
    pub fn new(router: Router) -> Self {
        Self(router)
    }
}

impl<B> Service<Request<B>> for InternalApi
where
    B: axum::body::HttpBody<Data = bytes::Bytes> + Send + 'static,
    B::Error: Into<axum::BoxError>,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = <Router as Service<Request<Body>>>::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Service::<Request<Body>>::poll_ready(&mut self.0, cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let mut request = request.map(Body::new);
        request.extensions_mut().insert(ManagementCluster);
        self.0.call(request)
    }
}
