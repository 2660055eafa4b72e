//! Leases while wall clocks are set and machines are paused, in one session and over a restart.

use super::*;
use meridian_shared::protocol::{Event, GrantRefusal};

#[test]
fn a_grant_is_refused_after_a_pause() {
    let mut bench = Bench::new();
    bench.offer();
    bench.set(-HOUR);
    bench.pass(1_000);
    let request = bench.ask();
    bench.pause(TERM.0 + 20_000);
    bench.answer(&request, vec![grant()]);
    assert!(!bench.starts(), "{:?}", bench.effects);
    let news = bench.ask().events;
    assert!(
        news.iter().any(|event| matches!(event, Event::GrantRefused { why: GrantRefusal::Lapsed, .. })),
        "{news:?}"
    );
}

/// Minutes of a lease that `change` takes.
fn minutes_taken(change: &dyn Fn(&mut Bench)) -> u64 {
    let running = || {
        let mut bench = Bench::new();
        bench.run();
        bench
    };
    let mut bench = running();
    change(&mut bench);
    running().minutes_left() - bench.minutes_left()
}

fn observed_pause(bench: &mut Bench) {
    bench.pause(5 * MINUTE);
    bench.apply(Input::Tick);
}

fn observed_set_back(bench: &mut Bench) {
    bench.set(-HOUR);
    bench.apply(Input::Tick);
}

#[test]
fn every_pause_shortens_a_lease() {
    type Change = fn(&mut Bench);
    let (pause, set_back): (Change, Change) = (observed_pause, observed_set_back);
    for (changes, minutes) in [
        (&[set_back][..], 0),
        (&[set_back, pause], 5),
        (&[pause, set_back], 5),
        (&[pause, set_back, pause], 10),
    ] {
        let taken = minutes_taken(&|bench| changes.iter().for_each(|change| change(bench)));
        assert_eq!(taken, minutes, "{} changes", changes.len());
    }
}

#[test]
fn every_pause_shortens_a_lease_over_restarts() {
    type Change = fn(&mut Bench);
    let (pause, set_back, restart): (Change, Change, Change) =
        (observed_pause, observed_set_back, Bench::restart);
    let unobserved_pause: Change = |bench| bench.pause(5 * MINUTE);
    let unobserved_set_back: Change = |bench| bench.set(-HOUR);
    for (changes, minutes) in [
        (&[pause, restart][..], 5),
        (&[set_back, unobserved_pause, restart], 5),
        (&[pause, set_back, restart], 5),
        (&[pause, set_back, restart, pause], 10),
        (&[unobserved_set_back, restart, pause, restart], 5),
    ] {
        let taken = minutes_taken(&|bench| changes.iter().for_each(|change| change(bench)));
        assert_eq!(taken, minutes, "{} changes", changes.len());
    }
}
