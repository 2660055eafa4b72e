//! Kueue's two served versions as views of one stored object.
//!
//! Objects are stored in v1beta2. Reading v1beta1 moves what was renamed; showing v1beta1 moves it back. As in Kueue the
//! old words `Borrow` and `Preempt` of `flavorFungibility` become `MayStopSearch`, which both versions have. What
//! v1beta2 has no place for (`AdmissionCheck.spec.retryDelayMinutes`) is kept in an annotation, as Kubernetes'
//! conversions do, and returns in the v1beta1 view. A list of admission checks without `onFlavors` is shown in v1beta1
//! as the plain list of names that most v1beta1 files use; both spellings mean the same. Topology assignments of Workloads
//! are lists of domains in v1beta1, and slices of what domains have in common in v1beta2.
//!
//! A field under the other version's name is an error, not an unknown field: kept silently, it would do nothing.

use crate::field::{FieldPath, Findings};
use crate::kind::{Kind, V1BETA1, V1BETA2};
use meridian_topology::compressed::Compressed;
use meridian_topology::{Assignment, DomainCount};
use serde_json::{Map, Value, json};

/// Where `AdmissionCheck.spec.retryDelayMinutes` is kept in v1beta2.
pub const RETRY_DELAY_ANNOTATION: &str = "v1beta1.meridian.dev/retry-delay-minutes";

/// A field that has another place in the other version: (kind, v1beta1 path, v1beta2 path).
const MOVED: &[(Kind, &str, &str)] = &[
    (Kind::ClusterQueue, "spec.cohort", "spec.cohortName"),
    (Kind::MultiKueueCluster, "spec.kubeConfig", "spec.clusterSource.kubeConfig"),
    (Kind::MultiKueueCluster, "spec.clusterProfileRef", "spec.clusterSource.clusterProfileRef"),
    (Kind::LocalQueue, "status.flavorUsage", "status.flavorsUsage"),
    (
        Kind::Workload,
        "status.accumulatedPastExexcutionTimeSeconds",
        "status.accumulatedPastExecutionTimeSeconds",
    ),
];

/// The classes behind a v1beta1 Workload's `priorityClassSource`: (source, group, kind).
const PRIORITY_SOURCES: &[(&str, &str, &str)] = &[
    ("kueue.x-k8s.io/workloadpriorityclass", "kueue.x-k8s.io", "WorkloadPriorityClass"),
    ("scheduling.k8s.io/priorityclass", "scheduling.k8s.io", "PriorityClass"),
];

/// A stored object as `version` shows it, with that version's `apiVersion`. The object itself when it is not served so.
pub fn to_version(kind: Kind, stored: &Value, version: &str) -> Value {
    let mut object = stored.clone();
    if kind.storage_version() == V1BETA2 && version == V1BETA1 {
        downgrade(kind, &mut object);
        object["apiVersion"] = json!(kind.api_version(V1BETA1));
    }
    object
}

/// Turns an object that was written in `version` into the storage version, in place.
pub(crate) fn to_storage(kind: Kind, version: &str, object: &mut Value, findings: &Findings) {
    if kind.storage_version() != V1BETA2 {
        return;
    }
    refuse_foreign_names(kind, version, object, findings);
    if version == V1BETA1 && !findings.has_errors() {
        upgrade(kind, object, findings);
        object["apiVersion"] = json!(kind.api_version(V1BETA2));
    }
}

/// Whether a v1beta1 object names its admission checks as a plain list; asked before the object is converted.
pub(crate) fn has_plain_checks(written: &Value) -> bool {
    written.pointer("/spec/admissionChecks").is_some_and(|checks| !checks.is_null())
}

/// Rewrites a path of the storage version to the one that the writer of `version` knows.
pub(crate) fn path_in_version(kind: Kind, version: &str, plain_checks: bool, path: &mut FieldPath) {
    if version != V1BETA1 || kind.storage_version() != V1BETA2 {
        return;
    }
    let moved =
        MOVED.iter().filter(|(of, ..)| *of == kind).any(|(_, old, new)| path.replace_prefix(new, old));
    if !moved && kind == Kind::ClusterQueue && plain_checks {
        // spec.admissionChecksStrategy.admissionChecks[i].name is spec.admissionChecks[i] there
        if path.replace_prefix("spec.admissionChecksStrategy.admissionChecks", "spec.admissionChecks") {
            path.0.truncate(3);
        }
    }
    if kind == Kind::Workload && !path.replace_prefix("spec.priorityClassRef.name", "spec.priorityClassName")
    {
        path.replace_prefix("spec.priorityClassRef", "spec.priorityClassSource");
    }
    if kind == Kind::MultiKueueCluster && path.replace_prefix("spec.clusterSource", "spec.kubeConfig") {
        path.0.truncate(2);
    }
}

