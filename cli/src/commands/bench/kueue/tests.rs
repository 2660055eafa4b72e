use super::ideal::{self, Ideal};
use super::report::figures;
use super::run::{Admissions, Counters, ScenarioRun, WorkloadRun, cpu_seconds};
use super::scenario::{Class, Submission, job};
use super::*;
use meridian_objects::Object;
use std::collections::HashMap;
use std::time::Duration;

#[test]
fn the_benchmarks_are_the_published_ones() {
    assert_eq!(
        (BASELINE.queues(), BASELINE.jobs(), LARGE_SCALE.queues(), LARGE_SCALE.jobs()),
        (30, 15_000, 1_000, 50_000)
    );
    assert!((BASELINE.floor_s() - 66.0).abs() < 1e-9 && (LARGE_SCALE.floor_s() - 4.025).abs() < 1e-9);
    assert_eq!(BASELINE.submissions().map(|one| one.due_ms).max(), Some(60_000));
    assert_eq!(LARGE_SCALE.submissions().map(|one| one.due_ms).max(), Some(3_300));
    let due = |at| BASELINE.submissions().filter(|one| one.due_ms == at).count();
    assert_eq!((due(100), due(500), due(6_000)), (30, 60, 90));
    assert_eq!(LARGE_SCALE.schedule()[&300].len(), 8, "2,000 jobs, 250 in a request");
}

#[test]
fn the_ideal_run_starts_preempted_workloads_over() {
    let class =
        |count, every_ms, run_ms, priority, cpu| Class { name: "", count, every_ms, run_ms, priority, cpu };
    // A large workload comes every 1.2 s and runs for 1 s: a medium one that starts in between never ends
    // before the last large one, at 3.6 s, has come and ended.
    let classes = [class(0, 1, 1, 0, 1), class(1, 1_100, 500, 100, 20), class(3, 1_200, 1_000, 200, 20)];
    let scenario = Scenario {
        cohorts: 1,
        queues_per_cohort: 1,
        classes,
        published: LARGE_SCALE.published,
        measured: None,
        ..BASELINE
    };
    assert_eq!(ideal::simulate(&scenario), Ideal { wall_ms: 4_600 + 500, preempted: 3 });
    // Equal priorities: nothing is preempted.
    let scenario = Scenario {
        classes: [class(40, 1, 100, 0, 1), class(0, 1, 1, 0, 1), class(0, 1, 1, 0, 1)],
        ..scenario
    };
    assert_eq!(ideal::simulate(&scenario), Ideal { wall_ms: 201 + 19, preempted: 0 });
}

#[test]
fn fleet_and_objects_are_valid() {
    assert_eq!(meridian_agent::inventory::fleet::parse("fleet.yaml", FLEET).unwrap().len(), 3);
    let one = Submission { due_ms: 0, class: 0, queue: 3, number: 7 };
    let jobs = BASELINE.classes.iter().map(|class| job(class, one));
    for object in BASELINE.objects().into_iter().chain(jobs) {
        Object::from_value(object.clone()).unwrap_or_else(|errors| panic!("{errors:?} in {object}"));
    }
}

#[test]
fn figures_are_compared_with_kueues() {
    let counters =
        |cpu: f64, n: u64| Counters { manager_cpu_s: cpu, agents_cpu_s: cpu, commits: n, records: 2 * n };
    let workload = WorkloadRun { uid: "u".to_owned(), granted_s: 60_000.0 };
    let run = ScenarioRun {
        wall: Duration::from_secs(100),
        began_ms: 1_000,
        latest_send: Duration::ZERO,
        before: counters(1.0, 0),
        after: counters(4.0, 1_000),
        admissions: Admissions { first_ms: HashMap::from([("u".to_owned(), 1_600)]), grants: 1 },
        workloads: HashMap::from([("small-0-0".to_owned(), workload)]),
    };
    let all = figures(&BASELINE, &run);
    let of = |title: &str| all.iter().find(|figure| figure.title.starts_with(title)).unwrap();
    assert_eq!((of("wall").value, of("admissions").value, of("usage").value), (100.0, 150.0, 100.0));
    assert_eq!((of("durable").value, of("records").value), (10.0, 20.0));
    // Due after 100 ms, granted after 600.
    assert_eq!(of("mean time to admission, small").value, 500.0);
    let note = &of("wall").note;
    assert!(note.ends_with("Kueue 351.1 on its CI, 410.0 on two cores"), "{note}");
}

#[test]
fn processor_time_of_a_process_is_read() {
    assert!(cpu_seconds(std::process::id()).unwrap() >= 0.0);
    assert!(cpu_seconds(u32::MAX).is_err());
}
