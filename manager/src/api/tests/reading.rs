//! Reads: objects, lists, pages, tables and discovery.

use super::*;

const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";

#[tokio::test]
async fn a_list_has_one_version_and_is_sorted() {
    let rig = Rig::with_queue().await;
    rig.apply(&[queue("b"), queue("a")]).await.ok();
    let list = rig.get(QUEUES).await.ok();
    assert_eq!(
        (list["kind"].as_str(), list["apiVersion"].as_str()),
        (Some("ClusterQueueList"), Some("kueue.x-k8s.io/v1beta2"))
    );
    assert_eq!(version(&list), rig.engine.reads().version().0);
    assert_eq!(rig.names(QUEUES).await, ["a", "b", "q"]);
    assert!(
        list["items"]
            .as_array()
            .unwrap()
            .iter()
            .all(|item| version(item) <= version(&list) && item["kind"] == "ClusterQueue")
    );
    let old = rig.get("/apis/kueue.x-k8s.io/v1beta1/clusterqueues").await.ok();
    assert_eq!(old["items"][0]["apiVersion"], "kueue.x-k8s.io/v1beta1");
}

#[tokio::test]
async fn lists_are_per_namespace_or_over_all() {
    let rig = Rig::with_queue().await;
    let mut elsewhere = local("other", "q");
    elsewhere["metadata"]["namespace"] = json!("research");
    rig.apply(&[elsewhere]).await.ok();
    let of = |namespace| format!("/apis/kueue.x-k8s.io/v1beta2/namespaces/{namespace}/localqueues");
    assert_eq!(rig.names(&of("research")).await, ["other"]);
    assert_eq!(rig.names(&of("default")).await, ["main"]);
    assert_eq!(rig.names("/apis/kueue.x-k8s.io/v1beta2/localqueues").await.len(), 2);
    assert!(rig.names(&of("empty")).await.is_empty());
}

#[tokio::test]
async fn selectors_filter_a_list() {
    let rig = Rig::new().await;
    let spaces: Vec<Value> = [("a", "vision"), ("b", "nlp"), ("c", "vision")]
        .iter()
        .map(|(n, team)| namespace(n, &json!({"team": team})))
        .collect();
    rig.apply(&spaces).await.ok();
    let names = async |query: &str| rig.names(&format!("/api/v1/namespaces?{query}")).await;
    assert_eq!(names("labelSelector=team%3Dvision").await, ["a", "c"]);
    assert_eq!(names("labelSelector=team%20notin%20(vision)").await, ["b"]);
    assert_eq!(names("fieldSelector=metadata.name%3Db").await, ["b"]);
    assert_eq!(
        names("fieldSelector=metadata.name%3Db&labelSelector=team%3Dvision").await,
        Vec::<String>::new()
    );
    assert_eq!(names("fieldSelector=metadata.name!%3Db").await, ["a", "c"]);
    assert_eq!(rig.get("/api/v1/namespaces?fieldSelector=spec.x%3D1").await.failure().0, 400);
}

#[tokio::test]
async fn all_pages_have_the_version_of_the_first() {
    let rig = Rig::new().await;
    let all: Vec<Value> = (0..5).map(|i| namespace(&format!("n{i}"), &json!({}))).collect();
    rig.apply(&all).await.ok();
    let path = "/api/v1/namespaces?limit=2";
    let first = rig.get(path).await.ok();
    assert_eq!(first["metadata"]["remainingItemCount"], 3);
    // changes between two pages are not visible in them
    rig.delete("/api/v1/namespaces/n3").await.ok();
    rig.apply(&[namespace("n9", &json!({}))]).await.ok();
    let mut names: Vec<Value> =
        first["items"].as_array().unwrap().iter().map(|i| i["metadata"]["name"].clone()).collect();
    let mut token = first["metadata"]["continue"].as_str().map(str::to_owned);
    while let Some(next) = token {
        let page = rig.get(&format!("{path}&continue={next}")).await.ok();
        assert_eq!(version(&page), version(&first));
        names.extend(page["items"].as_array().unwrap().iter().map(|i| i["metadata"]["name"].clone()));
        token = page["metadata"]["continue"].as_str().map(str::to_owned);
    }
    assert_eq!(names, ["n0", "n1", "n2", "n3", "n4"]);
    let unknown = rig.get(&format!("{path}&continue={}", "A".repeat(32))).await;
    assert_eq!((unknown.failure().0, unknown.failure().1), (410, "Expired"));
    let foreign = first["metadata"]["continue"].as_str().unwrap();
    assert_eq!(
        rig.get(&format!("{QUEUES}?continue={foreign}")).await.failure().0,
        410,
        "a token is valid for its own list only"
    );
}

#[tokio::test]
async fn unavailable_versions_are_refused() {
    let rig = Rig::with_queue().await;
    let now = rig.engine.reads().version().0;
    assert!(
        rig.get(&format!("{QUEUES}?resourceVersion={now}&resourceVersionMatch=Exact"))
            .await
            .code
            .is_success()
    );
    assert!(
        rig.get(&format!("{QUEUES}?resourceVersion=1&resourceVersionMatch=NotOlderThan"))
            .await
            .code
            .is_success()
    );
    assert!(rig.get(&format!("{QUEUES}?resourceVersion=0")).await.code.is_success());
    let old = rig.get(&format!("{QUEUES}?resourceVersion=1&resourceVersionMatch=Exact")).await;
    assert_eq!((old.failure().0, old.failure().1), (410, "Expired"));
    let ahead = rig.get(&format!("{QUEUES}?resourceVersion={}", now + 1)).await;
    assert_eq!((ahead.failure().0, ahead.failure().1), (504, "Timeout"));
    assert_eq!(ahead.body["details"]["causes"][0]["reason"], "ResourceVersionTooLarge");
    assert_eq!(ahead.headers["retry-after"], "2");
}

