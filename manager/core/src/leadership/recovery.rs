//! Leaderships and recovery.
//!
//! A leadership starts in recovery unless the caller has proved that the journal is complete. While recovery
//! is open, workloads of earlier leaderships aren't dispatched, because they may run in a cluster that the
//! journal doesn't name.

use crate::config::Start;
use crate::dispatch::{grants, offers};
use crate::facts::actor::Actor;
use crate::facts::audit::{Action, Entry};
use crate::facts::end::EvictionCause;
use crate::facts::outcome::{Bodies, Outcome};
use crate::facts::record::{LeadershipFact, Record, WorkloadFact};
use crate::facts::submission::RecoveryStart;
use crate::live::leases::Lease;
use crate::state::members::Member;
use crate::state::workload::Workload;
use crate::state::workload::phase::Phase;
use crate::world::Parts;
use crate::world::turn::Turn;
use crate::world::{World, gangs};
use meridian_placement::reservations::Reservations;
use meridian_shared::ids::{ClusterName, Fence, Leadership, OfferId, RecordNumber, Uid};
use meridian_shared::lease::{ManagerLease, TERM_MAX};
use meridian_shared::planted::Bug;
use meridian_shared::protocol::OnLoss;
use meridian_shared::time::{Millis, Mono};
use std::collections::{BTreeMap, BTreeSet};

/// How often open recovery looks for workloads that it may release because their term has passed.
const RELEASE_INTERVAL: Millis = Millis::secs(1);

impl World {
    /// Starts a leadership on the replayed journal. The outcome must be committed before any request is
    /// answered.
    pub fn lead(&mut self, start: Start, bodies: &dyn Bodies) -> Outcome {
        let leadership = Leadership { epoch: self.state().leadership().epoch + 1, id: start.id };
        let mut turn = Turn::new(self, start.now, bodies);
        let recovery = if start.fresh { None } else { start.recovery };
        let copy = recovery.as_ref().is_some_and(|r| r.restored || r.members_unknown);
        let unproven = recovery.is_some();
        let unseen = turn.world.config().rules_unseen && !start.fresh;
        take_the_lead(&mut turn, leadership, recovery, Vec::new(), BTreeSet::new());
        if copy || unseen {
            // The original journal may have stricter residency rules than this copy, and perhaps no connected
            // agent can report them. The rules of the management cluster may also have changed while this
            // manager was down.
            doubt_rules(&mut turn, false);
        } else if unproven && !turn.world.live().recovery().rules_awaited().is_empty() {
            // The journal's file may have been replaced by an older copy, and only the members can report
            // that.
            doubt_rules(&mut turn, true);
        }
        turn.finish()
    }

    /// Must be called after each commit with the newest durable record.
    pub fn durable(&mut self, through: RecordNumber) {
        self.live_mut().leases_mut().durable(through);
    }

    /// Continues the leadership of `before` after a failed commit, in this world, which was replayed from the
    /// journal. The claim of `before` is still valid. Its lease deadlines are exact, because it composed
    /// every answer.
    pub fn go_on_from(&mut self, before: &Self) {
        let Parts { state, live, .. } = self.parts();
        let workloads = state.workloads();
        live.go_on_from(before.live(), |uid| workloads.contains_key(uid));
    }
}

/// Starts a leadership: at the start of the process, or because an agent reported a foreign receipt.
pub(crate) fn take_the_lead(
    turn: &mut Turn<'_>,
    leadership: Leadership,
    recovery: Option<RecoveryStart>,
    foreign: Vec<(Leadership, RecordNumber)>,
    members: BTreeSet<ClusterName>,
) {
    turn.record(Record::Leadership(LeadershipFact::Started {
        leadership,
        at: turn.now.wall,
        recovery,
        foreign,
    }));
    let reservations = Reservations::remembered(turn.world.state().preemption_history(), turn.now);
    let Parts { state, live, .. } = turn.world.parts();
    let known = live.leases_mut().take_known();
    let members = state.members().keys().cloned().chain(members).collect();
    live.begin_leadership(turn.now.mono, members, reservations);
    for (uid, until) in backing_off(turn) {
        turn.world.live_mut().backoffs_mut().start(uid, until);
        turn.world.mirror_mut().touch(uid);
    }
    if turn.world.state().recovery().is_some() {
        turn.world.live_mut().recovery_mut().await_members();
    }
    close_open_legs(turn);
    restart_leases(turn, &known);
    // Without members there is no inventory to wait for.
    maybe_close(turn);
}

