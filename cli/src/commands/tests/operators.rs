use super::*;

#[tokio::test]
async fn dangerous_actions_need_a_confirmation() {
    let fake = Fake::new([
        ("POST /meridian/v1/clusters/eu/admit", FakeAnswer::Json(200, json!({}))),
        ("POST /meridian/v1/clusters/eu/cordon", FakeAnswer::Json(200, json!({}))),
        (
            "GET /meridian/v1/recovery",
            FakeAnswer::Json(200, json!({"open": true, "restored": true, "rulesDoubted": "7"})),
        ),
        ("POST /meridian/v1/clusters/eu/declare-lost", FakeAnswer::Json(200, json!({}))),
        ("POST /meridian/v1/clusters/eu/revoke", FakeAnswer::Json(200, json!({}))),
        (
            "POST /meridian/v1/clusters/eu/join-token",
            FakeAnswer::Json(
                200,
                json!({"command": "meridian agent join x", "token": "t", "expires": "2026-11-21T11:00:00Z"}),
            ),
        ),
        (
            "GET /meridian/v1/recovery",
            FakeAnswer::Json(200, json!({"open": true, "restored": true, "rulesDoubted": "7"})),
        ),
        ("POST /meridian/v1/recovery/confirm", FakeAnswer::Json(200, json!({"open": false}))),
        ("POST /meridian/v1/rules/confirm", FakeAnswer::Json(200, json!({"message": "confirmed"}))),
        ("GET /meridian/v1/recovery", FakeAnswer::Json(200, json!({"open": false}))),
    ]);
    assert_eq!(
        run(&fake, &["cluster", "admit", "eu"], "").await.answers,
        "cluster.meridian.dev/eu admitted\n"
    );
    assert_eq!(
        run(&fake, &["cluster", "cordon", "eu"], "").await.answers,
        "cluster.meridian.dev/eu cordoned\n"
    );
    for line in [
        ["cluster", "declare-lost", "eu"].as_slice(),
        &["cluster", "declare-lost", "eu", "--confirm", "us"],
        &["cluster", "revoke", "eu"],
        &["cluster", "revoke", "eu", "--confirm", "us"],
        &["journal", "confirm"],
    ] {
        let ran = run(&fake, line, "").await;
        assert_eq!(ran.code(), 1);
        assert!(ran.error().starts_with("nothing was done: "), "{}", ran.error());
    }
    assert_eq!(
        run(&fake, &["cluster", "declare-lost", "eu", "--confirm", "eu", "--ledger", "l1"], "").await.answers,
        "cluster.meridian.dev/eu declared lost\n"
    );
    assert_eq!(
        run(&fake, &["cluster", "revoke", "eu", "--confirm", "eu"], "").await.answers,
        "cluster.meridian.dev/eu revoked\n"
    );
    let join = run(
        &fake,
        &["cluster", "join", "eu", "--region", "europe-west4", "--jurisdiction", "EU", "--ttl", "1h"],
        "",
    )
    .await;
    assert_eq!(join.answers, "meridian agent join x\n");
    // One confirmation covers both: no other copy writes, and the rules are current.
    assert_eq!(run(&fake, &["journal", "confirm", "--yes"], "").await.answers, "open: false\n");
    assert_eq!(request_body(&fake, 3), json!({"confirm": "eu", "ledger": "l1"}));
    assert_eq!(request_body(&fake, 4), json!({"confirm": "eu"}));
    assert_eq!(
        request_body(&fake, 5),
        json!({"region": "europe-west4", "jurisdiction": "EU", "ttl": "3600s", "replace": false})
    );
}

#[tokio::test]
async fn a_service_account_is_let_in_without_a_token() {
    let answer = json!({"message": "the service account of cluster `eu` may join"});
    let fake = Fake::new([("POST /meridian/v1/clusters/eu/join-token", FakeAnswer::Json(200, answer))]);
    let place = ["--region", "europe-west4", "--jurisdiction", "EU"];
    let line = [&["cluster", "join", "eu", "--replace", "--issuer"][..], &place].concat();
    let ran = run(&fake, &line, "").await;
    assert_eq!(ran.answers, "cluster.meridian.dev/eu open to its service account\n");
    let place = json!({"region": "europe-west4", "jurisdiction": "EU", "replace": true, "issuer": true});
    assert_eq!(request_body(&fake, 0), place);
}

