//! Shapes: the part of a workload that decisions depend on.

use super::Loaded;
use meridian_objects::pod::PodTemplate;
use meridian_objects::requests::{limit_range_violations, limit_violations, with_defaults, without_prefixes};
use meridian_objects::spec::kueue::HOSTNAME_LABEL;
use meridian_objects::spec::workload::ALLOWED_FLAVORS_ANNOTATION;
use meridian_objects::spec::{self, WorkloadObject, WorkloadPodSet};
use meridian_queueing::model::{PodSet, QueueId, Requests, Shape};
use meridian_shared::gang::{Amounts, Operator, Requirement};
use meridian_topology::{Constraint, PreferredTerm, SliceLayer, TopologyRequest};
use serde_json::Value;
use std::sync::Arc;

/// The topology request of a pod set; `None` if the object only names a group.
pub(super) fn topology_request(request: &spec::WorkloadTopologyRequest) -> Option<TopologyRequest> {
    let constraint = request
        .required
        .clone()
        .map(Constraint::Required)
        .or_else(|| request.preferred.clone().map(Constraint::Preferred));
    let unconstrained = (request.unconstrained == Some(true)).then_some(Constraint::Unconstrained);
    let mut slices: Vec<SliceLayer> = request
        .slice_layers
        .iter()
        .map(|layer| SliceLayer { level: layer.topology.clone(), size: layer.size })
        .collect();
    if let (true, Some(level)) = (slices.is_empty(), &request.slice_required) {
        slices.push(SliceLayer { level: level.clone(), size: request.slice_size.unwrap_or_default() });
    }
    let read = TopologyRequest { constraint: constraint.or(unconstrained), slices };
    let constrains =
        read != TopologyRequest::default() || request.unconstrained.is_some() || request.slice_size.is_some();
    constrains.then_some(read)
}

/// The preferred node affinity of a pod template. Only topology placement uses it.
pub(super) fn preferred_terms(template: &Value) -> Vec<PreferredTerm> {
    let terms =
        template["spec"]["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
            .as_array();
    let texts = |value: &Value| {
        value.as_array().into_iter().flatten().filter_map(|v| v.as_str().map(str::to_owned)).collect()
    };
    let requirement = |expression: &Value| {
        let operator = match expression["operator"].as_str()? {
            "In" => Operator::In,
            "NotIn" => Operator::NotIn,
            "Exists" => Operator::Exists,
            "DoesNotExist" => Operator::DoesNotExist,
            "Gt" => Operator::Gt,
            "Lt" => Operator::Lt,
            _ => return None,
        };
        // Placement treats the name of a node as a label: every Kubernetes node has its name as hostname
        // label.
        let key =
            if expression["key"] == "metadata.name" { HOSTNAME_LABEL } else { expression["key"].as_str()? };
        Some(Requirement { key: key.to_owned(), operator, values: texts(&expression["values"]) })
    };
    let term = |term: &Value| {
        let weight = i32::try_from(term["weight"].as_i64()?).ok()?;
        let expressions = ["matchExpressions", "matchFields"]
            .into_iter()
            .flat_map(|field| term["preference"][field].as_array().into_iter().flatten());
        Some(PreferredTerm { weight, requirements: expressions.map(requirement).collect::<Option<_>>()? })
    };
    terms.into_iter().flatten().filter_map(term).collect()
}

/// Values of a comma-separated list.
pub(super) fn split_list(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').map(str::trim).filter(|value| !value.is_empty())
}

impl Loaded {
    /// The part of a pod's requests that counts against the quota of a queue.
    pub(super) fn quota_requests(&mut self, requested: &Amounts, queue: QueueId) -> Requests {
        let rewritten = self.catalog.options.resources.counted(requested);
        let prefixes = self.excluded.get(&queue).map(Vec::as_slice).unwrap_or_default();
        self.state.requests(&without_prefixes(rewritten, prefixes))
    }

    /// The template with the defaults of its namespace and the overhead of its runtime class.
    pub(super) fn complete_template(&self, template: &PodTemplate, namespace: &str) -> PodTemplate {
        with_defaults(
            template,
            &self.catalog.limit_ranges(namespace),
            self.catalog.runtime_class(template.runtime_class.as_deref()),
        )
    }

    fn pod_set(&mut self, set: &WorkloadPodSet, json: &Value, namespace: &str, queue: QueueId) -> PodSet {
        let filled = self.complete_template(&set.template, namespace);
        let requested = filled.requests();
        PodSet {
            name: Arc::from(set.name.as_str()),
            count: set.count,
            min_count: set.min_count,
            on_node: requested.clone(),
            per_pod: self.quota_requests(&requested, queue),
            node_selector: set.template.node_selector.clone(),
            affinity: set.template.affinity.clone(),
            tolerations: set.template.tolerations.clone(),
            preferred: preferred_terms(&json["template"]),
            topology: set.topology.as_ref().and_then(topology_request),
            group: set.topology.as_ref().and_then(|t| t.group_name.clone()),
        }
    }

    pub(super) fn shape(&mut self, workload: &WorkloadObject, queue: QueueId) -> Shape {
        let json = &workload.stored["spec"]["podSets"];
        let sets = workload.spec.pod_sets.iter().enumerate();
        let pod_sets: Vec<PodSet> =
            sets.map(|(at, set)| self.pod_set(set, &json[at], &workload.meta.namespace, queue)).collect();
        let reclaimable = |set: &PodSet| {
            workload.status.reclaimable_pods.iter().find(|r| *r.name == *set.name).map_or(0, |r| r.count)
        };
        let reclaims =
            self.catalog.options.reclaimable_pods && pod_sets.iter().any(|set| reclaimable(set) > 0);
        let counts =
            reclaims.then(|| pod_sets.iter().map(|set| set.count.saturating_sub(reclaimable(set))).collect());
        // Without the gate the annotation has no effect, so it must not separate equivalent workloads.
        let allowed = workload
            .meta
            .annotations
            .get(ALLOWED_FLAVORS_ANNOTATION)
            .filter(|_| self.state.settings().gates.concurrent_admission);
        let allowed_flavors =
            allowed.map(|list| split_list(list).map(|flavor| self.state.flavor_id(flavor)).collect());
        Shape { pod_sets, counts, allowed_flavors, priority: self.catalog.priority(workload), tag: 0 }
    }

    /// Why the spec of a workload can't be admitted at all.
    pub(super) fn unfit(&self, workload: &WorkloadObject) -> Option<String> {
        let namespace = &workload.meta.namespace;
        let violations = |set: &WorkloadPodSet| {
            self.broken_limits(&set.template, namespace).map(|why| format!("pod set `{}`: {why}", set.name))
        };
        let broken: Vec<String> = workload.spec.pod_sets.iter().filter_map(violations).collect();
        (!broken.is_empty()).then(|| broken.join("; "))
    }

    /// The limits that the complete template violates: its own, otherwise the limit ranges of its namespace.
    pub(super) fn broken_limits(&self, template: &PodTemplate, namespace: &str) -> Option<String> {
        let filled = self.complete_template(template, namespace);
        let own = limit_violations(&filled);
        let broken = if own.is_empty() {
            limit_range_violations(&filled, &self.catalog.limit_ranges(namespace))
        } else {
            own
        };
        (!broken.is_empty()).then(|| broken.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))
    }
}