/// Workloads that back off after a node failure, with the rest of their backoff counted from now.
fn backing_off(turn: &Turn<'_>) -> Vec<(Uid, Mono)> {
    let remaining = |(uid, workload): (&Uid, &Workload)| {
        let lost = workload.phase() == Phase::Pending
            && workload.evicted().is_some_and(|evicted| evicted.cause == EvictionCause::NodeFailures);
        let attempt = workload.history().last().filter(|_| lost)?;
        let left = workload
            .backoff_after_node_loss(attempt.fence)
            .saturating_sub(turn.now.wall.since(attempt.over?));
        (left > Millis(0)).then_some((*uid, turn.now.mono + left))
    };
    turn.world.state().workloads().iter().filter_map(remaining).collect()
}

fn doubt_rules(turn: &mut Turn<'_>, until_heard: bool) {
    let seen = turn.world.state().rules_doubted().unwrap_or(turn.world.state().rules());
    turn.record(Record::Leadership(LeadershipFact::RulesDoubted { seen, until_heard }));
}

/// Dispatches nothing more until the rules are confirmed. Granted attempts continue.
pub(crate) fn stop_dispatching(turn: &mut Turn<'_>) -> String {
    let message = "nothing is dispatched until policies and quotas are confirmed".to_owned();
    let state = turn.world.state();
    if state.rules_doubted().is_some() && !state.rules_doubted_until_heard() {
        return message;
    }
    let is_offered = |phase| matches!(phase, Phase::Reserved | Phase::Dispatching);
    let offered = state.workloads().iter().filter(|(_, w)| is_offered(w.phase())).map(|(uid, _)| *uid);
    let offered: Vec<Uid> = offered.collect();
    doubt_rules(turn, false);
    for uid in offered {
        offers::withdraw_open(turn, uid);
    }
    message
}

/// Ends the doubt about rules that only silent members caused, once every member has reported and none knows
/// newer rules.
fn trust_rules_of_members(turn: &mut Turn<'_>) {
    let (state, live) = (turn.world.state(), turn.world.live());
    if state.rules_doubted().is_some()
        && state.rules_doubted_until_heard()
        && live.recovery().rules_awaited().is_empty()
        && !has_unknown_members(turn)
    {
        turn.record(Record::Leadership(LeadershipFact::RulesConfirmed { by: Actor::System }));
        turn.capacity_changed();
    }
}

/// Whether the original journal may have members that this one doesn't name: a copy from before the first
/// join names none.
fn has_unknown_members(turn: &Turn<'_>) -> bool {
    let (state, since) = (turn.world.state(), turn.world.state().recovery_since());
    state.recovery().is_some_and(|recovery| recovery.members_unknown)
        || (state.behind() && state.members().values().all(|member| member.since() >= since))
}

/// Withdraws offers and holds of earlier leaderships. The next inventories release what agents still hold.
fn close_open_legs(turn: &mut Turn<'_>) {
    let open: Vec<(Uid, OfferId)> = turn
        .world
        .state()
        .workloads()
        .iter()
        .filter(|(_, w)| matches!(w.phase(), Phase::Reserved | Phase::Dispatching))
        .flat_map(|(uid, w)| w.legs().keys().map(move |o| (*uid, *o)))
        .collect();
    for (uid, offer) in &open {
        turn.record_workload(*uid, WorkloadFact::Withdrawn { offer: *offer });
    }
    let uids: Vec<Uid> = turn
        .world
        .state()
        .workloads()
        .iter()
        .filter(|(_, w)| matches!(w.phase(), Phase::Reserved | Phase::Dispatching))
        .map(|(u, _)| *u)
        .collect();
    for uid in uids {
        offers::release_quota_if_idle(turn, uid);
    }
}

