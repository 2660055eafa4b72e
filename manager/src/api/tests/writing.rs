//! Updates, patches and deletions.

use super::*;

const SPACE: &str = "/api/v1/namespaces/a";

async fn patch(rig: &Rig, path: &str, form: &str, body: &Value) -> Answer {
    rig.read(with(rig.request("PATCH", path, Some(body)), "content-type", form)).await
}

#[tokio::test]
async fn an_object_can_be_read_changed_and_written_back() {
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
async fn a_changed_status_is_no_conflict() {
    let rig = Rig::with_queue().await;
    let mut watch = rig.watch(&format!("{QUEUES}?watch=true")).await;
    assert_eq!(watch.next_summary().await, "ADDED q");
    rig.post(JOBS, &job("train")).await.ok();
    // the count of pending workloads follows, with a later version
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
    let patched =
        patch(&rig, SPACE, merge, &json!({"metadata": {"labels": {"old": null, "new": "yes"}}})).await.ok();
    let labels = &patched["metadata"]["labels"];
    assert_eq!((&labels["team"], &labels["new"], labels.get("old")), (&json!("x"), &json!("yes"), None));
    let stale = json!({"metadata": {"resourceVersion": "1", "labels": {"a": "b"}}});
    assert_eq!(patch(&rig, SPACE, merge, &stale).await.failure().1, "Conflict");
    assert_eq!(patch(&rig, SPACE, merge, &json!([])).await.failure().0, 400);
    assert_eq!(patch(&rig, SPACE, merge, &json!({"metadata": {"name": "b"}})).await.failure().0, 400);
    assert_eq!(
        patch(&rig, SPACE, merge, &json!({"metadata": {"labels": {"a b": "c"}}})).await.failure().0,
        422
    );
    assert_eq!(patch(&rig, "/api/v1/namespaces/absent", merge, &json!({})).await.failure().0, 404);
    for form in [
        "application/json-patch+json",
        "application/strategic-merge-patch+json",
        "application/apply-patch+yaml",
    ] {
        let refused = patch(&rig, SPACE, form, &json!({})).await;
        assert!(refused.failure().0 == 415 && refused.failure().2.contains("--type=merge"), "{refused:?}");
    }
}

const WORKLOADS: &str = "/apis/kueue.x-k8s.io/v1beta2/namespaces/default/workloads";
const MERGE: &str = "application/merge-patch+json";

fn active(active: bool) -> Value {
    json!({"spec": {"active": active}})
}

/// Submits a job and returns the name of its workload.
async fn workload_of_train(rig: &Rig) -> String {
    let job = rig.post(JOBS, &job("train")).await.ok();
    job["status"]["meridian"]["workload"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_workload_is_deactivated_and_activated() {
    let rig = Rig::with_queue().await;
    let name = workload_of_train(&rig).await;
    let (path, older) = (
        format!("{WORKLOADS}/{name}"),
        format!("/apis/kueue.x-k8s.io/v1beta1/namespaces/default/workloads/{name}"),
    );
    let merge = MERGE;
    let set = active;
    let stopped = patch(&rig, &path, merge, &set(false)).await.ok();
    assert_eq!(
        (&stopped["spec"]["active"], stopped["metadata"]["name"].as_str()),
        (&json!(false), Some(name.as_str()))
    );
    assert_eq!(stopped["status"]["conditions"][1]["reason"], "Deactivated", "{stopped:#}");
    assert_eq!(rig.get(&format!("{JOBS}/train")).await.ok()["status"]["meridian"]["state"], "Deactivated");
    let again = patch(&rig, &path, merge, &set(false)).await.ok();
    assert_eq!(version(&again), version(&stopped), "nothing changed");

    // an object that was read can be written back with another value, in both API versions
    let mut read = rig.get(&older).await.ok();
    read["spec"]["active"] = json!(true);
    let resumed = rig.put(&older, &read).await.ok();
    assert_eq!(
        (resumed["apiVersion"].as_str(), &resumed["spec"]["active"]),
        (Some("kueue.x-k8s.io/v1beta1"), &json!(true))
    );
    assert_eq!(rig.put(&older, &read).await.failure().1, "Conflict", "it changed since");
    let dry = rig
        .read(with(
            rig.request("PATCH", &format!("{path}?dryRun=All"), Some(&set(false))),
            "content-type",
            merge,
        ))
        .await
        .ok();
    assert_eq!(
        (&dry["spec"]["active"], &rig.get(&path).await.ok()["spec"]["active"]),
        (&json!(false), &json!(true))
    );
    // Kueue's default
    patch(&rig, &path, merge, &set(false)).await.ok();
    assert_eq!(
        patch(&rig, &path, merge, &json!({"spec": {"active": null}})).await.ok()["spec"]["active"],
        true
    );
    let audit = rig.get("/meridian/v1/audit").await.body;
    let lines: Vec<Value> =
        audit.as_str().unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let deactivations: Vec<_> = lines
        .iter()
        .filter(|line| line["entry"]["action"] == "deactivate")
        .map(|line| (&line["by"], &line["entry"]["detail"]))
        .collect();
    assert_eq!(deactivations, [(&json!("user:ada"), &json!("default/train")); 2], "audited with the user");
}

#[tokio::test]
async fn no_other_field_of_a_workload_can_be_changed() {
    let rig = Rig::with_queue().await;
    let path = format!("{WORKLOADS}/{}", workload_of_train(&rig).await);
    let merge = MERGE;
    let set = active;
    for (change, field) in [
        (json!({"spec": {"active": false, "priority": 7}}), "spec.priority"),
        (json!({"spec": {"active": false, "podSets": []}}), "spec.podSets"),
        (json!({"spec": {"active": "no"}}), "spec.active"),
        (json!({"metadata": {"labels": {"a": "b"}}}), "metadata.labels.a"),
        (json!({"metadata": {"name": "b"}}), "metadata.name"),
        (json!({"spec": null}), "spec"),
    ] {
        let refused = patch(&rig, &path, merge, &change).await;
        assert_eq!((refused.failure().0, refused.failure().1), (422, "Invalid"), "{refused:?}");
        assert!(refused.failure().2.contains(field), "{refused:?}");
    }
    assert_eq!(rig.get(&path).await.ok()["spec"]["active"], true);
    let stale = json!({"metadata": {"resourceVersion": "1"}, "spec": {"active": false}});
    assert_eq!(patch(&rig, &path, merge, &stale).await.failure().1, "Conflict");
    assert_eq!(
        patch(&rig, &format!("{WORKLOADS}/job-train-zzzzz"), merge, &set(false)).await.failure().0,
        404
    );
    for method in ["POST", "DELETE"] {
        let path = if method == "POST" { WORKLOADS } else { &path };
        assert_eq!(rig.read(rig.request(method, path, Some(&json!({})))).await.failure().0, 405);
    }
}

#[tokio::test]
async fn deletions_honour_preconditions() {
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
        "kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Background",
        "gracePeriodSeconds": 0,
        "preconditions": {"uid": created["metadata"]["uid"]},
    });
    let deleted = delete(options).await.ok();
    assert_eq!(
        (deleted["status"].as_str(), &deleted["details"]["uid"]),
        (Some("Success"), &created["metadata"]["uid"])
    );
    assert_eq!(rig.get(&path).await.failure(), (404, "NotFound", "jobs.batch \"train\" not found"));
    assert_eq!(delete(json!({})).await.failure().0, 404);
    assert!(
        rig.names("/apis/kueue.x-k8s.io/v1beta2/workloads").await.is_empty(),
        "the workload goes with its job"
    );
}

#[tokio::test]
async fn the_pods_of_a_job_can_be_changed_and_what_they_run_can_not() {
    let rig = Rig::with_queue().await;
    rig.post(JOBS, &job("train")).await.ok();
    let mut other = job("train");
    other["spec"]["parallelism"] = json!(1);
    let changed = rig.put(&format!("{JOBS}/train"), &other).await.ok();
    assert_eq!((&changed["spec"]["parallelism"], &changed["metadata"]["generation"]), (&json!(1), &json!(2)));
    rig.put(&format!("{JOBS}/train"), &job("train")).await.ok();

    let mut elastic = job("elastic");
    elastic["metadata"]["annotations"] = json!({"kueue.x-k8s.io/elastic-job": "true"});
    rig.post(JOBS, &elastic).await.ok();
    let path = format!("{JOBS}/elastic");
    // an object that a client sends back also has fields that only the manager writes
    let changed =
        patch(&rig, &path, "application/merge-patch+json", &json!({"spec": {"parallelism": 1}})).await.ok();
    assert_eq!(changed["spec"]["parallelism"], 1);
    assert_eq!(rig.get(&path).await.ok()["spec"]["parallelism"], 1);
    let refused =
        patch(&rig, &path, "application/merge-patch+json", &json!({"spec": {"backoffLimit": 9}})).await;
    assert!(
        refused.failure().0 == 422 && refused.failure().2.contains("delete it and create it again"),
        "{refused:?}"
    );
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

#[tokio::test]
async fn unknown_fields_are_what_field_validation_says() {
    let rig = Rig::with_queue().await;
    let mut mistyped = job("mistyped");
    mistyped["spec"]["template"]["spec"]["containers"][0]["env"] =
        json!([{"name": "PW", "secretKeyRef": {"name": "db", "key": "pw"}}]);
    let create = async |query: &str| rig.post(&format!("{JOBS}?dryRun=All&{query}"), &mistyped).await;
    for query in ["", "fieldValidation=Warn"] {
        let warned = create(query).await;
        assert!(warned.warnings()[0].contains("did you mean `valueFrom.secretKeyRef`?"), "{warned:?}");
    }
    let ignored = create("fieldValidation=Ignore").await;
    assert!(ignored.code.is_success() && ignored.warnings().is_empty(), "{ignored:?}");
    let refused = create("fieldValidation=Strict").await;
    assert!(refused.failure().0 == 422 && refused.failure().2.contains("is an unknown field"), "{refused:?}");
    assert_eq!(create("fieldValidation=Some").await.failure().0, 400);
    let body = json!({"objects": [mistyped], "dryRun": true, "fieldValidation": "Strict"});
    assert_eq!(rig.post("/meridian/v1/apply", &body).await.failure().0, 422);
}

#[tokio::test]
async fn what_is_in_use_is_deleted_by_force_only() {
    let rig = Rig::with_queue().await;
    let path = "/apis/kueue.x-k8s.io/v1beta2/resourceflavors/any";
    let refused = rig.delete(path).await;
    assert!(refused.failure().0 == 409 && refused.failure().2.contains("ClusterQueue `q`"), "{refused:?}");
    let forced = rig.request("DELETE", path, Some(&json!({"gracePeriodSeconds": 0})));
    rig.read(forced).await.ok();
    assert_eq!(rig.get(path).await.code, 404);
}
