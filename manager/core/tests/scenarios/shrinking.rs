//! Jobs that make do with fewer pods: as many as there is quota and, in one cluster, room for, and never fewer than they say.

use super::*;

impl Fleet {
    /// A job of `pods` pods that makes do with `least`.
    fn shrinking(&mut self, name: &str, pods: u32, least: &str) -> Uid {
        let mut job = job("default", name, pods, &json!({"kueue.x-k8s.io/queue-name": "lq"}), "");
        job["metadata"]["annotations"] = json!({"kueue.x-k8s.io/job-min-parallelism": least});
        match self.apply(vec![job]) {
            Reply::Written(written) => written[0].uid,
            other => panic!("not submitted: {other:?}"),
        }
    }

    fn counts(&self, uid: Uid) -> Option<Vec<u32>> {
        self.world.state.workloads()[&uid].counts().cloned()
    }

    fn job_status(&self, name: &str) -> Value {
        let key = Key { scope: None, kind: Kind::Job, namespace: Some("default".into()), name: name.into() };
        self.world.render(&key, &self.bodies, now(self.now)).expect("it exists")["status"].clone()
    }

    pub(super) fn quota(&mut self, nominal: i64) {
        self.apply(vec![
            json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue", "metadata": {"name": "cq"}, "spec": {"namespaceSelector": {},
            "preemption": {"withinClusterQueue": "LowerPriority"}, "resourceGroups": [
                {"coveredResources": [GPU], "flavors": [{"name": "any", "resources": [{"name": GPU, "nominalQuota": nominal}]}]}]}}),
            json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "WorkloadPriorityClass", "metadata": {"name": "high"}, "value": 100}),
        ]);
    }
}

#[test]
fn as_many_pods_start_as_there_is_quota_for() {
    let mut f = Fleet::new(&[("eu", "europe-west4", "EU")]);
    f.quota(3);
    let uid = f.shrinking("job", 4, "2");
    f.settle();
    assert_eq!((f.phase(uid), f.counts(uid)), (Some(Phase::Running), Some(vec![3])));
    assert_eq!(f.job_status("job")["meridian"]["pods"], 3);
    assert_eq!(
        f.why(uid)["summary"],
        "running in cluster `eu`: 3 of its 4 pods, with which it makes do, run there; the only cluster that may and could start them together"
    );
    // Its quota is what it was given: one more fits only when more is there.
    let next = f.submit("next", 1);
    f.settle();
    assert_eq!(f.phase(next), Some(Phase::Pending));
    f.quota(4);
    f.settle();
    assert_eq!(f.phase(next), Some(Phase::Running), "a quota of four is used by three and one");
    f.restart(2, Some(RecoveryStart { restored: false, members_unknown: false }));
    f.settle();
    f.settle();
    assert_eq!((f.phase(uid), f.counts(uid)), (Some(Phase::Running), Some(vec![3])));
    f.end(uid, EndResult::Succeeded);
    assert_eq!((f.phase(uid), f.counts(uid)), (Some(Phase::Finished), None));
}

#[test]
fn as_many_pods_start_as_one_cluster_has_room_for() {
    let mut f = Fleet::new(&[("eu", "europe-west4", "EU"), ("us", "us-east4", "US")]);
    let (first, second) = (f.submit("first", 2), f.submit("second", 3));
    f.settle();
    assert_ne!(f.at(first), f.at(second));
    let uid = f.shrinking("job", 4, "2");
    f.settle();
    assert_eq!(
        (f.phase(uid), f.counts(uid), f.at(uid)),
        (Some(Phase::Running), Some(vec![2]), f.at(first)),
        "three are free, and two in one place"
    );
    let less = f.shrinking("less", 4, "2");
    f.settle();
    assert_eq!(f.phase(less), Some(Phase::Pending), "one is free");
    // Where all of it fits, all of it starts.
    f.end(second, EndResult::Succeeded);
    assert_eq!((f.phase(less), f.counts(less)), (Some(Phase::Running), None));
}

#[test]
fn who_gave_way_asks_for_all_its_pods_again() {
    let mut f = Fleet::new(&[("eu", "europe-west4", "EU")]);
    f.quota(3);
    let uid = f.shrinking("job", 4, "3");
    f.settle();
    assert_eq!(f.counts(uid), Some(vec![3]));
    let high = f.submit_in("default", "high", 1, json!({"kueue.x-k8s.io/priority-class": "high"}));
    f.settle();
    f.settle();
    assert_eq!(
        (f.phase(uid), f.counts(uid), f.phase(high)),
        (Some(Phase::Pending), None, Some(Phase::Running)),
        "two are less than it makes do with"
    );
    f.quota(5);
    f.settle();
    assert_eq!(
        (f.phase(uid), f.counts(uid)),
        (Some(Phase::Running), Some(vec![3])),
        "three of the cluster's four are free"
    );
    f.world.check().unwrap();
}

#[test]
fn what_is_no_number_of_pods_is_refused_with_a_remedy() {
    for (least, remedy) in [
        ("4", "from 1 to 3"),
        ("0", "from 1 to 3"),
        ("two", "from 1 to 3"),
        ("", "from 1 to 3"),
        ("-1", "from 1 to 3"),
    ] {
        let object = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "job", "namespace": "default",
            "labels": {"kueue.x-k8s.io/queue-name": "lq"}, "annotations": {"kueue.x-k8s.io/job-min-parallelism": least}},
            "spec": {"parallelism": 4, "completions": 4, "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}}});
        let errors = Object::from_value(object).unwrap_err();
        let said = errors.iter().map(ToString::to_string).collect::<String>();
        assert!(said.contains("job-min-parallelism") && said.contains(remedy), "{said}");
    }
}
