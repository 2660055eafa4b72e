//! Refusals: codes, reasons and messages.

use super::*;

/// A uid that no object has.
const UNUSED_UID: &str = "00000000-0000-0000-0000-000000000001";

/// A request that is refused, and its answer. `message` is a part of the answer's.
struct Refusal {
    method: &'static str,
    path: String,
    body: Option<Value>,
    code: u16,
    reason: &'static str,
    message: &'static str,
}

fn refusal(
    method: &'static str,
    path: impl Into<String>,
    body: Option<Value>,
    code: u16,
    reason: &'static str,
    message: &'static str,
) -> Refusal {
    Refusal { method, path: path.into(), body, code, reason, message }
}

async fn check(rig: &Rig, refusals: impl IntoIterator<Item = Refusal>) {
    for Refusal { method, path, body, code, reason, message } in refusals {
        let answer = rig.read(rig.request(method, &path, body.as_ref())).await;
        let failure = answer.failure();
        assert_eq!((failure.0, failure.1), (code, reason), "{method} {path}: {answer:?}");
        assert!(failure.2.contains(message), "{method} {path}: {answer:?}");
    }
}

#[tokio::test]
async fn unknown_paths_and_objects_are_not_found() {
    let rig = Rig::with_queue().await;
    rig.post(JOBS, &job("train")).await.ok();
    let not_found = |method, path: &str, message| refusal(method, path, None, 404, "NotFound", message);
    let no_resource = "the server could not find the requested resource";
    let refusals = [
        not_found("GET", "/nowhere", "the server could not find the requested resource `/nowhere`"),
        not_found("GET", &format!("{JOBS}/absent"), "jobs.batch \"absent\" not found"),
        not_found("GET", &format!("{JOBS}/train/status"), no_resource),
        not_found("GET", "/api/v1/namespaces/absent", "namespaces \"absent\" not found"),
        not_found("DELETE", &format!("{JOBS}/absent"), "not found"),
        not_found("GET", "/meridian/v1/why/default/absent", "not found"),
        not_found("GET", "/meridian/v1/nothing", no_resource),
    ];
    check(&rig, refusals).await;
}

#[tokio::test]
async fn unsupported_methods_are_refused() {
    let rig = Rig::with_queue().await;
    let workloads = "/apis/kueue.x-k8s.io/v1beta2/namespaces/default/workloads";
    let not_allowed =
        |method, path: &str, body, allowed| refusal(method, path, body, 405, "MethodNotAllowed", allowed);
    let refusals = [
        not_allowed("DELETE", JOBS, None, "use GET, POST, HEAD, OPTIONS"),
        not_allowed("POST", &format!("{JOBS}/train"), Some(job("train")), "use GET, PUT, PATCH, DELETE"),
        not_allowed("POST", "/apis/batch/v1/jobs", Some(job("x")), "use GET"),
        not_allowed("POST", workloads, Some(json!({})), "use GET"),
        not_allowed("POST", "/version", None, "use GET"),
        not_allowed("GET", "/meridian/v1/apply", None, "use POST"),
        not_allowed("PUT", JOBS, Some(job("x")), "use"),
    ];
    check(&rig, refusals).await;
}

#[tokio::test]
async fn malformed_options_and_mismatched_bodies_are_refused() {
    let rig = Rig::with_queue().await;
    let mut elsewhere = job("x");
    elsewhere["metadata"]["namespace"] = json!("other");
    let mut versioned = job("x");
    versioned["metadata"]["resourceVersion"] = json!("5");
    let bad = |method, path: &str, body, message| refusal(method, path, body, 400, "BadRequest", message);
    let to_create = "should not be set on objects to be created";
    let refusals = [
        bad("GET", &format!("{JOBS}?limit=x"), None, "limit: Invalid value: \"x\""),
        bad("GET", &format!("{JOBS}?labelSelector=a+b"), None, "`a b` is not a label key"),
        bad("POST", JOBS, Some(queue("x")), "does not match `batch/v1` in the path"),
        bad("POST", JOBS, Some(elsewhere), "does not match the namespace in the path"),
        bad("POST", JOBS, Some(versioned), to_create),
        bad("PUT", &format!("{QUEUES}/q"), Some(queue("other")), "does not match the name in the path"),
        bad("POST", &format!("{JOBS}?dryRun=Half"), Some(job("x")), "supported values: `All`"),
    ];
    check(&rig, refusals).await;
}

#[tokio::test]
async fn writes_that_the_core_rejects_are_refused() {
    let rig = Rig::with_queue().await;
    let mut nameless = job("x");
    nameless["metadata"] = json!({});
    let mut named = queue("other");
    named["metadata"]["resourceVersion"] = json!("99999");
    let local_queues = "/apis/kueue.x-k8s.io/v1beta2/namespaces/default/localqueues";
    let other = format!("{QUEUES}/other");
    let other_not_found = "clusterqueues.kueue.x-k8s.io \"other\" not found";
    let absent_queue = "there is no cluster queue `absent`";
    let refusals = [
        refusal("POST", JOBS, Some(nameless), 422, "Invalid", "metadata.name: is missing"),
        refusal("PUT", &other, Some(queue("other")), 404, "NotFound", other_not_found),
        refusal("PUT", &other, Some(named), 404, "NotFound", "not found"),
        refusal("POST", local_queues, Some(local("l", "absent")), 422, "Invalid", absent_queue),
    ];
    check(&rig, refusals).await;
}

#[tokio::test]
async fn impossible_actions_of_operators_are_refused() {
    let rig = Rig::with_queue().await;
    let stop = "/meridian/v1/orphans/x/1-2-3/stop";
    let adopt = |fence: &str| format!("/meridian/v1/orphans/{UNUSED_UID}/{fence}/adopt");
    let incomplete = json!({"kind": "Job"});
    let admit = "/meridian/v1/clusters/absent/admit";
    let refusals = [
        refusal("POST", stop, Some(json!({})), 400, "BadRequest", "`x` is not a uid"),
        refusal("POST", adopt("1-2"), Some(job("x")), 400, "BadRequest", "`1-2` is not a fence"),
        refusal("POST", adopt("1-2-3"), Some(job("x")), 404, "NotFound", "there is no orphan"),
        refusal("POST", adopt("1-2-3"), Some(incomplete), 422, "Invalid", "apiVersion"),
        refusal("POST", admit, Some(json!({})), 404, "NotFound", "there is no cluster `absent`"),
    ];
    check(&rig, refusals).await;
}

#[tokio::test]
async fn every_invalid_field_is_named() {
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
    // a field of the old API version is named as in that version
    let mut old = queue("old");
    old["apiVersion"] = json!("kueue.x-k8s.io/v1beta1");
    old["spec"]["cohort"] = json!(7);
    let refused = rig.post("/apis/kueue.x-k8s.io/v1beta1/clusterqueues", &old).await;
    assert_eq!(refused.body["details"]["causes"][0]["field"], "spec.cohort");
}

#[tokio::test]
async fn a_refused_method_comes_with_the_allowed_ones() {
    let rig = Rig::new().await;
    let answer = rig.read(rig.request("DELETE", QUEUES, None)).await;
    assert_eq!(answer.headers["allow"], "GET, POST, HEAD, OPTIONS");
    let answer = rig.read(rig.request("BREW", &format!("{QUEUES}/q"), None)).await;
    assert_eq!(
        (answer.failure().0, answer.headers["allow"].to_str().unwrap()),
        (405, "GET, PUT, PATCH, DELETE, HEAD, OPTIONS")
    );
}
