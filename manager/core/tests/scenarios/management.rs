//! Jobs and objects of a Kubernetes management cluster: who may change them, and what a lost journal means.

use super::*;
use meridian_objects::Object;

fn managed_job() -> Box<Object> {
    object(job("default", "managed", 3, &json!({"kueue.x-k8s.io/queue-name": "lq"}), ""))
}

impl Fleet {
    /// The management cluster submits its job. `existed`: its first complete list has it.
    fn submit_managed(&mut self, uid: Uid, existed: bool) -> Reply {
        let change = Change::Put { object: managed_job(), scope: None, uid, mode: PutMode::Create };
        let write = Write::new(Actor::ManagementCluster, vec![change], false);
        self.input(Input::Write(Box::new(if existed { write.of_existing() } else { write })))
    }
}

const UID: Uid = Uid(0xfeed);

/// A fleet that runs a managed job, and that loses its journal with it: everything since the backup.
fn lost() -> Fleet {
    let mut f = Fleet::regions();
    let backup = f.world.snapshot();
    assert!(matches!(f.submit_managed(UID, false), Reply::Written(_)));
    f.settle();
    assert!(f.cluster_of(UID).is_some());
    f.lead_from_backup(&backup);
    f
}

#[test]
fn a_lost_job_that_the_management_cluster_lists_first_adopts_its_run() {
    let mut f = lost();
    let home = f.cluster_of(UID);
    assert!(matches!(f.submit_managed(UID, true), Reply::Written(_)), "before any agent reports");
    f.confirm_rules();
    f.settle();
    f.settle();
    assert_eq!((f.cluster_of(UID), f.world.state().orphans().len()), (home, 0));
    assert_eq!(f.phase(UID), Some(Phase::Running));
}

#[test]
fn an_orphan_that_the_management_cluster_has_is_adopted_once_recovery_is_over() {
    let mut f = lost();
    let home = f.cluster_of(UID);
    f.confirm_rules();
    f.settle();
    f.settle();
    assert_eq!(f.world.state().orphans().len(), 1);
    assert!(matches!(f.submit_managed(UID, true), Reply::Written(_)));
    f.settle();
    assert_eq!((f.cluster_of(UID), f.world.state().orphans().len()), (home, 0));
    assert_eq!(f.phase(UID), Some(Phase::Running));
}

#[test]
fn a_job_of_the_first_list_waits_for_recovery_and_a_new_one_does_not() {
    let mut f = Fleet::regions();
    let away = ClusterName::new("eu");
    f.disconnected.push(away);
    f.restart(2, RECOVERY);
    assert!(matches!(f.submit_managed(UID, true), Reply::Written(_)));
    f.settle();
    assert_eq!(f.phase(UID), Some(Phase::Pending), "it may run in the cluster that is silent");
    let mut f = Fleet::regions();
    f.disconnected.push(ClusterName::new("eu"));
    f.restart(2, RECOVERY);
    assert!(matches!(f.submit_managed(UID, false), Reply::Written(_)));
    f.advance(Millis::secs(5));
    assert_eq!(f.phase(UID), Some(Phase::Pending), "the silent cluster may know newer rules");
    f.confirm_rules();
    f.advance(Millis::secs(5));
    assert_eq!(f.phase(UID), Some(Phase::Running), "{:#}", f.why(UID));
}

#[test]
fn objects_of_the_management_cluster_are_changed_there_only() {
    let mut f = Fleet::regions();
    assert!(matches!(f.submit_managed(UID, false), Reply::Written(_)));
    let key = || Key::namespaced(Kind::Job, "default", "managed");
    let refused = |reply: Reply| match reply {
        Reply::Rejected(why) => assert!(why[0].message.contains("management cluster"), "{why:?}"),
        other => panic!("{other:?}"),
    };
    refused(f.write(vec![Change::Delete { key: key(), uid: None, force: false }]));
    refused(f.write(vec![Change::SetActive { key: key(), active: false, version: None }]));
    let cohort = |by: Actor, f: &mut Fleet| {
        let cohort = object(json!({
            "apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "Cohort", "metadata": {"name": "all"}, "spec": {},
        }));
        let change = Change::Put { object: cohort, scope: None, uid: Uid(7), mode: PutMode::Apply };
        f.input(Input::Write(Box::new(Write::new(by, vec![change], false))))
    };
    assert!(matches!(cohort(Actor::ManagementCluster, &mut f), Reply::Written(_)));
    refused(cohort(Actor::user("op"), &mut f));
}

