//! Long lists: in pieces, of one version, and bounded.

use super::*;

/// Pieces so small that a list of a few objects is long.
fn limits() -> ListLimits {
    ListLimits { piece_bytes: 256, ..ListLimits::default() }
}

/// A rig with `count` namespaces.
async fn rig(limits: ListLimits, count: usize) -> Rig {
    let rig = Rig::with_lists(limits).await;
    let all: Vec<Value> =
        (0..count).map(|i| namespace(&format!("n{i:02}"), &json!({"odd": (i % 2).to_string()}))).collect();
    rig.apply(&all).await.ok();
    rig
}

fn names(list: &Value) -> Vec<&str> {
    let items = list["items"].as_array().unwrap();
    items.iter().map(|item| item["metadata"]["name"].as_str().unwrap()).collect()
}

/// An answer of which only the beginning was read.
struct Begun(BodyDataStream, Vec<u8>);

impl Begun {
    async fn read(rig: &Rig, path: &str) -> Self {
        let response = rig.send(rig.request("GET", path, None)).await;
        assert_eq!(response.status(), StatusCode::OK);
        let mut stream = response.into_body().into_data_stream();
        let first = stream.next().await.unwrap().unwrap().to_vec();
        Self(stream, first)
    }

    async fn rest(mut self) -> Result<Value, axum::Error> {
        while let Some(piece) = tokio::time::timeout(DEADLINE, self.0.next()).await.expect("it continues") {
            self.1.extend(piece?);
        }
        Ok(serde_json::from_slice(&self.1).unwrap())
    }
}

#[tokio::test]
async fn a_long_list_is_of_one_version_whatever_changes_meanwhile() {
    let rig = rig(limits(), 30).await;
    let version_before = rig.engine.reads().version().0;
    let begun = Begun::read(&rig, "/api/v1/namespaces").await;
    assert!(begun.1.len() < 1_024, "only a piece is rendered: {}", begun.1.len());
    rig.delete("/api/v1/namespaces/n29").await.ok();
    rig.apply(&[namespace("n28", &json!({"changed": "yes"})), namespace("n99", &json!({}))]).await.ok();
    let list = begun.rest().await.unwrap();
    assert_eq!(version(&list), version_before);
    assert_eq!((names(&list).len(), names(&list)[29]), (30, "n29"));
    assert_eq!(list["items"][28]["metadata"]["labels"]["changed"], Value::Null);
    assert_eq!(list["metadata"]["continue"], Value::Null);
}

#[tokio::test]
async fn a_long_list_has_the_jobs_that_are_deleted_while_it_is_read() {
    let rig = Rig::with_lists(limits()).await;
    rig.apply(&[flavor(), queue("q"), local("main", "q")]).await.ok();
    for i in 0..6 {
        rig.post(JOBS, &job(&format!("j{i}"))).await.ok();
    }
    let begun = Begun::read(&rig, JOBS).await;
    rig.delete(&format!("{JOBS}/j5")).await.ok();
    let list = begun.rest().await.unwrap();
    assert_eq!(names(&list), ["j0", "j1", "j2", "j3", "j4", "j5"]);
    assert_eq!(list["items"][5]["spec"]["parallelism"], 2, "with its body");
}

#[tokio::test]
async fn a_limit_counts_whatever_the_length_of_the_list() {
    // a list that is too long to be kept together with others
    let rig = rig(ListLimits { kept_objects: 3, ..limits() }, 7).await;
    let mut path = "/api/v1/namespaces?limit=3".to_owned();
    let mut seen = Vec::new();
    loop {
        let page = rig.get(&path).await.ok();
        assert!(names(&page).len() <= 3, "{page}");
        seen.extend(names(&page).iter().map(|name| (*name).to_owned()));
        let remaining = page["metadata"]["remainingItemCount"].as_u64().unwrap_or(0);
        assert_eq!(remaining, 7 - seen.len() as u64);
        match page["metadata"]["continue"].as_str() {
            Some(token) => path = format!("/api/v1/namespaces?limit=3&continue={token}"),
            None => break,
        }
    }
    assert_eq!(seen, ["n00", "n01", "n02", "n03", "n04", "n05", "n06"]);
    let odd = rig.get("/api/v1/namespaces?limit=2&labelSelector=odd%3D1").await.ok();
    assert_eq!(names(&odd), ["n01", "n03"]);
    assert_eq!(odd["metadata"]["remainingItemCount"], Value::Null, "unknown, as in Kubernetes");
    let token = odd["metadata"]["continue"].as_str().unwrap();
    let rest =
        rig.get(&format!("/api/v1/namespaces?limit=2&labelSelector=odd%3D1&continue={token}")).await.ok();
    assert_eq!(names(&rest), ["n05"]);
}

