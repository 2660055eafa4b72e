//! Of several gangs on lost nodes the one with the highest priority gets the free node.

use super::*;

/// Two gangs on a host each, and one free host.
fn one_free_host(wait: Millis) -> Bench {
    let mut bench = Bench::waiting(wait);
    bench.run(1, plain(4));
    bench.run(2, plain(4));
    bench.run(3, plain(12));
    bench
}

fn set_priority(bench: &mut Bench, number: u64, priority: i64) {
    bench.exchange(Some(Command::SetPriority {
        uid: Uid(u128::from(number)),
        fence: fence(number),
        priority,
    }));
    bench.effects.clear();
}

/// Loses both hosts at once. Returns the moved and the stopped gangs.
fn lose_both(bench: &mut Bench) -> (Vec<Uid>, Vec<Uid>) {
    let hosts: Vec<String> =
        [1, 2].iter().map(|n| bench.agent.ledger().placement(offer(*n))[0].node.clone()).collect();
    let hosts: Vec<&str> = hosts.iter().map(String::as_str).collect();
    bench.nodes(without(&hosts));
    let effects = std::mem::take(&mut bench.effects);
    let moved = effects
        .iter()
        .filter_map(|e| if let Effect::Move { uid, .. } = e { Some(*uid) } else { None })
        .collect();
    let stopped = effects
        .iter()
        .filter_map(|e| if let Effect::Stop { uid, .. } = e { Some(*uid) } else { None })
        .collect();
    (moved, stopped)
}

#[test]
fn the_highest_priority_gets_the_free_host() {
    let mut bench = one_free_host(Millis(0));
    assert_eq!(lose_both(&mut bench), (vec![Uid(1)], vec![Uid(2)]), "of equals, the first grant");
    for (one, two, first) in [(0, 7, 2), (-3, 0, 2), (7, 7, 1), (i64::MAX, i64::MIN, 1)] {
        let mut bench = one_free_host(Millis(0));
        set_priority(&mut bench, 1, one);
        set_priority(&mut bench, 2, two);
        let other = Uid(3 - first);
        assert_eq!(lose_both(&mut bench), (vec![Uid(first)], vec![other]), "{one} and {two}");
    }
}

#[test]
fn the_last_priority_survives_a_restart() {
    let mut bench = one_free_host(Millis(0));
    set_priority(&mut bench, 2, 7);
    set_priority(&mut bench, 1, 9);
    set_priority(&mut bench, 1, -9);
    bench.restart();
    bench.nodes(fleet());
    bench.exchange(None);
    assert_eq!(
        bench.agent.priorities().map(|(uid, _, priority)| (uid.0, priority)).collect::<Vec<_>>(),
        [(1, -9), (2, 7), (3, 0)]
    );
    assert_eq!(lose_both(&mut bench), (vec![Uid(2)], vec![Uid(1)]));
}

#[test]
fn waiting_gangs_are_served_by_priority() {
    let mut bench = Bench::waiting(Millis::mins(1));
    bench.run(1, plain(4));
    bench.run(2, plain(4));
    bench.run(3, plain(16));
    set_priority(&mut bench, 2, 1);
    assert_eq!(lose_both(&mut bench), (vec![], vec![]), "both wait: no host is free");
    assert!(bench.agent.is_waiting(Uid(1)) && bench.agent.is_waiting(Uid(2)));
    let home = bench.agent.ledger().placement(offer(1))[0].node.clone();
    let other = bench.agent.ledger().placement(offer(2))[0].node.clone();
    // A host returns under another name.
    let mut nodes = without(&[&home, &other]);
    nodes.push(node("b0-r2-h9"));
    bench.nodes(nodes);
    assert!(bench.agent.is_waiting(Uid(1)) && !bench.agent.is_waiting(Uid(2)), "{:?}", bench.effects);
}

#[test]
fn a_priority_of_another_attempt_is_ignored() {
    let mut bench = one_free_host(Millis(0));
    let known = |bench: &Bench| bench.agent.priorities().map(|(_, _, priority)| priority).collect::<Vec<_>>();
    bench.exchange(Some(Command::SetPriority { uid: Uid(1), fence: fence(9), priority: 5 }));
    bench.exchange(Some(Command::SetPriority { uid: Uid(77), fence: fence(77), priority: 5 }));
    assert_eq!(known(&bench), [0, 0, 0]);
}
