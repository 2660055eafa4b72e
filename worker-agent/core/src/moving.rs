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
//! Of several gangs the most important one looks for places first, and of equals the one that was granted first. How important
//! each is came with its grant; the manager tells when that changes ([`meridian_shared::protocol::Command::Rank`]).
//!
//! A taint may also be tolerated for a while (`tolerationSeconds`): the node is lost when that is over ([`crate::ledger`] counts).
//! Both moments, from which a wait and a stay are counted, are durable: a restarted agent goes on with what is left.
//! Invariants: the new places are durable before anybody is moved; the old ones stay charged until the runner has seen the
//! pods there ended; while that lasts nothing else of the gang is moved.

use crate::ledger::Arrival;
use crate::leg::{Happening, Phase, Step, step};
use crate::{Agent, Effect, LiveRun, OfferState, Outcome, StopCause, placed};
use meridian_shared::ids::{Fence, OfferId, Uid};
use meridian_shared::placement::Placement;
use meridian_shared::protocol::{Event, clean};
use meridian_shared::time::{Millis, Wall};
use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Moves of one attempt at most; who loses more nodes starts anew.
pub const MOVES_MAX: u32 = 16;
/// Lost nodes that a message names.
const NODES_NAMED_MAX: usize = 4;

/// Runs with pods of a lost node that wait for another place. Since when each does is kept with the run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Waiting {
    runs: BTreeSet<Uid>,
    /// The ledger as it was when a place was looked for last.
    seen: Option<u64>,
}

impl Waiting {
    /// A run waits that wasn't among them.
    pub(crate) fn begin(&mut self, uid: Uid) {
        self.runs.insert(uid);
    }
}

/// Who is given another place first: the more important gang, of equals the one that was granted first.
type Rank = (Reverse<i64>, Fence);

impl LiveRun {
    fn rank(&self) -> Rank {
        (Reverse(self.priority), self.fence)
    }
}

impl Agent {
    /// Looks after everybody who stands on a lost node.
    pub(crate) fn look_after_nodes(&mut self, out: &mut Outcome) {
        if !self.ledger.is_told() {
            return;
        }
        // A hold is no promise of certain nodes: the manager asks again.
        let stranded =
            |(offer, _): &(OfferId, Uid)| !self.ledger.lost(*offer, &self.offers[offer].gang).is_empty();
        let held: Vec<(OfferId, Uid)> = self.held().filter(stranded).collect();
        for (offer, uid) in held {
            self.drop_offer(offer, out);
            self.say(Event::Gone { offer, uid, expired: false });
        }
        let loses = |(uid, run): (&Uid, &LiveRun)| (run.rank(), *uid, self.lost_under(run));
        let mut losers: Vec<(Rank, Uid, BTreeSet<String>)> =
            self.runs.iter().map(loses).filter(|(_, _, lost)| !lost.is_empty()).collect();
        losers.sort_unstable();
        for (_, uid, lost) in losers {
            self.replace(uid, &lost, out);
        }
        let told = |run: &LiveRun| run.placed.as_ref().is_some_and(|placed| !placed.unhealthy.is_empty());
        let well =
            |run: &LiveRun| self.lost_under(run).is_empty() && self.ledger.leaving(run.offer).is_empty();
        let back: Vec<Uid> =
            self.runs.iter().filter(|(_, run)| told(run) && well(run)).map(|(uid, _)| *uid).collect();
        for uid in back {
            self.tell_unhealthy(uid, Vec::new(), out);
        }
    }

    /// Begins, goes on with and ends the counting of how long whom is tolerated on his node, after nodes have changed.
    pub(crate) fn count_stays(&mut self, out: &mut Outcome) {
        if !self.ledger.may_count() {
            return;
        }
        let stands =
            |run: &LiveRun| run.gang.clone().filter(|_| step(run.phase, Happening::Stranded) == Step::Stop);
        let runs: Vec<_> =
            self.runs.iter().filter_map(|(uid, run)| Some((*uid, run.offer, stands(run)?))).collect();
        for (uid, offer, gang) in runs {
            if self.ledger.count_stays(offer, &gang, Arrival::Taint) {
                self.store_run(uid, out);
            }
        }
    }

