//! Lost nodes: their pods get a new node or wait for one, or the attempt ends.
//!
//! A node is lost to a gang when it is gone, has failed, or has a taint that evicts one of the gang's pods
//! (`NoExecute`; Kueue's `TASReplaceNodeOnNodeTaints`). A taint may be tolerated for a limited time
//! (`tolerationSeconds`); the node is lost when that time ends.
//!
//! Only the pods of the lost node get a new node, by the function that placed the gang. Attempt, fence and
//! lease stay. If no node fits, the attempt ends at once as lost (Kueue's
//! `TASFailedNodeReplacementFailFast`), and the manager starts the gang anew; or its pods wait for a node for
//! the configured time, and the manager gets the names of the lost nodes.
//!
//! ```text
//!   node lost ─► fits elsewhere? ─yes─► durable ─► Effect::Move ─► old pods seen ended ─► Moved ─► reported
//!                   │     ▲ └─no, nor any time left─► durable ─► Effect::Stop ─► Ended(NodeLost)
//!                   ▼     │ when the nodes changed, and at the end of the wait
//!                   waiting, reported ─► the node is back ─► reported
//! ```
//!
//! Gangs get nodes by priority, the highest first; among equals, by the time of their grant.
//!
//! The start of a wait and of a toleration is durable: a restarted agent continues with what is left.
//! Invariants: the new placement is durable before any pod is moved; the old one stays charged until the
//! runner has seen its pods ended; until then nothing else of the gang is moved.

use super::Agent;
use crate::ledger::Arrival;
use crate::leg::Phase;
use crate::placement_report;
use crate::runs::{LiveRun, ReplacementOrder, StopCause};
use crate::turn::{Effect, Outcome};
use meridian_shared::ids::{Fence, OfferId, Uid};
use meridian_shared::placement::Placement;
use meridian_shared::protocol::{Event, clean};
use meridian_shared::time::{Millis, Wall};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Most moves of one attempt; a gang that loses more nodes starts anew.
pub const MOVES_MAX: u32 = 16;
/// Most lost nodes that a message names.
const NODES_NAMED_MAX: usize = 4;

impl Agent {
    /// Handles every hold and every run on a lost node.
    pub(super) fn replace_lost_nodes(&mut self, out: &mut Outcome) {
        if !self.ledger.is_known() {
            return;
        }
        self.drop_holds_on_lost_nodes(out);
        let mut losers: Vec<(ReplacementOrder, Uid, BTreeSet<String>)> = self
            .runs
            .iter()
            .map(|(uid, run)| (run.replacement_order(), uid, self.lost_under(run)))
            .filter(|(_, _, lost)| !lost.is_empty())
            .collect();
        losers.sort_unstable();
        for (_, uid, lost) in losers {
            self.replace(uid, &lost, out);
        }
    }

    /// A hold promises no particular nodes, so the manager offers again.
    fn drop_holds_on_lost_nodes(&mut self, out: &mut Outcome) {
        let lost: Vec<(OfferId, Uid)> = self
            .offers
            .iter()
            .filter(|(offer, open)| !self.ledger.lost_nodes(*offer, &open.gang).is_empty())
            .map(|(offer, open)| (offer, open.uid))
            .collect();
        for (offer, uid) in lost {
            self.drop_offer(offer, out);
            self.events.push(Event::Gone { offer, uid, expired: false });
        }
    }

    /// Brings the toleration deadlines of all runs up to date after the nodes changed.
    pub(super) fn count_toleration(&mut self, out: &mut Outcome) {
        if !self.ledger.has_toleration_to_count() {
            return;
        }
        let runs: Vec<_> = self
            .runs
            .iter()
            .filter(|(_, run)| run.can_be_stranded())
            .map(|(uid, run)| (uid, run.record.offer, run.record.gang.clone()))
            .collect();
        for (uid, offer, gang) in runs {
            if self.ledger.count_toleration(offer, &gang, Arrival::Taint) {
                self.store_run(uid, out);
            }
        }
    }

