//! Asks the manager for the objects that were applied for this agent's cluster. Separate from syncs.

use super::{Error, Link, link};
use meridian_shared::cluster_objects::{CLUSTER_OBJECTS_PATH, ClusterObjects};
use meridian_shared::time::Millis;
use std::time::Duration;

/// Longest wait for an answer.
const ANSWER_WITHIN: Millis = Millis::secs(5);
/// Largest answer. A cluster has at most 100 pools.
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// Asks once. `None` if the manager's version lacks this endpoint. Fails without a readable answer.
pub async fn fetch(link: &Link) -> Result<Option<ClusterObjects>, Error> {
    let limit = Duration::from_millis(ANSWER_WITHIN.0);
    let asked = tokio::time::timeout(limit, get(link)).await.unwrap_or(Err(Error::Silent(ANSWER_WITHIN)));
    match asked {
        Ok(body) => serde_json::from_slice(&body).map(Some).map_err(Error::Unreadable),
        Err(Error::Status { status: 404, .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

async fn get(link: &Link) -> Result<Vec<u8>, Error> {
    let sending = link.client().get(link.url(CLUSTER_OBJECTS_PATH)).send();
    link::body(sending.await.map_err(Error::Unreachable)?, ANSWER_BYTES_MAX).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::Router;
    use axum::http::StatusCode;
    use axum::routing::get;

    /// Asks a manager that gives this answer.
    async fn ask(status: StatusCode, body: &'static str) -> Result<Option<ClusterObjects>, Error> {
        crate::install_crypto();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let app = Router::new().route(CLUSTER_OBJECTS_PATH, get(async move || (status, body)));
        tokio::spawn(async move { axum::serve(listener, app).await });
        let link = Link::plain(&format!("http://{address}"), || {
            reqwest::Client::builder().no_proxy().build().expect("a client without settings")
        });
        fetch(&link).await
    }

    #[tokio::test]
    async fn no_answer_is_not_an_empty_one() {
        let answered = ask(StatusCode::OK, r#"{"objects":["{}"]}"#).await.unwrap();
        assert_eq!(answered, Some(ClusterObjects { objects: vec!["{}".to_owned()] }));
        assert_eq!(ask(StatusCode::NOT_FOUND, "").await.unwrap(), None, "an older manager");
        let starting =
            ask(StatusCode::SERVICE_UNAVAILABLE, r#"{"message":"not leading"}"#).await.unwrap_err();
        assert!(matches!(starting, Error::Status { status: 503, .. }), "{starting:?}");
        assert!(matches!(ask(StatusCode::OK, "{").await.unwrap_err(), Error::Unreadable(_)));
    }
}
