//! Small worlds: queues, pending workloads and holders.

use meridian_queueing::model::{
    Flavor, PodSet, PodSetAdmission, QueueId, QueueSetup, ResourceGroup, Shape, WorkloadId,
};
use meridian_queueing::quota::Quota;
use meridian_queueing::settings::Settings;
use meridian_queueing::{Amount, NewWorkload, QueueState};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Amounts by resource.
pub(crate) type Amounts<'a> = &'a [(&'a str, i64)];

/// A queue with groups of flavors and quotas: per group the quotas of each flavor by resource.
pub(crate) fn queue(
    state: &mut QueueState,
    name: &str,
    cohort: Option<&str>,
    groups: &[&[(&str, Amounts<'_>)]],
) -> QueueSetup {
    let mut setup =
        QueueSetup { name: Arc::from(name), cohort: cohort.map(Arc::from), ..QueueSetup::default() };
    for flavors in groups {
        let mut group = ResourceGroup::default();
        for (flavor, quotas) in *flavors {
            let flavor = state.flavor_id(flavor);
            state.set_flavor(flavor, Some(Flavor::default()));
            group.flavors.push(flavor);
            for (resource, nominal) in *quotas {
                let resource = state.resource(resource);
                if !group.resources.contains(&resource) {
                    group.resources.push(resource);
                }
                setup
                    .quotas
                    .insert((flavor, resource), Quota { nominal: Amount(*nominal), ..Quota::default() });
            }
        }
        setup.groups.push(group);
    }
    setup
}

pub(crate) fn new(
    state: &mut QueueState,
    name: &str,
    queue: QueueId,
    priority: i64,
    asks: Amounts<'_>,
) -> NewWorkload {
    let asks: BTreeMap<String, i64> =
        asks.iter().map(|(resource, amount)| ((*resource).to_owned(), *amount)).collect();
    let set =
        PodSet { name: Arc::from("main"), count: 1, per_pod: state.requests(&asks), ..Default::default() };
    let shape = state.intern(Shape { pod_sets: vec![set], priority, ..Shape::default() });
    NewWorkload {
        key: Arc::from(name),
        uid: Arc::from(name),
        queue,
        local_queue: Arc::from("n/q"),
        shape,
        since: 0,
        marks: None,
    }
}

pub(crate) fn wait(
    state: &mut QueueState,
    name: &str,
    queue: QueueId,
    priority: i64,
    asks: Amounts<'_>,
) -> WorkloadId {
    let new = new(state, name, queue, priority, asks);
    state.add_pending(new)
}

pub(crate) fn hold(
    state: &mut QueueState,
    name: &str,
    queue: QueueId,
    flavor: &str,
    asks: Amounts<'_>,
) -> WorkloadId {
    hold_as(state, name, queue, flavor, 0, asks)
}

pub(crate) fn hold_as(
    state: &mut QueueState,
    name: &str,
    queue: QueueId,
    flavor: &str,
    priority: i64,
    asks: Amounts<'_>,
) -> WorkloadId {
    let new = new(state, name, queue, priority, asks);
    let flavor = state.flavor_id(flavor);
    let usage: BTreeMap<String, i64> =
        asks.iter().map(|(resource, amount)| ((*resource).to_owned(), *amount)).collect();
    let usage = state.requests(&usage);
    let given = PodSetAdmission {
        flavors: usage.iter().map(|(resource, _)| (*resource, flavor)).collect(),
        usage,
        count: 1,
        ..PodSetAdmission::default()
    };
    state.add_holder(new, vec![given], 0, false, true)
}

pub(crate) fn world(settings: Settings, make: impl FnOnce(&mut QueueState) -> Vec<QueueSetup>) -> QueueState {
    let mut state = QueueState::new(settings);
    let queues = make(&mut state);
    state.configure(&BTreeMap::new(), queues);
    state
}

pub(crate) fn id(state: &QueueState, name: &str) -> QueueId {
    state.queue_id(name).expect("the queue is declared")
}
