//! Reported obstacles.

use super::stage::{Amounts, hold, id, new, queue, wait, world};
use meridian_queueing::capacity_model::UnlimitedCapacity;
use meridian_queueing::cycle::{self, EntryOutcome};
use meridian_queueing::flavors::Mode;
use meridian_queueing::model::{ClusterQueuePreemption, Flavor, Obstacle, PodSet, PreemptionRule};
use meridian_queueing::settings::Settings;
use meridian_queueing::{NewWorkload, QueueState};
use meridian_shared::gang::{Taint, TaintEffect};
use meridian_shared::topology::TopologyRequest;
use meridian_topology::Node;
use std::collections::BTreeMap;
use std::sync::Arc;

#[test]
fn a_skipped_head_reports_suitable_flavors_only() {
    let brief = Settings { brief: true, ..Settings::default() };
    let mut state = world(brief, |state| {
        let mut setup = queue(state, "q", None, &[&[("spot", &[("gpu", 2)]), ("plain", &[("gpu", 4)])]]);
        setup.preemption = ClusterQueuePreemption {
            reclaim_within_cohort: PreemptionRule::Any,
            ..ClusterQueuePreemption::default()
        };
        vec![setup]
    });
    state.settings_mut().gates.topology = false;
    let taint = |state: &mut QueueState, flavor: &str| {
        let id = state.flavor_id(flavor);
        let taint = Taint { key: "only".into(), value: String::new(), effect: TaintEffect::NoSchedule };
        state.set_flavor(id, Some(Flavor { taints: vec![taint], ..Flavor::default() }));
    };
    taint(&mut state, "spot");
    let q = id(&state, "q");
    hold(&mut state, "holds", q, "plain", &[("gpu", 3)]);
    wait(&mut state, "waits", q, 0, &[("gpu", 2)]);
    let skipped =
        cycle::unchanged_shortage(&state, q).expect("one of two is free, and the queue may not preempt");
    let short: Vec<(&str, i64)> =
        skipped.short.iter().map(|(flavor, _, missing)| (&**state.flavor_name(*flavor), missing.0)).collect();
    assert_eq!(short, [("plain", 1)]);
    taint(&mut state, "plain");
    assert_eq!(cycle::unchanged_shortage(&state, q), None, "an unsuitable flavor is another obstacle");
}

/// The flavors tried for the first pod set in a cycle, and the reported obstacle of the only head.
fn tried_and_obstacle(state: &mut QueueState) -> (Vec<String>, Option<Obstacle>) {
    let report = cycle::run_once(state, &mut UnlimitedCapacity, false);
    let [entry] = report.entries.as_slice() else { panic!("there is one head: {report:?}") };
    let tried = entry.assignment.pod_sets[0]
        .attempts
        .iter()
        .map(|attempt| state.flavor_name(attempt.flavor).to_string())
        .collect();
    (tried, entry.obstacle)
}

#[test]
fn the_first_group_in_kueues_order_is_reported() {
    let tried = |asks: Amounts<'_>| {
        let mut state = world(Settings::default(), |state| {
            vec![queue(
                state,
                "q",
                None,
                &[&[("cores", &[("cpu", 4)])], &[("dimms", &[("memory", 4)])], &[("cards", &[("gpu", 4)])]],
            )]
        });
        let q = id(&state, "q");
        wait(&mut state, "w", q, 0, asks);
        tried_and_obstacle(&mut state)
    };
    let exceeds = Some(Obstacle::ExceedsMaxQuota);
    assert_eq!(
        tried(&[("cpu", 5), ("memory", 5)]),
        (vec!["dimms".to_owned()], exceeds),
        "memory comes before cpu"
    );
    assert_eq!(tried(&[("cpu", 5), ("gpu", 5)]), (vec!["cards".to_owned()], exceeds), "so does gpu");
    assert_eq!(
        tried(&[("cpu", 5), ("gpu", 4)]),
        (vec!["cards".to_owned(), "cores".to_owned()], exceeds),
        "fitting flavors are tried too"
    );
}