fn refuse_foreign_names(kind: Kind, version: &str, object: &Value, findings: &Findings) {
    let written = |path: &str| {
        object.pointer(&format!("/{}", path.replace('.', "/"))).is_some_and(|value| !value.is_null())
    };
    let refuse = |path: &str, other: &str, right: &str| {
        findings.error(
            FieldPath::of(path),
            format!("is the {other} name of this field"),
            format!("write `{right}`, or apiVersion `{}`", kind.api_version(other)),
        );
    };
    for (of, old, new) in MOVED.iter().filter(|(of, old, _)| *of == kind && old.starts_with("spec.")) {
        debug_assert_eq!(*of, kind);
        if version == V1BETA2 && written(old) {
            refuse(old, V1BETA1, new);
        } else if version == V1BETA1 && written(new) {
            let foreign_root = if kind == Kind::MultiKueueCluster { "spec.clusterSource" } else { new };
            refuse(foreign_root, V1BETA2, old);
        }
    }
    if kind == Kind::ClusterQueue && version == V1BETA2 && written("spec.admissionChecks") {
        refuse("spec.admissionChecks", V1BETA1, "admissionChecksStrategy.admissionChecks[].name");
    }
    if kind == Kind::ClusterQueue
        && version == V1BETA1
        && written("spec.admissionChecks")
        && written("spec.admissionChecksStrategy")
    {
        findings.error(
            FieldPath::of("spec.admissionChecks"),
            "cannot be used together with `admissionChecksStrategy`",
            "keep one of them",
        );
    }
}

fn upgrade(kind: Kind, object: &mut Value, findings: &Findings) {
    for (_, old, new) in MOVED.iter().filter(|(of, ..)| *of == kind) {
        rename(object, old, new);
    }
    match kind {
        Kind::ClusterQueue => {
            if let Some(names) = take(object, "spec.admissionChecks") {
                upgrade_checks(object, names, findings);
            }
            for (field, old) in [("whenCanBorrow", "Borrow"), ("whenCanPreempt", "Preempt")] {
                if let Some(word) = object
                    .pointer_mut(&format!("/spec/flavorFungibility/{field}"))
                    .filter(|word| **word == *old)
                {
                    *word = json!("MayStopSearch");
                }
            }
        }
        Kind::AdmissionCheck => {
            if let Some(delay) = take(object, "spec.retryDelayMinutes").filter(|delay| !delay.is_null()) {
                let field = FieldPath::of("spec.retryDelayMinutes");
                match delay.as_i64() {
                    None => findings.error(
                        field,
                        "must be a whole number",
                        "write the minutes, or leave the field out",
                    ),
                    Some(minutes) => {
                        findings.warn(field, "has no effect since v1beta2", "leave it out");
                        put(
                            object,
                            "metadata.annotations",
                            RETRY_DELAY_ANNOTATION,
                            json!(minutes.to_string()),
                        );
                    }
                }
            }
        }
        Kind::Workload => {
            each_topology(object, |written| {
                let domain = |domain: &Value| {
                    let values = domain["values"]
                        .as_array()?
                        .iter()
                        .map(|value| value.as_str().map(ToOwned::to_owned))
                        .collect::<Option<Vec<_>>>()?;
                    Some(DomainCount { values, count: u32::try_from(domain["count"].as_u64()?).ok()? })
                };
                let levels: Vec<String> = serde_json::from_value(written["levels"].clone()).ok()?;
                let domains =
                    written["domains"].as_array()?.iter().map(domain).collect::<Option<Vec<_>>>()?;
                serde_json::to_value(Compressed::from(&Assignment { levels, domains })).ok()
            });
            let source = take(object, "spec.priorityClassSource");
            let name = take(object, "spec.priorityClassName");
            let row = PRIORITY_SOURCES
                .iter()
                .find(|(known, ..)| source.as_ref().is_some_and(|source| source == known));
            if let (None, Some(source)) =
                (row, source.as_ref().filter(|source| !source.is_null() && *source != ""))
            {
                let choices = PRIORITY_SOURCES
                    .iter()
                    .map(|(known, ..)| format!("`{known}`"))
                    .collect::<Vec<_>>()
                    .join(", ");
                let at = FieldPath::of("spec.priorityClassSource");
                findings.error(
                    at,
                    format!("`{}` is not a choice", source.as_str().unwrap_or("this")),
                    format!("the choices are {choices}"),
                );
            }
            if let (Some((_, group, kind)), Some(name)) = (row, name) {
                put(object, "spec", "priorityClassRef", json!({"group": group, "kind": kind, "name": name}));
            }
        }
        _ => {}
    }
}

