//! Files that can't be read: they count as damaged, and the scrub goes on.

use super::*;
use crate::audit::document::RemovedLine;

/// A pass that tries again after each failure, as the manager does. Returns the damaged segments and the
/// number of failures.
fn tried(scrub: &mut SegmentScrub) -> (Vec<u64>, usize) {
    let mut failures = 0;
    while scrub.begin(false).is_err() {
        failures += 1;
        assert!(failures < 10, "the pass never begins");
    }
    loop {
        match scrub.step() {
            Ok(ScrubStep::Done) => return (scrub.damaged().keys().copied().collect(), failures),
            Ok(ScrubStep::Read(_)) => {}
            Err(_) => failures += 1,
        }
        assert!(failures < 10, "the pass never ends");
    }
}

#[test]
fn a_segment_that_cannot_be_read_counts_as_damaged_and_later_ones_are_read() {
    let log = Log::with(40);
    let mut scrub = SegmentScrub::new(log.directory.clone(), log.key.public(), log.journal.reader());
    let segments = log.segments();
    let intact = fs::read(&segments[1].path).unwrap();
    // reads of a directory fail, as those of a bad sector do
    fs::remove_file(&segments[1].path).unwrap();
    fs::create_dir(&segments[1].path).unwrap();
    edit(&segments[3], |text| text.replacen("grant", "groom", 1));
    assert_eq!(tried(&mut scrub), (vec![2, 4], 2));
    assert!(scrub.damaged()[&2].starts_with("it can't be read: cannot read"), "{:?}", scrub.damaged());
    fs::remove_dir(&segments[1].path).unwrap();
    fs::write(&segments[1].path, intact).unwrap();
    assert_eq!(tried(&mut scrub), (vec![4], 0));
}

#[test]
fn a_damaged_statement_on_removed_segments_is_said_and_the_rest_is_read() {
    let mut log = Log::with(40);
    log.directory.set_exported(log.cut().segments).unwrap();
    log.retention.bytes_max = Some(5_000);
    log.keep().unwrap();
    let mut scrub = SegmentScrub::new(log.directory.clone(), log.key.public(), log.journal.reader());
    assert_eq!(tried(&mut scrub), (vec![], 0));
    assert_eq!(scrub.damaged_statement(), None);
    let kept = log.segments();
    edit(&kept[1], |text| text.replacen("grant", "groom", 1));
    let path = log.directory.path().join("removed.json");
    let intact = fs::read_to_string(&path).unwrap();
    let unsigned = {
        let mut line: RemovedLine = serde_json::from_str(&intact).unwrap();
        line.removed.through += 1;
        serde_json::to_string(&line).unwrap()
    };
    for (damaged, why) in [(intact.replacen('{', "[", 1), "is damaged"), (unsigned, "signed")] {
        fs::write(&path, damaged).unwrap();
        assert_eq!(tried(&mut scrub), (vec![kept[1].number], 2), "after the tries that failed");
        assert!(scrub.damaged_statement().unwrap().contains(why), "{:?}", scrub.damaged_statement());
        fs::write(&path, &intact).unwrap();
        assert_eq!(tried(&mut scrub), (vec![kept[1].number], 0));
        assert_eq!(scrub.damaged_statement(), None);
    }
}
