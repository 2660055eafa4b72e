//! ValidatingAdmissionPolicies, which refuse at submission what the manager's reader would refuse later.
//!
//! API servers evaluate them in their own process, so no webhook has to run. Messages are the reader's, with
//! the field in front, as the reader prints them.

mod job_rules;

use job_rules::job_policy;
use meridian_objects::job::JobKind;
use meridian_objects::kind::{Kind, MERIDIAN_GROUP};
use serde_json::{Value, json};

/// Controllers under which Meridian takes a job, so that the cluster's own controller leaves it alone.
pub(crate) const MANAGERS: [&str; 2] = ["kueue.x-k8s.io/multikueue", "meridian.dev/manager"];
/// Users that may resume a queued job without one of those controllers: Kueue, for queues that it still has.
const RESUMERS: [&str; 1] = ["system:serviceaccount:kueue-system:kueue-controller-manager"];

/// One policy: its name, the objects that it is about, and its rules.
pub(crate) struct Policy {
    pub(crate) name: String,
    pub(crate) group: &'static str,
    pub(crate) version: &'static str,
    pub(crate) plural: &'static str,
    /// Name and expression of each condition without which the policy isn't evaluated.
    pub(crate) conditions: Vec<[String; 2]>,
    /// Name and expression of each variable.
    pub(crate) variables: Vec<[String; 2]>,
    pub(crate) rules: Vec<Value>,
}

/// The fields that keep the controller of a kind of job out, as CEL paths below the object.
pub(crate) struct Switches {
    pub(crate) kind: &'static JobKind,
    pub(crate) suspend: &'static str,
    pub(crate) managed_by: &'static str,
}

/// All policies. Another kind of job needs one more row, with the two fields that keep its controller out.
pub(crate) fn policies() -> Vec<Policy> {
    let jobs =
        [Switches { kind: JobKind::usual(), suspend: "?spec.?suspend", managed_by: "?spec.?managedBy" }];
    let mut all: Vec<Policy> = jobs.iter().map(job_policy).collect();
    all.push(residency_policy());
    all
}

/// Rules of a definition can't tell null from absent, so this rule is a policy.
fn residency_policy() -> Policy {
    let kind = Kind::ResidencyPolicy;
    Policy {
        name: format!("{}.{MERIDIAN_GROUP}", kind.plural()),
        group: kind.group(),
        version: kind.storage_version(),
        plural: kind.plural(),
        conditions: Vec::new(),
        variables: Vec::new(),
        rules: vec![json!({
            "expression": "!has(object.spec.allow) || object.spec.allow != null",
            "message": "spec.allow: is empty; write the places, or leave `allow` out to allow every place \
                that is not denied",
        })],
    }
}

/// A policy and its binding, as objects.
pub(crate) fn objects(policy: &Policy) -> [Value; 2] {
    let metadata = json!({"name": policy.name, "labels": {"app.kubernetes.io/part-of": "meridian"}});
    let named = |pairs: &[[String; 2]]| -> Vec<Value> {
        pairs.iter().map(|[name, expression]| json!({"name": name, "expression": expression})).collect()
    };
    let mut spec = json!({
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": [{
            "apiGroups": [policy.group], "apiVersions": [policy.version],
            "operations": ["CREATE", "UPDATE"], "resources": [policy.plural],
        }]},
        "validations": policy.rules,
    });
    if !policy.conditions.is_empty() {
        spec["matchConditions"] = json!(named(&policy.conditions));
    }
    if !policy.variables.is_empty() {
        spec["variables"] = json!(named(&policy.variables));
    }
    let of = |kind: &str, spec: Value| {
        let version = "admissionregistration.k8s.io/v1";
        json!({"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec})
    };
    [
        of("ValidatingAdmissionPolicy", spec),
        of(
            "ValidatingAdmissionPolicyBinding",
            json!({"policyName": policy.name, "validationActions": ["Deny"]}),
        ),
    ]
}

/// The variables that the chart may replace, by name.
pub(crate) fn resumers() -> [String; 2] {
    ["mayResume".to_owned(), format!("['{}']", RESUMERS.join("', '"))]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_variable_is_declared_before_its_use() {
        for policy in policies() {
            let names: Vec<&String> = policy.variables.iter().map(|[name, _]| name).collect();
            let mut text: Vec<String> =
                policy.variables.iter().map(|[_, expression]| expression.clone()).collect();
            text.extend(policy.rules.iter().map(ToString::to_string));
            for (at, expression) in text.iter().enumerate() {
                for used in expression.split("variables.").skip(1) {
                    let used: String = used.chars().take_while(char::is_ascii_alphanumeric).collect();
                    let declared = names.iter().position(|name| **name == used);
                    assert!(declared.is_some_and(|declared| declared < at), "`{used}` in {expression}");
                }
            }
        }
    }
}
