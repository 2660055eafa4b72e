use super::*;
use serde_json::json;

fn show(answer: Value) -> String {
    Explanation::parse(answer).unwrap().text("2026-11-21T10:00:00Z".parse().unwrap(), false)
}

#[test]
fn a_pending_workload_shows_position_and_clusters() {
    let answer = json!({
        "namespace": "default", "name": "train", "uid": "u", "state": "Pending",
        "since": "2026-11-21T09:57:00Z", "attempts": 0, "history": [],
        "position": {"queue": "gpus", "place": 2, "of": 14},
        "clusters": [
            {
                "cluster": "eu", "region": "europe-west4", "verdict": "no-room",
                "reason": "1 of 4 `nvidia.com/gpu` free", "wouldHelp": "a workload there ends",
                "estimate": null,
            },
            {
                "cluster": "us", "region": null, "verdict": "waiting", "reason": "said \u{1b}[31m\"soon\"",
                "wouldHelp": "", "estimate": 300_000,
            },
            {
                "cluster": "asia", "region": "asia-southeast1", "verdict": "forbidden",
                "reason": "policy `eu-only`", "wouldHelp": "", "estimate": "after 18:00",
            },
        ],
        "summary": "pending: no cluster has 3 free nvidia.com/gpu", "wouldHelp": "a workload in `eu` ends",
    });
    let expect = [
        "train  Pending  no cluster has 3 free nvidia.com/gpu",
        "for 3m, position 2 of 14 in queue gpus",
        "",
        "CLUSTER   REGION            VERDICT     REASON",
        "eu        europe-west4      no-room     1 of 4 `nvidia.com/gpu` free",
        "                                        next: a workload there ends",
        "us        -                 waiting     said \\x1b[31m\"soon\"",
        "                                        estimated wait: about 5m",
        "asia      asia-southeast1   forbidden   policy `eu-only`",
        "                                        estimated wait: after 18:00",
        "",
        "next: a workload in `eu` ends",
    ];
    assert_eq!(show(answer).lines().collect::<Vec<_>>(), expect);
}

#[test]
fn long_names_and_reasons_stay_within_80_columns() {
    let reason = "3 `nvidia.com/gpu` are requested, 1 of 4 is free; none of its pods fits elsewhere";
    let cluster = |name: &str, region: &str| {
        json!({
            "cluster": name, "region": region, "verdict": "no-room", "reason": reason,
            "wouldHelp": "the end of `default/dws-job-t6pdf`, or its preemption, which the queue forbids",
        })
    };
    let text = show(json!({
        "name": "dws-job-8ncpw", "state": "Pending", "summary": format!("no cluster has room: {reason}"),
        "clusters": [
            cluster("multikueue-dws-worker-eu", "europe-west4"),
            cluster("multikueue-dws-worker-asia", "asia-southeast1"),
        ],
        "wouldHelp": reason,
    }));
    assert!(text.lines().all(|line| line.len() <= 80), "{text}");
    assert!(text.starts_with("dws-job-8ncpw  Pending  no cluster has room: 3"), "{text}");
    assert!(text.contains("multikueue-dws-worker-eu     europe-west4      no-room\n  3 `nvidia.com/gpu`"));
}

#[test]
fn many_clusters_with_equal_verdicts_share_a_line() {
    let cluster = |name: String, reason: &str| {
        let region = "europe-west4";
        json!({"cluster": name, "region": region, "verdict": "no-room", "reason": reason})
    };
    let mut clusters: Vec<Value> = (1..=40).map(|n| cluster(format!("eu-{n}"), "0 of 8 free")).collect();
    clusters.insert(1, cluster("eu-x".to_owned(), "1 of 8 free"));
    assert_eq!(
        show(json!({"name": "train", "state": "Pending", "clusters": clusters})),
        "train  Pending\n\
         \n\
         CLUSTER                        REGION         VERDICT   REASON\n\
         eu-1, eu-2, eu-3 and 37 more   europe-west4   no-room   0 of 8 free\n\
         eu-x                           europe-west4   no-room   1 of 8 free\n"
    );
}

