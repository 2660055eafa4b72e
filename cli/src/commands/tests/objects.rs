use super::*;

#[tokio::test]
async fn apply_sends_one_request_and_shows_each_result() {
    let fake = Fake::new([(
        "POST /meridian/v1/apply",
        FakeAnswer::Json(
            200,
            json!({"results": [
                {"kind": "ClusterQueue", "namespace": null, "name": "dws", "result": "unchanged"},
                {"kind": "LocalQueue", "namespace": "default", "name": "gpus", "result": "created"},
            ], "warnings": ["the cluster `eu` is not joined yet"]}),
        ),
    )]);
    let ran =
        run(&fake, &["apply", "-f", "-", "--cluster", "eu"], &format!("{CLUSTER_QUEUE}{LOCAL_QUEUE}")).await;
    assert_eq!(ran.code(), 0, "{:?}", ran.result);
    assert_eq!(
        ran.answers,
        "clusterqueue.kueue.x-k8s.io/dws unchanged\nlocalqueue.kueue.x-k8s.io/gpus created\n"
    );
    assert_eq!(ran.notes, "warning: the cluster `eu` is not joined yet\n");
    let body = request_body(&fake, 0);
    assert_eq!((&body["cluster"], &body["dryRun"]), (&json!("eu"), &json!(false)));
    assert_eq!(body["objects"][1]["metadata"]["namespace"], "default");
}

#[tokio::test]
async fn apply_shows_the_managers_problems_with_their_lines() {
    let causes = json!([
        {"field": "objects[1].spec.clusterQueue", "message": "there is no cluster queue `dws`"},
        {"field": "objects[0]", "message": "doesn't fit"},
    ]);
    let refusal = || {
        FakeAnswer::Json(
            422,
            json!({
                "message": "2 of 2 objects are invalid", "reason": "Invalid", "details": {"causes": causes},
            }),
        )
    };
    let fake = Fake::new([("POST /meridian/v1/apply", refusal())]);
    let ran = run(&fake, &["apply", "-f", "-"], &format!("{CLUSTER_QUEUE}{LOCAL_QUEUE}")).await;
    assert_eq!(ran.code(), 1);
    assert_eq!(
        ran.error(),
        "the manager refused (422 Invalid)\n\
         <stdin>:12:22: `localqueue/default/gpus`: spec.clusterQueue: there is no cluster queue `dws`\n\
         <stdin>:1:1: `clusterqueue/dws`: doesn't fit\n\
         2 problems found; nothing was applied"
    );
}

#[tokio::test]
async fn wrong_files_send_no_request() {
    let fake = Fake::new([]);
    let broken = run(&fake, &["apply", "-f", "-"], &format!("{LOCAL_QUEUE}---\nkind: Cluster\n")).await;
    assert_eq!(broken.code(), 1);
    assert!(
        broken.error().contains("<stdin>:") && broken.error().ends_with("nothing was applied"),
        "{}",
        broken.error()
    );
    let generated = run(&fake, &["apply", "-f", "-"], JOB).await;
    assert!(generated.error().contains("use `create -f`"), "{}", generated.error());
    let elsewhere = run(
        &fake,
        &["apply", "-f", "-", "-n", "b"],
        &LOCAL_QUEUE.replace("{name: gpus}", "{name: gpus, namespace: a}"),
    )
    .await;
    assert!(elsewhere.error().contains("is in namespace `a`, not `b`"), "{}", elsewhere.error());
    assert!(fake.requests().is_empty());
}

#[tokio::test]
async fn create_shows_generated_names_and_continues_after_a_failure() {
    let fake = Fake::new([
        (
            "POST /apis/kueue.x-k8s.io/v1beta2/namespaces/research/localqueues",
            FakeAnswer::Json(
                409,
                json!({"message": "localqueues \"gpus\" already exists", "reason": "AlreadyExists"}),
            ),
        ),
        (
            "POST /apis/batch/v1/namespaces/research/jobs",
            FakeAnswer::Json(201, json!({"metadata": {"name": "dws-job-x7k2p", "namespace": "research"}})),
        ),
    ]);
    let ran = run(&fake, &["create", "-f", "-", "-n", "research"], &format!("{LOCAL_QUEUE}{JOB}")).await;
    assert_eq!((ran.code(), ran.answers.as_str()), (1, "job.batch/dws-job-x7k2p created\n"));
    assert!(ran.notes.contains("already exists (409 AlreadyExists)"), "{}", ran.notes);
    assert_eq!(request_body(&fake, 1)["metadata"]["generateName"], "dws-job-");
}

