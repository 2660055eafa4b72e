//! The endpoints `apply` and `bulk`.

use super::*;

async fn bulk(rig: &Rig, key: Option<&str>, objects: &[Value]) -> Answer {
    let request = rig.request("POST", "/meridian/v1/bulk", Some(&json!({"objects": objects})));
    rig.read(match key {
        Some(key) => with(request, "idempotency-key", key),
        None => request,
    })
    .await
}

fn results(answer: &Value) -> Vec<String> {
    let results = answer["results"].as_array().unwrap().iter();
    results
        .map(|r| {
            format!(
                "{} {} {}",
                r["kind"].as_str().unwrap(),
                r["name"].as_str().unwrap(),
                r["result"].as_str().unwrap()
            )
        })
        .collect()
}

#[tokio::test]
async fn apply_is_atomic_and_idempotent() {
    let rig = Rig::new().await;
    // the order has references to later objects
    let all = [job("train"), local("main", "q"), queue("q"), flavor()];
    let applied = rig.apply(&all).await.ok();
    assert_eq!(
        results(&applied),
        [
            "Job train created",
            "LocalQueue main created",
            "ClusterQueue q created",
            "ResourceFlavor any created"
        ]
    );
    let version = rig.engine.reads().version();
    let again = rig.apply(&all).await.ok();
    assert!(results(&again).iter().all(|r| r.ends_with("unchanged")), "{again}");
    assert_eq!(rig.engine.reads().version(), version);

    let refused = rig
        .apply(&[
            queue("new"),
            local("l", "absent"),
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ok"}}),
        ])
        .await;
    assert_eq!((refused.failure().0, refused.failure().1), (422, "Invalid"));
    assert_eq!(refused.body["details"]["causes"][0]["field"], "objects[1].spec.clusterQueue");
    let refused = rig
        .apply(&[
            queue("new"),
            json!({"kind": "Nothing"}),
            json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "X"}}),
        ])
        .await;
    let fields: Vec<&str> = refused.body["details"]["causes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|c| c["field"].as_str().unwrap())
        .collect();
    assert!(
        fields.iter().any(|f| f.starts_with("objects[1]"))
            && fields.iter().any(|f| f.starts_with("objects[2].")),
        "{fields:?}"
    );
    assert_eq!(rig.names(QUEUES).await, ["q"]);
    assert_eq!(rig.names("/api/v1/namespaces").await, Vec::<String>::new());
}

#[tokio::test]
async fn apply_warns_per_object_and_accepts_objects_read_back() {
    let rig = Rig::with_queue().await;
    let mut shared = rig.get(&format!("{QUEUES}/q")).await.ok();
    shared["spec"]["concurrentAdmissionPolicy"] = json!({"migration": {"mode": "TryPreferredFlavors"}});
    let applied = rig.apply(&[shared]).await.ok();
    assert_eq!(results(&applied), ["ClusterQueue q configured"]);
    let warnings = applied["warnings"].to_string();
    assert!(
        warnings.contains(
            "clusterqueue/q: spec.concurrentAdmissionPolicy: flavors are not tried at the same time"
        ),
        "{warnings}"
    );
    let dry = rig.post("/meridian/v1/apply", &json!({"objects": [queue("dry")], "dryRun": true})).await.ok();
    assert_eq!(results(&dry), ["ClusterQueue dry created"]);
    assert_eq!(rig.names(QUEUES).await, ["q"]);
    let unnamed = rig.apply(&[generated("t-")]).await;
    assert_eq!(unnamed.body["details"]["causes"][0]["field"], "objects[0].metadata.name");
    let scoped =
        rig.post("/meridian/v1/apply", &json!({"objects": [queue("q")], "cluster": "eu"})).await.ok();
    assert_eq!(results(&scoped), ["ClusterQueue q created"]);
    let policy = json!({
        "apiVersion": "meridian.dev/v1alpha1", "kind": "ResidencyPolicy", "metadata": {"name": "p"},
        "spec": {"allow": {"jurisdictions": ["EU"]}},
    });
    let refused =
        rig.post("/meridian/v1/apply", &json!({"objects": [policy, job("j")], "cluster": "eu"})).await;
    let causes = refused.body["details"]["causes"].as_array().unwrap();
    assert_eq!(
        causes.iter().map(|cause| cause["field"].as_str().unwrap()).collect::<Vec<_>>(),
        ["objects[0].kind", "objects[1].kind"]
    );
    assert!(causes[0]["message"].as_str().unwrap().contains("apply it without `--cluster`"), "{causes:?}");
}

