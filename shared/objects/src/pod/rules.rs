//! An API server's rules for new pods that involve more than one field.
//!
//! From the public validation rules of the Kubernetes API. Types and single values are checked by
//! [`super::schema`].

use super::{PodTemplate, is_huge_page, is_whole_pod_resource};
use crate::fields::{FieldPath, Fields, Findings, names};
use crate::units::quantity;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};

/// Resource names of containers that need no domain.
const STANDARD_RESOURCES: [&str; 3] = ["cpu", "memory", "ephemeral-storage"];
/// Billionths in one.
const NANO: i128 = 1_000_000_000;

pub(super) fn check(pod: &Fields<'_>, template: &PodTemplate) {
    let findings = pod.findings();
    let written = pod.written();
    let path = pod.path();
    if items(written, "ephemeralContainers").next().is_some() {
        pod.error("ephemeralContainers", "can't be in a pod template", "add them to a running pod");
    }
    check_hosts(pod, written);
    let mut names = BTreeSet::new();
    for list in ["initContainers", "containers"] {
        for (index, container) in items(written, list).enumerate() {
            let Some(container) = container.as_object() else { continue };
            let rules = ContainerRules {
                findings,
                path: path.clone().key(list).index(index),
                pod: written,
                container,
                is_init: list == "initContainers",
            };
            rules.check(&mut names);
        }
    }
    check_volumes(findings, &path, written);
    check_spread(findings, &path, written);
    check_host_ports(findings, &path, written);
    check_whole_pod(findings, &path, written, template);
    check_huge_pages(findings, &path, template);
}

/// The elements of a list; none if the value isn't a list.
fn items<'v>(map: &'v Map<String, Value>, name: &str) -> impl Iterator<Item = &'v Value> {
    map.get(name).and_then(Value::as_array).into_iter().flatten()
}

fn text<'v>(value: &'v Value, name: &str) -> &'v str {
    value.get(name).and_then(Value::as_str).unwrap_or_default()
}

fn flag(map: &Map<String, Value>, name: &str) -> bool {
    map.get(name).and_then(Value::as_bool).unwrap_or_default()
}

fn check_hosts(pod: &Fields<'_>, written: &Map<String, Value>) {
    if flag(written, "hostPID") && flag(written, "shareProcessNamespace") {
        pod.error("shareProcessNamespace", "can't be combined with `hostPID`", "write only one of them");
    }
    let servers = written.get("dnsConfig").and_then(|config| config.get("nameservers"));
    let servers = servers.and_then(Value::as_array).map_or(0, Vec::len);
    if servers > 3 {
        pod.error("dnsConfig", format!("has {servers} nameservers"), "the maximum is 3");
    }
    if written.get("dnsPolicy").is_some_and(|policy| policy == "None") && servers == 0 {
        pod.error("dnsConfig", "has no nameserver", "`dnsPolicy: None` needs at least one");
    }
}

struct ContainerRules<'a> {
    findings: &'a Findings,
    path: FieldPath,
    pod: &'a Map<String, Value>,
    container: &'a Map<String, Value>,
    is_init: bool,
}

impl<'a> ContainerRules<'a> {
    fn error(&self, at: FieldPath, message: impl Into<String>, remedy: impl Into<String>) {
        self.findings.error(at, message, remedy);
    }

    fn at(&self, name: &str) -> FieldPath {
        self.path.clone().key(name)
    }

