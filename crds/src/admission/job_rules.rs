//! The rules for jobs with a queue.

use super::{MANAGERS, Policy, Switches, resumers};
use crate::cel::{LABEL_KEY, text};
use meridian_objects::job::{
    CLUSTER_LABEL, MAX_EXEC_LABEL, MAX_RUN_ANNOTATION, QUEUE_LABEL, REGION_KEY, SIMULATED_DURATION,
    SIMULATED_EXIT_CODE, SIMULATED_FAIL_FIRST, SIMULATED_STAGGER, SUBMISSION_ANNOTATION,
};
use meridian_objects::kind::MERIDIAN_GROUP;
use serde_json::{Value, json};

/// Meridian's own annotations of a job.
const ANNOTATIONS: [&str; 6] = [
    REGION_KEY,
    SUBMISSION_ANNOTATION,
    SIMULATED_DURATION,
    SIMULATED_STAGGER,
    SIMULATED_EXIT_CODE,
    SIMULATED_FAIL_FIRST,
];
/// Meridian's own labels of a job.
const LABELS: [&str; 2] = [REGION_KEY, CLUSTER_LABEL];
/// Whether a key is in a domain of Meridian.
const IS_OURS: &str = "k.lowerAscii().matches('^(simulated[.])?meridian[.]dev/')";
/// Topology annotations of the pod template.
const REQUIRED: &str = "kueue.x-k8s.io/podset-required-topology";
const PREFERRED: &str = "kueue.x-k8s.io/podset-preferred-topology";
const UNCONSTRAINED: &str = "kueue.x-k8s.io/podset-unconstrained-topology";
const SLICE_LEVEL: &str = "kueue.x-k8s.io/podset-slice-required-topology";
const SLICE_SIZE: &str = "kueue.x-k8s.io/podset-slice-size";

/// The policy for one kind of job.
pub(super) fn job_policy(job: &Switches) -> Policy {
    let kind = job.kind.kind();
    // API servers refuse names of more than 63 characters by themselves, before they ask policies.
    let mut rules = vec![suspended(), managed(), resumed(), requeued()];
    rules.extend(queue_as_annotation());
    rules.extend(regions());
    rules.extend(own_keys());
    rules.extend(run_times());
    rules.extend(topology());
    Policy {
        name: format!("{}.{MERIDIAN_GROUP}", kind.plural()),
        group: kind.group(),
        version: kind.storage_version(),
        plural: kind.plural(),
        conditions: vec![["queued".to_owned(), concerned()]],
        variables: variables(&[job.suspend, job.managed_by]),
        rules,
    }
}

/// Jobs that have a queue, had one, or were meant to have one.
fn concerned() -> String {
    let queued = |of: &str| format!("{of}.metadata.?labels[?'{QUEUE_LABEL}'].hasValue()");
    let meant = |of: &str| format!("object.metadata.?{of}.orValue({{}}).exists(k, {IS_OURS})");
    format!(
        "{} || (oldObject != null && {}) || object.metadata.?annotations[?'{QUEUE_LABEL}'].hasValue() || {} \
            || {}",
        queued("object"),
        queued("oldObject"),
        meant("labels"),
        meant("annotations"),
    )
}

