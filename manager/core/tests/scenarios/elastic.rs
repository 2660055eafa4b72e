//! Elastic jobs: another number of pods, while they wait and while they run.

use super::*;
use meridian_manager_core::facts::outcome::{Rejection, RejectionReason, WriteResult};
use meridian_manager_core::views::format::workload_name;

pub(super) const EU: &[(&str, &str, &str)] = &[("eu", "europe-west4", "EU")];

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
        let before = self.world.state.clone();
        let Reply::Rejected(mut all) = self.apply(vec![job]) else { panic!("taken") };
        assert_eq!(self.world.state, before, "nothing of it is applied");
        all.remove(0)
    }

    pub(super) fn used(&self) -> i64 {
        self.world.queues.usage("cq").into_iter().flat_map(|usage| usage.values()).sum()
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
        self.world.render(&Key::namespaced(Kind::Job, "default", name), &self.bodies, now(self.now)).unwrap()
    }

    fn parallelism(&self, name: &str) -> Value {
        self.object(name)["spec"]["parallelism"].clone()
    }
}

#[test]
fn a_gang_that_runs_goes_on_with_fewer_and_quota_comes_back_when_they_were_seen_ended() {
    let mut f = Fleet::new(EU);
    f.quota(4);
    let (gang, _) = f.put(elastic("gang", 4));
    let next = f.submit("next", 2);
    f.settle();
    f.hold_ends = true;
    assert_eq!(f.put(elastic("gang", 2)), (gang, WriteResult::Configured));
    f.settle();
    assert_eq!(
        (f.used(), f.phase(gang), f.phase(next)),
        (4, Some(Phase::Running), Some(Phase::Pending)),
        "they still run"
    );
    assert_eq!(f.parallelism("gang"), 2);
    assert!(
        f.why(gang)["summary"]
            .as_str()
            .unwrap()
            .contains("its 2 pods, and 2 that it is told to end, run there"),
        "{:#}",
        f.why(gang)
    );
    let fence = f.agents[&ClusterName::new("eu")].runs().next().unwrap().1;
    let event = RunnerEvent::Spare { uid: gang, fence, places: vec![("main".into(), 2), ("main".into(), 3)] };
    let out = f.agents.get_mut(&ClusterName::new("eu")).unwrap().apply(now(f.now), AgentInput::Runner(event));
    f.perform(&ClusterName::new("eu"), out.effects);
    f.settle();
    assert_eq!(
        (f.used(), f.phase(gang), f.phase(next)),
        (4, Some(Phase::Running), Some(Phase::Running)),
        "beside it"
    );
    assert_eq!(f.world.state.workloads()[&gang].attempts(), 1, "the same attempt");
    assert!(f.why(gang)["summary"].as_str().unwrap().contains(": its 2 pods run there"), "{:#}", f.why(gang));
    let key = |uid: Uid| {
        let w = &f.world.state.workloads()[&uid];
        Key::namespaced(Kind::Workload, &w.namespace(), &workload_name(&w.name(), w.submitted()))
    };
    let shown = f.world.render(&key(gang), &f.bodies, now(f.now)).unwrap();
    assert_eq!(shown["status"]["admission"]["podSetAssignments"][0]["count"], 2, "{shown:#}");
    assert_eq!(
        (&shown["status"]["reclaimablePods"], &shown["spec"]["podSets"][0]["count"]),
        (&Value::Null, &json!(2))
    );
    assert_eq!(f.put(elastic("gang", 2)), (gang, WriteResult::Unchanged));
    f.hold_ends = false;
    assert_eq!(f.put(elastic("gang", 1)), (gang, WriteResult::Configured), "and with fewer still");
    f.settle();
    assert_eq!((f.used(), f.free_in("eu")), (3, 1));
    assert_eq!(f.object("gang")["metadata"]["generation"], 3, "its spec was changed twice");
    assert_eq!(f.object("next")["metadata"]["generation"], 1);
    f.end(gang, EndResult::Succeeded);
    assert_eq!((f.used(), f.phase(gang)), (2, Some(Phase::Finished)));
    assert_eq!(f.refused(elastic("gang", 3)).reason, RejectionReason::Conflict);
}

