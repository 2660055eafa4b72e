//! Bodies of requests, read whole up to a limit.

use axum::body::{Body, BodyDataStream, HttpBody as _};
use bytes::{Bytes, BytesMut};
use futures::StreamExt as _;
use std::time::Duration;

/// Bytes of an oversized body that are read and dropped.
const DISCARDED_BYTES_MAX: usize = 64 << 20;
/// How long an oversized body is read and dropped.
const DISCARD_MAX: Duration = Duration::from_secs(10);

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
    /// connections, so that they would never see why.
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

/// Leaves a body of which the head says that it is too large.
pub(crate) async fn too_large(body: Body, rest: Rest) -> BodyError {
    leave(body.into_data_stream(), rest).await
}

async fn leave(mut pieces: BodyDataStream, rest: Rest) -> BodyError {
    if rest == Rest::Discarded {
        let discarding = async {
            let mut discarded = 0;
            while let Some(Ok(piece)) = pieces.next().await
                && discarded <= DISCARDED_BYTES_MAX
            {
                discarded += piece.len();
            }
        };
        // whether all of it was read or not, the answer is the same
        let _ = tokio::time::timeout(DISCARD_MAX, discarding).await;
    }
    BodyError::TooLarge
}
