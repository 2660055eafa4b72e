//! What the pods of a template ask of a queue, once everything that has a say was heard.
//!
//! Kueue's order, which is Kubernetes' own: the overhead of the runtime class where the pod states none; the defaults of
//! the namespace's limit ranges for each container (and for the pod as a whole, where it states resources as a whole);
//! limits where a request is missing; and then the sum of [`PodTemplate::requests`]. Of that a queue leaves out what the
//! operator excludes ([`without_prefixes`]) and rewrites what the operator rewrites ([`transform`]).
//!
//! Amounts are in base units; nothing here looks at a clock or at other pods.

use crate::pod::{Container, PodTemplate, Resources};
use crate::quantity::{self, Decimal};
use crate::spec::limits::{LimitRangeSpec, LimitType, RuntimeClassSpec};
use meridian_shared::gang::{Amounts, Gang, add_scaled};
use meridian_topology::PODS;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// The template with everything filled in that its namespace and its runtime class fill in. `runtime_class` is the one
/// that the template names, `ranges` are those of its namespace in the order of their names.
pub fn filled_in(
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
    let all = filled
        .init_containers
        .iter_mut()
        .chain(&mut filled.containers)
        .map(|container| &mut container.resources);
    for resources in all.chain(&mut filled.whole_pod) {
        resources.requests = resources.asked();
    }
    filled
}

/// What one pod asks for, with everything that its namespace and its runtime class add.
pub fn effective_requests(
    template: &PodTemplate,
    ranges: &[LimitRangeSpec],
    runtime_class: Option<&RuntimeClassSpec>,
) -> Amounts {
    filled_in(template, ranges, runtime_class).requests()
}

/// Where a template breaks a bound.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Part {
    /// The init container at a position.
    InitContainer(usize),
    /// The container at a position.
    Container(usize),
    /// The requests of the pod as a whole.
    WholePod,
    /// The pod, all its containers together.
    Pod,
}

/// Which bound is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Bound {
    /// More is asked for than the limit beside it.
    OwnLimit,
    /// More is asked for than a limit range allows.
    RangeMax,
    /// Less is asked for than a limit range allows.
    RangeMin,
}

