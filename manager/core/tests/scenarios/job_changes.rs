//! Changes of jobs that aren't elastic. A waiting job changes in place; a gang that runs is stopped and
//! queued again.

use super::*;
use meridian_manager_core::facts::end::EvictionCause;
use meridian_manager_core::facts::lifecycle;
use meridian_manager_core::facts::outcome::{RejectionReason, WriteResult};

/// A job of `pods` pods in this local queue, of which `completions` must succeed.
fn rigid(name: &str, queue: &str, pods: u32, completions: u32) -> Value {
    let mut job = job("default", name, pods, &json!({"kueue.x-k8s.io/queue-name": queue}), "");
    job["spec"]["completions"] = json!(completions);
    job
}

impl Fleet {
    /// Changes a job. Returns the warnings.
    fn change(&mut self, job: Value) -> Vec<String> {
        match self.apply(vec![job]) {
            Reply::Written(mut written) => {
                assert_eq!(written[0].result, WriteResult::Configured);
                written.remove(0).warnings
            }
            other => panic!("refused: {other:?}"),
        }
    }

    fn evicted_by(&self) -> Vec<EvictionCause> {
        let events = self.lifecycle_events.iter();
        events
            .filter_map(|event| match &event.event {
                lifecycle::Event::Evicted { cause, .. } => Some(*cause),
                _ => None,
            })
            .collect()
    }

    fn stored_parallelism(&self, name: &str) -> Value {
        self.object_at(&Key::namespaced(Kind::Job, "default", name)).unwrap()["spec"]["parallelism"].clone()
    }
}

#[test]
fn a_waiting_job_moves_to_another_queue_and_keeps_its_age() {
    let mut f = Fleet::new(EU);
    f.apply(vec![cluster_queue("none", 0, &json!({})), local_queue("empty", "none")]);
    let full = f.submit("full", 4);
    f.settle();
    let (moved, _) = f.put(rigid("moved", "empty", 4, 4));
    let younger = f.submit("younger", 4);
    f.settle();
    assert!(f.change(rigid("moved", "lq", 4, 4)).is_empty());
    assert_eq!(f.why(moved)["position"], json!({"queue": "lq", "place": 1, "of": 2}));
    f.restart(2, None);
    f.end(full, EndResult::Succeeded);
    f.settle();
    assert_eq!((f.phase(moved), f.phase(younger)), (Some(Phase::Running), Some(Phase::Pending)));
    assert_eq!(f.world.queues().charged_to(moved).map(|queue| &**queue), Some("cq"));
}

#[test]
fn a_waiting_job_takes_other_counts_selectors_and_annotations() {
    let mut f = Fleet::new(EU);
    f.quota(4);
    let (job, _) = f.put(rigid("wide", "lq", 9, 9));
    f.settle();
    assert_eq!(f.phase(job), Some(Phase::Pending));
    let mut narrow = rigid("wide", "lq", 3, 9);
    narrow["spec"]["template"]["spec"]["nodeSelector"] = json!({"disk": "fast"});
    narrow["metadata"]["annotations"] = json!({"meridian.dev/region": "us-east4"});
    let Reply::Rejected(denied) = f.apply(vec![narrow.clone()]) else {
        panic!("no cluster is in that region")
    };
    assert_eq!(denied[0].reason, RejectionReason::Forbidden, "{denied:?}");
    narrow["metadata"].as_object_mut().unwrap().remove("annotations");
    assert!(f.change(narrow).is_empty());
    f.settle();
    assert_eq!(f.phase(job), Some(Phase::Pending), "no node has the label");
    f.change(rigid("wide", "lq", 3, 9));
    f.settle();
    assert_eq!((f.phase(job), f.used(), f.starts.len()), (Some(Phase::Running), 3, 1));
    assert_eq!(f.stored_parallelism("wide"), 3);
}

#[test]
fn a_change_during_dispatch_withdraws_the_offer_of_the_old_gang() {
    let mut f = Fleet::new(EU);
    f.disconnected = vec!["eu".into()];
    let (gang, _) = f.put(rigid("gang", "lq", 4, 4));
    assert_eq!(f.phase(gang), Some(Phase::Dispatching));
    f.change(rigid("gang", "lq", 2, 4));
    f.disconnected.clear();
    f.settle();
    assert_eq!((f.phase(gang), f.used(), f.free_in("eu")), (Some(Phase::Running), 2, 2));
}

#[test]
fn a_running_gang_with_other_counts_is_stopped_and_queued_again() {
    let mut f = Fleet::new(EU);
    let (gang, _) = f.put(rigid("gang", "lq", 4, 4));
    f.settle();
    assert_eq!(f.phase(gang), Some(Phase::Running));
    f.hold_stops = true;
    let warnings = f.change(rigid("gang", "lq", 2, 4));
    assert!(warnings[0].contains("the gang is stopped and queued again"), "{warnings:?}");
    f.settle();
    assert_eq!((f.phase(gang), f.used()), (Some(Phase::Stopping), 4), "its pods still run");
    // Another change meanwhile: the newest counts.
    f.change(rigid("gang", "lq", 3, 4));
    f.restart(2, None);
    f.settle();
    assert_eq!((f.phase(gang), f.used(), f.starts.len()), (Some(Phase::Stopping), 4, 1));
    f.hold_stops = false;
    let fence = f.agents[&ClusterName::new("eu")].runs().next().unwrap().1;
    f.running.clear();
    let ended =
        RunnerEvent::Ended { uid: gang, fence, result: EndResult::Stopped, pod_failures: 0, ran: Millis(1) };
    let out = f.agents.get_mut(&ClusterName::new("eu")).unwrap().apply(now(f.now), AgentInput::Runner(ended));
    f.perform(&ClusterName::new("eu"), out.into_effects());
    f.settle();
    assert_eq!((f.phase(gang), f.used(), f.free_in("eu")), (Some(Phase::Running), 3, 1));
    assert_eq!(f.starts.len(), 2);
    assert_eq!(f.evicted_by(), [EvictionCause::JobChanged]);
    assert_eq!(f.world.state().workloads()[&gang].resized(), None);
}