#[tokio::test]
async fn create_shows_the_managers_problems_with_their_lines() {
    let causes = json!([
        {"field": "metadata.labels[kueue.x-k8s.io/queue-name]", "message": "there is no local queue `gpus`"},
        {"field": "", "message": "doesn't fit"},
    ]);
    let refusal = json!({
        "message": "Job.batch \"dws-job-x7k2p\" is invalid", "reason": "Invalid",
        "details": {"causes": causes},
    });
    let fake = Fake::new([("POST /apis/batch/v1/namespaces/default/jobs", FakeAnswer::Json(422, refusal))]);
    let ran = run(&fake, &["create", "-f", "-"], JOB).await;
    assert_eq!(ran.code(), 1);
    assert_eq!(
        ran.notes,
        "error: <stdin>:4:72: `job/default/dws-job-*`: metadata.labels[kueue.x-k8s.io/queue-name]: there is \
         no local queue `gpus`\n\
         error: <stdin>:2:1: `job/default/dws-job-*`: doesn't fit\n"
    );
}

#[tokio::test]
async fn the_managers_warnings_are_shown_with_their_lines() {
    let made = |kind: &str, name: &str| json!({"kind": kind, "metadata": {"name": name}});
    let fake = Fake::new([
        (
            "POST /apis/kueue.x-k8s.io/v1beta2/namespaces/default/localqueues",
            FakeAnswer::Warned(
                made("LocalQueue", "gpus"),
                "299 - \"spec.clusterQueue: \\\"dws\\\" is not there yet\"",
            ),
        ),
        (
            "POST /apis/batch/v1/namespaces/default/jobs",
            FakeAnswer::Warned(made("Job", "dws-job-x7k2p"), "299 - \"no cluster can run it\""),
        ),
    ]);
    let ran = run(&fake, &["create", "-f", "-", "-o", "json"], &format!("{LOCAL_QUEUE}{JOB}")).await;
    assert_eq!(ran.code(), 0, "{:?}", ran.result);
    let place = "<stdin>:5:22: `localqueue/default/gpus`";
    let expect = format!(
        "warning: {place}: spec.clusterQueue: \"dws\" is not there yet\n\
         warning: <stdin>:7:1: `job/default/dws-job-*`: no cluster can run it\n"
    );
    assert_eq!(ran.notes, expect);
    let list: Value = serde_json::from_str(&ran.answers).unwrap();
    assert_eq!(
        (&list["kind"], &list["items"][1]["metadata"]["name"]),
        (&json!("List"), &json!("dws-job-x7k2p"))
    );

    let warnings =
        ["localqueue/default/gpus: spec.clusterQueue: is not there yet", "clusterqueue/elsewhere: is odd"];
    let fake = Fake::new([(
        "POST /meridian/v1/apply",
        FakeAnswer::Json(200, json!({"results": [], "warnings": warnings})),
    )]);
    let ran = run(&fake, &["apply", "-f", "-"], LOCAL_QUEUE).await;
    assert_eq!(
        ran.notes,
        format!(
            "warning: {place}: spec.clusterQueue: is not there yet\nwarning: clusterqueue/elsewhere: is odd\n"
        )
    );

    let warned = FakeAnswer::Warned(made("Job", "x"), "299 - \"no cluster can run it\"");
    let fake = Fake::new([("POST ", warned)]);
    let ran = run(&fake, &["submit", "--queue", "q", "--name", "x", "--", "true"], "").await;
    assert_eq!(ran.notes, "warning: `job/default/x`: no cluster can run it\n");
}

#[tokio::test]
async fn describe_prints_several_objects_as_one_document() {
    let object = |name: &str| FakeAnswer::Json(200, json!({"metadata": {"name": name}}));
    let (a, b) = (
        "GET /apis/kueue.x-k8s.io/v1beta2/clusterqueues/a",
        "GET /apis/kueue.x-k8s.io/v1beta2/clusterqueues/b",
    );
    let fake = Fake::new([
        (a, object("a")),
        (b, object("b")),
        (a, object("a")),
        (b, FakeAnswer::Json(404, json!({"message": "not found"}))),
    ]);
    let list: Value =
        serde_json::from_str(&run(&fake, &["describe", "cq", "a", "b", "-o", "json"], "").await.answers)
            .unwrap();
    assert_eq!((&list["kind"], &list["items"][1]["metadata"]["name"]), (&json!("List"), &json!("b")));
    let missing = run(&fake, &["describe", "cq", "a", "b", "-o", "json"], "").await;
    let one: Value = serde_json::from_str(&missing.answers).unwrap();
    assert_eq!((missing.code(), &one["metadata"]["name"]), (1, &json!("a")));
}

