//! Completed indexes: what is done stays done, whatever happens to an attempt.

use super::*;

fn indexed(name: &str, parallelism: u32, completions: u32) -> Value {
    let mut job = job("default", name, parallelism, &json!({"kueue.x-k8s.io/queue-name": "lq"}), "");
    job["spec"]["completionMode"] = json!("Indexed");
    job["spec"]["completions"] = json!(completions);
    job
}

impl Fleet {
    /// Pods of a running job succeed.
    pub(super) fn complete(&mut self, uid: Uid, indexes: &str) {
        let (name, _) = self.running.iter().find(|(_, running)| *running == uid).expect("it runs").clone();
        let fence = self.agents[&name].runs().find(|(running, ..)| *running == uid).unwrap().1;
        let event = RunnerEvent::Completed { uid, fence, indexes: indexes.parse().unwrap() };
        let out = self.agents.get_mut(&name).unwrap().apply(now(self.now), AgentInput::Runner(event));
        self.perform(&name, out.effects);
    }

    /// What the last attempt was started with: the number of pods, and the indexes that it doesn't run.
    fn last_start(&self) -> (usize, String) {
        let start = self.starts.last().expect("something was started");
        (start.placement.len(), start.completed.to_string())
    }
}

#[test]
fn a_stopped_indexed_job_runs_only_the_rest_again() {
    let mut f = Fleet::new(EU);
    f.quota(4);
    let uid = f.create(indexed("six", 4, 6));
    f.settle();
    assert_eq!((f.last_start(), f.used()), ((4, String::new()), 4));
    f.complete(uid, "0-1");
    f.settle();
    // These complete just before the stop: only the end tells the manager.
    f.complete(uid, "0-1,3-4");
    f.stop(uid);
    f.settle();
    assert_eq!(f.world.state.workloads()[&uid].completed().to_string(), "0,1,3,4");
    // The rest needs two pods, so two others find room.
    let other = f.submit("other", 2);
    f.settle();
    f.resume(uid);
    f.restart(2, None);
    f.settle();
    f.settle();
    assert_eq!(f.phases(&[uid, other]), [Some(Phase::Running), Some(Phase::Running)], "{:#}", f.why(uid));
    assert_eq!((f.last_start(), f.used(), f.free_in("eu")), ((2, "0,1,3,4".into()), 4, 0));
    let summary = f.why(uid)["summary"].to_string();
    assert!(summary.contains("2 pods (4 of 6 indexes have completed) running"), "{summary}");
    f.end(uid, EndResult::Succeeded);
    assert_eq!((f.phase(uid), f.used()), (Some(Phase::Finished), 2));
}

#[test]
fn a_lost_cluster_loses_no_completed_index() {
    let mut f = Fleet::regions();
    let uid = f.create(indexed("six", 3, 6));
    f.settle();
    let first = f.cluster_of(uid).unwrap();
    f.complete(uid, "0-3");
    f.settle();
    f.disconnected.push(ClusterName::new(&first));
    f.running.clear();
    f.advance(Millis::secs(30));
    assert_eq!(f.phase(uid), Some(Phase::Running), "{:#}", f.why(uid));
    assert_ne!(f.cluster_of(uid), Some(first));
    assert_eq!((f.last_start(), f.used()), ((2, "0-3".into()), 2));
}

#[test]
fn an_elastic_job_starts_from_the_beginning() {
    let mut f = Fleet::new(EU);
    let (uid, _) = f.put(super::elastic::elastic("gang", 3));
    f.settle();
    f.complete(uid, "0");
    f.settle();
    f.stop(uid);
    f.settle();
    f.resume(uid);
    f.settle();
    f.settle();
    assert_eq!((f.phase(uid), f.last_start()), (Some(Phase::Running), (3, String::new())));
}

#[test]
fn reports_beyond_the_jobs_completions_dont_count() {
    let mut f = Fleet::new(EU);
    let uid = f.create(indexed("two", 2, 2));
    f.settle();
    f.complete(uid, "1,7-4000000000");
    f.settle();
    assert_eq!(f.world.state.workloads()[&uid].completed().to_string(), "1");
}
