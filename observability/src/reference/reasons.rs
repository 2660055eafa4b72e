//! The page about reasons why a workload waits, with the messages that `meridian why` prints.

use super::{HEAD, cell};
use meridian_manager_core::facts::end::EvictionCause;
use meridian_manager_core::facts::key::Key;
use meridian_manager_core::facts::reason::{Denied, NoQuota, NoRoute, Shortage, Why};
use meridian_objects::job::SUBMITTED_KIND;
use meridian_queueing::model::Inactive;
use meridian_shared::ids::{ClusterName, RecordNumber};
use meridian_shared::packing::Misfit;
use meridian_shared::protocol::RefuseReason;
use meridian_views::asker::Asker;
use meridian_views::explain::words::Wording as _;
use std::fmt::Write as _;
use std::sync::Arc;

const INTRODUCTION: &str = "\
# Reasons

Why a workload waits, as `meridian why` prints it, with names and numbers of an example. The verdict is a word
for programs (`-o json`). The label is the `underlying_cause` in the metric of workloads that aren't admitted,
if the reason is about one cluster.

| verdict | label | message | what to do |
|---|---|---|---|
";

pub(crate) fn page() -> String {
    let mut text = format!("{HEAD}{INTRODUCTION}");
    let asker = Asker::unlimited();
    for why in examples() {
        let label = match why.cluster_obstacle().1 {
            "" => String::new(),
            label => format!("`{label}`"),
        };
        let (message, remedy) = (cell(&why.message(&asker)), cell(&why.remedy(&asker)));
        let _ = writeln!(text, "| `{}` | {label} | {message} | {remedy} |", why.verdict());
    }
    text.push_str(
        "\n## Evictions\n\nReason and cause of a workload that lost its cluster, as in Kueue where Kueue has \
         them.\n\n| reason | underlying cause |\n|---|---|\n",
    );
    let mut pairs: Vec<(&str, &str)> =
        EvictionCause::ALL.iter().map(|cause| (cause.reason(), cause.underlying())).collect();
    pairs.sort_unstable();
    for (reason, cause) in pairs {
        let cause = if cause.is_empty() { String::new() } else { format!("`{cause}`") };
        let _ = writeln!(text, "| `{reason}` | {cause} |");
    }
    text
}

/// One example of each reason. The match below doesn't compile if a reason is missing in it.
fn examples() -> Vec<Why> {
    [routes(), quotas(), denials(), clusters(), waits()].concat()
}

fn routes() -> Vec<Why> {
    let (namespace, queue): (Arc<str>, Arc<str>) = (Arc::from("research"), Arc::from("gpus"));
    let cluster_queue = || "dws".to_owned();
    let routes = [
        NoRoute::NoLocalQueue { namespace: namespace.clone(), queue },
        NoRoute::NoClusterQueue { cluster_queue: cluster_queue() },
        NoRoute::NamespaceNotSelected { cluster_queue: cluster_queue(), namespace },
        NoRoute::SelectsNoNamespace { cluster_queue: cluster_queue() },
        NoRoute::Stopped { what: "cluster queue `dws`".to_owned() },
    ];
    routes.map(Why::Route).into()
}

fn quotas() -> Vec<Why> {
    let (flavor, resource) = ("t4".to_owned(), "nvidia.com/gpu".to_owned());
    let shortage = Shortage {
        flavor: flavor.clone(),
        resource: resource.clone(),
        asks: 4,
        free: 1,
        nominal: 8,
        own: 1,
        lent: 0,
        cohort: None,
        no_victims: false,
        raise_to: 11,
        also: Vec::new(),
    };
    let quotas = [
        NoQuota::NotCovered { resource: resource.clone() },
        NoQuota::NoMatchingFlavor { why: "flavor `t4` has another label".to_owned() },
        NoQuota::ExceedsQuota { flavor, resource, asks: 16, nominal: 8, raise_to: 16 },
        NoQuota::Used(Box::new(shortage)),
    ];
    quotas.map(Why::Quota).into()
}

fn denials() -> Vec<Why> {
    let (policy, version) = ("eu-only".to_owned(), RecordNumber(7));
    let denials = [
        Denied::Listed { policy: policy.clone(), version },
        Denied::NotAllowed { policy, version },
        Denied::NotRequested,
        Denied::UnknownPlace,
        Denied::NoPolicy,
    ];
    denials.map(Why::Forbidden).into()
}

fn clusters() -> Vec<Why> {
    let resource = || "nvidia.com/gpu".to_owned();
    let misfit = Misfit::NotEnoughCapacity { pod_set: "main".into(), fit: 1, count: 3, fits_empty: true };
    let text = || "the nodes are busy".to_owned();
    let train = || Some(Key::namespaced(SUBMITTED_KIND, "default", "train"));
    vec![
        Why::NoCluster,
        Why::NotInQueue,
        Why::NoWorkersConfig { check: "workers".into(), config: "all-regions".into() },
        Why::Cordoned,
        Why::NotConnected,
        Why::Recovering,
        Why::NotAdmitted,
        Why::Quarantined { located: "us-east4".into() },
        Why::NoReport,
        Why::NotGuarded,
        Why::Capped { resource: resource(), asks: 4, left: 2, cap: 8 },
        Why::NoCapacity(misfit),
        Why::CapacityReserved { reserved_for: train(), starves: false },
        Why::CapacityReserved { reserved_for: train(), starves: true },
        Why::Refused { reason: RefuseReason::Overloaded, text: text() },
        Why::BackedOff,
        Why::NotChosen { chosen: ClusterName::new("eu") },
    ]
}

fn waits() -> Vec<Why> {
    vec![
        Why::ReservedForStarved,
        Why::RecoveryOpen,
        Why::RulesDoubted,
        Why::RulesUnheard,
        Why::Preempts { victims: 2 },
        Why::Overtaken,
        Why::Inactive { queue: "dws".into(), why: Inactive::Stopped },
        Why::BackOff,
        Why::Damaged,
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// A number for each variant. A new variant doesn't compile without one, and needs an example then.
    const fn number(why: &Why) -> usize {
        match why {
            Why::Route(_) => 0,
            Why::Quota(_) => 1,
            Why::Forbidden(_) => 2,
            Why::NoCluster => 3,
            Why::NotInQueue => 4,
            Why::NoWorkersConfig { .. } => 5,
            Why::Cordoned => 6,
            Why::NotConnected => 7,
            Why::Recovering => 8,
            Why::NotAdmitted => 9,
            Why::Quarantined { .. } => 10,
            Why::NoReport => 11,
            Why::NotGuarded => 12,
            Why::Capped { .. } => 13,
            Why::NoCapacity(_) => 14,
            Why::CapacityReserved { .. } => 15,
            Why::ReservedForStarved => 16,
            Why::Refused { .. } => 17,
            Why::BackedOff => 18,
            Why::NotChosen { .. } => 19,
            Why::RecoveryOpen => 20,
            Why::RulesDoubted => 21,
            Why::RulesUnheard => 22,
            Why::Preempts { .. } => 23,
            Why::Overtaken => 24,
            Why::Inactive { .. } => 25,
            Why::BackOff => 26,
            Why::Damaged => 27,
        }
    }

    #[test]
    fn every_reason_has_an_example() {
        let seen: BTreeSet<usize> = examples().iter().map(number).collect();
        assert!(seen.into_iter().eq(0..28));
    }
}
