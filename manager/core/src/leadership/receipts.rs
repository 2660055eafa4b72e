//! What an agent really has, against what the journal says: adoption, orphans, and runs that nobody should run.
//!
//! A missing run frees nothing: a grant that isn't in the inventory is asked to be buried, and only the grave's
//! confirmation, or the lapse, frees it. A reported run of a known uid becomes its leg if nothing larger is known.

use crate::facts::record::{LeadershipFact, Record};
use crate::facts::submission::RecoveryStart;
use crate::leadership::recovery;
use crate::world::turn::Turn;
use meridian_shared::ids::{ClusterName, Leadership, RecordNumber};
use meridian_shared::protocol::Receipt;
use std::collections::BTreeSet;

type Shown = [(Receipt, Vec<ClusterName>)];

/// Receipts with our own code that speak of leaderships or records which this journal doesn't have. The key outlives
/// journals, so a journal that was lost speaks here, too.
pub(crate) fn foreign<'s>(turn: &Turn<'_>, shown: &'s Shown) -> Vec<(Leadership, &'s Receipt)> {
    let state = &turn.world.state;
    shown
        .iter()
        .filter(|(r, members)| {
            r.mac.as_ref().is_some_and(|m| turn.world.config.receipt_key.verify(&r.message(members), m))
        })
        .filter(|(r, _)| !state.ranges().iter().any(|(l, _, last)| *l == r.leadership && r.record <= *last))
        .map(|(r, _)| (r.leadership, r))
        .collect()
}

/// A signed report of records that are in no range is a fork, at any time: recovery opens again, above all of them.
pub(crate) fn apply_receipts(turn: &mut Turn<'_>, shown: &Shown) {
    let foreign: Vec<(Leadership, RecordNumber)> =
        foreign(turn, shown).into_iter().map(|(l, r)| (l, r.record)).collect();
    if !foreign.is_empty() {
        above(turn, foreign, shown);
    }
}

/// Takes a higher epoch than what was shown. Whoever wrote that may still be alive, so this journal counts as a copy.
pub(crate) fn above(turn: &mut Turn<'_>, shown_foreign: Vec<(Leadership, RecordNumber)>, shown: &Shown) {
    let newest_rules = foreign(turn, shown).into_iter().map(|(_, r)| r.rules).max();
    let ours = turn.world.state.leadership();
    let epoch = shown_foreign.iter().map(|(l, _)| l.epoch).max().unwrap_or(0).max(ours.epoch) + 1;
    // The id must differ from every other start's: it is derived from what only this moment knows.
    let id = meridian_shared::backoff::splitmix(
        ours.id ^ epoch ^ turn.now.mono.0.rotate_left(32) ^ turn.now.wall.0.unsigned_abs(),
    );
    // What is open stays open with all that it was opened for; and somebody else may still speak for these records.
    let members_unknown = turn.world.state.recovery().as_ref().is_some_and(|r| r.members_unknown);
    let open = RecoveryStart { restored: true, members_unknown };
    let known: BTreeSet<Leadership> = turn.world.state.ranges().iter().map(|(l, _, _)| *l).collect();
    let foreign: Vec<_> =
        shown_foreign.into_iter().filter(|(l, _)| !known.contains(l) || *l != ours).collect();
    let had_rules = turn.world.state.rules();
    let members = foreign_members(turn, shown);
    recovery::take_the_lead(turn, Leadership { epoch, id }, Some(open), foreign, members);
    if let Some(seen) = newest_rules.filter(|r| *r > had_rules) {
        turn.record(Record::Leadership(LeadershipFact::RulesDoubted { seen }));
    }
}

fn foreign_members(turn: &Turn<'_>, shown: &Shown) -> BTreeSet<ClusterName> {
    shown
        .iter()
        .filter(|(r, m)| {
            r.mac.as_ref().is_some_and(|mac| turn.world.config.receipt_key.verify(&r.message(m), mac))
        })
        .flat_map(|(_, members)| members.iter().cloned())
        .collect()
}
