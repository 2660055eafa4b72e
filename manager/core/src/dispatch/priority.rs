//! Changes of a job's priority: its priority class has another value, or the job names another class.
//!
//! ```text
//! PriorityChanged ─┬─► new queue position; preemption is decided by the new priority
//!                  └─► if it runs: Command::SetPriority ─► the agent stores it; after a node loss it
//!                                                          replaces gangs of high priority first
//! ```
//!
//! A grant carries the priority at the time of the grant. Every complete inventory reports the priority that
//! the agent knows, and the manager corrects a wrong one. So an agent gets the current priority even if an
//! answer is lost or a new leadership begins.

use crate::dispatch::grants;
use crate::facts::actor::Actor;
use crate::facts::record::WorkloadFact;
use crate::sessions::LiveCluster;
use crate::sessions::outbox::CommandRef;
use crate::state::workload::Workload;
use crate::state::workload::phase::Phase;
use crate::world::gangs;
use crate::world::turn::Turn;
use meridian_objects::job::PRIORITY_LABEL;
use meridian_shared::ids::{ClusterName, Fence, Uid};
use meridian_shared::protocol::{Command, Run, StopReason};

impl Workload {
    fn agent_needs_priority(&self) -> bool {
        matches!(self.phase(), Phase::Granted | Phase::Running)
    }
}

/// Applies the new value of a priority class to every workload that names it, pending or running.
pub(crate) fn apply_class_value(turn: &mut Turn<'_>, class: &str, by: &Actor) {
    let Some(priority) = turn.world.state().catalog().workload_priority(class) else { return };
    let names_class = |w: &Workload| {
        turn.world.queues().class(w.class()).labels.get(PRIORITY_LABEL).is_some_and(|name| name == class)
    };
    let affected: Vec<Uid> = turn
        .world
        .state()
        .workloads()
        .iter()
        .filter(|(_, w)| w.phase() != Phase::Finished && w.priority() != priority && names_class(w))
        .map(|(uid, _)| *uid)
        .collect();
    for uid in affected {
        reprioritize(turn, uid, priority, by);
    }
    turn.capacity_changed();
}

/// Records a new priority and sends it to the agent if the workload runs.
pub(crate) fn reprioritize(turn: &mut Turn<'_>, uid: Uid, priority: i64, by: &Actor) {
    turn.record_workload(uid, WorkloadFact::PriorityChanged { priority, by: Some(by.clone()) });
    if let Some((cluster, fence)) = gangs::right_to_run(turn.world, uid) {
        send_priority(turn, &cluster, uid, fence);
    }
}

/// Corrects the priority of a run if an inventory reports a wrong one.
pub(crate) fn apply_reported_priority(turn: &mut Turn<'_>, cluster: &ClusterName, run: &Run) {
    let is_wrong = |w: &&Workload| {
        w.agent_needs_priority() && run.priority.is_some_and(|reported| reported != w.priority())
    };
    if let Some(changed) = turn.workload(run.uid).filter(is_wrong).map(|w| w.changed())
        && turn.world.live().cluster(cluster).is_some_and(|live| live.features().priority())
    {
        // An inventory may repeat the wrong priority any number of times, so the corrections are bounded.
        turn.send_correction(cluster, CommandRef::SetPriority(run.uid, run.fence, changed));
    }
}

/// Sends the priority of a gang to its agent, unless the agent doesn't need it or can't handle it.
fn send_priority(turn: &mut Turn<'_>, cluster: &ClusterName, uid: Uid, fence: Fence) {
    let number = turn.world.state().last();
    let needs_priority = turn.workload(uid).is_some_and(Workload::agent_needs_priority);
    // An unsent command reads the priority when it is sent, so a second command isn't needed.
    let accepts =
        |live: &LiveCluster| live.features().priority() && !live.outbox().has_unsent_priority(uid, fence);
    if needs_priority && turn.world.live().cluster(cluster).is_some_and(accepts) {
        turn.send(cluster, CommandRef::SetPriority(uid, fence, number));
    }
}

/// Sends the priorities that residency rules withheld, after a rule changed.
pub(crate) fn resend_priorities(turn: &mut Turn<'_>) {
    for uid in turn.world.live_mut().withheld_priorities_mut().take() {
        if let Some((cluster, fence)) = gangs::right_to_run(turn.world, uid) {
            send_priority(turn, &cluster, uid, fence);
        }
    }
}

/// Builds the priority command to send. If the attempt is over, or rules forbid that the cluster knows the
/// workload, builds a command without effect under the same number, because command numbers have no gaps.
pub(crate) fn render_priority(turn: &mut Turn<'_>, cluster: &ClusterName, uid: Uid, fence: Fence) -> Command {
    let Some((workload, (offer, _))) = turn.workload(uid).and_then(|w| Some((w, w.leg_of(fence)?))) else {
        return Command::Stop { uid, fence, reason: StopReason::Superseded };
    };
    let priority = workload.priority();
    if grants::may_disclose(turn, uid, cluster) {
        return Command::SetPriority { uid, fence, priority };
    }
    turn.world.live_mut().withheld_priorities_mut().withhold(uid);
    Command::Withdraw { offer, uid }
}
