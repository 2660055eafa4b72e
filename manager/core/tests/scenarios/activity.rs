//! Workloads that people take out of the queue and put back.

use super::*;
use meridian_manager_core::facts::audit::Action;
use meridian_manager_core::facts::lifecycle::Event as Reached;
use meridian_manager_core::facts::outcome::{Rejection, RejectionReason, WriteResult};
use meridian_manager_core::views::format::workload_name;
use meridian_shared::protocol::StopReason;

const EU: &[(&str, &str, &str)] = &[("eu", "europe-west4", "EU")];

impl Fleet {
    fn workload_key(&self, uid: Uid) -> Key {
        let w = &self.world.state.workloads()[&uid];
        Key::namespaced(Kind::Workload, &w.namespace(), &workload_name(&w.name(), w.submitted()))
    }

    fn activity(&mut self, uid: Uid, active: bool) -> Reply {
        let key = self.workload_key(uid);
        self.write(vec![Change::SetActive { key, active, version: None }])
    }

    fn set_active(&mut self, uid: Uid, active: bool) -> WriteResult {
        match self.activity(uid, active) {
            Reply::Written(written) => written[0].result,
            other => panic!("not taken: {other:?}"),
        }
    }

    pub(super) fn stop(&mut self, uid: Uid) {
        assert_eq!(self.set_active(uid, false), WriteResult::Configured);
    }

    pub(super) fn resume(&mut self, uid: Uid) {
        assert_eq!(self.set_active(uid, true), WriteResult::Configured);
    }

    fn refusal(&mut self, uid: Uid, active: bool) -> Rejection {
        match self.activity(uid, active) {
            Reply::Rejected(mut why) => why.remove(0),
            other => panic!("not refused: {other:?}"),
        }
    }

    fn shown_workload(&self, uid: Uid) -> Value {
        self.world.render(&self.workload_key(uid), &self.bodies, now(self.now)).expect("it is there")
    }

    /// A condition as `Status Reason: message`.
    fn condition_of(&self, uid: Uid, kind: &str) -> Option<String> {
        let shown = self.shown_workload(uid);
        let found =
            shown["status"]["conditions"].as_array().unwrap().iter().find(|c| c["type"] == kind)?.clone();
        Some(format!(
            "{} {}: {}",
            found["status"].as_str().unwrap(),
            found["reason"].as_str().unwrap(),
            found["message"].as_str().unwrap()
        ))
    }

    fn waiting(&self) -> u64 {
        let queue =
            self.world.render(&Key::global(Kind::ClusterQueue, "cq"), &self.bodies, now(self.now)).unwrap();
        queue["status"]["pendingWorkloads"].as_u64().unwrap()
    }

    /// Reasons of evictions that dashboards were told of.
    fn evictions(&self) -> Vec<&str> {
        let reason = |m: &'_ LifecycleEvent| matches!(m.event, Reached::Evicted { .. });
        self.lifecycle_events
            .iter()
            .filter(|m| reason(m))
            .map(|m| if let Reached::Evicted { cause, .. } = &m.event { cause.reason() } else { "" })
            .collect()
    }
}

