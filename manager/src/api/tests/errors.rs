use super::*;

/// A uid that nobody has.
const NOBODY: &str = "00000000-0000-0000-0000-000000000001";

/// Method, path, body; code, reason, words.
type Row = (&'static str, String, Option<Value>, u16, &'static str, &'static str);

#[tokio::test]
async fn every_refusal_is_a_status_with_code_and_reason() {
    let rig = Rig::with_queue().await;
    rig.post(JOBS, &job("train")).await.ok();
    let mut elsewhere = job("x");
    elsewhere["metadata"]["namespace"] = json!("other");
    let mut nameless = job("x");
    nameless["metadata"] = json!({});
    let mut versioned = job("x");
    versioned["metadata"]["resourceVersion"] = json!("5");
    let mut named = queue("other");
    named["metadata"]["resourceVersion"] = json!("99999");
    let table: Vec<Row> = vec![
        ("GET", "/nowhere".into(), None, 404, "NotFound", "there is nothing at `/nowhere`"),
        ("GET", format!("{JOBS}/absent"), None, 404, "NotFound", "jobs.batch \"absent\" not found"),
        ("GET", format!("{JOBS}/train/status"), None, 404, "NotFound", "there is nothing at"),
        ("GET", "/api/v1/namespaces/absent".into(), None, 404, "NotFound", "namespaces \"absent\" not found"),
        ("GET", format!("{JOBS}?limit=x"), None, 400, "BadRequest", "`limit` is `x`"),
        ("GET", format!("{JOBS}?labelSelector=a+b"), None, 400, "BadRequest", "`a b` is not a label key"),
        ("DELETE", JOBS.into(), None, 405, "MethodNotAllowed", "it takes GET, POST, HEAD, OPTIONS"),
        (
            "POST",
            format!("{JOBS}/train"),
            Some(job("train")),
            405,
            "MethodNotAllowed",
            "it takes GET, PUT, PATCH, DELETE",
        ),
        ("POST", "/apis/batch/v1/jobs".into(), Some(job("x")), 405, "MethodNotAllowed", "it takes GET"),
        (
            "POST",
            "/apis/kueue.x-k8s.io/v1beta2/namespaces/default/workloads".into(),
            Some(json!({})),
            405,
            "MethodNotAllowed",
            "it takes GET",
        ),
        ("POST", "/version".into(), None, 405, "MethodNotAllowed", "it takes GET"),
        ("GET", "/meridian/v1/apply".into(), None, 405, "MethodNotAllowed", "it takes POST"),
        ("POST", JOBS.into(), Some(queue("x")), 400, "BadRequest", "the path is for `batch/v1`"),
        ("POST", JOBS.into(), Some(elsewhere), 400, "BadRequest", "does not match the namespace in the path"),
        ("POST", JOBS.into(), Some(nameless), 422, "Invalid", "metadata.name: is missing"),
        (
            "POST",
            JOBS.into(),
            Some(versioned),
            400,
            "BadRequest",
            "should not be set on objects to be created",
        ),
        (
            "PUT",
            format!("{QUEUES}/q"),
            Some(queue("other")),
            400,
            "BadRequest",
            "does not match the name in the path",
        ),
        (
            "PUT",
            format!("{QUEUES}/other"),
            Some(queue("other")),
            404,
            "NotFound",
            "clusterqueues.kueue.x-k8s.io \"other\" not found",
        ),
        ("PUT", format!("{QUEUES}/other"), Some(named), 404, "NotFound", "not found"),
        ("PUT", JOBS.into(), Some(job("x")), 405, "MethodNotAllowed", "it takes"),
        ("DELETE", format!("{JOBS}/absent"), None, 404, "NotFound", "not found"),
        ("POST", format!("{JOBS}?dryRun=Half"), Some(job("x")), 400, "BadRequest", "the only stage is `All`"),
        (
            "POST",
            "/apis/kueue.x-k8s.io/v1beta2/namespaces/default/localqueues".into(),
            Some(local("l", "absent")),
            422,
            "Invalid",
            "there is no cluster queue `absent`",
        ),
        ("GET", "/meridian/v1/why/default/absent".into(), None, 404, "NotFound", "not found"),
        ("GET", "/meridian/v1/nothing".into(), None, 404, "NotFound", "there is nothing at"),
        (
            "POST",
            "/meridian/v1/orphans/x/1-2-3/stop".into(),
            Some(json!({})),
            400,
            "BadRequest",
            "`x` is not a uid",
        ),
        (
            "POST",
            format!("/meridian/v1/orphans/{NOBODY}/1-2/adopt"),
            Some(job("x")),
            400,
            "BadRequest",
            "`1-2` is not a fence",
        ),
        (
            "POST",
            format!("/meridian/v1/orphans/{NOBODY}/1-2-3/adopt"),
            Some(job("x")),
            404,
            "NotFound",
            "there is no orphan",
        ),
        (
            "POST",
            format!("/meridian/v1/orphans/{NOBODY}/1-2-3/adopt"),
            Some(json!({"kind": "Job"})),
            422,
            "Invalid",
            "apiVersion",
        ),
        (
            "POST",
            "/meridian/v1/clusters/absent/admit".into(),
            Some(json!({})),
            404,
            "NotFound",
            "there is no cluster `absent`",
        ),
    ];
    for (method, path, body, code, reason, words) in table {
        let answer = rig.read(rig.request(method, &path, body.as_ref())).await;
        let failure = answer.failure();
        assert_eq!((failure.0, failure.1), (code, reason), "{method} {path}: {answer:?}");
        assert!(failure.2.contains(words), "{method} {path}: {answer:?}");
    }
}

#[tokio::test]
async fn wrong_fields_are_named_each() {
    let rig = Rig::with_queue().await;
    let mut wrong = job("train");
    wrong["spec"]["parallelism"] = json!("two");
    wrong["metadata"]["labels"]["bad key"] = json!("x");
    let refused = rig.post(JOBS, &wrong).await;
    assert_eq!((refused.failure().0, refused.failure().1), (422, "Invalid"));
    let fields: Vec<&str> = refused.body["details"]["causes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|c| c["field"].as_str().unwrap())
        .collect();
    assert!(
        fields.contains(&"spec.parallelism") && fields.contains(&"metadata.labels[bad key]"),
        "{refused:?}"
    );
    assert_eq!(refused.body["details"]["kind"], "Job");
    // a field of the old version is named as its writer knows it
    let mut old = queue("old");
    old["apiVersion"] = json!("kueue.x-k8s.io/v1beta1");
    old["spec"]["cohort"] = json!(7);
    let refused = rig.post("/apis/kueue.x-k8s.io/v1beta1/clusterqueues", &old).await;
    assert_eq!(refused.body["details"]["causes"][0]["field"], "spec.cohort");
}

#[tokio::test]
async fn methods_that_are_not_taken_name_those_that_are() {
    let rig = Rig::new().await;
    let answer = rig.read(rig.request("DELETE", QUEUES, None)).await;
    assert_eq!(answer.headers["allow"], "GET, POST, HEAD, OPTIONS");
    let answer = rig.read(rig.request("BREW", &format!("{QUEUES}/q"), None)).await;
    assert_eq!(
        (answer.failure().0, answer.headers["allow"].to_str().unwrap()),
        (405, "GET, PUT, PATCH, DELETE, HEAD, OPTIONS")
    );
}
