//! Problems that are reported, and their metrics.

use super::*;

#[test]
fn problems_are_listed_while_they_last() {
    let health = Health::new(Metrics::new("test"));
    assert_eq!(health.problems(), Vec::<String>::new());
    health.observe(DiskState { refuses: true, found_full: true }, 2);
    health.set_part(Part::Audit, true);
    let problems = health.problems();
    assert_eq!(problems.len(), 3, "{problems:?}");
    assert!(problems[0].contains("disk of the manager's journal is full"), "{problems:?}");
    assert!(problems[1].starts_with("2 jobs have a damaged manifest"), "{problems:?}");
    assert!(problems[2].contains("the journal's audit log can't be read"), "{problems:?}");
    assert!(problems[0].contains("pending jobs are kept back; running gangs continue"), "{problems:?}");
    let text = health.metrics.render(&[]);
    for line in [
        "meridian_journal_full 1",
        "meridian_journal_damaged{part=\"manifests\"} 2",
        "meridian_journal_damaged{part=\"audit\"} 1",
        "meridian_journal_damaged{part=\"records\"} 0",
    ] {
        assert!(text.lines().any(|other| other == line), "{line}");
    }
    health.observe(DiskState::default(), 0);
    health.set_part(Part::Audit, false);
    health.set_segments(BTreeSet::from([3, 7]), false);
    let problems = health.problems();
    assert!(problems[0].starts_with("segment 3 of the audit log and 1 more are damaged"), "{problems:?}");
    assert!(health.metrics.render(&[]).contains("meridian_journal_damaged{part=\"audit\"} 1"));
    health.set_segments(BTreeSet::new(), true);
    let problems = health.problems();
    assert!(
        problems.len() == 1 && problems[0].starts_with("`removed.json` of the audit log"),
        "{problems:?}"
    );
    assert!(health.metrics.render(&[]).contains("meridian_journal_damaged{part=\"audit\"} 1"));
    health.set_segments(BTreeSet::new(), false);
    assert_eq!(health.problems(), Vec::<String>::new());
}

#[test]
fn a_disk_is_full_while_work_is_refused_or_no_space_is_left() {
    let health = Health::new(Metrics::new("test"));
    let is_full = || health.problems().iter().any(|problem| problem.contains("journal is full"));
    health.observe_free(FREE_BYTES_MIN);
    assert!(!is_full());
    health.observe_free(0);
    assert!(is_full() && health.problems()[0].contains("only the space reserved"), "nothing is refused yet");
    // new work is tried again after a pause, which says nothing about the disk
    health.disk_is_full();
    health.observe(DiskState { refuses: false, found_full: true }, 0);
    assert!(is_full() && health.problems()[0].contains("new jobs and changes are refused"));
    health.observe_free(RESERVE_BYTES);
    assert!(is_full(), "the reserve may be in use");
    health.observe_free(FREE_BYTES_ENOUGH);
    assert!(!is_full());
    health.observe_free(RESERVE_BYTES);
    health.observe(DiskState::default(), 0);
    assert!(!is_full(), "new work was stored");
}

#[test]
fn what_is_waited_for_and_kept_back_is_said() {
    let health = Health::new(Metrics::new("test"));
    assert!(health.pause().starts_with("this manager is starting, or stopping; until it leads, nothing is"));
    health.set_pause("waiting for X".to_owned());
    assert!(health.pause().starts_with("waiting for X; until it leads"), "{}", health.pause());
    assert!(health.holds().is_empty());
    health.observe_holds(Holds { recovery: Some(2), unconfirmed: true, rules_in_doubt: true });
    let holds = health.holds();
    assert!(holds[0].contains("2 clusters haven't reported yet what they run"), "{holds:?}");
    assert!(
        holds[0].contains("jobs that were submitted before the manager started may be held (see"),
        "{holds:?}"
    );
    assert!(holds[1].contains("nothing is offered until"), "{holds:?}");
    health.observe_holds(Holds { recovery: Some(1), unconfirmed: false, rules_in_doubt: false });
    assert!(health.holds()[0].contains("may be held, and new ones start"), "{:?}", health.holds());
    assert!(health.problems().is_empty());
}
