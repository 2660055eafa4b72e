//! Creation of objects.

use super::*;

#[tokio::test]
async fn a_job_is_created_once_and_visible_at_once() {
    let rig = Rig::with_queue().await;
    let created = rig.post(JOBS, &job("train")).await;
    assert_eq!(created.code, 201);
    let created = created.ok();
    assert_eq!(created["spec"]["template"]["spec"]["containers"][0]["image"], "example/train");
    assert!(created["metadata"]["creationTimestamp"].is_string() && created["metadata"]["uid"].is_string());
    let seen = rig.get(&format!("{JOBS}/train")).await.ok();
    assert_eq!(seen["metadata"]["uid"], created["metadata"]["uid"]);
    let again = rig.post(JOBS, &job("train")).await;
    assert_eq!(again.failure(), (409, "AlreadyExists", "jobs.batch \"train\" already exists"));
    assert_eq!(again.body["details"], json!({"name": "train", "group": "batch", "kind": "jobs"}));
}

#[tokio::test]
async fn names_are_generated() {
    let rig = Rig::with_queue().await;
    let mut names = Vec::new();
    for _ in 0..3 {
        let created = rig.post(JOBS, &generated("train-")).await.ok();
        let name = created["metadata"]["name"].as_str().unwrap().to_owned();
        assert!(name.len() == 11 && name.starts_with("train-"), "{name}");
        assert!(created["metadata"].get("generateName").is_none());
        names.push(name);
    }
    names.sort();
    assert_eq!(rig.names(JOBS).await, names);
}

#[tokio::test]
async fn a_dry_run_validates_and_changes_nothing() {
    let rig = Rig::with_queue().await;
    let before = rig.engine.reads().version();
    let checked = rig.post(&format!("{JOBS}?dryRun=All"), &job("train")).await;
    assert_eq!((checked.code.as_u16(), checked.body["metadata"]["name"].as_str()), (201, Some("train")));
    let mut lost = job("train");
    lost["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] = json!("nowhere");
    assert_eq!(rig.post(&format!("{JOBS}?dryRun=All"), &lost).await.failure().0, 422);
    assert!(rig.names(JOBS).await.is_empty());
    assert_eq!(rig.engine.reads().version(), before);
}

#[tokio::test]
async fn both_versions_write_one_object() {
    let rig = Rig::with_queue().await;
    let mut old = queue("old");
    old["apiVersion"] = json!("kueue.x-k8s.io/v1beta1");
    old["spec"]["cohort"] = json!("all");
    let created = rig.post("/apis/kueue.x-k8s.io/v1beta1/clusterqueues", &old).await.ok();
    assert_eq!(
        (created["apiVersion"].as_str(), created["spec"]["cohort"].as_str()),
        (Some("kueue.x-k8s.io/v1beta1"), Some("all"))
    );
    let new = rig.get(&format!("{QUEUES}/old")).await.ok();
    assert_eq!(
        (new["apiVersion"].as_str(), new["spec"]["cohortName"].as_str()),
        (Some("kueue.x-k8s.io/v1beta2"), Some("all"))
    );
    let wrong = rig.post(QUEUES, &old).await;
    assert_eq!(wrong.failure().0, 400, "the path and the body must agree");
}

#[tokio::test]
async fn unsupported_fields_get_a_warning() {
    let rig = Rig::with_queue().await;
    let mut shared = queue("shared");
    shared["spec"]["concurrentAdmissionPolicy"] = json!({"migration": {"mode": "TryPreferredFlavors"}});
    shared["spec"]["colour"] = json!("blue");
    let created = rig.post(QUEUES, &shared).await;
    let warnings = created.warnings().join("\n");
    assert!(
        warnings.contains("299 - \"spec.concurrentAdmissionPolicy: flavors are not tried at the same time"),
        "{warnings}"
    );
    assert!(warnings.contains("colour"), "{warnings}");
}

#[tokio::test]
async fn every_write_names_its_user() {
    let rig = Rig::with_queue().await;
    rig.post(QUEUES, &queue("audited")).await.ok();
    let lines = rig.get("/meridian/v1/audit").await.body;
    let line = lines.as_str().unwrap().lines().find(|line| line.contains("audited")).unwrap().to_owned();
    assert!(line.contains(r#""by":"user:ada""#), "{line}");
}

#[tokio::test]
async fn objects_of_one_cluster_are_separate_from_global_ones() {
    let rig = Rig::with_queue().await;
    let mut cap = queue("q");
    cap["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0]["nominalQuota"] = json!("4");
    rig.post(&format!("{QUEUES}?cluster=eu"), &cap).await.ok();
    let quota = "/spec/resourceGroups/0/flavors/0/resources/0/nominalQuota";
    let global = rig.get(&format!("{QUEUES}/q")).await.ok();
    let scoped = rig.get(&format!("{QUEUES}/q?cluster=eu")).await.ok();
    assert_eq!(
        (global.pointer(quota).unwrap(), scoped.pointer(quota).unwrap()),
        (&json!("100"), &json!("4"))
    );
    assert_eq!(rig.names(QUEUES).await, ["q"]);
    assert_eq!(rig.names(&format!("{QUEUES}?cluster=eu")).await, ["q"]);
    rig.put(&format!("{QUEUES}/q?cluster=eu"), &scoped).await.ok();
    rig.delete(&format!("{QUEUES}/q?cluster=eu")).await.ok();
    assert!(rig.names(&format!("{QUEUES}?cluster=eu")).await.is_empty());
    assert_eq!(rig.names(QUEUES).await, ["q"]);
}
