//! Thousands of crash points: no acknowledged commit is lost, none appears in part, and every open succeeds.

use super::*;
use crate::journal::{Error, ReloadOutcome};

/// Counts of what happened, so that a run that proves nothing fails.
#[derive(Debug, Default)]
struct CrashCounts {
    crashes: u32,
    crashes_in_recovery: u32,
    commits: u32,
    unknown_kept: u32,
    unknown_lost: u32,
    cuts: u64,
    failed_syncs: u32,
}

/// One journal through many crashes.
struct JournalHistory {
    random: Random,
    disk: FaultyDisk,
    journal: RedbJournal,
    expect: Contents,
    epoch: u64,
}

impl JournalHistory {
    fn new(seed: u64) -> Self {
        let lose = [8, 128, 512, 900][seed as usize % 4];
        let disk = FaultyDisk::new(seed, 42, Faults { lose, tear: lose, ..Faults::default() });
        let journal = RedbJournal::init_on(disk.clone(), ID, MADE).unwrap();
        Self { random: Random(seed), disk, journal, expect: Contents::default(), epoch: 1 }
    }

    fn batch(&mut self) -> Batch {
        let random = &mut self.random;
        let mut batch = Batch::new(Leadership { epoch: self.epoch, id: 1 }, RecordNumber(self.expect.last));
        batch.first.0 += random.below(20) / 19 * random.below(1000);
        batch.records = (0..random.below(6)).map(|_| random.bytes(700)).collect();
        batch.audit = (0..random.below(3)).map(|_| random.bytes(90)).collect();
        batch.audit_cut = self.expect.next_cut(random);
        batch.bodies = (0..random.below(3) / 2)
            .map(|_| (ContentHash(random.below(12).into()), random.bytes(9_000)))
            .collect();
        batch.drop_bodies = (0..random.below(3) / 2).map(|_| ContentHash(random.below(12).into())).collect();
        if random.below(8) == 0 {
            let floor = self.expect.snapshot.as_ref().map_or(0, |snapshot| snapshot.through.0);
            let through = RecordNumber(floor + random.below(batch.last().0 - floor + 1));
            batch.snapshot = Some(Snapshot { through, bytes: random.bytes(5_000) });
        }
        batch
    }

    fn contents(&self) -> Contents {
        Contents::of(&self.journal, 0..12)
    }

    /// Commits under a fault until one commit fails. Returns the contents that it would have made.
    fn commit_until_failure(&mut self, counts: &mut CrashCounts) -> Option<Contents> {
        for _ in 0..8 {
            let batch = self.batch();
            let next = self.expect.after(&batch);
            match self.journal.commit(&batch) {
                Ok(()) => {
                    self.expect = next;
                    counts.commits += 1;
                }
                Err(Error::Io { .. }) => return Some(next),
                Err(other) => panic!("{other}"),
            }
        }
        None
    }

    /// Checks that the journal holds the acknowledged commits, or those and the whole commit of unknown
    /// outcome.
    fn check_contents(&mut self, unknown: Option<Contents>, counts: &mut CrashCounts) -> bool {
        let found = self.contents();
        if found == self.expect {
            counts.unknown_lost += u32::from(unknown.is_some());
            return false;
        }
        assert_eq!(Some(&found), unknown.as_ref(), "acknowledged: {:?}", self.expect.last);
        counts.unknown_kept += 1;
        self.expect = found;
        true
    }

    fn crash_and_reopen(&mut self, counts: &mut CrashCounts) {
        let operations = self.random.below(30);
        self.disk.power_off_after(operations);
        let unknown = self.commit_until_failure(counts);
        self.disk = if self.random.below(5) == 0 { self.disk.kill() } else { self.disk.crash() };
        counts.crashes += 1;
        while self.random.below(4) == 0 {
            let operations = self.random.below(6);
            self.disk.power_off_after(operations);
            drop(RedbJournal::open_on(self.disk.clone()));
            self.disk = self.disk.crash();
            counts.crashes += 1;
            counts.crashes_in_recovery += 1;
        }
        self.journal = RedbJournal::open_on(self.disk.clone()).expect("every open succeeds");
        self.check_contents(unknown, counts);
        counts.cuts = counts.cuts.max(self.expect.audit_cut.segments);
        self.epoch += 1;
    }

    fn fail_a_sync(&mut self, counts: &mut CrashCounts) {
        self.disk.fail_syncs(1);
        let Some(unknown) = self.commit_until_failure(counts) else {
            panic!("a failed sync must fail a commit")
        };
        counts.failed_syncs += 1;
        assert!(matches!(self.journal.heartbeat(), Err(Error::ReloadRequired { .. })));
        let found = self.journal.reload().expect("every reload succeeds");
        let same = self.expect == unknown;
        let kept = self.check_contents(Some(unknown), counts);
        assert!(
            same || found == if kept { ReloadOutcome::CommitCompleted } else { ReloadOutcome::Acknowledged },
            "{found:?}"
        );
    }
}

#[test]
fn no_crash_loses_or_invents_a_commit() {
    let mut counts = CrashCounts::default();
    for seed in 0..40 {
        let mut history = JournalHistory::new(seed);
        for _ in 0..80 {
            match history.random.below(6) {
                0 => history.fail_a_sync(&mut counts),
                _ => history.crash_and_reopen(&mut counts),
            }
        }
    }
    assert!(
        counts.crashes >= 3_000 && counts.crashes_in_recovery >= 300 && counts.failed_syncs >= 200,
        "{counts:?}"
    );
    assert!(counts.cuts >= 8, "{counts:?}");
    assert!(
        counts.unknown_kept >= 100 && counts.unknown_lost >= 300 && counts.commits >= 2_000,
        "{counts:?}"
    );
}

#[test]
fn one_seed_gives_one_history() {
    let run = || {
        let mut counts = CrashCounts::default();
        let mut history = JournalHistory::new(7);
        for _ in 0..20 {
            history.crash_and_reopen(&mut counts);
        }
        (format!("{counts:?}"), history.expect, history.journal.chain(), history.disk.image())
    };
    assert!(run() == run());
}
