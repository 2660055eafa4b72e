//! The fast searches: every configuration to its short bound, and a hunt for every planted bug that the model can meet.

use meridian_model::configs::{self, Depth};
use meridian_model::hunts::{self, HUNTED};
use meridian_model::model::Seen;
use meridian_model::search::{Findings, Search, search};
use meridian_shared::planted::Bug;

// The harness runs two tests at a time.
const THREADS: usize = 1;

fn holds(name: &str, wanted: &[Seen]) {
    let model = configs::named(name, Depth::Short, None).expect("a known configuration");
    let findings = search(model, Search { threads: THREADS, timeout: None, breadth_first: false });
    println!("{}", findings.line());
    assert_eq!(findings.broken, None);
    assert!(findings.exhausted);
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
    holds("crash", &[Seen::Granted, Seen::Running, Seen::Recovered, Seen::Ended, Seen::Succeeded, Seen::GrantedAgain]);
}

#[test]
fn partition() {
    holds("partition", &[Seen::Granted, Seen::Running, Seen::Lapsed, Seen::GrantedAgain, Seen::StartedAgain, Seen::LateHold, Seen::GrantRefused]);
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
    holds("takeover", &[Seen::Running, Seen::Recovered]);
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

/// Smaller hunts find nothing when nothing is planted; the larger ones are inside the configurations' bounds.
#[test]
fn hunts_find_nothing_in_sound_cores() {
    let small = [Bug::NewLedgerFrees, Bug::StartBeforeDurable, Bug::AnyFenceFrees, Bug::EndForgotten, Bug::RestartForgetsLeases, Bug::RecoveryDispatches];
    for bug in small {
        let model = hunts::hunt(bug, false).expect("a hunted bug");
        let findings = search(model, Search { threads: THREADS, timeout: None, breadth_first: false });
        assert_eq!(findings.broken, None, "{bug:?}");
    }
}