/// The variables of a job's policy, in the order of their use.
fn variables(switches: &[&str; 2]) -> Vec<[String; 2]> {
    let [suspend, managed_by] = switches;
    let strings = |of: &str| format!("object.{of}.orValue({{}})");
    let pairs = [
        ("labels", strings("metadata.?labels")),
        ("annotations", strings("metadata.?annotations")),
        ("podAnnotations", strings("?spec.?template.?metadata.?annotations")),
        ("podLabels", strings("?spec.?template.?metadata.?labels")),
        ("queue", format!("variables.labels[?'{QUEUE_LABEL}'].orValue('')")),
        (
            "oldQueue",
            format!("oldObject == null ? '' : oldObject.metadata.?labels[?'{QUEUE_LABEL}'].orValue('')"),
        ),
        ("suspended", format!("object.{suspend}.orValue(false)")),
        ("wasSuspended", format!("oldObject == null ? true : oldObject.{suspend}.orValue(false)")),
        ("manager", format!("object.{managed_by}.orValue('')")),
        ("ours", format!("variables.manager in ['{}']", MANAGERS.join("', '"))),
        ("hasStarted", "oldObject != null && oldObject.?status.?startTime.hasValue()".to_owned()),
        // Meridian's own jobs stay suspended in their spec while they run elsewhere.
        ("isActive", "oldObject != null && oldObject.?status.?active.orValue(0) > 0".to_owned()),
        // Jobs from before the policy must stay deletable, so only what a user writes now is judged.
        (
            "written",
            "request.operation == 'CREATE' || object.metadata.?labels != oldObject.metadata.?labels \
                || object.metadata.?annotations != oldObject.metadata.?annotations"
                .to_owned(),
        ),
        (
            "regions",
            format!(
                "variables.annotations[?'{REGION_KEY}']\
                    .orValue(variables.labels[?'{REGION_KEY}'].orValue('-'))\
                    .split(',').filter(r, r.trim() != '')"
            ),
        ),
    ];
    let mut all: Vec<[String; 2]> = pairs.map(|(name, expression)| [name.to_owned(), expression]).to_vec();
    all.push(resumers());
    all
}

fn fails(expression: impl Into<String>, message: impl Into<String>) -> Value {
    json!({"expression": expression.into(), "message": message.into()})
}

/// A rule with an expression for its message.
fn says(expression: impl Into<String>, message: impl Into<String>) -> Value {
    json!({"expression": expression.into(), "messageExpression": message.into()})
}

/// Without a switch, the cluster's own controller starts the pods before Meridian sees the job.
fn suspended() -> Value {
    fails(
        "request.operation != 'CREATE' || variables.queue == '' || variables.suspended || variables.ours",
        "spec.suspend: must be `true` for a job with a queue, or the cluster's own controller starts it; \
            write `suspend: true`, or `managedBy: kueue.x-k8s.io/multikueue`",
    )
}

fn managed() -> Value {
    says(
        "request.operation != 'CREATE' || variables.queue == '' || variables.manager == '' || variables.ours \
            || variables.manager == 'kubernetes.io/job-controller'",
        "'spec.managedBy: `' + variables.manager + '` would run this job, not Meridian; remove it, or write \
            `kueue.x-k8s.io/multikueue`'",
    )
}

fn resumed() -> Value {
    fails(
        "request.operation != 'UPDATE' || variables.queue == '' || variables.suspended || \
            !variables.wasSuspended \
            || variables.ours || request.userInfo.username in variables.mayResume",
        "spec.suspend: only the controller of its queue resumes this job; remove its queue label to run it \
            here",
    )
}

fn requeued() -> Value {
    fails(
        "request.operation != 'UPDATE' || variables.queue == variables.oldQueue \
            || (variables.ours ? !variables.isActive : variables.suspended || !variables.hasStarted)",
        format!(
            "metadata.labels[{QUEUE_LABEL}]: can't be changed while the job runs; set `spec.active: false` \
                in its Workload, and change the label when the job has stopped"
        ),
    )
}

fn queue_as_annotation() -> [Value; 1] {
    [says(
        format!("!variables.written || variables.queue != '' || !('{QUEUE_LABEL}' in variables.annotations)"),
        format!(
            "'metadata.labels[{QUEUE_LABEL}]: is missing, so the job has no queue; move it from the \
                annotations to the labels: \
                `{QUEUE_LABEL}: ' + variables.annotations['{QUEUE_LABEL}'] + '`'"
        ),
    )]
}

fn regions() -> [Value; 3] {
    let place = format!("metadata.annotations[{REGION_KEY}]");
    [
        fails(
            format!(
                "!variables.written || !('{REGION_KEY}' in variables.annotations) || !('{REGION_KEY}' in \
                    variables.labels) \
                    || variables.annotations['{REGION_KEY}'] == variables.labels['{REGION_KEY}']"
            ),
            format!(
                "metadata.labels[{REGION_KEY}]: differs from the annotation of the same name; keep one of \
                    them"
            ),
        ),
        fails(
            "!variables.written || size(variables.regions) > 0",
            format!("{place}: names no region; name regions, separated by commas, or remove it"),
        ),
        says(
            "!variables.written || size(variables.regions) <= 100",
            format!("'{place}: names ' + string(size(variables.regions)) + ' regions; the maximum is 100'"),
        ),
    ]
}

