//! Deactivated workloads (`meridian stop`), their reactivation, and requeue backoffs.

use super::*;
use meridian_manager_core::facts::audit::Action;
use meridian_manager_core::facts::lifecycle;
use meridian_manager_core::facts::outcome::{Rejection, RejectionReason, WriteResult};
use meridian_manager_core::live::counts::Count;
use meridian_shared::protocol::StopReason;

impl Fleet {
    fn workload_key(&self, uid: Uid) -> Key {
        let w = &self.world.state().workloads()[&uid];
        Key::namespaced(Kind::Workload, w.namespace(), &w.object_name())
    }

    fn write_active(&mut self, uid: Uid, active: bool) -> Reply {
        let key = self.workload_key(uid);
        self.write(vec![Change::SetActive { key, active, version: None }])
    }

    fn set_active(&mut self, uid: Uid, active: bool) -> WriteResult {
        match self.write_active(uid, active) {
            Reply::Written(written) => written[0].result,
            other => panic!("not accepted: {other:?}"),
        }
    }

    pub(super) fn stop(&mut self, uid: Uid) {
        assert_eq!(self.set_active(uid, false), WriteResult::Configured);
    }

    pub(super) fn resume(&mut self, uid: Uid) {
        assert_eq!(self.set_active(uid, true), WriteResult::Configured);
    }

    fn refusal(&mut self, uid: Uid, active: bool) -> Rejection {
        match self.write_active(uid, active) {
            Reply::Rejected(mut why) => why.remove(0),
            other => panic!("not refused: {other:?}"),
        }
    }

    pub(super) fn rendered_workload(&self, uid: Uid) -> Value {
        self.object_at(&self.workload_key(uid)).expect("the workload exists")
    }

    /// A condition as `Status Reason: message`.
    fn condition_of(&self, uid: Uid, kind: &str) -> Option<String> {
        let workload = self.rendered_workload(uid);
        let conditions = workload["status"]["conditions"].as_array().unwrap();
        let condition = conditions.iter().find(|condition| condition["type"] == kind)?;
        let [status, reason, message] =
            ["status", "reason", "message"].map(|field| condition[field].as_str().unwrap());
        Some(format!("{status} {reason}: {message}"))
    }

    fn pending_workloads(&self) -> u64 {
        let queue = self.object_at(&Key::global(Kind::ClusterQueue, "cq")).unwrap();
        queue["status"]["pendingWorkloads"].as_u64().unwrap()
    }

    /// Reasons of all evictions that were published as lifecycle events.
    fn evictions(&self) -> Vec<&str> {
        let events = self.lifecycle_events.iter();
        events
            .filter_map(|event| match &event.event {
                lifecycle::Event::Evicted { cause, .. } => Some(cause.reason()),
                _ => None,
            })
            .collect()
    }
}

#[test]
fn a_reactivated_workload_returns_to_its_old_queue_position() {
    let mut f = Fleet::new(EU);
    let running = f.submit("runs", 4);
    f.settle();
    let [first, second] = ["first", "second"].map(|name| f.submit(name, 4));
    f.settle();
    assert_eq!(f.pending_workloads(), 2);
    f.stop(first);
    assert_eq!(f.pending_workloads(), 1, "a deactivated workload isn't pending");
    assert_eq!(f.why(second)["position"], json!({"queue": "lq", "place": 1, "of": 1}));
    let why = f.why(first);
    assert_eq!((&why["state"], &why["position"]), (&json!("Deactivated"), &Value::Null));
    assert!(why["summary"].as_str().unwrap().starts_with("deactivated by `user:test` at 2027-"), "{why:#}");
    assert_eq!(
        why["wouldHelp"],
        "no single change is known to start it; first: run `meridian resume job first -n default`; \
         then: in cluster `eu`: wait until workload `default/runs` ends"
    );
    let rendered = f.rendered_workload(first);
    assert_eq!(
        (&rendered["spec"]["active"], &rendered["status"]["meridian"]["state"]),
        (&json!(false), &json!("Deactivated"))
    );
    assert_eq!(f.condition_of(first, "Evicted").unwrap(), "True Deactivated: The workload is deactivated");
    assert_eq!(f.condition_of(first, "QuotaReserved").unwrap(), "False Pending: The workload is deactivated");
    let name = f.world.state().workloads()[&first].name().to_string();
    let job = f.object_at(&Key::namespaced(Kind::Job, "default", &name)).unwrap();
    assert_eq!(job["status"]["meridian"]["pendingReason"], "The workload is deactivated");
    assert_eq!(f.condition_of(first, "Requeued").unwrap(), "False Deactivated: The workload is deactivated");
    assert_eq!(f.condition_of(first, "Admitted"), None, "it was never admitted");
    assert!(f.evictions().is_empty(), "a pending workload holds nothing, so it isn't evicted");
    f.restart(2, None);
    f.end(running, EndResult::Succeeded);
    f.settle();
    assert_eq!((f.phase(first), f.phase(second)), (Some(Phase::Pending), Some(Phase::Running)));

    let third = f.submit("third", 4);
    f.resume(first);
    assert_eq!((f.pending_workloads(), &f.rendered_workload(first)["spec"]["active"]), (2, &json!(true)));
    assert_eq!(f.condition_of(first, "Requeued").unwrap(), "True Reactivated: The workload was reactivated");
    f.end(second, EndResult::Succeeded);
    assert_eq!(
        (f.phase(first), f.phase(third)),
        (Some(Phase::Running), Some(Phase::Pending)),
        "the reactivated workload is older"
    );
    assert_eq!(f.condition_of(first, "Evicted"), None);
}

