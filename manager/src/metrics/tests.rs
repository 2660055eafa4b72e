//! Names, rendering and replacement of metrics.

use super::*;
use meridian_manager_core::facts::lifecycle::Owner;
use meridian_shared::provider_reason::ProviderReason;
use meridian_shared::time::Millis;
use meridian_telemetry::trace::Trace;
use std::time::Duration;

fn is_snake(name: &str) -> bool {
    name.split('_')
        .all(|part| !part.is_empty() && part.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit()))
}

#[test]
fn names_follow_the_conventions() {
    let metrics = Metrics::new("1");
    for entry in metrics.catalog() {
        let Definition { name, help, kind, labels } = *entry;
        assert!(
            (name.starts_with(registrar::PREFIX) || name.starts_with(registrar::KUEUE_PREFIX))
                && is_snake(name),
            "{name}"
        );
        assert!(
            help.len() > 10
                && !help.ends_with('.')
                && help.starts_with(|c: char| c.is_lowercase() || c.is_ascii_digit()),
            "{name}: {help}"
        );
        assert_eq!(kind == "counter", name.ends_with("_total"), "{name} is a {kind}");
        for other in ["_milliseconds", "_ms", "_minutes", "_kib", "_mb", "_count", "_sum", "_bucket"] {
            assert!(!name.ends_with(other), "{name}");
        }
        assert!(
            labels.iter().all(|l| is_snake(l) && !["le", "quantile", "job", "instance"].contains(l)),
            "{name}: {labels:?}"
        );
        for label in labels {
            assert!(LABELS.iter().any(|known| known.name == *label), "{name}: what bounds `{label}`?");
        }
    }
}

#[test]
fn the_bound_of_reasons_covers_those_of_providers() {
    let reasons = LABELS.iter().find(|label| label.name == "reason").unwrap();
    assert_eq!(reasons.bound, format!("at most {}", ProviderReason::COUNT));
}

#[test]
fn handles_tell_the_names_of_their_metrics() {
    let metrics = Metrics::new("1");
    assert_eq!(metrics.workloads.grants.name(), "meridian_grants_total");
    assert_eq!(metrics.fleet.held_twice.name(), "meridian_held_twice_accelerator_seconds_total");
    assert_eq!(metrics.journal.bytes.name(), "meridian_journal_bytes");
    assert_eq!(metrics.kueue.events.admitted.name(), "kueue_admitted_workloads_total");
    let local = metrics.kueue.events.admission_wait.local().name();
    assert_eq!(local, "kueue_local_queue_admission_wait_time_seconds");
}

#[test]
fn counted_events_are_rendered() {
    let metrics = Metrics::new("1.2.3");
    metrics.workloads.submissions.inc(["accepted"]);
    metrics.api.requests.add(["create", "jobs", "201"], 2);
    metrics.journal.commit_seconds.observe_duration([], Duration::from_millis(3));
    metrics.kueue.queues.pending_workloads.replace([(["team-a", "active"], 4)]);
    metrics.kueue.queues.pending_workloads.replace([(["team-b", "active"], 5)]);
    let watching = metrics.clone().api.watchers.enter();
    let text = metrics.render(&[]);
    for line in [
        r#"meridian_build_info{version="1.2.3"} 1"#,
        r#"meridian_submissions_total{result="accepted"} 1"#,
        r#"meridian_api_requests_total{code="201",resource="jobs",verb="create"} 2"#,
        "meridian_journal_commit_seconds_count 1",
        r#"kueue_pending_workloads{cluster_queue="team-b",replica_role="leader",status="active"} 5"#,
        "meridian_grants_total 0",
        "meridian_watchers 1",
        "# TYPE meridian_grants_total counter",
    ] {
        assert!(text.lines().any(|l| l == line), "{line} is not in\n{text}");
    }
    assert!(!text.contains("team-a"));
    drop(watching);
    assert!(metrics.render(&[]).contains("meridian_watchers 0"));
    let some = metrics.render(
        &["meridian_watchers", "kueue_pending_workloads", "no_such", "meridian_watchers"].map(str::to_owned),
    );
    let samples: Vec<&str> = some.lines().filter(|line| !line.starts_with('#')).collect();
    assert_eq!(
        samples,
        [
            r#"kueue_pending_workloads{cluster_queue="team-b",replica_role="leader",status="active"} 5"#,
            "meridian_watchers 0"
        ]
    );
}

