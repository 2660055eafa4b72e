//! The spec of a Job in the Kubernetes API, and the rules between its fields.

use crate::fields::schema::Choice::ExactlyOne;
use crate::fields::schema::{Shape, Type};
use crate::fields::{FieldPath, Fields, names, scheduling};
use crate::job::selector;
use crate::pod::TEMPLATE;
use serde_json::Value;

const MOST: i64 = i32::MAX as i64;
/// Most rules of a policy, as in Kubernetes.
const RULES_MAX: usize = 20;

/// Fields of a job's spec. Those that Meridian acts on are `Any`, because their reader checks them.
pub(super) static JOB_SPEC: Shape = Shape::of(&[
    ("activeDeadlineSeconds", Type::Any),
    ("backoffLimit", Type::Any),
    ("backoffLimitPerIndex", Type::Int(0, MOST)),
    ("completionMode", Type::Any),
    ("completions", Type::Any),
    ("managedBy", Type::Any),
    ("manualSelector", Type::Flag),
    ("maxFailedIndexes", Type::Int(0, MOST)),
    ("parallelism", Type::Any),
    ("podFailurePolicy", Type::Object(&FAILURE_POLICY)),
    ("podReplacementPolicy", Type::Word(&["Failed", "TerminatingOrFailed"])),
    ("selector", Type::Read(|item| drop(scheduling::selector(item)))),
    ("successPolicy", Type::Object(&SUCCESS_POLICY)),
    ("suspend", Type::Any),
    ("template", Type::Object(&TEMPLATE)),
    ("ttlSecondsAfterFinished", Type::Any),
]);

static FAILURE_POLICY: Shape =
    Shape::of(&[("rules", Type::List(&Type::Object(&FAILURE_RULE)))]).required(&["rules"]);
static FAILURE_RULE: Shape = Shape::of(&[
    ("action", Type::Word(&["Count", "FailIndex", "FailJob", "Ignore"])),
    ("onExitCodes", Type::Object(&EXIT_CODES)),
    ("onPodConditions", Type::List(&Type::Object(&POD_CONDITION))),
])
.required(&["action"])
.choice(ExactlyOne(&["onExitCodes", "onPodConditions"]));
static EXIT_CODES: Shape = Shape::of(&[
    ("containerName", Type::Text),
    ("operator", Type::Word(&["In", "NotIn"])),
    ("values", Type::List(&Type::Int(-MOST - 1, MOST))),
])
.required(&["operator", "values"]);
static POD_CONDITION: Shape =
    Shape::of(&[("status", Type::Word(&["True", "False", "Unknown"])), ("type", Type::Text)])
        .required(&["type"]);
static SUCCESS_POLICY: Shape =
    Shape::of(&[("rules", Type::List(&Type::Object(&SUCCESS_RULE)))]).required(&["rules"]);
static SUCCESS_RULE: Shape =
    Shape::of(&[("succeededCount", Type::Int(1, MOST)), ("succeededIndexes", Type::Text)]);

/// Checks the rules between fields. `job` is the name of the job.
pub(super) fn check(spec: &Fields<'_>, job: Option<&str>) {
    if !spec.findings().is_submission() {
        return;
    }
    let written = |name: &str| spec.written().get(name).filter(|value| !value.is_null());
    let is_indexed = written("completionMode").is_some_and(|mode| mode == "Indexed");
    for name in ["backoffLimitPerIndex", "successPolicy"] {
        if written(name).is_some() && !is_indexed {
            spec.error(name, "is for jobs with `completionMode: Indexed`", "write that, or remove it");
        }
    }
    if let Some(failed) = written("maxFailedIndexes") {
        let more = |most: &Value| failed.as_u64() > most.as_u64();
        if written("backoffLimitPerIndex").is_none() {
            let remedy = "write `backoffLimitPerIndex` too, or remove it";
            spec.error("maxFailedIndexes", "has no meaning without `backoffLimitPerIndex`", remedy);
        } else if written("completions").is_some_and(more) {
            spec.error("maxFailedIndexes", "is more than `completions`", "write at most `completions`");
        }
    }
    for name in ["podFailurePolicy", "successPolicy"] {
        let rules = written(name).and_then(|policy| policy.get("rules")).and_then(Value::as_array);
        if rules.is_some_and(|rules| rules.len() > RULES_MAX) {
            spec.error(
                name,
                format!("has more than {RULES_MAX} rules"),
                format!("the maximum is {RULES_MAX}"),
            );
        }
    }
    if let Some(policy) = written("podFailurePolicy") {
        check_failure_policy(spec, policy);
        check_exit_codes(spec, policy);
    }
    if let Some(policy) = written("successPolicy") {
        check_success_policy(spec, policy, written("completions").and_then(Value::as_u64));
    }
    selector::check(spec);
    let completions = written("completions").and_then(Value::as_u64);
    if let (Some(job), Some(completions), true) = (job, completions, is_indexed) {
        check_host_name(spec, job, completions);
    }
}