#[test]
fn who_waits_is_taken_out_of_the_queue_and_comes_back_at_its_age() {
    let mut f = Fleet::new(EU);
    let runs = f.submit("runs", 4);
    f.settle();
    let [first, second] = ["first", "second"].map(|name| f.submit(name, 4));
    f.settle();
    assert_eq!(f.waiting(), 2);
    f.stop(first);
    assert_eq!(f.waiting(), 1, "it isn't pending any more");
    assert_eq!(f.why(second)["position"], json!({"queue": "lq", "place": 1, "of": 1}));
    let why = f.why(first);
    assert_eq!((&why["state"], &why["position"]), (&json!("Deactivated"), &Value::Null));
    assert!(
        why["summary"]
            .as_str()
            .unwrap()
            .starts_with("is in no queue: it was deactivated by `user:test` at 2027-"),
        "{why:#}"
    );
    assert_eq!(
        why["wouldHelp"],
        "no single change is known to start it; first: `meridian resume job first -n default`; then: at `eu`: the end of `default/runs` there"
    );
    let shown = f.shown_workload(first);
    assert_eq!(
        (&shown["spec"]["active"], &shown["status"]["meridian"]["state"]),
        (&json!(false), &json!("Deactivated"))
    );
    assert_eq!(f.condition_of(first, "Evicted").unwrap(), "True Deactivated: The workload is deactivated");
    assert_eq!(f.condition_of(first, "QuotaReserved").unwrap(), "False Pending: The workload is deactivated");
    let name = f.world.state.workloads()[&first].name().to_string();
    let job = f.world.render(&Key::namespaced(Kind::Job, "default", &name), &f.bodies, now(f.now)).unwrap();
    assert_eq!(job["status"]["meridian"]["waits"], "The workload is deactivated");
    assert_eq!(f.condition_of(first, "Requeued").unwrap(), "False Deactivated: The workload is deactivated");
    assert_eq!(f.condition_of(first, "Admitted"), None, "it never was");
    assert!(f.evictions().is_empty(), "who holds nothing is evicted from nothing");
    f.restart(2, None);
    f.end(runs, EndResult::Succeeded);
    f.settle();
    assert_eq!((f.phase(first), f.phase(second)), (Some(Phase::Pending), Some(Phase::Running)));

    let third = f.submit("third", 4);
    f.resume(first);
    assert_eq!((f.waiting(), &f.shown_workload(first)["spec"]["active"]), (2, &json!(true)));
    assert_eq!(f.condition_of(first, "Requeued").unwrap(), "True Reactivated: The workload was reactivated");
    f.end(second, EndResult::Succeeded);
    assert_eq!((f.phase(first), f.phase(third)), (Some(Phase::Running), Some(Phase::Pending)), "it is older");
    assert_eq!(f.condition_of(first, "Evicted"), None);
}

#[test]
fn who_is_asked_about_gives_its_quota_back_at_once() {
    let mut f = Fleet::new(EU);
    // Its agent isn't heard in between, so that the question stays open.
    f.cut.push("eu".into());
    let asked = f.submit("asked", 4);
    assert_eq!(f.phase(asked), Some(Phase::Dispatching));
    f.stop(asked);
    assert_eq!(f.phase(asked), Some(Phase::Pending));
    assert_eq!(f.evictions(), ["Deactivated"]);
    assert!(f.world.queues.usage("cq").is_none_or(|usage| usage.is_empty()));
    f.cut.clear();
    f.settle();
    f.settle();
    assert_eq!(
        (f.at(asked), f.phase(asked)),
        (None, Some(Phase::Pending)),
        "a hold that comes late starts nothing"
    );
    let other = f.submit("other", 4);
    f.settle();
    assert_eq!(f.phase(other), Some(Phase::Running), "the room is free");
}