#[test]
fn who_waits_takes_another_number_at_once_and_keeps_its_place() {
    let mut f = Fleet::new(EU);
    f.quota(4);
    let full = f.submit("full", 4);
    f.settle();
    let (first, _) = f.put(elastic("first", 2));
    let second = f.submit("second", 2);
    f.settle();
    // It grows: the queue's head still, though it was changed last.
    assert_eq!(f.put(elastic("first", 4)).1, WriteResult::Configured);
    f.end(full, EndResult::Succeeded);
    assert_eq!((f.phase(first), f.phase(second), f.used()), (Some(Phase::Running), Some(Phase::Pending), 4));
    assert_eq!(f.free_in("eu"), 0);
    // Too large for the quota it waits; small enough it starts.
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
fn questions_that_are_open_are_asked_anew() {
    let mut f = Fleet::new(EU);
    f.cut = vec!["eu".into()];
    f.quota(9);
    let (gang, _) = f.put(elastic("gang", 4));
    assert_eq!(f.phase(gang), Some(Phase::Dispatching));
    f.put(elastic("gang", 3));
    f.cut.clear();
    f.settle();
    assert_eq!((f.phase(gang), f.used(), f.free_in("eu")), (Some(Phase::Running), 3, 1));
    assert_eq!(f.world.state.workloads()[&gang].resized(), None, "it was given what it wants");
}

#[test]
fn no_other_change_is_taken_and_every_refusal_names_the_remedy() {
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
        "its completions have nothing to do with how many run at once"
    );
    rigid["spec"]["completions"] = json!(2);
    assert!(f.refused(rigid).message.contains("kueue.x-k8s.io/elastic-job"));
    // Stopped, it is as large as it is asked to be once it goes on.
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
    assert_eq!((f.phase(gang), f.used()), (Some(Phase::Running), 4));
}

#[test]
fn labels_and_annotations_of_people_may_change_at_any_time() {
    let mut f = Fleet::new(EU);
    f.quota(2);
    let mut running = elastic("running", 2);
    let (uid, _) = f.put(running.clone());
    let mut waiting = elastic("waiting", 2);
    let (waits, _) = f.put(waiting.clone());
    f.settle();
    for (object, of) in [(&mut running, uid), (&mut waiting, waits)] {
        let phase = f.phase(of);
        object["metadata"]["labels"]["app.kubernetes.io/version"] = json!("2");
        object["metadata"]["annotations"]["team"] = json!("vision");
        assert_eq!(f.put(object.clone()), (of, WriteResult::Configured));
        assert_eq!(f.put(object.clone()).1, WriteResult::Unchanged);
        let key = Key::namespaced(Kind::Job, "default", object["metadata"]["name"].as_str().unwrap());
        let marks = |f: &Fleet| {
            let shown = f.world.render(&key, &f.bodies, now(f.now)).unwrap()["metadata"].clone();
            (shown["labels"]["app.kubernetes.io/version"].clone(), shown["annotations"]["team"].clone())
        };
        assert_eq!(marks(&f), (json!("2"), json!("vision")));
        object["metadata"]["labels"].as_object_mut().unwrap().remove("app.kubernetes.io/version");
        assert_eq!(f.put(object.clone()).1, WriteResult::Configured);
        assert_eq!((marks(&f).0, f.phase(of)), (Value::Null, phase));
        // What something is decided by stays as it was.
        for (key, value) in [
            ("kueue.x-k8s.io/max-exec-time-seconds", "60"),
            ("meridian.dev/region", "us-east4"),
            ("sub.meridian.dev/any", "x"),
        ] {
            let mut other = object.clone();
            other["metadata"]["labels"][key] = json!(value);
            assert!(f.refused(other).message.contains("labels and annotations of other domains"), "{key}");
        }
    }
    f.restart(2, None);
    f.settle();
    assert_eq!((f.phase(uid), f.phase(waits)), (Some(Phase::Running), Some(Phase::Pending)));
}

#[test]
fn an_older_agent_is_told_nothing_that_it_does_not_understand() {
    let mut f = Fleet::new(EU);
    let (gang, _) = f.put(elastic("gang", 2));
    f.settle();
    f.world.live.clusters.get_mut(&ClusterName::new("eu")).unwrap().shrinks = false;
    assert!(f.refused(elastic("gang", 1)).message.contains("agent is of an older version"));
    assert_eq!(f.phase(gang), Some(Phase::Running));
}

