//! Effective requests: defaults of namespaces and runtime classes, operators' rules.

use super::*;
use crate::object::Object;
use crate::plan::PlanObject;
use crate::pod::PodTemplate;
use crate::spec::Spec;
use crate::spec::limits::{LimitRangeSpec, RuntimeClassSpec};
use meridian_shared::gang::Amounts;
use serde_json::Value;
use serde_json::json;

fn template(spec: Value) -> PodTemplate {
    let pod =
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "n"}, "spec": spec});
    match PlanObject::lenient(&pod) {
        Ok(PlanObject::Pod(pod)) => pod.template,
        other => panic!("{other:?}"),
    }
}

fn range(limits: Value) -> LimitRangeSpec {
    let written = json!({"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "l",
        "namespace": "n"}, "spec": {"limits": limits}});
    match Object::from_value(written).map(|(object, _)| object.spec) {
        Ok(Spec::LimitRange(range)) => range,
        other => panic!("{other:?}"),
    }
}

fn amounts(all: &[(&str, i64)]) -> Amounts {
    all.iter().map(|(resource, amount)| ((*resource).to_owned(), *amount)).collect()
}

#[test]
fn limits_are_requests_where_none_is_written() {
    let pod = template(
        json!({"containers": [{"name": "a", "resources": {"requests": {"cpu": "0"}, "limits": {"cpu": 2,
            "memory": "1Ki"}}}]}),
    );
    assert_eq!(
        effective_requests(&pod, &[], None),
        amounts(&[("cpu", 0), ("memory", 1_024)]),
        "zero is written, so it stays"
    );
}

#[test]
fn a_runtime_class_adds_its_overhead_to_pods_without() {
    let class = RuntimeClassSpec {
        handler: "h".into(),
        overhead: amounts(&[("cpu", 100)]),
        ..RuntimeClassSpec::default()
    };
    let check = |extra: Value, class: Option<&RuntimeClassSpec>, expect: i64| {
        let mut spec = json!({"containers": [{"name": "a", "resources": {"requests": {"cpu": 1}}}]});
        spec.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        assert_eq!(effective_requests(&template(spec), &[], class)["cpu"], expect);
    };
    check(json!({"runtimeClassName": "c"}), Some(&class), 1_100);
    check(json!({"runtimeClassName": "c", "overhead": {"cpu": "1m"}}), Some(&class), 1_001);
    check(json!({"runtimeClassName": "c"}), None, 1_000);
    check(json!({}), Some(&class), 1_000);
}

#[test]
fn limit_ranges_fill_in_each_container() {
    let pod = template(json!({
        "initContainers": [{"name": "i"}],
        "containers": [{"name": "a", "resources": {"requests": {"memory": "1Ki"}}}, {"name": "b",
            "resources": {"limits": {"cpu": "3"}}}],
    }));
    let first =
        range(json!([{"type": "Container", "defaultRequest": {"cpu": "500m"}, "default": {"cpu": "1",
            "memory": "4Ki"}}]));
    let second =
        range(json!([{"type": "Container", "defaultRequest": {"cpu": "7"}, "default": {"cpu": "9"}}]));
    // A server makes the default limit the default request where none is written, so memory is 4Ki for `b`
    // and `i`.
    assert_eq!(
        effective_requests(&pod, &[first.clone(), second], None),
        amounts(&[("cpu", 1_000), ("memory", 5 << 10)])
    );
    let filled = with_defaults(&pod, &[first], None);
    assert_eq!(filled.containers[1].resources.limits, amounts(&[("cpu", 3_000), ("memory", 4 << 10)]));
    assert_eq!(filled.init_containers[0].resources.requests, amounts(&[("cpu", 500), ("memory", 4 << 10)]));
    let of_pods = range(json!([{"type": "Pod", "max": {"cpu": 1}},
            {"type": "PersistentVolumeClaim", "max": {"storage": "1Gi"}}]));
    assert_eq!(
        effective_requests(&pod, &[of_pods], None),
        amounts(&[("cpu", 3_000), ("memory", 1 << 10)]),
        "bounds fill in nothing"
    );
}

