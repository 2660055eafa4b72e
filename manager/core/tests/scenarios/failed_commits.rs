//! Failed commits: the manager reads back its durable state and keeps leading.

use super::*;
use meridian_manager_core::live::counts::Count;

impl Fleet {
    /// A commit fails: the world is restored from durable state, and the process keeps leading.
    fn fail_commit(&mut self, durable: &[u8], id: u64) {
        let mut world = World::restore(durable, self.world.config().clone()).unwrap();
        world.go_on_from(&self.world);
        world.lead(start(id, self.now, None, false), &self.bodies);
        world.committed(Mono(self.now));
        world.check().unwrap();
        self.world = world;
    }
}

#[test]
fn repeated_failed_commits_dont_delay_the_lapse_of_a_lease() {
    let mut f = Fleet::regions();
    let uid = f.submit("gang", 4);
    f.settle();
    let home = ClusterName::new(f.cluster_of(uid).unwrap());
    f.disconnected = vec![home.clone()];
    // The term is eight seconds, plus one for clock drift. A commit fails in each of them.
    for second in 0..9 {
        assert_eq!(f.phase(uid), Some(Phase::Running), "after {second} s");
        let durable = f.world.snapshot();
        f.fail_commit(&durable, 100 + second);
        f.advance(Millis::secs(1));
    }
    f.advance(Millis::secs(1));
    assert_ne!(
        f.cluster_of(uid).as_deref(),
        Some(home.as_str()),
        "the gang runs in another cluster: {:?}",
        f.phase(uid)
    );
}

#[test]
fn a_lapse_that_was_not_committed_is_repeated_at_once() {
    let mut f = Fleet::regions();
    let uid = f.submit("gang", 4);
    f.settle();
    let home = ClusterName::new(f.cluster_of(uid).unwrap());
    f.disconnected = vec![home.clone()];
    let durable = f.world.snapshot();
    f.now += 9_500;
    f.world.committed(Mono(f.now));
    f.world.apply(now(f.now), Input::Turn, &f.bodies);
    assert_eq!(f.world.live().counts().of(Count::Lapses), 1);
    f.fail_commit(&durable, 100);
    assert_eq!(f.phase(uid), Some(Phase::Running), "the lapse wasn't committed");
    f.world.apply(now(f.now), Input::Turn, &f.bodies);
    assert_ne!(f.phase(uid), Some(Phase::Running));
}

#[test]
fn a_restarted_manager_counts_every_lease_in_full() {
    let mut f = Fleet::regions();
    let uid = f.submit("gang", 4);
    f.settle();
    f.disconnected = vec![ClusterName::new(f.cluster_of(uid).unwrap())];
    f.advance(Millis::secs(5));
    f.restart(2, None);
    f.advance(Millis::secs(5));
    assert_eq!(f.phase(uid), Some(Phase::Running));
}