#[test]
fn what_an_agent_was_not_told_it_is_told_when_it_is_back() {
    let mut f = Fleet::new(EU);
    let (gang, _) = f.put(elastic("gang", 4));
    f.settle();
    f.cut = vec!["eu".into()];
    f.put(elastic("gang", 3));
    f.put(elastic("gang", 1));
    f.restart(2, RECOVERY);
    assert_eq!(f.used(), 4);
    f.cut.clear();
    f.settle();
    f.settle();
    assert_eq!((f.used(), f.free_in("eu"), f.phase(gang)), (1, 3, Some(Phase::Running)));
    // The next attempt is as large as the job is now.
    f.end(gang, EndResult::NodeLost { message: "gone".into() });
    f.pass(Millis::secs(4));
    assert_eq!((f.used(), f.free_in("eu"), f.world.state.workloads()[&gang].attempts()), (1, 3, 2));
}

#[test]
fn a_run_that_is_taken_over_is_charged_for_the_pods_that_its_agent_tells() {
    let mut f = Fleet::new(EU);
    let (gang, _) = f.put(elastic("gang", 4));
    f.settle();
    f.hold_ends = true;
    f.put(elastic("gang", 2));
    f.settle();
    let copy = f.world.snapshot();
    assert_eq!(f.used(), 4);
    // The copy knows nothing of the attempt that is as large as the job is now.
    f.end(gang, EndResult::NodeLost { message: "gone".into() });
    f.pass(Millis::secs(4));
    assert_eq!(f.used(), 2);
    f.lead_with_copy(&copy);
    f.settle();
    f.settle();
    assert_eq!((f.world.live.counts.adoptions, f.used(), f.phase(gang)), (1, 2, Some(Phase::Running)));
}

#[test]
fn what_a_copy_knows_only_with_another_size_is_charged_as_it_runs() {
    for other in [1, 2, 3] {
        let mut f = Fleet::new(EU);
        f.quota(4);
        f.cut = vec!["eu".into()];
        let (gang, _) = f.put(elastic("gang", 2));
        let copy = f.world.snapshot();
        f.cut.clear();
        f.settle();
        assert_eq!((f.used(), f.free_in("eu")), (2, 2));
        // Restored from before it was granted: the size is changed before its agent is heard.
        f.cut = vec!["eu".into()];
        f.lead_with_copy(&copy);
        f.confirm_rules();
        f.put(elastic("gang", other));
        f.cut.clear();
        f.settle();
        f.pass(Millis::secs(2));
        assert_eq!(f.phase(gang), Some(Phase::Running), "{other}: {}", f.why(gang));
        assert_eq!(
            (f.used(), f.free_in("eu"), f.world.state.workloads()[&gang].attempts()),
            (i64::from(other), i64::from(4 - other), 1),
            "{other}"
        );
    }
}

/// What the agent of a cluster takes its gangs for.
fn known(f: &Fleet, cluster: &str) -> Vec<i64> {
    f.agents[&ClusterName::new(cluster)].priorities().map(|(_, _, priority)| priority).collect()
}

fn class(value: i64) -> Value {
    json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "WorkloadPriorityClass", "metadata": {"name": "vip"}, "value": value})
}

fn named(name: &str, class: &str) -> Value {
    let mut job = elastic(name, 2);
    job["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = json!(class);
    job
}

#[test]
fn another_priority_reaches_the_cluster_where_the_gang_runs() {
    let mut f = Fleet::new(EU);
    let low = json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "WorkloadPriorityClass", "metadata": {"name": "low"}, "value": -1});
    f.apply(vec![class(7), low]);
    f.put(named("gang", "vip"));
    f.settle();
    assert_eq!(known(&f, "eu"), [7], "the grant says it");
    f.apply(vec![class(50)]);
    f.settle();
    assert_eq!(known(&f, "eu"), [50], "its class has another value");
    f.put(named("gang", "low"));
    f.settle();
    assert_eq!(known(&f, "eu"), [-1], "it names another class");
    // Changes that it can't hear of, there and back: the last one counts, also for the next leadership.
    f.cut = vec!["eu".into()];
    f.put(named("gang", "vip"));
    f.apply(vec![class(60)]);
    f.apply(vec![class(50)]);
    f.restart(2, RECOVERY);
    f.cut.clear();
    f.settle();
    f.settle();
    assert_eq!(known(&f, "eu"), [50]);
}