#[test]
fn a_finished_job_of_the_management_cluster_is_kept_until_it_is_deleted_there() {
    let mut f = Fleet::regions();
    assert!(matches!(f.submit_managed(UID, false), Reply::Written(_)));
    f.settle();
    f.end(UID, EndResult::Succeeded);
    f.settle();
    f.now += Millis::mins(60 * 24 * 30).0;
    f.settle();
    assert_eq!(f.phase(UID), Some(Phase::Finished), "its end must reach the management cluster");
    let gone = Change::Delete {
        key: Key::namespaced(Kind::Job, "default", "managed"),
        uid: Some(UID),
        force: false,
    };
    f.input(Input::Write(Box::new(Write::new(Actor::ManagementCluster, vec![gone], false))));
    assert_eq!(f.phase(UID), None);
}

impl Fleet {
    /// The management cluster sends its object of the cluster `eu`, as after each start of its controllers.
    fn send_cluster(&mut self, spec: &Value) {
        let mut cluster = cluster_object("eu", "europe-west4", "EU");
        cluster["metadata"]["annotations"] = json!({"meridian.dev/source": "management-cluster"});
        for (field, value) in spec.as_object().into_iter().flatten() {
            cluster["spec"][field] = value.clone();
        }
        let mode = PutMode::Replace(None);
        let change = Change::Put { object: object(cluster), scope: None, uid: Uid(9), mode };
        let written =
            self.input(Input::Write(Box::new(Write::new(Actor::ManagementCluster, vec![change], false))));
        assert!(matches!(written, Reply::Written(_)), "{written:?}");
    }

    fn operate_on_eu(&mut self, action: fn(ClusterName) -> Operator) -> Reply {
        self.input(Input::Operator { actor: Actor::user("op"), action: action("eu".into()) })
    }

    fn is_eu_cordoned(&self) -> bool {
        self.world.state().catalog().cluster(&"eu".into()).unwrap().cordoned
    }
}