/// A bound that a template breaks.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Violation {
    /// Where.
    pub part: Part,
    /// Which.
    pub bound: Bound,
    /// The resources, with the amount that counts and the bound.
    pub resources: BTreeMap<String, (i64, i64)>,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.part {
            Part::InitContainer(index) => write!(f, "initContainers[{index}]")?,
            Part::Container(index) => write!(f, "containers[{index}]")?,
            Part::WholePod => f.write_str("resources")?,
            Part::Pod => f.write_str("the pod")?,
        }
        let (asks, bound) = match self.bound {
            Bound::OwnLimit => ("more than its limit", "limit"),
            Bound::RangeMax => ("more than the limit range allows", "most"),
            Bound::RangeMin => ("less than the limit range allows", "least"),
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

/// Where a template asks for more than the limits that stand beside. Wants the template as [`filled_in`] gives it.
pub fn limit_violations(filled: &PodTemplate) -> Vec<Violation> {
    let check = |part: Part, resources: &Resources| {
        violation(part, Bound::OwnLimit, &resources.requests, &resources.limits, |amount, limit| {
            amount > limit
        })
    };
    let init = filled
        .init_containers
        .iter()
        .enumerate()
        .map(|(index, container)| (Part::InitContainer(index), &container.resources));
    let main = filled
        .containers
        .iter()
        .enumerate()
        .map(|(index, container)| (Part::Container(index), &container.resources));
    let whole = filled.whole_pod.iter().map(|resources| (Part::WholePod, resources));
    init.chain(main).chain(whole).filter_map(|(part, resources)| check(part, resources)).collect()
}

/// Where a template breaks the limit ranges of its namespace. Wants the template as [`filled_in`] gives it. As in Kueue
/// a resource that one side does not name is not compared, and the ratio of limit to request is left to Kubernetes.
pub fn limit_range_violations(filled: &PodTemplate, ranges: &[LimitRangeSpec]) -> Vec<Violation> {
    let mut all = Vec::new();
    if let Some(range) = Summary::of(ranges, LimitType::Container) {
        let mut each = |part: Part, container: &Container| {
            let Resources { requests, limits } = &container.resources;
            all.extend(violation(
                part.clone(),
                Bound::RangeMax,
                &merged(requests, limits, i64::max),
                &range.max,
                |amount, most| amount > most,
            ));
            all.extend(violation(
                part,
                Bound::RangeMin,
                &merged(requests, limits, i64::min),
                &range.min,
                |amount, least| amount < least,
            ));
        };
        filled
            .init_containers
            .iter()
            .enumerate()
            .for_each(|(index, container)| each(Part::InitContainer(index), container));
        filled
            .containers
            .iter()
            .enumerate()
            .for_each(|(index, container)| each(Part::Container(index), container));
    }
    if let Some(range) = Summary::of(ranges, LimitType::Pod) {
        let total = filled.requests();
        all.extend(violation(Part::Pod, Bound::RangeMax, &total, &range.max, |amount, most| amount > most));
        all.extend(violation(Part::Pod, Bound::RangeMin, &total, &range.min, |amount, least| amount < least));
    }
    all
}

fn violation(
    part: Part,
    bound: Bound,
    amounts: &Amounts,
    bounds: &Amounts,
    breaks: fn(i64, i64) -> bool,
) -> Option<Violation> {
    let both =
        amounts.iter().filter_map(|(resource, amount)| Some((resource, *amount, *bounds.get(resource)?)));
    let resources: BTreeMap<_, _> = both
        .filter(|(_, amount, bound)| breaks(*amount, *bound))
        .map(|(name, amount, bound)| (name.clone(), (amount, bound)))
        .collect();
    (!resources.is_empty()).then_some(Violation { part, bound, resources })
}

fn merged(a: &Amounts, b: &Amounts, choose: fn(i64, i64) -> i64) -> Amounts {
    let mut all = a.clone();
    for (resource, amount) in b {
        all.entry(resource.clone()).and_modify(|other| *other = choose(*other, *amount)).or_insert(*amount);
    }
    all
}

/// All limit ranges of a namespace as one: the narrowest bounds, the first defaults.
#[derive(Default)]
struct Summary {
    min: Amounts,
    max: Amounts,
    default: Amounts,
    default_request: Amounts,
}

impl Summary {
    /// `None` when no range says anything about `of`.
    fn of(ranges: &[LimitRangeSpec], of: LimitType) -> Option<Self> {
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

/// What becomes of a resource that is rewritten.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Strategy {
    /// It is asked for as before, besides its outputs.
    #[default]
    Retain,
    /// Its outputs stand in its place.
    Replace,
}

/// How an operator rewrites requests for one resource.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Transformation {
    /// The resource.
    pub input: String,
    /// What becomes of it.
    pub strategy: Strategy,
    /// A resource whose amount, in whole units, the input is multiplied by before the outputs are made from it.
    pub multiply_by: Option<String>,
    /// How much of each output one whole unit of the input makes; may be negative, which takes away from what other
    /// inputs make of the same output.
    pub outputs: BTreeMap<String, Decimal>,
}

impl Transformation {
    /// Reads one, as Kueue's configuration writes it (`input`, `strategy`, `multiplyBy`, `outputs`).
    pub fn from_json(written: &Value) -> Result<Self, String> {
        let text = |name: &str| match written.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.clone()).filter(|text| !text.is_empty())),
            Some(_) => Err(format!("{name}: must be a string")),
        };
        let strategy = match text("strategy")?.as_deref() {
            None | Some("Retain") => Strategy::Retain,
            Some("Replace") => Strategy::Replace,
            Some(other) => {
                return Err(format!(
                    "strategy: `{other}` is not a choice; the choices are `Retain`, `Replace`"
                ));
            }
        };
        let mut outputs = BTreeMap::new();
        match written.get("outputs") {
            None | Some(Value::Null) => {}
            Some(Value::Object(all)) => {
                for (resource, factor) in all {
                    outputs.insert(
                        resource.clone(),
                        Decimal::from_json(factor).map_err(|error| format!("outputs.{resource}: {error}"))?,
                    );
                }
            }
            Some(_) => return Err("outputs: must be a mapping".to_owned()),
        }
        let input = text("input")?.ok_or("input: is missing; name a resource")?;
        Ok(Self { input, strategy, multiply_by: text("multiplyBy")?, outputs })
    }
}

/// What quota sees of what pods ask for, as an operator says for everybody.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ResourceRules {
    /// Resources that quota ignores, by prefix.
    pub excluded_prefixes: Vec<String>,
    /// How requests are rewritten.
    pub transformations: Vec<Transformation>,
}

