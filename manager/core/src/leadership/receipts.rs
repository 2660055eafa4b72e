//! Foreign receipts: signed proof, kept by agents, of leaderships or records that this journal doesn't have.
//! They show that the journal is an old copy, or that another manager leads on a copy of it.

use crate::facts::record::{LeadershipFact, Record};
use crate::facts::submission::RecoveryStart;
use crate::leadership::recovery;
use crate::world::turn::Turn;
use meridian_shared::ids::{ClusterName, Leadership, RecordNumber};
use meridian_shared::protocol::Receipt;
use std::collections::BTreeSet;

/// Receipts that an agent reported, each with the members that it names.
type ReportedReceipts = [(Receipt, Vec<ClusterName>)];

/// Receipts signed with our key that name a leadership or a record which this journal doesn't have. The key
/// outlives journals, so receipts of a lost journal are found too.
pub(crate) fn foreign<'s>(turn: &Turn<'_>, reported: &'s ReportedReceipts) -> Vec<(Leadership, &'s Receipt)> {
    let state = turn.world.state();
    reported
        .iter()
        .filter(|(r, members)| {
            r.mac.as_ref().is_some_and(|m| turn.world.config().receipt_key.verify(&r.message(members), m))
        })
        .filter(|(r, _)| !state.ranges().iter().any(|(l, _, last)| *l == r.leadership && r.record <= *last))
        .map(|(r, _)| (r.leadership, r))
        .collect()
}

/// Opens recovery again under a higher epoch if an inventory holds foreign receipts: the journal has forked.
pub(crate) fn apply_receipts(turn: &mut Turn<'_>, reported: &ReportedReceipts) {
    let foreign: Vec<(Leadership, RecordNumber)> =
        foreign(turn, reported).into_iter().map(|(l, r)| (l, r.record)).collect();
    if !foreign.is_empty() {
        lead_above(turn, foreign, reported);
    }
}

/// Starts a leadership with a higher epoch than every reported one. The manager that wrote the foreign
/// records may still run, so this journal counts as a copy from now on. Exception: an operator has ruled out
/// copies, and recovery still collects reports about the original.
pub(crate) fn lead_above(
    turn: &mut Turn<'_>,
    reported_foreign: Vec<(Leadership, RecordNumber)>,
    reported: &ReportedReceipts,
) {
    let newest_rules = foreign(turn, reported).into_iter().map(|(_, r)| r.rules).max();
    let ours = turn.world.state().leadership();
    let epoch = reported_foreign.iter().map(|(l, _)| l.epoch).max().unwrap_or(0).max(ours.epoch) + 1;
    // Derived from the current times, so that the id differs from that of every other leadership.
    let id = meridian_shared::backoff::splitmix(
        ours.id ^ epoch ^ turn.now.mono.0.rotate_left(32) ^ turn.now.wall.0.unsigned_abs(),
    );
    // A recovery that is already open keeps its reasons.
    let members_unknown = turn.world.state().recovery().as_ref().is_some_and(|r| r.members_unknown);
    let restored = !turn.world.state().copies_ruled_out();
    let open = RecoveryStart { restored, members_unknown };
    let foreign: Vec<_> = reported_foreign.into_iter().filter(|(l, _)| *l != ours).collect();
    let (had_rules, was_behind) = (turn.world.state().rules(), turn.world.state().behind());
    let members = signed_members(turn, reported);
    recovery::take_the_lead(turn, Leadership { epoch, id }, Some(open), foreign, members);
    // If this report is the first sign that the journal is old, other members may know newer rules, even if
    // this agent doesn't. Otherwise rules are already in doubt, or an operator has confirmed them.
    let newer = newest_rules.filter(|r| *r > had_rules);
    if newer.is_some() || !was_behind {
        let (seen, until_heard) = (newer.unwrap_or(had_rules), newer.is_none());
        turn.record(Record::Leadership(LeadershipFact::RulesDoubted { seen, until_heard }));
    }
}

fn signed_members(turn: &Turn<'_>, reported: &ReportedReceipts) -> BTreeSet<ClusterName> {
    reported
        .iter()
        .filter(|(r, m)| {
            r.mac.as_ref().is_some_and(|mac| turn.world.config().receipt_key.verify(&r.message(m), mac))
        })
        .flat_map(|(_, members)| members.iter().cloned())
        .collect()
}
