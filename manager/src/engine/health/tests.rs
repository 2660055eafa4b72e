//! Problems that are reported, and their metrics.

use super::*;

#[test]
fn problems_are_listed_while_they_last() {
    let health = Health::new(Metrics::new("test"));
    assert_eq!(health.problems(), Vec::<String>::new());
    health.observe(true, 2);
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
    health.observe(false, 0);
    health.set_part(Part::Audit, false);
    assert_eq!(health.problems(), Vec::<String>::new());
}

#[test]
fn what_is_waited_for_and_kept_back_is_said() {
    let health = Health::new(Metrics::new("test"));
    assert!(health.pause().starts_with("this manager is starting, or stopping; until it leads, nothing is"));
    health.set_pause("waiting for X".to_owned());
    assert!(health.pause().starts_with("waiting for X; until it leads"), "{}", health.pause());
    assert!(health.holds().is_empty());
    health.observe_holds(Holds { recovery: Some(2), rules_in_doubt: true });
    let holds = health.holds();
    assert!(holds[0].contains("2 clusters haven't reported yet what they run"), "{holds:?}");
    assert!(holds[0].contains("jobs from before this start are kept back, new ones start"), "{holds:?}");
    assert!(holds[1].contains("nothing is offered until"), "{holds:?}");
    assert!(health.problems().is_empty());
}
