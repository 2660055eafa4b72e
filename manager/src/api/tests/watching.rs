//! Watches.

use super::*;

const SPACES: &str = "/api/v1/namespaces";

fn labelled(name: &str, team: &str) -> Value {
    namespace(name, &json!({"team": team}))
}

#[tokio::test]
async fn a_watch_continues_from_a_list() {
    let rig = Rig::new().await;
    rig.apply(&[labelled("a", "x")]).await.ok();
    let from = version(&rig.get(SPACES).await.ok());
    // before the watch begins, and after
    rig.apply(&[labelled("b", "x")]).await.ok();
    let mut watch = rig.watch(&format!("{SPACES}?watch=true&resourceVersion={from}")).await;
    assert_eq!(watch.next_summary().await, "ADDED b");
    rig.apply(&[labelled("a", "y")]).await.ok();
    let changed = watch.next().await.unwrap();
    assert_eq!(
        (changed["type"].as_str(), changed["object"]["metadata"]["labels"]["team"].as_str()),
        (Some("MODIFIED"), Some("y"))
    );
    rig.delete(&format!("{SPACES}/b")).await.ok();
    let deleted = watch.next().await.unwrap();
    assert_eq!(deleted["type"], "DELETED");
    // a watch can resume from any event
    let mut resumed =
        rig.watch(&format!("{SPACES}?watch=true&resourceVersion={}", version(&changed["object"]))).await;
    assert_eq!(resumed.next_summary().await, "DELETED b");
    let mut resumed =
        rig.watch(&format!("{SPACES}?watch=true&resourceVersion={}", version(&deleted["object"]))).await;
    rig.apply(&[labelled("c", "x")]).await.ok();
    assert_eq!(resumed.next_summary().await, "ADDED c");
}

#[tokio::test]
async fn versions_in_a_watch_only_increase() {
    let rig = Rig::new().await;
    let mut watch = rig.watch(&format!("{SPACES}?watch=true")).await;
    rig.apply(&[labelled("a", "x"), labelled("b", "x"), labelled("c", "x")]).await.ok();
    rig.apply(&[labelled("a", "y"), labelled("b", "y")]).await.ok();
    rig.delete(&format!("{SPACES}/a")).await.ok();
    let mut last = 0;
    for _ in 0..6 {
        let event = watch.next().await.unwrap();
        assert!(version(&event["object"]) >= last, "{event} after {last}");
        last = version(&event["object"]);
    }
    assert_eq!(last, rig.engine.reads().version().0);
}

#[tokio::test]
async fn a_watch_without_version_begins_with_existing_objects() {
    let rig = Rig::new().await;
    rig.apply(&[labelled("a", "x"), labelled("b", "x")]).await.ok();
    for query in ["watch=true", "watch=1&resourceVersion=0"] {
        let mut watch = rig.watch(&format!("{SPACES}?{query}")).await;
        assert_eq!([watch.next_summary().await, watch.next_summary().await], ["ADDED a", "ADDED b"]);
        rig.delete(&format!("{SPACES}/b")).await.ok();
        assert_eq!(watch.next_summary().await, "DELETED b");
        rig.apply(&[labelled("b", "x")]).await.ok();
    }
    let query =
        "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let mut watch = rig.watch(&format!("{SPACES}?{query}")).await;
    assert_eq!([watch.next_summary().await, watch.next_summary().await], ["ADDED a", "ADDED b"]);
    let mark = watch.next().await.unwrap();
    assert_eq!(mark["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"], "true");
}

#[tokio::test]
async fn past_and_future_versions_are_refused() {
    let rig = Rig::new().await;
    // a leadership's first record is above 0, and changes before the start are not in the ring
    rig.apply(&[labelled("a", "x")]).await.ok();
    let now = rig.engine.reads().version().0;
    let ahead = rig.get(&format!("{SPACES}?watch=true&resourceVersion={}", now + 7)).await;
    assert_eq!((ahead.failure().0, ahead.failure().1), (504, "Timeout"));
    // more changes than the ring holds
    let wide: Vec<Value> = (0..2_000).map(|i| labelled(&format!("n{i}"), "x")).collect();
    let other: Vec<Value> = (0..2_000).map(|i| labelled(&format!("n{i}"), "y")).collect();
    for _ in 0..9 {
        rig.apply(&wide).await.ok();
        rig.apply(&other).await.ok();
    }
    let gone = rig.get(&format!("{SPACES}?watch=true&resourceVersion={now}")).await;
    assert_eq!((gone.failure().0, gone.failure().1), (410, "Expired"));
    assert!(gone.failure().2.starts_with(&format!("too old resource version: {now}")), "{gone:?}");
}

