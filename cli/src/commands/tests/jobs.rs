use super::*;

#[tokio::test]
async fn submit_repeats_a_submission_without_an_answer() {
    let queues = FakeAnswer::Json(200, json!({"metadata": {}, "items": [{"metadata": {"name": "gpus"}}]}));
    let fake = Fake::new([
        ("GET /apis/kueue.x-k8s.io/v1beta2/namespaces/default/localqueues", queues),
        (
            "POST /apis/batch/v1/namespaces/default/jobs",
            FakeAnswer::Json(200, json!({"metadata": {"name": "made"}})),
        ),
    ]);
    let line = [
        "submit",
        "--accelerator",
        "nvidia-tesla-t4",
        "--count",
        "2",
        "--nodes",
        "4",
        "--max-run",
        "2h",
        "--region",
        "europe-west4",
        "--",
        "bin/Train.py",
        "-x",
    ];
    let ran = run(&fake, &line, "").await;
    assert_eq!((ran.code(), ran.answers.as_str()), (0, "job.batch/made created\n"), "{:?}", ran.result);
    let job = request_body(&fake, 1);
    assert!(job["metadata"]["name"].as_str().unwrap().starts_with("train-py-"), "{job}");
    assert_eq!(job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"], "gpus");
    assert_eq!(job["metadata"]["annotations"]["provreq.kueue.x-k8s.io/maxRunDurationSeconds"], "7200");
    assert_eq!(job["metadata"]["annotations"]["meridian.dev/region"], "europe-west4");
    let spec = &job["spec"];
    assert_eq!(
        (&spec["parallelism"], &spec["completions"], &spec["backoffLimit"], &spec["suspend"]),
        (&json!(4), &json!(4), &json!(0), &json!(true))
    );
    let pod = &spec["template"]["spec"];
    assert_eq!(pod["nodeSelector"]["cloud.google.com/gke-accelerator"], "nvidia-tesla-t4");
    assert_eq!(pod["containers"][0]["command"], json!(["bin/Train.py", "-x"]));
    assert_eq!(pod["containers"][0]["resources"]["requests"], json!({"nvidia.com/gpu": "2"}));

    let taken = || FakeAnswer::Json(409, json!({"reason": "AlreadyExists", "message": "already exists"}));
    let other = FakeAnswer::Json(
        200,
        json!({"metadata": {"name": "x", "annotations": {"meridian.dev/submission": "another"}}}),
    );
    let fake = Fake::new([
        ("POST ", FakeAnswer::Break),
        ("POST ", taken()),
        ("GET /apis/batch/v1/namespaces/default/jobs/x", other),
    ]);
    let ran = run(&fake, &["submit", "--queue", "q", "--name", "x", "--", "true"], "").await;
    assert_eq!((ran.code(), ran.error().as_str()), (1, "already exists (409 AlreadyExists)"));
    let [first, second] = [request_body(&fake, 0), request_body(&fake, 1)];
    assert_eq!(first, second, "a repeated submission is identical");
}

#[tokio::test]
async fn submit_waits_for_the_end() {
    let job = |version: &str, status: Value| {
        let metadata = json!({"name": "x", "namespace": "default", "uid": "u", "resourceVersion": version});
        json!({"metadata": metadata, "spec": {}, "status": status})
    };
    let failed = json!({"conditions": [{
        "type": "Failed", "status": "True", "reason": "BackoffLimitExceeded",
        "message": "pod 0 exited with 3",
    }]});
    let list = json!({"metadata": {"resourceVersion": "1"}, "items": [job("1", json!({}))]});
    let event = format!(
        "{}\n{}\n",
        json!({"type": "MODIFIED", "object": job("2", json!({"active": 1}))}),
        json!({"type": "MODIFIED", "object": job("3", failed)})
    );
    let fake = Fake::new([
        ("POST ", FakeAnswer::Json(201, job("1", json!({})))),
        ("GET ", FakeAnswer::Json(200, list)),
        ("GET ", FakeAnswer::OpenStream(vec![event])),
    ]);
    let ran = run(&fake, &["submit", "--queue", "q", "--name", "x", "--wait", "--", "false"], "").await;
    assert_eq!((ran.code(), ran.answers.as_str()), (1, "job.batch/x failed\n"));
    assert_eq!(
        ran.error(),
        "job `x` failed: BackoffLimitExceeded: pod 0 exited with 3; see `meridian logs x`"
    );
    assert_eq!(ran.notes, "job.batch/x is Pending\njob.batch/x is Running\n");
}

#[tokio::test]
async fn workloads_are_stopped_and_resumed_by_either_name() {
    let workload = |active: bool| {
        let metadata = json!({"name": "job-train-01234", "namespace": "research"});
        json!({"metadata": metadata, "spec": {"active": active}})
    };
    let missing = || {
        FakeAnswer::Json(
            404,
            json!({"message": "workloads.kueue.x-k8s.io \"train\" not found", "reason": "NotFound"}),
        )
    };
    let job = || {
        FakeAnswer::Json(
            200,
            json!({"metadata": {"name": "train"}, "status": {"meridian": {"workload": "job-train-01234"}}}),
        )
    };
    let own = "PATCH /apis/kueue.x-k8s.io/v1beta2/namespaces/research/workloads/job-train-01234";
    let jobs = "PATCH /apis/kueue.x-k8s.io/v1beta2/namespaces/research/workloads/train";
    let get = "GET /apis/batch/v1/namespaces/research/jobs/train";
    let fake = Fake::new([(own, FakeAnswer::Json(200, workload(false)))]);
    let ran = run(&fake, &["stop", "workload", "job-train-01234", "-n", "research"], "").await;
    assert_eq!(
        (ran.code(), ran.answers.as_str()),
        (0, "workload.kueue.x-k8s.io/job-train-01234 stopped\n"),
        "{:?}",
        ran.result
    );
    assert_eq!(request_body(&fake, 0), json!({"spec": {"active": false}}));
    let mut of_other_kinds = jobs_named(&[]).split_off(1);
    // The jobs are of another namespace.
    of_other_kinds.iter_mut().for_each(|(line, _)| *line = "GET ");
    let script = [(jobs, missing()), (get, job())].into_iter().chain(of_other_kinds.clone());
    let fake = Fake::new(script.chain([(own, FakeAnswer::Json(200, workload(true)))]));
    let ran = run(&fake, &["resume", "workload", "train", "-n", "research", "-o", "json"], "").await;
    let document: Value = serde_json::from_str(&ran.answers).unwrap();
    assert_eq!(
        (ran.code(), &document["spec"]["active"], document["kind"].as_str()),
        (0, &json!(true), Some("Workload")),
        "{:?}",
        ran.result
    );
    assert_eq!(request_body(&fake, 11), json!({"spec": {"active": true}}));
    let fake = Fake::new([(get, job()), (own, FakeAnswer::Json(200, workload(true)))]);
    assert_eq!(
        run(&fake, &["resume", "job/train", "-n", "research"], "").await.answers,
        "workload.kueue.x-k8s.io/job-train-01234 resumed\n"
    );
    let fake = Fake::new([(jobs, missing()), (get, missing())].into_iter().chain(of_other_kinds));
    let missing_both = run(&fake, &["stop", "workload", "train", "-n", "research"], "").await;
    assert_eq!(
        (missing_both.code(), missing_both.notes.contains("workloads.kueue.x-k8s.io \"train\" not found")),
        (1, true),
        "{}",
        missing_both.notes
    );
    let fake = Fake::new([]);
    let queue = run(&fake, &["stop", "cq", "train"], "").await;
    assert!(queue.code() == 2 && queue.error().contains("stopPolicy"), "{}", queue.error());
}
