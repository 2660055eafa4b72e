//! Elastic jobs: resizing while they are pending and while they run, and other changes to submitted jobs.

use super::*;
use meridian_manager_core::facts::outcome::{Rejection, RejectionReason, WriteResult};
use meridian_manager_core::live::counts::Count;
use meridian_manager_core::sessions::features::Features;

pub(super) fn elastic(name: &str, pods: u32) -> Value {
    let mut job = job("default", name, pods, &json!({"kueue.x-k8s.io/queue-name": "lq"}), "");
    job["metadata"]["annotations"] = json!({"kueue.x-k8s.io/elastic-job": "true"});
    job["spec"]["completionMode"] = json!("Indexed");
    job
}

impl Fleet {
    pub(super) fn put(&mut self, job: Value) -> (Uid, WriteResult) {
        match self.apply(vec![job]) {
            Reply::Written(written) => (written[0].uid, written[0].result),
            other => panic!("refused: {other:?}"),
        }
    }

    pub(super) fn refused(&mut self, job: Value) -> Rejection {
        let before = self.world.state().clone();
        let Reply::Rejected(mut all) = self.apply(vec![job]) else { panic!("not refused") };
        assert_eq!(*self.world.state(), before, "a refused write changes nothing");
        all.remove(0)
    }

    pub(super) fn used(&self) -> i64 {
        self.world.queues().usage("cq").into_iter().flat_map(|usage| usage.values()).sum()
    }

    pub(super) fn free_in(&self, cluster: &str) -> i64 {
        self.agents[&ClusterName::new(cluster)]
            .ledger()
            .blocks()
            .iter()
            .map(|b| b.free[GPU] * i64::from(b.nodes))
            .sum()
    }

    fn object(&self, name: &str) -> Value {
        self.object_at(&Key::namespaced(Kind::Job, "default", name)).unwrap()
    }

    fn parallelism(&self, name: &str) -> Value {
        self.object(name)["spec"]["parallelism"].clone()
    }
}

#[test]
fn a_scale_down_frees_quota_once_the_pods_have_ended() {
    let mut f = Fleet::new(EU);
    f.quota(4);
    let (gang, _) = f.put(elastic("gang", 4));
    let next = f.submit("next", 2);
    f.settle();
    f.hold_stops = true;
    assert_eq!(f.put(elastic("gang", 2)), (gang, WriteResult::Configured));
    f.settle();
    assert_eq!(
        (f.used(), f.phase(gang), f.phase(next)),
        (4, Some(Phase::Running), Some(Phase::Pending)),
        "the surplus pods still run"
    );
    assert_eq!(f.parallelism("gang"), 2);
    assert!(
        f.why(gang)["summary"].as_str().unwrap().contains("2 pods (and 2 being removed) running"),
        "{:#}",
        f.why(gang)
    );
    let fence = f.agents[&ClusterName::new("eu")].runs().next().unwrap().1;
    let event =
        RunnerEvent::Reclaimable { uid: gang, fence, places: vec![("main".into(), 2), ("main".into(), 3)] };
    let out = f.agents.get_mut(&ClusterName::new("eu")).unwrap().apply(now(f.now), AgentInput::Runner(event));
    f.perform(&ClusterName::new("eu"), out.into_effects());
    f.settle();
    assert_eq!(
        (f.used(), f.phase(gang), f.phase(next)),
        (4, Some(Phase::Running), Some(Phase::Running)),
        "`next` runs next to the smaller gang"
    );
    assert_eq!(f.world.state().workloads()[&gang].attempts(), 1, "the same attempt");
    assert!(f.why(gang)["summary"].as_str().unwrap().contains(": 2 pods running"), "{:#}", f.why(gang));
    let key = |uid: Uid| {
        let w = &f.world.state().workloads()[&uid];
        Key::namespaced(Kind::Workload, w.namespace(), &w.object_name())
    };
    let rendered = f.object_at(&key(gang)).unwrap();
    assert_eq!(rendered["status"]["admission"]["podSetAssignments"][0]["count"], 2, "{rendered:#}");
    assert_eq!(
        (&rendered["status"]["reclaimablePods"], &rendered["spec"]["podSets"][0]["count"]),
        (&Value::Null, &json!(2))
    );
    assert_eq!(f.put(elastic("gang", 2)), (gang, WriteResult::Unchanged));
    f.hold_stops = false;
    assert_eq!(f.put(elastic("gang", 1)), (gang, WriteResult::Configured), "a second scale-down");
    f.settle();
    assert_eq!((f.used(), f.free_in("eu")), (3, 1));
    assert_eq!(f.object("gang")["metadata"]["generation"], 3, "its spec was changed twice");
    assert_eq!(f.object("next")["metadata"]["generation"], 1);
    f.end(gang, EndResult::Succeeded);
    assert_eq!((f.used(), f.phase(gang)), (2, Some(Phase::Finished)));
    assert_eq!(f.refused(elastic("gang", 3)).reason, RejectionReason::Conflict);
}