#[test]
fn who_runs_is_stopped_and_keeps_its_quota_until_it_has() {
    let mut f = Fleet::new(EU);
    let [runs, next] = ["runs", "next"].map(|name| f.submit(name, 4));
    f.settle();
    f.stop(runs);
    let w = &f.world.state.workloads()[&runs];
    assert_eq!((w.phase(), w.stopping()), (Phase::Stopping, Some(StopReason::Evicted)));
    assert_eq!(f.phase(next), Some(Phase::Pending));
    assert!(
        f.why(runs)["summary"]
            .as_str()
            .unwrap()
            .contains("it was deactivated by `user:test`; its room and quota are kept"),
        "{:#}",
        f.why(runs)
    );
    assert_eq!(f.evictions(), ["Deactivated"]);
    assert_eq!(f.set_active(runs, false), WriteResult::Unchanged, "once is enough");
    f.settle();
    assert_eq!(
        (f.at(runs), f.phase(runs), f.phase(next)),
        (None, Some(Phase::Pending), Some(Phase::Running))
    );
    assert_eq!(f.condition_of(runs, "Evicted").unwrap(), "True Deactivated: The workload is deactivated");
    assert_eq!(
        f.condition_of(runs, "Admitted").unwrap(),
        "False NoReservation: The workload has no reservation"
    );
    assert_eq!(f.evictions(), ["Deactivated"], "counted once");
    f.pass(Millis::secs(40));
    assert_eq!(f.world.state.workloads()[&runs].attempts(), 1);
    let audited: Vec<(String, Action)> = f
        .records
        .iter()
        .filter_map(|(_, r)| if let Record::Audited(line) = r { Some(line) } else { None })
        .fold(Vec::new(), |mut all, line| {
            if matches!(line.entry.action, Action::Deactivate | Action::Stop) {
                all.push((line.by.to_string(), line.entry.action));
            }
            all
        });
    let by = "user:test".to_owned();
    assert_eq!(audited, [(by.clone(), Action::Deactivate), (by, Action::Stop)]);
    f.end(next, EndResult::Succeeded);
    f.resume(runs);
    f.settle();
    assert_eq!((f.phase(runs), f.world.state.workloads()[&runs].attempts()), (Some(Phase::Running), 2));
}

#[test]
fn who_is_resumed_before_it_has_stopped_waits_once_it_has() {
    let mut f = Fleet::new(EU);
    let runs = f.submit("runs", 4);
    f.settle();
    f.stop(runs);
    f.resume(runs);
    assert_eq!(f.phase(runs), Some(Phase::Stopping), "a stop that was ordered goes on");
    f.settle();
    f.settle();
    assert_eq!((f.phase(runs), f.world.state.workloads()[&runs].attempts()), (Some(Phase::Running), 2));
}

#[test]
fn it_survives_a_restart_and_a_lapse() {
    let mut f = Fleet::regions();
    let runs = f.submit("runs", 3);
    f.settle();
    let home: ClusterName = f.at(runs).unwrap().as_str().into();
    f.cut.push(home);
    f.stop(runs);
    f.restart(2, RECOVERY);
    assert_eq!(f.phase(runs), Some(Phase::Stopping));
    f.pass(Millis::secs(20));
    assert_eq!(f.phase(runs), Some(Phase::Pending), "its lease has lapsed");
    f.cut.clear();
    f.pass(Millis::secs(20));
    assert_eq!((f.phase(runs), f.at(runs)), (Some(Phase::Pending), None));
    assert!(f.world.state.workloads()[&runs].inactive().is_some());
}

#[test]
fn a_run_that_an_older_journal_finds_is_stopped_where_it_is_deactivated() {
    let mut f = Fleet::new(EU);
    f.apply(vec![queue_of(0)]);
    let uid = f.submit("job", 2);
    f.stop(uid);
    let copy = f.world.snapshot();
    // History goes on, and is lost: it was resumed, and runs.
    f.apply(vec![queue_of(4)]);
    f.resume(uid);
    f.settle();
    assert_eq!(f.at(uid).as_deref(), Some("eu"));
    f.lead_with_copy(&copy);
    f.settle();
    f.settle();
    let w = &f.world.state.workloads()[&uid];
    assert!(w.inactive().is_some() && f.world.live.counts.adoptions == 1);
    assert_eq!((w.phase(), f.at(uid)), (Phase::Pending, None), "what this journal says holds again");
}

fn queue_of(nominal: u32) -> Value {
    json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue", "metadata": {"name": "cq"}, "spec": {"namespaceSelector": {}, "resourceGroups": [
        {"coveredResources": [GPU], "flavors": [{"name": "any", "resources": [{"name": GPU, "nominalQuota": nominal}]}]}]}})
}

