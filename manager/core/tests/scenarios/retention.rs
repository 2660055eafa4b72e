//! How long finished workloads are kept.

use super::*;
use meridian_objects::job::MAX_EXEC_LABEL;

const DAY: Millis = Millis::mins(24 * 60);

/// One large cluster, and a manager that keeps this number of finished workloads.
fn fleet(kept_max: usize) -> Fleet {
    let mut f = Fleet::new(EU);
    let nodes = vec![NodeSpec {
        name: "n".into(),
        capacity: Amounts::from([(GPU.into(), 5_000), ("pods".into(), 5_000)]),
        ..NodeSpec::default()
    }];
    f.agents.values_mut().next().unwrap().apply(now(f.now), AgentInput::Nodes { nodes, pools: Vec::new() });
    f.world.config_mut().finished_kept_max = kept_max;
    f.quota(5_000);
    f.settle();
    f
}

impl Fleet {
    /// Submits a job and lets it succeed.
    fn run_to_success(&mut self, name: &str, ttl: Option<u32>) -> Uid {
        let mut job =
            job("default", name, 1, &json!({"kueue.x-k8s.io/queue-name": "lq", MAX_EXEC_LABEL: "600"}), "");
        if let Some(ttl) = ttl {
            job["spec"]["ttlSecondsAfterFinished"] = json!(ttl);
        }
        let Reply::Written(written) = self.apply(vec![job]) else { panic!("not submitted") };
        self.settle();
        self.end(written[0].uid, EndResult::Succeeded);
        assert_eq!(self.phase(written[0].uid), Some(Phase::Finished));
        written[0].uid
    }

    fn exist(&self, uids: &[Uid]) -> Vec<bool> {
        uids.iter().map(|uid| self.phase(*uid).is_some()).collect()
    }

    /// Lets time pass without any exchange with the agents.
    fn wait(&mut self, time: Millis) {
        self.now += time.0;
        self.world.committed(Mono(self.now));
        self.input(Input::Turn);
    }
}

#[test]
fn a_finished_job_is_kept_for_its_ttl_or_a_day() {
    let mut f = fleet(100_000);
    let all = [
        f.run_to_success("at-once", Some(0)),
        f.run_to_success("an-hour", Some(3_600)),
        f.run_to_success("a-day", None),
        f.run_to_success("a-week", Some(7 * 86_400)),
    ];
    f.wait(Millis::secs(10));
    assert_eq!(f.exist(&all), [false, true, true, true]);
    f.wait(Millis::mins(59));
    assert_eq!(f.exist(&all), [false, true, true, true]);
    f.wait(Millis::mins(1));
    assert_eq!(f.exist(&all), [false, false, true, true]);
    f.wait(DAY);
    assert_eq!(f.exist(&all), [false, false, false, true]);
    f.wait(Millis(6 * DAY.0));
    assert_eq!(f.exist(&all), [false; 4]);
    f.world.check().unwrap();
}

#[test]
fn over_the_limit_the_oldest_finished_workloads_are_forgotten() {
    let mut f = fleet(2);
    let all: Vec<Uid> = (0..4).map(|i| f.run_to_success(&format!("job-{i}"), None)).collect();
    f.wait(Millis::secs(10));
    assert_eq!(f.exist(&all), [false, false, true, true]);
    // The name of a forgotten job can be used again.
    f.run_to_success("job-0", None);
}

#[test]
fn thousands_of_finished_workloads_are_forgotten_within_seconds() {
    let mut f = fleet(10);
    let jobs = (0..2_600)
        .map(|i| job("default", &format!("job-{i}"), 1, &json!({"kueue.x-k8s.io/queue-name": "lq"}), ""))
        .collect();
    let Reply::Written(written) = f.apply(jobs) else { panic!("not submitted") };
    let uids: Vec<Uid> = written.iter().map(|w| w.uid).collect();
    for _ in 0..20 {
        f.settle();
    }
    for (name, uid) in std::mem::take(&mut f.running) {
        let fence = f.agents[&name].runs().find(|(u, ..)| *u == uid).unwrap().1;
        let event =
            RunnerEvent::Ended { uid, fence, result: EndResult::Succeeded, pod_failures: 0, ran: Millis(10) };
        f.agents.get_mut(&name).unwrap().apply(now(f.now), AgentInput::Runner(event));
    }
    for _ in 0..20 {
        f.settle();
    }
    let finished = uids.iter().filter(|uid| f.phase(**uid) == Some(Phase::Finished)).count();
    let gone = uids.iter().filter(|uid| f.phase(**uid).is_none()).count();
    assert_eq!(finished + gone, uids.len());
    // One turn forgets a bounded number of workloads, and the next turn follows without the usual delay.
    f.wait(Millis::secs(10));
    (0..3).for_each(|_| f.wait(Millis(100)));
    assert_eq!(uids.iter().filter(|uid| f.phase(**uid).is_some()).count(), 10);
}

#[test]
fn a_process_that_leads_again_still_forgets_what_finished_before() {
    let mut f = fleet(100_000);
    let uid = f.run_to_success("an-hour", Some(3_600));
    f.lead_again(None);
    f.wait(Millis::secs(10));
    assert_eq!(f.exist(&[uid]), [true]);
    f.wait(Millis::mins(60));
    assert_eq!(f.exist(&[uid]), [false]);
}
