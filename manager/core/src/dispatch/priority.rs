//! Another priority of a job, as its class has another value or it names another class.
//!
//! ```text
//!   Reprioritized ─► another place in its queue; others may displace it now, or it them
//!                 └► it runs ─► Command::Rank ─► durable at its agent, which gives who matters more another place first
//! ```
//!
//! A grant note_answer the priority of the moment. Every complete inventory shows what the agent was told last, and who was told
//! otherwise is told again; so neither a lost answer nor another leadership leaves an agent with an old one.

use crate::dispatch::grants;
use crate::facts::actor::Actor;
use crate::facts::record::WorkloadFact;
use crate::sessions::outbox::CommandRef;
use crate::state::workload::Workload;
use crate::state::workload::phase::Phase;
use crate::world::gangs;
use crate::world::turn::Turn;
use meridian_objects::job::PRIORITY_LABEL;
use meridian_shared::ids::{ClusterName, Fence, Uid};
use meridian_shared::protocol::{Command, Run, StopReason};

impl Workload {
    fn priority_may_be_told(&self) -> bool {
        matches!(self.phase(), Phase::Granted | Phase::Running)
    }
}

/// A priority class has another value: whoever names it takes its new place, waiting or running.
pub(crate) fn revalue(turn: &mut Turn<'_>, class: &str, by: &Actor) {
    let Some(priority) = turn.world.state.catalog().workload_priority(class) else { return };
    let named = |w: &Workload| {
        turn.world.queues.class(w.class()).labels.get(PRIORITY_LABEL).is_some_and(|c| c == class)
    };
    let moved: Vec<Uid> = turn
        .world
        .state
        .workloads()
        .iter()
        .filter(|(_, w)| w.phase() != Phase::Finished && w.priority() != priority && named(w))
        .map(|(uid, _)| *uid)
        .collect();
    for uid in moved {
        reprioritize(turn, uid, priority, by);
    }
    turn.capacity_changed();
}

/// Gives one workload another priority.
pub(crate) fn reprioritize(turn: &mut Turn<'_>, uid: Uid, priority: i64, by: &Actor) {
    turn.record_workload(uid, WorkloadFact::PriorityChanged { priority, by: Some(by.clone()) });
    if let Some((cluster, fence)) = gangs::right_to_run(turn.world, uid) {
        rank(turn, &cluster, uid, fence);
    }
}

/// What an inventory shows of how important a run is taken for.
pub(crate) fn apply_reported_priority(turn: &mut Turn<'_>, cluster: &ClusterName, run: &Run) {
    let wrong =
        |w: &&Workload| w.priority_may_be_told() && run.priority.is_some_and(|told| told != w.priority());
    if let Some(changed) = turn.workload(run.uid).filter(wrong).map(|w| w.changed())
        && turn.world.live.clusters.get(cluster).is_some_and(|live| live.ranks)
    {
        // It may show this as often as it likes.
        turn.send_correction(cluster, CommandRef::Rank(run.uid, run.fence, changed));
    }
}

/// Tells an agent how important a gang of it is, if it is to know.
fn rank(turn: &mut Turn<'_>, cluster: &ClusterName, uid: Uid, fence: Fence) {
    let number = turn.world.state.last();
    let runs = turn.workload(uid).is_some_and(Workload::priority_may_be_told);
    // What waits to be sent says the priority of the moment in which it is.
    let hears = |live: &crate::sessions::LiveCluster| live.ranks && !live.outbox.ranks(uid, fence);
    if runs && turn.world.live.clusters.get(cluster).is_some_and(hears) {
        turn.send(cluster, CommandRef::Rank(uid, fence, number));
    }
}

/// After a rule changed: whoever couldn't be told before may be now.
pub(crate) fn resend_priorities(turn: &mut Turn<'_>) {
    for uid in std::mem::take(&mut turn.world.live.priority_withheld) {
        if let Some((cluster, fence)) = gangs::right_to_run(turn.world, uid) {
            rank(turn, &cluster, uid, fence);
        }
    }
}

/// Where it is out of date, or the cluster may not know it any more, something is said in its place that changes nothing.
pub(crate) fn render_priority(turn: &mut Turn<'_>, cluster: &ClusterName, uid: Uid, fence: Fence) -> Command {
    let Some((workload, (offer, _))) = turn.workload(uid).and_then(|w| Some((w, w.leg_of(fence)?))) else {
        return Command::Stop { uid, fence, reason: StopReason::Superseded };
    };
    let priority = workload.priority();
    if grants::may_know(turn, uid, cluster) {
        return Command::Rank { uid, fence, priority };
    }
    turn.world.live.priority_withheld.insert(uid);
    Command::Withdraw { offer, uid }
}
