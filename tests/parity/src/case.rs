//! One case: its switches, its objects, and small ways to read its JSON.

use anyhow::{Context, anyhow, bail};
use meridian_objects::plan::PlanObject;
use meridian_objects::quantity;
use meridian_objects::requests::Transformation;
use meridian_objects::spec::WorkloadObject;
use meridian_planning::load::{Loaded, Options, load};
use meridian_queueing::model::{QueueId, WorkloadId};
use meridian_queueing::names::{FlavorId, ResourceId};
use meridian_queueing::settings::{AdmissionFairSharing, FairSharing, FairStrategy};
use meridian_queueing::tree::NodeId;
use meridian_queueing::{Amount, Brain};
use meridian_shared::gang::Amounts;
use serde_json::Value;
use std::collections::BTreeMap;

/// One case.
pub(crate) struct Case<'a> {
    value: &'a Value,
    pub(crate) objects: Vec<PlanObject>,
    pub(crate) options: Options,
}

/// Amounts by flavor and resource.
pub(crate) type FlavorUsage = BTreeMap<String, Amounts>;

impl<'a> Case<'a> {
    pub(crate) fn read(value: &'a Value) -> anyhow::Result<Self> {
        // A local queue that is deleted while its workloads wait was there when they came.
        let deleted =
            Some(&value["act"]["deletedLocalQueueObject"]).filter(|deleted| deleted["kind"].is_string());
        let objects =
            items(&value["objects"]).iter().chain(deleted).map(object).collect::<anyhow::Result<_>>()?;
        Ok(Self { value, objects, options: options(value)? })
    }

    pub(crate) fn act(&self) -> &'a Value {
        &self.value["act"]
    }

    pub(crate) fn expect(&self) -> &'a Value {
        &self.value["expect"]
    }

    /// The objects and what `more` adds, as one world.
    pub(crate) fn load_with(&self, more: &[PlanObject]) -> Loaded {
        let all: Vec<PlanObject> = self.objects.iter().chain(more).cloned().collect();
        load(&all, &self.options)
    }

    pub(crate) fn load(&self) -> Loaded {
        load(&self.objects, &self.options)
    }

    /// The same without one workload.
    pub(crate) fn load_without(&self, key: &str) -> Loaded {
        let left: Vec<PlanObject> = self
            .objects
            .iter()
            .filter(|object| !matches!(object, PlanObject::Workload(workload) if workload.meta.key() == key))
            .cloned()
            .collect();
        load(&left, &self.options)
    }

    pub(crate) fn workloads(&self) -> impl Iterator<Item = &WorkloadObject> {
        self.objects.iter().filter_map(|object| match object {
            PlanObject::Workload(workload) => Some(&**workload),
            PlanObject::Object(_) | PlanObject::Node(_) | PlanObject::Pod(_) => None,
        })
    }

    pub(crate) fn workload(&self, key: &Value) -> anyhow::Result<&WorkloadObject> {
        let key = text(key);
        self.workloads()
            .find(|workload| workload.meta.key() == key)
            .with_context(|| format!("workload `{key}` isn't there"))
    }
}

/// Reads an object as it was recorded.
pub(crate) fn object(value: &Value) -> anyhow::Result<PlanObject> {
    PlanObject::lenient(value).map_err(|error| anyhow!("{}: {error}", text(&value["metadata"]["name"])))
}

fn options(case: &Value) -> anyhow::Result<Options> {
    let config = &case["config"];
    let mut options = Options {
        now: moment(&config["now"])?,
        namespaces_declared: true,
        checks_say_active: true,
        ..Options::default()
    };
    for gates in [&config["featureGates"], &config["featureGatesSet"]] {
        for (name, on) in gates.as_object().into_iter().flatten() {
            let on = on.as_bool().unwrap_or(false);
            match name.as_str() {
                "PriorityBoost" => options.priority_boost = on,
                "ReclaimablePods" => options.reclaimable_pods = on,
                "SkipReassignmentForPodOwnedWorkloads" => options.pods_stay = on,
                _ => {
                    options.settings.gates.set(name, on);
                }
            }
        }
    }
    if config["fairSharing"]["enabled"] == true {
        let strategy = |name: &Value| match text(name) {
            "LessThanOrEqualToFinalShare" => Ok(FairStrategy::LessThanOrEqualToFinalShare),
            "LessThanInitialShare" => Ok(FairStrategy::LessThanInitialShare),
            other => bail!("`{other}` is no strategy"),
        };
        let strategies = items(&config["fairSharing"]["preemptionStrategies"])
            .iter()
            .map(strategy)
            .collect::<anyhow::Result<Vec<_>>>()?;
        let fair = if strategies.is_empty() { FairSharing::default() } else { FairSharing { strategies } };
        options.settings.fair_sharing = Some(fair);
    }
    let sharing = [&config["admissionFairSharing"], &case["act"]["admissionFairSharing"]]
        .into_iter()
        .find(|sharing| sharing.is_object());
    if let Some(sharing) = sharing.filter(|sharing| sharing["enabled"] != false) {
        options.settings.admission_fair_sharing = Some(AdmissionFairSharing {
            half_life_ms: duration(&sharing["usageHalfLifeTime"])?,
            sampling_ms: duration(&sharing["usageSamplingInterval"])?,
            resource_weights: Vec::new(),
        });
    }
    options.settings.ignore_undeclared = text(&config["quotaCheckStrategy"]) == "IgnoreUndeclared";
    options.resources.transformations = items(&config["resourceTransformations"])
        .iter()
        .map(|written| {
            Transformation::from_json(written).map_err(|error| anyhow!("resourceTransformations: {error}"))
        })
        .collect::<anyhow::Result<_>>()?;
    options.unready_keep_their_place = text(&case["act"]["podsReadyRequeuingTimestamp"]) == "Creation";
    for (local_queue, usage) in case["act"]["localQueueUsage"].as_object().into_iter().flatten() {
        options.local_usage.insert(local_queue.clone(), amounts(usage)?);
    }
    Ok(options)
}