#[tokio::test]
async fn tables_have_the_columns_of_their_kind() {
    let rig = Rig::with_queue().await;
    rig.post(JOBS, &job("train")).await.ok();
    let table = rig.read(with(rig.request("GET", JOBS, None), "accept", TABLE)).await.ok();
    assert_eq!(
        (table["kind"].as_str(), table["apiVersion"].as_str()),
        (Some("Table"), Some("meta.k8s.io/v1"))
    );
    let columns: Vec<&str> =
        table["columnDefinitions"].as_array().unwrap().iter().map(|c| c["name"].as_str().unwrap()).collect();
    assert_eq!(columns[..6], ["Name", "Queue", "State", "Cluster", "Pods", "Age"]);
    assert_eq!(columns[6..], ["Region", "Attempts", "Priority class", "Reason"]);
    let cells = table["rows"][0]["cells"].as_array().unwrap();
    assert_eq!(cells[..5], ["train", "main", "Pending", "", "0/2"]);
    assert_eq!(cells[7], 0);
    assert_eq!(table["rows"][0]["object"]["kind"], "PartialObjectMetadata");
    assert_eq!(table["rows"][0]["object"]["metadata"]["namespace"], "default");
    let one = rig
        .read(with(rig.request("GET", &format!("{JOBS}/train?includeObject=Object"), None), "accept", TABLE))
        .await
        .ok();
    assert_eq!(one["rows"][0]["object"]["spec"]["parallelism"], 2);
    let none = rig
        .read(with(rig.request("GET", &format!("{JOBS}?includeObject=None"), None), "accept", TABLE))
        .await
        .ok();
    assert!(none["rows"][0].get("object").is_none());
}

#[tokio::test]
async fn a_jobs_workload_is_listed() {
    let rig = Rig::with_queue().await;
    let created = rig.post(JOBS, &job("train")).await.ok();
    let workloads = rig.get("/apis/kueue.x-k8s.io/v1beta1/namespaces/default/workloads").await.ok();
    let workload = &workloads["items"][0];
    assert!(workload["metadata"]["name"].as_str().unwrap().starts_with("job-train-"));
    assert_eq!(workload["metadata"]["ownerReferences"][0]["uid"], created["metadata"]["uid"]);
    assert_eq!(workload["apiVersion"], "kueue.x-k8s.io/v1beta1");
}

#[tokio::test]
async fn long_answers_are_compressed_on_demand() {
    let rig = Rig::new().await;
    let all: Vec<Value> = (0..600)
        .map(|i| namespace(&format!("n{i}"), &json!({"padding": "x".repeat(63), "more": "y".repeat(63)})))
        .collect();
    rig.apply(&all).await.ok();
    let zipped =
        rig.send(with(rig.request("GET", "/api/v1/namespaces", None), "accept-encoding", "gzip")).await;
    assert_eq!(zipped.headers()["content-encoding"], "gzip");
    let short =
        rig.send(with(rig.request("GET", "/api/v1/namespaces/n1", None), "accept-encoding", "gzip")).await;
    assert!(short.headers().get("content-encoding").is_none());
    let watch = rig
        .send(with(rig.request("GET", "/api/v1/namespaces?watch=true", None), "accept-encoding", "gzip"))
        .await;
    assert!(watch.headers().get("content-encoding").is_none(), "a stream is never delayed by compression");
}

#[tokio::test]
async fn discovery_lists_every_kind() {
    let rig = Rig::new().await;
    assert_eq!(rig.get("/api").await.ok()["versions"], json!(["v1"]));
    let groups = rig.get("/apis").await.ok();
    for group in groups["groups"].as_array().unwrap() {
        for version in group["versions"].as_array().unwrap() {
            let path = format!("/apis/{}", version["groupVersion"].as_str().unwrap());
            for resource in rig.get(&path).await.ok()["resources"].as_array().unwrap() {
                // reviews are only created
                if !resource["verbs"].as_array().unwrap().contains(&json!("list")) {
                    continue;
                }
                rig.get(&format!("{path}/{}", resource["name"].as_str().unwrap())).await.ok();
            }
        }
    }
    assert!(rig.get("/version").await.ok()["gitVersion"].as_str().unwrap().starts_with("v1."));
    for absent in
        ["/openapi/v2", "/openapi/v3", "/apis/apps", "/apis/batch/v2", "/api/v2", "/apis/apps/v1/deployments"]
    {
        assert_eq!(rig.get(absent).await.failure().0, 404, "{absent}");
    }
    let head = rig.read(rig.request("HEAD", QUEUES, None)).await;
    assert_eq!(head.code, 200);
    let options = rig.read(rig.request("OPTIONS", QUEUES, None)).await;
    assert_eq!(
        (options.code.as_u16(), options.headers["allow"].to_str().unwrap()),
        (204, "GET, POST, HEAD, OPTIONS")
    );
}
