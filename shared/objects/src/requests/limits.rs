//! Finds pods that violate their own limits or those of their namespace.

use super::defaults::{Summary, merged};
use crate::pod::{Container, PodTemplate, Resources};
use crate::spec::limits::{LimitRangeSpec, LimitType};
use crate::units::quantity;
use meridian_shared::gang::Amounts;
use std::collections::BTreeMap;
use std::fmt;

/// The part of a template that violates a bound.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ViolationSite {
    InitContainer(usize),
    Container(usize),
    /// The requests of the pod as a whole.
    WholePod,
    /// All containers of the pod together.
    Pod,
}

/// The violated bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BrokenBound {
    /// The request exceeds the container's own limit.
    OwnLimit,
    /// The pod as a whole requests less than its containers together.
    Containers,
    /// The amount exceeds the maximum of a limit range.
    RangeMax,
    /// The amount is below the minimum of a limit range.
    RangeMin,
}

/// A violation of a bound by a template.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LimitViolation {
    pub part: ViolationSite,
    pub bound: BrokenBound,
    /// The resources, each with its amount and its bound.
    pub resources: BTreeMap<String, (i64, i64)>,
}

impl fmt::Display for LimitViolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.part {
            ViolationSite::InitContainer(index) => write!(f, "initContainers[{index}]")?,
            ViolationSite::Container(index) => write!(f, "containers[{index}]")?,
            ViolationSite::WholePod => f.write_str("resources")?,
            ViolationSite::Pod => f.write_str("the pod")?,
        }
        let (asks, bound) = match self.bound {
            BrokenBound::OwnLimit => ("more than its limit", "limit"),
            BrokenBound::Containers => ("less than its containers together", "sum of the containers"),
            BrokenBound::RangeMax => ("more than the limit range allows", "maximum"),
            BrokenBound::RangeMin => ("less than the limit range allows", "least"),
        };
        write!(f, " asks for {asks}")?;
        for (resource, (amount, wanted)) in &self.resources {
            write!(
                f,
                "; `{resource}` is `{}`, the {bound} is `{}`",
                quantity::format(resource, *amount),
                quantity::format(resource, *wanted)
            )?;
        }
        Ok(())
    }
}

/// Requests above their own limits, and requests of a whole pod below the sum of its containers. Call it with
/// the result of [`with_defaults`](super::with_defaults).
pub fn limit_violations(filled: &PodTemplate) -> Vec<LimitViolation> {
    let check = |part: ViolationSite, resources: &Resources| {
        violation(part, BrokenBound::OwnLimit, &resources.requests, &resources.limits, |amount, limit| {
            amount > limit
        })
    };
    let init = filled
        .init_containers
        .iter()
        .enumerate()
        .map(|(index, container)| (ViolationSite::InitContainer(index), &container.resources));
    let main = filled
        .containers
        .iter()
        .enumerate()
        .map(|(index, container)| (ViolationSite::Container(index), &container.resources));
    let whole = filled.whole_pod.iter().map(|resources| (ViolationSite::WholePod, resources));
    let sum = filled.container_requests();
    let below = filled.whole_pod.iter().filter_map(|resources| {
        violation(
            ViolationSite::WholePod,
            BrokenBound::Containers,
            &resources.requests,
            &sum,
            |amount, sum| amount < sum,
        )
    });
    init.chain(main)
        .chain(whole)
        .filter_map(|(part, resources)| check(part, resources))
        .chain(below)
        .collect()
}

/// Amounts that violate the limit ranges of the namespace. Call it with the result of
/// [`with_defaults`](super::with_defaults). As in Kueue, a resource that one side doesn't name isn't
/// compared, and the ratio of limit to request is left to Kubernetes.
pub fn limit_range_violations(filled: &PodTemplate, ranges: &[LimitRangeSpec]) -> Vec<LimitViolation> {
    let mut all = Vec::new();
    if let Some(range) = Summary::of(ranges, LimitType::Container) {
        let mut each = |part: ViolationSite, container: &Container| {
            let Resources { requests, limits } = &container.resources;
            all.extend(violation(
                part.clone(),
                BrokenBound::RangeMax,
                &merged(requests, limits, i64::max),
                &range.max,
                |amount, most| amount > most,
            ));
            all.extend(violation(
                part,
                BrokenBound::RangeMin,
                &merged(requests, limits, i64::min),
                &range.min,
                |amount, least| amount < least,
            ));
        };
        filled
            .init_containers
            .iter()
            .enumerate()
            .for_each(|(index, container)| each(ViolationSite::InitContainer(index), container));
        filled
            .containers
            .iter()
            .enumerate()
            .for_each(|(index, container)| each(ViolationSite::Container(index), container));
    }
    if let Some(range) = Summary::of(ranges, LimitType::Pod) {
        let total = filled.requests();
        all.extend(violation(
            ViolationSite::Pod,
            BrokenBound::RangeMax,
            &total,
            &range.max,
            |amount, most| amount > most,
        ));
        all.extend(violation(
            ViolationSite::Pod,
            BrokenBound::RangeMin,
            &total,
            &range.min,
            |amount, least| amount < least,
        ));
    }
    all
}

fn violation(
    part: ViolationSite,
    bound: BrokenBound,
    amounts: &Amounts,
    bounds: &Amounts,
    breaks: fn(i64, i64) -> bool,
) -> Option<LimitViolation> {
    let both =
        amounts.iter().filter_map(|(resource, amount)| Some((resource, *amount, *bounds.get(resource)?)));
    let resources: BTreeMap<_, _> = both
        .filter(|(_, amount, bound)| breaks(*amount, *bound))
        .map(|(name, amount, bound)| (name.clone(), (amount, bound)))
        .collect();
    (!resources.is_empty()).then_some(LimitViolation { part, bound, resources })
}