    fn check(&self, names: &mut BTreeSet<&'a str>) {
        let name = self.container.get("name").and_then(Value::as_str).unwrap_or_default();
        if !name.is_empty() && !names.insert(name) {
            let message = format!("the name `{name}` appears twice");
            self.error(self.at("name"), message, "give every container a name of its own");
        }
        let image = self.container.get("image").and_then(Value::as_str).unwrap_or_default();
        // an absent image is valid, because process runners use none
        if self.container.get("image").is_some_and(|image| image == "") {
            self.error(self.at("image"), "is empty", "name an image, or remove it");
        } else if image.trim() != image {
            self.error(self.at("image"), "has spaces around it", "remove them");
        }
        self.check_variables();
        self.check_mounts();
        self.check_probes();
        self.check_claims();
        let security = self.container.get("securityContext").and_then(Value::as_object);
        if let Some(security) = security
            && flag(security, "privileged")
            && security.get("allowPrivilegeEscalation") == Some(&Value::Bool(false))
        {
            let at = self.at("securityContext").key("allowPrivilegeEscalation");
            self.error(at, "can't be false with `privileged: true`", "remove one of them");
        }
        if let Some(resources) = self.container.get("resources").and_then(Value::as_object) {
            check_resources(self.findings, &self.at("resources"), resources);
        }
    }

    fn check_variables(&self) {
        for (index, variable) in items(self.container, "env").enumerate() {
            let at = |name: &str| self.at("env").index(index).key(name);
            let name = text(variable, "name");
            if variable.get("name").is_some_and(|name| name == "") {
                self.error(at("name"), "is empty", "write the name of the variable");
            }
            if !names::is_variable_name(name) {
                let message = format!("`{}` can't be the name of a variable", name.escape_default());
                self.error(at("name"), message, "leave out `=` and control characters");
            }
            let is_from = variable.get("valueFrom").is_some_and(|from| !from.is_null());
            if is_from && !text(variable, "value").is_empty() {
                self.error(at("valueFrom"), "can't be combined with `value`", "write only one of them");
            }
        }
    }

    fn check_mounts(&self) {
        let security = self.container.get("securityContext").and_then(Value::as_object);
        let is_privileged = security.is_some_and(|security| flag(security, "privileged"));
        for (list, name_of) in [("volumeMounts", "mountPath"), ("volumeDevices", "devicePath")] {
            for (index, mount) in items(self.container, list).enumerate() {
                let name = text(mount, "name");
                let is_volume = |volume: &Value| text(volume, "name") == name;
                let at = |name: &str| self.at(list).index(index).key(name);
                if !name.is_empty() && !items(self.pod, "volumes").any(is_volume) {
                    let message = format!("there is no volume `{name}`");
                    self.error(at("name"), message, "add it to `volumes`, or correct the name");
                }
                if mount.get(name_of).is_some_and(|path| path == "") {
                    self.error(at(name_of), "is empty", "write a path");
                }
                if name_of == "mountPath" && text(mount, name_of).contains(':') {
                    self.error(at(name_of), "has a `:`", "write a path without it");
                }
                if text(mount, "mountPropagation") == "Bidirectional" && !is_privileged {
                    let message = "`Bidirectional` is for privileged containers";
                    self.error(at("mountPropagation"), message, "write `HostToContainer`, or leave it out");
                }
            }
        }
    }

    fn check_probes(&self) {
        let is_sidecar = self.container.get("restartPolicy").is_some_and(|policy| policy == "Always");
        for probe in ["livenessProbe", "startupProbe", "readinessProbe", "lifecycle"] {
            let Some(written) = self.container.get(probe).filter(|probe| !probe.is_null()) else { continue };
            if self.is_init && !is_sidecar {
                let remedy = "remove it, or make it a sidecar with `restartPolicy: Always`";
                self.error(self.at(probe), "is not for init containers, which run to their end", remedy);
            }
            let successes = written.get("successThreshold").and_then(Value::as_i64).unwrap_or(1);
            if matches!(probe, "livenessProbe" | "startupProbe") && successes > 1 {
                self.error(self.at(probe).key("successThreshold"), "must be 1", "remove it");
            }
        }
    }

    fn check_claims(&self) {
        let resources = self.container.get("resources").and_then(Value::as_object);
        for (index, claim) in resources.into_iter().flat_map(|all| items(all, "claims")).enumerate() {
            let name = text(claim, "name");
            if !items(self.pod, "resourceClaims").any(|of| text(of, "name") == name) {
                let at = self.at("resources").key("claims").index(index).key("name");
                self.error(at, format!("there is no resource claim `{name}`"), "add it to `resourceClaims`");
            }
        }
    }
}

