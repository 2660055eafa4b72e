//! Workload priority classes: changing a job's class or the value of a class, and default classes.

use super::*;
use meridian_manager_core::facts::outcome::WriteResult;

fn manifest(name: &str, pods: u32, class: Option<&str>, annotations: &Value) -> Value {
    let mut labels = json!({"kueue.x-k8s.io/queue-name": "lq"});
    if let Some(class) = class {
        labels["kueue.x-k8s.io/priority-class"] = json!(class);
    }
    let mut job = job("default", name, pods, &labels, "");
    job["metadata"]["annotations"] = annotations.clone();
    job
}

pub(super) fn priority(f: &Fleet, uid: Uid) -> i64 {
    f.world.state().workloads()[&uid].priority()
}

#[test]
fn a_changed_priority_class_reorders_pending_and_running_workloads() {
    let mut f = Fleet::new(EU);
    priority_classes(&mut f, 100);
    f.apply(vec![cluster_queue("cq", 4, &json!({"preemption": {"withinClusterQueue": "LowerPriority"}}))]);
    let none = json!({});
    let holder = f.submit_to("lq", "holder", 4, Some("high"));
    let (first, second) = (f.submit_to("lq", "first", 4, Some("low")), f.submit_to("lq", "second", 4, None));
    f.settle();
    assert_eq!(f.why(second)["position"]["place"], 2);
    let raised = manifest("second", 4, Some("high"), &none);
    assert_eq!(f.put(raised.clone()), (second, WriteResult::Configured));
    assert_eq!((priority(&f, second), f.why(second)["position"]["place"].clone()), (100, json!(1)));
    assert_eq!(f.put(raised), (second, WriteResult::Unchanged));
    // A running workload with a lowered priority is preempted.
    f.apply(vec![manifest("holder", 4, Some("low"), &none)]);
    f.settle();
    f.settle();
    assert_eq!(
        f.phases(&[holder, first, second]),
        [Some(Phase::Pending), Some(Phase::Pending), Some(Phase::Running)]
    );
    assert_eq!(priority(&f, holder), 1);
    f.restart(2, RECOVERY);
    f.settle();
    f.apply(vec![manifest("second", 4, None, &none)]);
    assert_eq!(priority(&f, second), 0);
    // Refused: another change together with the label, a class that doesn't exist, and any change after the
    // end.
    let rejected = |reply: Reply| match reply {
        Reply::Rejected(why) => why[0].message.clone(),
        other => panic!("{other:?}"),
    };
    assert!(
        rejected(f.apply(vec![manifest("second", 3, Some("low"), &none)]))
            .contains("Of an existing job only the label")
    );
    assert!(
        rejected(f.apply(vec![manifest("second", 4, Some("none"), &none)]))
            .contains("there is no WorkloadPriorityClass `none`")
    );
    f.end(second, EndResult::Succeeded);
    assert!(
        rejected(f.apply(vec![manifest("second", 4, Some("high"), &none)]))
            .contains("its priority can't be changed any more")
    );
}

#[test]
fn an_elastic_job_can_change_size_and_priority_class_in_one_write() {
    let mut f = Fleet::new(EU);
    priority_classes(&mut f, 100);
    let elastic = |pods: u32, class: &str| {
        let mut job = manifest("grows", pods, Some(class), &json!({"kueue.x-k8s.io/elastic-job": "true"}));
        job["spec"]["completionMode"] = json!("Indexed");
        job
    };
    let uid = f.create(elastic(2, "low"));
    f.settle();
    assert_eq!(f.put(elastic(3, "high")), (uid, WriteResult::Configured));
    f.settle();
    f.settle();
    assert_eq!((priority(&f, uid), f.phase(uid)), (100, Some(Phase::Running)));
    assert_eq!(f.world.queues().usage("cq").unwrap()[&(Arc::from("any"), GPU.to_owned())], 3);
}

#[test]
fn a_workload_without_a_class_gets_the_default_class() {
    let mut f = Fleet::new(EU);
    let pod_class = |name: &str, value: i64, default: bool| {
        json!({
            "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name},
            "value": value, "globalDefault": default,
        })
    };
    let plain = f.submit("plain", 1);
    f.apply(vec![pod_class("a", 300, true), pod_class("b", 100, true), pod_class("c", 7, false)]);
    let lowest = f.submit("lowest", 1);
    f.apply(vec![priority_class("default", 50)]);
    let defaulted = f.submit("usual", 1);
    assert_eq!([plain, lowest, defaulted].map(|uid| priority(&f, uid)), [0, 100, 50]);
    // A workload with the default class follows its value. Older workloads don't have the class.
    f.apply(vec![priority_class("default", 60)]);
    assert_eq!([plain, lowest, defaulted].map(|uid| priority(&f, uid)), [0, 100, 60]);
    let mut system = job("default", "system", 1, &json!({"kueue.x-k8s.io/queue-name": "lq"}), "");
    system["spec"]["template"]["spec"]["priorityClassName"] = json!("system-node-critical");
    assert!(matches!(f.apply(vec![system.clone()]), Reply::Written(_)));
    let key = Key::global(Kind::WorkloadPriorityClass, "default");
    let delete = vec![Change::Delete { key, uid: None, force: true }];
    f.input(Input::Write(Box::new(Write::new(Actor::user("test"), delete, false))));
    system["metadata"]["name"] = json!("critical");
    let critical = f.create(system);
    assert_eq!(priority(&f, critical), 2_000_001_000);
    let Reply::Rejected(why) = f.apply(vec![pod_class("c", 8, false)]) else { panic!("accepted") };
    assert!(why[0].message.contains("which can't be changed"), "{why:?}");
    f.submit("after", 1);
}
