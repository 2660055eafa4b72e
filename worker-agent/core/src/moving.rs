//! What follows from the loss of a node: who stands there moves, or ends. A node is lost to a gang when it is gone, has failed,
//! or got a taint that drives one of its pods away (`NoExecute`; Kueue's `TASReplaceNodeOnNodeTaints`).
//!
//! Only the pods of the lost node get another place, by the function that placed the gang; the attempt, its fence and its
//! lease stay what they are. Where there is no such place the attempt ends at once as lost (Kueue's
//! `TASFailedNodeReplacementFailFast`), and the manager starts the gang anew, here or elsewhere.
//!
//! ```text
//!   node gone or failed ─► other places? ─yes─► durable ─► Effect::Move ─► old pods seen ended ─► Moved ─► told
//!                               └─no──────────► durable ─► Effect::Stop ─► Ended(NodeLost)
//! ```
//!
//! Invariants: the new places are durable before anybody is moved; the old ones stay charged until the runner has seen the
//! pods there ended; while that lasts nothing else of the gang is moved.

use crate::leg::{Happening, Phase, Step, step};
use crate::{Agent, Effect, LiveRun, OfferState, Outcome, StopCause, placed};
use meridian_shared::ids::{Fence, OfferId, Uid};
use meridian_shared::protocol::{Event, clean};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Moves of one attempt at most; who loses more nodes starts anew.
pub const MOVES_MAX: u32 = 16;
/// Lost nodes that a message names.
const NODES_NAMED_MAX: usize = 4;

impl Agent {
    /// Looks after everybody who stands on a lost node.
    pub(crate) fn look_after_nodes(&mut self, out: &mut Outcome) {
        if !self.ledger.is_told() {
            return;
        }
        // A hold is no promise of certain nodes: the manager asks again.
        let stranded = |(offer, _): &(OfferId, Uid)| !self.ledger.lost(*offer, &self.offers[offer].gang).is_empty();
        let held: Vec<(OfferId, Uid)> = self.held().filter(stranded).collect();
        for (offer, uid) in held {
            self.drop_offer(offer, out);
            self.say(Event::Gone { offer, uid, expired: false });
        }
        let losers: Vec<(Uid, BTreeSet<String>)> =
            self.runs.iter().map(|(uid, run)| (*uid, self.lost_under(run))).filter(|(_, lost)| !lost.is_empty()).collect();
        for (uid, lost) in losers {
            self.replace(uid, &lost, out);
        }
    }

    /// Nodes that are lost under a run that stands on them.
    fn lost_under(&self, run: &LiveRun) -> BTreeSet<String> {
        match &run.gang {
            Some(gang) if step(run.phase, Happening::Stranded) == Step::Stop => self.ledger.lost(run.offer, gang),
            _ => BTreeSet::new(),
        }
    }

    fn replace(&mut self, uid: Uid, lost: &BTreeSet<String>, out: &mut Outcome) {
        let run = &self.runs[&uid];
        let (offer, fence, number) = (run.offer, run.fence, run.moves + 1);
        let Some(gang) = run.gang.clone() else { return };
        let (near, moving) = (gang.wants_topology(), !self.ledger.leaving(offer).is_empty());
        if moving && !near {
            // Looked at again once the move under way is over.
            return;
        }
        let why_not = if near && (moving || lost.len() > 1) {
            Some("a gang that asks for a place in a topology survives the loss of one node at a time".to_owned())
        } else if number > MOVES_MAX {
            Some(format!("its pods were moved {MOVES_MAX} times already"))
        } else {
            self.ledger.replace(offer, &gang, lost).err().map(|why| format!("there is no other place for its pods: {why}"))
        };
        if let Some(why) = why_not {
            let what = if lost.iter().all(|node| self.ledger.is_well(node)) { "drove pods away by a taint" } else { "failed" };
            let words = clean(&format!("{} {what}, and {why}", in_words(lost)));
            self.runs.get_mut(&uid).expect("found above").stranded = Some(Arc::from(words));
            return self.order_stop(uid, StopCause::Stranded, out);
        }
        self.runs.get_mut(&uid).expect("found above").moves = number;
        self.store_run(uid, out);
        out.effects.push(Effect::Move { uid, fence, number, placement: self.ledger.placement(offer) });
    }

    /// Orders again a move of which an earlier session wasn't told that it is over.
    pub(crate) fn move_again(&self, uid: Uid, out: &mut Outcome) {
        let run = &self.runs[&uid];
        if !self.ledger.leaving(run.offer).is_empty() {
            out.effects.push(Effect::Move { uid, fence: run.fence, number: run.moves, placement: self.ledger.placement(run.offer) });
        }
    }

    /// Pods that this move of an attempt has under way; none once it is over.
    pub fn moving(&self, uid: Uid, fence: Fence, number: u32) -> usize {
        let run = self.runs.get(&uid).filter(|run| run.fence == fence && run.moves == number);
        run.map_or(0, |run| self.ledger.leaving(run.offer).len())
    }

    /// Whether this attempt ends because a node of it is lost and its pods have no other place.
    pub fn is_stranded(&self, uid: Uid, fence: Fence) -> bool {
        self.runs.get(&uid).is_some_and(|run| run.fence == fence && run.stopped_by == Some(StopCause::Stranded))
    }

    /// The pods that had to move are where they belong.
    pub(crate) fn on_moved(&mut self, uid: Uid, fence: Fence, number: u32, out: &mut Outcome) {
        let Some(run) = self.runs.get_mut(&uid).filter(|run| run.fence == fence && run.moves == number) else { return };
        let (offer, phase) = (run.offer, run.phase);
        if self.ledger.leaving(offer).is_empty() {
            return;
        }
        self.ledger.left(offer);
        if let Some(gang) = &run.gang {
            run.placed = Some(Arc::new(placed::told(number, gang, &self.ledger.placement(offer), &self.ledger)));
        }
        self.store_run(uid, out);
        match phase {
            Phase::Starting => self.say_accepted(uid, fence),
            Phase::Running => self.say_running(uid, fence),
            Phase::Absent | Phase::Stopping | Phase::Buried => {}
        }
        self.look_after_nodes(out);
    }

    /// Nobody stands on a lost node, unless it is about to leave it or to end.
    pub(crate) fn check_nodes(&self, uid: Uid, run: &LiveRun) -> Result<(), String> {
        if !self.ledger.is_told() || !self.ledger.leaving(run.offer).is_empty() {
            return Ok(());
        }
        let lost = self.lost_under(run);
        if lost.is_empty() { Ok(()) } else { Err(format!("run {uid} stands on lost nodes {lost:?}")) }
    }

    /// Offers that hold room on a lost node: none.
    pub(crate) fn check_holds(&self) -> Result<(), String> {
        let stands =
            |(offer, open): &(&OfferId, &crate::OpenOffer)| matches!(open.state, OfferState::Held { .. }) && !self.ledger.lost(**offer, &open.gang).is_empty();
        match self.offers.iter().find(stands) {
            Some((offer, _)) if self.ledger.is_told() => Err(format!("hold {offer} stands on a lost node")),
            _ => Ok(()),
        }
    }
}

fn in_words(lost: &BTreeSet<String>) -> String {
    let names: Vec<String> = lost.iter().take(NODES_NAMED_MAX).map(|name| format!("`{name}`")).collect();
    let more = if lost.len() > NODES_NAMED_MAX { format!(" and {} more", lost.len() - NODES_NAMED_MAX) } else { String::new() };
    format!("{} {}{more}", if lost.len() == 1 { "node" } else { "nodes" }, names.join(", "))
}
