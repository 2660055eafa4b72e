use super::*;

const SPACE: &str = "/api/v1/namespaces/a";

async fn patch(rig: &Rig, path: &str, form: &str, body: &Value) -> Answer {
    rig.read(with(rig.request("PATCH", path, Some(body)), "content-type", form)).await
}

#[tokio::test]
async fn what_was_read_can_be_changed_and_written_back() {
    let rig = Rig::with_queue().await;
    let mut read = rig.get(&format!("{QUEUES}/q")).await.ok();
    assert!(read["status"].is_object());
    let unchanged = rig.put(&format!("{QUEUES}/q"), &read).await;
    assert!(unchanged.warnings().is_empty(), "{unchanged:?}");
    assert_eq!(version(&unchanged.ok()), version(&read), "nothing changed");
    read["spec"]["stopPolicy"] = json!("Hold");
    let written = rig.put(&format!("{QUEUES}/q"), &read).await.ok();
    assert_eq!(written["metadata"]["generation"], 2);
    assert!(version(&written) > version(&read));
    let late = rig.put(&format!("{QUEUES}/q"), &read).await;
    assert_eq!((late.failure().0, late.failure().1), (409, "Conflict"));
    read["metadata"].as_object_mut().unwrap().remove("resourceVersion");
    rig.put(&format!("{QUEUES}/q"), &read).await.ok();
    read["metadata"]["uid"] = json!("00000000-0000-0000-0000-000000000001");
    assert_eq!(rig.put(&format!("{QUEUES}/q"), &read).await.failure().1, "Conflict");
}

#[tokio::test]
async fn a_status_that_went_on_is_no_conflict() {
    let rig = Rig::with_queue().await;
    let mut watch = rig.watch(&format!("{QUEUES}?watch=true")).await;
    assert_eq!(watch.told().await, "ADDED q");
    rig.post(JOBS, &job("train")).await.ok();
    // the count of pending workloads follows, with a version of its own
    let event = watch.next().await.unwrap();
    assert_eq!(event["type"], "MODIFIED");
    let mut read = event["object"].clone();
    read["spec"]["stopPolicy"] = json!("Hold");
    rig.put(&format!("{QUEUES}/q"), &read).await.ok();
}

#[tokio::test]
async fn merge_patches_change_some_fields() {
    let rig = Rig::new().await;
    rig.apply(&[namespace("a", &json!({"team": "x", "old": "yes"}))]).await.ok();
    let merge = "application/merge-patch+json";
    let patched = patch(&rig, SPACE, merge, &json!({"metadata": {"labels": {"old": null, "new": "yes"}}})).await.ok();
    let labels = &patched["metadata"]["labels"];
    assert_eq!((&labels["team"], &labels["new"], labels.get("old")), (&json!("x"), &json!("yes"), None));
    let stale = json!({"metadata": {"resourceVersion": "1", "labels": {"a": "b"}}});
    assert_eq!(patch(&rig, SPACE, merge, &stale).await.failure().1, "Conflict");
    assert_eq!(patch(&rig, SPACE, merge, &json!([])).await.failure().0, 400);
    assert_eq!(patch(&rig, SPACE, merge, &json!({"metadata": {"name": "b"}})).await.failure().0, 400);
    assert_eq!(patch(&rig, SPACE, merge, &json!({"metadata": {"labels": {"a b": "c"}}})).await.failure().0, 422);
    assert_eq!(patch(&rig, "/api/v1/namespaces/absent", merge, &json!({})).await.failure().0, 404);
    for form in ["application/json-patch+json", "application/strategic-merge-patch+json", "application/apply-patch+yaml"] {
        let refused = patch(&rig, SPACE, form, &json!({})).await;
        assert!(refused.failure().0 == 415 && refused.failure().2.contains("--type=merge"), "{refused:?}");
    }
}

#[tokio::test]
async fn deletions_have_conditions() {
    let rig = Rig::with_queue().await;
    let created = rig.post(JOBS, &job("train")).await.ok();
    let path = format!("{JOBS}/train");
    let delete = async |body: Value| rig.read(rig.request("DELETE", &path, Some(&body))).await;
    let other = json!({"preconditions": {"uid": "00000000-0000-0000-0000-000000000001"}});
    assert_eq!(delete(other).await.failure().1, "Conflict");
    assert_eq!(delete(json!({"preconditions": {"resourceVersion": "1"}})).await.failure().0, 400);
    delete(json!({"dryRun": ["All"]})).await.ok();
    assert_eq!(rig.get(&path).await.code, 200);
    let options = json!({
        "kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Background", "gracePeriodSeconds": 0,
        "preconditions": {"uid": created["metadata"]["uid"]},
    });
    let deleted = delete(options).await.ok();
    assert_eq!((deleted["status"].as_str(), &deleted["details"]["uid"]), (Some("Success"), &created["metadata"]["uid"]));
    assert_eq!(rig.get(&path).await.failure(), (404, "NotFound", "jobs.batch \"train\" not found"));
    assert_eq!(delete(json!({})).await.failure().0, 404);
    assert!(rig.names("/apis/kueue.x-k8s.io/v1beta2/workloads").await.is_empty(), "the workload goes with its job");
}

#[tokio::test]
async fn a_jobs_spec_stays() {
    let rig = Rig::with_queue().await;
    rig.post(JOBS, &job("train")).await.ok();
    let mut other = job("train");
    other["spec"]["parallelism"] = json!(1);
    let refused = rig.put(&format!("{JOBS}/train"), &other).await;
    assert!(refused.failure().0 == 422 && refused.failure().2.contains("a job's spec can't be changed"), "{refused:?}");
    rig.put(&format!("{JOBS}/train"), &job("train")).await.ok();
}

#[tokio::test]
async fn a_failed_commit_is_503_and_loses_nothing() {
    let rig = Rig::with_queue().await;
    rig.post(JOBS, &job("kept")).await.ok();
    rig.disk.fail_syncs(1);
    let failed = rig.post(JOBS, &job("lost")).await;
    assert_eq!((failed.failure().0, failed.failure().1), (503, "ServiceUnavailable"));
    assert_eq!(failed.headers["retry-after"], "2");
    tokio::time::timeout(DEADLINE, rig.engine.led()).await.unwrap();
    assert!(rig.names(JOBS).await.contains(&"kept".to_owned()));
    let again = rig.post(JOBS, &job("lost")).await;
    assert!(again.code == 201 || again.failure().1 == "AlreadyExists", "{again:?}");
}
