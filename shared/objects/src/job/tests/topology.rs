//! Topology requests of a Job.

use super::*;

const LEVEL: &str = "cloud.provider.com/topology-rack";

/// A job of eight pods with these annotations of Kueue in its template, given without their prefix.
fn annotated(annotations: &[(&str, &str)]) -> Vec<(&'static str, Value)> {
    let all: serde_json::Map<String, Value> =
        annotations.iter().map(|(key, value)| (format!("kueue.x-k8s.io/{key}"), json!(value))).collect();
    vec![
        ("spec.parallelism", json!(8)),
        ("spec.completions", json!(8)),
        ("spec.template.metadata", json!({"annotations": all})),
    ]
}

#[test]
fn topology_requests_come_from_template_annotations() {
    let check = |annotations: &[(&str, &str)], expect: Option<TopologyRequest>| {
        let set = &read(with(&annotated(annotations))).unwrap().gang.pod_sets[0];
        assert_eq!(set.topology, expect, "{annotations:?}");
    };
    check(&[], None);
    check(&[("workload", "w")], None);
    check(&[("podset-required-topology", LEVEL)], Some(TopologyRequest::required(LEVEL)));
    check(&[("podset-preferred-topology", LEVEL)], Some(TopologyRequest::preferred(LEVEL)));
    let anywhere = TopologyRequest { constraint: Some(Constraint::Unconstrained), slices: Vec::new() };
    check(&[("podset-unconstrained-topology", "true")], Some(anywhere));
    let slices = [("podset-slice-required-topology", "rack"), ("podset-slice-size", "4")];
    check(&slices, Some(TopologyRequest::default().sliced("rack", 4)));
    let required = ("podset-required-topology", "block");
    check(&[required, slices[0], slices[1]], Some(TopologyRequest::required("block").sliced("rack", 4)));
    let layers = (
        "podset-slice-required-topology-constraints",
        r#"[{"topology": "rack", "size": 4}, {"topology": "host", "size": 2}]"#,
    );
    check(&[required, layers], Some(TopologyRequest::required("block").sliced("rack", 4).sliced("host", 2)));
    let grouped = read(with(&annotated(&[required, ("podset-group-name", "g")]))).unwrap();
    assert_eq!(grouped.gang.pod_sets[0].group.as_deref(), Some("g"));
}

#[test]
fn contradictory_topology_requests_are_refused() {
    let check = |annotations: &[(&str, &str)], expect: &str| check_error(&annotated(annotations), expect);
    let (required, preferred) = (("podset-required-topology", "rack"), ("podset-preferred-topology", "rack"));
    check(
        &[required, preferred],
        "podset-preferred-topology]: can't be combined with `kueue.x-k8s.io/podset-required-topology`; keep \
            one of them",
    );
    check(
        &[preferred, ("podset-unconstrained-topology", "true")],
        "podset-unconstrained-topology]: can't be combined",
    );
    check(
        &[("podset-unconstrained-topology", "false")],
        "`false` has no effect; write \"true\", or remove it",
    );
    check(&[("podset-required-topology", "a rack")], "`a rack` is not a node label; name a level");
    check(
        &[("podset-slice-size", "4")],
        "podset-slice-required-topology]: is missing next to `kueue.x-k8s.io/podset-slice-size`",
    );
    let level = ("podset-slice-required-topology", "rack");
    check(&[level], "podset-slice-size]: is missing");
    check(&[level, ("podset-slice-size", "0")], "`0` is not a number of pods");
    check(
        &[level, ("podset-slice-size", "3")],
        "the 8 pods that start together can't be divided into slices of 3",
    );
    check(&[level, ("podset-slice-size", "16")], "can't be divided into slices of 16");
    let layers = |text| ("podset-slice-required-topology-constraints", text);
    check(
        &[layers(r#"[{"topology": "rack", "size": 4}]"#), level, ("podset-slice-size", "4")],
        "can't be combined with slices of one layer",
    );
    check(
        &[layers(r#"[{"topology": "rack", "size": 4}, {"topology": "host", "size": 3}]"#)],
        "slices of 3 pods don't divide the 4 around them",
    );
    check(&[layers("rack")], "can't be read");
    check(&[layers("[]")], "has 0 layers; write one to 3");
    check(&[("podset-group-name", "g")], "names a group without a topology level");
    check(&[required, ("podset-group-name", "12")], "`12` can't name a group");
    check(
        &[required, level, ("podset-slice-size", "4"), ("podset-group-name", "g")],
        "can't be combined with slices; a group is placed whole",
    );
    check_error(
        &[("spec.template.metadata", json!({"annotations": {"kueue.x-k8s.io/podset-slice-size": true}}))],
        "must be a string, not the boolean `true`; quote it",
    );
}