fn assert_refused(reply: Reply, word: &str) {
    match reply {
        Reply::Rejected(why) => assert!(why[0].message.contains(word), "{why:?}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_operators_cordon_survives_what_the_controllers_send_and_takes_no_ownership() {
    let mut f = Fleet::regions();
    let (plain, labelled) = (json!({}), json!({"limits": {GPU: "3"}}));
    f.send_cluster(&plain);
    assert!(matches!(f.operate_on_eu(Operator::Drain), Reply::Done(_)));
    for spec in [&plain, &labelled, &plain] {
        f.send_cluster(spec);
        assert!(f.is_eu_cordoned());
        f.restart(2, None);
        assert!(f.is_eu_cordoned());
    }
    let mut elsewhere = cluster_object("eu", "europe-west4", "CH");
    elsewhere["spec"]["cordoned"] = json!(true);
    let change =
        Change::Put { object: object(elsewhere), scope: None, uid: Uid(9), mode: PutMode::Replace(None) };
    assert_refused(f.write(vec![change]), "management cluster");
    let before = f.world.state().last();
    f.send_cluster(&plain);
    assert_eq!(f.world.state().last(), before, "nothing changes when the same object is sent again");
    assert!(matches!(f.operate_on_eu(Operator::Uncordon), Reply::Done(_)));
    assert!(!f.is_eu_cordoned());
    f.send_cluster(&plain);
    assert!(!f.is_eu_cordoned());
}

#[test]
fn what_the_management_cluster_says_about_a_cordon_decides() {
    let mut f = Fleet::regions();
    f.send_cluster(&json!({}));
    f.operate_on_eu(Operator::Cordon);
    f.send_cluster(&json!({"cordoned": false}));
    assert!(!f.is_eu_cordoned());
    for action in [Operator::Cordon, Operator::Drain] {
        assert_refused(f.operate_on_eu(action), "`spec.cordoned: false`");
    }
    f.send_cluster(&json!({"cordoned": true}));
    assert!(matches!(f.operate_on_eu(Operator::Drain), Reply::Done(_)), "its workloads still move");
    assert_refused(f.operate_on_eu(Operator::Uncordon), "`spec.cordoned: true`");
    f.send_cluster(&json!({}));
    assert!(!f.is_eu_cordoned(), "its own cordon ends with the field");
}

#[test]
fn a_cordon_from_before_the_management_cluster_sent_the_object_stays() {
    let mut f = Fleet::regions();
    f.operate_on_eu(Operator::Cordon);
    for _ in 0..2 {
        f.send_cluster(&json!({}));
        assert!(f.is_eu_cordoned());
    }
    f.operate_on_eu(Operator::Uncordon);
    f.send_cluster(&json!({}));
    assert!(!f.is_eu_cordoned());
}

/// Writes a policy that denies one region. Returns the refusal.
fn deny(f: &mut Fleet, by: Actor, region: &str) -> Option<String> {
    let source = if by == Actor::ManagementCluster { "management-cluster" } else { "" };
    let policy = object(json!({
        "apiVersion": "meridian.dev/v1alpha1", "kind": "ResidencyPolicy",
        "metadata": {"name": "closed", "annotations": {"meridian.dev/source": source}},
        "spec": {"deny": {"regions": [region]}},
    }));
    let change = Change::Put { object: policy, scope: None, uid: Uid(9), mode: PutMode::Apply };
    match f.input(Input::Write(Box::new(Write::new(by, vec![change], false)))) {
        Reply::Written(_) => None,
        Reply::Rejected(why) => Some(why[0].message.clone()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_object_that_was_applied_directly_is_taken_over_only_by_its_equal() {
    let mut f = Fleet::regions();
    assert_eq!(deny(&mut f, Actor::user("op"), "eu"), None);
    let refused = deny(&mut f, Actor::ManagementCluster, "us").expect("it would replace another policy");
    assert!(refused.contains("applied at the manager directly"), "{refused}");
    assert_eq!(deny(&mut f, Actor::user("op"), "us"), None);
    assert_eq!(deny(&mut f, Actor::ManagementCluster, "us"), None, "both are equal");
    assert_eq!(deny(&mut f, Actor::ManagementCluster, "eu"), None, "it is the management cluster's now");
    let refused = deny(&mut f, Actor::user("op"), "us").expect("it is changed in the cluster only");
    assert!(refused.contains("management cluster"), "{refused}");
}

#[test]
fn a_lost_job_that_was_stopped_in_the_management_cluster_does_not_start() {
    let submit = |f: &mut Fleet| {
        let change = Change::Put { object: managed_job(), scope: None, uid: UID, mode: PutMode::Create };
        let write = Write::new(Actor::ManagementCluster, vec![change], false);
        let reply = f.input(Input::Write(Box::new(write.of_existing().of_inactive())));
        assert!(matches!(reply, Reply::Written(_)), "{reply:?}");
        f.settle();
        f.settle();
    };
    let activate = |f: &mut Fleet| {
        let key = Key::namespaced(Kind::Job, "default", "managed");
        let change = Change::SetActive { key, active: true, version: None };
        f.input(Input::Write(Box::new(Write::new(Actor::ManagementCluster, vec![change], false))));
        f.settle();
    };
    let mut f = Fleet::regions();
    submit(&mut f);
    assert_eq!((f.phase(UID), f.cluster_of(UID)), (Some(Phase::Pending), None));
    let shown = f.rendered_workload(UID);
    assert_eq!(shown["spec"]["active"], false);
    assert_eq!(shown["status"]["meridian"]["deactivated"], json!(null), "the cluster did it");
    activate(&mut f);
    assert_eq!(f.phase(UID), Some(Phase::Running));
    // A run that the journal doesn't know is adopted, and stopped.
    let mut f = lost();
    f.confirm_rules();
    submit(&mut f);
    assert_eq!(f.phase(UID), Some(Phase::Pending), "{:#}", f.why(UID));
}

#[test]
fn a_manager_whose_management_cluster_is_taken_over_starts_nothing_more() {
    let mut f = Fleet::regions();
    let runs = f.submit("runs", 3);
    f.settle();
    let offered = f.submit("offered", 3);
    assert_ne!(f.phase(offered), Some(Phase::Pending), "it is offered");
    for _ in 0..2 {
        f.input(Input::Operator { actor: Actor::System, action: Operator::DoubtRules });
    }
    let later = f.submit("later", 3);
    f.settle();
    f.settle();
    let all = [runs, offered, later];
    let [running, pending] = [Some(Phase::Running), Some(Phase::Pending)];
    assert_eq!(f.phases(&all), [running, pending, pending]);
    f.confirm_rules();
    f.settle();
    f.settle();
    assert_eq!(f.phases(&all), [running; 3]);
}