#[test]
fn deactivation_during_an_open_offer_frees_the_quota_at_once() {
    let mut f = Fleet::new(EU);
    // The agent is disconnected, so that the offer stays open.
    f.disconnected.push("eu".into());
    let offered = f.submit("asked", 4);
    assert_eq!(f.phase(offered), Some(Phase::Dispatching));
    f.stop(offered);
    assert_eq!(f.phase(offered), Some(Phase::Pending));
    assert_eq!(f.evictions(), ["Deactivated"]);
    assert!(f.world.queues().usage("cq").is_none_or(|usage| usage.is_empty()));
    f.disconnected.clear();
    f.settle();
    f.settle();
    assert_eq!(
        (f.cluster_of(offered), f.phase(offered)),
        (None, Some(Phase::Pending)),
        "a late hold isn't granted"
    );
    let other = f.submit("other", 4);
    f.settle();
    assert_eq!(f.phase(other), Some(Phase::Running), "the capacity is free");
}

#[test]
fn a_deactivated_running_workload_keeps_its_quota_until_it_stopped() {
    let mut f = Fleet::new(EU);
    let [workload, next] = ["runs", "next"].map(|name| f.submit(name, 4));
    f.settle();
    f.stop(workload);
    let w = &f.world.state().workloads()[&workload];
    assert_eq!((w.phase(), w.stopping()), (Phase::Stopping, Some(StopReason::Evicted)));
    assert_eq!(f.phase(next), Some(Phase::Pending));
    assert!(
        f.why(workload)["summary"]
            .as_str()
            .unwrap()
            .contains("deactivated by `user:test`; its capacity and quota stay reserved"),
        "{:#}",
        f.why(workload)
    );
    assert_eq!(f.evictions(), ["Deactivated"]);
    assert_eq!(f.set_active(workload, false), WriteResult::Unchanged, "it is deactivated already");
    f.settle();
    assert_eq!(
        (f.cluster_of(workload), f.phase(workload), f.phase(next)),
        (None, Some(Phase::Pending), Some(Phase::Running))
    );
    assert_eq!(f.condition_of(workload, "Evicted").unwrap(), "True Deactivated: The workload is deactivated");
    assert_eq!(
        f.condition_of(workload, "Admitted").unwrap(),
        "False NoReservation: The workload has no reservation"
    );
    assert_eq!(f.evictions(), ["Deactivated"], "one eviction");
    f.advance(Millis::secs(40));
    assert_eq!(f.world.state().workloads()[&workload].attempts(), 1);
    let audited: Vec<(String, Action)> = f
        .records
        .iter()
        .filter_map(|(_, record)| match record {
            Record::Audited(line) if matches!(line.entry.action, Action::Deactivate | Action::Stop) => {
                Some((line.by.to_string(), line.entry.action))
            }
            _ => None,
        })
        .collect();
    let by = "user:test".to_owned();
    assert_eq!(audited, [(by.clone(), Action::Deactivate), (by, Action::Stop)]);
    f.end(next, EndResult::Succeeded);
    f.resume(workload);
    f.settle();
    assert_eq!(
        (f.phase(workload), f.world.state().workloads()[&workload].attempts()),
        (Some(Phase::Running), 2)
    );
}