impl ResourceRules {
    /// Reads them as the `resources` of Kueue's configuration (`excludeResourcePrefixes`, `transformations`).
    pub fn from_json(written: &Value) -> Result<Self, String> {
        let all = written
            .as_object()
            .ok_or("must be a mapping with `excludeResourcePrefixes` and `transformations`")?;
        if let Some(other) =
            all.keys().find(|key| !["excludeResourcePrefixes", "transformations"].contains(&key.as_str()))
        {
            return Err(format!(
                "`{other}` is not known here; the known ones are `excludeResourcePrefixes` and `transformations`"
            ));
        }
        let list = |name: &'static str| match written.get(name) {
            None | Some(Value::Null) => Ok(&[][..]),
            Some(Value::Array(items)) => Ok(items.as_slice()),
            Some(_) => Err(format!("{name}: must be a list")),
        };
        let prefix = |(at, item): (usize, &Value)| {
            let text = item.as_str().filter(|text| !text.is_empty());
            text.map(str::to_owned)
                .ok_or_else(|| format!("excludeResourcePrefixes[{at}]: must be the beginning of a resource's name, such as `networking.example/`"))
        };
        let rule = |(at, item): (usize, &Value)| {
            Transformation::from_json(item).map_err(|error| format!("transformations[{at}].{error}"))
        };
        let transformations: Vec<Transformation> =
            list("transformations")?.iter().enumerate().map(rule).collect::<Result<_, _>>()?;
        let mut inputs = BTreeSet::new();
        if let Some(twice) = transformations.iter().find(|rule| !inputs.insert(&rule.input)) {
            return Err(format!(
                "transformations: `{}` is the input of two; write one with all its outputs",
                twice.input
            ));
        }
        Ok(Self {
            excluded_prefixes: list("excludeResourcePrefixes")?
                .iter()
                .enumerate()
                .map(prefix)
                .collect::<Result<_, _>>()?,
            transformations,
        })
    }

    /// Whether they change nothing.
    pub fn is_empty(&self) -> bool {
        self.excluded_prefixes.is_empty() && self.transformations.is_empty()
    }

    /// What quota sees of what one pod asks for.
    pub fn seen(&self, asked: &Amounts) -> Amounts {
        if self.is_empty() {
            return asked.clone();
        }
        transform(&without_prefixes(asked.clone(), &self.excluded_prefixes), &self.transformations)
    }

    /// What quota sees of a whole gang: its pods, too, where a queue gives quota for them.
    pub fn total(&self, gang: &Gang) -> Amounts {
        let mut total = if self.is_empty() { gang.total() } else { Amounts::new() };
        for set in gang.pod_sets.iter().filter(|_| !self.is_empty()) {
            add_scaled(&mut total, &self.seen(&set.per_pod), i64::from(set.count));
        }
        let pods = gang.pod_sets.iter().map(|set| i64::from(set.count)).sum();
        if pods > 0 {
            total.insert(PODS.to_owned(), pods);
        }
        total
    }
}

/// What is left without the resources whose name begins with one of `prefixes`.
pub fn without_prefixes(mut amounts: Amounts, prefixes: &[String]) -> Amounts {
    amounts.retain(|resource, _| !prefixes.iter().any(|prefix| resource.starts_with(prefix.as_str())));
    amounts
}

/// What one pod asks for, as an operator rewrites it. Of two rules for one input the last one holds.
pub fn transform(amounts: &Amounts, rules: &[Transformation]) -> Amounts {
    let mut retained = Amounts::new();
    let mut made: BTreeMap<&str, Decimal> = BTreeMap::new();
    for (resource, amount) in amounts {
        let Some(rule) = rules.iter().rfind(|rule| rule.input == *resource) else {
            retained.insert(resource.clone(), *amount);
            continue;
        };
        let mut input = Decimal::from_base(resource, *amount);
        if let Some((by, times)) = rule.multiply_by.as_ref().and_then(|by| Some((by, amounts.get(by)?))) {
            input = input.times(Decimal::from_base(by, *times));
        }
        for (output, factor) in &rule.outputs {
            let sum = made.entry(output).or_default();
            *sum = sum.plus(input.times(*factor));
        }
        if rule.strategy == Strategy::Retain {
            retained.insert(resource.clone(), *amount);
        }
    }
    for (output, sum) in made {
        // what takes away may take away what is made, never what is asked for
        let sum = if sum.is_negative() { Decimal::default() } else { sum };
        let total = retained.get(output).map_or(sum, |asked| sum.plus(Decimal::from_base(output, *asked)));
        retained.insert(output.to_owned(), total.to_base(output));
    }
    retained
}

#[cfg(test)]
mod tests;
