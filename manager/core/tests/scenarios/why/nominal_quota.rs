//! The nominal quota that `why` suggests lets the workload start, and one unit less doesn't.

use super::suggestions::Random;
use super::*;

const EARLIER_NAMES: &[&str] = &["there-a", "there-b"];

/// Quotas and limits of two teams, and the pods of their workloads.
struct Setup {
    nominal: i64,
    borrowing_limit: Value,
    other_nominal: i64,
    other_lending_limit: Value,
    /// Pods of a workload in each queue, submitted before the one in question.
    earlier: [i64; 2],
    pods: u32,
}

fn queue_with_limits(name: &str, nominal: i64, borrowing_limit: &Value, lending_limit: &Value) -> Value {
    let mut queue = cluster_queue(name, nominal, &json!({"cohortName": "all"}));
    let quota = &mut queue["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0];
    quota["borrowingLimit"] = borrowing_limit.clone();
    quota["lendingLimit"] = lending_limit.clone();
    queue
}

impl Setup {
    fn random(seed: u64) -> Self {
        let mut random = Random(seed);
        let limits = [json!(null), json!(0), json!(2)];
        let (nominal, other_nominal) = (random.below(5), 2 + random.below(4));
        let mut limit = || limits[usize::try_from(random.below(3)).unwrap()].clone();
        let (borrowing_limit, other_lending_limit) = (limit(), limit());
        let earlier = [random.below(4), random.below(4)];
        let pods = 1 + u32::try_from(random.below(4)).unwrap();
        Self { nominal, borrowing_limit, other_nominal, other_lending_limit, earlier, pods }
    }

    fn queue(&self, nominal: i64) -> Value {
        queue_with_limits("team-a", nominal, &self.borrowing_limit, &Value::Null)
    }

    /// The fleet with its workloads, and the workload in question.
    fn build(&self) -> (Fleet, Uid) {
        let mut f = Fleet::regions();
        teams(&mut f, [1, 1], &json!({}));
        f.apply(vec![
            self.queue(self.nominal),
            queue_with_limits("team-b", self.other_nominal, &Value::Null, &self.other_lending_limit),
        ]);
        for ((queue, name), pods) in ["a", "b"].into_iter().zip(EARLIER_NAMES).zip(self.earlier) {
            if pods > 0 {
                f.submit_to(queue, name, u32::try_from(pods).unwrap(), None);
            }
        }
        f.settle();
        let uid = f.submit_to("a", "asks", self.pods, None);
        f.settle();
        (f, uid)
    }
}

/// The quota in a text such as "raise the queue's nominal quota ... to 5".
fn suggested_quota(help: &str) -> Option<i64> {
    let (_, rest) = help.split_once("to ")?;
    rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

#[test]
fn a_suggested_quota_or_end_starts_the_workload() {
    let (mut raised, mut ended) = (0, 0);
    for seed in 0..60 {
        let setup = Setup::random(seed);
        let (mut f, uid) = setup.build();
        // An older pending workload would take the raised quota.
        let others_run = EARLIER_NAMES.iter().all(|name| {
            f.world.uid_of(Kind::Job, "default", name).is_none_or(|uid| f.phase(uid) == Some(Phase::Running))
        });
        if f.phase(uid) == Some(Phase::Running) || !others_run {
            continue;
        }
        let help = f.why(uid)["wouldHelp"].as_str().unwrap().to_owned();
        let quota = suggested_quota(&help).unwrap_or_else(|| panic!("seed {seed}: {help}"));
        for (nominal, starts) in [(quota - 1, false), (quota, true)] {
            f.apply(vec![setup.queue(nominal)]);
            f.settle();
            assert_eq!(
                f.phase(uid) == Some(Phase::Running),
                starts,
                "seed {seed}: {nominal} of {quota}: {help}: {}",
                f.why(uid)["summary"]
            );
        }
        raised += 1;
        if let Some((_, rest)) = help.split_once("; wait until workload `default/") {
            let (name, _) = rest.split_once("` ends (enough by itself)").unwrap();
            let (mut f, uid) = setup.build();
            f.end(f.world.uid_of(Kind::Job, "default", name).unwrap(), EndResult::Succeeded);
            assert_eq!(f.phase(uid), Some(Phase::Running), "seed {seed}: {help}");
            ended += 1;
        }
    }
    assert!(raised > 10 && ended > 5, "{raised} {ended}");
}