#[test]
fn a_resized_pending_workload_keeps_its_queue_position() {
    let mut f = Fleet::new(EU);
    f.quota(4);
    let full = f.submit("full", 4);
    f.settle();
    let (first, _) = f.put(elastic("first", 2));
    let second = f.submit("second", 2);
    f.settle();
    // The scaled-up workload is still the queue's head, though it was changed last.
    assert_eq!(f.put(elastic("first", 4)).1, WriteResult::Configured);
    f.end(full, EndResult::Succeeded);
    assert_eq!((f.phase(first), f.phase(second), f.used()), (Some(Phase::Running), Some(Phase::Pending), 4));
    assert_eq!(f.free_in("eu"), 0);
    // `third` is too large for the quota, and starts once it is small enough.
    let (third, _) = f.put(elastic("third", 9));
    f.end(first, EndResult::Succeeded);
    assert_eq!((f.phase(second), f.phase(third)), (Some(Phase::Running), Some(Phase::Pending)));
    f.put(elastic("third", 2));
    f.settle();
    assert_eq!((f.phase(third), f.used()), (Some(Phase::Running), 4));
    f.restart(2, None);
    f.settle();
    assert_eq!(f.used(), 4);
}

#[test]
fn a_resize_during_dispatch_replaces_the_open_offer() {
    let mut f = Fleet::new(EU);
    f.disconnected = vec!["eu".into()];
    f.quota(9);
    let (gang, _) = f.put(elastic("gang", 4));
    assert_eq!(f.phase(gang), Some(Phase::Dispatching));
    f.put(elastic("gang", 3));
    f.disconnected.clear();
    f.settle();
    assert_eq!((f.phase(gang), f.used(), f.free_in("eu")), (Some(Phase::Running), 3, 1));
    assert_eq!(f.world.state().workloads()[&gang].resized(), None, "the granted size is the requested one");
}

#[test]
fn other_changes_are_refused_with_a_remedy() {
    let mut f = Fleet::new(EU);
    let (gang, _) = f.put(elastic("gang", 2));
    f.submit("rigid", 2);
    f.settle();
    let mut other = elastic("gang", 1);
    other["spec"]["template"]["spec"]["containers"][0]["image"] = json!("another");
    assert!(f.refused(other).message.contains("delete it and create it again"));
    let mut rigid = job("default", "rigid", 1, &json!({"kueue.x-k8s.io/queue-name": "lq"}), "");
    assert!(
        f.refused(rigid.clone()).message.contains("another spec"),
        "the completions of this job can't change"
    );
    rigid["spec"]["completions"] = json!(2);
    assert_eq!(f.put(rigid).1, WriteResult::Configured, "it is stopped and queued again");
    f.settle();
    // A deactivated job has its last requested size when it is reactivated.
    let active = |f: &mut Fleet, active| {
        f.write(vec![Change::SetActive {
            key: Key::namespaced(Kind::Job, "default", "gang"),
            active,
            version: None,
        }]);
        f.settle();
    };
    active(&mut f, false);
    assert_eq!(f.put(elastic("gang", 1)).1, WriteResult::Configured);
    assert_eq!(f.put(elastic("gang", 2)).1, WriteResult::Configured);
    active(&mut f, true);
    assert_eq!((f.phase(gang), f.used()), (Some(Phase::Running), 3));
}