#[tokio::test]
async fn a_confirmation_names_what_it_doesnt_answer_for() {
    let recovery = json!({
        "open": true, "restored": true, "rulesDoubted": null, "awaited": ["eu", "us"],
        "lostLedgers": {"us": "l7"},
        "held": {"fence": 2, "fenceUntil": "2026-11-26T00:20:00Z", "wait": 1, "workloads": [
            {"namespace": "ml", "name": "train", "onClusterLoss": "Fence", "until": "2026-11-26T00:15:01Z"},
            {"namespace": "ml", "name": "keep", "onClusterLoss": "Wait", "until": null},
        ]},
    });
    let fake = Fake::new([("GET /meridian/v1/recovery", FakeAnswer::Json(200, recovery))]);
    let asked = run(&fake, &["journal", "confirm"], "").await;
    assert!(asked.error().starts_with("nothing was done: "), "{}", asked.error());
    for line in [
        "to confirm: no other copy of this journal has a running manager\n",
        "haven't reported what they run: eu, us\n",
        "us reports, but lost its store: `meridian cluster declare-lost us --ledger l7 --confirm us`",
        "  ml/train: held until 2026-11-26T00:15:01Z (Fence)\n",
        "  ml/keep: held until all clusters have reported or are declared lost (Wait)\n",
        "  and 1 more, `Fence` until 2026-11-26T00:20:00Z at the latest, 1 in all with mode `Wait`\n",
    ] {
        assert!(asked.notes.contains(line), "{}", asked.notes);
    }
}

#[tokio::test]
async fn a_confirmation_of_rules_is_listed_without_an_open_recovery() {
    let recovery = |rules: Value| FakeAnswer::Json(200, json!({"open": false, "rulesDoubted": rules}));
    let fake = Fake::new([
        ("GET /meridian/v1/recovery", recovery(json!("7"))),
        ("GET /meridian/v1/recovery", recovery(json!(null))),
    ]);
    let asked = run(&fake, &["journal", "confirm"], "").await;
    let line = "to confirm: residency policies and quotas are current; until then no job starts\n";
    assert!(asked.notes == line && asked.error().starts_with("nothing was done: "), "{}", asked.notes);
    let nothing = run(&fake, &["journal", "confirm", "--yes"], "").await;
    assert!(nothing.error().starts_with("nothing to confirm: "), "{}", nothing.error());
}

#[tokio::test]
async fn rules_are_confirmed_for_clusters_that_are_away() {
    let doubted = json!({"open": true, "restored": false, "rulesDoubted": "7", "rulesAwaited": ["us"],
                         "awaited": ["us"], "held": {}});
    let fake = Fake::new([
        ("GET /meridian/v1/recovery", FakeAnswer::Json(200, doubted.clone())),
        ("GET /meridian/v1/recovery", FakeAnswer::Json(200, doubted)),
        ("POST /meridian/v1/rules/confirm", FakeAnswer::Json(200, json!({"message": "confirmed"}))),
        ("GET /meridian/v1/recovery", FakeAnswer::Json(200, json!({"open": true}))),
    ]);
    let asked = run(&fake, &["journal", "confirm"], "").await;
    let lines = "to confirm: residency policies and quotas are current; until then no job starts\n\
                 not needed once these clusters have reported: us\n";
    assert!(asked.notes.starts_with(lines), "{}", asked.notes);
    // Only time or a report ends the recovery of a journal that is no copy.
    assert_eq!(run(&fake, &["journal", "confirm", "--yes"], "").await.answers, "open: true\n");
}

#[tokio::test]
async fn orphans_are_listed_stopped_and_adopted() {
    const UID: &str = "00000000-0000-0000-0000-000000000001";
    let (older, newer) = (
        json!({"uid": UID, "fence": "1-2-9", "cluster": "eu", "job": "ml/train"}),
        json!({"uid": UID, "fence": "1-2-10", "cluster": "us"}),
    );
    let state = || ("GET /meridian/v1/recovery", FakeAnswer::Json(200, json!({"orphans": [older, newer]})));
    let fake = Fake::new([
        state(),
        (
            "POST /meridian/v1/orphans/00000000-0000-0000-0000-000000000001/1-2-9/stop",
            FakeAnswer::Json(200, json!({"message": "it is being stopped"})),
        ),
        state(),
        (
            "POST /meridian/v1/orphans/00000000-0000-0000-0000-000000000001/1-2-10/adopt",
            FakeAnswer::Json(200, json!({"message": "it is a job again"})),
        ),
        state(),
    ]);
    let listed = run(&fake, &["orphan", "list"], "").await.answers;
    assert_eq!(
        listed.lines().nth(1).unwrap().split_whitespace().collect::<Vec<_>>(),
        [UID, "1-2-9", "eu", "ml/train"]
    );
    assert_eq!(
        run(&fake, &["orphan", "stop", UID, "--fence", "1-2-9"], "").await.answers,
        "it is being stopped\n"
    );
    let spec = "spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}}";
    let job = &format!(
        "apiVersion: batch/v1\nkind: Job\n\
         metadata: {{name: train, labels: {{kueue.x-k8s.io/queue-name: q}}}}\n{spec}\n"
    );
    // Without `--fence`, the newest attempt's.
    assert_eq!(run(&fake, &["orphan", "adopt", UID, "-f", "-"], job).await.answers, "it is a job again\n");
    let two = run(
        &fake,
        &["orphan", "adopt", UID, "-f", "-"],
        &format!("{job}---\n{}", job.replace("train", "other")),
    )
    .await;
    assert!(two.error().contains("one job"), "{}", two.error());
    assert!(run(&fake, &["orphan", "stop", "nobody"], "").await.error().contains("no orphan `nobody`"));
}