/// Gives every lease a full term from now, as an earlier leadership may have renewed it just before.
/// Deadlines in `known` come from this process and are exact.
fn restart_leases(turn: &mut Turn<'_>, known: &BTreeMap<Fence, Mono>) {
    let now = turn.now.mono;
    let forget_leases = turn.world.config().planted.has(Bug::RestartForgetsLeases);
    let rights: Vec<(Uid, Fence, Lease)> = turn
        .world
        .state()
        .workloads()
        .iter()
        .filter_map(|(uid, w)| {
            let (_, leg) = w.right()?;
            let mut lease = ManagerLease::from_composed(now, w.term());
            if let Some(deadline) = leg.fence().and_then(|fence| known.get(&fence)) {
                lease.deadline = *deadline;
            }
            if forget_leases {
                lease.deadline = now;
            }
            let start_by = now + gangs::start_timeout(turn.world, turn.world.queues().class(w.class()));
            Some((*uid, leg.fence()?, Lease::inherited(*uid, lease, start_by)))
        })
        .collect();
    for (uid, fence, lease) in rights {
        let due = lease.deadline().min(lease.start_by());
        turn.world.live_mut().leases_mut().start(fence, lease, due);
        if turn.workload(uid).is_some_and(|workload| workload.lost_run().is_some()) {
            // The restarted lease of the lost run lapses later than the previous leadership recorded.
            grants::record_replaced_ledger(turn, uid, fence);
        }
    }
}

/// Stops waiting for clusters that have sent an inventory on which recovery may rely.
pub(crate) fn stop_awaiting(turn: &mut Turn<'_>) {
    let live = turn.world.live();
    let is_heard = |cluster: &&ClusterName| {
        live.cluster(cluster).is_some_and(|live| live.inventory().is_taken()) && is_complete(turn, cluster)
    };
    let heard: Vec<ClusterName> = live.recovery().expected().filter(is_heard).cloned().collect();
    for cluster in &heard {
        turn.world.live_mut().recovery_mut().stop_awaiting(cluster);
    }
    maybe_close(turn);
}

/// Stops waiting for a cluster that was declared lost. Returns whether it was awaited.
pub(crate) fn no_longer_awaits(turn: &mut Turn<'_>, cluster: &ClusterName) -> bool {
    turn.world.live_mut().recovery_mut().stop_awaiting(cluster)
}

/// Whether recovery may rely on this cluster's inventory. A journal that is behind may lack grants. An agent
/// that opened its session after recovery began may run on an old copy of its ledger, which lacks the same
/// grants: only an operator's confirmation rules that out. If the agent has lost its ledger, recovery waits
/// until the leases lapse or that ledger is declared lost.
fn is_complete(turn: &Turn<'_>, cluster: &ClusterName) -> bool {
    let (state, since) = (turn.world.state(), turn.world.state().recovery_since());
    let is_confirmed = state.recovery().is_some_and(|r| !r.restored && !r.members_unknown);
    let is_complete =
        |member: &Member| member.session_since() < since || (is_confirmed && member.unheard().is_none());
    !state.behind() || state.members().get(cluster).is_some_and(is_complete)
}

/// Closes recovery once every known cluster has sent its complete inventory to this leadership.
pub(crate) fn maybe_close(turn: &mut Turn<'_>) {
    trust_rules_of_members(turn);
    let is_open = turn.world.state().recovery().is_some();
    if is_open && !has_unknown_members(turn) && turn.world.live().recovery().awaited().is_empty() {
        close_recovery(turn, Actor::System);
    }
}

