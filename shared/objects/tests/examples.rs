//! The shipped examples: what a newcomer applies first must parse without an error.

use meridian_objects::{
    Kind, Located, Object, Parsed, Spec, fields_ignored_by_cluster, ignored_fields, job_to_workload, parse,
    parse_set,
};
use meridian_shared::gang::Amounts;
use meridian_shared::ids::{ClusterName, Jurisdiction, Region};
use meridian_shared::time::Millis;
use std::collections::BTreeMap;

const MANAGER: &str = include_str!("../../../manifests/examples/tutorial/manager.yaml");
const WORKER: &str = include_str!("../../../manifests/examples/tutorial/worker.yaml");
const JOB: &str = include_str!("../../../manifests/examples/tutorial/job.yaml");
const CPU_JOB: &str = include_str!("../../../manifests/examples/tutorial/job-cpu-only.yaml");
const RESIDENCY: &str = include_str!("../../../manifests/examples/residency-eu.yaml");
const DISPATCH: &str = include_str!("../../../manifests/examples/dispatch-race.yaml");

fn clean(name: &str, text: &str) -> Parsed {
    let parsed = parse(name, text);
    assert!(parsed.errors.is_empty(), "{:#?}", parsed.errors);
    parsed
}

fn find<'p>(parsed: &'p Parsed, kind: Kind, name: &str) -> &'p Object {
    let found =
        parsed.objects.iter().find(|located| located.value.kind == kind && located.value.name == name);
    &found.unwrap_or_else(|| panic!("no {kind} `{name}`")).value
}

#[test]
fn the_managers_file() {
    let parsed = clean("manager.yaml", MANAGER);
    assert_eq!(parsed.objects.len(), 9, "nine objects, one of them twice in the file");
    let warnings: Vec<String> = parsed.warnings.iter().map(ToString::to_string).collect();
    let twice: Vec<usize> = MANAGER
        .lines()
        .enumerate()
        .filter(|(_, line)| line.contains("name: multikueue-dws-worker-asia"))
        .map(|(at, _)| at - 2)
        .collect();
    let expect = format!(
        "manager.yaml:{}:1: `multikueuecluster/multikueue-dws-worker-asia` is identical to the one at \
            manager.yaml:{}:1 and is read once; remove one of them",
        twice[1], twice[0]
    );
    assert_eq!(warnings, [expect]);
    assert_eq!(
        parsed.objects.iter().flat_map(|located| ignored_fields(&located.value)).collect::<Vec<_>>(),
        []
    );

    let Spec::ClusterQueue(queue) = &find(&parsed, Kind::ClusterQueue, "dws-cluster-queue").spec else {
        panic!("not a queue")
    };
    assert!(
        queue.namespace_selector.as_ref().is_some_and(|selector| selector.matches(&BTreeMap::new())),
        "`{{}}` selects every namespace"
    );
    assert_eq!(queue.resource_groups[0].flavors[0].resources["cpu"].nominal, 10_000_000);
    assert_eq!(queue.resource_groups[0].flavors[0].resources["memory"].nominal, 10_000 << 30);
    assert_eq!(queue.resource_groups[1].flavors[0].resources["nvidia.com/gpu"].nominal, 12);
    assert_eq!(queue.admission_checks[0].name, "sample-dws-multikueue");
    let Spec::MultiKueueConfig(config) = &find(&parsed, Kind::MultiKueueConfig, "multikueue-dws").spec else {
        panic!("not a config")
    };
    let order: Vec<&str> = config.clusters.iter().map(ClusterName::as_str).collect();
    assert_eq!(order, ["multikueue-dws-worker-asia", "multikueue-dws-worker-us", "multikueue-dws-worker-eu"]);
    let Spec::ResourceFlavor(flavor) = &find(&parsed, Kind::ResourceFlavor, "gpu-t4-dws").spec else {
        panic!("not a flavor")
    };
    assert_eq!((flavor.node_labels.len(), flavor.tolerations.len()), (1, 2));
}

#[test]
fn the_workers_file() {
    let parsed = clean("worker.yaml", WORKER);
    assert!(parsed.warnings.is_empty(), "{:#?}", parsed.warnings);
    let Spec::ClusterQueue(queue) = &find(&parsed, Kind::ClusterQueue, "dws-cluster-queue").spec else {
        panic!("not a queue")
    };
    assert_eq!(queue.resource_groups[1].flavors[0].resources["nvidia.com/gpu"].nominal, 4);
    let Spec::ProvisioningRequestConfig(config) =
        &find(&parsed, Kind::ProvisioningRequestConfig, "dws-config").spec
    else {
        panic!("not a config")
    };
    assert_eq!(
        (config.class_name.as_str(), config.managed_resources.as_slice()),
        ("queued-provisioning.gke.io", &["nvidia.com/gpu".to_owned()][..])
    );
    assert_eq!(
        (config.retry.limit, config.retry.base, config.retry.max),
        (3, Millis::secs(60), Millis::secs(1_800))
    );

    let ignored = |ask: fn(&Object) -> Vec<meridian_objects::Warning>| {
        parsed.objects.iter().flat_map(|located| ask(&located.value)).count()
    };
    assert_eq!(ignored(fields_ignored_by_cluster), 0, "everything in it means something to a worker");
    assert_eq!(
        ignored(ignored_fields),
        2,
        "the provisioning check and its configuration mean nothing to a manager"
    );
}