#[test]
fn a_moved_workload_shows_its_attempts() {
    let answer = json!({
        "name": "train", "state": "Running", "since": "2026-11-21T09:59:00Z",
        "summary": "running in cluster `us`: all pods running",
        "history": [
            {
                "cluster": "asia", "fence": "1-2-3", "granted": "2026-11-21T09:50:00Z",
                "over": "2026-11-21T09:58:00Z", "end": "the lease expired",
            },
            {"cluster": "us", "fence": "1-2-4", "granted": "2026-11-21T09:58:00Z", "over": null, "end": null},
        ],
    });
    assert_eq!(
        show(answer),
        "train  Running  in cluster `us`: all pods running\n\
         for 60s\n\
         \n\
         ATTEMPT   CLUSTER   GRANTED   END\n\
         1         asia      10m ago   the lease expired\n\
         2         us        2m ago    -\n"
    );
}

#[test]
fn a_requeued_workload_shows_its_only_attempt() {
    let attempt = json!({
        "cluster": "eu", "fence": "1-2-3", "granted": "2026-11-21T09:50:00Z",
        "over": "2026-11-21T09:58:00Z", "end": "stopped as requested",
    });
    let answer =
        |state: &str| json!({"name": "train", "state": state, "summary": "waits", "history": [attempt]});
    let table = "\n\nATTEMPT   CLUSTER   GRANTED   END\n1         eu        10m ago   stopped as requested\n";
    assert_eq!(show(answer("Pending")), format!("train  Pending  waits{table}"));
    assert_eq!(show(answer("Finished")), "train  Finished  waits\n", "the summary tells how it ended");
}

#[test]
fn a_running_workload_shows_its_cluster() {
    let answer = json!({
        "name": "train", "state": "Running", "since": 1_795_255_140_000_i64, "position": null,
        "summary": "running in cluster `eu`: all pods running", "wouldHelp": "",
        "clusters": [
            {
                "cluster": "eu", "region": "europe-west4", "verdict": "running",
                "reason": "all pods running",
            },
        ],
    });
    assert_eq!(
        show(answer),
        "train  Running  in cluster `eu`: all pods running\n\
         for 60s\n\
         \n\
         CLUSTER   REGION         VERDICT   REASON\n\
         eu        europe-west4   running   all pods running\n"
    );
}

#[test]
fn a_shared_cluster_queue_adds_its_own_position() {
    let answer = json!({"name": "train", "state": "Pending", "position": {
        "queue": "gpus", "place": 1, "of": 3, "clusterQueue": {"name": "team", "place": 4, "of": 9}}});
    assert_eq!(
        show(answer),
        "train  Pending\nposition 1 of 3 in queue gpus (4 of 9 in cluster queue team)\n"
    );
}

#[test]
fn missing_fields_are_left_out() {
    assert_eq!(show(json!({"name": "x", "state": "Pending"})), "x  Pending\n");
}

#[test]
fn region_lines_align_their_reasons() {
    let cluster = |region: &str, verdict: &str, reason: &str| {
        let name = region;
        json!({"cluster": name, "region": region, "verdict": verdict, "reason": reason})
    };
    let explanation = Explanation::parse(json!({
        "clusters": [
            cluster("europe-west4", "no-room", "1 of 4 free"),
            cluster("us-east4", "forbidden", "residency policy `eu` allows only EU"),
            json!({"region": "asia", "verdict": "waiting", "reason": "queued", "estimate": 4_500}),
        ],
        "wouldHelp": "a workload ends",
    }))
    .unwrap();
    assert_eq!(
        explanation.region_lines(45),
        [
            "  europe-west4   1 of 4 free",
            "  us-east4       residency policy `eu` allows\n                 only EU",
            "  asia           queued; its estimate was\n                 about 4s",
            "  next: a workload ends",
        ]
    );
    assert_eq!((explanation.count_reasons("no-room"), explanation.count_reasons("held")), (1, 0));
    assert_eq!((explanation.reason_of("europe-west4"), explanation.end_of_attempt(0)), ("1 of 4 free", ""));
}