#[test]
fn user_labels_and_annotations_may_change_at_any_time() {
    let mut f = Fleet::new(EU);
    f.quota(2);
    let mut running = elastic("running", 2);
    let (running_uid, _) = f.put(running.clone());
    let mut pending = elastic("waiting", 2);
    let (pending_uid, _) = f.put(pending.clone());
    f.settle();
    for (object, uid) in [(&mut running, running_uid), (&mut pending, pending_uid)] {
        let phase = f.phase(uid);
        object["metadata"]["labels"]["app.kubernetes.io/version"] = json!("2");
        object["metadata"]["annotations"]["team"] = json!("vision");
        assert_eq!(f.put(object.clone()), (uid, WriteResult::Configured));
        assert_eq!(f.put(object.clone()).1, WriteResult::Unchanged);
        let key = Key::namespaced(Kind::Job, "default", object["metadata"]["name"].as_str().unwrap());
        let user_metadata = |f: &Fleet| {
            let job = f.object_at(&key).unwrap();
            let metadata = &job["metadata"];
            (metadata["labels"]["app.kubernetes.io/version"].clone(), metadata["annotations"]["team"].clone())
        };
        assert_eq!(user_metadata(&f), (json!("2"), json!("vision")));
        object["metadata"]["labels"].as_object_mut().unwrap().remove("app.kubernetes.io/version");
        assert_eq!(f.put(object.clone()).1, WriteResult::Configured);
        assert_eq!((user_metadata(&f).0, f.phase(uid)), (Value::Null, phase));
        // Labels that scheduling uses can change only while the job waits.
        for (key, value) in [
            ("kueue.x-k8s.io/max-exec-time-seconds", "60"),
            ("meridian.dev/region", "us-east4"),
            ("sub.meridian.dev/any", "x"),
        ] {
            let mut other = object.clone();
            other["metadata"]["labels"][key] = json!(value);
            if phase == Some(Phase::Running) {
                assert!(f.refused(other).message.contains("only while it waits"), "{key}");
            } else if key == "meridian.dev/region" {
                let Reply::Rejected(denied) = f.apply(vec![other]) else { panic!("{key} is taken") };
                assert!(denied[0].message.contains("no cluster of its queue may run"), "{key}");
            } else {
                assert_eq!(f.put(other).1, WriteResult::Configured, "{key}");
                assert_eq!(f.put(object.clone()).1, WriteResult::Configured, "{key}");
            }
        }
    }
    f.restart(2, None);
    f.settle();
    assert_eq!((f.phase(running_uid), f.phase(pending_uid)), (Some(Phase::Running), Some(Phase::Pending)));
}

#[test]
fn a_scale_down_is_refused_if_the_agent_doesnt_support_it() {
    let mut f = Fleet::new(EU);
    let (gang, _) = f.put(elastic("gang", 2));
    f.settle();
    f.world.live_mut().cluster_mut(&ClusterName::new("eu")).unwrap().set_features(Features::default());
    assert!(f.refused(elastic("gang", 1)).message.contains("agent is of an older version"));
    assert_eq!(f.phase(gang), Some(Phase::Running));
}

