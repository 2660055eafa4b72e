//! Operators' rules that determine which requests count against quota.

use crate::units::quantity::Decimal;
use meridian_shared::gang::{Amounts, Gang, add_scaled};
use meridian_topology::PODS;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Effect of a transformation on its input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Strategy {
    /// The input is counted in addition to its outputs.
    #[default]
    Retain,
    /// Only the outputs are counted.
    Replace,
}

/// How requests for one resource are rewritten.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Transformation {
    pub input: String,
    pub strategy: Strategy,
    /// Resource whose requested amount, in whole units, multiplies the input.
    pub multiply_by: Option<String>,
    /// Amount of each output per whole unit of the input. A negative amount reduces the amounts that other
    /// inputs add to the same output.
    pub outputs: BTreeMap<String, Decimal>,
}

impl Transformation {
    /// Reads a transformation of Kueue's configuration (`input`, `strategy`, `multiplyBy`, `outputs`). The
    /// error names the field and the remedy.
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

/// Rules for the resources that count against quota, the same for all queues.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ResourceRules {
    /// Prefixes of resources that quota ignores.
    pub excluded_prefixes: Vec<String>,
    pub transformations: Vec<Transformation>,
}

impl ResourceRules {
    /// Reads the `resources` of Kueue's configuration (`excludeResourcePrefixes`, `transformations`). The
    /// error names the field and the remedy.
    pub fn from_json(written: &Value) -> Result<Self, String> {
        let all = written
            .as_object()
            .ok_or("must be a mapping with `excludeResourcePrefixes` and `transformations`")?;
        if let Some(other) =
            all.keys().find(|key| !["excludeResourcePrefixes", "transformations"].contains(&key.as_str()))
        {
            return Err(format!(
                "`{other}` is not known here; known keys: `excludeResourcePrefixes` and \
                    `transformations`"
            ));
        }
        let list = |name: &'static str| match written.get(name) {
            None | Some(Value::Null) => Ok(&[][..]),
            Some(Value::Array(items)) => Ok(items.as_slice()),
            Some(_) => Err(format!("{name}: must be a list")),
        };
        let prefix = |(at, item): (usize, &Value)| {
            let text = item.as_str().filter(|text| !text.is_empty());
            text.map(str::to_owned).ok_or_else(|| {
                format!(
                    "excludeResourcePrefixes[{at}]: must be the beginning of a \
                    resource's name, such as `networking.example/`"
                )
            })
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

    /// Whether the rules change nothing.
    pub fn is_empty(&self) -> bool {
        self.excluded_prefixes.is_empty() && self.transformations.is_empty()
    }

    /// Requests of one pod that count against quota.
    pub fn counted(&self, asked: &Amounts) -> Amounts {
        if self.is_empty() {
            return asked.clone();
        }
        transform(&without_prefixes(asked.clone(), &self.excluded_prefixes), &self.transformations)
    }

    /// Requests of a whole gang that count against quota, including the number of pods, because queues may
    /// have quota of `pods`.
    pub fn total(&self, gang: &Gang) -> Amounts {
        let mut total = if self.is_empty() { gang.total() } else { Amounts::new() };
        for set in gang.pod_sets.iter().filter(|_| !self.is_empty()) {
            add_scaled(&mut total, &self.counted(&set.per_pod), i64::from(set.count));
        }
        let pods = gang.pod_sets.iter().map(|set| i64::from(set.count)).sum();
        if pods > 0 {
            total.insert(PODS.to_owned(), pods);
        }
        total
    }
}

/// The amounts without resources named with one of `prefixes`.
pub fn without_prefixes(mut amounts: Amounts, prefixes: &[String]) -> Amounts {
    amounts.retain(|resource, _| !prefixes.iter().any(|prefix| resource.starts_with(prefix.as_str())));
    amounts
}

/// Requests of one pod after the transformations. If two rules have the same input, the last applies.
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
        // A negative output reduces other outputs, never the original request.
        let sum = if sum.is_negative() { Decimal::default() } else { sum };
        let total = retained.get(output).map_or(sum, |asked| sum.plus(Decimal::from_base(output, *asked)));
        retained.insert(output.to_owned(), total.to_base(output));
    }
    retained
}
