//! Lifecycle events, which feed metrics: derived from a workload before and after a record.

use crate::facts::end::EvictionCause;
use crate::facts::lifecycle::{Event, LifecycleEvent, Owner};
use crate::facts::record::WorkloadFact;
use crate::facts::submission::Class;
use crate::state::workload::Workload;
use crate::state::workload::evictions::Evicted;
use crate::state::workload::phase::Phase;
use crate::world::World;
use meridian_objects::job::PRIORITY_LABEL;
use meridian_shared::ids::{ClusterName, Uid};
use meridian_shared::time::{Now, Wall};
use std::sync::Arc;

/// State of a workload before a record, for lifecycle events.
pub(crate) struct WorkloadBefore {
    uid: Uid,
    owner: Owner,
    phase: Phase,
    since: Wall,
    cluster: Option<ClusterName>,
    reserved: Option<Wall>,
    evicted: Option<Evicted>,
}

/// When a workload began to wait for its current attempt: at its creation, requeueing or reactivation.
fn queued(workload: &Workload) -> Wall {
    let queued =
        workload.history().iter().rev().find_map(|attempt| attempt.over).unwrap_or(workload.created());
    workload.reactivated().map_or(queued, |reactivated| queued.max(reactivated.at))
}

/// The priority class that jobs of this class name, or empty.
pub fn priority_class(class: &Class) -> Arc<str> {
    Arc::from(class.labels.get(PRIORITY_LABEL).map_or("", String::as_str))
}

/// The cluster queue that a workload's quota is charged to, else the one that its local queue points to.
pub fn queue_of(world: &World, uid: Uid) -> Option<Arc<str>> {
    let charged = world.queues.charged_to(uid).cloned();
    charged.or_else(|| {
        let class = world.queues.class(world.state.workloads().get(&uid)?.class());
        Some(Arc::from(
            world.state.catalog().local_queue(&class.namespace, &class.queue)?.cluster_queue.as_str(),
        ))
    })
}

/// Notes a workload's state before a fact is absorbed; `None` if the fact can't cause a lifecycle event.
pub(crate) fn before(world: &World, uid: Uid, fact: &WorkloadFact) -> Option<WorkloadBefore> {
    let deactivated = matches!(fact, WorkloadFact::QuotaReleased { .. })
        && world.state.workloads().get(&uid).is_some_and(|w| w.inactive().is_some());
    let may_cause_event = matches!(
        fact,
        WorkloadFact::QuotaReserved { .. }
            | WorkloadFact::QuotaReleased { preempted: Some(_), .. }
            | WorkloadFact::Granted { .. }
            | WorkloadFact::Running { .. }
            | WorkloadFact::StopOrdered { .. }
            | WorkloadFact::Ended { .. }
            | WorkloadFact::GrantRefused { .. }
            | WorkloadFact::LeaseLapsed { .. }
            | WorkloadFact::ScaleUpStarted { .. }
            | WorkloadFact::Finished { .. }
    );
    let workload = world.state.workloads().get(&uid).filter(|_| may_cause_event || deactivated)?;
    let class = world.queues.class(workload.class());
    let owner = Owner {
        cluster_queue: queue_of(world, uid).unwrap_or_else(|| Arc::from("")),
        namespace: class.namespace.clone(),
        local_queue: class.queue.clone(),
        priority_class: priority_class(class),
    };
    let (phase, since, reserved, evicted) =
        (workload.phase(), workload.since(), workload.reserved(), workload.evicted().cloned());
    Some(WorkloadBefore {
        uid,
        owner,
        phase,
        since,
        cluster: workload.right().map(|(_, leg)| leg.cluster().clone()),
        reserved,
        evicted,
    })
}

/// Lifecycle events that a fact caused, once it is absorbed.
pub(crate) fn events(
    world: &World,
    before: WorkloadBefore,
    fact: &WorkloadFact,
    now: Now,
) -> Vec<LifecycleEvent> {
    let WorkloadBefore { uid, owner, phase, since, cluster, reserved, evicted } = before;
    let Some(workload) = world.state.workloads().get(&uid) else { return Vec::new() };
    let to = workload.phase();
    let mut events = Vec::new();
    match fact {
        WorkloadFact::QuotaReserved { .. } if phase != to => {
            events.push(Event::QuotaReserved { waited: now.wall.since(queued(workload)) });
        }
        WorkloadFact::Granted { at, .. } if phase != to => {
            let cluster =
                workload.right().map_or_else(|| ClusterName::new(""), |(_, leg)| leg.cluster().clone());
            let waited = at.since(queued(workload));
            events.push(Event::Admitted { cluster, waited, checked: reserved.map(|from| at.since(from)) });
        }
        WorkloadFact::Running { at, .. } if phase != to => {
            events.push(Event::Ready { waited: at.since(queued(workload)), started: at.since(since) });
        }
        WorkloadFact::ScaleUpStarted { .. } => events.push(Event::Replaced),
        WorkloadFact::Finished { .. } if phase != to => events.push(Event::Finished { ran: workload.ran() }),
        _ => {}
    }
    if let (Phase::Stopping, false, Some(evicted)) = (phase, to == Phase::Stopping, &evicted) {
        events.push(Event::Stopped { cause: evicted.cause, took: now.wall.since(evicted.at) });
    }
    if let Some(now_evicted) = workload.evicted().filter(|new| evicted.as_ref() != Some(new)) {
        let preempted = workload.preempted().filter(|_| now_evicted.cause == EvictionCause::Preempted);
        events.push(Event::Evicted {
            cause: now_evicted.cause,
            first: workload.is_first_eviction(now_evicted),
            ran: (phase == Phase::Running).then(|| now_evicted.at.since(since)),
            cluster,
            preempted: preempted.map(|p| (queue_of(world, p.by).unwrap_or_else(|| Arc::from("")), p.reason)),
        });
    }
    events.into_iter().map(|event| LifecycleEvent { uid, owner: owner.clone(), event }).collect()
}
