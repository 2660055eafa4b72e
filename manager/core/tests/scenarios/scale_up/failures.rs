//! Scale-ups that an end, a restart, an older agent or a lost node interrupts.

use super::*;
use meridian_manager_core::facts::outcome::RejectionReason;
use meridian_manager_core::sessions::features::Features;

#[test]
fn the_end_of_an_attempt_ends_its_scale_up() {
    let mut f = Fleet::new(EU);
    f.quota(4);
    let (gang, _) = f.put(elastic("gang", 2));
    let other = f.submit("other", 2);
    f.settle();
    f.put(elastic("gang", 4));
    f.settle();
    f.end(gang, EndResult::NodeLost { message: "gone".into() });
    f.advance(Millis::secs(4));
    // The next attempt has what the gang ran with, and asks for the rest anew.
    assert_eq!((f.phase(gang), f.used(), f.scale_ups()), (Some(Phase::Running), 4, 0));
    f.end(other, EndResult::Succeeded);
    f.advance(Millis::secs(4));
    assert_eq!(
        (f.phase(gang), f.used(), f.world.state().workloads()[&gang].attempts()),
        (Some(Phase::Running), 4, 2)
    );
    assert_eq!((f.scale_ups(), f.scale_up_answers()), (1, (1, 0)));
    // The same while the command is on its way to the agent.
    f.put(elastic("gang", 2));
    f.settle();
    f.disconnected = vec!["eu".into()];
    f.put(elastic("gang", 3));
    assert_eq!((f.used(), f.scale_ups()), (3, 2));
    f.end_unreported(gang, EndResult::Succeeded);
    f.disconnected.clear();
    f.settle();
    assert_eq!((f.phase(gang), f.used(), f.scale_up_answers()), (Some(Phase::Finished), 0, (1, 0)));
    assert_eq!(f.refused(elastic("gang", 9)).reason, RejectionReason::Conflict);
    // The unfinished scale-up is no longer charged.
    let all = f.submit("all", 4);
    f.settle();
    assert_eq!(f.phase(all), Some(Phase::Running), "{}", f.summary(all));
}

#[test]
fn a_restart_during_a_scale_up_neither_loses_nor_repeats_it() {
    for lost in [false, true] {
        let mut f = Fleet::new(EU);
        let (gang, _) = f.put(elastic("gang", 1));
        f.settle();
        f.disconnected = vec!["eu".into()];
        f.put(elastic("gang", 3));
        assert_eq!((f.used(), f.scale_ups()), (3, 1));
        f.restart(2, if lost { RECOVERY } else { None });
        assert_eq!(f.used(), 3);
        f.disconnected.clear();
        f.settle();
        f.settle();
        assert_eq!(
            (f.used(), f.free_in("eu"), f.scale_up_answers(), f.phase(gang)),
            (3, 1, (1, 0), Some(Phase::Running))
        );
        // The same for a scale-up that is still pending.
        f.quota(3);
        f.put(elastic("gang", 4));
        f.settle();
        f.restart(3, if lost { RECOVERY } else { None });
        f.settle();
        assert_eq!((f.used(), f.scale_ups()), (3, 1));
        f.quota(4);
        f.settle();
        f.settle();
        assert_eq!(
            (f.used(), f.free_in("eu"), f.scale_ups(), f.phase(gang)),
            (4, 0, 2, Some(Phase::Running))
        );
    }
}

#[test]
fn a_restored_manager_learns_of_a_scale_up_from_the_agents_mac() {
    for known in [true, false] {
        let mut f = Fleet::new(EU);
        let gang = f.put(elastic("gang", 1)).0;
        let pending = f.world.snapshot();
        f.settle();
        let running = f.world.snapshot();
        f.put(elastic("gang", 3));
        f.settle();
        assert_eq!(f.used(), 3);
        f.lead_from_backup(if known { &running } else { &pending });
        f.settle();
        f.settle();
        assert_eq!(f.phase(gang), Some(Phase::Running), "{}", f.summary(gang));
        f.advance(Millis::secs(2));
        // In the backup the job requests one pod, so the others are commanded to end.
        assert_eq!((f.used(), f.free_in("eu")), (1, 3));
    }
}