/// The resources of one container.
pub(super) fn check_resources(findings: &Findings, path: &FieldPath, resources: &Map<String, Value>) {
    let list = |name: &str| resources.get(name).and_then(Value::as_object);
    for place in ["limits", "requests"] {
        for (resource, amount) in list(place).into_iter().flatten() {
            let at = || path.clone().key(place).key(resource);
            let is_standard = STANDARD_RESOURCES.contains(&resource.as_str()) || is_huge_page(resource);
            if !is_standard && !resource.contains('/') {
                let remedy = format!(
                    "write `cpu`, `memory`, `ephemeral-storage`, `hugepages-SIZE` or a name with a domain, \
                     such as `example.com/{resource}`"
                );
                findings.error(at(), format!("`{resource}` is not a resource of containers"), remedy);
            }
            if is_standard {
                continue;
            }
            if resource.contains('/') && !is_device(resource) {
                findings.error(
                    at(),
                    format!("`{resource}` can't be the name of a device"),
                    "write a domain other than `kubernetes.io`, `/` and a name, such as `nvidia.com/gpu`",
                );
            }
            if quantity::nano_from_json(amount).is_ok_and(|nano| nano % NANO != 0) {
                let written = amount.as_str().map_or_else(|| amount.to_string(), str::to_owned);
                findings.error(at(), format!("`{written}` is not whole"), "devices can't be divided");
            }
        }
    }
    for resource in list("requests").into_iter().flat_map(Map::keys) {
        let overcommits = STANDARD_RESOURCES.contains(&resource.as_str());
        if !overcommits && !list("limits").is_some_and(|limits| limits.contains_key(resource)) {
            let message = format!("has no limit of `{resource}`, which can't be overcommitted");
            findings.error(
                path.clone().key("limits"),
                message,
                "set the limit to the same amount as the request",
            );
        }
    }
}

/// Whether `resource` can be the name of a device plugin's resource. The prefix `requests.` is for quotas,
/// and the domain `kubernetes.io` is reserved.
fn is_device(resource: &str) -> bool {
    !resource.contains("kubernetes.io/")
        && !resource.starts_with("requests.")
        && names::is_label_key(resource)
}

/// Checks sizes and paths of volumes.
fn check_volumes(findings: &Findings, path: &FieldPath, pod: &Map<String, Value>) {
    for (index, volume) in items(pod, "volumes").enumerate() {
        let at = |source: &str, name: &str| path.clone().key("volumes").index(index).key(source).key(name);
        let limit = volume.pointer("/emptyDir/sizeLimit").filter(|limit| !limit.is_null());
        match limit.map(quantity::nano_from_json) {
            Some(Ok(nano)) if nano < 0 => {
                findings.error(at("emptyDir", "sizeLimit"), "is negative", "write a size such as `1Gi`");
            }
            Some(Err(_)) => {
                findings.error(at("emptyDir", "sizeLimit"), "is not a size", "write a size such as `1Gi`");
            }
            _ => {}
        }
        let host = volume.pointer("/hostPath/path").and_then(Value::as_str).unwrap_or_default();
        if host.split('/').any(|part| part == "..") {
            findings.error(at("hostPath", "path"), "has `..` in it", "write the path without it");
        }
    }
}

/// Finds constraints that repeat another one: with the same topology key and the same consequence.
fn check_spread(findings: &Findings, path: &FieldPath, pod: &Map<String, Value>) {
    let mut seen = BTreeSet::new();
    for (index, constraint) in items(pod, "topologySpreadConstraints").enumerate() {
        let [key, when] = ["topologyKey", "whenUnsatisfiable"].map(|name| text(constraint, name));
        if !key.is_empty() && !seen.insert((key, when)) {
            let at = path.clone().key("topologySpreadConstraints").index(index);
            let message = format!("repeats the constraint on `{key}` with `{when}`");
            findings.error(at, message, "keep one of them");
        }
    }
}

