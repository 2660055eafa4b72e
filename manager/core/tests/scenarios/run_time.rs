//! Limits of a job's run time, over several attempts.

use super::*;

#[test]
fn only_the_maximum_execution_time_adds_up_over_attempts() {
    let mut f = Fleet::new(EU);
    let mut limited = job(
        "default",
        "limited",
        2,
        &json!({"kueue.x-k8s.io/queue-name": "lq", "kueue.x-k8s.io/max-exec-time-seconds": "300"}),
        "",
    );
    limited["spec"]["activeDeadlineSeconds"] = json!(40);
    limited["metadata"]["annotations"] = json!({"provreq.kueue.x-k8s.io/maxRunDurationSeconds": "50"});
    let uid = f.create(limited);
    f.settle();
    f.advance(Millis::secs(20));
    let message = f.why(uid)["summary"].as_str().unwrap().to_owned();
    assert!(message.contains("of 40s left of this attempt (`activeDeadlineSeconds`)"), "{message}");
    assert!(message.contains("of 50s left of this attempt (`maxRunDurationSeconds`)"), "{message}");
    assert!(message.contains("of 5m left of all attempts (`max-exec-time-seconds`)"), "{message}");
    f.hold_stops = true;
    f.stop(uid);
    f.settle();
    let (cluster, fence) = (ClusterName::from("eu"), f.world.state().workloads()[&uid].fence().unwrap());
    let (result, ran) = (EndResult::Stopped, Millis::secs(25));
    let event = RunnerEvent::Ended { uid, fence, result, pod_failures: 0, ran };
    f.agents.get_mut(&cluster).unwrap().apply(now(f.now), AgentInput::Runner(event));
    f.running.clear();
    f.hold_stops = false;
    f.settle();
    let message = f.why(uid)["summary"].as_str().unwrap().to_owned();
    assert!(message.contains("275s of 5m left of all attempts"), "{message}");
    assert!(!message.contains("activeDeadlineSeconds"), "{message}");
    f.resume(uid);
    f.settle();
    f.settle();
    let workload = &f.world.state().workloads()[&uid];
    assert_eq!((workload.phase(), workload.ran()), (Phase::Running, Millis::secs(25)));
    let gang = &f.world.queues().class(workload.class()).gang;
    assert_eq!(gang.run_left(workload.ran()), Some(Millis::secs(40)), "an attempt has its whole time");
    let value = f.rendered_workload(uid);
    assert_eq!(value["spec"]["maximumExecutionTimeSeconds"], 300);
    assert_eq!(value["status"]["accumulatedPastExecutionTimeSeconds"], 25);
}
