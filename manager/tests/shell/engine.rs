//! The engine without faults: a gang from submission to end, readers, watchers and parked polls.

use crate::rig::{DEADLINE, Rig, Worker, delete, job, put, submit, until};
use meridian_manager::engine::{Gone, WatchEventType};
use meridian_manager::journal::AuditNumber;
use meridian_manager_core::facts::actor::Actor;
use meridian_manager_core::facts::input::{Input, Operator};
use meridian_manager_core::facts::key::Key;
use meridian_manager_core::facts::outcome::Reply;
use meridian_objects::Kind;
use meridian_shared::ids::{ClusterName, RecordNumber};
use meridian_shared::protocol::{Lane, SyncAnswer};
use meridian_views::asker::Asker;
use serde_json::{Value, json};
use std::time::Duration;

/// A poll without an answer for this long is parked.
const QUIET: Duration = Duration::from_millis(300);

#[tokio::test]
async fn a_gang_runs_to_its_end() {
    let rig = Rig::new().await;
    rig.create_queues(&["eu"]).await;
    let mut worker = Worker::new("eu", 1, 4, rig.clock.clone());
    let uid = submit(&rig.handle, "one").await.unwrap();
    worker.until(&rig.handle, "running", |_| rig.state_of("one").as_deref() == Some("Running")).await;
    let running = rig.job("one").unwrap();
    assert_eq!(running.value["status"]["meridian"]["cluster"], "eu");
    assert_eq!(running.value["metadata"]["uid"], uid.to_string());
    assert_eq!(
        running.value["spec"]["template"]["spec"]["containers"][0]["image"], "i",
        "the view has the whole job"
    );
    assert_eq!(worker.runs.len(), 1);
    let why = rig.handle.explain("default", "one", Asker::unlimited()).await.unwrap().unwrap();
    assert_eq!(
        (why["state"].as_str(), why["clusters"][0]["verdict"].as_str()),
        (Some("Running"), Some("running"))
    );
    assert!(rig.handle.explain("default", "two", Asker::unlimited()).await.unwrap().is_none());

    worker.finish();
    worker.until(&rig.handle, "finished", |_| rig.state_of("one").as_deref() == Some("Finished")).await;
    assert_eq!(rig.job("one").unwrap().value["status"]["conditions"][0]["type"], "Complete");
    let (workloads, _) = rig.handle.reads().list(Kind::Workload, Some("default"), None, &Asker::unlimited());
    assert_eq!(workloads[0].value["status"]["meridian"]["history"][0]["cluster"], "eu");

    check_metrics_of_one_finished_gang(&rig).await;
    verify_audit_log(&rig);
    rig.stop().await;
}