#[test]
fn a_reconnected_agent_gets_the_last_requested_size() {
    let mut f = Fleet::new(EU);
    let (gang, _) = f.put(elastic("gang", 4));
    f.settle();
    f.disconnected = vec!["eu".into()];
    f.put(elastic("gang", 3));
    f.put(elastic("gang", 1));
    f.restart(2, RECOVERY);
    assert_eq!(f.used(), 4);
    f.disconnected.clear();
    f.settle();
    f.settle();
    assert_eq!((f.used(), f.free_in("eu"), f.phase(gang)), (1, 3, Some(Phase::Running)));
    // The next attempt has the job's current size.
    f.end(gang, EndResult::NodeLost { message: "gone".into() });
    f.advance(Millis::secs(4));
    assert_eq!((f.used(), f.free_in("eu"), f.world.state().workloads()[&gang].attempts()), (1, 3, 2));
}

#[test]
fn an_adopted_run_is_charged_for_the_reported_pods() {
    let mut f = Fleet::new(EU);
    let (gang, _) = f.put(elastic("gang", 4));
    f.settle();
    f.hold_stops = true;
    f.put(elastic("gang", 2));
    f.settle();
    let backup = f.world.snapshot();
    assert_eq!(f.used(), 4);
    // The backup doesn't know the second attempt, which has the reduced size.
    f.end(gang, EndResult::NodeLost { message: "gone".into() });
    f.advance(Millis::secs(4));
    assert_eq!(f.used(), 2);
    f.lead_from_backup(&backup);
    f.settle();
    f.settle();
    assert_eq!(
        (f.world.live().counts().of(Count::Adoptions), f.used(), f.phase(gang)),
        (1, 2, Some(Phase::Running))
    );
}

#[test]
fn a_resize_between_restore_and_adoption_applies_to_the_run() {
    for size in [1, 2, 3] {
        let mut f = Fleet::new(EU);
        f.quota(4);
        f.disconnected = vec!["eu".into()];
        let (gang, _) = f.put(elastic("gang", 2));
        let backup = f.world.snapshot();
        f.disconnected.clear();
        f.settle();
        assert_eq!((f.used(), f.free_in("eu")), (2, 2));
        // The backup is older than the grant, and the job is resized before the agent reconnects.
        f.disconnected = vec!["eu".into()];
        f.lead_from_backup(&backup);
        f.confirm_rules();
        f.put(elastic("gang", size));
        f.disconnected.clear();
        f.settle();
        f.advance(Millis::secs(2));
        assert_eq!(f.phase(gang), Some(Phase::Running), "{size}: {}", f.why(gang));
        assert_eq!(
            (f.used(), f.free_in("eu"), f.world.state().workloads()[&gang].attempts()),
            (i64::from(size), i64::from(4 - size), 1),
            "{size}"
        );
    }
}

#[test]
fn an_adopted_run_keeps_the_quota_of_all_its_pods_while_it_is_stopped() {
    let gang_of = |pods| {
        let mut job = job("default", "gang", pods, &json!({"kueue.x-k8s.io/queue-name": "lq"}), "");
        job["spec"]["completions"] = json!(3);
        job
    };
    let mut f = Fleet::new(EU);
    f.quota(4);
    f.disconnected = vec!["eu".into()];
    let (gang, _) = f.put(gang_of(1));
    let backup = f.world.snapshot();
    f.put(gang_of(3));
    f.disconnected.clear();
    f.settle();
    assert_eq!((f.used(), f.phase(gang)), (3, Some(Phase::Running)));
    // The backup knows one pod. The job isn't elastic, so that the run of three is stopped.
    f.hold_stops = true;
    f.lead_from_backup(&backup);
    f.confirm_rules();
    f.settle();
    assert_eq!((f.used(), f.phase(gang)), (3, Some(Phase::Stopping)));
    let next = f.submit("next", 2);
    assert_eq!(f.phase(next), Some(Phase::Pending));
    let why = f.why(next)["summary"].to_string();
    assert!(why.contains("1 of 4 free"), "{why}");
}
