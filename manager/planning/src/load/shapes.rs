//! What a workload's pods ask for, as decisions see it.

use super::Loaded;
use meridian_objects::pod::PodTemplate;
use meridian_objects::requests::{filled_in, limit_range_violations, limit_violations, without_prefixes};
use meridian_objects::spec::kueue::HOSTNAME_LABEL;
use meridian_objects::spec::workload::ALLOWED_FLAVORS_ANNOTATION;
use meridian_objects::spec::{self, WorkloadObject, WorkloadPodSet};
use meridian_queueing::model::{PodSet, QueueId, Requests, Shape};
use meridian_shared::gang::{Amounts, Operator, Requirement};
use meridian_topology::{Constraint, PreferredTerm, SliceLayer, TopologyRequest};
use serde_json::Value;
use std::sync::Arc;

/// How pods want to lie in a topology; none where they only name their group.
pub(super) fn lies(request: &spec::TopologyRequest) -> Option<TopologyRequest> {
    let wish = request
        .required
        .clone()
        .map(Constraint::Required)
        .or_else(|| request.preferred.clone().map(Constraint::Preferred));
    let free = (request.unconstrained == Some(true)).then_some(Constraint::Unconstrained);
    let mut slices: Vec<SliceLayer> = request
        .slice_layers
        .iter()
        .map(|layer| SliceLayer { level: layer.topology.clone(), size: layer.size })
        .collect();
    if let (true, Some(level)) = (slices.is_empty(), &request.slice_required) {
        slices.push(SliceLayer { level: level.clone(), size: request.slice_size.unwrap_or_default() });
    }
    let asked = TopologyRequest { constraint: wish.or(free), slices };
    let says_something = asked != TopologyRequest::default()
        || request.unconstrained.is_some()
        || request.slice_size.is_some();
    says_something.then_some(asked)
}

/// Nodes that pods had better get: which a template says and only topologies heed.
pub(super) fn preferred(template: &Value) -> Vec<PreferredTerm> {
    let wishes =
        template["spec"]["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
            .as_array();
    let texts = |value: &Value| {
        value.as_array().into_iter().flatten().filter_map(|v| v.as_str().map(str::to_owned)).collect()
    };
    let requirement = |written: &Value| {
        let operator = match written["operator"].as_str()? {
            "In" => Operator::In,
            "NotIn" => Operator::NotIn,
            "Exists" => Operator::Exists,
            "DoesNotExist" => Operator::DoesNotExist,
            "Gt" => Operator::Gt,
            "Lt" => Operator::Lt,
            _ => return None,
        };
        // The name of a node is a label to whoever places: every Kubernetes node carries its own.
        let key = if written["key"] == "metadata.name" { HOSTNAME_LABEL } else { written["key"].as_str()? };
        Some(Requirement { key: key.to_owned(), operator, values: texts(&written["values"]) })
    };
    let term = |wish: &Value| {
        let weight = i32::try_from(wish["weight"].as_i64()?).ok()?;
        let written = ["matchExpressions", "matchFields"]
            .into_iter()
            .flat_map(|field| wish["preference"][field].as_array().into_iter().flatten());
        Some(PreferredTerm { weight, requirements: written.map(requirement).collect::<Option<_>>()? })
    };
    wishes.into_iter().flatten().filter_map(term).collect()
}

/// Values of a list in an annotation.
pub(super) fn listed(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').map(str::trim).filter(|value| !value.is_empty())
}

impl Loaded {
    /// What quota sees of what a pod asks for, in a queue.
    pub(super) fn requests(&mut self, asked: &Amounts, queue: QueueId) -> Requests {
        let rewritten = self.catalog.options.resources.seen(asked);
        let prefixes = self.excluded.get(&queue).map(Vec::as_slice).unwrap_or_default();
        self.brain.requests(&without_prefixes(rewritten, prefixes))
    }

    /// A pod's template with everything that its namespace and its runtime class add.
    pub(super) fn filled(&self, template: &PodTemplate, namespace: &str) -> PodTemplate {
        filled_in(
            template,
            &self.catalog.limit_ranges(namespace),
            self.catalog.runtime_class(template.runtime_class.as_deref()),
        )
    }

    fn pod_set(&mut self, set: &WorkloadPodSet, written: &Value, namespace: &str, queue: QueueId) -> PodSet {
        let filled = self.filled(&set.template, namespace);
        let asked = filled.requests();
        PodSet {
            name: Arc::from(set.name.as_str()),
            count: set.count,
            min_count: set.min_count,
            on_node: asked.clone(),
            per_pod: self.requests(&asked, queue),
            node_selector: set.template.node_selector.clone(),
            affinity: set.template.affinity.clone(),
            tolerations: set.template.tolerations.clone(),
            preferred: preferred(&written["template"]),
            topology: set.topology.as_ref().and_then(lies),
            group: set.topology.as_ref().and_then(|t| t.group_name.clone()),
        }
    }

    /// What a workload asks for.
    pub(super) fn shape(&mut self, workload: &WorkloadObject, queue: QueueId) -> Shape {
        let written = &workload.stored["spec"]["podSets"];
        let sets = workload.spec.pod_sets.iter().enumerate();
        let pod_sets: Vec<PodSet> =
            sets.map(|(at, set)| self.pod_set(set, &written[at], &workload.meta.namespace, queue)).collect();
        let no_longer = |set: &PodSet| {
            workload.status.reclaimable_pods.iter().find(|r| *r.name == *set.name).map_or(0, |r| r.count)
        };
        let reclaims = self.catalog.options.reclaimable_pods && pod_sets.iter().any(|set| no_longer(set) > 0);
        let counts =
            reclaims.then(|| pod_sets.iter().map(|set| set.count.saturating_sub(no_longer(set))).collect());
        // Without variants nobody heeds it, and it tells nobody apart.
        let allowed = workload
            .meta
            .annotations
            .get(ALLOWED_FLAVORS_ANNOTATION)
            .filter(|_| self.brain.settings.gates.concurrent_admission);
        let allowed_flavors =
            allowed.map(|list| listed(list).map(|flavor| self.brain.flavor_id(flavor)).collect());
        Shape { pod_sets, counts, allowed_flavors, priority: self.catalog.priority(workload), tag: 0 }
    }

    /// Why a workload can't be admitted as it is written.
    pub(super) fn unfit(&self, workload: &WorkloadObject) -> Option<String> {
        let namespace = &workload.meta.namespace;
        let of_set = |set: &WorkloadPodSet| {
            self.broken(&set.template, namespace).map(|why| format!("pod set `{}`: {why}", set.name))
        };
        let broken: Vec<String> = workload.spec.pod_sets.iter().filter_map(of_set).collect();
        (!broken.is_empty()).then(|| broken.join("; "))
    }

    /// How a template, with everything that is added to it, breaks limits: its own, or else its namespace's.
    pub(super) fn broken(&self, template: &PodTemplate, namespace: &str) -> Option<String> {
        let filled = self.filled(template, namespace);
        let own = limit_violations(&filled);
        let broken = if own.is_empty() {
            limit_range_violations(&filled, &self.catalog.limit_ranges(namespace))
        } else {
            own
        };
        (!broken.is_empty()).then(|| broken.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))
    }
}
