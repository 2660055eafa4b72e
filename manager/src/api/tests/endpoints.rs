//! Meridian's own endpoints.

use super::*;
use crate::audit::keeper::{Keeper, KeeperStep, Retention};
use crate::audit::key::PublicKey;
use crate::audit::proof::ChainProof;
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
async fn a_join_by_issuer_is_allowed_without_a_token() {
    let rig = Rig::new().await;
    let path = "/meridian/v1/clusters/eu/join-token";
    let mut body = json!({"region": "europe-west4", "jurisdiction": "EU", "issuer": true});
    let answer = rig.post(path, &body).await.ok();
    assert!(answer.get("token").is_none(), "{answer}");
    assert!(answer["message"].as_str().unwrap().contains("service account of cluster `eu` may join"));
    assert_eq!(rig.get(CLUSTER).await.ok()["spec"]["region"], "europe-west4");
    body["ttl"] = json!("1h");
    assert_eq!(rig.post(path, &body).await.failure().0, 400);
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
    assert_eq!(rig.get("/meridian/v1/logs/default/train?attempt=1&previous=true").await.failure().0, 400);
    assert!(rig.requested_logs.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_name_of_jobs_of_several_kinds_needs_the_kind() {
    let rig = Rig::with_queue().await;
    let mut set = job("train");
    let template = std::mem::take(&mut set["spec"]["template"]);
    let template = json!({"spec": {"template": template}});
    set["spec"] = json!({"replicatedJobs": [{"name": "workers", "replicas": 1, "template": template}]});
    (set["apiVersion"], set["kind"]) = (json!("jobset.x-k8s.io/v1alpha2"), json!("JobSet"));
    let sets = "/apis/jobset.x-k8s.io/v1alpha2/namespaces/default/jobsets";
    let set = rig.post(sets, &set).await.ok();
    // A JobSet is found by its name alone, and by its workload's.
    let workload = rig.get(&format!("{sets}/train")).await.ok()["status"]["meridian"]["workload"].clone();
    for name in ["train", workload.as_str().unwrap()] {
        let why = rig.get(&format!("/meridian/v1/why/default/{name}")).await.ok();
        assert_eq!((&why["name"], &why["uid"]), (&json!("train"), &set["metadata"]["uid"]));
    }
    assert_eq!(rig.get("/meridian/v1/why/default/train?kind=job").await.failure().0, 404);
    let job = rig.post(JOBS, &job("train")).await.ok();
    for path in ["/meridian/v1/why/default/train", "/meridian/v1/logs/default/train"] {
        let several = rig.get(path).await;
        let expect = "several jobs have this name: write `job/train` or `jobset/train`";
        assert_eq!(several.failure(), (409, "Conflict", expect));
        assert_eq!(rig.get(&format!("{path}?kind=queue")).await.failure().0, 400);
    }
    for (kind, made) in [("job", &job), ("jobset", &set)] {
        let why = rig.get(&format!("/meridian/v1/why/default/train?kind={kind}")).await.ok();
        assert_eq!(why["uid"], made["metadata"]["uid"], "{kind}");
        let logs = rig.get(&format!("/meridian/v1/logs/default/train?kind={kind}")).await;
        assert!(logs.failure().2.contains("has not run yet"), "{kind}: {logs:?}");
    }
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

/// Rotates the log as the manager does, until nothing is due. Returns the number of segments.
async fn rotate(rig: &Rig, segments_max: Option<u64>) -> u64 {
    let (engine, (_, directory, key)) = (rig.engine.clone(), &rig.audit);
    let (directory, key, runtime) = (directory.clone(), Arc::clone(key), tokio::runtime::Handle::current());
    let keep = move || {
        let retention = Retention { segment_bytes: 1_000, segments_max, bytes_max: None };
        let mut keeper = Keeper::new(directory, key, (engine.journal(), JournalId(1)), retention).unwrap();
        let mut cut = |cut| {
            runtime.block_on(engine.cut_audit(cut)).unwrap();
            Ok(())
        };
        while keeper.step(Wall(0), &mut cut).unwrap() != KeeperStep::Idle {}
        engine.journal().audit_cut().unwrap().segments
    };
    tokio::task::spawn_blocking(keep).await.unwrap()
}

#[tokio::test]
async fn a_rotated_log_is_served_whole_and_with_its_seals() {
    let rig = Rig::with_queue().await;
    for n in 0..10 {
        rig.apply(&[queue(&format!("q{n}"))]).await.ok();
    }
    let segments = rotate(&rig, None).await;
    assert!(segments >= 3, "{segments}");
    let text = |answer: Answer| answer.body.as_str().unwrap().to_owned();
    let lines = text(rig.get("/meridian/v1/audit").await);
    let numbers: Vec<u64> =
        lines.lines().map(|line| serde_json::from_str::<Line>(line).unwrap().number).collect();
    assert_eq!(numbers, (1..=numbers.len() as u64).collect::<Vec<_>>());
    let pem = rig.get("/meridian/v1/audit/key").await.ok()["publicKey"].as_str().unwrap().to_owned();
    let mut proof = ChainProof::new(None).trusting(vec![PublicKey::from_pem(&pem).unwrap()]);
    text(rig.get("/meridian/v1/audit?seals=true").await)
        .lines()
        .for_each(|line| proof.add_line(line.as_bytes()).unwrap());
    let proved = proof.finish().unwrap();
    assert_eq!((proved.segments, proved.head.unwrap().lines), (segments, numbers.len() as u64));
    // the log continues, also without segments that someone removed
    rig.apply(&[queue("later")]).await.ok();
    std::fs::remove_file(&rig.audit.1.segments().unwrap()[1].path).unwrap();
    let broken = text(rig.get("/meridian/v1/audit").await);
    assert!(broken.lines().last().unwrap().contains("of the audit log is missing"), "{broken}");
    assert_eq!(rig.get("/meridian/v1/audit/key").await.code, 200);
}

#[tokio::test]
async fn a_pruned_log_is_served_from_its_first_line_that_is_kept() {
    let rig = Rig::with_queue().await;
    for n in 0..10 {
        rig.apply(&[queue(&format!("q{n}"))]).await.ok();
    }
    let segments = rotate(&rig, None).await;
    std::fs::write(rig.audit.1.path().join("exported"), format!("{segments}\n")).unwrap();
    rotate(&rig, Some(1)).await;
    assert_eq!(rig.audit.1.segments().unwrap().len(), 1);
    let kept = rig.get("/meridian/v1/audit").await;
    assert_eq!(kept.code, 200);
    let lines = kept.body.as_str().unwrap().to_owned();
    let first = serde_json::from_str::<Line>(lines.lines().next().unwrap()).unwrap().number;
    assert!(first > 1 && kept.warnings()[0].contains(&format!("begins at line {first}")), "{kept:?}");
    let gone = rig.get("/meridian/v1/audit?from=1").await;
    assert_eq!((gone.failure().0, gone.failure().1), (410, "Gone"));
    assert!(gone.failure().2.contains(&format!("ask for lines from {first} on")), "{gone:?}");
    assert_eq!(rig.get(&format!("/meridian/v1/audit?from={first}")).await.body.as_str().unwrap(), lines);
}
