//! `--what-if` with elastic jobs: scaling, preemption and requeueing.

use super::fixtures::{admitted, elastic, high_priority, listed, local_queue, pending, queue, what_if};
use serde_json::{Value, json};

#[tokio::test]
async fn a_scaled_elastic_job_keeps_its_quota() {
    let (train, next) = (elastic("train", "lq", 4), elastic("next", "lq", 4));
    let workloads = [admitted(&train, 1, 4, "cq"), pending(&next, 2)];
    let existing: Vec<Value> = [queue("cq", 6, &json!({})), local_queue("lq", "cq"), train, next]
        .into_iter()
        .chain(workloads)
        .collect();
    let expected = |list: &[(&str, Value)]| {
        list.iter().map(|(name, word)| ((*name).to_owned(), word.clone())).collect::<Vec<_>>()
    };
    let count = "/to/0/count";
    // The quota of the removed pods is enough for the next job.
    let shrunk = what_if(&existing, &[elastic("train", "lq", 2)]).await;
    assert_eq!(listed(&shrunk, "moved", count), expected(&[("ml/job-train", json!(2))]), "{shrunk:#}");
    assert_eq!(listed(&shrunk, "admitted", "/clusterQueue"), expected(&[("ml/job-next", json!("cq"))]));
    assert_eq!(
        (&shrunk["starved"], &shrunk["changes"][0]["change"], &shrunk["notes"]),
        (&json!([]), &json!("Replaced"), &json!([super::super::CAPACITY_NOTE]))
    );
    // A scale-up within the quota, and one beyond it: the job keeps its pods in both cases.
    let scaled = what_if(&existing, &[elastic("train", "lq", 6)]).await;
    assert_eq!(
        (listed(&scaled, "moved", count), &scaled["lost"]),
        (expected(&[("ml/job-train", json!(6))]), &Value::Null),
        "{scaled:#}"
    );
    let too_large = what_if(&existing, &[elastic("train", "lq", 7)]).await;
    assert_eq!(
        listed(&too_large, "starved", "/loss"),
        expected(&[("ml/job-train-scale-up", json!("BlockedForGood"))]),
        "{too_large:#}"
    );
    let why = &too_large["starved"][0]["waiting"]["reasons"][0];
    assert_eq!(
        (&why["reason"], &why["flavor"], &why["resource"]),
        (&json!("ExceedsMaxQuota"), &json!("f"), &json!("cpu")),
        "{too_large:#}"
    );
    assert!(why["message"].as_str().unwrap().starts_with("requests 7 cpu in flavor f, the maximum"), "{why}");
    assert_eq!((&too_large["moved"], &too_large["lost"]), (&json!([]), &Value::Null));
    // Other workloads use the quota: the scale-up can be admitted later.
    let both = [elastic("train", "lq", 2), elastic("next", "lq", 4)];
    let two =
        both.iter().zip([(1, 2), (2, 4)]).map(|(job, (number, pods))| admitted(job, number, pods, "cq"));
    let full: Vec<Value> = [queue("cq", 6, &json!({})), local_queue("lq", "cq")]
        .into_iter()
        .chain(two)
        .chain(both.clone())
        .collect();
    let in_the_way = what_if(&full, &[elastic("train", "lq", 6)]).await;
    assert_eq!(
        listed(&in_the_way, "starved", "/loss"),
        expected(&[("ml/job-train-scale-up", json!("Waits"))]),
        "{in_the_way:#}"
    );
    // A pending job keeps its position.
    let smaller = what_if(&existing, &[elastic("next", "lq", 2)]).await;
    assert_eq!(
        (listed(&smaller, "admitted", "/podSets/0/count"), &smaller["starved"]),
        (expected(&[("ml/job-next", json!(2))]), &json!([])),
        "{smaller:#}"
    );
}