#[tokio::test]
async fn label_changes_add_and_remove_objects() {
    let rig = Rig::new().await;
    rig.apply(&[labelled("in", "x"), labelled("out", "y")]).await.ok();
    let from = rig.engine.reads().version().0;
    let mut watch =
        rig.watch(&format!("{SPACES}?watch=true&resourceVersion={from}&labelSelector=team%3Dx")).await;
    rig.apply(&[labelled("out", "z")]).await.ok(); // still not selected: no event
    rig.apply(&[labelled("out", "x")]).await.ok();
    assert_eq!(watch.next_summary().await, "ADDED out");
    rig.apply(&[labelled("in", "y")]).await.ok();
    assert_eq!(watch.next_summary().await, "DELETED in");
    rig.delete(&format!("{SPACES}/in")).await.ok(); // deleted already for this client
    rig.delete(&format!("{SPACES}/out")).await.ok();
    assert_eq!(watch.next_summary().await, "DELETED out");
}

#[tokio::test]
async fn a_watch_sees_its_kind_namespace_and_name_only() {
    let rig = Rig::with_queue().await;
    let mut all = rig.watch("/apis/batch/v1/jobs?watch=true").await;
    let mut elsewhere = rig.watch("/apis/batch/v1/namespaces/other/jobs?watch=true&timeoutSeconds=1").await;
    let mut one = rig.watch(&format!("{JOBS}?watch=true&fieldSelector=metadata.name%3Dtwo")).await;
    let mut named = rig.watch(&format!("{JOBS}/two?watch=true")).await;
    rig.post(JOBS, &job("one")).await.ok();
    rig.post(JOBS, &job("two")).await.ok();
    let event = one.next().await.unwrap();
    assert_eq!(
        (event["type"].as_str(), event["object"]["metadata"]["name"].as_str()),
        (Some("ADDED"), Some("two"))
    );
    assert_eq!(event["object"]["spec"]["template"]["spec"]["containers"][0]["image"], "example/train");
    assert_eq!(named.next_summary().await, "ADDED two");
    assert_eq!(all.next_summary().await, "ADDED one");
    assert_eq!(elsewhere.next().await, None, "no event until the timeout");
}

#[tokio::test]
async fn a_watch_sends_bookmarks_tables_and_both_versions() {
    let rig = Rig::with_queue().await;
    let now = rig.engine.reads().version().0;
    let path = format!("{JOBS}?watch=true&resourceVersion={now}&allowWatchBookmarks=true&timeoutSeconds=1");
    let mut watch = rig.watch(&path).await;
    let mark = watch.next().await.unwrap();
    assert_eq!((mark["type"].as_str(), mark["object"]["kind"].as_str()), (Some("BOOKMARK"), Some("Job")));
    assert!(version(&mark["object"]) >= now);
    assert_eq!(watch.next().await, None);

    let table = rig.request("GET", &format!("{QUEUES}?watch=true"), None);
    let response = rig.send(with(table, "accept", "application/json;as=Table;v=v1;g=meta.k8s.io")).await;
    let mut events = Events { stream: response.into_body().into_data_stream(), buffer: Vec::new() };
    let event = events.next().await.unwrap();
    assert_eq!((event["type"].as_str(), event["object"]["kind"].as_str()), (Some("ADDED"), Some("Table")));
    assert_eq!(event["object"]["rows"][0]["cells"][0], "q");

    let mut old = rig.watch("/apis/kueue.x-k8s.io/v1beta1/clusterqueues?watch=true").await;
    assert_eq!(old.next().await.unwrap()["object"]["apiVersion"], "kueue.x-k8s.io/v1beta1");
}

#[tokio::test]
async fn watches_end_with_the_manager() {
    let rig = Rig::new().await;
    let mut watch = rig.watch(&format!("{SPACES}?watch=true")).await;
    rig.stop.cancel();
    assert_eq!(watch.next().await, None);
}