#[test]
fn a_set_of_groups_changes_its_numbers_of_groups_and_of_pods_too() {
    let set = |replicas: u32, size: u32| {
        let requests = json!({GPU: 1});
        let template = json!({"spec": {"containers": [{"name": "c", "image": "i",
            "resources": {"requests": requests.clone(), "limits": requests}}]}});
        json!({"apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet",
            "metadata": {"name": "serve", "namespace": "default",
                "labels": {"kueue.x-k8s.io/queue-name": "lq"}},
            "spec": {"replicas": replicas,
                "leaderWorkerTemplate": {"size": size, "workerTemplate": template}}})
    };
    let mut f = Fleet::new(EU);
    let uid = f.create(set(3, 2));
    f.settle();
    assert_eq!((f.phase(uid), f.used()), (Some(Phase::Pending), 0), "6 of 4 GPUs");
    assert!(f.change(set(2, 1)).is_empty());
    f.settle();
    assert_eq!((f.phase(uid), f.used()), (Some(Phase::Running), 2));
    let warnings = f.change(set(2, 2));
    assert!(warnings[0].contains("the gang is stopped and queued again"), "{warnings:?}");
    f.settle();
    assert_eq!((f.phase(uid), f.used(), f.starts.len()), (Some(Phase::Running), 4, 2));
    assert_eq!(f.evicted_by(), [EvictionCause::JobChanged]);
}

#[test]
fn other_changes_of_a_dispatched_job_are_refused_with_a_remedy() {
    let mut f = Fleet::new(EU);
    f.apply(vec![local_queue("other", "cq")]);
    let (gang, _) = f.put(rigid("gang", "lq", 2, 2));
    f.settle();
    assert_eq!(f.phase(gang), Some(Phase::Running));
    let refused = f.refused(rigid("gang", "other", 2, 2));
    assert_eq!(refused.reason, RejectionReason::Conflict);
    assert!(refused.message.contains("meridian stop workload gang"), "{}", refused.message);
    let mut selects = rigid("gang", "lq", 2, 2);
    selects["spec"]["template"]["spec"]["nodeSelector"] = json!({"disk": "fast"});
    assert_eq!(f.refused(selects).reason, RejectionReason::Conflict);
    let mut image = rigid("gang", "lq", 2, 2);
    image["spec"]["template"]["spec"]["containers"][0]["image"] = json!("another");
    assert!(f.refused(image).message.contains("delete it and create it again"));
    // The remedy works.
    f.stop(gang);
    f.settle();
    assert_eq!(f.phase(gang), Some(Phase::Pending));
    f.change(rigid("gang", "other", 2, 2));
    f.resume(gang);
    f.settle();
    assert_eq!(f.phase(gang), Some(Phase::Running));
    f.end(gang, EndResult::Succeeded);
    assert_eq!(f.refused(rigid("gang", "lq", 1, 2)).reason, RejectionReason::Conflict);
}

#[test]
fn a_change_of_a_lost_cluster_s_gang_starts_nothing_before_its_lease_has_lapsed() {
    let mut f = Fleet::regions();
    let (gang, _) = f.put(rigid("gang", "lq", 4, 4));
    f.settle();
    let home = f.running[0].0.clone();
    f.disconnected = vec![home.clone()];
    f.change(rigid("gang", "lq", 2, 4));
    f.settle();
    assert_eq!((f.phase(gang), f.starts.len()), (Some(Phase::Stopping), 1));
    f.now += TERM.0 * 2;
    f.settle();
    f.disconnected.clear();
    f.settle();
    assert_eq!((f.phase(gang), f.used()), (Some(Phase::Running), 2));
    assert_ne!(f.starts.last().map(|start| start.uid), None);
}

#[test]
fn a_backup_from_before_the_change_adopts_the_gang_with_the_pods_that_it_has() {
    let mut f = Fleet::new(EU);
    let (gang, _) = f.put(rigid("gang", "lq", 2, 4));
    f.settle();
    let backup = f.world.snapshot();
    f.change(rigid("gang", "lq", 3, 4));
    f.settle();
    assert_eq!((f.phase(gang), f.used()), (Some(Phase::Running), 3));
    f.lead_from_backup(&backup);
    f.confirm_rules();
    // The gang with three pods is adopted and stopped, and the one with two starts.
    f.settle();
    f.settle();
    assert_eq!((f.phase(gang), f.used(), f.running.len()), (Some(Phase::Running), 2, 1));
}
