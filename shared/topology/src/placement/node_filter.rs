//! Determines which nodes accept the pods of a request, and how much they are preferred.

use super::labels;
use crate::flavor::Flavor;
use crate::placement_error::PlacementError;
use crate::request::{PodSetRequest, PreferredTerm};
use meridian_shared::gang::{Requirement, Taint, TaintEffect, Tolerance, Toleration};
use std::collections::BTreeMap;

/// Why a node is excluded for a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Exclusion {
    /// An untolerated taint, as `key=value:effect`.
    Taint(String),
    /// The node selector.
    Selector,
    /// The required node affinity.
    Affinity,
}

/// Constraints of a pod set on nodes.
#[derive(Debug)]
pub(super) struct NodeFilter<'a> {
    own: &'a [Toleration],
    flavor: &'a [Toleration],
    selector: &'a BTreeMap<String, String>,
    affinity: &'a [Vec<Requirement>],
    preferred: &'a [PreferredTerm],
}

impl<'a> NodeFilter<'a> {
    /// The constraints of `request` in a topology of `flavor`. The flavor's tolerations are added. Fails if a
    /// selector or affinity term is invalid.
    pub(super) fn of(
        request: &'a PodSetRequest,
        flavor: &'a Flavor,
        by_host: bool,
    ) -> Result<Self, PlacementError> {
        let bad_pair = |(key, value): &(&String, &String)| !labels::is_key(key) || !labels::is_value(value);
        if let Some((key, value)) = request.node_selector.iter().find(bad_pair).filter(|_| by_host) {
            return Err(PlacementError::SelectorInvalid { pair: format!("{key}={value}") });
        }
        let preferred = if flavor.profile.preferred_affinity { request.preferred.as_slice() } else { &[] };
        let requirements =
            request.affinity.iter().flatten().chain(preferred.iter().flat_map(|term| &term.requirements));
        if let Some(bad) = requirements.into_iter().find(|requirement| !labels::is_requirement(requirement)) {
            return Err(PlacementError::AffinityInvalid { key: bad.key.clone() });
        }
        Ok(Self {
            own: &request.tolerations,
            flavor: &flavor.tolerations,
            selector: &request.node_selector,
            affinity: &request.affinity,
            preferred,
        })
    }

    /// The preference score of a node with these labels and taints, or why it is excluded.
    pub(super) fn evaluate(
        &self,
        labels: &BTreeMap<String, String>,
        taints: &[Taint],
    ) -> Result<i64, Exclusion> {
        let forbids =
            |taint: &&Taint| matches!(taint.effect, TaintEffect::NoSchedule | TaintEffect::NoExecute);
        let tolerated = |taint: &Taint| Tolerance::of(self.own.iter().chain(self.flavor), taint).is_some();
        if let Some(taint) = taints.iter().filter(forbids).find(|taint| !tolerated(taint)) {
            return Err(Exclusion::Taint(taint.to_string()));
        }
        if !self.selector.iter().all(|(key, value)| labels.get(key) == Some(value)) {
            return Err(Exclusion::Selector);
        }
        if !self.affinity.is_empty() && !self.affinity.iter().any(|term| satisfied(term, labels)) {
            return Err(Exclusion::Affinity);
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

/// As in Kubernetes, an empty term matches nothing.
fn satisfied(term: &[Requirement], labels: &BTreeMap<String, String>) -> bool {
    !term.is_empty() && term.iter().all(|requirement| requirement.matches(labels))
}