/// Checks host ports: in the node's network, a host port must equal the container's port, and each is used
/// once.
fn check_host_ports(findings: &Findings, path: &FieldPath, pod: &Map<String, Value>) {
    let is_host = flag(pod, "hostNetwork");
    let mut taken: BTreeMap<(u64, &str, &str), ()> = BTreeMap::new();
    for (c, container) in items(pod, "containers").enumerate() {
        let ports = container.get("ports").and_then(Value::as_array).into_iter().flatten();
        for (index, port) in ports.enumerate() {
            let number = |name: &str| port.get(name).and_then(Value::as_u64).filter(|number| *number > 0);
            let (Some(inner), host) = (number("containerPort"), number("hostPort")) else { continue };
            let at = || path.clone().key("containers").index(c).key("ports").index(index).key("hostPort");
            if is_host && host.is_some_and(|host| host != inner) {
                let remedy = "write the same number, or remove it";
                findings.error(at(), "must equal `containerPort` with `hostNetwork: true`", remedy);
            }
            let Some(host) = host.or(is_host.then_some(inner)) else { continue };
            let protocol = Some(text(port, "protocol")).filter(|text| !text.is_empty()).unwrap_or("TCP");
            if taken.insert((host, protocol, text(port, "hostIP")), ()).is_some() {
                findings.error(at(), format!("`{host}` is taken twice"), "give every port its own");
            }
        }
    }
}

/// Checks requests and limits of the pod as a whole: their resources, and that they aren't below the sums of
/// the containers.
fn check_whole_pod(
    findings: &Findings,
    path: &FieldPath,
    written: &Map<String, Value>,
    template: &PodTemplate,
) {
    let Some(whole_pod) = &template.whole_pod else { return };
    let path = path.clone().key("resources");
    let claims = written.get("resources").and_then(|resources| resources.get("claims"));
    if claims.and_then(Value::as_array).is_some_and(|claims| !claims.is_empty()) {
        findings.error(
            path.clone().key("claims"),
            "can't be claimed by the pod as a whole",
            "claim them in a container",
        );
    }
    for (place, amounts) in [("requests", &whole_pod.requests), ("limits", &whole_pod.limits)] {
        for resource in amounts.keys().filter(|resource| !is_whole_pod_resource(resource)) {
            findings.error(
                path.clone().key(place).key(resource),
                format!("a pod as a whole can't have `{resource}`"),
                "write it in a container; only `cpu`, `memory` and `hugepages-SIZE` are for the whole pod",
            );
        }
    }
    for (resource, sum) in template.container_requests() {
        let Some(request) = whole_pod.requests.get(&resource).filter(|request| **request < sum) else {
            continue;
        };
        let [request, sum] = [*request, sum].map(|amount| quantity::format(&resource, amount));
        findings.error(
            path.clone().key("requests").key(&resource),
            format!("`{request}` is less than its containers request together, `{sum}`"),
            format!("write at least `{sum}`"),
        );
    }
    let containers = template.containers.iter().flat_map(|container| &container.resources.limits);
    for (resource, limit) in containers {
        if let Some(most) = whole_pod.limits.get(resource).filter(|most| *most < limit) {
            let [limit, most] = [limit, most].map(|amount| quantity::format(resource, *amount));
            findings.error(
                path.clone().key("limits").key(resource),
                format!("`{most}` is less than the limit of a container, `{limit}`"),
                format!("write at least `{limit}`"),
            );
        }
    }
}

fn check_huge_pages(findings: &Findings, path: &FieldPath, template: &PodTemplate) {
    let requests = template.requests();
    let has = |resource: &str| requests.contains_key(resource);
    if requests.keys().any(|resource| is_huge_page(resource)) && !has("cpu") && !has("memory") {
        findings.error(
            path.clone().key("containers"),
            "request huge pages and neither `cpu` nor `memory`",
            "request one of them too",
        );
    }
}