/// Mistyped keys of Meridian would have no effect.
fn own_keys() -> [Value; 4] {
    let none: &[&str] = &[];
    let places: [(&str, &str, &[&str]); 4] = [
        ("annotations", "metadata.annotations", &ANNOTATIONS),
        ("labels", "metadata.labels", &LABELS),
        ("podAnnotations", "spec.template.metadata.annotations", none),
        ("podLabels", "spec.template.metadata.labels", none),
    ];
    places.map(|(variable, place, known)| {
        let known: Vec<String> = known.iter().map(|key| text(key)).collect();
        let wrong = format!("{IS_OURS} && !(k in [{}])", known.join(", "));
        says(
            format!("!variables.written || !variables.{variable}.exists(k, {wrong})"),
            format!(
                "'{place}[' + variables.{variable}.filter(k, {wrong})[0] + ']: is an unknown key and would \
                    have no effect; \
                    the known annotations of a job are {}'",
                ANNOTATIONS.join(", ")
            ),
        )
    })
}

fn run_times() -> [Value; 2] {
    [("labels", MAX_EXEC_LABEL), ("annotations", MAX_RUN_ANNOTATION)].map(|(place, key)| {
        let value = format!("variables.{place}['{key}']");
        says(
            format!(
                "!variables.written || !('{key}' in variables.{place}) || \
                    ({value}.matches('^[+]?[0-9]{{1,10}}$') \
                    && int({value}) > 0 && int({value}) <= 2147483647)"
            ),
            format!(
                "'metadata.{place}[{key}]: `' + {value} + '` is not a number of seconds; write a positive \
                    whole number in \
                    quotes, such as \"600\"'"
            ),
        )
    })
}

/// Topology requests of the pod template.
fn topology() -> Vec<Value> {
    let place = "spec.template.metadata.annotations";
    let has = |key: &str| format!("'{key}' in variables.podAnnotations");
    let guarded = |expression: String| format!("request.operation != 'CREATE' || {expression}");
    let mut rules = Vec::new();
    for (first, second) in [(REQUIRED, PREFERRED), (REQUIRED, UNCONSTRAINED), (PREFERRED, UNCONSTRAINED)] {
        rules.push(fails(
            guarded(format!("!({}) || !({})", has(first), has(second))),
            format!("{place}[{second}]: can't be combined with `{first}`; keep one of them"),
        ));
    }
    for key in [REQUIRED, PREFERRED, SLICE_LEVEL] {
        let value = format!("variables.podAnnotations['{key}']");
        rules.push(says(
            guarded(format!("!({}) || {value}.matches(r'{LABEL_KEY}')", has(key))),
            format!(
                "'{place}[{key}]: `' + {value} + '` is not a node label; name a level of the topology, such \
                    as \
                    `cloud.provider.com/topology-rack`'"
            ),
        ));
    }
    let value = format!("variables.podAnnotations['{UNCONSTRAINED}']");
    rules.push(says(
        guarded(format!("!({}) || {value} == 'true'", has(UNCONSTRAINED))),
        format!("'{place}[{UNCONSTRAINED}]: `' + {value} + '` has no effect; write \"true\", or remove it'"),
    ));
    for (written, missing, remedy) in [
        (SLICE_LEVEL, SLICE_SIZE, "say how many pods a slice has"),
        (SLICE_SIZE, SLICE_LEVEL, "say in which level a slice must be together"),
    ] {
        rules.push(fails(
            guarded(format!("!({}) || {}", has(written), has(missing))),
            format!("{place}[{missing}]: is missing next to `{written}`; {remedy}"),
        ));
    }
    let size = format!("variables.podAnnotations['{SLICE_SIZE}']");
    rules.push(says(
        guarded(format!(
            "!({}) || ({size}.matches('^[+]?[0-9]{{1,9}}$') && int({size}) > 0)",
            has(SLICE_SIZE)
        )),
        format!(
            "'{place}[{SLICE_SIZE}]: `' + {size} + '` is not a number of pods; write a positive whole \
                number in quotes, \
                such as \"4\"'"
        ),
    ));
    rules
}