#[test]
fn an_agent_without_scale_up_support_gets_no_such_command() {
    let mut f = Fleet::new(EU);
    let (gang, _) = f.put(elastic("gang", 1));
    f.settle();
    let eu = ClusterName::new("eu");
    f.world.live_mut().cluster_mut(&eu).unwrap().set_features(Features::default());
    let refused = f.refused(elastic("gang", 2));
    assert_eq!(refused.field.as_deref(), Some("spec.parallelism"));
    assert!(
        refused.message.contains("agent is of an older version")
            && refused.message.contains("meridian stop workload gang"),
        "{}",
        refused.message
    );
    // Requested while no agent is connected, the scale-up stays pending with that reason.
    f.disconnected = vec!["eu".into()];
    f.restart(2, None);
    f.put(elastic("gang", 2));
    f.input(Input::Turn);
    assert_eq!((f.scale_ups(), f.used()), (0, 1));
    assert!(
        f.summary(gang).contains("scale-up from 1 to 2 pods is pending: its agent isn't connected"),
        "{}",
        f.summary(gang)
    );
}

#[test]
fn a_node_lost_after_a_scale_up_leaves_the_granted_size() {
    let mut f = Fleet::new(EU);
    f.set_nodes("eu", &[2, 2, 2]);
    let (gang, _) = f.put(elastic("gang", 2));
    f.settle();
    f.put(elastic("gang", 4));
    f.settle();
    assert_eq!((f.used(), f.pods_at("eu", gang)), (4, 4));
    f.set_nodes("eu", &[2, 0, 2]);
    f.settle();
    f.advance(Millis::secs(2));
    f.settle();
    assert_eq!((f.phase(gang), f.used(), f.scale_ups()), (Some(Phase::Running), 4, 1), "{}", f.summary(gang));
}

#[test]
fn a_scale_up_requested_before_the_pods_run_is_evaluated_once_they_run() {
    let mut f = Fleet::new(EU);
    f.hold_starts = true;
    let (gang, _) = f.put(elastic("gang", 2));
    f.settle();
    f.put(elastic("gang", 4));
    f.settle();
    assert_eq!((f.phase(gang), f.scale_ups()), (Some(Phase::Granted), 0));
    // Nothing else happens meanwhile that would have the queue evaluated.
    f.hold_starts = false;
    let (eu, Start { uid, fence, .. }) = (ClusterName::new("eu"), f.starts[0].clone());
    let event = AgentInput::Runner(RunnerEvent::Running { uid, fence });
    let out = f.agents.get_mut(&eu).unwrap().apply(now(f.now), event);
    f.perform(&eu, out.into_effects());
    f.settle();
    assert_eq!(
        (f.phase(gang), f.used(), f.scale_up_answers()),
        (Some(Phase::Running), 4, (1, 0)),
        "{}",
        f.summary(gang)
    );
}

#[test]
fn a_job_that_is_being_stopped_shows_no_scale_up() {
    let mut f = Fleet::new(EU);
    f.set_nodes("eu", &[8]);
    f.quota(4);
    let shown = |f: &Fleet| {
        let job = f.object_at(&Key::namespaced(Kind::Job, "default", "gang")).unwrap();
        job["status"]["meridian"]["scaleUp"].as_str().unwrap_or_default().to_owned()
    };
    let (gang, _) = f.put(elastic("gang", 2));
    let other = f.submit("other", 2);
    f.settle();
    f.put(elastic("gang", 4));
    f.settle();
    assert!(shown(&f).contains("needs 2 nvidia.com/gpu"), "{}", shown(&f));
    assert!(f.summary(gang).contains(&shown(&f)), "{}", f.summary(gang));
    // Under way: the cluster hasn't confirmed it.
    f.disconnected = vec!["eu".into()];
    f.quota(6);
    f.settle();
    assert_eq!(shown(&f), "scaling up to 4 pods");
    f.hold_stops = true;
    f.stop(gang);
    assert_eq!((f.phase(gang), shown(&f)), (Some(Phase::Stopping), String::new()));
    f.disconnected.clear();
    f.settle();
    assert_eq!((f.phase(gang), f.phase(other)), (Some(Phase::Stopping), Some(Phase::Running)));
    assert_eq!(shown(&f), "");
}
