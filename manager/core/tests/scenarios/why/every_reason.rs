//! Every reason for which a workload waits: a fleet that shows it, what `why` suggests there, and a check
//! that the change lets the workload start. A reason that only time removes, or that needs no change, says
//! so.

use super::capacity_fleets;
use super::reason_fleets as fleets;
use super::row_names::row_of;
use super::*;
use std::collections::BTreeSet;

/// What lets the workload start.
enum Remedy {
    /// The text that `why` suggests, and the change. Returns the workload, which may be submitted again.
    Change(&'static str, fn(&mut Fleet, Uid) -> Uid),
    /// Nothing has to be changed: the text, and what happens meanwhile.
    Wait(&'static str, fn(&mut Fleet, Uid) -> Uid),
    /// There is nothing to do: the workload has a cluster.
    Nothing,
}

use Remedy::{Change as Do, Nothing, Wait as After};

/// Name, fleet, part of the reported reason, and remedy.
type Row = (&'static str, fn() -> (Fleet, Uid), &'static str, Remedy);

/// All rows, in the order of the reasons.
fn rows() -> Vec<Row> {
    let mut all = queue_rows();
    all.extend(flavor_rows());
    all.extend(cluster_rows());
    all.extend(agent_rows());
    all.extend(capacity_rows());
    all.extend(placement_rows());
    all.extend(turn_rows());
    all.extend(check_rows());
    all
}

fn applies(f: &mut Fleet, objects: Vec<Value>) {
    f.apply(objects);
    f.settle();
}

fn queue_rows() -> Vec<Row> {
    vec![
        (
            "NoLocalQueue",
            fleets::no_local_queue,
            "local queue `default/a` doesn't exist",
            Do("create local queue `a` in namespace `default`", |f, uid| {
                applies(f, vec![local_queue("a", "cq")]);
                uid
            }),
        ),
        (
            "NoClusterQueue",
            fleets::no_cluster_queue,
            "cluster queue `x` doesn't exist",
            Do("create cluster queue `x`", |f, uid| {
                applies(f, vec![cluster_queue("x", 9, &json!({}))]);
                uid
            }),
        ),
        (
            "NamespaceNotSelected",
            fleets::namespace_not_selected,
            "doesn't match the namespaceSelector",
            Do("change the cluster queue's namespaceSelector, or label the namespace", fleets::plain_queue),
        ),
        (
            "SelectsNoNamespace",
            fleets::selects_no_namespace,
            "has no namespaceSelector",
            Do("write `namespaceSelector: {}` into cluster queue `cq`", fleets::plain_queue),
        ),
        (
            "Stopped",
            fleets::stopped,
            "cluster queue `cq` is stopped",
            Do("set the stopPolicy of cluster queue `cq` to `None`", fleets::plain_queue),
        ),
    ]
}

fn flavor_rows() -> Vec<Row> {
    vec![
        (
            "FlavorNotFound",
            fleets::flavor_not_found,
            "resource flavor `rare` doesn't exist",
            Do("create resource flavor `rare`", |f, uid| {
                applies(f, vec![resource_flavor("rare")]);
                uid
            }),
        ),
        (
            "NotCovered",
            fleets::not_covered,
            "no resource group of cluster queue `cq` covers `cpu`",
            Do("add `cpu` to a resource group of the queue, or don't request it", |f, uid| {
                applies(f, vec![fleets::queue_with_cores("cq", 9, 9)]);
                uid
            }),
        ),
        (
            "NoMatchingFlavor",
            fleets::no_matching_flavor,
            "no flavor of cluster queue `cq` fits the pods",
            Do("add a flavor with matching labels, taints and topology", |f, uid| {
                applies(f, vec![fleets::flavor_in_pool("any", "b")]);
                uid
            }),
        ),
        (
            "ExceedsQuota",
            fleets::exceeds_quota,
            "can use at most 1 in flavor `any`",
            Do("raise the queue's nominal quota of `nvidia.com/gpu` in flavor `any` to 2", |f, uid| {
                applies(f, vec![cluster_queue("cq", 2, &json!({}))]);
                uid
            }),
        ),
        (
            "Used",
            fleets::quota_used,
            "has 1 of 4 free in flavor `any`",
            Do("wait until workload `default/there` ends (enough by itself)", fleets::end_there),
        ),
    ]
}

fn cluster_rows() -> Vec<Row> {
    const PERMIT: &str = "ask the owner of the residency policies to permit this cluster";
    vec![
        ("Listed", fleets::listed, "denies this cluster", Do(PERMIT, fleets::permit)),
        ("NotAllowed", fleets::not_allowed, "doesn't allow this cluster", Do(PERMIT, fleets::permit)),
        ("NoPolicy", fleets::no_policy, "no residency policy matches", Do(PERMIT, fleets::permit)),
        (
            "NotRequested",
            fleets::not_requested,
            "the job requests other regions",
            Do("submit the job again without a region", |f, _| fleets::wait(f, "again", 2)),
        ),
        (
            "UnknownPlace",
            fleets::unknown_place,
            "the cluster's region and jurisdiction are unknown",
            Do(
                "declare its region and jurisdiction in a `Cluster` object, and start or join its agent",
                |f, uid| {
                    f.apply(vec![cluster_object("moon", "moon-1", "US")]);
                    f.add_agent("moon", 2_000);
                    f.settle();
                    uid
                },
            ),
        ),
        (
            "NoCluster",
            fleets::no_cluster,
            "none of the queue's clusters is connected",
            Do("start or join the agent of a cluster that the queue may use", |f, uid| {
                f.apply(vec![cluster_object("eu", "europe-west4", "EU")]);
                f.add_agent("eu", 2_000);
                f.settle();
                uid
            }),
        ),
        (
            "NotInQueue",
            fleets::not_in_queue,
            "not listed in the queue's MultiKueueConfig",
            Do("add the cluster to the queue's MultiKueueConfig", fleets::list_eu),
        ),
        (
            "NoWorkersConfig",
            fleets::no_workers_config,
            "MultiKueueConfig `some` of admission check `mk`",
            Do("create MultiKueueConfig `some`", fleets::list_eu),
        ),
    ]
}

fn agent_rows() -> Vec<Row> {
    const REPORTED: &str = "wait until its agent has reported";
    vec![
        (
            "Cordoned",
            fleets::cordoned,
            "cordoned",
            Do("uncordon the cluster", |f, uid| {
                fleets::operate(f, Operator::Uncordon("eu".into()));
                uid
            }),
        ),
        (
            "NotConnected",
            fleets::not_connected,
            "its agent isn't connected",
            Do("start or join its agent", fleets::connect),
        ),
        (
            "Recovering",
            fleets::recovering,
            "hasn't sent a complete inventory",
            After(REPORTED, fleets::report_again),
        ),
        ("NoReport", fleets::no_report, "hasn't reported capacity", After(REPORTED, fleets::report_again)),
        (
            "NotAdmitted",
            fleets::not_admitted,
            "no other cluster has acknowledged its name yet",
            Do("wait for the next sync of another cluster, or run `meridian cluster admit`", |f, uid| {
                fleets::operate(f, Operator::Admit("us".into()));
                uid
            }),
        ),
        (
            "Quarantined",
            fleets::quarantined,
            "quarantined: its agent is in `us-east4`",
            Do("correct the `Cluster` object or the agent's location", |f, uid| {
                applies(f, vec![cluster_object("eu", "us-east4", "EU")]);
                uid
            }),
        ),
        (
            "NotGuarded",
            fleets::not_guarded,
            "the dispatch policy requires guards",
            Do(
                "use a runner with guards there, or a dispatch policy that accepts supervised gangs",
                |f, uid| {
                    applies(f, vec![fleets::requires("Supervised")]);
                    uid
                },
            ),
        ),
    ]
}

fn capacity_rows() -> Vec<Row> {
    vec![
        (
            "Capped",
            capacity_fleets::capped,
            "needs 2 nvidia.com/gpu, 1 of 1 free",
            Do("raise the cluster's limit of `nvidia.com/gpu` to 2", |f, uid| {
                applies(f, vec![cluster_object("eu", "europe-west4", "EU")]);
                uid
            }),
        ),
        (
            "NoSuchNode",
            capacity_fleets::no_such_node,
            "flavor `any` wants `pool=a`; nodes of `eu` have `pool=b`",
            Do("add nodes with this label there, or correct the nodeLabels of flavor `any`", |f, uid| {
                applies(f, vec![fleets::flavor_in_pool("any", "b")]);
                uid
            }),
        ),
        (
            "PodTooLarge",
            capacity_fleets::pod_too_large,
            "the largest matching node has 4",
            Do("add or enlarge nodes there, or use smaller pods", capacity_fleets::larger_nodes),
        ),
        (
            "PodTooLarge",
            capacity_fleets::pod_too_large,
            "the largest matching node has 4",
            Do("or use smaller pods", capacity_fleets::smaller_pods),
        ),
        (
            "NotEnoughCapacity",
            capacity_fleets::too_many_pods,
            "pods of `main` fit now, and not all even with nothing else running",
            Do("add or enlarge nodes there, or use fewer pods", capacity_fleets::fewer_pods),
        ),
        (
            "PodTooLarge",
            capacity_fleets::no_device,
            "the largest matching node has 0",
            Do("add nodes with `nvidia.com/gpu` there", capacity_fleets::larger_nodes),
        ),
    ]
}

fn placement_rows() -> Vec<Row> {
    vec![
        (
            "NotEnoughCapacity",
            capacity_fleets::not_enough_capacity,
            "1 of 2 pods of `main` fit now",
            Do("wait until workload `default/there` ends", fleets::end_there),
        ),
        (
            "NoDomain",
            capacity_fleets::no_domain,
            "must be in one `rack`",
            Do("add nodes to one `rack` there, or use fewer or smaller pods", capacity_fleets::larger_rack),
        ),
        (
            "CapacityReserved",
            capacity_fleets::kept,
            "its free capacity is reserved for workload `default/gang`",
            After(
                "wait until workload `default/gang` has started and capacity is free",
                capacity_fleets::end_gang,
            ),
        ),
        (
            "Refused",
            capacity_fleets::refused,
            "1 of 2 pods of `main` fit now, and not all even with nothing else running",
            Do("in cluster `eu`: add or enlarge nodes there", capacity_fleets::larger_nodes),
        ),
        (
            "BackedOff",
            capacity_fleets::backed_off,
            "the last attempts there did not reach running",
            After("wait for the next attempt", capacity_fleets::start_pods),
        ),
    ]
}

fn turn_rows() -> Vec<Row> {
    vec![
        (
            "ReservedForStarved",
            capacity_fleets::reserved_for_starved,
            "quota is reserved for a workload",
            After("wait until that workload has started and quota is free", capacity_fleets::end_gang),
        ),
        ("NotChosen", capacity_fleets::not_chosen, "the workload is in another cluster", Nothing),
        (
            "RecoveryOpen",
            capacity_fleets::recovery_open,
            "the manager is recovering",
            After("wait until all clusters have reported; declare those lost", fleets::connect),
        ),
        (
            "RulesUnheard",
            capacity_fleets::rules_unheard,
            "not every cluster has reported since the manager started",
            After("wait until all clusters have reported, or check policies", fleets::connect),
        ),
        (
            "RulesDoubted",
            capacity_fleets::rules_doubted,
            "policies and quotas may have changed since this journal was written",
            Do("check policies and quotas, then run `meridian journal confirm`", |f, uid| {
                f.confirm_rules();
                f.advance(Millis::secs(60));
                uid
            }),
        ),
        (
            "Preempts",
            capacity_fleets::preempts,
            "preempting 1 workload",
            After("wait until they have stopped", capacity_fleets::stop_victims),
        ),
        (
            "Overtaken",
            capacity_fleets::overtaken,
            "another workload in its cohort comes first",
            Do("delete workload `default/head` (enough by itself)", |f, uid| {
                fleets::delete(f, Kind::Job, "head");
                uid
            }),
        ),
    ]
}

fn check_rows() -> Vec<Row> {
    vec![
        (
            "AdmissionCheck",
            capacity_fleets::check_missing,
            "admission check `budget` doesn't exist",
            Do("create admission check `budget`, or remove it from cluster queue `cq`", fleets::plain_queue),
        ),
        (
            "CheckInactive",
            capacity_fleets::check_inactive,
            "admission check `budget` is inactive",
            Do("check why admission check `budget` is inactive, or remove it", fleets::plain_queue),
        ),
        (
            "WorkersCheck",
            capacity_fleets::two_workers_checks,
            "must be the only check for worker clusters",
            Do("keep only one MultiKueue admission check in cluster queue `cq`", fleets::plain_queue),
        ),
        (
            "BackOff",
            capacity_fleets::back_off,
            "backing off before the next attempt",
            After("wait for the next attempt", capacity_fleets::start_pods),
        ),
        (
            "Damaged",
            capacity_fleets::damaged,
            "damaged: the stored manifest can't be read",
            Do(
                "submit the job again: `meridian apply` with the manifest as it was submitted repairs it",
                capacity_fleets::repair,
            ),
        ),
    ]
}

/// All texts of an explanation that may have a reason or a remedy.
fn texts(why: &Value, fields: [&str; 2]) -> Vec<String> {
    let clusters = why["clusters"].as_array().unwrap().iter().map(|cluster| &cluster[fields[1]]);
    std::iter::once(&why[fields[0]]).chain(clusters).map(|text| text.as_str().unwrap().to_owned()).collect()
}

/// The rows of the reasons that the manager has stored for a workload.
fn stored(f: &Fleet, uid: Uid) -> BTreeSet<&'static str> {
    let (before, at_clusters) = f.world.reasons(&f.world.state().workloads()[&uid]);
    before.into_iter().chain(at_clusters.into_iter().flat_map(BTreeMap::values)).map(row_of).collect()
}

/// Reasons that are computed on request and never stored.
const NOT_STORED: &[&str] = &[
    "NotChosen",
    "RecoveryOpen",
    "RulesDoubted",
    "RulesUnheard",
    "BackOff",
    "Damaged",
    "Recovering",
    "NoReport",
    "NoSuchNode",
    "BackedOff",
    "Refused",
    "NoCluster",
    "FlavorNotFound",
    "NoWorkersConfig",
    "AdmissionCheck",
    "CheckInactive",
    "WorkersCheck",
];

#[test]
fn the_remedy_of_every_reason_starts_the_workload() {
    let mut failed = Vec::new();
    for (name, build, says, remedy) in rows() {
        let (mut f, uid) = build();
        let why = f.why(uid);
        if !texts(&why, ["summary", "reason"]).iter().any(|text| text.contains(says)) {
            failed.push(format!("{name}: not reported: {why:#}"));
        }
        if !stored(&f, uid).contains(name) && !NOT_STORED.contains(&name) {
            failed.push(format!("{name}: not stored: {:?}", stored(&f, uid)));
        }
        let (text, apply) = match remedy {
            Do(text, apply) | After(text, apply) => (text, apply),
            Nothing => {
                let suggested = texts(&why, ["wouldHelp", "wouldHelp"]);
                assert!(suggested.iter().all(String::is_empty), "{name}: {suggested:?}");
                continue;
            }
        };
        if !texts(&why, ["wouldHelp", "wouldHelp"]).iter().any(|help| help.contains(text)) {
            failed.push(format!("{name}: not suggested: {why:#}"));
        }
        if f.phase(uid) == Some(Phase::Running) {
            failed.push(format!("{name}: runs already"));
            continue;
        }
        let uid = apply(&mut f, uid);
        f.advance(Millis::secs(2));
        if f.phase(uid) != Some(Phase::Running) {
            failed.push(format!("{name}: doesn't start: {:#}", f.why(uid)));
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}
