//! Installations that want the claim of one API server, which has its ClusterRole only.

use super::*;
use crate::engine_client;
use http::{Method, Request, Response};
use kube::client::Body;
use serde_json::Value;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::Instant;

/// The ClusterRole, and the verb that the account lacks.
#[derive(Clone, Debug, Default)]
struct Server {
    role: Arc<Mutex<Option<Value>>>,
    lacks: Option<Method>,
}

impl Server {
    /// As the chart makes the ClusterRole.
    fn of_chart() -> Self {
        let server = Self::default();
        server.set(Some(json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": {"name": NAME, "resourceVersion": "1"}, "rules": [],
        })));
        server
    }

    fn set(&self, role: Option<Value>) {
        *self.role.lock().unwrap() = role;
    }

    /// What the annotation says.
    fn claimed(&self) -> Option<String> {
        let role = self.role.lock().unwrap();
        role.as_ref()?["metadata"]["annotations"][ANNOTATION].as_str().map(str::to_owned)
    }

    /// As the command in the message does it.
    fn release(&self) {
        let mut role = self.role.lock().unwrap().clone().unwrap();
        role["metadata"]["annotations"] = json!({});
        role["metadata"]["resourceVersion"] = json!("released");
        self.set(Some(role));
    }

    fn claim(&self, namespace: &str, authority: &str) -> Claim {
        let server = self.clone();
        let client = engine_client(tower::service_fn(move |request| {
            let server = server.clone();
            async move { Ok::<_, Infallible>(server.answer(request).await) }
        }));
        let own = Owner {
            namespace: namespace.to_owned(),
            lease: "meridian-manager".to_owned(),
            authority: (!authority.is_empty()).then(|| authority.to_owned()),
        };
        Claim::new(client, own)
    }

    async fn answer(&self, request: Request<Body>) -> Response<Body> {
        let (parts, body) = request.into_parts();
        assert!(parts.uri.path().starts_with("/apis/rbac.authorization.k8s.io/v1/clusterroles"));
        if self.lacks.as_ref() == Some(&parts.method) {
            return failure(403, "Forbidden");
        }
        let body = body.collect_bytes().await.unwrap();
        let mut role = self.role.lock().unwrap();
        match (parts.method, &mut *role) {
            (Method::GET, None) => failure(404, "NotFound"),
            (Method::GET, Some(role)) => object(role),
            (Method::POST, Some(_)) => failure(409, "AlreadyExists"),
            (Method::POST, role) => {
                let mut made: Value = serde_json::from_slice(&body).unwrap();
                made["metadata"]["resourceVersion"] = json!("made");
                object(role.insert(made))
            }
            (Method::PATCH, Some(role)) => {
                let patch: Value = serde_json::from_slice(&body).unwrap();
                if patch["metadata"]["resourceVersion"] != role["metadata"]["resourceVersion"] {
                    return failure(409, "Conflict");
                }
                role["metadata"]["annotations"] = patch["metadata"]["annotations"].clone();
                role["metadata"]["resourceVersion"] = json!("claimed");
                object(role)
            }
            (method, _) => panic!("{method} isn't used"),
        }
    }
}

fn object(role: &Value) -> Response<Body> {
    Response::new(Body::from(role.to_string().into_bytes()))
}

fn failure(code: u16, reason: &str) -> Response<Body> {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": reason,
        "reason": reason, "code": code,
    });
    let mut response = object(&status);
    *response.status_mut() = code.try_into().unwrap();
    response
}

const FIRST: &str = "first/meridian-manager sha256:a";

async fn hold(claim: &Claim) -> Result<bool, Error> {
    claim.hold(&CancellationToken::new()).await
}

#[tokio::test(start_paused = true)]
async fn a_second_installation_is_refused_wherever_it_is() {
    let server = Server::of_chart();
    let first = server.claim("first", "sha256:a");
    assert!(hold(&first).await.unwrap());
    assert_eq!(server.claimed().as_deref(), Some(FIRST));
    // another namespace, another data directory, both, a copy elsewhere, and one that has never started
    for (namespace, authority) in
        [("second", "sha256:b"), ("first", "sha256:b"), ("second", "sha256:a"), ("second", ""), ("first", "")]
    {
        let second = server.claim(namespace, authority);
        let checked = second.check().await.unwrap_err();
        let refused = hold(&second).await.unwrap_err();
        assert!(checked.is_another_manager() && refused.is_another_manager() && !refused.is_lasting());
        let text = refused.to_string();
        for part in ["in namespace `first`", "kubectl annotate clusterrole meridian-management-cluster"] {
            assert!(text.contains(part), "{text}");
        }
        assert_eq!(server.claimed().as_deref(), Some(FIRST));
        assert!(second.lost().await.unwrap().unwrap().contains("in namespace `first`"));
    }
    assert_eq!(first.lost().await.unwrap(), None);
}

#[tokio::test(start_paused = true)]
async fn a_restart_and_a_restored_journal_keep_the_claim_without_a_wait() {
    let server = Server::of_chart();
    let first = server.claim("first", "sha256:a");
    first.check().await.unwrap();
    let began = Instant::now();
    assert!(hold(&first).await.unwrap());
    assert!(began.elapsed() >= DURATION, "another one may be acting still");
    let again = server.claim("first", "sha256:a");
    let began = Instant::now();
    again.check().await.unwrap();
    assert!(hold(&again).await.unwrap());
    assert_eq!((began.elapsed(), again.lost().await.unwrap()), (Duration::ZERO, None));
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_is_released_or_deleted_ends_its_managers_right() {
    let server = Server::of_chart();
    let (first, second) = (server.claim("first", "sha256:a"), server.claim("second", "sha256:b"));
    assert!(hold(&first).await.unwrap());
    server.release();
    assert!(first.lost().await.unwrap().unwrap().contains("no longer names this manager"));
    assert!(hold(&second).await.unwrap());
    assert!(hold(&first).await.unwrap_err().to_string().contains("in namespace `second`"));
    server.set(None);
    assert!(second.lost().await.unwrap().is_some());
    assert!(hold(&first).await.unwrap(), "an account that may makes the ClusterRole");
    assert_eq!(server.claimed().as_deref(), Some(FIRST));
}

/// Of two that find it free at once, one has it after the wait.
#[tokio::test(start_paused = true)]
async fn a_claim_that_is_taken_away_during_the_wait_does_not_count() {
    let server = Server::of_chart();
    let (first, second) = (server.claim("first", "sha256:a"), server.claim("second", "sha256:b"));
    assert!(first.take().await.unwrap());
    server.release();
    assert!(second.take().await.unwrap());
    assert!(first.take().await.unwrap_err().is_another_manager());
    assert!(!second.take().await.unwrap());
    let stop = CancellationToken::new();
    stop.cancel();
    server.release();
    assert!(!second.hold(&stop).await.unwrap(), "a stop ends the wait");
}

#[tokio::test]
async fn a_missing_right_is_named() {
    for (lacks, server) in [
        (Method::GET, Server::of_chart()),
        (Method::PATCH, Server::of_chart()),
        (Method::POST, Server::default()),
    ] {
        let verb = if lacks == Method::POST { "create".to_owned() } else { lacks.as_str().to_lowercase() };
        let server = Server { lacks: Some(lacks), ..server };
        let refused = server.claim("first", "sha256:a").take().await.unwrap_err().to_string();
        let named = format!("may not `{verb}` `clusterroles.rbac.authorization.k8s.io` `{NAME}`");
        assert!(refused.contains(&named), "{refused}");
    }
}
