//! Two views of one object, and what only one of them has.

use super::*;
use serde_json::Value;

fn upgraded(kind: Kind, written: &Value) -> Result<Value, Vec<String>> {
    let findings = Findings::default();
    let mut object = written.clone();
    let version = written["apiVersion"].as_str().unwrap().rsplit('/').next().unwrap();
    to_storage(kind, version, &mut object, &findings);
    let (errors, _) = findings.into_parts();
    if errors.is_empty() { Ok(object) } else { Err(errors.iter().map(ToString::to_string).collect()) }
}

fn object(version: &str, kind: Kind, spec: Value) -> Value {
    json!({"apiVersion": kind.api_version(version), "kind": kind.name(), "metadata": {"name": "x"},
        "spec": spec})
}

/// Checks that `old` and `new` are the same object in the two versions.
fn check(kind: Kind, old: Value, new: Value) {
    let (old, new) = (object(V1BETA1, kind, old), object(V1BETA2, kind, new));
    assert_eq!(upgraded(kind, &old), Ok(new.clone()), "up");
    assert_eq!(upgraded(kind, &new), Ok(new.clone()), "storage version stays");
    assert_eq!(to_version(kind, &new, V1BETA1), old, "down");
    assert_eq!(to_version(kind, &new, V1BETA2), new);
}

#[test]
fn two_views_round_trip_both_ways() {
    check(
        Kind::ClusterQueue,
        json!({"cohort": "a", "unknown": {"kept": 1}}),
        json!({"cohortName": "a", "unknown": {"kept": 1}}),
    );
    check(
        Kind::ClusterQueue,
        json!({"admissionChecks": ["a", "b"]}),
        json!({"admissionChecksStrategy": {"admissionChecks": [{"name": "a"}, {"name": "b"}]}}),
    );
    let strategy = json!({"admissionChecksStrategy": {"admissionChecks": [{"name": "a", "onFlavors": ["f"]},
        {"name": "b"}]}});
    check(Kind::ClusterQueue, strategy.clone(), strategy);
    let fungible =
        json!({"flavorFungibility": {"whenCanBorrow": "TryNextFlavor", "whenCanPreempt": "MayStopSearch"}});
    check(Kind::ClusterQueue, fungible.clone(), fungible);
    let kube = json!({"location": "s", "locationType": "Secret"});
    check(
        Kind::MultiKueueCluster,
        json!({"kubeConfig": kube.clone()}),
        json!({"clusterSource": {"kubeConfig": kube}}),
    );
    check(
        Kind::MultiKueueCluster,
        json!({"clusterProfileRef": {"name": "p"}}),
        json!({"clusterSource": {"clusterProfileRef": {"name": "p"}}}),
    );
    check(Kind::Cohort, json!({"parentName": "root"}), json!({"parentName": "root"}));
    check(
        Kind::Workload,
        json!({"priorityClassSource": "kueue.x-k8s.io/workloadpriorityclass", "priorityClassName": "high"}),
        json!({"priorityClassRef": {"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass",
            "name": "high"}}),
    );
}

#[test]
fn topology_assignments_are_lists_in_one_version_and_slices_in_the_other() {
    let workload = |version: &str, topology: Value| {
        let mut workload = object(version, Kind::Workload, json!({}));
        workload["status"] = json!({"admission": {"clusterQueue": "cq",
            "podSetAssignments": [{"name": "main", "topologyAssignment": topology}, {"name": "other"}]}});
        workload
    };
    let old = workload(
        V1BETA1,
        json!({"levels": ["rack"], "domains": [{"values": ["r-1"], "count": 2},
            {"values": ["r-2"], "count": 3}]}),
    );
    let slice = json!({"domainCount": 2, "valuesPerLevel": [{"individual": {"prefix": "r-", "roots": ["1",
        "2"]}}], "podCounts": {"individual": [2, 3]}});
    let new = workload(V1BETA2, json!({"levels": ["rack"], "slices": [slice]}));
    assert_eq!(upgraded(Kind::Workload, &old), Ok(new.clone()));
    assert_eq!(to_version(Kind::Workload, &new, V1BETA1), old);
    let broken =
        workload(V1BETA2, json!({"levels": ["rack"], "slices": [{"domainCount": 4_000_000_000_u32}]}));
    assert_eq!(to_version(Kind::Workload, &broken, V1BETA1)["status"], broken["status"]);
}

#[test]
fn fields_that_v1beta2_lacks_are_kept() {
    let old = object(V1BETA1, Kind::AdmissionCheck, json!({"controllerName": "c", "retryDelayMinutes": 5}));
    let new = upgraded(Kind::AdmissionCheck, &old).unwrap();
    assert_eq!(new["metadata"]["annotations"][RETRY_DELAY_ANNOTATION], "5");
    assert_eq!(new["spec"], json!({"controllerName": "c"}));
    assert_eq!(to_version(Kind::AdmissionCheck, &new, V1BETA1), old);
}

#[test]
fn old_words_become_words_of_both_versions() {
    let old = object(
        V1BETA1,
        Kind::ClusterQueue,
        json!({"flavorFungibility": {"whenCanBorrow": "Borrow", "whenCanPreempt": "Preempt"}}),
    );
    let new = upgraded(Kind::ClusterQueue, &old).unwrap();
    assert_eq!(
        new["spec"]["flavorFungibility"],
        json!({"whenCanBorrow": "MayStopSearch", "whenCanPreempt": "MayStopSearch"})
    );
    let shown = to_version(Kind::ClusterQueue, &new, V1BETA1);
    assert_eq!(upgraded(Kind::ClusterQueue, &shown), Ok(new));
}

#[test]
fn field_names_of_the_other_version_are_refused() {
    let check = |version: &str, kind: Kind, spec: Value, expect: &str| {
        let errors = upgraded(kind, &object(version, kind, spec)).unwrap_err();
        assert!(errors.iter().any(|error| error.contains(expect)), "{errors:?}");
    };
    check(
        V1BETA2,
        Kind::ClusterQueue,
        json!({"cohort": "a"}),
        "spec.cohort: is the v1beta1 name of this field; write `spec.cohortName`",
    );
    check(
        V1BETA1,
        Kind::ClusterQueue,
        json!({"cohortName": "a"}),
        "spec.cohortName: is the v1beta2 name of this field; write `spec.cohort`",
    );
    check(
        V1BETA2,
        Kind::ClusterQueue,
        json!({"admissionChecks": ["a"]}),
        "spec.admissionChecks: is the v1beta1 name",
    );
    check(
        V1BETA2,
        Kind::MultiKueueCluster,
        json!({"kubeConfig": {"location": "x"}}),
        "spec.kubeConfig: is the v1beta1 name",
    );
    check(
        V1BETA1,
        Kind::MultiKueueCluster,
        json!({"clusterSource": {"kubeConfig": {"location": "x"}}}),
        "spec.clusterSource: is the v1beta2 name",
    );
    check(
        V1BETA1,
        Kind::ClusterQueue,
        json!({"admissionChecks": ["a"], "admissionChecksStrategy": {"admissionChecks": [{"name": "a"}]}}),
        "cannot be used together",
    );
    check(V1BETA1, Kind::ClusterQueue, json!({"admissionChecks": "a"}), "must be a list");
    check(V1BETA1, Kind::AdmissionCheck, json!({"retryDelayMinutes": "5"}), "must be a whole number");
}
