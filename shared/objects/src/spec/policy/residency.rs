//! Residency policies.
//!
//! A policy *applies* to a workload when any of its `applies` criteria matches: the namespace is listed, the
//! namespace's labels match `namespaceSelector`, the queue is listed, or the workload's labels match
//! `workloadSelector`. Criteria are alternatives, so that a missing label or another queue never removes a
//! restriction of the namespace. An empty list or an empty selector is an unused criterion; a policy without
//! any criterion applies to every workload.
//!
//! A policy *permits* a cluster if `deny` names neither the cluster nor its region nor its jurisdiction, and
//! either there is no `allow`, or `allow` names at least one of the three. So `deny` takes precedence over
//! `allow`. An `allow` without entries permits nothing. All policies that apply must permit the cluster.

use super::{MAX_ENTRIES, place};
use crate::fields::Fields;
use crate::fields::names;
use crate::fields::scheduling::selector;
use meridian_shared::gang::LabelSelector;
use meridian_shared::ids::{ClusterName, Jurisdiction, Region};
use std::collections::{BTreeMap, BTreeSet};

/// Which workloads a residency policy applies to; see the module.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Applies {
    pub namespaces: BTreeSet<String>,
    pub namespace_selector: LabelSelector,
    /// Local or cluster queues by name.
    pub queues: BTreeSet<String>,
    pub workload_selector: LabelSelector,
}

impl Applies {
    /// Whether the policy applies to a workload. `queues` are its local queue and the cluster queue of that.
    pub fn matches(
        &self,
        namespace: &str,
        namespace_labels: &BTreeMap<String, String>,
        queues: &[&str],
        labels: &BTreeMap<String, String>,
    ) -> bool {
        let none = LabelSelector::default();
        let selects = |selector: &LabelSelector, labels| *selector != none && selector.matches(labels);
        *self == Self::default()
            || self.namespaces.contains(namespace)
            || selects(&self.namespace_selector, namespace_labels)
            || queues.iter().any(|queue| self.queues.contains(*queue))
            || selects(&self.workload_selector, labels)
    }
}

/// Jurisdictions, regions and clusters. A cluster is included when any of the three is listed.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Locations {
    pub jurisdictions: BTreeSet<Jurisdiction>,
    pub regions: BTreeSet<Region>,
    pub clusters: BTreeSet<ClusterName>,
}