async fn check_metrics_of_one_finished_gang(rig: &Rig) {
    // statuses with counts, and gauges, follow soon after
    let queue = Key::namespaced(Kind::LocalQueue, "default", "lq");
    until("the queue's status", async || {
        rig.handle.reads().get(&queue, &Asker::unlimited()).unwrap().value["status"]["admittedWorkloads"] == 0
    })
    .await;
    let finished = r#"kueue_finished_workloads{cluster_queue="cq",replica_role="leader"} 1"#;
    until("the gauges", async || rig.handle.metrics().render(&[]).contains(finished)).await;
    let text = rig.handle.metrics().render(&[]);
    for line in [
        finished,
        r#"kueue_pending_workloads{cluster_queue="cq",replica_role="leader",status="active"} 0"#,
        concat!(
            r#"kueue_local_queue_admitted_active_workloads{name="lq","#,
            r#"namespace="default",replica_role="leader"} 0"#
        ),
        concat!(
            r#"kueue_local_queue_admission_fair_sharing_usage{cluster_queue="cq","#,
            r#"name="lq",namespace="default",replica_role="leader"} 0"#
        ),
        concat!(
            r#"kueue_quota_reserved_workloads_total{cluster_queue="cq","#,
            r#"priority_class="",replica_role="leader"} 1"#
        ),
        concat!(
            r#"kueue_local_queue_admitted_workloads_total{name="lq","#,
            r#"namespace="default",priority_class="",replica_role="leader"} 1"#
        ),
        concat!(
            r#"kueue_admission_wait_time_seconds_count{cluster_queue="cq","#,
            r#"priority_class="",replica_role="leader"} 1"#
        ),
        r#"kueue_execution_time_seconds_count{cluster_queue="cq",priority_class="",replica_role="leader"} 1"#,
        r#"kueue_finished_workloads_total{cluster_queue="cq",priority_class="",replica_role="leader"} 1"#,
        concat!(
            r#"kueue_multikueue_workloads_dispatched_total{cluster="eu","#,
            r#"cluster_queue="cq",replica_role="leader"} 1"#
        ),
        concat!(
            r#"kueue_multikueue_workloads_admitted_total{cluster="eu","#,
            r#"cluster_queue="cq",replica_role="leader"} 1"#
        ),
        r#"kueue_cluster_queue_status{cluster_queue="cq",replica_role="leader",status="active"} 1"#,
        concat!(
            r#"kueue_cluster_queue_nominal_quota{cluster_queue="cq",cohort="","#,
            r#"flavor="any",replica_role="leader",resource="nvidia.com/gpu"} 1000"#
        ),
        concat!(
            r#"kueue_cluster_queue_borrowing_limit{cluster_queue="cq",cohort="","#,
            r#"flavor="any",replica_role="leader",resource="nvidia.com/gpu"} +Inf"#
        ),
        r#"kueue_admission_attempts_total{replica_role="leader",result="success"} 1"#,
        r#"meridian_workloads{state="Finished"} 1"#,
        r#"meridian_submissions_total{result="accepted"} 1"#,
        r#"meridian_workloads_dispatched_total{cluster="eu",cluster_queue="cq"} 1"#,
        "meridian_grants_total 1",
        r#"meridian_cluster_info{cluster="eu",jurisdiction="EU",region="europe-west4"} 1"#,
        r#"meridian_offers_total{cluster="eu",outcome="won"} 1"#,
        r#"meridian_offers_total{cluster="eu",outcome="withdrawn"} 0"#,
        r#"meridian_race_seconds_count{cluster="eu"} 1"#,
        r#"meridian_agent_sessions_total{cluster="eu"} 1"#,
        r#"meridian_lapses_total{cluster="eu"} 0"#,
        r#"meridian_residency_violations{cluster="eu"} 0"#,
        r#"meridian_starved_heads{cluster_queue="cq"} 0"#,
        "meridian_recovery_open 0",
        "meridian_invariant_violations_total 0",
    ] {
        assert!(text.lines().any(|l| l == line), "{line} is not in\n{text}");
    }
}

fn verify_audit_log(rig: &Rig) {
    let (last, _) = rig.handle.journal().audit_head().unwrap().unwrap();
    let mut verifier = meridian_manager_core::facts::audit::Verifier::default();
    let mut lines = 0;
    let mut take = |_, line: &[u8]| {
        lines += 1;
        verifier.take(&serde_json::from_slice(line).unwrap()).map_err(|e| e.to_string())
    };
    rig.handle.journal().audit(AuditNumber(1), AuditNumber(last.0 + 1), &mut take).unwrap();
    assert!(lines == last.0 && lines > 0);
}

/// The cluster queue with this nominal quota.
fn quota(nominal: i64) -> Value {
    let flavor = json!({"name": "any", "resources": [{"name": "nvidia.com/gpu", "nominalQuota": nominal}]});
    let groups = json!([{"coveredResources": ["nvidia.com/gpu"], "flavors": [flavor]}]);
    json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue", "metadata": {"name": "cq"},
        "spec": {"namespaceSelector": {}, "resourceGroups": groups},
    })
}

