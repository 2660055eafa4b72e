//! Penalties and the usage history of local queues.

use super::stage::{id, new, queue, wait, world};
use meridian_queueing::capacity_model::UnlimitedCapacity;
use meridian_queueing::model::{QueueId, QueueSetup, WorkloadId};
use meridian_queueing::settings::{AdmissionFairSharing, Settings};
use meridian_queueing::{NANOS_PER_UNIT, NewWorkload, QueueState, cycle};
use std::sync::Arc;

/// Half of a request is the penalty of its admission.
const FAIR: AdmissionFairSharing =
    AdmissionFairSharing { half_life_ms: 1_000, sampling_ms: 1_000, resource_weights: Vec::new() };

/// A queue `q`, ordered by usage if `usage_based`.
fn ordered(usage_based: bool) -> (QueueState, QueueId) {
    let settings = Settings { admission_fair_sharing: Some(FAIR), ..Settings::default() };
    let state = world(settings, |state| {
        let setup = queue(state, "q", None, &[&[("f", &[("gpu", 9)])]]);
        vec![QueueSetup { usage_based, ..setup }]
    });
    let q = id(&state, "q");
    (state, q)
}

fn admit(state: &mut QueueState, name: &str, queue: QueueId, gpus: i64) -> WorkloadId {
    let workload = wait(state, name, queue, 0, &[("gpu", gpus)]);
    cycle::run_once(state, &mut UnlimitedCapacity, false);
    assert!(state.workload(workload).is_some_and(|of| of.holding.is_some()));
    workload
}

#[test]
fn an_admission_is_charged_to_its_local_queue_until_it_is_confirmed() {
    let (mut state, q) = ordered(true);
    let (one, two) = (admit(&mut state, "one", q, 4), admit(&mut state, "two", q, 2));
    assert_eq!(state.weighted_usage("n/q"), 3.0, "of a local queue without any history");
    assert!(state.workloads_with_penalty().eq([one, two]));
    assert!(state.has_penalty(one) && !state.charges_penalty(one), "it is charged once");
    state.drop_penalty(one);
    assert!(!state.has_penalty(one) && state.has_penalty(two));
    assert_eq!(state.weighted_usage("n/q"), 1.0);
    state.drop_penalty(two);
    assert!(state.local_usage("n/q").is_some_and(|of| of.penalty.is_empty()));
    assert_eq!(state.workloads_with_penalty().count(), 0);
}

#[test]
fn a_queue_in_the_usual_order_charges_nothing() {
    let (mut state, q) = ordered(false);
    let one = admit(&mut state, "one", q, 4);
    assert!(!state.has_penalty(one));
    assert_eq!(state.workloads_with_penalty().count(), 0);
}

#[test]
fn usage_orders_a_queue_only_if_gate_settings_and_queue_agree() {
    for (gate, set, usage_based) in
        [(true, true, true), (false, true, true), (true, false, true), (true, true, false)]
    {
        let (mut state, q) = ordered(usage_based);
        state.settings_mut().gates.admission_fair_sharing = gate;
        state.settings_mut().admission_fair_sharing = set.then_some(FAIR);
        assert_eq!(state.orders_by_usage(q), gate && set && usage_based);
    }
}

#[test]
fn resources_that_are_ignored_have_no_penalty() {
    for ignored in [false, true] {
        let (mut state, q) = ordered(true);
        state.settings_mut().ignore_undeclared = ignored;
        let waits = wait(&mut state, "w", q, 0, &[("gpu", 4), ("nic", 2)]);
        let (gpu, nic) = (state.resource("gpu"), state.resource("nic"));
        let penalty = state.entry_penalty(waits);
        assert_eq!(penalty.get(&gpu), Some(&(2 * NANOS_PER_UNIT)));
        assert_eq!(penalty.get(&nic), (!ignored).then_some(&NANOS_PER_UNIT), "ignored: {ignored}");
    }
}

#[test]
fn without_history_there_is_no_penalty() {
    let (mut state, q) = ordered(true);
    state.settings_mut().admission_fair_sharing = Some(AdmissionFairSharing { half_life_ms: 0, ..FAIR });
    let waits = wait(&mut state, "w", q, 0, &[("gpu", 4)]);
    assert!(state.entry_penalty(waits).is_empty());
}

#[test]
fn new_history_concerns_only_queues_with_active_workloads() {
    let (mut state, q) = ordered(true);
    assert!(!state.reorder());
    let parked = new(&mut state, "parked", q, 0, &[("gpu", 99)]);
    state.add_parked(parked);
    assert!(!state.reorder());
    wait(&mut state, "w", q, 0, &[("gpu", 1)]);
    assert!(state.reorder());
}

#[test]
fn the_history_of_a_deleted_local_queue_is_forgotten() {
    let (mut state, q) = ordered(true);
    let other = new(&mut state, "other", q, 0, &[("gpu", 1)]);
    state.add_pending(NewWorkload { local_queue: Arc::from("n/gone"), ..other });
    cycle::run_once(&mut state, &mut UnlimitedCapacity, false);
    admit(&mut state, "one", q, 1);
    state.retain_local_queues(|name| name == "n/q");
    assert!(state.local_usage("n/q").is_some() && state.local_usage("n/gone").is_none());
}