    /// When the next wait or toleration ends.
    pub(super) fn next_replacement_deadline(&self) -> impl Iterator<Item = Wall> + '_ {
        let waits = self
            .replacement_queue
            .iter()
            .filter(|_| self.ledger.is_known())
            .filter_map(|uid| self.waits_until(uid));
        waits.chain(self.ledger.next_toleration_end())
    }

    fn waits_until(&self, uid: Uid) -> Option<Wall> {
        self.runs.get(uid)?.record.waiting_since.map(|since| since + self.config.replacement_wait)
    }

    /// Remaining wait of each run, for the fingerprint of an agent.
    pub(super) fn waits_left(&self) -> Vec<(Uid, Option<Millis>)> {
        let left = |uid: Uid| self.waits_until(uid).map(|until| until.since(self.ledger.now()));
        self.replacement_queue.iter().map(|uid| (uid, left(uid))).collect()
    }

    /// Tries again to replace nodes for waiting runs: after the nodes changed, and at the end of the wait.
    pub(super) fn retry_waiting_replacements(&mut self, out: &mut Outcome) {
        if self.replacement_queue.is_empty() || !self.ledger.is_known() {
            return;
        }
        let changed = self.replacement_queue.is_outdated(self.ledger.revision());
        let order = |uid: Uid| (self.runs.get(uid).map(LiveRun::replacement_order), uid);
        let mut waiting: Vec<(Option<ReplacementOrder>, Uid)> =
            self.replacement_queue.iter().map(order).collect();
        waiting.sort_unstable();
        for (_, uid) in waiting {
            let lost = self.runs.get(uid).map(|run| self.lost_under(run)).unwrap_or_default();
            if lost.is_empty() {
                self.end_wait(uid, out);
            } else if changed || !self.may_wait(uid) {
                self.replace(uid, &lost, out);
            }
        }
        self.replacement_queue.note_tried(self.ledger.revision());
    }

    /// Whether a run may wait longer for a new node.
    fn may_wait(&self, uid: Uid) -> bool {
        self.config.replacement_wait > Millis(0)
            && self.waits_until(uid).is_none_or(|until| self.ledger.now() < until)
    }

    /// Lets a run wait for a new node. Returns false if it has waited long enough.
    fn wait_for_node(&mut self, uid: Uid, out: &mut Outcome) -> bool {
        let may = self.may_wait(uid);
        let now = self.ledger.now();
        let run = self.runs.get_mut(uid).expect("the caller found this run");
        if may && run.record.waiting_since.is_none() {
            run.record.waiting_since = Some(now);
            self.replacement_queue.insert(uid);
            self.store_run(uid, out);
        }
        may
    }

    fn end_wait(&mut self, uid: Uid, out: &mut Outcome) {
        self.replacement_queue.remove(uid);
        let Some(run) = self.runs.get_mut(uid) else { return };
        if run.record.waiting_since.take().is_some() {
            self.store_run(uid, out);
        }
        // The lost node is not needed any more: it is back, or its pods have succeeded.
        self.report_unhealthy(uid, Vec::new(), out);
    }

    /// Reports the nodes that the pods of a run wait to leave.
    fn report_unhealthy(&mut self, uid: Uid, unhealthy: Vec<String>, out: &mut Outcome) {
        let run = self.runs.get_mut(uid).expect("the caller found this run");
        let placed = &run.record.placed;
        let revision = placed.revision.saturating_add(1);
        let report = Placement { revision, unhealthy, ..(**placed).clone() }.bounded();
        if report.unhealthy == placed.unhealthy {
            return;
        }
        run.record.placed = Arc::new(report);
        self.store_run(uid, out);
        self.report_placement(uid);
    }

    /// Reports the state of a run again, and with it the placement.
    fn report_placement(&mut self, uid: Uid) {
        let Some(run) = self.runs.get(uid) else { return };
        let (phase, fence) = (run.phase, run.record.fence);
        match phase {
            Phase::Starting => self.report_accepted(uid, fence),
            Phase::Running => self.report_running(uid, fence),
            Phase::Absent | Phase::Stopping | Phase::Ended => {}
        }
    }

    /// Lost nodes under a run that is not being stopped.
    fn lost_under(&self, run: &LiveRun) -> BTreeSet<String> {
        if !run.can_be_stranded() {
            return BTreeSet::new();
        }
        self.ledger.lost_nodes(run.record.offer, &run.record.gang)
    }

    fn replace(&mut self, uid: Uid, lost: &BTreeSet<String>, out: &mut Outcome) {
        let run = self.runs.get(uid).expect("the caller found this run");
        let (record, replacements) = (&run.record, run.replacements());
        if record.scale_ups.open {
            return; // Tried again when the added pods were handed over.
        }
        let (offer, fence, number) = (record.offer, record.fence, record.moves + 1);
        let gang = record.gang.clone();
        let (has_topology, moving) = (gang.requests_topology(), !self.ledger.leaving(offer).is_empty());
        if moving && !has_topology {
            return; // Tried again when the current move is over.
        }
        let why_not = if has_topology && (moving || lost.len() > 1) {
            Some("a gang with a topology request survives the loss of one node at a time".to_owned())
        } else if replacements >= MOVES_MAX {
            Some(format!("its pods were moved {MOVES_MAX} times already"))
        } else {
            match self.ledger.replace(offer, &gang, lost) {
                Ok(()) => None,
                Err(_) if self.wait_for_node(uid, out) => {
                    return self.report_unhealthy(uid, lost.iter().cloned().collect(), out);
                }
                Err(why) => Some(format!("its pods fit nowhere else: {why}")),
            }
        };
        self.replacement_queue.remove(uid);
        self.runs.get_mut(uid).expect("found above").record.waiting_since = None;
        if let Some(why) = why_not {
            return self.strand(uid, lost, &why, out);
        }
        self.runs.get_mut(uid).expect("found above").record.moves = number;
        self.store_run(uid, out);
        out.act(Effect::Move { uid, fence, number, placement: self.ledger.placement(offer) });
    }

    /// Ends an attempt because its pods fit nowhere else.
    fn strand(&mut self, uid: Uid, lost: &BTreeSet<String>, why: &str, out: &mut Outcome) {
        let evicted = lost.iter().all(|node| self.ledger.is_ready(node));
        let what = if evicted { "evicted pods by a taint" } else { "failed" };
        let message = clean(&format!("{} {what}, and {why}", node_names(lost)));
        self.runs.get_mut(uid).expect("the caller found this run").record.stranded = Some(Arc::from(message));
        self.order_stop(uid, StopCause::Stranded, out);
    }

    /// Ends the attempt of this offer, because the provider takes its nodes back.
    pub(super) fn strand_without_nodes(&mut self, offer: OfferId, why: &str, out: &mut Outcome) {
        let of_offer = |run: &LiveRun| run.record.offer == offer && run.can_be_stranded();
        let Some(uid) = self.runs.iter().find(|(_, run)| of_offer(run)).map(|(uid, _)| uid) else { return };
        self.end_wait(uid, out);
        self.runs.get_mut(uid).expect("found above").record.stranded = Some(Arc::from(clean(why)));
        self.order_stop(uid, StopCause::Stranded, out);
    }

    /// Orders moves and scale-ups again that an earlier session did not see finished.
    pub(super) fn order_open_moves(&self, uid: Uid, out: &mut Outcome) {
        let Some(run) = self.runs.get(uid) else { return };
        let record = &run.record;
        if !self.ledger.leaving(record.offer).is_empty() {
            out.act(Effect::Move {
                uid,
                fence: record.fence,
                number: record.moves,
                placement: self.ledger.placement(record.offer),
            });
        }
        out.act_all(self.open_scale_up(uid));
    }

    /// Number of pods that still move by this move of an attempt; 0 once it is over.
    pub fn moving(&self, uid: Uid, fence: Fence, number: u32) -> usize {
        let run = self.runs.attempt(uid, fence).filter(|run| run.record.moves == number);
        run.map_or(0, |run| self.ledger.leaving(run.record.offer).len())
    }

    /// Whether pods of a run are being moved.
    pub fn is_moving(&self, uid: Uid) -> bool {
        self.runs.get(uid).is_some_and(|run| !self.ledger.leaving(run.record.offer).is_empty())
    }

    /// Whether pods are being added to a run; until they were handed over, none of its pods is moved.
    pub fn is_scaling_up(&self, uid: Uid) -> bool {
        self.runs.get(uid).is_some_and(|run| run.record.scale_ups.open)
    }

    /// Whether pods of a run wait for a new node.
    pub fn is_waiting(&self, uid: Uid) -> bool {
        self.runs.get(uid).is_some_and(|run| run.record.waiting_since.is_some())
    }

    /// Whether this attempt ends because a node was lost and its pods fit nowhere else.
    pub fn is_stranded(&self, uid: Uid, fence: Fence) -> bool {
        let run = self.runs.attempt(uid, fence);
        run.is_some_and(|run| run.record.stopped_by == Some(StopCause::Stranded))
    }

    /// The runner reports that a move, or a scale-up, is finished.
    pub(super) fn on_moved(&mut self, uid: Uid, fence: Fence, number: u32, out: &mut Outcome) {
        let Some(run) = self.runs.attempt_mut(uid, fence).filter(|run| run.record.moves == number) else {
            return;
        };
        let offer = run.record.offer;
        if self.ledger.leaving(offer).is_empty() && !run.record.scale_ups.open {
            return;
        }
        self.ledger.finish_move(offer);
        // A run that waited meanwhile has reported more placements than moves.
        let revision = run.record.placed.revision.saturating_add(1).max(number);
        let placement = self.ledger.placement(offer);
        let report = placement_report::report(revision, &run.record.gang, &placement, &self.ledger);
        run.record.placed = Arc::new(report);
        self.finish_scale_up(uid, out);
        self.store_run(uid, out);
        self.report_placement(uid);
        self.replace_lost_nodes(out);
    }

    /// Checks that each pod on a lost node leaves it or waits for a node, or that its attempt ends.
    pub(super) fn check_nodes(&self, uid: Uid, run: &LiveRun) -> Result<(), String> {
        if !self.ledger.is_known()
            || run.record.scale_ups.open
            || !self.ledger.leaving(run.record.offer).is_empty()
            || self.replacement_queue.contains(uid)
        {
            return Ok(());
        }
        let lost = self.lost_under(run);
        if lost.is_empty() { Ok(()) } else { Err(format!("run {uid} is on lost nodes {lost:?}")) }
    }

    /// Checks that every waiting run is in the queue. Runs in the queue that ended are removed in the next
    /// turn.
    pub(super) fn check_replacement_queue(&self) -> Result<(), String> {
        let waits = |uid: Uid, run: &LiveRun| {
            run.record.waiting_since.is_some() && !self.replacement_queue.contains(uid)
        };
        match self.runs.iter().find(|(uid, run)| waits(*uid, run)) {
            Some((uid, _)) => Err(format!("run {uid} waits for a node and is not in the queue")),
            None => Ok(()),
        }
    }

    /// Checks that no hold is on a lost node.
    pub(super) fn check_holds(&self) -> Result<(), String> {
        let mut held = self.offers.iter();
        match held.find(|(offer, open)| !self.ledger.lost_nodes(*offer, &open.gang).is_empty()) {
            Some((offer, _)) if self.ledger.is_known() => Err(format!("hold {offer} is on a lost node")),
            _ => Ok(()),
        }
    }
}

fn node_names(nodes: &BTreeSet<String>) -> String {
    let names: Vec<String> = nodes.iter().take(NODES_NAMED_MAX).map(|name| format!("`{name}`")).collect();
    let more = nodes.len().saturating_sub(NODES_NAMED_MAX);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("{} {}{more}", if nodes.len() == 1 { "node" } else { "nodes" }, names.join(", "))
}

#[cfg(test)]
mod tests {
    use super::node_names;

    #[test]
    fn a_message_names_four_nodes_and_counts_the_others() {
        let named = |count: usize| node_names(&(1..=count).map(|number| format!("n{number}")).collect());
        assert_eq!(named(1), "node `n1`");
        assert_eq!(named(4), "nodes `n1`, `n2`, `n3`, `n4`");
        assert_eq!(named(6), "nodes `n1`, `n2`, `n3`, `n4` and 2 more");
    }
}