fn check_failure_policy(spec: &Fields<'_>, policy: &Value) {
    let written = |name: &str| spec.written().get(name).filter(|value| !value.is_null());
    let restarts = written("template").and_then(|template| template.pointer("/spec/restartPolicy"));
    if restarts.is_some_and(|policy| policy != "Never") {
        let remedy = "write `restartPolicy: Never`, or remove the policy";
        spec.error("podFailurePolicy", "is for pods with `restartPolicy: Never`", remedy);
    }
    if written("podReplacementPolicy").is_some_and(|policy| policy != "Failed") {
        spec.error("podReplacementPolicy", "must be `Failed` with `podFailurePolicy`", "write `Failed`");
    }
    let rules = policy.get("rules").and_then(Value::as_array).into_iter().flatten();
    for (index, rule) in rules.enumerate() {
        let at = |name: &str| spec.path().key("podFailurePolicy").key("rules").index(index).key(name);
        if rule.get("action").is_some_and(|action| action == "FailIndex")
            && written("backoffLimitPerIndex").is_none()
        {
            let remedy = "write `backoffLimitPerIndex` too, or another action";
            spec.findings().error(at("action"), "`FailIndex` needs `backoffLimitPerIndex`", remedy);
        }
        let Some(codes) = rule.pointer("/onExitCodes/values").and_then(Value::as_array) else { continue };
        let is_in = rule.pointer("/onExitCodes/operator").is_some_and(|operator| operator == "In");
        let at = at("onExitCodes").key("values");
        if codes.is_empty() {
            spec.findings().error(at, "is empty", "write at least one exit code");
        } else if is_in && codes.iter().any(|code| code.as_i64() == Some(0)) {
            spec.findings().error(at, "`0` is no failure", "remove it");
        }
    }
}

/// Checks exit codes: the container is in the template, and the codes are in ascending order without
/// duplicates.
fn check_exit_codes(spec: &Fields<'_>, policy: &Value) {
    let pod = spec.written().get("template").and_then(|template| template.get("spec"));
    let has_container = |name: &str| {
        let lists =
            ["initContainers", "containers"].into_iter().filter_map(|list| pod?.get(list)?.as_array());
        lists.flatten().any(|container| container.get("name").is_some_and(|of| of == name))
    };
    let rules = policy.get("rules").and_then(Value::as_array).into_iter().flatten();
    for (index, rule) in rules.enumerate() {
        let at = |name: &str| {
            spec.path().key("podFailurePolicy").key("rules").index(index).key("onExitCodes").key(name)
        };
        let container = rule.pointer("/onExitCodes/containerName").and_then(Value::as_str);
        if let Some(name) = container.filter(|name| !has_container(name)) {
            let message = format!("there is no container `{name}`");
            spec.findings().error(at("containerName"), message, "correct the name, or remove it");
        }
        let codes = rule.pointer("/onExitCodes/values").and_then(Value::as_array).into_iter().flatten();
        let codes: Vec<i64> = codes.filter_map(Value::as_i64).collect();
        let twice = codes.iter().enumerate().find(|(at, code)| codes[..*at].contains(code));
        if let Some((_, code)) = twice {
            spec.findings().error(at("values"), format!("`{code}` appears twice"), "write it once");
        } else if !codes.is_sorted() {
            spec.findings().error(at("values"), "is not in order", "write the smaller exit codes first");
        }
    }
}

/// Checks a success policy: each rule has valid indexes, a sufficient number of indexes, or both.
fn check_success_policy(spec: &Fields<'_>, policy: &Value, completions: Option<u64>) {
    let Some(rules) = policy.get("rules").and_then(Value::as_array) else { return };
    let path = || spec.path().key("successPolicy").key("rules");
    if rules.is_empty() {
        spec.findings().error(path(), "is empty", "write at least one rule, or remove the policy");
    }
    for (index, rule) in rules.iter().enumerate() {
        let written = |name: &str| rule.get(name).filter(|value| !value.is_null());
        let at = |name: &str| path().index(index).key(name);
        let indexes = written("succeededIndexes").and_then(Value::as_str);
        let count = written("succeededCount").and_then(Value::as_u64);
        if written("succeededIndexes").is_none() && written("succeededCount").is_none() {
            let remedy = "write `succeededIndexes`, `succeededCount` or both";
            spec.findings().error(path().index(index), "is empty", remedy);
        }
        let named = indexes.map(|indexes| count_indexes(indexes, completions));
        if let Some(Err(why)) = &named {
            let remedy = "write indexes of the job in order, such as `0,2-4`";
            spec.findings().error(at("succeededIndexes"), why.clone(), remedy);
        }
        let most = named.and_then(Result::ok).or(completions);
        if let Some((count, most)) = count.zip(most).filter(|(count, most)| count > most) {
            let message = format!("`{count}` is more than the {most} indexes of the rule");
            spec.findings().error(at("succeededCount"), message, format!("write at most {most}"));
        }
    }
}

/// The number of indexes in a text such as `0,2-4`. Fails if the text has another form, or an index isn't
/// below `completions`.
fn count_indexes(text: &str, completions: Option<u64>) -> Result<u64, String> {
    let (mut count, mut next) = (0, 0);
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (Ok(first), Ok(last)) = (first.parse::<u64>(), last.parse::<u64>()) else {
            return Err(format!("`{part}` is not an index or a range of them"));
        };
        if last < first || (first == last && part.contains('-')) {
            return Err(format!("`{part}` is not a range from a smaller index to a larger one"));
        }
        if first < next {
            return Err(format!("`{part}` is not after the indexes before it"));
        }
        if completions.is_some_and(|completions| last >= completions) {
            return Err(format!("index {last} is out of range"));
        }
        (count, next) = (count + (last - first + 1), last + 1);
    }
    Ok(count)
}

/// Checks the host names of an indexed job's pods, which consist of the job's name and the pod's index.
fn check_host_name(spec: &Fields<'_>, job: &str, completions: u64) {
    let host = format!("{job}-{}", completions.saturating_sub(1));
    if !names::is_dns_label(&host) {
        spec.findings().error(
            FieldPath::of("metadata.name"),
            format!("`{host}` would be the host name of the last pod, and isn't a valid one"),
            "use at most 63 lower-case letters, digits and `-` with the index",
        );
    }
}
