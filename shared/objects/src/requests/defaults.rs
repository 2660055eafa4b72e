//! Defaults of a namespace and a runtime class.

use crate::pod::{PodTemplate, Resources};
use crate::spec::limits::{LimitRangeSpec, LimitType, RuntimeClassSpec};
use meridian_shared::gang::Amounts;

/// The template with the defaults of its namespace and its runtime class. `runtime_class` is the class that
/// the template names; `ranges` are the limit ranges of its namespace, sorted by name.
pub fn with_defaults(
    template: &PodTemplate,
    ranges: &[LimitRangeSpec],
    runtime_class: Option<&RuntimeClassSpec>,
) -> PodTemplate {
    let mut filled = template.clone();
    if let (Some(_), true, Some(class)) =
        (&template.runtime_class, template.overhead.is_empty(), runtime_class)
    {
        filled.overhead = class.overhead.clone();
    }
    if let Some(range) = Summary::of(ranges, LimitType::Container) {
        for container in filled.init_containers.iter_mut().chain(&mut filled.containers) {
            range.fill(&mut container.resources);
        }
    }
    if let (Some(range), Some(whole_pod)) = (Summary::of(ranges, LimitType::Pod), &mut filled.whole_pod) {
        range.fill(whole_pod);
    }
    for container in filled.init_containers.iter_mut().chain(&mut filled.containers) {
        container.resources.requests = container.resources.asked();
    }
    let whole_pod = filled.whole_pod_requests(&filled.container_requests());
    if let Some(resources) = &mut filled.whole_pod {
        resources.requests = whole_pod;
    }
    filled
}

/// Requests of one pod with the defaults of its namespace and its runtime class.
pub fn effective_requests(
    template: &PodTemplate,
    ranges: &[LimitRangeSpec],
    runtime_class: Option<&RuntimeClassSpec>,
) -> Amounts {
    with_defaults(template, ranges, runtime_class).requests()
}

/// All limit ranges of a namespace as one: the narrowest bounds, the first defaults.
#[derive(Default)]
pub(super) struct Summary {
    pub(super) min: Amounts,
    pub(super) max: Amounts,
    default: Amounts,
    default_request: Amounts,
}

impl Summary {
    /// Summarises the limits for `of`. `None` if no range has one.
    pub(super) fn of(ranges: &[LimitRangeSpec], of: LimitType) -> Option<Self> {
        let mut limits =
            ranges.iter().flat_map(|range| &range.limits).filter(|limit| limit.of == of).peekable();
        limits.peek()?;
        let mut summary = Self::default();
        for limit in limits {
            summary.min = merged(&summary.min, &limit.min, i64::max);
            summary.max = merged(&summary.max, &limit.max, i64::min);
            summary.default = merged(&summary.default, &limit.default, |first, _| first);
            summary.default_request =
                merged(&summary.default_request, &limit.default_request, |first, _| first);
        }
        Some(summary)
    }

    fn fill(&self, resources: &mut Resources) {
        resources.limits = merged(&resources.limits, &self.default, |written, _| written);
        resources.requests = merged(&resources.requests, &self.default_request, |written, _| written);
    }
}

pub(super) fn merged(a: &Amounts, b: &Amounts, choose: fn(i64, i64) -> i64) -> Amounts {
    let mut all = a.clone();
    for (resource, amount) in b {
        all.entry(resource.clone()).and_modify(|other| *other = choose(*other, *amount)).or_insert(*amount);
    }
    all
}
