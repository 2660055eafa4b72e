//! The objects of one request: a PodTemplate for each shape of pods, and the ProvisioningRequest itself.

use crate::labels::{FINGERPRINT, MANAGED_BY, OFFER, ORIGIN, UID, origin};
use crate::shape;
use meridian_agent_core::runtime::NodeRequest;
use meridian_objects::spec::{MergePolicy, ProvisioningRequestConfigSpec};
use meridian_shared::counted::counted;
use meridian_shared::gang::PodSet;
use meridian_shared::ids::{ContentHash, OfferId};
use meridian_shared::time::Millis;
use serde_json::{Map, Value, json};

/// The class of GKE's queue (Dynamic Workload Scheduler, flex start).
const QUEUED: &str = "queued-provisioning.gke.io";
/// Parameter of that class: how long the machines live.
const MAX_RUN: &str = "maxRunDurationSeconds";
/// The longest life of machines in that class, in seconds: seven days.
const MAX_RUN_SECONDS: u64 = 604_800;
/// Label of a PodTemplate object: GKE's webhooks then change it in the same way as the pods.
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
    /// A hash of everything that is asked for.
    pub(super) fingerprint: String,
}

/// The name of the request for an offer.
pub(super) fn name(offer: OfferId, attempt: u32) -> String {
    format!("meridian-{offer}-{attempt}")
}

/// The name of a pod template of a request.
pub(super) fn template_name(request: &str, shape: usize) -> String {
    format!("{request}-{shape}")
}

/// Builds the objects of a request with this name. Fails if the class can't take the gang.
pub(super) fn build(
    wanted: &NodeRequest,
    name: &str,
    config: &ProvisioningRequestConfigSpec,
    api_version: &str,
    cluster: &str,
) -> Result<Objects, String> {
    let shapes = merged(&wanted.gang.pod_sets, config.merge_policy);
    check_count(shapes.len(), &wanted.gang.pod_sets, config)?;
    let labels = json!({
        MANAGED_BY.0: MANAGED_BY.1, ORIGIN: origin(cluster), OFFER: wanted.offer.to_string(),
        UID: wanted.uid.to_string(),
    });
    let meta = |name: &str| json!({"name": name, "namespace": &*wanted.namespace, "labels": labels});
    let templates = shapes.iter().enumerate().map(|(shape, Merged { first, .. })| {
        let mut metadata = meta(&template_name(name, shape));
        metadata["labels"][WARDEN.0] = json!(WARDEN.1);
        json!({
            "apiVersion": "v1", "kind": "PodTemplate", "metadata": metadata,
            "template": {"spec": shape::pod(first, "shape", IMAGE)},
        })
    });
    let sets: Vec<Value> = shapes
        .iter()
        .enumerate()
        .map(|(shape, Merged { count, .. })| {
            json!({"count": count, "podTemplateRef": {"name": template_name(name, shape)}})
        })
        .collect();
    let templates: Vec<Value> = templates.collect();
    let parameters = parameters(wanted, config);
    let pods: Vec<(u32, &Value)> =
        shapes.iter().zip(&templates).map(|(shape, template)| (shape.count, &template["template"])).collect();
    let asked = json!([config.class_name, parameters, pods]).to_string();
    let fingerprint = ContentHash::of(asked.as_bytes()).to_string();
    let mut metadata = meta(name);
    metadata["annotations"] = json!({FINGERPRINT: fingerprint});
    let request = json!({
        "apiVersion": api_version, "kind": "ProvisioningRequest",
        "metadata": metadata,
        "spec": {
            "provisioningClassName": config.class_name,
            "parameters": parameters,
            "podSets": sets,
        },
    });
    Ok(Objects { templates, request, fingerprint })
}

/// Pod sets that share one entry (`podSets`) of a request.
struct Merged<'s> {
    /// The first merged pod set; the others have the same shape.
    first: &'s PodSet,
    /// Total number of their pods.
    count: u32,
}

/// The entries of a request, in the order of the gang. Pod sets of different shapes never share one, because
/// the nodes are made for its pods.
fn merged(sets: &[PodSet], policy: Option<MergePolicy>) -> Vec<Merged<'_>> {
    let mut all: Vec<Merged<'_>> = Vec::new();
    // The API refuses entries without pods.
    for set in sets.iter().filter(|set| set.count > 0) {
        let share = |entry: &&mut Merged<'_>| may_merge(entry.first, set, policy);
        match all.iter_mut().find(share) {
            Some(entry) => entry.count += set.count,
            None => all.push(Merged { first: set, count: set.count }),
        }
    }
    all
}

fn may_merge(one: &PodSet, other: &PodSet, policy: Option<MergePolicy>) -> bool {
    let same_shape = one.per_pod == other.per_pod
        && one.node_selector == other.node_selector
        && one.affinity == other.affinity
        && one.tolerations == other.tolerations;
    match policy {
        None => false,
        Some(MergePolicy::IdenticalWorkloadSchedulingRequirements) => same_shape,
        Some(MergePolicy::IdenticalPodTemplates) => same_shape && template_of(one) == template_of(other),
    }
}

/// The first pod set of the gang that has the template of `set`.
fn template_of(set: &PodSet) -> &str {
    set.same_template.as_ref().unwrap_or(&set.name)
}

/// Checks that a request may have this number of entries. Fails with the limit and, if one exists, the merge
/// policy that would lower the number enough.
fn check_count(
    entries: usize,
    sets: &[PodSet],
    config: &ProvisioningRequestConfigSpec,
) -> Result<(), String> {
    let most = if config.class_name == QUEUED { 1 } else { SHAPES_MAX };
    if entries <= most {
        return Ok(());
    }
    let class = &config.class_name;
    let widest = MergePolicy::IdenticalWorkloadSchedulingRequirements;
    if merged(sets, Some(widest)).len() <= most {
        return Err(format!(
            "the class `{class}` takes at most {} in one request; the gang has {entries}: write \
             `podSetMergePolicy: {}` in the ProvisioningRequestConfig, because their pods request \
             the same",
            counted(most, "pod set"),
            widest.name(),
        ));
    }
    Err(format!(
        "the class `{class}` takes pods of at most {} in one request; the gang has {entries}",
        counted(most, "different shape"),
    ))
}

/// How long the gang may use the machines, counted from their provisioning. `None` if neither the job nor the
/// configuration limits it.
pub(super) fn machine_time(wanted: &NodeRequest, config: &ProvisioningRequestConfigSpec) -> Option<Millis> {
    let seconds: u64 = parameters(wanted, config).get(MAX_RUN)?.as_str()?.parse().ok()?;
    Some(Millis::secs(seconds))
}

/// The configured parameters. A job's own machine time replaces the configured one, as its annotation does in
/// Kueue, up to the maximum of the class.
fn parameters(wanted: &NodeRequest, config: &ProvisioningRequestConfigSpec) -> Map<String, Value> {
    let mut all: Map<String, Value> =
        config.parameters.iter().map(|(name, value)| (name.clone(), json!(value))).collect();
    if let Some(run) = wanted.gang.max_run.filter(|_| config.class_name == QUEUED) {
        let seconds = run.0.div_ceil(1_000).clamp(1, MAX_RUN_SECONDS);
        all.insert(MAX_RUN.to_owned(), json!(seconds.to_string()));
    }
    all
}