#[test]
fn a_workload_reactivated_while_it_stops_stops_and_restarts() {
    let mut f = Fleet::new(EU);
    let workload = f.submit("runs", 4);
    f.settle();
    f.stop(workload);
    f.resume(workload);
    assert_eq!(f.phase(workload), Some(Phase::Stopping), "an ordered stop isn't taken back");
    f.settle();
    f.settle();
    assert_eq!(
        (f.phase(workload), f.world.state().workloads()[&workload].attempts()),
        (Some(Phase::Running), 2)
    );
}

#[test]
fn deactivation_survives_a_restart_and_a_lapse() {
    let mut f = Fleet::regions();
    let workload = f.submit("runs", 3);
    f.settle();
    let home: ClusterName = f.cluster_of(workload).unwrap().as_str().into();
    f.disconnected.push(home);
    f.stop(workload);
    f.restart(2, RECOVERY);
    assert_eq!(f.phase(workload), Some(Phase::Stopping));
    f.advance(Millis::secs(20));
    assert_eq!(f.phase(workload), Some(Phase::Pending), "the lease has lapsed");
    f.disconnected.clear();
    f.advance(Millis::secs(20));
    assert_eq!((f.phase(workload), f.cluster_of(workload)), (Some(Phase::Pending), None));
    assert!(f.world.state().workloads()[&workload].inactive().is_some());
}

#[test]
fn a_run_of_a_workload_that_the_restored_journal_deactivates_is_stopped() {
    let mut f = Fleet::new(EU);
    f.apply(vec![cluster_queue("cq", 0, &json!({}))]);
    let uid = f.submit("job", 2);
    f.stop(uid);
    let backup = f.world.snapshot();
    // After the backup the workload is reactivated and runs. The journal of that is lost.
    f.apply(vec![cluster_queue("cq", 4, &json!({}))]);
    f.resume(uid);
    f.settle();
    assert_eq!(f.cluster_of(uid).as_deref(), Some("eu"));
    f.lead_from_backup(&backup);
    f.settle();
    f.settle();
    let w = &f.world.state().workloads()[&uid];
    assert!(w.inactive().is_some() && f.world.live().counts().of(Count::Adoptions) == 1);
    assert_eq!((w.phase(), f.cluster_of(uid)), (Phase::Pending, None), "the restored journal decides");
}

#[test]
fn a_finished_deleted_or_missing_workload_is_not_deactivated() {
    let mut f = Fleet::new(EU);
    let [finished, deleted] = ["over", "goes"].map(|name| f.submit(name, 2));
    f.settle();
    assert_eq!(f.set_active(finished, true), WriteResult::Unchanged);
    f.end(finished, EndResult::Succeeded);
    for active in [false, true] {
        let why = f.refusal(finished, active);
        assert_eq!((why.reason, why.field.as_deref()), (RejectionReason::Invalid, Some("spec.active")));
        assert!(why.message.contains("has ended (Completed)"), "{why}");
    }
    f.write(vec![Change::Delete {
        key: Key::namespaced(Kind::Job, "default", "goes"),
        uid: None,
        force: false,
    }]);
    assert!(f.refusal(deleted, false).message.contains("is being deleted"));
    f.settle();
    assert_eq!(f.phase(deleted), None);
    let deactivate = |key| Change::SetActive { key, active: false, version: None };
    for key in [
        Key::namespaced(Kind::Workload, "default", "job-nobody-00000"),
        Key::namespaced(Kind::Job, "default", "nobody"),
        Key::global(Kind::ClusterQueue, "cq"),
    ] {
        let Reply::Rejected(why) = f.write(vec![deactivate(key)]) else { panic!("accepted") };
        assert_eq!(why[0].reason, RejectionReason::NotFound);
    }
    let changed = f.submit("late", 1);
    let (key, old_version) = (f.workload_key(changed), f.world.state().workloads()[&changed].changed());
    f.settle();
    let change = Change::SetActive { key, active: false, version: Some(old_version) };
    let Reply::Rejected(why) = f.write(vec![change]) else { panic!("accepted") };
    assert_eq!(why[0].reason, RejectionReason::Conflict);
}