#[test]
fn broken_bounds_are_named() {
    let pod = template(json!({
        "initContainers": [{"name": "i", "resources": {"requests": {"cpu": "10m"}}}],
        "containers": [{"name": "a", "resources": {"requests": {"cpu": 2, "memory": "1Ki"},
            "limits": {"cpu": 1}}}],
    }));
    let shown =
        |violations: Vec<LimitViolation>| violations.iter().map(ToString::to_string).collect::<Vec<_>>();
    let filled = with_defaults(&pod, &[], None);
    assert_eq!(
        shown(limit_violations(&filled)),
        ["containers[0] asks for more than its limit; `cpu` is `2`, the limit is `1`"]
    );
    let ranges = [
        range(json!([{"type": "Container", "min": {"cpu": "100m"}, "max": {"cpu": "4", "memory": "1Gi"}}])),
        range(json!([{"type": "Container", "max": {"cpu": "1500m"}},
                {"type": "Pod", "min": {"memory": "1Mi"}, "max": {"cpu": 1, "nvidia.com/gpu": 1}}])),
    ];
    assert_eq!(
        shown(limit_range_violations(&filled, &ranges)),
        [
            "initContainers[0] asks for less than the limit range allows; `cpu` is `10m`, the least is \
                `100m`",
            "containers[0] asks for more than the limit range allows; `cpu` is `2`, the maximum is `1500m`",
            "the pod asks for more than the limit range allows; `cpu` is `2`, the maximum is `1`",
            "the pod asks for less than the limit range allows; `memory` is `1Ki`, the least is `1Mi`",
        ]
    );
    assert_eq!(limit_range_violations(&filled, &[]), []);
}

fn rules(written: Value) -> Vec<Transformation> {
    written.as_array().unwrap().iter().map(|rule| Transformation::from_json(rule).unwrap()).collect()
}

#[test]
fn operators_rewrite_requests() {
    let check = |asked: &[(&str, i64)], written: Value, expect: &[(&str, i64)]| {
        assert_eq!(transform(&amounts(asked), &rules(written)), amounts(expect))
    };
    let slices = json!([
        {"input": "x/small", "strategy": "Replace", "outputs": {"x/memory": "5Ki", "x/credits": "10"}},
        {"input": "x/large", "strategy": "Replace", "outputs": {"x/memory": "10Ki", "x/credits": 15}},
        {"input": "cpu", "outputs": {"x/credits": "1"}},
    ]);
    check(
        &[("x/small", 2), ("x/large", 1), ("cpu", 500)],
        slices.clone(),
        &[("cpu", 500), ("x/memory", 20 << 10), ("x/credits", 36)],
    );
    check(&[("memory", 5)], slices, &[("memory", 5)]);
    // The multiplier changes outputs, not retained inputs.
    let times =
        json!([{"input": "x/mem", "strategy": "Retain", "multiplyBy": "cpu", "outputs": {"x/quota": "1"}}]);
    check(
        &[("x/mem", 1_024), ("cpu", 1_500)],
        times.clone(),
        &[("x/mem", 1_024), ("cpu", 1_500), ("x/quota", 1_536)],
    );
    check(&[("x/mem", 1_024)], times, &[("x/mem", 1_024), ("x/quota", 1_024)]);
    // An allowance reduces outputs, never what was requested.
    let allowance = json!([
        {"input": "x/mem", "strategy": "Replace", "multiplyBy": "x/gpu", "outputs": {"x/over": "1"}},
        {"input": "x/gpu", "outputs": {"x/over": "-1024"}},
    ]);
    check(&[("x/mem", 1_500), ("x/gpu", 2)], allowance.clone(), &[("x/gpu", 2), ("x/over", 952)]);
    check(&[("x/mem", 100), ("x/gpu", 2), ("x/over", 3)], allowance, &[("x/gpu", 2), ("x/over", 3)]);
    check(&[("x/gpu", 1)], json!([{"input": "x/gpu", "outputs": {"x/gpu": 5}}]), &[("x/gpu", 6)]);
    check(
        &[("x/gpu", i64::MAX)],
        json!([{"input": "x/gpu", "multiplyBy": "x/gpu", "outputs": {"cpu": "1E"}}]),
        &[("x/gpu", i64::MAX), ("cpu", i64::MAX)],
    );
    assert_eq!(
        without_prefixes(amounts(&[("a.com/x", 1), ("b.com/x", 1)]), &["a.com/".into(), "z".into()]),
        amounts(&[("b.com/x", 1)])
    );
}

#[test]
fn rules_are_refused_by_field() {
    let check = |written: Value, expect: &str| {
        let error = Transformation::from_json(&written).unwrap_err();
        assert!(error.starts_with(expect), "{error}");
    };
    check(json!({}), "input: is missing");
    check(json!([]), "input: is missing");
    check(json!({"input": 7}), "input: must be a string");
    check(json!({"input": "a", "strategy": "Keep"}), "strategy: `Keep` is not a choice");
    check(json!({"input": "a", "outputs": {"b": "many"}}), "outputs.b: `many` is not a quantity");
    check(json!({"input": "a", "outputs": {"b": "1e99"}}), "outputs.b: `1e99` is too large");
    check(json!({"input": "a", "outputs": ["b"]}), "outputs: must be a mapping");
}