impl Locations {
    /// Whether the cluster, its region or its jurisdiction is listed.
    pub fn contains(&self, cluster: &ClusterName, region: &Region, jurisdiction: &Jurisdiction) -> bool {
        self.clusters.contains(cluster)
            || self.regions.contains(region)
            || self.jurisdictions.contains(jurisdiction)
    }

    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Treatment of workloads that run in a cluster that a changed policy no longer permits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum OnChange {
    #[default]
    Evict,
    /// The workloads are reported and keep running.
    Flag,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Refusal {
    Denied,
    NotAllowed,
}

/// The clusters in which workloads may or must not run; see the module.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ResidencyPolicySpec {
    pub applies: Applies,
    /// The only permitted locations. `None` permits all locations, an empty list permits none.
    pub allow: Option<Locations>,
    pub deny: Locations,
    pub on_change: OnChange,
}

impl ResidencyPolicySpec {
    /// Whether the policy permits a cluster for a workload that it applies to. Fails with the reason.
    pub fn permits(
        &self,
        cluster: &ClusterName,
        region: &Region,
        jurisdiction: &Jurisdiction,
    ) -> Result<(), Refusal> {
        if self.deny.contains(cluster, region, jurisdiction) {
            return Err(Refusal::Denied);
        }
        match &self.allow {
            Some(allow) if !allow.contains(cluster, region, jurisdiction) => Err(Refusal::NotAllowed),
            _ => Ok(()),
        }
    }
}

pub(crate) fn read_residency(root: &Fields<'_>) -> ResidencyPolicySpec {
    root.findings().set_strict();
    let Some(spec) = root.require("spec").and_then(|item| item.fields()) else {
        return ResidencyPolicySpec::default();
    };
    let applies = spec.fields("applies").map(|applies| {
        let set = |name: &'static str| applies.names(name, MAX_ENTRIES).into_iter().collect();
        let read = Applies {
            namespaces: set("namespaces"),
            namespace_selector: applies
                .get("namespaceSelector")
                .and_then(|item| selector(&item))
                .unwrap_or_default(),
            queues: set("queues"),
            workload_selector: applies
                .get("workloadSelector")
                .and_then(|item| selector(&item))
                .unwrap_or_default(),
        };
        applies.finish();
        read
    });
    let allow = spec.fields("allow").map(read_locations);
    if allow.is_none() && spec.is_written("allow") && !spec.findings().has_errors() {
        // Kubernetes reads null as absent. Here that would turn "only these places" into "any place".
        spec.error(
            "allow",
            "is empty",
            "write the places, or leave `allow` out to allow every place that is not denied",
        );
    }
    if allow.as_ref().is_some_and(Locations::is_empty) {
        spec.warn(
            "allow",
            "names no place, so no place is allowed",
            "name the places, or leave `allow` out to allow every place that is not denied",
        );
    }
    let read = ResidencyPolicySpec {
        applies: applies.unwrap_or_default(),
        allow,
        deny: spec.fields("deny").map(read_locations).unwrap_or_default(),
        on_change: spec
            .get("onChange")
            .and_then(|item| item.word(&[("Evict", OnChange::Evict), ("Flag", OnChange::Flag)]))
            .unwrap_or_default(),
    };
    spec.finish();
    read
}

fn read_locations(places: Fields<'_>) -> Locations {
    let read = Locations {
        jurisdictions: places
            .list("jurisdictions", MAX_ENTRIES, |item| place(&item).map(Jurisdiction::new))
            .into_iter()
            .collect(),
        regions: places
            .list("regions", MAX_ENTRIES, |item| place(&item).map(Region::new))
            .into_iter()
            .collect(),
        clusters: places
            .list("clusters", MAX_ENTRIES, |item| {
                let name = item.text()?;
                if !names::is_dns_subdomain(name) {
                    item.error(
                        format!("`{name}` is not a cluster's name"),
                        "use lower-case letters, digits, `-` and `.`",
                    );
                }
                Some(ClusterName::new(name))
            })
            .into_iter()
            .collect(),
    };
    places.finish();
    read
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn criteria_are_alternatives_and_none_applies_to_all() {
        let personal = BTreeMap::from([("data".to_owned(), "personal".to_owned())]);
        let none = BTreeMap::new();
        let applies = Applies {
            namespaces: BTreeSet::from(["research".to_owned()]),
            namespace_selector: LabelSelector {
                match_labels: personal.clone(),
                match_expressions: Vec::new(),
            },
            queues: BTreeSet::from(["q".to_owned()]),
            workload_selector: LabelSelector::default(),
        };
        assert!(applies.matches("research", &none, &[], &none), "by name");
        assert!(applies.matches("other", &personal, &[], &none), "by label");
        assert!(applies.matches("other", &none, &["x", "q"], &none), "by queue");
        assert!(!applies.matches("other", &none, &["x"], &personal), "an empty workload selector is unused");
        assert!(Applies::default().matches("any", &none, &[], &none), "no criterion is every workload");
    }

    #[test]
    fn deny_beats_allow_and_an_empty_allow_permits_nothing() {
        let (cluster, region, eu) =
            (ClusterName::new("eu"), Region::new("europe-west4"), Jurisdiction::new("EU"));
        let check =
            |spec: &ResidencyPolicySpec, expect| assert_eq!(spec.permits(&cluster, &region, &eu), expect);
        let mut spec = ResidencyPolicySpec::default();
        check(&spec, Ok(()));
        spec.allow = Some(Locations::default());
        check(&spec, Err(Refusal::NotAllowed));
        spec.allow = Some(Locations { regions: BTreeSet::from([region.clone()]), ..Locations::default() });
        check(&spec, Ok(()));
        spec.deny = Locations { clusters: BTreeSet::from([cluster.clone()]), ..Locations::default() };
        check(&spec, Err(Refusal::Denied));
        spec.allow = None;
        check(&spec, Err(Refusal::Denied));
    }
}