#[tokio::test]
async fn delete_waits_until_the_gang_has_stopped() {
    let job =
        json!({"metadata": {"name": "train", "namespace": "default", "uid": "u1", "resourceVersion": "4"}});
    let event = format!("{}\n", json!({"type": "DELETED", "object": job}));
    let fake = Fake::new([
        ("DELETE /apis/batch/v1/namespaces/default/jobs/train", FakeAnswer::Json(200, job.clone())),
        (
            "GET /apis/batch/v1/namespaces/default/jobs?fieldSelector=metadata.name%3Dtrain&limit",
            FakeAnswer::Json(200, json!({"metadata": {"resourceVersion": "4"}, "items": [job]})),
        ),
        (
            "GET /apis/batch/v1/namespaces/default/jobs?fieldSelector=metadata.name%3Dtrain&watch=true",
            FakeAnswer::OpenStream(vec![event]),
        ),
    ]);
    let ran = run(&fake, &["delete", "job/train", "--wait"], "").await;
    assert_eq!((ran.code(), ran.answers.as_str()), (0, "job.batch/train deleted\n"), "{:?}", ran.result);
    assert_eq!(ran.notes, "waiting for the deletion of job.batch/train\n");
    let missing =
        || FakeAnswer::Json(404, json!({"message": "clusters \"eu\" not found", "reason": "NotFound"}));
    let fake =
        Fake::new([("DELETE /apis/meridian.dev/v1alpha1/clusters/eu", missing()), ("DELETE ", missing())]);
    assert_eq!(run(&fake, &["delete", "cluster", "eu"], "").await.code(), 1);
    assert_eq!(run(&fake, &["delete", "cluster", "eu", "--ignore-not-found"], "").await.code(), 0);
}

#[tokio::test]
async fn get_shows_tables_documents_and_names() {
    let list = || {
        FakeAnswer::Json(
            200,
            json!({"metadata": {"resourceVersion": "9"}, "items": [{
                "metadata": {"name": "dws"}, "spec": {"queueingStrategy": "StrictFIFO"},
                "status": {"pendingWorkloads": 2},
            }]}),
        )
    };
    let path = "GET /apis/kueue.x-k8s.io/v1beta2/clusterqueues?limit=500";
    let fake = Fake::new([
        (path, list()),
        (path, list()),
        (path, list()),
        (path, FakeAnswer::Json(200, json!({"items": []}))),
    ]);
    let table = run(&fake, &["get", "cq"], "").await.answers;
    assert_eq!(
        table,
        "NAME   COHORT   STRATEGY     PENDING   ADMITTED   ACTIVE\n\
         dws    -        StrictFIFO   2         -          -\n"
    );
    assert_eq!(
        run(&fake, &["get", "cq", "-o", "name"], "").await.answers,
        "clusterqueue.kueue.x-k8s.io/dws\n"
    );
    let document: Value =
        serde_json::from_str(&run(&fake, &["get", "clusterqueues", "-o", "json"], "").await.answers).unwrap();
    assert_eq!(
        (&document["kind"], &document["items"][0]["kind"], &document["metadata"]["resourceVersion"]),
        (&json!("List"), &json!("ClusterQueue"), &json!("9"))
    );
    let empty = run(&fake, &["get", "cq"], "").await;
    assert_eq!(
        (empty.code(), empty.answers.as_str(), empty.notes.as_str()),
        (0, "", "no clusterqueues found\n")
    );
    assert_eq!(run(&fake, &["get", "cq", "-l", "a b"], "").await.code(), 2);
    assert_eq!(run(&fake, &["get", "cq", "dws", "-A"], "").await.code(), 2);
}