/// A moment in milliseconds.
fn moment(written: &Value) -> anyhow::Result<i64> {
    let moment: jiff::Timestamp = text(written).parse().context("now")?;
    Ok(moment.as_millisecond())
}

/// A duration as Go writes it, in milliseconds; nothing is zero.
fn duration(written: &Value) -> anyhow::Result<i64> {
    let (mut left, mut sum) = (text(written), 0.0);
    while !left.is_empty() {
        let digits = left.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(left.len());
        let (number, rest) = left.split_at(digits);
        let unit = rest.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(rest.len());
        let (unit, rest) = rest.split_at(unit);
        let factor = match unit {
            "h" => 3_600_000.0,
            "m" => 60_000.0,
            "s" => 1_000.0,
            "ms" => 1.0,
            other => bail!("`{other}` is no unit of time"),
        };
        sum += number.parse::<f64>().context("a duration")? * factor;
        left = rest;
    }
    #[expect(clippy::cast_possible_truncation, reason = "durations of cases are small")]
    let sum = sum.round() as i64;
    Ok(sum)
}

pub(crate) fn items(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

pub(crate) fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

pub(crate) fn amounts(amounts: &Value) -> anyhow::Result<Amounts> {
    let read = |(resource, amount): (&String, &Value)| {
        let amount = match quantity::from_json(resource, amount) {
            _ if amount == "unlimited" => i64::MAX,
            // As large as counting goes.
            Err(quantity::Error::TooLarge(_)) => i64::MAX,
            read => read?,
        };
        Ok((resource.clone(), amount))
    };
    amounts.as_object().into_iter().flatten().map(read).collect()
}

/// Amounts by flavor and resource; zeros are left out, as what isn't there is zero.
pub(crate) fn flavor_usage(written: &Value) -> anyhow::Result<FlavorUsage> {
    let mut usage = FlavorUsage::new();
    for (flavor, of) in written.as_object().into_iter().flatten() {
        for (resource, amount) in amounts(of)?.into_iter().filter(|(_, amount)| *amount != 0) {
            usage.entry(flavor.clone()).or_default().insert(resource, amount);
        }
    }
    Ok(usage)
}

/// The same from what a brain counts.
pub(crate) fn named_usage(
    brain: &Brain,
    usage: impl IntoIterator<Item = ((FlavorId, ResourceId), Amount)>,
) -> FlavorUsage {
    let mut named = FlavorUsage::new();
    for ((flavor, resource), amount) in usage.into_iter().filter(|(_, amount)| *amount != Amount::ZERO) {
        let of = named.entry(brain.flavor_name(flavor).to_string()).or_default();
        *of.entry(brain.resource_name(resource).to_string()).or_default() += amount.0;
    }
    named
}

/// Uses quota of cluster queues outright.
pub(crate) fn use_quota(brain: &mut Brain, usage: &Value) -> anyhow::Result<()> {
    for (queue, of) in usage.as_object().into_iter().flatten() {
        let node = node(brain, queue)?;
        let tree = brain.forest.node(node).tree;
        for (flavor, resources) in flavor_usage(of)? {
            let flavor = brain.flavor_id(&flavor);
            for (resource, amount) in resources {
                let resource = brain.resource(&resource);
                let cell = brain.forest.cell_id(tree, (flavor, resource));
                brain.forest.add(node, cell, Amount(amount));
            }
        }
    }
    Ok(())
}

/// Takes everybody's use out of the books.
pub(crate) fn free_all(brain: &mut Brain) {
    let queues: Vec<(NodeId, usize)> = brain
        .forest
        .nodes()
        .filter(|(_, node)| !node.cohort)
        .map(|(id, node)| (id, brain.forest.tree(node.tree).cells.len()))
        .collect();
    for (node, cells) in queues {
        for at in 0..cells {
            let cell = meridian_queueing::names::Id::new(u32::try_from(at).unwrap_or(u32::MAX));
            let used = brain.forest.cell(node, cell).usage;
            brain.forest.remove(node, cell, used);
        }
    }
}

pub(crate) fn queue(brain: &Brain, name: &str) -> anyhow::Result<QueueId> {
    brain.queue_id(name).with_context(|| format!("cluster queue `{name}` isn't there"))
}

/// A cluster queue's place in the forest.
pub(crate) fn node(brain: &Brain, name: &str) -> anyhow::Result<NodeId> {
    brain.queue(queue(brain, name)?).node.with_context(|| format!("cluster queue `{name}` has no place"))
}

pub(crate) fn found(brain: &Brain, key: &str) -> anyhow::Result<WorkloadId> {
    brain.find(key).with_context(|| format!("workload `{key}` isn't there"))
}

/// Names of a node and all above it, the root first.
pub(crate) fn path(brain: &Brain, queue: QueueId) -> Vec<String> {
    let Some(node) = brain.queue(queue).node else { return vec![brain.queue(queue).setup.name.to_string()] };
    let mut names: Vec<String> = std::iter::once(node)
        .chain(brain.forest.ancestors(node))
        .map(|at| brain.forest.node(at).name.to_string())
        .collect();
    names.reverse();
    names
}
