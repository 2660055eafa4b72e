//! Reads the parts of a pod template that scheduling needs. [`super::schema`] checks the rest.

use super::schema::POD_SPEC;
use super::{Container, PodTemplate, Resources, rules};
use crate::fields::scheduling::{MAX_RULES, amounts, labels, requirement, toleration};
use crate::fields::{Fields, Item};
use crate::units::quantity;
use meridian_shared::gang::Requirement;
use serde_json::Value;

const MAX_CONTAINERS: usize = 100;

/// Reads the pods' metadata and spec.
pub(crate) fn read_template(template: &Fields<'_>) -> PodTemplate {
    let mut read = PodTemplate::default();
    if let Some(pod) = template.require("spec").and_then(|item| item.fields()) {
        read = read_spec(&pod);
    }
    if let Some(metadata) = template.fields("metadata") {
        read.labels = labels(&metadata, "labels");
        read.annotations = metadata.strings("annotations");
    }
    read
}

/// Reads the spec of pods that will be created, by all rules of an API server.
pub(crate) fn read_submitted(pod: &Fields<'_>) -> PodTemplate {
    let template = read_fields(pod);
    if pod.findings().is_submission() {
        rules::check(pod, &template);
    }
    template
}

/// Reads the spec of pods that exist or have existed, without the rules for new pods.
pub(crate) fn read_spec(pod: &Fields<'_>) -> PodTemplate {
    pod.check(&POD_SPEC);
    read_fields(pod)
}

/// Reads only constraints on the pods' nodes, from a patch of pods that are described elsewhere.
pub(crate) fn read_placement(pod: &Fields<'_>) -> PodTemplate {
    PodTemplate {
        node_selector: labels(pod, "nodeSelector"),
        affinity: read_affinity(pod),
        tolerations: pod.list("tolerations", MAX_RULES, |item| toleration(&item)),
        scheduling_gates: pod
            .list("schedulingGates", MAX_RULES, |item| item.fields()?.text("name").map(str::to_owned)),
        ..PodTemplate::default()
    }
}

/// Reads the requests and limits of a container that is described elsewhere.
pub(crate) fn read_container_resources(resources: &Fields<'_>) -> Resources {
    if resources.findings().is_submission() {
        rules::check_resources(resources.findings(), &resources.path(), resources.written());
    }
    read_resources(resources)
}

fn read_fields(pod: &Fields<'_>) -> PodTemplate {
    let containers = pod.list("containers", MAX_CONTAINERS, |item| read_container(&item));
    if containers.is_empty() && !pod.findings().has_errors() {
        pod.error("containers", "is missing", "list at least one container");
    }
    let init_containers = pod.list("initContainers", MAX_CONTAINERS, |item| read_container(&item));
    let named = |name: &'static str| pod.text(name).filter(|text| !text.is_empty()).map(str::to_owned);
    PodTemplate {
        whole_pod: pod.fields("resources").map(|resources| read_resources(&resources)),
        overhead: amounts(pod, "overhead"),
        runtime_class: named("runtimeClassName"),
        priority_class: named("priorityClassName"),
        node_name: named("nodeName"),
        containers,
        init_containers,
        ..read_placement(pod)
    }
}

fn read_container(item: &Item<'_>) -> Option<Container> {
    let fields = item.fields()?;
    let name = fields.require_text("name").unwrap_or_default().to_owned();
    let resources = fields.fields("resources").map(|of| read_resources(&of)).unwrap_or_default();
    let command = fields.list("command", usize::MAX, |item| item.text().map(|_| ()));
    let words = [("Always", true), ("Never", false), ("OnFailure", false)];
    let sidecar = fields.get("restartPolicy").and_then(|item| item.word(&words)).unwrap_or(false);
    let image = fields.written().get("image").and_then(Value::as_str);
    let has_image = image.is_some_and(|image| !image.is_empty());
    Some(Container { name, resources, has_command: !command.is_empty(), has_image, sidecar })
}

fn read_resources(resources: &Fields<'_>) -> Resources {
    let read = Resources { limits: amounts(resources, "limits"), requests: amounts(resources, "requests") };
    for (resource, request) in &read.requests {
        let Some(limit) = read.limits.get(resource) else { continue };
        // Devices and huge pages can't be overcommitted, so Kubernetes requires equal requests and limits.
        let alike = resource.starts_with("hugepages-") || resource.contains('/');
        let at = || resources.path().key("requests").key(resource);
        if alike && request != limit {
            resources.findings().error(
                at(),
                format!("must equal the limit of `{resource}`"),
                "write the same amount in both places",
            );
        } else if request > limit {
            let most = quantity::format(resource, *limit);
            resources.findings().error(
                at(),
                format!("is more than the limit of `{resource}`"),
                format!("write at most `{most}`"),
            );
        }
    }
    read
}

/// The required terms of the pod's node affinity.
fn read_affinity(pod: &Fields<'_>) -> Vec<Vec<Requirement>> {
    let Some(affinity) = pod.fields("affinity") else { return Vec::new() };
    let terms = affinity.fields("nodeAffinity").map(|node| {
        let terms = node.fields("requiredDuringSchedulingIgnoredDuringExecution").map(|required| {
            let terms = required.list("nodeSelectorTerms", MAX_RULES, |item| {
                let term = item.fields()?;
                let mut requirements =
                    term.list("matchExpressions", MAX_RULES, |item| requirement(&item, true));
                // Packing treats a node's name as a label, because every Kubernetes node has its name as
                // hostname label.
                for mut field in term.list("matchFields", MAX_RULES, |item| requirement(&item, true)) {
                    if field.key != "metadata.name" {
                        item.error(
                            format!("`{}` cannot be matched", field.key),
                            "`metadata.name` is the only field",
                        );
                    }
                    "kubernetes.io/hostname".clone_into(&mut field.key);
                    requirements.push(field);
                }
                term.finish();
                Some(requirements)
            });
            if terms.is_empty() && !required.findings().has_errors() {
                required.error("nodeSelectorTerms", "is missing", "list at least one term");
            }
            required.finish();
            // In Kubernetes a term without requirements matches nothing, so drop it.
            let written = terms.len();
            let terms: Vec<_> = terms.into_iter().filter(|term| !term.is_empty()).collect();
            if terms.is_empty() && written > 0 {
                node.error(
                    "requiredDuringSchedulingIgnoredDuringExecution",
                    "matches no node",
                    "give a term at least one requirement",
                );
            }
            terms
        });
        terms.unwrap_or_default()
    });
    terms.unwrap_or_default()
}
