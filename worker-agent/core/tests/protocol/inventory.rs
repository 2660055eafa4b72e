//! An inventory says what runs, and stays within the size of a message: what doesn't fit is left out, and
//! further ends are announced.

use super::*;
use meridian_agent_core::RunnerEvent;
use meridian_shared::protocol::{
    ENDS_MAX, EndResult, Inventory, JOB_NAMES_BYTES_MAX, PLACEMENTS_BYTES_MAX, Run,
};

/// Bytes of `,"job":"default/"`.
const JOB_FIELD_BYTES: usize = 17;

/// An agent with one node of this name and room for every gang of a test.
fn bench(node: &str) -> Bench {
    let mut bench = Bench::new();
    let capacity = Amounts::from([(GPU.into(), 10_000)]);
    let node = NodeSpec { name: node.into(), capacity, ..NodeSpec::default() };
    bench.apply(Input::Nodes { nodes: vec![node], pools: Vec::new() });
    bench
}

/// The fence of a workload in these tests.
fn fence_of(uid: Uid) -> Fence {
    Fence { counter: u64::try_from(uid.0).unwrap(), ..FENCE }
}

impl Bench {
    /// Starts a gang with these pod sets of one pod each.
    fn start(&mut self, uid: Uid, name: &str, pod_sets: &[&str]) {
        let (Command::Offer(mut offer), Command::Grant(mut grant)) = (offer(), grant()) else {
            panic!("they are an offer and a grant")
        };
        let sets =
            pod_sets.iter().map(|name| PodSet { name: (*name).into(), ..offer.gang.pod_sets[0].clone() });
        let gang = Gang { pod_sets: sets.collect(), ..Gang::default() };
        let id = OfferId { counter: fence_of(uid).counter, ..OFFER };
        (offer.offer, offer.uid, offer.gang) = (id, uid, Arc::new(gang));
        (grant.offer, grant.uid, grant.fence, grant.name) = (id, uid, fence_of(uid), name.into());
        let request = self.ask();
        self.answer(&request, vec![Command::Offer(offer), Command::Grant(grant)]);
        assert!(self.starts());
        self.effects.clear();
    }

    fn inventory(&mut self) -> Inventory {
        let request = self.ask();
        let mut response = self.response(&request, Vec::new());
        response.want_inventory = true;
        self.deliver(response);
        self.ask().inventory.expect("it was requested")
    }
}

/// The number of runs at the beginning that have something, and the number of those after them that lack it.
fn split(runs: &[Run], has: impl Fn(&Run) -> bool) -> (usize, usize) {
    let first = runs.iter().take_while(|run| has(run)).count();
    (first, runs[first..].iter().filter(|run| !has(run)).count())
}

#[test]
fn placements_fill_their_part_of_an_inventory() {
    const WEIGHT: usize = 2_048;
    let fitting = PLACEMENTS_BYTES_MAX / WEIGHT;
    let mut bench = bench(&"n".repeat(170));
    for number in 1..=fitting + 2 {
        bench.start(Uid(number.try_into().unwrap()), "job", &["a", "b", "cc", "dd"]);
    }
    let runs = bench.inventory().runs;
    assert_eq!(runs[0].placement.as_ref().unwrap().weight(), WEIGHT, "the bound must be met exactly");
    assert_eq!(split(&runs, |run| run.placement.is_some()), (fitting, 2));
}

#[test]
fn names_of_jobs_fill_their_part_of_an_inventory() {
    let mut bench = bench("n");
    let half = "j".repeat(JOB_NAMES_BYTES_MAX / 2 - JOB_FIELD_BYTES);
    for (uid, name) in [(1, half.as_str()), (2, &half), (3, "c")] {
        bench.start(Uid(uid), name, &["main"]);
    }
    let runs = bench.inventory().runs;
    assert_eq!(split(&runs, |run| run.job.is_some()), (2, 1));
}

#[test]
fn an_inventory_says_whether_there_are_more_ends() {
    let mut bench = bench("n");
    for number in 1..=ENDS_MAX + 1 {
        let uid = Uid(number.try_into().unwrap());
        bench.start(uid, "job", &["main"]);
        let (fence, result) = (fence_of(uid), EndResult::Succeeded);
        bench.apply(Input::Runner(RunnerEvent::Ended {
            uid,
            fence,
            result,
            pod_failures: 0,
            ran: Millis(1),
        }));
        if number >= ENDS_MAX {
            let inventory = bench.inventory();
            assert_eq!((inventory.ends.len(), inventory.more), (ENDS_MAX, number > ENDS_MAX));
        }
    }
}

#[test]
fn an_inventory_says_whether_a_run_is_running_or_stopping() {
    let mut bench = bench("n");
    let phase = |bench: &mut Bench| {
        let inventory = bench.inventory();
        (inventory.runs[0].running, inventory.runs[0].stopping)
    };
    bench.run();
    assert_eq!(phase(&mut bench), (false, false));
    bench.runner(RunnerEvent::Running { uid: UID, fence: FENCE });
    assert_eq!(phase(&mut bench), (true, false));
    let request = bench.ask();
    let reason = meridian_shared::protocol::StopReason::Cancelled;
    bench.answer(&request, vec![Command::Stop { uid: UID, fence: FENCE, reason }]);
    assert_eq!(phase(&mut bench), (false, true));
}