#[test]
fn an_older_agent_is_told_no_priority_and_a_newer_one_when_it_comes() {
    let mut f = Fleet::new(EU);
    f.apply(vec![class(7)]);
    f.put(named("gang", "vip"));
    f.settle();
    f.world.live.clusters.get_mut(&ClusterName::new("eu")).unwrap().ranks = false;
    f.apply(vec![class(8)]);
    assert!(f.world.live.clusters[&ClusterName::new("eu")].outbox.quiet());
    f.restart(2, RECOVERY);
    f.settle();
    f.settle();
    assert_eq!(known(&f, "eu"), [8]);
}

#[test]
fn where_a_policy_flags_a_gang_its_cluster_hears_of_its_priority_once_it_may() {
    let mut f = Fleet::new(EU);
    f.apply(vec![class(7)]);
    f.put(named("gang", "vip"));
    f.settle();
    let policy = json!({"apiVersion": "meridian.dev/v1alpha1", "kind": "ResidencyPolicy", "metadata": {"name": "away"},
        "spec": {"applies": {}, "deny": {"clusters": ["eu"]}, "onChange": "Flag"}});
    f.apply(vec![policy]);
    f.apply(vec![class(8)]);
    f.settle();
    assert_eq!(known(&f, "eu"), [7], "nothing of it goes there now");
    f.write(vec![Change::Delete { key: Key::global(Kind::ResidencyPolicy, "away"), uid: None }]);
    f.settle();
    assert_eq!(known(&f, "eu"), [8]);
}

#[test]
fn an_agent_that_shows_a_wrong_priority_again_and_again_is_answered_once() {
    use meridian_shared::protocol::Inventory;
    let mut f = Fleet::new(EU);
    f.apply(vec![class(7)]);
    let (gang, _) = f.put(named("gang", "vip"));
    f.settle();
    let eu = ClusterName::new("eu");
    let run = |f: &mut Fleet, priority: i64| {
        let mut request = f.agents.get_mut(&eu).unwrap().compose(now(f.now), Lane::News);
        let (offer, leg) = f.world.state.workloads()[&gang]
            .legs()
            .iter()
            .next()
            .map(|(offer, leg)| (*offer, leg.clone()))
            .unwrap();
        let shown = meridian_shared::protocol::Run {
            uid: gang,
            fence: leg.fence.unwrap(),
            offer,
            attempt: 1,
            running: true,
            stopping: false,
            term: Millis::secs(8),
            on_loss: meridian_shared::protocol::OnLoss::Fence,
            spec: ContentHash(1),
            mac: None,
            placement: None,
            spare: BTreeMap::new(),
            grown: None,
            priority: Some(priority),
        };
        request.inventory = Some(Inventory {
            for_leadership: Some(f.world.state.leadership()),
            runs: vec![shown],
            ..Inventory::default()
        });
        f.input(Input::Sync { cluster: eu.clone(), request: Box::new(request), may_park: false });
    };
    for other in 0..50 {
        // Whatever else is written meanwhile.
        f.apply(vec![local_queue_of(&format!("other-{other}"))]);
        run(&mut f, -5);
    }
    let waiting = f.world.live.clusters[&eu].outbox.waiting();
    assert!(waiting <= 2, "{waiting} commands");
    assert_eq!(f.phase(gang), Some(Phase::Running));
}

fn local_queue_of(name: &str) -> Value {
    json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "LocalQueue", "metadata": {"name": name, "namespace": "default"}, "spec": {"clusterQueue": "cq"}})
}

#[test]
fn who_waits_behind_a_head_is_not_told_that_there_is_no_cluster() {
    let mut f = Fleet::new(EU);
    let queue = json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue", "metadata": {"name": "cq"}, "spec": {
        "namespaceSelector": {}, "queueingStrategy": "StrictFIFO",
        "resourceGroups": [{"coveredResources": [GPU], "flavors": [{"name": "any", "resources": [{"name": GPU, "nominalQuota": 4}]}]}]}});
    f.apply(vec![queue]);
    f.submit("small-1", 1);
    f.settle();
    f.submit("large", 4);
    let behind = f.submit("small-2", 1);
    f.settle();
    assert_eq!(f.phase(behind), Some(Phase::Pending));
    let key = Key::namespaced(Kind::Job, "default", "small-2");
    let shown = f.world.render(&key, &f.bodies, now(f.now)).unwrap();
    let waits = shown["status"]["meridian"]["waits"].as_str().unwrap();
    assert!(!waits.contains("no cluster"), "{waits}");
    assert!(f.why(behind)["summary"].as_str().unwrap().contains("large"), "{:#}", f.why(behind));
}
