//! The source of jobs' logs.

use crate::agents::LogRelay;
use axum::body::Bytes;
use futures::StreamExt as _;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use meridian_shared::ids::ClusterName;
use meridian_shared::logs::LogRequest;
use std::io;

/// The bytes as the job wrote them; an error if the stream broke off.
pub type LogBytes = BoxStream<'static, io::Result<Bytes>>;

/// Reads logs through agents. If an agent goes away, requests are refused and streams break off; the client
/// must repeat them. Two requests for one log are two streams.
pub trait Logs: Send + Sync {
    /// Opens one log. The implementation chooses the request's `id`. The error says why there is no log.
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