#[test]
fn what_ended_or_goes_or_isnt_there_is_refused_and_nothing_is_done_twice() {
    let mut f = Fleet::new(EU);
    let [over, goes] = ["over", "goes"].map(|name| f.submit(name, 2));
    f.settle();
    assert_eq!(f.set_active(over, true), WriteResult::Unchanged);
    f.end(over, EndResult::Succeeded);
    for active in [false, true] {
        let why = f.refusal(over, active);
        assert_eq!((why.reason, why.field.as_deref()), (RejectionReason::Invalid, Some("spec.active")));
        assert!(why.message.contains("has ended (Completed)"), "{why}");
    }
    f.write(vec![Change::Delete { key: Key::namespaced(Kind::Job, "default", "goes"), uid: None }]);
    assert!(f.refusal(goes, false).message.contains("is being deleted"));
    f.settle();
    assert_eq!(f.phase(goes), None);
    let nobody = |key| Change::SetActive { key, active: false, version: None };
    for key in [
        Key::namespaced(Kind::Workload, "default", "job-nobody-00000"),
        Key::namespaced(Kind::Job, "default", "nobody"),
        Key::global(Kind::ClusterQueue, "cq"),
    ] {
        let Reply::Rejected(why) = f.write(vec![nobody(key)]) else { panic!("taken") };
        assert_eq!(why[0].reason, RejectionReason::NotFound);
    }
    let late = f.submit("late", 1);
    let (key, seen) = (f.workload_key(late), f.world.state.workloads()[&late].changed());
    f.settle();
    let Reply::Rejected(why) = f.write(vec![Change::SetActive { key, active: false, version: Some(seen) }])
    else {
        panic!("taken")
    };
    assert_eq!(why[0].reason, RejectionReason::Conflict);
}

#[test]
fn deletion_goes_on_from_whatever_is_left() {
    let mut f = Fleet::new(EU);
    let [runs, waits] = ["runs", "waits"].map(|name| f.submit(name, 4));
    f.settle();
    f.stop(waits);
    f.stop(runs);
    for name in ["runs", "waits"] {
        f.write(vec![Change::Delete { key: Key::namespaced(Kind::Job, "default", name), uid: None }]);
    }
    assert_eq!((f.phase(waits), f.phase(runs)), (None, Some(Phase::Stopping)));
    f.settle();
    assert_eq!(f.phase(runs), None);
    assert_eq!(f.world.counts_by_queue, meridian_manager_core::queue::counts::QueueCounts::default());
}

#[test]
fn a_drained_queue_and_a_changed_priority_dont_bring_it_back() {
    let mut f = Fleet::new(EU);
    let class = |value: i64| json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "WorkloadPriorityClass", "metadata": {"name": "class"}, "value": value});
    f.apply(vec![class(1)]);
    let labels = json!({"kueue.x-k8s.io/priority-class": "class"});
    let [one, two] = ["one", "two"].map(|name| f.submit_in("default", name, 2, labels.clone()));
    f.settle();
    let stops = |policy: &str| {
        let mut queue = queue_of(100);
        queue["spec"]["stopPolicy"] = json!(policy);
        queue
    };
    f.stop(one);
    f.apply(vec![stops("HoldAndDrain")]);
    assert_eq!(f.evictions(), ["Deactivated", "ClusterQueueStopped"]);
    f.settle();
    assert_eq!((f.phase(one), f.phase(two), f.waiting()), (Some(Phase::Pending), Some(Phase::Pending), 1));
    f.apply(vec![class(9)]);
    f.apply(vec![stops("None")]);
    f.settle();
    assert_eq!((f.phase(one), f.phase(two)), (Some(Phase::Pending), Some(Phase::Running)));
    f.resume(one);
    f.settle();
    assert_eq!((f.phase(one), f.world.state.workloads()[&one].priority()), (Some(Phase::Running), 9));
}

