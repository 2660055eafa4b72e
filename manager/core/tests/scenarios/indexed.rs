//! Completed indexes: what is done stays done, whatever happens to an attempt.

use super::elastic::elastic;
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
        self.perform(&name, out.into_effects());
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
    assert_eq!(f.world.state().workloads()[&uid].completed().to_string(), "0,1,3,4");
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

/// An elastic job of four pods in a quota of four, stopped and resumed after two indexes completed.
fn elastic_rest() -> (Fleet, Uid) {
    let mut f = Fleet::new(EU);
    f.quota(4);
    let (uid, _) = f.put(elastic("gang", 4));
    f.settle();
    f.complete(uid, "0-1");
    f.settle();
    f.stop(uid);
    f.settle();
    f.restart(2, None);
    f.settle();
    f.resume(uid);
    f.settle();
    f.settle();
    (f, uid)
}

impl Fleet {
    /// Stops a job and resumes it.
    fn again(&mut self, uid: Uid) {
        self.stop(uid);
        self.settle();
        self.resume(uid);
        self.settle();
        self.settle();
    }

    /// The last pod of a running gang in `eu` is gone.
    fn reclaim(&mut self, uid: Uid, index: u32) {
        let eu = ClusterName::new("eu");
        let fence = self.agents[&eu].runs().find(|(running, ..)| *running == uid).unwrap().1;
        let event = RunnerEvent::Reclaimable { uid, fence, places: vec![("main".into(), index)] };
        let out = self.agents.get_mut(&eu).unwrap().apply(now(self.now), AgentInput::Runner(event));
        self.perform(&eu, out.into_effects());
        self.settle();
    }
}

#[test]
fn an_elastic_job_runs_only_the_rest_again() {
    let (mut f, uid) = elastic_rest();
    assert_eq!((f.phase(uid), f.last_start()), (Some(Phase::Running), (2, "0,1".into())), "{:#}", f.why(uid));
    assert_eq!((f.used(), f.free_in("eu")), (2, 2));
    let summary = f.why(uid)["summary"].to_string();
    assert!(summary.contains(": 2 pods (2 of 4 indexes have completed) running"), "{summary}");
    assert!(!summary.contains("scale-up"), "{summary}");
    f.restart(3, None);
    f.settle();
    assert_eq!((f.phase(uid), f.used()), (Some(Phase::Running), 2), "{:#}", f.why(uid));
    f.end(uid, EndResult::Succeeded);
    assert_eq!((f.phase(uid), f.used()), (Some(Phase::Finished), 0));
}

#[test]
fn the_rest_of_an_elastic_job_is_scaled_up_and_down() {
    let (mut f, uid) = elastic_rest();
    f.put(elastic("gang", 5));
    f.settle();
    f.settle();
    assert_eq!((f.used(), f.free_in("eu")), (3, 1), "{:#}", f.why(uid));
    let summary = f.why(uid)["summary"].to_string();
    assert!(summary.contains(": 3 pods (2 of 5 indexes have completed) running"), "{summary}");
    assert!(!summary.contains("is pending"), "{summary}");
    f.put(elastic("gang", 4));
    f.settle();
    f.hold_stops = false;
    f.settle();
    assert_eq!((f.phase(uid), f.used()), (Some(Phase::Running), 2), "{:#}", f.why(uid));
    // Nothing of that is lost by another stop, nor by a larger size in the meantime.
    f.again(uid);
    assert_eq!((f.phase(uid), f.last_start()), (Some(Phase::Running), (2, "0,1".into())), "{:#}", f.why(uid));
    f.stop(uid);
    f.settle();
    f.put(elastic("gang", 6));
    f.resume(uid);
    f.settle();
    f.settle();
    assert_eq!((f.phase(uid), f.last_start(), f.used()), (Some(Phase::Running), (4, "0,1".into()), 4));
    f.end(uid, EndResult::Succeeded);
    assert_eq!((f.phase(uid), f.used()), (Some(Phase::Finished), 0));
}

#[test]
fn the_rest_of_an_elastic_job_is_adopted_as_it_is() {
    let (mut f, uid) = elastic_rest();
    let backup = f.world.snapshot();
    f.put(elastic("gang", 5));
    f.settle();
    f.settle();
    assert_eq!(f.used(), 3, "{:#}", f.why(uid));
    f.lead_from_backup(&backup);
    f.confirm_rules();
    f.settle();
    f.settle();
    // The run tells of the scale-up, and the backup knows only the smaller size.
    assert_eq!((f.phase(uid), f.used()), (Some(Phase::Running), 2), "{:#}", f.why(uid));
    assert_eq!(f.world.state().workloads()[&uid].attempts(), 2);
}

#[test]
fn an_index_that_a_smaller_size_cuts_off_runs_again() {
    let mut f = Fleet::new(EU);
    f.quota(4);
    let (uid, _) = f.put(elastic("gang", 4));
    f.settle();
    f.complete(uid, "0,3");
    f.settle();
    f.stop(uid);
    f.settle();
    f.put(elastic("gang", 2));
    f.put(elastic("gang", 4));
    f.resume(uid);
    f.settle();
    f.settle();
    assert_eq!((f.phase(uid), f.last_start(), f.used()), (Some(Phase::Running), (3, "0".into()), 3));
}

#[test]
fn a_rest_that_lacks_quota_starts_with_what_it_ran_with_and_scales_up() {
    let mut f = Fleet::new(EU);
    f.quota(4);
    let (gang, _) = f.put(elastic("gang", 3));
    f.settle();
    let other = f.submit("other", 1);
    f.settle();
    f.put(elastic("gang", 6));
    f.settle();
    f.complete(gang, "0");
    f.reclaim(gang, 0);
    assert_eq!(f.used(), 3, "{:#}", f.why(gang));
    let third = f.submit("third", 1);
    f.settle();
    f.again(gang);
    // Five indexes are left, and two of their pods are what it had last.
    assert_eq!(f.phases(&[gang, other, third]), [Some(Phase::Running); 3], "{:#}", f.why(gang));
    assert_eq!((f.last_start(), f.used()), ((2, "0".into()), 4));
    let summary = f.why(gang)["summary"].to_string();
    assert!(summary.contains("scale-up from 2 to 5 pods is pending"), "{summary}");
    f.set_nodes("eu", &[4, 4]);
    f.quota(8);
    f.settle();
    f.settle();
    assert_eq!(f.used(), 7, "{:#}", f.why(gang));
    let summary = f.why(gang)["summary"].to_string();
    assert!(summary.contains(": 5 pods (1 of 6 indexes have completed) running"), "{summary}");
}

#[test]
fn a_lost_cluster_loses_no_completed_index_of_an_elastic_job() {
    let mut f = Fleet::regions();
    let (uid, _) = f.put(elastic("gang", 3));
    f.settle();
    let first = f.cluster_of(uid).unwrap();
    f.complete(uid, "1");
    f.settle();
    f.disconnected.push(ClusterName::new(&first));
    f.running.clear();
    f.advance(Millis::secs(30));
    assert_eq!(f.phase(uid), Some(Phase::Running), "{:#}", f.why(uid));
    assert_ne!(f.cluster_of(uid), Some(first));
    assert_eq!((f.last_start(), f.used()), ((2, "1".into()), 2));
}

#[test]
fn reports_beyond_the_jobs_completions_dont_count() {
    let mut f = Fleet::new(EU);
    let uid = f.create(indexed("two", 2, 2));
    f.settle();
    f.complete(uid, "1,7-4000000000");
    f.settle();
    assert_eq!(f.world.state().workloads()[&uid].completed().to_string(), "1");
}