#[test]
fn a_deactivated_workload_can_be_deleted() {
    let mut f = Fleet::new(EU);
    let [running, pending] = ["runs", "waits"].map(|name| f.submit(name, 4));
    f.settle();
    f.stop(pending);
    f.stop(running);
    for name in ["runs", "waits"] {
        f.write(vec![Change::Delete {
            key: Key::namespaced(Kind::Job, "default", name),
            uid: None,
            force: false,
        }]);
    }
    assert_eq!((f.phase(pending), f.phase(running)), (None, Some(Phase::Stopping)));
    f.settle();
    assert_eq!(f.phase(running), None);
    assert_eq!(*f.world.counts_by_queue(), meridian_manager_core::queue::counts::QueueCounts::default());
}

#[test]
fn a_drained_queue_or_a_new_priority_reactivates_nothing() {
    let mut f = Fleet::new(EU);
    let class = |value: i64| priority_class("class", value);
    f.apply(vec![class(1)]);
    let labels = json!({"kueue.x-k8s.io/priority-class": "class"});
    let [one, two] = ["one", "two"].map(|name| f.submit_in("default", name, 2, labels.clone()));
    f.settle();
    let queue = |stop_policy: &str| cluster_queue("cq", 100, &json!({"stopPolicy": stop_policy}));
    f.stop(one);
    f.apply(vec![queue("HoldAndDrain")]);
    assert_eq!(f.evictions(), ["Deactivated", "ClusterQueueStopped"]);
    f.settle();
    assert_eq!(
        (f.phase(one), f.phase(two), f.pending_workloads()),
        (Some(Phase::Pending), Some(Phase::Pending), 1)
    );
    f.apply(vec![class(9)]);
    f.apply(vec![queue("None")]);
    f.settle();
    assert_eq!((f.phase(one), f.phase(two)), (Some(Phase::Pending), Some(Phase::Running)));
    f.resume(one);
    f.settle();
    assert_eq!((f.phase(one), f.world.state().workloads()[&one].priority()), (Some(Phase::Running), 9));
}

#[test]
fn capacity_freed_for_a_deactivated_preemptor_goes_to_others() {
    let mut f = Fleet::new(EU);
    f.apply(vec![
        priority_class("high", 9),
        cluster_queue("cq", 4, &json!({"preemption": {"withinClusterQueue": "LowerPriority"}})),
    ]);
    let victim = f.submit("victim", 4);
    f.settle();
    let high = f.submit_in("default", "high", 4, json!({"kueue.x-k8s.io/priority-class": "high"}));
    assert_eq!(f.phase(victim), Some(Phase::Stopping));
    f.stop(high);
    f.settle();
    f.settle();
    assert_eq!(
        (f.phase(high), f.phase(victim)),
        (Some(Phase::Pending), Some(Phase::Running)),
        "the victim restarts at once"
    );
    // A victim that is deactivated while it stops doesn't start again.
    f.resume(high);
    assert_eq!(f.phase(victim), Some(Phase::Stopping));
    f.stop(victim);
    f.settle();
    assert_eq!((f.phase(high), f.phase(victim)), (Some(Phase::Running), Some(Phase::Pending)));
    assert_eq!(f.evictions(), ["Preempted", "Preempted"], "one eviction for each preemption");
    f.end(high, EndResult::Succeeded);
    assert_eq!(f.phase(victim), Some(Phase::Pending));
}

#[test]
fn capacity_reserved_for_a_deactivated_starved_gang_goes_to_others() {
    let mut f = Fleet::new(EU);
    f.world.config_mut().starvation_guard = Some(Millis::secs(30));
    let (a, b) = (f.submit("a", 2), f.submit("b", 2));
    f.settle();
    let gang = f.submit("gang", 4);
    f.advance(Millis::secs(62));
    let small = f.submit("small", 2);
    f.end(a, EndResult::Succeeded);
    assert_eq!(f.phase(small), Some(Phase::Pending), "the capacity is reserved for the gang");
    f.stop(gang);
    f.settle();
    assert_eq!(f.phase(small), Some(Phase::Running));
    f.resume(gang);
    let more = f.submit("more", 2);
    f.end(b, EndResult::Succeeded);
    assert_eq!(f.phase(more), Some(Phase::Running), "the gang's waiting time starts again at zero");
}