fn upgrade_checks(object: &mut Value, names: Value, findings: &Findings) {
    let Value::Array(names) = names else {
        if !names.is_null() {
            findings.unreadable(
                FieldPath::of("spec.admissionChecks"),
                "must be a list of names",
                "write a list here",
            );
        }
        return;
    };
    if !names.is_empty() {
        let rules: Vec<Value> = names.into_iter().map(|name| json!({"name": name})).collect();
        put(object, "spec", "admissionChecksStrategy", json!({"admissionChecks": rules}));
    }
}

fn downgrade(kind: Kind, object: &mut Value) {
    for (_, old, new) in MOVED.iter().filter(|(of, ..)| *of == kind) {
        rename(object, new, old);
    }
    match kind {
        Kind::ClusterQueue => {
            let rules =
                object.pointer("/spec/admissionChecksStrategy/admissionChecks").and_then(Value::as_array);
            let plain =
                rules.and_then(|rules| rules.iter().map(plain_check_name).collect::<Option<Vec<Value>>>());
            let only_rules = object
                .pointer("/spec/admissionChecksStrategy")
                .and_then(Value::as_object)
                .is_some_and(|strategy| strategy.len() == 1);
            if let Some(names) = plain.filter(|names| only_rules && !names.is_empty()) {
                take(object, "spec.admissionChecksStrategy");
                put(object, "spec", "admissionChecks", Value::Array(names));
            }
        }
        Kind::AdmissionCheck => {
            let kept = object
                .pointer_mut("/metadata/annotations")
                .and_then(Value::as_object_mut)
                .and_then(|all| all.remove(RETRY_DELAY_ANNOTATION));
            if let Some(minutes) =
                kept.as_ref().and_then(Value::as_str).and_then(|text| text.parse::<i64>().ok())
            {
                put(object, "spec", "retryDelayMinutes", json!(minutes));
                drop_if_empty(object, "metadata.annotations");
            }
        }
        Kind::MultiKueueCluster => drop_if_empty(object, "spec.clusterSource"),
        Kind::Workload => {
            each_topology(object, |stored| {
                let assignment =
                    Assignment::try_from(&serde_json::from_value::<Compressed>(stored.clone()).ok()?).ok()?;
                let domains: Vec<Value> = assignment
                    .domains
                    .iter()
                    .map(|domain| json!({"values": domain.values, "count": domain.count}))
                    .collect();
                Some(json!({"levels": assignment.levels, "domains": domains}))
            });
            if let Some(class) = take(object, "spec.priorityClassRef") {
                let row = PRIORITY_SOURCES
                    .iter()
                    .find(|(_, group, kind)| class["group"] == *group && class["kind"] == *kind);
                if let Some((source, ..)) = row {
                    put(object, "spec", "priorityClassSource", json!(source));
                    put(object, "spec", "priorityClassName", class["name"].clone());
                }
            }
        }
        _ => {}
    }
}

/// Writes the topology assignment of every pod set in the other version's form, where it can be read.
fn each_topology(object: &mut Value, form: impl Fn(&Value) -> Option<Value>) {
    let assignments = object.pointer_mut("/status/admission/podSetAssignments").and_then(Value::as_array_mut);
    for topology in
        assignments.into_iter().flatten().filter_map(|assignment| assignment.get_mut("topologyAssignment"))
    {
        if let Some(formed) = form(topology) {
            *topology = formed;
        }
    }
}

/// The name of a rule that consists of nothing else.
fn plain_check_name(rule: &Value) -> Option<Value> {
    let rule = rule.as_object()?;
    let name = rule.get("name")?;
    (rule.len() == 1).then(|| name.clone())
}

/// Moves the value at `from` to `to`; nothing happens when there is none.
fn rename(object: &mut Value, from: &str, to: &str) {
    if let Some(value) = take(object, from) {
        let (parent, name) = split(to);
        put(object, parent, name, value);
        let (parent, _) = split(from);
        if parent.contains('.') {
            drop_if_empty(object, parent);
        }
    }
}