#[tokio::test]
async fn a_list_has_current_pending_reasons_of_unchanged_jobs() {
    let rig = Rig::new().await;
    rig.create_queues(&[]).await;
    put(&rig.handle, vec![quota(1)]).await.unwrap();
    put(&rig.handle, vec![job("large", 9)]).await.unwrap();
    let pending_reason = || {
        rig.job("large").unwrap().value["status"]["meridian"]["pendingReason"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    until("the first reason", async || pending_reason().contains("at most 1 in")).await;
    let version = rig.job("large").unwrap().version;
    put(&rig.handle, vec![quota(7)]).await.unwrap();
    until("the second reason", async || pending_reason().contains("at most 7 in")).await;
    assert_eq!(rig.job("large").unwrap().version, version, "the job itself is unchanged");
    let (workloads, _) = rig.handle.reads().list(Kind::Workload, Some("default"), None, &Asker::unlimited());
    assert_eq!(
        workloads[0].value["status"]["conditions"][0]["message"].as_str(),
        Some(pending_reason().as_str())
    );
    // with enough quota the clusters are considered: there is none
    put(&rig.handle, vec![quota(70)]).await.unwrap();
    until("another reason", async || pending_reason() == "none of the queue's clusters is connected").await;
}

#[tokio::test]
async fn a_list_has_the_current_reason_of_a_scale_up() {
    let rig = Rig::new().await;
    rig.create_queues(&["eu"]).await;
    let elastic = |pods: u32| {
        let mut job = job("gang", pods);
        job["metadata"]["annotations"] = json!({"kueue.x-k8s.io/elastic-job": "true"});
        job["spec"]["completionMode"] = json!("Indexed");
        job
    };
    let mut worker = Worker::new("eu", 1, 4, rig.clock.clone());
    put(&rig.handle, vec![quota(1), elastic(1)]).await.unwrap();
    worker.until(&rig.handle, "running", |_| rig.state_of("gang").as_deref() == Some("Running")).await;
    put(&rig.handle, vec![elastic(9)]).await.unwrap();
    let scale_up = || {
        rig.job("gang").unwrap().value["status"]["meridian"]["scaleUp"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    worker.until(&rig.handle, "a reason", |_| scale_up().contains("can use at most 1 in")).await;
    let version = rig.job("gang").unwrap().version;
    put(&rig.handle, vec![quota(7)]).await.unwrap();
    worker.until(&rig.handle, "the new quota", |_| scale_up().contains("can use at most 7 in")).await;
    put(&rig.handle, vec![quota(70)]).await.unwrap();
    let lacks = "from 1 to 9 pods is pending: 3 of 8 pods of `main` fit";
    worker.until(&rig.handle, "the cluster's reason", |_| scale_up().contains(lacks)).await;
    assert_eq!(rig.job("gang").unwrap().version, version, "the job itself is unchanged");
    let (workloads, _) = rig.handle.reads().list(Kind::Workload, Some("default"), None, &Asker::unlimited());
    assert_eq!(workloads[0].value["status"]["meridian"]["scaleUp"], scale_up().as_str());
    put(&rig.handle, vec![elastic(1)]).await.unwrap();
    assert_eq!(scale_up(), "");
}

#[tokio::test]
async fn a_watch_continues_from_a_list() {
    let rig = Rig::new().await;
    rig.create_queues(&[]).await;
    submit(&rig.handle, "a").await.unwrap();
    let (jobs, version) = rig.handle.reads().list(Kind::Job, None, None, &Asker::unlimited());
    assert_eq!(jobs.len(), 1);
    let mut watch = rig.handle.reads().watch(version, Asker::unlimited()).unwrap();
    submit(&rig.handle, "b").await.unwrap();
    delete(&rig.handle, "a").await.unwrap();
    put(&rig.handle, vec![job("b", 1)]).await.unwrap();
    submit(&rig.handle, "c").await.unwrap();
    let mut seen = Vec::new();
    let mut last = version;
    while seen.last() != Some(&(WatchEventType::Added, "c".to_owned())) {
        let change = tokio::time::timeout(DEADLINE, watch.next()).await.expect("it comes").unwrap();
        assert!(change.at >= last, "ordered by version");
        last = change.at;
        if change.view.key.kind == Kind::Job && (seen.is_empty() || change.event != WatchEventType::Modified)
        {
            assert_eq!(change.view.value["kind"], "Job");
            assert!(change.view.value["spec"]["template"].is_object(), "the last view has the whole job too");
            seen.push((change.event, change.view.key.name.to_string()));
        }
    }
    let expect = [(WatchEventType::Added, "b"), (WatchEventType::Deleted, "a"), (WatchEventType::Added, "c")]
        .map(|(event, name)| (event, name.to_owned()));
    assert_eq!(seen, expect);
    assert_eq!(
        rig.handle.reads().watch(RecordNumber(0), Asker::unlimited()).map(drop),
        Ok(()),
        "everything is still in the ring"
    );
    let version = rig.handle.reads().version();
    let (disk, clock, marks) = rig.stop().await;
    let rig = Rig::open(disk, clock, marks);
    rig.led().await;
    assert_eq!(
        rig.handle.reads().watch(RecordNumber(version.0 - 1), Asker::unlimited()).map(drop),
        Err(Gone),
        "changes before a restart are not in the ring"
    );
    rig.stop().await;
}

#[tokio::test]
async fn a_parked_poll_is_woken_by_news() {
    let rig = Rig::new().await;
    rig.create_queues(&["eu"]).await;
    let mut worker = Worker::new("eu", 1, 4, rig.clock.clone());
    worker.until(&rig.handle, "quiet", |w| w.refused == 0 && is_connected(&rig)).await;
    let cluster: ClusterName = "eu".into();
    let poll = |worker: &mut Worker| {
        let (handle, cluster, request) =
            (rig.handle.clone(), cluster.clone(), Box::new(worker.compose(Lane::Poll)));
        let transmission = request.transmission;
        let asked = tokio::spawn(async move {
            match handle.ask(Input::Sync { cluster, request, may_park: true }).await.unwrap() {
                Reply::Sync(answer) => answer,
                other => panic!("{other:?}"),
            }
        });
        (transmission, asked)
    };
    let commands = |answer: &SyncAnswer| match answer {
        SyncAnswer::Ok(ok) => ok.commands.len(),
        SyncAnswer::Refused(why) => panic!("{why:?}"),
    };
    // pending news is answered first; then the poll is parked
    let parked = loop {
        let (_, mut asked) = poll(&mut worker);
        match tokio::time::timeout(QUIET, &mut asked).await {
            Ok(answer) => worker.receive(answer.unwrap()),
            Err(_) => break asked,
        }
    };
    submit(&rig.handle, "one").await.unwrap();
    let answer = tokio::time::timeout(DEADLINE, parked).await.expect("the offer wakes it").unwrap();
    assert_eq!(commands(&answer), 1);
    worker.receive(answer);
    // the end of a poll's wait answers it, and the end of another poll's doesn't
    worker.until(&rig.handle, "started", |w| w.refused == 0 && w.runs.len() == 1).await;
    let (transmission, mut asked) = loop {
        let (transmission, mut asked) = poll(&mut worker);
        match tokio::time::timeout(QUIET, &mut asked).await {
            Ok(answer) => worker.receive(answer.unwrap()),
            Err(_) => break (transmission, asked),
        }
    };
    rig.handle.end_poll(&cluster, transmission + 1).unwrap();
    assert!(tokio::time::timeout(QUIET, &mut asked).await.is_err());
    rig.handle.end_poll(&cluster, transmission).unwrap();
    let answer = tokio::time::timeout(DEADLINE, asked).await.expect("its wait is over").unwrap();
    assert_eq!(commands(&answer), 0);
    rig.stop().await;
}

fn is_connected(rig: &Rig) -> bool {
    let cluster = rig.handle.reads().get(&Key::global(Kind::Cluster, "eu"), &Asker::unlimited());
    cluster.is_some_and(|view| view.value["status"]["state"] == "Connected")
}

#[tokio::test]
async fn operators_get_replies_and_a_stopped_engine_refuses() {
    let rig = Rig::new().await;
    let handle = rig.handle.clone();
    let recovery = handle.recovery(Asker::unlimited()).await;
    assert_eq!(
        (recovery["open"].as_bool(), recovery["awaited"].as_array().map(Vec::len)),
        (Some(false), Some(0))
    );
    let rejected = handle
        .ask(Input::Operator { actor: Actor::user("a"), action: Operator::ConfirmRecovery })
        .await
        .unwrap();
    assert!(matches!(rejected, Reply::Rejected(_)), "{rejected:?}");
    assert!(handle.leading());
    rig.stop().await;
    assert!(!handle.leading());
    assert_eq!(submit(&handle, "late").await.unwrap_err(), meridian_manager::engine::Unavailable::Stopping);
    assert!(handle.recovery(Asker::unlimited()).await.is_null());
}