/// The manager's last line if it can't read further records.
const DAMAGED_LOG: &str = "{\"kind\":\"Status\",\"code\":500,\"reason\":\"InternalError\",\
    \"message\":\"the audit log can't be read: line `2` of the audit log is missing\"}\n";

#[tokio::test]
async fn a_broken_audit_log_is_a_failure() {
    let key = || {
        let pem = "-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEAGb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE=\n\
                   -----END PUBLIC KEY-----\n";
        ("GET /meridian/v1/audit/key", FakeAnswer::Json(200, json!({"publicKey": pem})))
    };
    let log = |pieces| ("GET /meridian/v1/audit?seals=true", FakeAnswer::Stream(pieces));
    let fake = Fake::new([
        key(),
        log(vec![]),
        key(),
        log(vec!["{}\n"]),
        key(),
        log(vec!["{\"number\":1"]),
        key(),
        log(vec![DAMAGED_LOG]),
    ]);
    assert_eq!(run(&fake, &["audit", "verify"], "").await.answers, "the audit log is empty\n");
    let broken = run(&fake, &["audit", "verify"], "").await;
    assert_eq!(broken.code(), 1);
    assert!(
        broken.error().starts_with("line 1 of the input is not a line of an audit log"),
        "{}",
        broken.error()
    );
    let cut = run(&fake, &["audit", "verify"], "").await;
    assert!(cut.code() == 1 && cut.error().ends_with("it ends in the middle of a line"), "{}", cut.error());
    let damaged = run(&fake, &["audit", "verify"], "").await;
    assert_eq!(damaged.code(), 1);
    assert!(damaged.error().contains("line `2` of the audit log is missing"), "{}", damaged.error());
    assert_eq!(run(&fake, &["audit", "verify", "-", "--expect-head", "x"], "").await.code(), 2);
    assert_eq!(run(&fake, &["audit", "verify", "-"], "not json\n").await.code(), 1);
}

#[tokio::test]
async fn an_exported_log_says_from_which_line_it_is_kept() {
    let log = |line: &'static str| ("GET /meridian/v1/audit", FakeAnswer::Stream(vec![line]));
    let fake = Fake::new([log("{\"number\":7}\n"), log("{\"number\":1}\n"), log("{\"number\":7}\n")]);
    let export = run(&fake, &["audit", "export"], "").await;
    assert_eq!((export.code(), export.answers.as_str()), (0, "{\"number\":7}\n"));
    assert!(export.notes.contains("keeps the log from line 7 on"), "{}", export.notes);
    assert!(!run(&fake, &["audit", "export"], "").await.notes.contains("keeps"));
    assert!(!run(&fake, &["audit", "export", "--from", "7"], "").await.notes.contains("keeps"));
    let asked: Vec<String> = fake.requests().into_iter().map(|request| request.line).collect();
    assert_eq!(asked[0], "GET /meridian/v1/audit");
    assert_eq!(asked[2], "GET /meridian/v1/audit?from=7");
}

#[tokio::test]
async fn completions_and_version_are_printed() {
    let fake = Fake::new([]);
    for shell in ["bash", "zsh", "fish"] {
        let script = run(&fake, &["completion", shell], "").await.answers;
        assert!(script.contains("MERIDIAN_COMPLETE"), "{shell}: {script}");
    }
    assert_eq!(
        run(&fake, &["version"], "").await.answers,
        format!("meridian {}\n", env!("CARGO_PKG_VERSION"))
    );
}

#[tokio::test]
async fn describe_shows_a_clusters_resources_as_quantities() {
    let resources = json!({
        "cpu": {"capacity": 16_000, "free": 15_500},
        "memory": {"capacity": 64_424_509_440_i64, "free": 536_870_912},
    });
    let cluster = json!({
        "metadata": {"name": "eu"}, "spec": {"region": "europe-west4"},
        "status": {"state": "Connected", "sinceLastSyncMs": 2400, "resources": resources},
    });
    let fake = Fake::new([("GET ", FakeAnswer::Json(200, cluster))]);
    let answers = run(&fake, &["describe", "cluster", "eu"], "").await.answers;
    let expect = "\nResources:\nRESOURCE   CAPACITY   FREE\n\
                  cpu        16         15500m\nmemory     60Gi       512Mi\n";
    assert!(answers.ends_with(expect) && !answers.contains("536870912"), "{answers}");
    assert!(answers.contains("2s") && !answers.contains("2400"), "{answers}");
}
