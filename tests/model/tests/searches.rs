//! The fast searches: every configuration to its short bound, and a hunt for every planted bug that the model
//! can find.

#![expect(clippy::print_stdout, reason = "the log of a search shows what it covered")]

use meridian_model::action::Covered;
use meridian_model::configs::{self, Depth};
use meridian_model::hunts::{self, HUNTED};
use meridian_model::search::{Findings, Search, search};
use meridian_shared::planted::Bug;

/// Threads per search; the harness runs one test per core.
const THREADS: usize = 1;

fn holds(name: &str, required: &[Covered]) {
    let model = configs::named(name, Depth::Short, None).expect("a known configuration");
    let findings = search(model, Search { threads: THREADS, timeout: None, breadth_first: false });
    println!("{}", findings.line());
    assert_eq!(findings.broken, None);
    assert!(findings.exhausted && findings.enough(), "{}", findings.line());
    assert!(findings.covers(required), "a search that covers nothing proves nothing: {}", findings.line());
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
        &[
            Covered::Granted,
            Covered::Running,
            Covered::Recovered,
            Covered::Ended,
            Covered::Succeeded,
            Covered::GrantedAgain,
        ],
    );
}

#[test]
fn partition() {
    holds(
        "partition",
        &[
            Covered::Granted,
            Covered::Running,
            Covered::Lapsed,
            Covered::GrantedAgain,
            Covered::StartedAgain,
            Covered::LateHold,
        ],
    );
}

#[test]
fn network() {
    holds("network", &[Covered::Granted, Covered::Running]);
}

#[test]
fn restore() {
    holds("restore", &[Covered::Adopted, Covered::Recovered, Covered::Succeeded]);
}

#[test]
fn ledger() {
    holds("ledger", &[Covered::Granted, Covered::Running, Covered::Lapsed, Covered::StartedAgain]);
}

#[test]
fn takeover() {
    holds(
        "takeover",
        &[
            Covered::Running,
            Covered::Recovered,
            Covered::Lapsed,
            Covered::GrantedAgain,
            Covered::StartedAgain,
        ],
    );
}

#[test]
fn twin() {
    holds("twin", &[Covered::Running, Covered::Recovered]);
}

#[test]
fn planted_bugs_are_found() {
    let missed: Vec<Bug> = HUNTED.into_iter().filter(|bug| hunted(*bug).broken.is_none()).collect();
    assert!(missed.is_empty(), "not found: {missed:?}");
}

#[test]
fn hunts_find_nothing_without_a_bug() {
    // The searches for these bugs take too long to run for every change.
    let long = [Bug::TransmissionReused, Bug::FenceReused, Bug::AnswersWithoutClaim];
    // The searches for these bugs are the same as those for other bugs.
    let same = [
        Bug::MissingFrees,
        Bug::UnknownStopForgotten,
        Bug::ManagerCountsFromAcknowledgement,
        Bug::NoDriftBound,
        Bug::ReportedRunIgnored,
    ];
    let (mut refused, mut confirmed) = (false, false);
    for bug in HUNTED.into_iter().filter(|bug| !long.contains(bug) && !same.contains(bug)) {
        let model = hunts::hunt(bug, false).expect("a hunted bug");
        let findings = search(model, Search { threads: THREADS, timeout: None, breadth_first: false });
        println!("{bug:?}, not planted: {}", findings.line());
        assert!(findings.sound(), "{bug:?}: {:?}", findings.broken);
        refused |= findings.covers(&[Covered::GrantRefused]);
        confirmed |= findings.covers(&[Covered::ConfirmedEarly, Covered::Lapsed]);
    }
    assert!(refused, "no agent refused a late grant");
    assert!(confirmed, "no restored journal was confirmed while a cluster was awaited");
}