#[tokio::test]
async fn a_pending_scale_up_is_fetched() {
    let train = elastic("train", "lq", 6);
    let mut workload = admitted(&train, 1, 2, "cq");
    workload["status"]["meridian"]["scaleUpSubmitted"] = json!("7");
    let existing = [queue("cq", 4, &json!({})), local_queue("lq", "cq"), train.clone(), workload];
    let more = what_if(&existing, &[queue("cq", 8, &json!({}))]).await;
    assert_eq!(listed(&more, "moved", "/to/0/count"), [("ml/job-train".to_owned(), json!(6))], "{more:#}");
    assert_eq!(
        (&more["before"]["waiting"], &more["lost"], &more["starved"]),
        (&json!(1), &Value::Null, &json!([]))
    );
    // A smaller scale-up fits; without a scale-up the job keeps its pods.
    for (pods, moved) in [(3, 1), (2, 0)] {
        let less = what_if(&existing, &[elastic("train", "lq", pods)]).await;
        assert_eq!(
            (less["moved"].as_array().unwrap().len(), &less["after"]["waiting"], &less["lost"]),
            (moved, &json!(0), &Value::Null),
            "{less:#}"
        );
    }
    // The scale-up stays in the queue of the gang's quota, although the local queue points to another one
    // now.
    let moved_queue = what_if(&existing, &[local_queue("lq", "b"), queue("b", 9, &json!({}))]).await;
    assert_eq!(
        (&moved_queue["admitted"], &moved_queue["moved"], &moved_queue["after"]["waiting"]),
        (&json!([]), &json!([]), &json!(1)),
        "{moved_queue:#}"
    );
    // A job with another spec is a new job.
    let mut other = train;
    other["spec"]["template"]["spec"]["containers"][0]["image"] = json!("other");
    let anew = what_if(&existing, &[other]).await;
    assert_eq!((&anew["after"]["workloads"], &anew["after"]["waiting"]), (&json!(1), &json!(1)), "{anew:#}");
}

