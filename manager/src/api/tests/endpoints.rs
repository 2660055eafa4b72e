//! Meridian's own endpoints.

use super::*;
use meridian_manager_core::facts::audit::{Line, Verifier};

const CLUSTER: &str = "/apis/meridian.dev/v1alpha1/clusters/eu";

async fn joined(rig: &Rig) -> Value {
    rig.post(
        "/meridian/v1/clusters/eu/join-token",
        &json!({"region": "europe-west4", "jurisdiction": "EU", "ttl": "3600s", "replace": false}),
    )
    .await
    .ok()
}

#[tokio::test]
async fn a_join_token_comes_with_its_command() {
    let rig = Rig::new().await;
    let answer = joined(&rig).await;
    let (command, token) = (answer["command"].as_str().unwrap(), answer["token"].as_str().unwrap());
    assert!(token.starts_with("mj_") && command.contains(token), "{command}");
    // the token is not an argument of a process: `echo` is a builtin of shells
    let (echo, join) = command.split_once(" | ").unwrap();
    assert_eq!(echo, format!("echo {token}"));
    assert!(
        join.starts_with("meridian agent join --manager https://manager.example:7443 --ca-pin sha256:0909")
            && join.ends_with(" --token-file -"),
        "{command}"
    );
    assert!(answer["expires"].as_str().unwrap().parse::<jiff::Timestamp>().unwrap() > jiff::Timestamp::now());
    assert_eq!(rig.get(CLUSTER).await.ok()["spec"]["region"], "europe-west4");
    let lines = rig.get("/meridian/v1/audit").await.body.to_string();
    assert!(lines.contains("mint-token") && !lines.contains(token), "the token itself is stored nowhere");
    for wrong in [
        json!({"region": "r"}),
        json!({"region": "", "jurisdiction": "EU"}),
        json!({"region": "r; rm", "jurisdiction": "EU"}),
        json!({"region": "r", "jurisdiction": "EU", "ttl": "soon"}),
        json!({"region": "r", "jurisdiction": "EU", "ttl": "-1h"}),
        json!({"region": "r", "jurisdiction": "EU", "ttl": "9999h"}),
    ] {
        assert_eq!(rig.post("/meridian/v1/clusters/us/join-token", &wrong).await.failure().0, 400, "{wrong}");
    }
    let good = json!({"region": "r", "jurisdiction": "EU"});
    assert_eq!(rig.post("/meridian/v1/clusters/A%20b/join-token", &good).await.failure().0, 400);
}

#[tokio::test]
async fn operators_act_on_clusters() {
    let rig = Rig::new().await;
    joined(&rig).await;
    for (action, cordoned) in [("cordon", true), ("uncordon", false), ("drain", true)] {
        let answer =
            rig.post(&format!("/meridian/v1/clusters/eu/{action}"), &json!({"confirm": true})).await.ok();
        assert!(answer["message"].as_str().unwrap().contains("`eu`"), "{answer}");
        assert_eq!(rig.get(CLUSTER).await.ok()["spec"]["cordoned"], cordoned, "{action}");
    }
    assert_eq!(
        rig.read(rig.request("POST", "/meridian/v1/clusters/eu/cordon", None)).await.code,
        200,
        "a body may be left out"
    );
    let missing = rig.post("/meridian/v1/clusters/us/cordon", &json!({})).await;
    assert_eq!(missing.failure(), (404, "NotFound", "there is no cluster `us`"));
    for (body, code) in [(json!({}), 400), (json!({"confirm": "us"}), 400), (json!({"confirm": "eu"}), 200)] {
        assert_eq!(rig.post("/meridian/v1/clusters/eu/revoke", &body).await.code, code, "{body}");
    }
    let lines = rig.get("/meridian/v1/audit").await.body.to_string();
    assert!(lines.contains("revoke"), "{lines}");
    for (body, code) in [
        (json!({}), 400),
        (json!({"confirm": true}), 400),
        (json!({"confirm": "us"}), 400),
        (json!({"confirm": "eu", "ledger": 7}), 400),
        // the cluster never had a session, so nothing can run there
        (json!({"confirm": "eu"}), 409),
    ] {
        let answer = rig.post("/meridian/v1/clusters/eu/declare-lost", &body).await;
        assert_eq!(answer.failure().0, code, "{body}: {answer:?}");
    }
}

#[tokio::test]
async fn operators_confirm_recovery_and_rules() {
    let rig = Rig::new().await;
    assert_eq!(rig.get("/meridian/v1/recovery").await.ok()["open"], false);
    let closed = rig.post("/meridian/v1/recovery/confirm", &json!({"confirm": true})).await;
    assert_eq!((closed.failure().0, closed.failure().1), (409, "Conflict"));
    rig.post("/meridian/v1/rules/confirm", &json!({})).await.ok();
    let orphan =
        rig.post("/meridian/v1/orphans/00000000-0000-0000-0000-000000000001/1-2-3/stop", &json!({})).await;
    assert_eq!(orphan.failure().0, 404);
    assert_eq!(rig.post("/meridian/v1/rules/confirm", &json!([])).await.failure().0, 400);
}

#[tokio::test]
async fn a_pending_job_has_an_explanation_and_no_logs() {
    let rig = Rig::with_queue().await;
    rig.post(JOBS, &job("train")).await.ok();
    let why = rig.get("/meridian/v1/why/default/train").await.ok();
    assert_eq!((why["name"].as_str(), why["state"].as_str()), (Some("train"), Some("Pending")));
    let logs = rig.get("/meridian/v1/logs/default/train").await;
    assert!(logs.failure().0 == 409 && logs.failure().2.contains("has not run yet"), "{logs:?}");
    assert_eq!(rig.get("/meridian/v1/logs/default/absent").await.failure().0, 404);
    assert_eq!(rig.get("/meridian/v1/logs/default/train?pod=x").await.failure().0, 400);
    assert!(rig.requested_logs.lock().unwrap().is_empty());
}

#[tokio::test]
async fn the_audit_log_verifies_from_its_beginning() {
    let rig = Rig::with_queue().await;
    rig.apply(&[queue("a"), queue("b")]).await.ok();
    let response = rig.send(rig.request("GET", "/meridian/v1/audit?from=1", None)).await;
    assert_eq!(response.headers()["content-type"], "application/x-ndjson");
    let bytes = axum::body::to_bytes(response.into_body(), usize::MAX).await.unwrap();
    let mut verifier = Verifier::default();
    let lines: Vec<Line> = std::str::from_utf8(&bytes)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    lines.iter().for_each(|line| verifier.take(line).unwrap());
    assert_eq!(verifier.finish(None).unwrap().lines, lines.len() as u64);
    assert!(lines.len() >= 5);
    let tail = rig.get(&format!("/meridian/v1/audit?from={}", lines.len())).await.ok();
    assert_eq!(tail["number"], lines.len());
    assert_eq!(rig.get("/meridian/v1/audit?from=100000").await.ok(), Value::Null);
    assert_eq!(rig.get("/meridian/v1/audit?from=x").await.failure().0, 400);
}
