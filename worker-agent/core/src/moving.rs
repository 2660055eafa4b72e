//! What follows from the loss of a node: who stands there moves, or ends. A node is lost to a gang when it is gone, has failed,
//! or got a taint that drives one of its pods away (`NoExecute`; Kueue's `TASReplaceNodeOnNodeTaints`).
//!
//! Only the pods of the lost node get another place, by the function that placed the gang; the attempt, its fence and its
//! lease stay what they are. Where there is no such place the attempt ends at once as lost (Kueue's
//! `TASFailedNodeReplacementFailFast`), and the manager starts the gang anew, here or elsewhere; or else it waits for one as
//! long as the agent is set to, and the manager is told of which nodes.
//!
//! ```text
//!   node lost ─► other places? ─yes─► durable ─► Effect::Move ─► old pods seen ended ─► Moved ─► told
//!                   │     ▲ └─no, nor any time left─► durable ─► Effect::Stop ─► Ended(NodeLost)
//!                   ▼     │ when anything changed on the nodes, and at the end of the wait
//!                   waiting, told ─► the node is back ─► told
//! ```
//!
//! How long it has waited isn't durable: a restarted agent waits anew.
//! Invariants: the new places are durable before anybody is moved; the old ones stay charged until the runner has seen the
//! pods there ended; while that lasts nothing else of the gang is moved.

use crate::leg::{Happening, Phase, Step, step};
use crate::{Agent, Effect, LiveRun, OfferState, Outcome, StopCause, placed};
use meridian_shared::ids::{Fence, OfferId, Uid};
use meridian_shared::placement::Placement;
use meridian_shared::protocol::{Event, clean};
use meridian_shared::time::{Millis, Mono};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Moves of one attempt at most; who loses more nodes starts anew.
pub const MOVES_MAX: u32 = 16;
/// Lost nodes that a message names.
const NODES_NAMED_MAX: usize = 4;

/// For how long a run waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Patience {
    /// It has only begun to.
    Begun,
    Until(Mono),
    Over,
}

/// Runs with pods of a lost node that wait for another place.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Waiting {
    runs: BTreeMap<Uid, Patience>,
    /// The ledger as it was when a place was looked for last.
    seen: u64,
}