#[test]
fn an_uncovered_resource_bars_whatever_was_tried() {
    let described = |small: i64| {
        let mut state = world(Settings::default(), |state| {
            vec![queue(state, "q", None, &[&[("small", &[("gpu", small)]), ("large", &[("gpu", 9)])]])]
        });
        let q = id(&state, "q");
        let w = wait(&mut state, "w", q, 0, &[("cpu", 1), ("gpu", 5)]);
        let report = cycle::run_once(&mut state, &mut UnlimitedCapacity, false);
        assert_eq!((report.entries[0].workload, report.entries[0].outcome), (w, EntryOutcome::NoFit));
        (report.entries[0].obstacle, report.entries[0].assignment.barrier)
    };
    let nothing = Some(Obstacle::NoMatchingFlavor);
    assert_eq!(described(4), (Some(Obstacle::ExceedsMaxQuota), nothing), "it exceeds one flavor");
    assert_eq!(described(9), (nothing, nothing), "all flavors that were tried fit");
}

#[test]
fn partial_admission_is_barred_by_its_fewest_pods() {
    let mut state =
        world(Settings::default(), |state| vec![queue(state, "q", None, &[&[("f", &[("cpu", 4)])]])]);
    let q = id(&state, "q");
    hold(&mut state, "holder", q, "f", &[("cpu", 4)]);
    let mut barred = |name: &str, least: u32| {
        let new = new(&mut state, name, q, 0, &[("cpu", 1)]);
        let mut shape = (**state.shape_of(new.shape)).clone();
        (shape.pod_sets[0].count, shape.pod_sets[0].min_count) = (9, Some(least));
        let shape = state.intern(shape);
        let waits = state.add_pending(NewWorkload { shape, ..new });
        let report = cycle::run_once(&mut state, &mut UnlimitedCapacity, false);
        let entry = report.entries.iter().find(|entry| entry.workload == waits).expect("it is a head");
        (entry.obstacle, entry.assignment.barrier)
    };
    let exceeds = Some(Obstacle::ExceedsMaxQuota);
    assert_eq!(barred("modest", 4), (exceeds, Some(Obstacle::WaitingForQuota)), "four pods may fit later");
    assert_eq!(barred("stubborn", 5), (exceeds, exceeds));
}

#[test]
fn pod_sets_of_one_group_fail_together() {
    let host = "kubernetes.io/hostname";
    let mut state = world(Settings::default(), |state| {
        let setup = queue(state, "q", None, &[&[("f", &[("cpu", 9)])]]);
        let topology = Flavor { topology: Some(Arc::from("dc")), ..Flavor::default() };
        state.set_flavor(setup.groups[0].flavors[0], Some(topology));
        vec![setup]
    });
    let labels = BTreeMap::from([(host.to_owned(), "h".to_owned())]);
    let allocatable = BTreeMap::from([("cpu".to_owned(), 2), ("pods".to_owned(), 9)]);
    let node = Node {
        name: "h".to_owned(),
        labels,
        taints: Vec::new(),
        ready: true,
        unschedulable: false,
        allocatable,
    };
    state.set_nodes(&[(Arc::from("dc"), vec![host.to_owned()])].into(), &[node], &[]);
    let q = id(&state, "q");
    let new = new(&mut state, "w", q, 0, &[("cpu", 1)]);
    let mut shape = (**state.shape_of(new.shape)).clone();
    shape.pod_sets[0].on_node = [("cpu".to_owned(), 1)].into();
    shape.pod_sets[0].topology = Some(TopologyRequest::required(host));
    shape.pod_sets[0].group = Some("together".to_owned());
    shape.pod_sets.push(PodSet { name: Arc::from("workers"), count: 2, ..shape.pod_sets[0].clone() });
    let shape = state.intern(shape);
    state.add_pending(NewWorkload { shape, ..new });
    let report = cycle::run_once(&mut state, &mut UnlimitedCapacity, false);
    let entry = &report.entries[0];
    assert_eq!(
        (entry.outcome, entry.obstacle),
        (EntryOutcome::NoFit, Some(Obstacle::TopologyPlacementFailed))
    );
    for set in &entry.assignment.pod_sets {
        let modes: Vec<Mode> = set.flavors.iter().map(|(_, choice)| choice.mode).collect();
        let tried: Vec<(Mode, Option<Obstacle>)> =
            set.attempts.iter().map(|attempt| (attempt.mode, attempt.obstacle)).collect();
        assert_eq!(
            (modes, tried),
            (vec![Mode::NoFit], vec![(Mode::NoFit, Some(Obstacle::TopologyPlacementFailed))])
        );
    }
}
