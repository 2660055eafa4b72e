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
    assert_eq!((f.cluster_of(UID), f.world.state.orphans().len()), (home, 0));
    assert_eq!(f.phase(UID), Some(Phase::Running));
}

#[test]
fn an_orphan_that_the_management_cluster_has_is_adopted_once_recovery_is_over() {
    let mut f = lost();
    let home = f.cluster_of(UID);
    f.confirm_rules();
    f.settle();
    f.settle();
    assert_eq!(f.world.state.orphans().len(), 1);
    assert!(matches!(f.submit_managed(UID, true), Reply::Written(_)));
    f.settle();
    assert_eq!((f.cluster_of(UID), f.world.state.orphans().len()), (home, 0));
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
