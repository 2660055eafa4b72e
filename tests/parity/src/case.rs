//! One case: its switches, its objects, the act and the expected result.

use crate::json::{amounts, duration, fields, items, object, text, time};
use anyhow::{Context, anyhow, bail};
use meridian_objects::plan::PlanObject;
use meridian_objects::requests::Transformation;
use meridian_objects::spec::WorkloadObject;
use meridian_planning::load::{LoadOptions, Loaded, load};
use meridian_queueing::settings::{AdmissionFairSharing, FairSharing, FairStrategy, Settings};
use serde_json::Value;

pub(crate) struct Case<'a> {
    value: &'a Value,
    pub(crate) objects: Vec<PlanObject>,
    options: LoadOptions,
}

impl<'a> Case<'a> {
    /// Fails if an object or a switch can't be read.
    pub(crate) fn read(value: &'a Value) -> anyhow::Result<Self> {
        // A deleted local queue still existed when its workloads were queued.
        let deleted = &value["act"]["deletedLocalQueueObject"];
        let deleted = Some(deleted).filter(|deleted| deleted["kind"].is_string());
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

    pub(crate) fn settings(&self) -> &Settings {
        &self.options.settings
    }

    pub(crate) fn load(&self) -> Loaded {
        load(&self.objects, &self.options)
    }

    /// Loads additional objects too.
    pub(crate) fn load_with(&self, more: &[PlanObject]) -> Loaded {
        let all: Vec<PlanObject> = self.objects.iter().chain(more).cloned().collect();
        load(&all, &self.options)
    }

    /// Loads all objects but one workload.
    pub(crate) fn load_without(&self, key: &str) -> Loaded {
        let is_left_out =
            |object: &&PlanObject| matches!(object, PlanObject::Workload(w) if w.meta.key() == key);
        let others: Vec<PlanObject> =
            self.objects.iter().filter(|object| !is_left_out(object)).cloned().collect();
        load(&others, &self.options)
    }

    pub(crate) fn workloads(&self) -> impl Iterator<Item = &WorkloadObject> {
        self.objects.iter().filter_map(|object| match object {
            PlanObject::Workload(workload) => Some(&**workload),
            PlanObject::Object(_) | PlanObject::Node(_) | PlanObject::Pod(_) => None,
        })
    }

    pub(crate) fn workload(&self, key: &Value) -> anyhow::Result<&WorkloadObject> {
        let key = text(key);
        let mut workloads = self.workloads();
        workloads
            .find(|workload| workload.meta.key() == key)
            .with_context(|| format!("workload `{key}` not found"))
    }
}

fn options(case: &Value) -> anyhow::Result<LoadOptions> {
    let (config, act) = (&case["config"], &case["act"]);
    let mut options = LoadOptions {
        now: time(&config["now"])?,
        namespaces_declared: true,
        checks_need_active_condition: true,
        ..LoadOptions::default()
    };
    for (name, on) in [&config["featureGates"], &config["featureGatesSet"]].into_iter().flat_map(fields) {
        set_gate(&mut options, name, on.as_bool().unwrap_or(false));
    }
    if config["fairSharing"]["enabled"] == true {
        options.settings.fair_sharing = Some(fair_sharing(&config["fairSharing"])?);
    }
    let sharing = [&config["admissionFairSharing"], &act["admissionFairSharing"]]
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
    for transformation in items(&config["resourceTransformations"]) {
        let read = Transformation::from_json(transformation);
        options
            .resources
            .transformations
            .push(read.map_err(|error| anyhow!("resourceTransformations: {error}"))?);
    }
    options.unready_requeue_by_creation = text(&act["podsReadyRequeuingTimestamp"]) == "Creation";
    for (local_queue, usage) in fields(&act["localQueueUsage"]) {
        options.local_usage.insert(local_queue.clone(), amounts(usage)?);
    }
    Ok(options)
}

fn set_gate(options: &mut LoadOptions, name: &str, on: bool) {
    match name {
        "PriorityBoost" => options.priority_boost = on,
        "ReclaimablePods" => options.reclaimable_pods = on,
        "SkipReassignmentForPodOwnedWorkloads" => options.pods_stay = on,
        _ => {
            options.settings.gates.set(name, on);
        }
    }
}

fn fair_sharing(config: &Value) -> anyhow::Result<FairSharing> {
    let mut strategies = Vec::new();
    for name in items(&config["preemptionStrategies"]) {
        strategies.push(match text(name) {
            "LessThanOrEqualToFinalShare" => FairStrategy::LessThanOrEqualToFinalShare,
            "LessThanInitialShare" => FairStrategy::LessThanInitialShare,
            other => bail!("`{other}` is not a preemption strategy"),
        });
    }
    Ok(if strategies.is_empty() { FairSharing::default() } else { FairSharing { strategies } })
}
