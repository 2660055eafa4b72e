//! Limit ranges and runtime classes, which add resources to a namespace's pods. [`crate::requests`] applies
//! them.

use crate::fields::Fields;
use crate::fields::scheduling::{MAX_RULES, amounts, labels, toleration};
use crate::units::quantity;
use meridian_shared::gang::{Amounts, Toleration};
use std::collections::BTreeMap;

/// Most limits of one range.
const MAX_LIMITS: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LimitType {
    Container,
    /// The sum of all containers of a pod.
    Pod,
}

/// Bounds and defaults for containers or pods.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Limit {
    pub of: LimitType,
    /// Smallest allowed request.
    pub min: Amounts,
    /// Largest allowed limit.
    pub max: Amounts,
    /// Default limit of a container.
    pub default: Amounts,
    /// Default request of a container.
    pub default_request: Amounts,
    /// Largest ratio of limit to request, in thousandths.
    pub max_limit_request_ratio_milli: Amounts,
}

/// Bounds and defaults for the pods of a namespace. Limits of volume claims are left out.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LimitRangeSpec {
    pub limits: Vec<Limit>,
}

/// How pods run.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RuntimeClassSpec {
    /// The container runtime's handler.
    pub handler: String,
    /// Resources that a pod uses in addition to its containers.
    pub overhead: Amounts,
    pub node_selector: BTreeMap<String, String>,
    /// Tolerations added to its pods.
    pub tolerations: Vec<Toleration>,
}

pub(crate) fn read_limit_range(root: &Fields<'_>) -> LimitRangeSpec {
    let Some(spec) = root.require("spec").and_then(|item| item.fields()) else {
        return LimitRangeSpec::default();
    };
    let limits =
        spec.list("limits", MAX_LIMITS, |item| item.fields().map(read_limit)).into_iter().flatten().collect();
    if !spec.is_written("limits") {
        spec.error("limits", "is missing", "list at least one limit");
    }
    spec.finish();
    LimitRangeSpec { limits }
}

/// Reads a limit. `None` if it isn't about containers or pods.
fn read_limit(limit: Fields<'_>) -> Option<Limit> {
    let words = [
        ("Container", Some(LimitType::Container)),
        ("Pod", Some(LimitType::Pod)),
        ("PersistentVolumeClaim", None),
    ];
    let of = limit.demand("type").and_then(|item| item.word(&words)).flatten();
    let mut read = Limit {
        of: of.unwrap_or(LimitType::Pod),
        min: amounts(&limit, "min"),
        max: amounts(&limit, "max"),
        default: amounts(&limit, "default"),
        default_request: amounts(&limit, "defaultRequest"),
        max_limit_request_ratio_milli: ratios(&limit),
    };
    if of == Some(LimitType::Pod) {
        for (name, written) in [("default", &read.default), ("defaultRequest", &read.default_request)] {
            if !written.is_empty() {
                limit.error(name, "cannot be written for a `Pod`", "remove it, or write `type: Container`");
            }
        }
    }
    check_order(&limit, &read);
    if of == Some(LimitType::Container) && !limit.findings().is_lenient() {
        fill_in(&mut read);
    }
    limit.finish();
    of.map(|_| read)
}

/// Adds the defaults that a Kubernetes server fills into a limit of containers. Objects from a server already
/// have them.
fn fill_in(limit: &mut Limit) {
    let fill = |into: &mut Amounts, from: &Amounts| {
        for (resource, amount) in from {
            into.entry(resource.clone()).or_insert(*amount);
        }
    };
    fill(&mut limit.default, &limit.max);
    fill(&mut limit.default_request, &limit.default);
    fill(&mut limit.default_request, &limit.min);
}

fn check_order(fields: &Fields<'_>, limit: &Limit) {
    let rules = [
        ("min", &limit.min, "max", &limit.max),
        ("default", &limit.default, "max", &limit.max),
        ("defaultRequest", &limit.default_request, "default", &limit.default),
        ("defaultRequest", &limit.default_request, "max", &limit.max),
    ];
    for (name, lesser, bound, greater) in rules {
        for (resource, amount) in lesser {
            let Some(most) = greater.get(resource).filter(|most| *most < amount) else { continue };
            let most = quantity::format(resource, *most);
            let at = fields.path().key(name).key(resource);
            fields.findings().error(at, format!("is more than `{bound}`"), format!("write at most `{most}`"));
        }
    }
}

fn ratios(limit: &Fields<'_>) -> Amounts {
    // Read the ratio like an amount of `cpu`, because both are counted in thousandths.
    let Some(written) = limit.fields("maxLimitRequestRatio") else { return Amounts::new() };
    written.each_amount(|_| "cpu")
}

pub(crate) fn read_runtime_class(root: &Fields<'_>) -> RuntimeClassSpec {
    let mut read = RuntimeClassSpec {
        handler: root.require_text("handler").unwrap_or_default().to_owned(),
        ..RuntimeClassSpec::default()
    };
    if let Some(overhead) = root.fields("overhead") {
        read.overhead = amounts(&overhead, "podFixed");
        overhead.finish();
    }
    if let Some(scheduling) = root.fields("scheduling") {
        read.node_selector = labels(&scheduling, "nodeSelector");
        read.tolerations = scheduling.list("tolerations", MAX_RULES, |item| toleration(&item));
        scheduling.finish();
    }
    read
}
