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