/// Records an operator's confirmation that no other copy of this journal leads. Workloads of earlier
/// leaderships are still held back until every awaited cluster has sent its inventory or is declared lost, or
/// (`Fence` only) until a lease that was renewed now has lapsed.
pub(crate) fn rule_out_copies(turn: &mut Turn<'_>, by: &Actor) {
    let copy = turn.world.state().recovery().is_some_and(|recovery| recovery.restored);
    turn.record(Record::Leadership(LeadershipFact::CopiesRuledOut { by: by.clone() }));
    if copy {
        // Until now another copy may have granted or renewed leases.
        turn.world.live_mut().recovery_mut().copies_ruled_out(turn.now.mono);
        turn.world.live_mut().leases_mut().restart_all(turn.now.mono);
    }
    if turn.world.config().planted.has(Bug::ConfirmationAnswersForClusters) {
        return close_recovery(turn, by.clone());
    }
    stop_awaiting(turn);
    turn.capacity_changed();
}

pub(crate) fn close_recovery(turn: &mut Turn<'_>, by: Actor) {
    let copy = turn.world.state().recovery().as_ref().is_some_and(|r| r.restored);
    let entry = Entry::new(Action::RecoveryClosed, turn.world.state().leadership().to_string());
    turn.record(Record::Leadership(LeadershipFact::RecoveryClosed { by: by.clone() }));
    turn.audit(by, entry);
    turn.world.live_mut().recovery_mut().recovery_closed();
    if copy {
        // Until now the manager with the original may have renewed leases.
        turn.world.live_mut().leases_mut().restart_all(turn.now.mono);
    }
    turn.capacity_changed();
}

/// Closes recovery once every lease that an unknown run could hold has lapsed, unless the journal was
/// restored and an operator must confirm it.
pub(crate) fn recovery_by_time(turn: &mut Turn<'_>) {
    let Some(recovery) = turn.world.state().recovery() else { return };
    if recovery.restored {
        return;
    }
    let members_unknown = recovery.members_unknown;
    let since_sole = turn.world.live().recovery().sole_since();
    let now = turn.now.mono;
    let over = if members_unknown {
        // Clusters that this journal doesn't name may run workloads of any term.
        ManagerLease::from_composed(since_sole, TERM_MAX).lapsed(now)
    } else {
        let state = turn.world.state();
        let since = state.led_since();
        let holds_back = |w: &Workload| {
            w.is_older_than(since) && w.phase() != Phase::Finished && !is_released(w, since_sole, now)
        };
        !state.workloads().any(holds_back)
            && ManagerLease::from_composed(since_sole, turn.world.config().term).lapsed(now)
    };
    if over {
        close_recovery(turn, Actor::System);
    } else if turn.world.live_mut().recovery_mut().take_due_release_check(now, RELEASE_INTERVAL) {
        release_waiting(turn, since_sole);
    }
}

/// Whether every lease of a workload that another copy of this journal could have renewed has lapsed.
fn is_released(workload: &Workload, since_sole: Mono, now: Mono) -> bool {
    workload.on_loss() == OnLoss::Fence
        && ManagerLease::from_composed(since_sole, workload.term()).lapsed(now)
}

/// Requests a pass if a workload may start now: each is held back for its own term only.
fn release_waiting(turn: &mut Turn<'_>, since_sole: Mono) {
    let now = turn.now.mono;
    let Parts { state, live, mirror, .. } = turn.world.parts();
    let (workloads, since) = (state.workloads(), state.led_since());
    let mut outside = mirror.outside().filter_map(|uid| workloads.get(uid));
    let may_start = |w: &Workload| {
        w.is_older_than(since) && w.waits() && w.inactive().is_none() && is_released(w, since_sole, now)
    };
    if outside.any(may_start) {
        live.pass_mut().request();
    }
}