#[test]
fn reactivation_ends_a_backoff() {
    let mut f = Fleet::new(EU);
    let uid = f.submit("job", 2);
    f.settle();
    let lost = || EndResult::NodeLost { message: "gone".into() };
    for _ in 0..6 {
        f.end(uid, lost());
        f.advance(Millis::secs(60));
    }
    assert_eq!(f.phase(uid), Some(Phase::Running));
    f.end(uid, lost());
    assert_eq!(f.phase(uid), Some(Phase::Pending), "the workload backs off");
    f.stop(uid);
    f.resume(uid);
    f.settle();
    assert_eq!(f.phase(uid), Some(Phase::Running));
    // The next backoff is as short as the first one.
    f.end(uid, lost());
    f.advance(Millis::secs(3));
    assert_eq!(f.phase(uid), Some(Phase::Running));
}

#[test]
fn a_backoff_continues_after_a_restart() {
    let mut f = Fleet::new(EU);
    let uid = f.submit("job", 2);
    f.settle();
    for _ in 0..6 {
        f.end(uid, EndResult::NodeLost { message: "gone".into() });
        f.advance(Millis::secs(60));
    }
    f.end(uid, EndResult::NodeLost { message: "gone".into() });
    let summary = f.why(uid)["summary"].clone();
    assert!(
        summary.as_str().unwrap().starts_with("pending: backing off before the next attempt, "),
        "{summary}"
    );
    let start = f.now;
    f.restart(2, RECOVERY);
    f.settle();
    f.settle();
    assert_eq!(f.phase(uid), Some(Phase::Pending), "the rest of the backoff isn't over");
    while f.phase(uid) != Some(Phase::Running) {
        f.advance(Millis::secs(1));
        assert!(f.now < start + 70_000, "{}", f.why(uid)["summary"]);
    }
    assert!(f.now > start + 16_000, "after {} ms", f.now - start);
}

#[test]
fn a_workload_over_its_maximum_execution_time_is_deactivated() {
    let mut f = Fleet::new(EU);
    let bounded = |name: &str, labels: &Value, deadline: Option<u64>| {
        let mut all = json!({"kueue.x-k8s.io/queue-name": "lq"});
        all.as_object_mut().unwrap().extend(labels.as_object().unwrap().clone());
        let mut job = job("default", name, 2, &all, "");
        if let Some(deadline) = deadline {
            job["spec"]["activeDeadlineSeconds"] = json!(deadline);
        }
        job
    };
    let label = json!({"kueue.x-k8s.io/max-exec-time-seconds": "60"});
    let Reply::Written(written) =
        f.apply(vec![bounded("up", &label, Some(90)), bounded("own", &label, Some(60))])
    else {
        panic!("refused")
    };
    let (up, own) = (written[0].uid, written[1].uid);
    f.settle();
    let too_long = || EndResult::Failed { reason: "DeadlineExceeded".into(), message: "ran for 60 s".into() };
    f.end(own, too_long());
    assert_eq!(f.phase(own), Some(Phase::Finished), "the job's own deadline finishes it");
    f.end(up, too_long());
    assert_eq!((f.phase(up), f.cluster_of(up)), (Some(Phase::Pending), None));
    assert_eq!(f.evictions(), ["Deactivated"]);
    assert!(
        f.why(up)["summary"].as_str().unwrap().contains("maximum execution time"),
        "{}",
        f.why(up)["summary"]
    );
    // Kueue's reason and message.
    let deactivated = "DeactivatedDueToMaximumExecutionTimeExceeded: \
                       The workload is deactivated due to exceeding the maximum execution time";
    assert_eq!(f.condition_of(up, "Evicted"), Some(format!("True {deactivated}")));
    assert_eq!(f.condition_of(up, "Requeued"), Some(format!("False {deactivated}")));
    let mark = |f: &Fleet| f.rendered_workload(up)["status"]["meridian"]["deactivated"].clone();
    let marked = mark(&f);
    assert!(marked.is_string(), "a management cluster learns of it: {marked}");
    f.restart(2, RECOVERY);
    assert_eq!(mark(&f), marked, "a restart makes no new deactivation of it");
    f.settle();
    f.resume(up);
    f.settle();
    f.settle();
    assert_eq!(f.phase(up), Some(Phase::Running));
    assert_eq!(f.world.state().workloads()[&up].ran(), Millis(0), "its execution time starts again at zero");
    f.end(up, EndResult::Succeeded);
    assert_eq!(f.phase(up), Some(Phase::Finished));
}