impl Waiting {
    /// When each wait ends.
    pub(crate) fn due(&self) -> impl Iterator<Item = Mono> + '_ {
        self.runs.values().map(|patience| match patience {
            Patience::Begun | Patience::Over => Mono(0),
            Patience::Until(until) => *until,
        })
    }

    /// How long each still waits at `now`.
    pub(crate) fn left(&self, now: Mono) -> Vec<(Uid, Millis)> {
        self.runs.keys().copied().zip(self.due().map(|until| until.since(now))).collect()
    }
}

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
        let told = |run: &LiveRun| run.placed.as_ref().is_some_and(|placed| !placed.unhealthy.is_empty());
        let well = |run: &LiveRun| self.lost_under(run).is_empty() && self.ledger.leaving(run.offer).is_empty();
        let back: Vec<Uid> = self.runs.iter().filter(|(_, run)| told(run) && well(run)).map(|(uid, _)| *uid).collect();
        for uid in back {
            self.tell_unhealthy(uid, Vec::new(), out);
        }
    }

    /// Looks for places again for whoever waits: where anything changed on the nodes, and once more at the end of the wait.
    pub(crate) fn look_after_waiting(&mut self, at: Mono, out: &mut Outcome) {
        if self.waiting.runs.is_empty() {
            return;
        }
        let mut runs = std::mem::take(&mut self.waiting.runs);
        runs.retain(|uid, _| self.runs.get(uid).is_some_and(|run| !self.lost_under(run).is_empty()));
        for patience in runs.values_mut() {
            match *patience {
                Patience::Begun => *patience = Patience::Until(at + self.config.replacement_wait),
                Patience::Until(until) if at >= until => *patience = Patience::Over,
                Patience::Until(_) | Patience::Over => {}
            }
        }
        let changed = self.waiting.seen != self.ledger.revision();
        let again: Vec<Uid> = runs.iter().filter(|(_, patience)| changed || **patience == Patience::Over).map(|(uid, _)| *uid).collect();
        self.waiting.runs = runs;
        for uid in again {
            let lost = self.lost_under(&self.runs[&uid]);
            self.replace(uid, &lost, out);
        }
        self.waiting.seen = self.ledger.revision();
    }

    /// Waits for another place, unless it has done so for long enough.
    fn waits(&mut self, uid: Uid) -> bool {
        let may = self.config.replacement_wait > Millis(0) && self.waiting.runs.get(&uid) != Some(&Patience::Over);
        if may {
            self.waiting.runs.entry(uid).or_insert(Patience::Begun);
        }
        may
    }

    /// Tells which nodes a run waits to leave.
    fn tell_unhealthy(&mut self, uid: Uid, unhealthy: Vec<String>, out: &mut Outcome) {
        let run = self.runs.get_mut(&uid).expect("the caller found this run");
        let Some(placed) = run.placed.as_ref() else { return };
        let told = Placement { revision: placed.revision.saturating_add(1), unhealthy, ..(**placed).clone() }.bounded();
        if told.unhealthy == placed.unhealthy {
            return;
        }
        run.placed = Some(Arc::new(told));
        self.store_run(uid, out);
        self.say_where(uid);
    }

    /// Says again what a run does, and with it where its pods are.
    fn say_where(&mut self, uid: Uid) {
        let (phase, fence) = (self.runs[&uid].phase, self.runs[&uid].fence);
        match phase {
            Phase::Starting => self.say_accepted(uid, fence),
            Phase::Running => self.say_running(uid, fence),
            Phase::Absent | Phase::Stopping | Phase::Buried => {}
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
        if run.growth.open {
            // Looked at again once the pods that are added were handed over.
            return;
        }
        let (offer, fence, number) = (run.offer, run.fence, run.moves + 1);
        let Some(gang) = run.gang.clone() else { return };
        let (near, moving) = (gang.wants_topology(), !self.ledger.leaving(offer).is_empty());
        if moving && !near {
            // Looked at again once the move under way is over.
            return;
        }
        let why_not = if near && (moving || lost.len() > 1) {
            Some("a gang that asks for a place in a topology survives the loss of one node at a time".to_owned())
        } else if run.losses() >= MOVES_MAX {
            Some(format!("its pods were moved {MOVES_MAX} times already"))
        } else {
            match self.ledger.replace(offer, &gang, lost) {
                Ok(()) => None,
                Err(_) if self.waits(uid) => return self.tell_unhealthy(uid, lost.iter().cloned().collect(), out),
                Err(why) => Some(format!("there is no other place for its pods: {why}")),
            }
        };
        self.waiting.runs.remove(&uid);
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
        out.effects.extend(self.growth_again(uid));
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
        let offer = run.offer;
        if self.ledger.leaving(offer).is_empty() && !run.growth.open {
            return;
        }
        self.ledger.left(offer);
        if let Some(gang) = &run.gang {
            // A run that waited meanwhile has told more often than it moved.
            let revision = run.placed.as_ref().map_or(number, |placed| placed.revision.saturating_add(1).max(number));
            run.placed = Some(Arc::new(placed::told(revision, gang, &self.ledger.placement(offer), &self.ledger)));
        }
        self.grown(uid, out);
        self.store_run(uid, out);
        self.say_where(uid);
        self.look_after_nodes(out);
    }

    /// Nobody stands on a lost node, unless it is about to leave it, waits to, or ends.
    pub(crate) fn check_nodes(&self, uid: Uid, run: &LiveRun) -> Result<(), String> {
        if !self.ledger.is_told() || run.growth.open || !self.ledger.leaving(run.offer).is_empty() || self.waiting.runs.contains_key(&uid) {
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