#[tokio::test]
async fn bulk_creates_all_jobs_or_none() {
    let rig = Rig::with_queue().await;
    let made = bulk(&rig, None, &[job("a"), generated("t-"), generated("t-")]).await.ok();
    assert_eq!(made["results"].as_array().unwrap().len(), 3);
    assert!(
        made["results"].as_array().unwrap().iter().all(|r| r["result"] == "created" && r["uid"].is_string())
    );
    let mut lost = job("d");
    lost["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] = json!("nowhere");
    let refused = bulk(&rig, None, &[job("c"), job("a"), lost]).await;
    let causes = refused.body["details"]["causes"].as_array().unwrap();
    assert_eq!(
        (causes[0]["field"].as_str(), causes[0]["reason"].as_str()),
        (Some("objects[1]"), Some("AlreadyExists"))
    );
    assert!(causes[1]["field"].as_str().unwrap().starts_with("objects[2]."), "{causes:?}");
    assert_eq!(rig.names(JOBS).await.len(), 3);
    assert_eq!(bulk(&rig, None, &[job("a")]).await.failure().1, "AlreadyExists");
    assert_eq!(
        bulk(&rig, None, &[queue("x")]).await.body["details"]["causes"][0]["field"],
        "objects[0].kind"
    );
    assert_eq!(bulk(&rig, None, &[]).await.failure().0, 400);
}

#[tokio::test]
async fn a_key_makes_a_repetition_harmless() {
    let rig = Rig::with_queue().await;
    let jobs = [job("a"), generated("t-"), generated("t-")];
    let first = bulk(&rig, Some("k1"), &jobs).await.ok();
    let again = bulk(&rig, Some("k1"), &jobs).await.ok();
    assert_eq!(first, again);
    assert_eq!(rig.names(JOBS).await.len(), 3);
    let other = bulk(&rig, Some("k1"), &[job("b")]).await;
    assert_eq!((other.failure().0, other.failure().1), (409, "Conflict"));
    // another key gives other names, and an unchanged existing job counts as success
    let next = bulk(&rig, Some("k2"), &jobs).await.ok();
    assert_eq!(next["results"][0]["result"], "unchanged");
    assert_eq!(rig.names(JOBS).await.len(), 5);
    let mut changed = job("a");
    changed["spec"]["backoffLimit"] = json!(9);
    assert_eq!(bulk(&rig, Some("k3"), &[changed]).await.failure().0, 422);
    for key in ["", &"x".repeat(129)] {
        assert_eq!(bulk(&rig, Some(key), &jobs).await.failure().0, 400);
    }
}

#[tokio::test]
async fn a_repetition_is_answered_only_to_a_user_that_may_still_create() {
    let rig = Rig::with_roles().await;
    let body = json!({"objects": [job("a")]});
    let repeat = async || {
        let request = rig.request("POST", "/meridian/v1/bulk", Some(&body));
        let request = with(request, "authorization", &format!("Bearer {}", rig.submitter));
        rig.read(with(request, "idempotency-key", "k1")).await
    };
    let first = repeat().await.ok();
    assert_eq!(repeat().await.ok(), first);
    let binding = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings/meridian-submitter";
    rig.delete(binding).await.ok();
    assert_eq!(repeat().await.failure().0, 403);
}
