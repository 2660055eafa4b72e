//! Partial admission (`kueue.x-k8s.io/job-min-parallelism`): a job starts with as many pods as there is quota
//! for and one cluster has capacity for, down to its minimum.

use super::*;

impl Fleet {
    /// A job of `pods` pods that accepts `min` pods.
    fn submit_with_minimum(&mut self, name: &str, pods: u32, min: &str) -> Uid {
        let mut job = job("default", name, pods, &json!({"kueue.x-k8s.io/queue-name": "lq"}), "");
        job["metadata"]["annotations"] = json!({"kueue.x-k8s.io/job-min-parallelism": min});
        self.create(job)
    }

    fn counts(&self, uid: Uid) -> Option<Vec<u32>> {
        self.world.state().workloads()[&uid].counts().cloned()
    }

    pub(super) fn job_status(&self, name: &str) -> Value {
        let key = Key::namespaced(Kind::Job, "default", name);
        let object = self.object_at(&key).expect("it exists");
        object["status"].clone()
    }

    /// Sets the GPU quota of the cluster queue `cq`, in which the class `high` preempts.
    pub(super) fn quota(&mut self, nominal: i64) {
        self.apply(vec![
            cluster_queue("cq", nominal, &json!({"preemption": {"withinClusterQueue": "LowerPriority"}})),
            priority_class("high", 100),
        ]);
    }
}

#[test]
fn as_many_pods_start_as_there_is_quota_for() {
    let mut f = Fleet::new(EU);
    f.quota(3);
    let uid = f.submit_with_minimum("job", 4, "2");
    f.settle();
    assert_eq!((f.phase(uid), f.counts(uid)), (Some(Phase::Running), Some(vec![3])));
    assert_eq!(f.job_status("job")["meridian"]["pods"], 3);
    assert_eq!(
        f.why(uid)["summary"],
        "running in cluster `eu`: 3 of 4 pods (partial admission) running; the only permitted cluster with \
         room"
    );
    // The job is charged for three pods, so one more pod needs a quota of four.
    let next = f.submit("next", 1);
    f.settle();
    assert_eq!(f.phase(next), Some(Phase::Pending));
    f.quota(4);
    f.settle();
    assert_eq!(f.phase(next), Some(Phase::Running), "a quota of four is used by three and one");
    f.restart(2, RECOVERY);
    f.settle();
    f.settle();
    assert_eq!((f.phase(uid), f.counts(uid)), (Some(Phase::Running), Some(vec![3])));
    f.end(uid, EndResult::Succeeded);
    assert_eq!((f.phase(uid), f.counts(uid)), (Some(Phase::Finished), None));
}

#[test]
fn as_many_pods_start_as_one_cluster_has_capacity_for() {
    let mut f = Fleet::new(&[("eu", "europe-west4", "EU"), ("us", "us-east4", "US")]);
    let (first, second) = (f.submit("first", 2), f.submit("second", 3));
    f.settle();
    assert_ne!(f.cluster_of(first), f.cluster_of(second));
    let uid = f.submit_with_minimum("job", 4, "2");
    f.settle();
    assert_eq!(
        (f.phase(uid), f.counts(uid), f.cluster_of(uid)),
        (Some(Phase::Running), Some(vec![2]), f.cluster_of(first)),
        "three GPUs are free, but at most two in one cluster"
    );
    let next = f.submit_with_minimum("less", 4, "2");
    f.settle();
    assert_eq!(f.phase(next), Some(Phase::Pending), "one GPU is free");
    // All pods start if all fit.
    f.end(second, EndResult::Succeeded);
    assert_eq!((f.phase(next), f.counts(next)), (Some(Phase::Running), None));
}

#[test]
fn a_preempted_workload_requests_all_its_pods_again() {
    let mut f = Fleet::new(EU);
    f.quota(3);
    let uid = f.submit_with_minimum("job", 4, "3");
    f.settle();
    assert_eq!(f.counts(uid), Some(vec![3]));
    let high = f.submit_in("default", "high", 1, json!({"kueue.x-k8s.io/priority-class": "high"}));
    f.settle();
    f.settle();
    assert_eq!(
        (f.phase(uid), f.counts(uid), f.phase(high)),
        (Some(Phase::Pending), None, Some(Phase::Running)),
        "two pods are fewer than its minimum"
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
fn an_invalid_minimum_is_refused_with_the_valid_range() {
    for min in ["4", "0", "two", "", "-1"] {
        let mut manifest = job("default", "job", 4, &json!({"kueue.x-k8s.io/queue-name": "lq"}), "");
        manifest["metadata"]["annotations"] = json!({"kueue.x-k8s.io/job-min-parallelism": min});
        let errors = Object::from_value(manifest).unwrap_err();
        let message = errors.iter().map(ToString::to_string).collect::<String>();
        assert!(message.contains("job-min-parallelism") && message.contains("from 1 to 3"), "{message}");
    }
}