#[test]
fn what_was_kept_for_it_is_let_go() {
    // Others stop for it.
    let mut f = Fleet::new(EU);
    f.apply(vec![
        json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "WorkloadPriorityClass", "metadata": {"name": "high"}, "value": 9}),
        json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue", "metadata": {"name": "cq"}, "spec": {"namespaceSelector": {},
            "preemption": {"withinClusterQueue": "LowerPriority"}, "resourceGroups": [
            {"coveredResources": [GPU], "flavors": [{"name": "any", "resources": [{"name": GPU, "nominalQuota": 4}]}]}]}}),
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
        "nobody waits for what it freed"
    );
    // A victim that is deactivated while it stops rests then, and is no victim again.
    f.resume(high);
    assert_eq!(f.phase(victim), Some(Phase::Stopping));
    f.stop(victim);
    f.settle();
    assert_eq!((f.phase(high), f.phase(victim)), (Some(Phase::Running), Some(Phase::Pending)));
    assert_eq!(f.evictions(), ["Preempted", "Preempted"], "it lost its quota once each time");
    f.end(high, EndResult::Succeeded);
    assert_eq!(f.phase(victim), Some(Phase::Pending));

    // It has waited so long that nobody passes it by.
    let mut f = Fleet::new(EU);
    f.world.config.starvation_guard = Some(Millis::secs(30));
    let (a, b) = (f.submit("a", 2), f.submit("b", 2));
    f.settle();
    let gang = f.submit("gang", 4);
    f.pass(Millis::secs(62));
    let small = f.submit("small", 2);
    f.end(a, EndResult::Succeeded);
    assert_eq!(f.phase(small), Some(Phase::Pending), "room is kept for the gang");
    f.stop(gang);
    f.settle();
    assert_eq!(f.phase(small), Some(Phase::Running));
    f.resume(gang);
    let more = f.submit("more", 2);
    f.end(b, EndResult::Succeeded);
    assert_eq!(f.phase(more), Some(Phase::Running), "its wait begins anew");
}

#[test]
fn who_is_resumed_waits_out_no_back_off() {
    let mut f = Fleet::new(EU);
    let uid = f.submit("job", 2);
    f.settle();
    let lost = || EndResult::NodeLost { message: "gone".into() };
    for _ in 0..6 {
        f.end(uid, lost());
        f.pass(Millis::secs(60));
    }
    assert_eq!(f.phase(uid), Some(Phase::Running));
    f.end(uid, lost());
    assert_eq!(f.phase(uid), Some(Phase::Pending), "it backs off");
    f.stop(uid);
    f.resume(uid);
    f.settle();
    assert_eq!(f.phase(uid), Some(Phase::Running));
    // And the next one begins at the beginning.
    f.end(uid, lost());
    f.pass(Millis::secs(3));
    assert_eq!(f.phase(uid), Some(Phase::Running));
}

#[test]
fn a_back_off_goes_on_over_a_restart() {
    let mut f = Fleet::new(EU);
    let uid = f.submit("job", 2);
    f.settle();
    for _ in 0..6 {
        f.end(uid, EndResult::NodeLost { message: "gone".into() });
        f.pass(Millis::secs(60));
    }
    f.end(uid, EndResult::NodeLost { message: "gone".into() });
    let words = f.why(uid)["summary"].clone();
    assert!(words.as_str().unwrap().starts_with("waits a moment before the next attempt, for "), "{words}");
    let begun = f.now;
    f.restart(2, RECOVERY);
    f.settle();
    f.settle();
    assert_eq!(f.phase(uid), Some(Phase::Pending), "what is left of it isn't over");
    while f.phase(uid) != Some(Phase::Running) {
        f.pass(Millis::secs(1));
        assert!(f.now < begun + 70_000, "{}", f.why(uid)["summary"]);
    }
    assert!(f.now > begun + 16_000, "after {} ms", f.now - begun);
}

