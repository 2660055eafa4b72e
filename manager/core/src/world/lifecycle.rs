use crate::facts::lifecycle::{Event, Milestone, Whose};
use crate::facts::record::Record;
use crate::facts::submission::Class;
use crate::state::workload::Workload;
use crate::state::workload::evictions::Evicted;
use crate::state::workload::phase::Phase;
use crate::world::World;
use meridian_objects::job::PRIORITY_LABEL;
use meridian_shared::ids::{ClusterName, Uid};
use meridian_shared::time::{Now, Wall};
use std::sync::Arc;

/// How it stood before a record.
pub(crate) struct Before {
    uid: Uid,
    whose: Whose,
    phase: Phase,
    since: Wall,
    cluster: Option<ClusterName>,
    reserved: Option<Wall>,
    evicted: Option<Box<Evicted>>,
}

/// When a workload began to wait for its current attempt.
fn queued(workload: &Workload) -> Wall {
    let back = workload.history.iter().rev().find_map(|stay| stay.over).unwrap_or(workload.created);
    workload.reactivated.as_ref().map_or(back, |reactivated| back.max(reactivated.at))
}

fn priority_class(class: &Class) -> Arc<str> {
    Arc::from(class.labels.get(PRIORITY_LABEL).map_or("", String::as_str))
}

/// The cluster queue where a workload's quota is charged, or that its local queue leads to.
pub(crate) fn queue_of(world: &World, uid: Uid) -> Option<Arc<str>> {
    let charged = world.queues.charged_to(uid).cloned();
    charged.or_else(|| {
        let class = world.queues.class(world.state.workloads.get(&uid)?.class);
        Some(Arc::from(
            world.state.catalog.local_queue(&class.namespace, &class.queue)?.cluster_queue.as_str(),
        ))
    })
}

/// How a workload stands, where the record may be a milestone.
pub(crate) fn before(world: &World, uid: Uid, record: &Record) -> Option<Before> {
    let deactivated = matches!(record, Record::Released { .. })
        && world.state.workloads.get(&uid).is_some_and(|w| w.inactive.is_some());
    let may_be = matches!(
        record,
        Record::Reserved { .. }
            | Record::Released { preempted: Some(_), .. }
            | Record::Granted { .. }
            | Record::Running { .. }
            | Record::StopOrdered { .. }
            | Record::Ended { .. }
            | Record::GrantRefused { .. }
            | Record::Lapsed { .. }
            | Record::Grows { .. }
            | Record::Finished { .. }
    );
    let workload = world.state.workloads.get(&uid).filter(|_| may_be || deactivated)?;
    let class = world.queues.class(workload.class);
    let whose = Whose {
        cluster_queue: queue_of(world, uid).unwrap_or_else(|| Arc::from("")),
        namespace: class.namespace.clone(),
        local_queue: class.queue.clone(),
        priority_class: priority_class(class),
    };
    let (phase, since, reserved, evicted) =
        (workload.phase, workload.since, workload.reserved, workload.evicted.clone());
    Some(Before {
        uid,
        whose,
        phase,
        since,
        cluster: workload.right().map(|(_, leg)| leg.cluster.clone()),
        reserved,
        evicted,
    })
}

/// What the record came to.
pub(crate) fn milestones(world: &World, before: Before, record: &Record, now: Now) -> Vec<Milestone> {
    let Before { uid, whose, phase, since, cluster, reserved, evicted } = before;
    let Some(workload) = world.state.workloads.get(&uid) else { return Vec::new() };
    let to = workload.phase;
    let mut events = Vec::new();
    match record {
        Record::Reserved { .. } if phase != to => {
            events.push(Event::QuotaReserved { waited: now.wall.since(queued(workload)) })
        }
        Record::Granted { at, .. } if phase != to => {
            let cluster =
                workload.right().map_or_else(|| ClusterName::new(""), |(_, leg)| leg.cluster.clone());
            events.push(Event::Admitted {
                cluster,
                waited: at.since(queued(workload)),
                checked: reserved.map(|from| at.since(from)),
            });
        }
        Record::Running { at, .. } if phase != to => {
            events.push(Event::Ready { waited: at.since(queued(workload)), started: at.since(since) })
        }
        Record::Grows { .. } => events.push(Event::Replaced),
        Record::Finished { .. } if phase != to => events.push(Event::Finished { ran: workload.ran }),
        _ => {}
    }
    if let (Phase::Stopping, false, Some(told)) = (phase, to == Phase::Stopping, &evicted) {
        events.push(Event::Stopped { reason: told.reason.clone(), took: now.wall.since(told.at) });
    }
    if let Some(now_evicted) = workload.evicted.as_deref().filter(|new| evicted.as_deref() != Some(new)) {
        let displaced = workload.preempted.as_ref().filter(|_| now_evicted.reason == "Preempted");
        events.push(Event::Evicted {
            reason: now_evicted.reason.clone(),
            cause: now_evicted.cause.clone(),
            first: workload.first_of_its_kind(now_evicted),
            ran: (phase == Phase::Running).then(|| now_evicted.at.since(since)),
            cluster,
            displaced: displaced
                .map(|p| (queue_of(world, p.by).unwrap_or_else(|| Arc::from("")), p.right.clone())),
        });
    }
    events.into_iter().map(|event| Milestone { whose: whose.clone(), event }).collect()
}