#[tokio::test]
async fn readers_that_do_not_read_use_up_their_own_share_only() {
    let rig = rig(ListLimits { running_per_caller: 2, ..limits() }, 30).await;
    let unread =
        [Begun::read(&rig, "/api/v1/namespaces").await, Begun::read(&rig, "/api/v1/namespaces").await];
    let refused = rig.get("/api/v1/namespaces").await;
    assert_eq!(refused.failure().0, 429);
    assert_eq!(refused.headers["retry-after"], "2");
    rig.get("/api/v1/namespaces?limit=1").await.ok();
    let other = TokenInfo::of_user("sue", &[MASTERS], Wall(0));
    let other = rig.users.change(|tokens| tokens.issue(other, [5; 32])).unwrap();
    let listed = rig.as_user(other.expose(), "GET", "/api/v1/namespaces", None).await.ok();
    assert_eq!(names(&listed).len(), 30);
    drop(unread);
    assert_eq!(names(&rig.get("/api/v1/namespaces").await.ok()).len(), 30);
}

#[tokio::test]
async fn the_objects_of_running_lists_are_bounded() {
    let rig = rig(ListLimits { objects_per_caller: 40, objects: 100, ..limits() }, 30).await;
    let unread = Begun::read(&rig, "/api/v1/namespaces").await;
    let refused = rig.get("/api/v1/namespaces").await;
    assert_eq!((refused.failure().0, refused.headers.contains_key("retry-after")), (429, true));
    let watch = rig.send(rig.request("GET", "/api/v1/namespaces?watch=true", None)).await;
    assert_eq!(watch.status(), StatusCode::TOO_MANY_REQUESTS, "a watch begins with a list");
    unread.rest().await.unwrap();
    rig.get("/api/v1/namespaces").await.ok();
    let mut events = rig.watch("/api/v1/namespaces?watch=true").await;
    for i in 0..30 {
        assert_eq!(events.next_summary().await, format!("ADDED n{i:02}"));
    }
    rig.apply(&[namespace("n30", &json!({}))]).await.ok();
    assert_eq!(events.next_summary().await, "ADDED n30");
}

#[tokio::test]
async fn a_list_breaks_off_if_nobody_reads_it() {
    let stall = Duration::from_millis(50);
    let rig = rig(ListLimits { stall, objects_per_caller: 40, ..limits() }, 30).await;
    let unread = Begun::read(&rig, "/api/v1/namespaces").await;
    let free = async {
        while rig.get("/api/v1/namespaces").await.code != StatusCode::OK {
            tokio::time::sleep(stall).await;
        }
    };
    tokio::time::timeout(DEADLINE, free).await.expect("its listing is dropped");
    assert!(unread.rest().await.is_err(), "the reader is told");
    let text = rig.engine.metrics().render(&[]);
    assert!(text.contains(r#"meridian_lists_broken_off_total{reason="stalled"} 1"#), "{text}");
}

#[tokio::test]
async fn one_caller_leaves_logs_to_others() {
    let logs = crate::api::state::OpenLogs::default();
    let (eu, us) = (ClusterName::new("eu"), ClusterName::new("us"));
    let take_all = |caller: &str| -> Vec<_> { std::iter::from_fn(|| logs.take(caller, &eu).ok()).collect() };
    let team: Vec<_> = ["sam", "kim", "lee", "max"].into_iter().map(take_all).collect();
    assert_eq!(team[0].len(), crate::api::state::LOGS_PER_CALLER_MAX);
    assert!(logs.take("ada", &eu).is_ok(), "a fifth user gets a log");
    assert!(logs.take("sam", &eu).is_err() && logs.take("sam", &us).is_ok(), "clusters have their own");
}