fn split(path: &str) -> (&str, &str) {
    path.rsplit_once('.').unwrap_or(("", path))
}

fn take(object: &mut Value, path: &str) -> Option<Value> {
    let (parent, name) = split(path);
    object.pointer_mut(&format!("/{}", parent.replace('.', "/")))?.as_object_mut()?.remove(name)
}

/// Sets `parent.name`, making the mappings on the way. What is in the way and is no mapping stays as it is.
fn put(object: &mut Value, parent: &str, name: &str, value: Value) {
    let mut at = object;
    for key in parent.split('.') {
        let Some(map) = at.as_object_mut() else { return };
        if map.get(key).is_some_and(Value::is_null) {
            map.remove(key);
        }
        at = map.entry(key).or_insert_with(|| Value::Object(Map::new()));
    }
    if let Some(map) = at.as_object_mut() {
        map.insert(name.to_owned(), value);
    }
}

fn drop_if_empty(object: &mut Value, path: &str) {
    let pointer = format!("/{}", path.replace('.', "/"));
    if object.pointer(&pointer).and_then(Value::as_object).is_some_and(Map::is_empty) {
        take(object, path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn upgraded(kind: Kind, written: &Value) -> Result<Value, Vec<String>> {
        let findings = Findings::default();
        let mut object = written.clone();
        let version = written["apiVersion"].as_str().unwrap().rsplit('/').next().unwrap();
        to_storage(kind, version, &mut object, &findings);
        let (errors, _) = findings.into_parts();
        if errors.is_empty() { Ok(object) } else { Err(errors.iter().map(ToString::to_string).collect()) }
    }

    fn object(version: &str, kind: Kind, spec: Value) -> Value {
        json!({"apiVersion": kind.api_version(version), "kind": kind.name(), "metadata": {"name": "x"}, "spec": spec})
    }

    /// `old` and `new` are two spellings of one object.
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
        let strategy = json!({"admissionChecksStrategy": {"admissionChecks": [{"name": "a", "onFlavors": ["f"]}, {"name": "b"}]}});
        check(Kind::ClusterQueue, strategy.clone(), strategy);
        let fungible = json!({"flavorFungibility": {"whenCanBorrow": "TryNextFlavor", "whenCanPreempt": "MayStopSearch"}});
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
            json!({"priorityClassRef": {"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": "high"}}),
        );
    }

    #[test]
    fn topology_assignments_are_lists_in_one_version_and_slices_in_the_other() {
        let workload = |version: &str, topology: Value| {
            let mut workload = object(version, Kind::Workload, json!({}));
            workload["status"] = json!({"admission": {"clusterQueue": "cq", "podSetAssignments": [{"name": "main", "topologyAssignment": topology}, {"name": "other"}]}});
            workload
        };
        let old = workload(
            V1BETA1,
            json!({"levels": ["rack"], "domains": [{"values": ["r-1"], "count": 2}, {"values": ["r-2"], "count": 3}]}),
        );
        let slice = json!({"domainCount": 2, "valuesPerLevel": [{"individual": {"prefix": "r-", "roots": ["1", "2"]}}], "podCounts": {"individual": [2, 3]}});
        let new = workload(V1BETA2, json!({"levels": ["rack"], "slices": [slice]}));
        assert_eq!(upgraded(Kind::Workload, &old), Ok(new.clone()));
        assert_eq!(to_version(Kind::Workload, &new, V1BETA1), old);
        let broken =
            workload(V1BETA2, json!({"levels": ["rack"], "slices": [{"domainCount": 4_000_000_000_u32}]}));
        assert_eq!(to_version(Kind::Workload, &broken, V1BETA1)["status"], broken["status"]);
    }

    #[test]
    fn what_v1beta2_lacks_is_kept() {
        let old =
            object(V1BETA1, Kind::AdmissionCheck, json!({"controllerName": "c", "retryDelayMinutes": 5}));
        let new = upgraded(Kind::AdmissionCheck, &old).unwrap();
        assert_eq!(new["metadata"]["annotations"][RETRY_DELAY_ANNOTATION], "5");
        assert_eq!(new["spec"], json!({"controllerName": "c"}));
        assert_eq!(to_version(Kind::AdmissionCheck, &new, V1BETA1), old);
    }

    #[test]
    fn old_words_become_the_words_of_both_versions() {
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
    fn the_other_versions_names_are_refused() {
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
}
