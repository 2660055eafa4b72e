//! What users read of attempts that ended, and of jobs that run or ended.

use super::*;

impl Fleet {
    fn ends(&self, uid: Uid) -> Vec<String> {
        let history = self.why(uid)["history"].as_array().unwrap().clone();
        history.iter().map(|attempt| attempt["end"].as_str().unwrap_or("-").to_owned()).collect()
    }

    fn rendered_job(&self, name: &str) -> Value {
        let key = Key::namespaced(Kind::Job, "default", name);
        self.object_at(&key).unwrap()
    }
}

#[test]
fn an_end_says_why() {
    let mut f = Fleet::new(EU);
    f.apply(vec![cluster_queue("cq", 4, &json!({"preemption": {"withinClusterQueue": "LowerPriority"}}))]);
    priority_classes(&mut f, 1_000);
    let uid = f.submit_to("lq", "victim", 4, Some("low"));
    f.settle();
    let preemptor = f.submit_to("lq", "urgent", 4, Some("high"));
    f.settle();
    f.settle();
    assert_eq!(f.phase(preemptor), Some(Phase::Running));
    assert_eq!(f.ends(uid), ["displaced by workload `default/urgent` (priority 1000)"]);
    // Other tenants read the Workload, so it names nobody.
    assert_eq!(
        f.rendered_workload(uid)["status"]["meridian"]["history"][0]["end"],
        "displaced by another workload"
    );
    f.end(preemptor, EndResult::Succeeded);
    f.settle();
    f.stop(uid);
    f.settle();
    f.resume(uid);
    f.settle();
    f.settle();
    f.input(Input::Operator { actor: Actor::user("op"), action: Operator::Drain("eu".into()) });
    f.settle();
    f.input(Input::Operator { actor: Actor::user("op"), action: Operator::Uncordon("eu".into()) });
    f.settle();
    f.settle();
    assert_eq!(f.ends(uid)[1..], ["stopped by `user:test`", "drained: an operator emptied the cluster", "-"]);
    f.end(uid, EndResult::Succeeded);
    assert!(f.why(uid)["summary"].to_string().contains("ran in cluster `eu`"), "{:#}", f.why(uid));
}

#[test]
fn a_failed_job_is_failed_in_each_view() {
    let mut f = Fleet::new(EU);
    let (good, bad) = (f.submit("good", 1), f.submit("bad", 1));
    f.settle();
    f.end(good, EndResult::Succeeded);
    f.end(bad, EndResult::Failed { reason: "BackoffLimitExceeded".into(), message: "exit code 1".into() });
    let states = [(good, "good"), (bad, "bad")]
        .map(|(uid, name)| (f.why(uid)["state"].clone(), f.job_status(name)["meridian"]["state"].clone()));
    let expected = ["Finished", "Failed"].map(|state| (json!(state), json!(state)));
    assert_eq!(states, expected);
}

#[test]
fn a_job_that_ended_unseen_in_no_attempt_never_ran() {
    let mut f = Fleet::new(EU);
    f.hold_starts = true;
    let uid = f.submit("job", 1);
    f.settle();
    f.hold_stops = true;
    f.stop(uid);
    f.settle();
    let attempt = &f.world.state().workloads()[&uid].history()[0];
    assert!(!attempt.ran(), "its pods never started");
    f.hold_starts = false;
    let other = f.submit("other", 1);
    f.settle();
    assert!(f.world.state().workloads()[&other].history()[0].ran());
}

#[test]
fn a_workload_names_its_cluster_in_its_admission_check() {
    let mut f = Fleet::new(EU);
    f.apply(vec![
        json!({
            "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "MultiKueueConfig",
            "metadata": {"name": "regions"}, "spec": {"clusters": ["eu"]},
        }),
        json!({
            "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "AdmissionCheck", "metadata": {"name": "where"},
            "spec": {
                "controllerName": "kueue.x-k8s.io/multikueue",
                "parameters": {"apiGroup": "kueue.x-k8s.io", "kind": "MultiKueueConfig", "name": "regions"},
            },
        }),
        cluster_queue("cq", 4, &json!({"admissionChecksStrategy": {"admissionChecks": [{"name": "where"}]}})),
    ]);
    f.disconnected.push("eu".into());
    let uid = f.submit("job", 1);
    f.settle();
    let check = |f: &Fleet| f.rendered_workload(uid)["status"]["admissionChecks"][0].clone();
    assert_eq!((&check(&f)["name"], &check(&f)["state"]), (&json!("where"), &json!("Pending")));
    f.disconnected.clear();
    f.settle();
    f.settle();
    assert_eq!(
        (&check(&f)["state"], &check(&f)["message"]),
        (&json!("Ready"), &json!("The workload got reservation on \"eu\""))
    );
    let admitted = check(&f);
    f.end(uid, EndResult::Succeeded);
    f.settle();
    let status = f.rendered_workload(uid)["status"].clone();
    assert_eq!((&status["clusterName"], &status["admissionChecks"]), (&json!("eu"), &json!([admitted])));
    // The quota is free, so no admission is shown.
    assert_eq!((f.used(), &status["admission"]), (0, &Value::Null));

    // A job that waits has no cluster to name.
    f.disconnected.push("eu".into());
    let waits = f.submit("waits", 1);
    f.settle();
    let status = f.rendered_workload(waits)["status"].clone();
    assert_eq!(
        (&status["clusterName"], &status["admissionChecks"][0]["state"]),
        (&Value::Null, &json!("Pending"))
    );
}

#[test]
fn completions_show_while_the_job_runs() {
    let mut f = Fleet::new(EU);
    let mut job = job("default", "six", 2, &json!({"kueue.x-k8s.io/queue-name": "lq"}), "");
    job["spec"]["completionMode"] = json!("Indexed");
    job["spec"]["completions"] = json!(6);
    let uid = f.create(job);
    f.settle();
    assert_eq!(f.rendered_job("six")["status"]["succeeded"], Value::Null);
    f.complete(uid, "0-2");
    f.settle();
    let status = f.rendered_job("six")["status"].clone();
    assert_eq!((&status["succeeded"], &status["completedIndexes"]), (&json!(3), &json!("0-2")));
    f.end(uid, EndResult::Succeeded);
    let status = f.rendered_job("six")["status"].clone();
    assert_eq!((&status["succeeded"], &status["completedIndexes"]), (&json!(6), &json!("0-5")));
}