#[test]
fn the_jobs() {
    let workload = |name: &str, text: &str| {
        let parsed = clean(name, text);
        assert!(parsed.warnings.is_empty(), "{:#?}", parsed.warnings);
        let Located { value, .. } = &parsed.objects[0];
        assert_eq!(
            (value.name.as_str(), value.generate_name.as_deref(), value.namespace.as_deref()),
            ("", Some("dws-job-"), Some("default"))
        );
        assert_eq!(ignored_fields(value), []);
        job_to_workload(value).unwrap()
    };
    let job = workload("job.yaml", JOB);
    let gang = Amounts::from([
        ("cpu".to_owned(), 300),
        ("memory".to_owned(), 300 << 20),
        ("nvidia.com/gpu".to_owned(), 3),
    ]);
    assert_eq!(job.gang.total(), gang);
    assert_eq!(
        (job.gang.pod_sets[0].count, job.gang.max_run, job.suspend),
        (3, Some(Millis::secs(600)), true)
    );
    assert_eq!(
        (job.queue.as_str(), job.has_command, job.ttl_after_finished),
        ("dws-local-queue", false, Some(Millis::secs(3_600)))
    );
    assert_eq!((job.gang.pod_sets[0].tolerations.len(), job.gang.pod_sets[0].node_selector.len()), (2, 1));

    let job = workload("job-cpu-only.yaml", CPU_JOB);
    assert_eq!(
        job.gang.total().keys().collect::<Vec<_>>(),
        ["cpu", "memory"],
        "an amount of zero is not asked for"
    );
}

#[test]
fn the_policies() {
    let parsed = clean("residency-eu.yaml", RESIDENCY);
    assert!(parsed.warnings.is_empty(), "{:#?}", parsed.warnings);
    let Spec::Namespace(namespace) = &find(&parsed, Kind::Namespace, "research").spec else {
        panic!("not a namespace")
    };
    let Spec::ResidencyPolicy(policy) = &find(&parsed, Kind::ResidencyPolicy, "eu-personal-data").spec else {
        panic!("not a policy")
    };
    assert!(policy.applies.matches("other", &namespace.labels, &[], &BTreeMap::new()));
    let (eu, us) = (Jurisdiction::new("EU"), Jurisdiction::new("US"));
    assert!(policy.permits(&ClusterName::new("a"), &Region::new("europe-west4"), &eu).is_ok());
    assert!(policy.permits(&ClusterName::new("b"), &Region::new("us-east4"), &us).is_err());

    let parsed = clean("dispatch-race.yaml", DISPATCH);
    assert!(parsed.warnings.is_empty() && ignored_fields(&parsed.objects[0].value).is_empty());
    let Spec::DispatchPolicy(policy) = &parsed.objects[0].value.spec else { panic!("not a policy") };
    assert_eq!(
        (policy.on_cluster_loss.term, policy.start_timeout),
        (Some(Millis::mins(15)), Some(Millis::mins(10)))
    );
}

#[test]
fn all_files_but_the_workers_apply_together() {
    let files = [("m", MANAGER), ("r", RESIDENCY), ("d", DISPATCH), ("j", JOB), ("c", CPU_JOB)];
    let parsed = parse_set(&files);
    assert!(parsed.errors.is_empty(), "{:#?}", parsed.errors);
    assert_eq!(parsed.objects.len(), 9 + 3 + 1 + 1 + 1);
}

#[test]
fn every_example_survives_its_stored_form_and_both_views() {
    let files = [("m", MANAGER), ("r", RESIDENCY), ("d", DISPATCH), ("j", JOB), ("c", CPU_JOB)];
    for Located { value, .. } in parse_set(&files).objects.iter().chain(&parse("w", WORKER).objects) {
        let text = serde_json::to_string(value).unwrap();
        assert_eq!(serde_json::from_str::<Object>(&text).unwrap(), *value);
        for version in value.kind.versions() {
            let view = value.in_version(version);
            assert_eq!(view["apiVersion"], value.kind.api_version(version));
            assert_eq!(Object::from_value(view.clone()).unwrap(), (value.clone(), Vec::new()), "{view}");
        }
    }
}
