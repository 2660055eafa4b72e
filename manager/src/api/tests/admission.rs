//! The webhook that a management cluster's API server asks.

use super::*;
use crate::api::{ADMISSION_PATH, admission_router};

const SECRET: &str = "s3cret";

/// What an API server sends about this object.
fn asked(object: Value, operation: &str) -> Value {
    json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {"uid": "r-1", "operation": operation, "object": object},
    })
}

/// A job as the management cluster has it.
fn stored(name: &str, queue: &str) -> Value {
    let mut job = job(name);
    job["metadata"]["namespace"] = json!("default");
    job["metadata"]["uid"] = json!("00000000-0000-0000-0000-0000000000aa");
    job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] = json!(queue);
    job["spec"]["suspend"] = json!(true);
    job
}

async fn send(rig: &Rig, secret: &str, review: &Value) -> (StatusCode, Value) {
    let request = Request::post(format!("{ADMISSION_PATH}{secret}"))
        .header(CONTENT_TYPE, "application/json")
        .body(Body::from(review.to_string()))
        .unwrap();
    let response = admission_router(rig.router.clone(), SECRET).oneshot(request).await.unwrap();
    let code = response.status();
    let bytes = axum::body::to_bytes(response.into_body(), 1 << 20).await.unwrap();
    (code, serde_json::from_slice(&bytes).unwrap_or_default())
}

async fn answer(rig: &Rig, object: Value, operation: &str) -> Value {
    let (code, answer) = send(rig, SECRET, &asked(object, operation)).await;
    assert_eq!(code, StatusCode::OK);
    assert_eq!(answer["response"]["uid"], "r-1");
    answer["response"].clone()
}

#[tokio::test]
async fn a_job_is_refused_in_the_words_of_a_submission() {
    let rig = Rig::with_queue().await;
    let allowed = answer(&rig, stored("train", "main"), "CREATE").await;
    assert_eq!(allowed["allowed"], true, "{allowed}");
    assert!(rig.names(JOBS).await.is_empty(), "a review stores nothing");
    let updated = answer(&rig, stored("train", "main"), "UPDATE").await;
    assert_eq!(updated["allowed"], true, "it isn't at the manager yet: {updated}");

    let mut wrong = stored("train", "main");
    wrong["spec"]["parallelism"] = json!(-1);
    let refused = answer(&rig, wrong, "CREATE").await;
    let message = refused["status"]["message"].as_str().unwrap();
    assert!(refused["allowed"] == false && message.contains("parallelism"), "{refused}");

    let late = answer(&rig, stored("train", "later"), "CREATE").await;
    let warning = late["warnings"][0].as_str().unwrap();
    assert!(late["allowed"] == true && warning.contains("no local queue `later`"), "{late}");

    let mut unqueued = stored("train", "main");
    unqueued["metadata"]["labels"] = json!({});
    assert_eq!(answer(&rig, unqueued, "CREATE").await["allowed"], true);
}

#[tokio::test]
async fn a_job_that_no_cluster_may_run_is_refused() {
    let rig = Rig::with_queue().await;
    let cluster = json!({
        "apiVersion": "meridian.dev/v1alpha1", "kind": "Cluster", "metadata": {"name": "us"},
        "spec": {"region": "us-east4", "jurisdiction": "US"},
    });
    let policy = json!({
        "apiVersion": "meridian.dev/v1alpha1", "kind": "ResidencyPolicy", "metadata": {"name": "not-us"},
        "spec": {"applies": {"namespaces": ["default"]}, "deny": {"clusters": ["us"]}},
    });
    rig.apply(&[cluster, policy]).await.ok();
    let refused = answer(&rig, stored("train", "main"), "CREATE").await;
    let message = refused["status"]["message"].as_str().unwrap();
    assert!(message.contains("no cluster of its queue may run this workload"), "{refused}");
    assert!(message.contains("residency policy `not-us`"), "{refused}");
}

#[tokio::test]
async fn an_unknown_path_is_not_answered() {
    let rig = Rig::with_queue().await;
    let review = asked(stored("train", "main"), "CREATE");
    for secret in ["", "wrong", "s3cre", "s3cret2"] {
        assert_eq!(send(&rig, secret, &review).await.0, StatusCode::NOT_FOUND, "{secret}");
    }
    let (code, _) = send(&rig, SECRET, &json!({"kind": "Other"})).await;
    assert_eq!(code, StatusCode::BAD_REQUEST);
}
