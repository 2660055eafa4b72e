//! The fast searches: every configuration to its short bound, and a hunt for every planted bug that the model can meet.

#![expect(clippy::print_stdout, reason = "what a search covered is worth reading")]

use meridian_model::configs::{self, Depth};
use meridian_model::hunts::{self, HUNTED};
use meridian_model::model::Seen;
use meridian_model::search::{Findings, Search, search};
use meridian_shared::planted::Bug;

// The harness runs as many tests at a time as there are cores.
const THREADS: usize = 1;

fn holds(name: &str, wanted: &[Seen]) {
    let model = configs::named(name, Depth::Short, None).expect("a known configuration");
    let findings = search(model, Search { threads: THREADS, timeout: None, breadth_first: false });
    println!("{}", findings.line());
    assert_eq!(findings.broken, None);
    assert!(findings.exhausted && findings.enough(), "{}", findings.line());
    assert!(findings.saw(wanted), "a search that meets nothing proves nothing: {}", findings.line());
}

fn hunted(bug: Bug) -> Findings {
    let model = hunts::hunt(bug, true).expect("a hunted bug");
    let findings = search(model, Search { threads: THREADS, timeout: None, breadth_first: true });
    println!("{bug:?}: {}", findings.line());
    findings
}

#[test]
fn crash() {
    holds(
        "crash",
        &[Seen::Granted, Seen::Running, Seen::Recovered, Seen::Ended, Seen::Succeeded, Seen::GrantedAgain],
    );
}

#[test]
fn partition() {
    holds(
        "partition",
        &[Seen::Granted, Seen::Running, Seen::Lapsed, Seen::GrantedAgain, Seen::StartedAgain, Seen::LateHold],
    );
}

#[test]
fn network() {
    holds("network", &[Seen::Granted, Seen::Running]);
}

#[test]
fn restore() {
    holds("restore", &[Seen::Adopted, Seen::Recovered, Seen::Succeeded]);
}

#[test]
fn ledger() {
    holds("ledger", &[Seen::Granted, Seen::Running, Seen::Lapsed, Seen::StartedAgain]);
}

#[test]
fn takeover() {
    holds(
        "takeover",
        &[Seen::Running, Seen::Recovered, Seen::Lapsed, Seen::GrantedAgain, Seen::StartedAgain],
    );
}

#[test]
fn twin() {
    holds("twin", &[Seen::Running, Seen::Recovered]);
}

/// Every planted bug that the model can meet is found, by the search that is meant for it.
#[test]
fn planted_bugs_are_found() {
    let missed: Vec<Bug> = HUNTED.into_iter().filter(|bug| hunted(*bug).broken.is_none()).collect();
    assert!(missed.is_empty(), "not found: {missed:?}");
}

/// Hunts find nothing when nothing is planted. Not done with every change are those that take longer.
#[test]
fn hunts_find_nothing_in_sound_cores() {
    let long = [Bug::TransmissionReused, Bug::FenceReused, Bug::AnswersWithoutClaim];
    // These have one scene with others.
    let same = [
        Bug::MissingFrees,
        Bug::UnknownStopForgotten,
        Bug::ManagerCountsFromAcknowledgement,
        Bug::NoDriftBound,
        Bug::ReportedRunIgnored,
    ];
    let mut refused = false;
    for bug in HUNTED.into_iter().filter(|bug| !long.contains(bug) && !same.contains(bug)) {
        let model = hunts::hunt(bug, false).expect("a hunted bug");
        let findings = search(model, Search { threads: THREADS, timeout: None, breadth_first: false });
        println!("{bug:?}, not planted: {}", findings.line());
        assert!(findings.sound(), "{bug:?}: {:?}", findings.broken);
        refused |= findings.saw(&[Seen::GrantRefused]);
    }
    assert!(refused, "no agent refused a grant that came too late");
}
