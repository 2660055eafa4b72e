//! Nodes, and which pods they take.

use crate::labels;
use crate::misfit::Misfit;
use crate::request::{PodSetRequest, PreferredTerm};
use crate::snapshot::Flavor;
use meridian_shared::gang::{Amounts, Requirement, Taint, TaintEffect, Tolerance, Toleration};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A node as the topology sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Node {
    /// Name; non-topology pods are counted by it.
    pub name: String,
    /// Labels, which say where it is.
    pub labels: BTreeMap<String, String>,
    /// Taints.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub taints: Vec<Taint>,
    /// It reports that it can run pods.
    pub ready: bool,
    /// Somebody cordoned it.
    #[serde(default)]
    pub unschedulable: bool,
    /// What it can give to pods, in base units.
    pub allocatable: Amounts,
}

impl Node {
    /// Whether pods may be placed on it at all, in the given levels and with the given labels of the flavor.
    pub(crate) fn takes_part(&self, levels: &[String], flavor_labels: &BTreeMap<String, String>) -> bool {
        // a label that the flavor wants empty may as well be absent
        let value = |key: &String| self.labels.get(key).map_or("", String::as_str);
        self.ready
            && !self.unschedulable
            && levels.iter().all(|level| self.labels.contains_key(level))
            && flavor_labels.iter().all(|(key, wanted)| value(key) == wanted)
    }
}

/// What a node holds against a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Against {
    /// A taint that isn't tolerated, as `key=value:effect`.
    Taint(String),
    /// The node selector.
    Selector,
    /// The required affinity.
    Affinity,
}

/// Everything a pod set says about nodes.
#[derive(Debug)]
pub(crate) struct Wishes<'a> {
    own: &'a [Toleration],
    flavor: &'a [Toleration],
    selector: &'a BTreeMap<String, String>,
    affinity: &'a [Vec<Requirement>],
    preferred: &'a [PreferredTerm],
}

impl<'a> Wishes<'a> {
    /// The wishes of `request` in a topology of `flavor`, whose tolerations come on top. Wishes that can't be evaluated are
    /// refused.
    pub(crate) fn of(request: &'a PodSetRequest, flavor: &'a Flavor, by_host: bool) -> Result<Self, Misfit> {
        let bad_pair = |(key, value): &(&String, &String)| !labels::is_key(key) || !labels::is_value(value);
        if let Some((key, value)) = request.node_selector.iter().find(bad_pair).filter(|_| by_host) {
            return Err(Misfit::SelectorInvalid { pair: format!("{key}={value}") });
        }
        let preferred = if flavor.profile.preferred_affinity { request.preferred.as_slice() } else { &[] };
        let requirements =
            request.affinity.iter().flatten().chain(preferred.iter().flat_map(|term| &term.requirements));
        if let Some(bad) = requirements.into_iter().find(|requirement| !labels::is_requirement(requirement)) {
            return Err(Misfit::AffinityInvalid { key: bad.key.clone() });
        }
        Ok(Self {
            own: &request.tolerations,
            flavor: &flavor.tolerations,
            selector: &request.node_selector,
            affinity: &request.affinity,
            preferred,
        })
    }

    /// How much a node with these labels and taints is preferred, unless something is against it.
    pub(crate) fn judge(&self, labels: &BTreeMap<String, String>, taints: &[Taint]) -> Result<i64, Against> {
        let forbids =
            |taint: &&Taint| matches!(taint.effect, TaintEffect::NoSchedule | TaintEffect::NoExecute);
        let tolerated = |taint: &Taint| Tolerance::of(self.own.iter().chain(self.flavor), taint).is_some();
        if let Some(taint) = taints.iter().filter(forbids).find(|taint| !tolerated(taint)) {
            return Err(Against::Taint(written(taint)));
        }
        if !self.selector.iter().all(|(key, value)| labels.get(key) == Some(value)) {
            return Err(Against::Selector);
        }
        if !self.affinity.is_empty() && !self.affinity.iter().any(|term| satisfied(term, labels)) {
            return Err(Against::Affinity);
        }
        let score = self
            .preferred
            .iter()
            .filter(|term| satisfied(&term.requirements, labels))
            .map(|term| i64::from(term.weight))
            .sum();
        Ok(score)
    }
}

/// An empty term is satisfied by nothing, as in Kubernetes.
fn satisfied(term: &[Requirement], labels: &BTreeMap<String, String>) -> bool {
    !term.is_empty() && term.iter().all(|requirement| requirement.matches(labels))
}

fn written(taint: &Taint) -> String {
    match taint.value.as_str() {
        "" => format!("{}:{:?}", taint.key, taint.effect),
        value => format!("{}={value}:{:?}", taint.key, taint.effect),
    }
}
