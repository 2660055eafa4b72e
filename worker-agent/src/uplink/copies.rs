//! Asks the manager for copies of objects of the management cluster. Separate from syncs.

use super::{Error, Link, link};
use futures::future::BoxFuture;
use meridian_agent_kubernetes::{CopyAsker, NotCopied};
use meridian_shared::copies::{COPIES_PATH, CopyAnswer, CopyRequest};
use meridian_shared::time::Millis;
use meridian_telemetry::with_causes;
use std::time::Duration;

/// Longest wait for an answer: less than the runner waits for the API server and the manager together.
const ANSWER_WITHIN: Millis = Millis::secs(12);
/// Largest answer. An object has at most 1 MiB, and characters may be escaped.
const ANSWER_BYTES_MAX: usize = 8 << 20;

/// The manager as the source of copies.
#[derive(Clone, Debug)]
pub struct CopyLink(Link);

impl CopyLink {
    pub fn new(link: Link) -> Self {
        Self(link)
    }
}

impl CopyAsker for CopyLink {
    fn ask(&self, request: CopyRequest) -> BoxFuture<'static, Result<CopyAnswer, NotCopied>> {
        let link = self.0.clone();
        Box::pin(async move {
            let limit = Duration::from_millis(ANSWER_WITHIN.0);
            let body = tokio::time::timeout(limit, post(&link, &request))
                .await
                .unwrap_or(Err(Error::Silent(ANSWER_WITHIN)))
                .map_err(not_copied)?;
            // The parser's error may have a part of the answer, so it is not passed on.
            serde_json::from_slice(&body)
                .map_err(|_| NotCopied::NoAnswer("the manager's answer can't be read".to_owned()))
        })
    }
}

async fn post(link: &Link, request: &CopyRequest) -> Result<Vec<u8>, Error> {
    let sending = link.client().post(link.url(COPIES_PATH)).json(request).send();
    link::body(sending.await.map_err(Error::Unreachable)?, ANSWER_BYTES_MAX).await
}

fn not_copied(error: Error) -> NotCopied {
    match error {
        Error::Locked(why) => NotCopied::Refused(why),
        Error::Status { status: 404, .. } => {
            NotCopied::Refused("the manager is of a version that copies nothing".to_owned())
        }
        other => NotCopied::NoAnswer(with_causes(&other)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::Router;
    use axum::http::StatusCode;
    use axum::routing::post;
    use meridian_shared::ids::{OfferId, Uid};

    /// Asks a manager that gives this answer to every request.
    async fn ask(status: StatusCode, body: &'static str) -> Result<CopyAnswer, NotCopied> {
        crate::install_crypto();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let app = Router::new().route(COPIES_PATH, post(async move || (status, body)));
        tokio::spawn(async move { axum::serve(listener, app).await });
        let link = Link::plain(&format!("http://{address}"), || {
            reqwest::Client::builder().no_proxy().build().expect("a client without settings")
        });
        let offer = OfferId { epoch: 1, leadership: 1, counter: 1 };
        CopyLink::new(link).ask(CopyRequest { uid: Uid(1), offer, fence: None, references: Vec::new() }).await
    }

    #[tokio::test]
    async fn a_refusal_is_final_and_no_answer_shows_content() {
        assert_eq!(ask(StatusCode::OK, r#"{"objects":[]}"#).await, Ok(CopyAnswer { objects: Vec::new() }));
        let refused = ask(StatusCode::FORBIDDEN, r#"{"message":"no offer"}"#).await;
        assert_eq!(refused, Err(NotCopied::Refused("no offer".to_owned())));
        let early = ask(StatusCode::NOT_FOUND, "").await.unwrap_err();
        assert!(matches!(&early, NotCopied::Refused(why) if why.contains("version")), "{early:?}");
        let away = ask(StatusCode::SERVICE_UNAVAILABLE, r#"{"message":"not leading"}"#).await.unwrap_err();
        assert!(matches!(&away, NotCopied::NoAnswer(why) if why.contains("not leading")), "{away:?}");
        let odd = ask(StatusCode::OK, r#"{"objects":[{"Content":"hunter2"}]}"#).await.unwrap_err();
        assert_eq!(odd.to_string(), "the manager's answer can't be read");
    }
}