#[tokio::test]
async fn describe_shows_everything_escaped() {
    let job = json!({
        "metadata": {
            "name": "t", "namespace": "default", "uid": "u1", "resourceVersion": "8",
            "labels": {"kueue.x-k8s.io/queue-name": "q", "team": "vision"},
        },
        "spec": {"parallelism": 1, "template": {"note": "\u{1b}[2J"}},
        "status": {"active": 1, "conditions": [
            {"type": "Suspended", "status": "False", "reason": "Admitted", "message": "in \u{7}eu"},
        ]},
    });
    let why = json!({"name": "t", "state": "Running", "clusters": [
        {"cluster": "eu", "region": "europe-west4", "verdict": "running", "reason": "all pods run"},
    ]});
    let fake = Fake::new([
        ("GET /apis/batch", FakeAnswer::Json(200, job)),
        ("GET /meridian/v1/why/default/t", FakeAnswer::Json(200, why)),
    ]);
    let ran = run(&fake, &["describe", "job", "t"], "").await;
    assert_eq!(ran.code(), 0, "{:?}", ran.result);
    assert!(!ran.answers.contains(['\u{1b}', '\u{7}']), "{}", ran.answers);
    let expect = [
        "Kind:             Job",
        "Name:             t",
        "Namespace:        default",
        "UID:              u1",
        "Created:          -",
        "Version:          8",
        "Labels:           kueue.x-k8s.io/queue-name=q",
        "                  team=vision",
        "Queue:            q",
        "State:            Running",
        "Cluster:          -",
        "Pods:             1/1",
        "Region:           -",
        "Attempts:         -",
        "Priority class:   -",
        "Reason:           -",
        "",
        "Spec:",
        "  parallelism: 1",
        "  template:",
        "    note: \"\\e[2J\"",
        "",
        "Status:",
        "  active: 1",
        "",
        "Conditions:",
        "TYPE        STATUS   SINCE   REASON     MESSAGE",
        "Suspended   False    -       Admitted   in \\x07eu",
        "",
        "Why:",
        "t  Running",
        "",
        "CLUSTER   REGION         VERDICT   REASON",
        "eu        europe-west4   running   all pods run",
    ];
    assert_eq!(ran.answers.lines().collect::<Vec<_>>(), expect);
}

#[tokio::test]
async fn unknown_fields_of_jobs_are_errors_by_default() {
    let mistyped = JOB.replace("name: c,", "name: c, env: [{name: A, secretKeyRef: {name: s, key: k}}],");
    let refused = run(&Fake::new([]), &["create", "-f", "-"], &mistyped).await;
    assert_eq!(refused.code(), 1);
    assert!(
        refused
            .error()
            .contains("env[0].secretKeyRef: is an unknown field; did you mean `valueFrom.secretKeyRef`?"),
        "{}",
        refused.error()
    );
    let created = || FakeAnswer::Json(201, json!({"metadata": {"name": "dws-job-x"}}));
    let jobs = "POST /apis/batch/v1/namespaces/default/jobs";
    let fake = Fake::new([(jobs, created())]);
    let warned = run(&fake, &["create", "--validate", "warn", "-f", "-"], &mistyped).await;
    assert!(warned.code() == 0 && warned.notes.contains("is an unknown field"), "{}", warned.notes);
    let fake = Fake::new([("POST /apis/batch/v1/namespaces/default/jobs?fieldValidation=Ignore", created())]);
    let ignored = run(&fake, &["create", "--validate", "ignore", "-f", "-"], &mistyped).await;
    assert_eq!((ignored.code(), ignored.notes.as_str()), (0, ""));
}

#[tokio::test]
async fn objects_of_other_programs_are_skipped_or_refused() {
    let mixed = format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: c}}\n---\n{LOCAL_QUEUE}");
    let fake = Fake::new([(
        "POST /meridian/v1/apply",
        FakeAnswer::Json(200, json!({"results": [], "warnings": []})),
    )]);
    let ran = run(&fake, &["apply", "-f", "-"], &mixed).await;
    assert_eq!(ran.code(), 0, "{:?}", ran.result);
    assert_eq!(
        ran.notes,
        "warning: <stdin>:2:7: kind: `ConfigMap` of `v1` is not a kind that Meridian takes: it is skipped\n"
    );
    assert_eq!(request_body(&fake, 0)["objects"].as_array().unwrap().len(), 1);
    let refused = run(&Fake::new([]), &["apply", "--strict", "-f", "-"], &mixed).await;
    assert!(refused.code() == 1 && refused.error().contains("`ConfigMap` of `v1`"), "{}", refused.error());
}
