//! What happened to a workload that dashboards count: quota, admission, readiness, eviction, the end.
//!
//! Told with the outcome of the input that brought it about, and counted by the shell once that is committed; nothing is
//! decided by it. The words are Kueue's where the meaning is.

use crate::evicted::Evicted;
use crate::record::{Class, Record};
use crate::workload::Phase;
use crate::{Workload, World};
use meridian_objects::job::PRIORITY_LABEL;
use meridian_shared::ids::{ClusterName, Uid};
use meridian_shared::time::{Millis, Now, Wall};
use std::sync::Arc;

/// Whose it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Whose {
    /// The cluster queue; empty where the local queue leads to none.
    pub cluster_queue: Arc<str>,
    /// The local queue's namespace.
    pub namespace: Arc<str>,
    /// The local queue.
    pub local_queue: Arc<str>,
    /// The workload priority class, which existed when the job was submitted; empty where it named none.
    pub priority_class: Arc<str>,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Quota was reserved.
    QuotaReserved {
        /// Since it was submitted, or came back to the queue.
        waited: Millis,
    },
    /// A cluster got the right to run it.
    Admitted {
        /// Which.
        cluster: ClusterName,
        /// Since it was submitted, or came back to the queue.
        waited: Millis,
        /// Since quota was reserved, where that is known.
        checked: Option<Millis>,
    },
    /// All its pods run.
    Ready {
        /// Since it was submitted, or came back to the queue.
        waited: Millis,
        /// Since it was admitted.
        started: Millis,
    },
    /// It lost its right to run, or its quota, without having ended.
    Evicted {
        /// Kueue's word.
        reason: String,
        /// Ours, where Kueue's says less.
        cause: String,
        /// It never did before for this reason.
        first: bool,
        /// How long all its pods had run.
        ran: Option<Millis>,
        /// The cluster where it was admitted.
        cluster: Option<ClusterName>,
        /// The cluster queue for whose workload it was displaced, and by which right.
        displaced: Option<(Arc<str>, String)>,
    },
    /// Who was told to stop has stopped, or its lease has lapsed.
    Stopped {
        /// Kueue's word for why.
        reason: String,
        /// Since it was told.
        took: Millis,
    },
    /// It was given more pods while it runs: Kueue's new slice in place of the old one.
    Replaced,
    /// It ended for good.
    Finished {
        /// Run time over all attempts.
        ran: Millis,
    },
}

/// One of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Milestone {
    /// Whose.
    pub whose: Whose,
    /// What.
    pub event: Event,
}

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

impl World {
    /// The cluster queue where a workload's quota is charged, or that its local queue leads to.
    pub(crate) fn queue_of(&self, uid: Uid) -> Option<Arc<str>> {
        let charged = self.queues.charged_to(uid).cloned();
        charged.or_else(|| {
            let class = self.queues.class(self.state.workloads.get(&uid)?.class);
            Some(Arc::from(
                self.state.catalog.local_queue(&class.namespace, &class.queue)?.cluster_queue.as_str(),
            ))
        })
    }

    /// How a workload stands, where the record may be a milestone.
    pub(crate) fn before(&self, uid: Uid, record: &Record) -> Option<Before> {
        let deactivated = matches!(record, Record::Released { .. })
            && self.state.workloads.get(&uid).is_some_and(|w| w.inactive.is_some());
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
        let workload = self.state.workloads.get(&uid).filter(|_| may_be || deactivated)?;
        let class = self.queues.class(workload.class);
        let whose = Whose {
            cluster_queue: self.queue_of(uid).unwrap_or_else(|| Arc::from("")),
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
            cluster: Self::right(workload).map(|(_, leg)| leg.cluster.clone()),
            reserved,
            evicted,
        })
    }

    /// What the record came to.
    pub(crate) fn milestones(&self, before: Before, record: &Record, now: Now) -> Vec<Milestone> {
        let Before { uid, whose, phase, since, cluster, reserved, evicted } = before;
        let Some(workload) = self.state.workloads.get(&uid) else { return Vec::new() };
        let to = workload.phase;
        let mut events = Vec::new();
        match record {
            Record::Reserved { .. } if phase != to => {
                events.push(Event::QuotaReserved { waited: now.wall.since(queued(workload)) })
            }
            Record::Granted { at, .. } if phase != to => {
                let cluster = Self::right(workload)
                    .map_or_else(|| ClusterName::new(""), |(_, leg)| leg.cluster.clone());
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
                    .map(|p| (self.queue_of(p.by).unwrap_or_else(|| Arc::from("")), p.right.clone())),
            });
        }
        events.into_iter().map(|event| Milestone { whose: whose.clone(), event }).collect()
    }
}