#[test]
fn the_newest_trace_of_a_bucket_is_its_exemplar() {
    let metrics = Metrics::new("1");
    let trace = Trace::of_workload(meridian_shared::ids::Uid(0x51));
    let owner = Owner {
        cluster_queue: "team-a".into(),
        namespace: "default".into(),
        local_queue: "gpus".into(),
        priority_class: "high".into(),
    };
    metrics.kueue.events.admission_wait.observe(&owner, true, Millis::secs(3), trace);
    metrics.fleet.race_seconds.observe_traced(["eu"], Duration::from_secs(7_000), trace);
    metrics.fleet.race_seconds.observe_duration(["eu"], Duration::from_millis(1));
    let text = metrics.render_open(&[]);
    let exemplars: Vec<&str> = text.lines().filter(|line| line.contains(" # {")).collect();
    let id = "00000000000000000000000000000051";
    let heads = [
        format!(
            "kueue_admission_wait_time_seconds_bucket{{cluster_queue=\"team-a\",priority_class=\"high\",\
             replica_role=\"leader\",le=\"5\"}} 1 # {{trace_id=\"{id}\"}} 3 "
        ),
        format!("meridian_race_seconds_bucket{{cluster=\"eu\",le=\"+Inf\"}} 2 # {{trace_id=\"{id}\"}} 7000 "),
    ];
    assert_eq!(exemplars.len(), heads.len(), "{exemplars:?}");
    for (line, head) in exemplars.iter().zip(&heads) {
        assert!(line.starts_with(head), "{line}\n{head}");
    }
    assert!(!metrics.render(&[]).contains(id), "Prometheus' text format has no exemplars");
    metrics.fleet.forget_cluster("eu");
    metrics.fleet.race_seconds.observe_duration(["eu"], Duration::from_secs(7_000));
    assert!(
        !metrics.render_open(&["meridian_race_seconds".to_owned()]).contains(id),
        "the series is another"
    );
}

#[test]
fn open_metrics_names_families_of_counters_without_their_suffix() {
    let metrics = Metrics::new("1");
    let text = metrics.render_open(&[]);
    assert!(text.ends_with("\n# EOF\n") && text.matches("# EOF").count() == 1);
    let lines: Vec<&str> = text.lines().collect();
    let at = lines.iter().position(|line| *line == "# TYPE meridian_grants counter").unwrap();
    assert_eq!(lines[at - 1], "# HELP meridian_grants grants committed to the journal");
    assert_eq!(lines[at + 1], "meridian_grants_total 0");
    let families: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")).collect();
    let names: std::collections::BTreeSet<&str> =
        families.iter().filter_map(|family| family.split(' ').next()).collect();
    assert_eq!(names.len(), families.len(), "two families have one name");
    for entry in metrics.catalog() {
        assert!(
            !entry.help.contains(['"', '\\', '\n']),
            "OpenMetrics escapes quotes in help: {}",
            entry.name
        );
    }
    metrics.kueue.queues.finished_workloads.replace([(["team-a"], 4)]);
    let text = metrics.render_open(&[]);
    assert!(text.contains("# TYPE kueue_finished_workloads gauge\n"), "{text}");
    let owner = Owner {
        cluster_queue: "team-a".into(),
        namespace: "default".into(),
        local_queue: "gpus".into(),
        priority_class: "".into(),
    };
    metrics.kueue.events.finished.inc(&owner, false);
    let text = metrics.render_open(&[]);
    assert!(text.contains("# TYPE kueue_finished_workloads_total unknown\n"), "{text}");
}

#[test]
fn series_are_added_removed_and_reordered() {
    let metrics = Metrics::new("1");
    let shown = |rows: &[(&str, i64)]| {
        metrics.kueue.queues.reserving_active.replace(rows.iter().map(|(queue, n)| ([*queue], *n)));
        let text = metrics.render(&["kueue_reserving_active_workloads".to_owned()]);
        let samples = text.lines().filter(|line| !line.starts_with('#'));
        samples
            .map(|line| {
                (
                    line.split('"').nth(1).unwrap().to_owned(),
                    line.rsplit(' ').next().unwrap().parse().unwrap(),
                )
            })
            .collect::<Vec<(String, i64)>>()
    };
    for rows in [
        &[("a", 1), ("b", 2), ("c", 3)][..],
        &[("a", 4), ("b", 5), ("c", 6)],
        &[("a", 7), ("c", 8), ("d", 9)],
        &[("d", 1), ("a", 2)],
        &[],
        &[("c", 1)],
    ] {
        let mut expected: Vec<(String, i64)> =
            rows.iter().map(|(queue, n)| ((*queue).to_owned(), *n)).collect();
        expected.sort();
        assert_eq!(shown(rows), expected);
    }
}
