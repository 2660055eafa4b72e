//! The objects of one request: a PodTemplate for each shape of pods, and the ProvisioningRequest itself.

use crate::labels::{MANAGED_BY, OFFER, ORIGIN};
use crate::shape;
use meridian_agent_core::runtime::NodeRequest;
use meridian_objects::spec::ProvisioningRequestConfigSpec;
use meridian_shared::gang::PodSet;
use meridian_shared::ids::OfferId;
use serde_json::{Map, Value, json};

/// The class of GKE's queue (Dynamic Workload Scheduler, flex start).
const QUEUED: &str = "queued-provisioning.gke.io";
/// Its parameter for the life of the machines.
const MAX_RUN: &str = "maxRunDurationSeconds";
/// Its longest life of machines, in seconds: seven days.
const MAX_RUN_SECONDS: u64 = 604_800;
/// GKE's webhooks treat such a template as they will treat the pods.
const WARDEN: (&str, &str) = ("cloud.google.com/apply-warden-policies", "true");
/// Most shapes of pods in one request.
const SHAPES_MAX: usize = 32;
/// The image is never pulled: the templates only describe pods.
const IMAGE: &str = "registry.k8s.io/pause:3.10";

/// The objects of one request, in the order in which they are created.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Objects {
    pub(super) templates: Vec<Value>,
    pub(super) request: Value,
}

/// The name of the request for an offer.
pub(super) fn name(offer: OfferId, attempt: u32) -> String {
    format!("meridian-{offer}-{attempt}")
}

/// The name of a pod template of a request.
pub(super) fn template_name(request: &str, shape: usize) -> String {
    format!("{request}-{shape}")
}

/// Builds the objects. Fails if the class can't take the gang.
pub(super) fn build(
    wanted: &NodeRequest,
    attempt: u32,
    config: &ProvisioningRequestConfigSpec,
    api_version: &str,
    cluster: &str,
) -> Result<Objects, String> {
    let shapes = shapes(&wanted.gang.pod_sets);
    let most = if config.class_name == QUEUED { 1 } else { SHAPES_MAX };
    if shapes.len() > most {
        return Err(format!(
            "the class `{}` takes pods of at most {most} different shapes in one request; the gang has {}",
            config.class_name,
            shapes.len()
        ));
    }
    let name = name(wanted.offer, attempt);
    let labels = json!({MANAGED_BY.0: MANAGED_BY.1, OFFER: wanted.offer.to_string()});
    let meta = |name: &str| {
        json!({
            "name": name, "namespace": &*wanted.namespace, "labels": labels,
            "annotations": {ORIGIN: cluster},
        })
    };
    let templates = shapes.iter().enumerate().map(|(shape, (set, _))| {
        json!({
            "apiVersion": "v1", "kind": "PodTemplate",
            "metadata": meta(&template_name(&name, shape)),
            "template": {
                "metadata": {"labels": {WARDEN.0: WARDEN.1}},
                "spec": shape::pod(set, "shape", IMAGE),
            },
        })
    });
    let sets: Vec<Value> = shapes
        .iter()
        .enumerate()
        .map(|(shape, (_, count))| {
            json!({"count": count, "podTemplateRef": {"name": template_name(&name, shape)}})
        })
        .collect();
    let request = json!({
        "apiVersion": api_version, "kind": "ProvisioningRequest",
        "metadata": meta(&name),
        "spec": {
            "provisioningClassName": config.class_name,
            "parameters": parameters(wanted, config),
            "podSets": sets,
        },
    });
    Ok(Objects { templates: templates.collect(), request })
}

/// The different shapes of pods, and how many pods have each.
fn shapes(sets: &[PodSet]) -> Vec<(&PodSet, u32)> {
    let shape = |set: &PodSet| {
        (set.per_pod.clone(), set.node_selector.clone(), set.affinity.clone(), set.tolerations.clone())
    };
    let mut shapes: Vec<(&PodSet, u32)> = Vec::new();
    for set in sets {
        match shapes.iter_mut().find(|(known, _)| shape(known) == shape(set)) {
            Some((_, count)) => *count += set.count,
            None => shapes.push((set, set.count)),
        }
    }
    shapes
}

/// The configured parameters. Machines that are needed for a shorter time are asked for that time: the
/// provider finds them sooner, and they cost less.
fn parameters(wanted: &NodeRequest, config: &ProvisioningRequestConfigSpec) -> Map<String, Value> {
    let mut all: Map<String, Value> =
        config.parameters.iter().map(|(name, value)| (name.clone(), json!(value))).collect();
    if let Some(run) = wanted.gang.max_run.filter(|_| config.class_name == QUEUED) {
        let configured = config.parameters.get(MAX_RUN).and_then(|text| text.parse::<u64>().ok());
        let seconds = run.0.div_ceil(1_000).max(1).min(configured.unwrap_or(MAX_RUN_SECONDS));
        all.insert(MAX_RUN.to_owned(), json!(seconds.to_string()));
    }
    all
}