#[tokio::test]
async fn a_victim_is_requeued_where_its_local_queue_points_to() {
    let low = elastic("low", "lq", 4);
    let workload = admitted(&low, 1, 4, "a");
    let preempts = json!({"preemption": {"withinClusterQueue": "LowerPriority"}});
    let existing = [
        queue("a", 4, &preempts),
        queue("b", 4, &json!({})),
        local_queue("lq", "a"),
        local_queue("other", "a"),
        low,
        workload,
    ];
    let class = high_priority();
    let mut high = elastic("high", "other", 4);
    high["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = json!("high");
    let stays = what_if(&existing, &[class.clone(), high.clone()]).await;
    assert_eq!(
        listed(&stays, "starved", "/loss"),
        [("ml/job-low".to_owned(), json!("Preempted"))],
        "{stays:#}"
    );
    let moves = what_if(&existing, &[class.clone(), high.clone(), local_queue("lq", "b")]).await;
    assert_eq!(
        listed(&moves, "moved", "/toClusterQueue"),
        [("ml/job-low".to_owned(), json!("b"))],
        "{moves:#}"
    );
    assert_eq!(listed(&moves, "preempted", "/clusterQueue"), [("ml/job-low".to_owned(), json!("a"))]);
    let nowhere = what_if(&existing, &[class, high, local_queue("lq", "gone")]).await;
    assert_eq!(nowhere["lost"], json!(["ml/job-low"]), "{nowhere:#}");
    let note = "workload `ml/job-low` isn't requeued after it stopped: local queue `ml/lq` points to cluster \
                queue `gone`, which doesn't exist";
    assert!(nowhere["notes"].as_array().unwrap().contains(&json!(note)), "{nowhere:#}");
}

#[tokio::test]
async fn a_victim_is_requeued_with_all_its_pods_and_its_old_queue_time() {
    let class = high_priority();
    let preempts = json!({"preemption": {"withinClusterQueue": "LowerPriority"}});
    let (train, next) = (elastic("train", "lq", 6), elastic("next", "lq", 5));
    let mut workload = admitted(&train, 1, 4, "cq");
    workload["status"]["meridian"]["scaleUpSubmitted"] = json!("7");
    let pending_next = pending(&next, 2);
    let existing: Vec<Value> =
        vec![queue("cq", 6, &preempts), local_queue("lq", "cq"), class, train, next, workload, pending_next];
    let mut high = elastic("high", "lq", 3);
    high["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = json!("high");
    let stopped = what_if(&existing, std::slice::from_ref(&high)).await;
    assert_eq!(
        listed(&stopped, "starved", "/loss"),
        [("ml/job-train".to_owned(), json!("Preempted"))],
        "{stopped:#}"
    );
    assert_eq!(
        listed(&stopped, "starved", "/waiting/position"),
        [("ml/job-train".to_owned(), json!(1))],
        "it was submitted before the next job"
    );
    assert_eq!((&stopped["lost"], &stopped["after"]["waiting"]), (&Value::Null, &json!(2)));
    // The scale-up would be admitted without the change.
    let existing: Vec<Value> = existing
        .into_iter()
        .filter(|object| !object["metadata"]["name"].as_str().unwrap().contains("next"))
        .collect();
    high["spec"]["parallelism"] = json!(2);
    let kept_out = what_if(&existing, &[high]).await;
    assert_eq!(
        listed(&kept_out, "starved", "/loss"),
        [("ml/job-train-scale-up".to_owned(), json!("NotAdmitted"))],
        "{kept_out:#}"
    );
}

#[tokio::test]
async fn only_a_running_gang_scales_up_and_only_as_a_whole() {
    let with_workload = |job: &Value, change: &dyn Fn(&mut Value)| {
        let mut workload = admitted(job, 1, 4, "cq");
        change(&mut workload);
        vec![queue("cq", 6, &json!({})), local_queue("lq", "cq"), job.clone(), workload]
    };
    let (train, larger) = (elastic("train", "lq", 4), elastic("train", "lq", 8));
    // Partial admission doesn't apply to scale-ups.
    let least = with_workload(&train, &|workload| workload["spec"]["podSets"][0]["minCount"] = json!(2));
    let waiting = what_if(&least, std::slice::from_ref(&larger)).await;
    let blocked = vec![("ml/job-train-scale-up".to_owned(), json!("BlockedForGood"))];
    assert_eq!(
        (listed(&waiting, "starved", "/loss"), &waiting["moved"]),
        (blocked, &json!([])),
        "{waiting:#}"
    );
    // A partially admitted job doesn't scale up by itself.
    let fewer = what_if(
        &with_workload(&larger, &|workload| workload["spec"]["podSets"][0]["minCount"] = json!(2)),
        &[queue("cq", 9, &json!({}))],
    )
    .await;
    assert_eq!((&fewer["moved"], &fewer["before"]["waiting"]), (&json!([]), &json!(0)), "{fewer:#}");
    // A job that isn't admitted yet requests all its pods anew.
    let reserved = with_workload(&train, &|workload| {
        workload["status"]["conditions"].as_array_mut().unwrap().truncate(1)
    });
    let anew = what_if(&reserved, &[larger]).await;
    assert_eq!(
        (listed(&anew, "starved", "/loss"), &anew["after"]["admitted"]),
        (vec![("ml/job-train".to_owned(), json!("NotAdmitted"))], &json!(0)),
        "{anew:#}"
    );
    // A deactivated job isn't requeued.
    let inactive = with_workload(&train, &|workload| {
        workload["spec"]["active"] = json!(false);
        workload["status"]["conditions"][1] = json!({
            "type": "Evicted", "status": "True", "reason": "Deactivated",
            "lastTransitionTime": "2026-06-01T09:00:02Z",
        });
    });
    let stopped = what_if(&inactive, &[queue("cq", 9, &json!({}))]).await;
    assert_eq!(
        (&stopped["before"]["workloads"], &stopped["after"]["workloads"]),
        (&json!(0), &json!(0)),
        "{stopped:#}"
    );
    // Unreadable workloads are ignored with a note.
    for broken in [json!("x"), json!(["x"]), json!([{"name": "main", "count": "x"}])] {
        let odd = with_workload(&train, &|workload| {
            workload["spec"]["podSets"] = broken.clone();
            workload["status"]["admission"]["podSetAssignments"] = broken.clone();
            workload["status"]["meridian"]["scaleUpSubmitted"] = json!(3);
        });
        let report = what_if(&odd, &[elastic("train", "lq", 8)]).await;
        assert!(
            report["notes"].to_string().contains("ignored Workload `ml/job-train` of the manager"),
            "{report:#}"
        );
    }
}

#[tokio::test]
async fn a_scaled_gang_keeps_its_queue_time_and_requests_only_added_pods() {
    let preempts = json!({"preemption": {"withinClusterQueue": "LowerOrNewerEqualPriority"}});
    let (train, next) = (elastic("train", "lq", 2), elastic("next", "lq", 6));
    let existing = [
        queue("cq", 6, &preempts),
        local_queue("lq", "cq"),
        train.clone(),
        next.clone(),
        admitted(&train, 1, 2, "cq"),
        pending(&next, 2),
    ];
    let scaled = what_if(&existing, &[elastic("train", "lq", 3)]).await;
    assert_eq!(
        listed(&scaled, "moved", "/to/0/count"),
        [("ml/job-train".to_owned(), json!(3))],
        "{scaled:#}"
    );
    assert_eq!(
        (&scaled["preempted"], &scaled["admitted"], &scaled["starved"]),
        (&json!([]), &json!([]), &json!([]))
    );
    // A pod has succeeded, and the added pod takes its quota.
    let mut workload = admitted(&train, 1, 2, "cq");
    workload["status"]["reclaimablePods"] = json!([{"name": "main", "count": 1}]);
    let existing = [queue("cq", 2, &json!({})), local_queue("lq", "cq"), train, workload];
    let scaled = what_if(&existing, &[elastic("train", "lq", 3)]).await;
    assert_eq!(
        (listed(&scaled, "moved", "/to/0/count"), &scaled["starved"]),
        (vec![("ml/job-train".to_owned(), json!(3))], &json!([])),
        "{scaled:#}"
    );
    // The reclaimable pod is counted once, although another scale-up was pending.
    let [queue, local, _, mut workload] = existing;
    workload["status"]["meridian"]["scaleUpSubmitted"] = json!("9");
    workload["spec"]["podSets"][0]["count"] = json!(5);
    let existing = [queue, local, elastic("train", "lq", 5), workload];
    for (pods, scaled) in [(3, 1), (4, 0), (2, 0)] {
        let asked = what_if(&existing, &[elastic("train", "lq", pods)]).await;
        assert_eq!(asked["moved"].as_array().unwrap().len(), scaled, "{pods}: {asked:#}");
        assert_eq!(asked["after"]["waiting"], json!(u8::from(pods == 4)), "{pods}: {asked:#}");
    }
}

#[tokio::test]
async fn a_closed_queue_stops_scale_ups() {
    let train = elastic("train", "lq", 2);
    let existing =
        [queue("cq", 6, &json!({})), local_queue("lq", "cq"), train.clone(), admitted(&train, 1, 2, "cq")];
    let mut held = local_queue("lq", "cq");
    held["spec"]["stopPolicy"] = json!("Hold");
    let on_hold = queue("other", 6, &json!({"stopPolicy": "Hold"}));
    for closed in [vec![held], vec![local_queue("lq", "other"), on_hold]] {
        let files: Vec<Value> = closed.into_iter().chain([elastic("train", "lq", 4)]).collect();
        let waiting = what_if(&existing, &files).await;
        assert_eq!((&waiting["moved"], &waiting["after"]["waiting"]), (&json!([]), &json!(1)), "{waiting:#}");
    }
}
