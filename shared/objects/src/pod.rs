//! Pod templates, as Jobs, Workloads and Pods have them, and the requests of one pod.
//!
//! Effective requests follow the Kubernetes scheduler: the larger of the sum over all containers and of what
//! any init container needs while it runs. Restartable init containers (sidecars) stay and count with
//! everything after them. The pod's overhead is added. A limit is also the request where no request is
//! written. Requests of the whole pod, where written, replace the sum for those resources.
//! [`crate::requests`] adds the defaults of namespace and runtime class.

use crate::fields::scheduling::{MAX_RULES, amounts, labels, requirement, toleration};
use crate::fields::{Fields, Item};
use crate::units::quantity;
use meridian_shared::gang::{Amounts, Requirement, Toleration, add_scaled};
use std::collections::{BTreeMap, BTreeSet};

const MAX_CONTAINERS: usize = 100;

/// Requests and limits as written, before one fills in for the other.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Resources {
    pub requests: Amounts,
    pub limits: Amounts,
}

impl Resources {
    /// Requests, with limits where no request is written.
    pub fn asked(&self) -> Amounts {
        let mut asked = self.requests.clone();
        for (resource, limit) in &self.limits {
            asked.entry(resource.clone()).or_insert(*limit);
        }
        asked
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Container {
    pub name: String,
    pub resources: Resources,
    /// Whether it has a `command`.
    pub has_command: bool,
    /// For an init container: whether it keeps running (`restartPolicy: Always`).
    pub sidecar: bool,
}

/// What scheduling needs to know about the pods of one template.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodTemplate {
    pub labels: BTreeMap<String, String>,
    pub annotations: BTreeMap<String, String>,
    /// Without init containers.
    pub containers: Vec<Container>,
    /// In the order in which they run.
    pub init_containers: Vec<Container>,
    /// Requests and limits of the pod as a whole, where written.
    pub whole_pod: Option<Resources>,
    /// What the pod takes in addition to its containers.
    pub overhead: Amounts,
    pub runtime_class: Option<String>,
    pub priority_class: Option<String>,
    pub node_selector: BTreeMap<String, String>,
    /// Required node affinity: terms are ORed, requirements within a term ANDed. Empty requires nothing.
    pub affinity: Vec<Vec<Requirement>>,
    pub tolerations: Vec<Toleration>,
    /// The node that the pod names directly.
    pub node_name: Option<String>,
    /// Names of the gates that keep the pods from being scheduled.
    pub scheduling_gates: Vec<String>,
}

impl PodTemplate {
    /// Effective requests of one pod. A resource that is written with zero is present with zero.
    pub fn requests(&self) -> Amounts {
        let mut sidecars = Amounts::new();
        let mut while_starting = Amounts::new();
        for container in &self.init_containers {
            let mut now = sidecars.clone();
            add_scaled(&mut now, &container.resources.asked(), 1);
            for (resource, amount) in &now {
                let most = while_starting.entry(resource.clone()).or_insert(0);
                *most = (*most).max(*amount);
            }
            if container.sidecar {
                sidecars = now;
            }
        }
        let mut total = sidecars;
        for container in &self.containers {
            add_scaled(&mut total, &container.resources.asked(), 1);
        }
        for (resource, amount) in while_starting {
            let most = total.entry(resource).or_insert(0);
            *most = (*most).max(amount);
        }
        if let Some(whole_pod) = &self.whole_pod {
            total.extend(whole_pod.asked());
        }
        add_scaled(&mut total, &self.overhead, 1);
        total
    }
}

/// Reads the pods' metadata and spec.
pub(crate) fn read_template(template: &Fields<'_>) -> PodTemplate {
    let mut read = PodTemplate::default();
    if let Some(pod) = template.require("spec").and_then(|item| item.fields()) {
        read = read_spec(&pod);
        pod.known(&["restartPolicy", "terminationGracePeriodSeconds"]);
        pod.finish();
    }
    if let Some(metadata) = template.fields("metadata") {
        read.labels = labels(&metadata, "labels");
        read.annotations = metadata.strings("annotations");
    }
    read
}

/// Reads a pod's spec. The caller reads `restartPolicy` and `terminationGracePeriodSeconds` and finishes the
/// mapping.
pub(crate) fn read_spec(pod: &Fields<'_>) -> PodTemplate {
    pod.known(KNOWN_POD_FIELDS);
    let containers = pod.list("containers", MAX_CONTAINERS, |item| read_container(&item));
    if containers.is_empty() && !pod.findings().has_errors() {
        pod.error("containers", "is missing", "list at least one container");
    }
    let init_containers = pod.list("initContainers", MAX_CONTAINERS, |item| read_container(&item));
    let mut names = BTreeSet::new();
    for container in
        init_containers.iter().chain(&containers).filter(|container| !names.insert(container.name.as_str()))
    {
        pod.error(
            "containers",
            format!("the name `{}` appears twice", container.name),
            "give every container a name of its own",
        );
    }
    let named = |name: &'static str| pod.text(name).filter(|text| !text.is_empty()).map(str::to_owned);
    PodTemplate {
        labels: BTreeMap::new(),
        annotations: BTreeMap::new(),
        whole_pod: pod.fields("resources").map(read_resources),
        overhead: amounts(pod, "overhead"),
        runtime_class: named("runtimeClassName"),
        priority_class: named("priorityClassName"),
        node_selector: labels(pod, "nodeSelector"),
        affinity: read_affinity(pod),
        tolerations: pod.list("tolerations", MAX_RULES, |item| toleration(&item)),
        node_name: named("nodeName"),
        scheduling_gates: pod
            .list("schedulingGates", MAX_RULES, |item| item.fields()?.text("name").map(str::to_owned)),
        containers,
        init_containers,
    }
}

/// Pod fields that only the cluster's runner interprets.
const KNOWN_POD_FIELDS: &[&str] = &[
    "activeDeadlineSeconds",
    "automountServiceAccountToken",
    "dnsConfig",
    "dnsPolicy",
    "enableServiceLinks",
    "ephemeralContainers",
    "hostAliases",
    "hostIPC",
    "hostNetwork",
    "hostPID",
    "hostUsers",
    "hostname",
    "hostnameOverride",
    "imagePullSecrets",
    "os",
    "preemptionPolicy",
    "priority",
    "readinessGates",
    "resourceClaims",
    "schedulerName",
    "securityContext",
    "serviceAccount",
    "serviceAccountName",
    "setHostnameAsFQDN",
    "shareProcessNamespace",
    "subdomain",
    "topologySpreadConstraints",
    "volumes",
];

/// Container fields that only the cluster's runner interprets.
const KNOWN_CONTAINER_FIELDS: &[&str] = &[
    "envFrom",
    "lifecycle",
    "livenessProbe",
    "readinessProbe",
    "resizePolicy",
    "restartPolicyRules",
    "securityContext",
    "startupProbe",
    "stdin",
    "stdinOnce",
    "terminationMessagePath",
    "terminationMessagePolicy",
    "tty",
    "volumeDevices",
    "volumeMounts",
];

fn read_container(item: &Item<'_>) -> Option<Container> {
    let fields = item.fields()?;
    fields.known(KNOWN_CONTAINER_FIELDS);
    let name = fields.require_text("name").unwrap_or_default().to_owned();
    let resources = fields.fields("resources").map(read_resources).unwrap_or_default();
    let command = fields.list("command", usize::MAX, |item| item.text().map(|_| ()));
    fields.list("args", usize::MAX, |item| item.text().map(|_| ()));
    fields.list("env", usize::MAX, |item| read_variable(&item));
    fields.list("ports", usize::MAX, |item| read_port(&item));
    for text in ["image", "imagePullPolicy", "workingDir"] {
        fields.text(text);
    }
    let words = [("Always", true), ("Never", false), ("OnFailure", false)];
    let sidecar = fields.get("restartPolicy").and_then(|item| item.word(&words)).unwrap_or(false);
    fields.finish();
    Some(Container { name, resources, has_command: !command.is_empty(), sidecar })
}

fn read_variable(item: &Item<'_>) -> Option<()> {
    let fields = item.fields()?;
    fields.known(&["valueFrom"]);
    let name = fields.require_text("name").unwrap_or_default();
    if name.contains(['=', '\0']) {
        fields.error(
            "name",
            format!("`{}` can't be the name of a variable", name.escape_default()),
            "leave out `=` and control characters",
        );
    }
    fields.text("value");
    fields.finish();
    Some(())
}

fn read_port(item: &Item<'_>) -> Option<()> {
    let fields = item.fields()?;
    fields.known(&["hostIP", "hostPort", "name", "protocol"]);
    fields.int("containerPort", 1, i64::from(u16::MAX));
    fields.finish();
    Some(())
}

fn read_resources(resources: Fields<'_>) -> Resources {
    resources.known(&["claims"]);
    let read = Resources { limits: amounts(&resources, "limits"), requests: amounts(&resources, "requests") };
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
    resources.finish();
    read
}

/// The required terms of the pod's node affinity.
fn read_affinity(pod: &Fields<'_>) -> Vec<Vec<Requirement>> {
    let Some(affinity) = pod.fields("affinity") else { return Vec::new() };
    affinity.known(&["podAffinity", "podAntiAffinity"]);
    let terms = affinity.fields("nodeAffinity").map(|node| {
        node.known(&["preferredDuringSchedulingIgnoredDuringExecution"]);
        let terms = node.fields("requiredDuringSchedulingIgnoredDuringExecution").map(|required| {
            let terms = required.list("nodeSelectorTerms", MAX_RULES, |item| {
                let term = item.fields()?;
                let mut requirements =
                    term.list("matchExpressions", MAX_RULES, |item| requirement(&item, true));
                // A node's name is a label for packing: every Kubernetes node carries its own.
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
            // In Kubernetes a term without requirements matches nothing, so it adds no alternative.
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
        node.finish();
        terms.unwrap_or_default()
    });
    affinity.finish();
    terms.unwrap_or_default()
}