#[test]
fn who_has_run_for_its_maximum_execution_time_is_deactivated_and_can_be_put_back() {
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
    let late = || EndResult::Failed { reason: "DeadlineExceeded".into(), message: "ran for 60 s".into() };
    f.end(own, late());
    assert_eq!(f.phase(own), Some(Phase::Finished), "its own deadline is its end");
    f.end(up, late());
    assert_eq!((f.phase(up), f.at(up)), (Some(Phase::Pending), None));
    assert_eq!(f.evictions(), ["Deactivated"]);
    assert!(
        f.why(up)["summary"].as_str().unwrap().contains("maximum execution time"),
        "{}",
        f.why(up)["summary"]
    );
    let kueues = "DeactivatedDueToMaximumExecutionTimeExceeded: The workload is deactivated due to exceeding the maximum execution time";
    assert_eq!(f.condition_of(up, "Evicted"), Some(format!("True {kueues}")));
    assert_eq!(f.condition_of(up, "Requeued"), Some(format!("False {kueues}")));
    f.restart(2, RECOVERY);
    f.settle();
    f.resume(up);
    f.settle();
    f.settle();
    assert_eq!(f.phase(up), Some(Phase::Running));
    assert_eq!(f.world.state.workloads()[&up].ran(), Millis(0), "its time begins anew");
    f.end(up, EndResult::Succeeded);
    assert_eq!(f.phase(up), Some(Phase::Finished));
}

impl Fleet {
    /// A commit failed: the world is read back as it was durable, and this process goes on leading.
    fn fail_a_commit(&mut self, durable: &[u8], id: u64) {
        let mut world = World::restore(durable, self.world.config.clone()).unwrap();
        world.go_on_from(&self.world);
        world.lead(start(id, self.now, None, false), &self.bodies);
        world.committed(Mono(self.now));
        world.check().unwrap();
        self.world = world;
    }
}

#[test]
fn on_a_disk_that_fails_again_and_again_the_leases_of_a_lost_cluster_lapse_in_time() {
    let mut f = Fleet::regions();
    let uid = f.submit("gang", 4);
    f.settle();
    let home = ClusterName::new(f.at(uid).unwrap());
    f.cut = vec![home.clone()];
    // Eight seconds of term and one of drift, and in every one of them a commit fails.
    for second in 0..9 {
        assert_eq!(f.phase(uid), Some(Phase::Running), "after {second} s");
        let durable = f.world.snapshot();
        f.fail_a_commit(&durable, 100 + second);
        f.pass(Millis::secs(1));
    }
    f.pass(Millis::secs(1));
    assert_ne!(f.at(uid).as_deref(), Some(home.as_str()), "it goes on elsewhere: {:?}", f.phase(uid));
}

#[test]
fn a_lapse_that_did_not_become_durable_lapses_again_at_once() {
    let mut f = Fleet::regions();
    let uid = f.submit("gang", 4);
    f.settle();
    let home = ClusterName::new(f.at(uid).unwrap());
    f.cut = vec![home.clone()];
    let durable = f.world.snapshot();
    f.now += 9_500;
    f.world.committed(Mono(f.now));
    f.world.apply(now(f.now), Input::Turn, &f.bodies);
    assert_eq!(f.world.live.counts.lapses, 1);
    f.fail_a_commit(&durable, 100);
    assert_eq!(f.phase(uid), Some(Phase::Running), "nobody was told");
    f.world.apply(now(f.now), Input::Turn, &f.bodies);
    assert_ne!(f.phase(uid), Some(Phase::Running));
    // After another start it isn't known: then every lease counts in full.
    let mut f = Fleet::regions();
    let uid = f.submit("gang", 4);
    f.settle();
    f.cut = vec![ClusterName::new(f.at(uid).unwrap())];
    f.pass(Millis::secs(5));
    f.restart(2, None);
    f.pass(Millis::secs(5));
    assert_eq!(f.phase(uid), Some(Phase::Running));
}