    /// When the next wait or stay ends.
    pub(crate) fn replacing_due(&self) -> impl Iterator<Item = Wall> + '_ {
        let waits = self
            .waiting
            .runs
            .iter()
            .filter(|_| self.ledger.is_told())
            .filter_map(|uid| self.waits_until(*uid));
        waits.chain(self.ledger.next_end())
    }

    fn waits_until(&self, uid: Uid) -> Option<Wall> {
        self.runs.get(&uid)?.waits.map(|since| since + self.config.replacement_wait)
    }

    /// How long each run still waits, for the essence of an agent.
    pub(crate) fn waits_left(&self) -> Vec<(Uid, Option<Millis>)> {
        let left = |uid: &Uid| self.waits_until(*uid).map(|until| until.since(self.ledger.now()));
        self.waiting.runs.iter().map(|uid| (*uid, left(uid))).collect()
    }

    /// Looks for places again for whoever waits: where anything changed on the nodes, and once more at the end of the wait.
    pub(crate) fn look_after_waiting(&mut self, out: &mut Outcome) {
        if self.waiting.runs.is_empty() || !self.ledger.is_told() {
            return;
        }
        let changed = self.waiting.seen != Some(self.ledger.revision());
        let mut waiting: Vec<(Option<Rank>, Uid)> =
            self.waiting.runs.iter().map(|uid| (self.runs.get(uid).map(LiveRun::rank), *uid)).collect();
        waiting.sort_unstable();
        for (_, uid) in waiting {
            let lost = self.runs.get(&uid).map(|run| self.lost_under(run)).unwrap_or_default();
            if lost.is_empty() {
                self.waits_no_more(uid, out);
            } else if changed || !self.may_wait(uid) {
                self.replace(uid, &lost, out);
            }
        }
        self.waiting.seen = Some(self.ledger.revision());
    }

    /// Whether a run has not waited for long enough yet.
    fn may_wait(&self, uid: Uid) -> bool {
        self.config.replacement_wait > Millis(0)
            && self.waits_until(uid).is_none_or(|until| self.ledger.now() < until)
    }

    /// Waits for another place, unless it has done so for long enough.
    fn waits(&mut self, uid: Uid, out: &mut Outcome) -> bool {
        let may = self.may_wait(uid);
        let now = self.ledger.now();
        let run = self.runs.get_mut(&uid).expect("the caller found this run");
        if may && run.waits.is_none() {
            run.waits = Some(now);
            self.waiting.begin(uid);
            self.store_run(uid, out);
        }
        may
    }

    fn waits_no_more(&mut self, uid: Uid, out: &mut Outcome) {
        self.waiting.runs.remove(&uid);
        let Some(run) = self.runs.get_mut(&uid) else { return };
        if run.waits.take().is_some() {
            self.store_run(uid, out);
        }
        // Nobody needs to be on the node any more: it is back, or its pods were the first to be done.
        if step(self.runs[&uid].phase, Happening::Stranded) == Step::Stop && !self.is_moving(uid) {
            self.tell_unhealthy(uid, Vec::new(), out);
        }
    }

    /// Tells which nodes a run waits to leave.
    fn tell_unhealthy(&mut self, uid: Uid, unhealthy: Vec<String>, out: &mut Outcome) {
        let run = self.runs.get_mut(&uid).expect("the caller found this run");
        let Some(placed) = run.placed.as_ref() else { return };
        let told = Placement { revision: placed.revision.saturating_add(1), unhealthy, ..(**placed).clone() }
            .bounded();
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
            Some(gang) if step(run.phase, Happening::Stranded) == Step::Stop => {
                self.ledger.lost(run.offer, gang)
            }
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
            Some(
                "a gang that asks for a place in a topology survives the loss of one node at a time"
                    .to_owned(),
            )
        } else if run.losses() >= MOVES_MAX {
            Some(format!("its pods were moved {MOVES_MAX} times already"))
        } else {
            match self.ledger.replace(offer, &gang, lost) {
                Ok(()) => None,
                Err(_) if self.waits(uid, out) => {
                    return self.tell_unhealthy(uid, lost.iter().cloned().collect(), out);
                }
                Err(why) => Some(format!("there is no other place for its pods: {why}")),
            }
        };
        self.waiting.runs.remove(&uid);
        self.runs.get_mut(&uid).expect("found above").waits = None;
        if let Some(why) = why_not {
            let what = if lost.iter().all(|node| self.ledger.is_well(node)) {
                "drove pods away by a taint"
            } else {
                "failed"
            };
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
            out.effects.push(Effect::Move {
                uid,
                fence: run.fence,
                number: run.moves,
                placement: self.ledger.placement(run.offer),
            });
        }
        out.effects.extend(self.growth_again(uid));
    }

    /// Pods that this move of an attempt has under way; none once it is over.
    pub fn moving(&self, uid: Uid, fence: Fence, number: u32) -> usize {
        let run = self.runs.get(&uid).filter(|run| run.fence == fence && run.moves == number);
        run.map_or(0, |run| self.ledger.leaving(run.offer).len())
    }

    /// Whether pods of a run are on their way to other places.
    pub fn is_moving(&self, uid: Uid) -> bool {
        self.runs.get(&uid).is_some_and(|run| !self.ledger.leaving(run.offer).is_empty())
    }

    /// Whether pods are being added to a run: until they are there, nobody of it is given another place.
    pub fn is_growing(&self, uid: Uid) -> bool {
        self.runs.get(&uid).is_some_and(|run| run.growth.open)
    }

    /// Whether pods of a run wait for other places.
    pub fn is_waiting(&self, uid: Uid) -> bool {
        self.runs.get(&uid).is_some_and(|run| run.waits.is_some())
    }

    /// Whether this attempt ends because a node of it is lost and its pods have no other place.
    pub fn is_stranded(&self, uid: Uid, fence: Fence) -> bool {
        self.runs
            .get(&uid)
            .is_some_and(|run| run.fence == fence && run.stopped_by == Some(StopCause::Stranded))
    }

    /// The pods that had to move are where they belong.
    pub(crate) fn on_moved(&mut self, uid: Uid, fence: Fence, number: u32, out: &mut Outcome) {
        let Some(run) = self.runs.get_mut(&uid).filter(|run| run.fence == fence && run.moves == number)
        else {
            return;
        };
        let offer = run.offer;
        if self.ledger.leaving(offer).is_empty() && !run.growth.open {
            return;
        }
        self.ledger.left(offer);
        if let Some(gang) = &run.gang {
            // A run that waited meanwhile has told more often than it moved.
            let revision =
                run.placed.as_ref().map_or(number, |placed| placed.revision.saturating_add(1).max(number));
            run.placed =
                Some(Arc::new(placed::told(revision, gang, &self.ledger.placement(offer), &self.ledger)));
        }
        self.grown(uid, out);
        self.store_run(uid, out);
        self.say_where(uid);
        self.look_after_nodes(out);
    }

    /// Nobody stands on a lost node, unless it is about to leave it, waits to, or ends.
    pub(crate) fn check_nodes(&self, uid: Uid, run: &LiveRun) -> Result<(), String> {
        if !self.ledger.is_told()
            || run.growth.open
            || !self.ledger.leaving(run.offer).is_empty()
            || self.waiting.runs.contains(&uid)
        {
            return Ok(());
        }
        let lost = self.lost_under(run);
        if lost.is_empty() { Ok(()) } else { Err(format!("run {uid} stands on lost nodes {lost:?}")) }
    }

    /// Who waits is known by when it began to.
    pub(crate) fn check_waiting(&self) -> Result<(), String> {
        let waits: BTreeSet<Uid> =
            self.runs.iter().filter(|(_, run)| run.waits.is_some()).map(|(uid, _)| *uid).collect();
        // Of runs that have ended or are told to, those listed are looked at in the next turn.
        match waits.iter().find(|uid| !self.waiting.runs.contains(*uid)) {
            Some(uid) => Err(format!("run {uid} waits for a place, and nobody looks for one")),
            None => Ok(()),
        }
    }

    /// Offers that hold room on a lost node: none.
    pub(crate) fn check_holds(&self) -> Result<(), String> {
        let stands = |(offer, open): &(&OfferId, &crate::OpenOffer)| {
            matches!(open.state, OfferState::Held { .. }) && !self.ledger.lost(**offer, &open.gang).is_empty()
        };
        match self.offers.iter().find(stands) {
            Some((offer, _)) if self.ledger.is_told() => Err(format!("hold {offer} stands on a lost node")),
            _ => Ok(()),
        }
    }
}

fn in_words(lost: &BTreeSet<String>) -> String {
    let names: Vec<String> = lost.iter().take(NODES_NAMED_MAX).map(|name| format!("`{name}`")).collect();
    let more = if lost.len() > NODES_NAMED_MAX {
        format!(" and {} more", lost.len() - NODES_NAMED_MAX)
    } else {
        String::new()
    };
    format!("{} {}{more}", if lost.len() == 1 { "node" } else { "nodes" }, names.join(", "))
}
