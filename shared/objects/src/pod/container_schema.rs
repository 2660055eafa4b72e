//! The containers of the Kubernetes API.

use super::schema::{DNS_LABEL, DNS_SUBDOMAIN, MOST, PROFILE, SELINUX, WINDOWS};
use crate::fields::names;
use crate::fields::schema::Choice::{AtMostOne, ExactlyOne};
use crate::fields::schema::{Shape, TextRule, Type};

static CONFIG_KEY: TextRule =
    TextRule { holds: names::is_config_key, what: "a key", remedy: "use letters, digits, `-`, `_` and `.`" };
static PORT_NAME: TextRule = TextRule {
    holds: |text| text.is_empty() || names::is_port_name(text),
    what: "the name of a port",
    remedy: "use at most 15 lower-case letters, digits and single `-`, with at least one letter",
};
pub(super) static RELATIVE_PATH: TextRule = TextRule {
    holds: names::is_relative_path,
    what: "a path within the volume",
    remedy: "write a relative path without `..`",
};
static POD_FIELD: TextRule = TextRule {
    holds: is_pod_field,
    what: "a field that pods can read",
    remedy: "write `metadata.name`, `metadata.namespace`, `metadata.uid`, `metadata.labels['KEY']`, \
        `metadata.annotations['KEY']`, `spec.nodeName`, `spec.serviceAccountName`, `status.hostIP`, \
        `status.hostIPs`, `status.podIP` or `status.podIPs`",
};
static RESOURCE_FIELD: TextRule = TextRule {
    holds: |text| {
        text.strip_prefix("limits.").or_else(|| text.strip_prefix("requests.")).is_some_and(|resource| {
            matches!(resource, "cpu" | "memory" | "ephemeral-storage") || resource.starts_with("hugepages-")
        })
    },
    what: "a resource that containers can read",
    remedy: "write `limits.` or `requests.` and `cpu`, `memory`, `ephemeral-storage` or `hugepages-SIZE`",
};

fn is_pod_field(path: &str) -> bool {
    const PLAIN: [&str; 11] = [
        "metadata.name",
        "metadata.namespace",
        "metadata.uid",
        "metadata.labels",
        "metadata.annotations",
        "spec.nodeName",
        "spec.serviceAccountName",
        "status.hostIP",
        "status.hostIPs",
        "status.podIP",
        "status.podIPs",
    ];
    let key = |of: &str| path.strip_prefix(of)?.strip_prefix("['")?.strip_suffix("']");
    let keyed = key("metadata.labels").or_else(|| key("metadata.annotations"));
    PLAIN.contains(&path) || keyed.is_some_and(|key| names::is_label_key(&key.to_lowercase()))
}

pub(super) static CONTAINER: Shape = Shape::of(&[
    ("args", Type::List(&Type::Text)),
    ("command", Type::List(&Type::Text)),
    ("env", Type::List(&Type::Object(&VARIABLE))),
    ("envFrom", Type::List(&Type::Object(&ENV_FROM))),
    ("image", Type::Text),
    ("imagePullPolicy", Type::Word(&["Always", "IfNotPresent", "Never", ""])),
    ("lifecycle", Type::Object(&LIFECYCLE)),
    ("livenessProbe", Type::Object(&PROBE)),
    ("name", Type::Rule(&DNS_LABEL)),
    ("ports", Type::Unique("name", &Type::Object(&PORT))),
    ("readinessProbe", Type::Object(&PROBE)),
    ("resizePolicy", Type::Unique("resourceName", &Type::Object(&RESIZE))),
    ("resources", Type::Object(&RESOURCES)),
    ("restartPolicy", Type::Word(&["Always", "Never", "OnFailure"])),
    ("restartPolicyRules", Type::List(&Type::Any)),
    ("securityContext", Type::Object(&SECURITY)),
    ("startupProbe", Type::Object(&PROBE)),
    ("stdin", Type::Flag),
    ("stdinOnce", Type::Flag),
    ("terminationMessagePath", Type::Text),
    ("terminationMessagePolicy", Type::Word(&["File", "FallbackToLogsOnError"])),
    ("tty", Type::Flag),
    ("volumeDevices", Type::Unique("name", &Type::Object(&DEVICE))),
    ("volumeMounts", Type::Unique("mountPath", &Type::Object(&MOUNT))),
    ("workingDir", Type::Text),
])
.required(&["name"]);

/// Requests and limits of a container. Their reader checks the amounts.
pub(super) static RESOURCES: Shape = Shape::of(&[
    ("claims", Type::Unique("name", &Type::Object(&CLAIM))),
    ("limits", Type::Any),
    ("requests", Type::Any),
]);
static CLAIM: Shape = Shape::of(&[("name", Type::Rule(&DNS_LABEL)), ("request", Type::Rule(&DNS_SUBDOMAIN))])
    .required(&["name"]);

static VARIABLE: Shape =
    Shape::of(&[("name", Type::Text), ("value", Type::Text), ("valueFrom", Type::Object(&VALUE_FROM))])
        .required(&["name"]);
const SOURCES: &[&str] = &["configMapKeyRef", "fieldRef", "fileKeyRef", "resourceFieldRef", "secretKeyRef"];
static VALUE_FROM: Shape = Shape::of(&[
    ("configMapKeyRef", Type::Object(&KEY_REF)),
    ("fieldRef", Type::Object(&FIELD_REF)),
    ("fileKeyRef", Type::Any),
    ("resourceFieldRef", Type::Object(&RESOURCE_REF)),
    ("secretKeyRef", Type::Object(&KEY_REF)),
])
.choice(ExactlyOne(SOURCES));
static KEY_REF: Shape = Shape::of(&[
    ("name", Type::Rule(&DNS_SUBDOMAIN)),
    ("key", Type::Rule(&CONFIG_KEY)),
    ("optional", Type::Flag),
])
.required(&["name", "key"]);
pub(super) static FIELD_REF: Shape =
    Shape::of(&[("apiVersion", Type::Text), ("fieldPath", Type::Rule(&POD_FIELD))]).required(&["fieldPath"]);
pub(super) static RESOURCE_REF: Shape = Shape::of(&[
    ("containerName", Type::Text),
    ("divisor", Type::Any),
    ("resource", Type::Rule(&RESOURCE_FIELD)),
])
.required(&["resource"]);
static ENV_FROM: Shape = Shape::of(&[
    ("configMapRef", Type::Object(&SOURCE_REF)),
    ("prefix", Type::Text),
    ("secretRef", Type::Object(&SOURCE_REF)),
])
.choice(ExactlyOne(&["configMapRef", "secretRef"]));
static SOURCE_REF: Shape =
    Shape::of(&[("name", Type::Rule(&DNS_SUBDOMAIN)), ("optional", Type::Flag)]).required(&["name"]);

static PORT: Shape = Shape::of(&[
    ("containerPort", Type::Int(1, 65_535)),
    ("hostIP", Type::Text),
    ("hostPort", Type::Int(0, 65_535)),
    ("name", Type::Rule(&PORT_NAME)),
    ("protocol", Type::Word(&["TCP", "UDP", "SCTP", ""])),
])
.required(&["containerPort"]);

static RESIZE: Shape = Shape::of(&[
    ("resourceName", Type::Word(&["cpu", "memory"])),
    ("restartPolicy", Type::Word(&["NotRequired", "RestartContainer"])),
])
.required(&["resourceName", "restartPolicy"]);
static DEVICE: Shape =
    Shape::of(&[("devicePath", Type::Text), ("name", Type::Text)]).required(&["devicePath", "name"]);
static MOUNT: Shape = Shape::of(&[
    ("mountPath", Type::Text),
    ("mountPropagation", Type::Word(&["None", "HostToContainer", "Bidirectional"])),
    ("name", Type::Text),
    ("readOnly", Type::Flag),
    ("recursiveReadOnly", Type::Word(&["Disabled", "IfPossible", "Enabled"])),
    ("subPath", Type::Rule(&RELATIVE_PATH)),
    ("subPathExpr", Type::Rule(&RELATIVE_PATH)),
])
.required(&["mountPath", "name"])
.choice(AtMostOne(&["subPath", "subPathExpr"]));

static LIFECYCLE: Shape = Shape::of(&[
    ("postStart", Type::Object(&HANDLER)),
    ("preStop", Type::Object(&HANDLER)),
    ("stopSignal", Type::Text),
]);
static HANDLER: Shape = Shape::of(&[
    ("exec", Type::Object(&EXEC)),
    ("httpGet", Type::Object(&HTTP)),
    ("sleep", Type::Object(&SLEEP)),
    ("tcpSocket", Type::Object(&TCP)),
])
.choice(ExactlyOne(&["exec", "httpGet", "sleep", "tcpSocket"]));
static PROBE: Shape = Shape::of(&[
    ("exec", Type::Object(&EXEC)),
    ("failureThreshold", Type::Int(0, MOST)),
    ("grpc", Type::Object(&GRPC)),
    ("httpGet", Type::Object(&HTTP)),
    ("initialDelaySeconds", Type::Int(0, MOST)),
    ("periodSeconds", Type::Int(0, MOST)),
    ("successThreshold", Type::Int(0, MOST)),
    ("tcpSocket", Type::Object(&TCP)),
    ("terminationGracePeriodSeconds", Type::Int(1, MOST)),
    ("timeoutSeconds", Type::Int(0, MOST)),
])
.choice(ExactlyOne(&["exec", "grpc", "httpGet", "tcpSocket"]));
static EXEC: Shape = Shape::of(&[("command", Type::List(&Type::Text))]).required(&["command"]);
static SLEEP: Shape = Shape::of(&[("seconds", Type::Int(0, MOST))]).required(&["seconds"]);
static GRPC: Shape =
    Shape::of(&[("port", Type::Int(1, 65_535)), ("service", Type::Text)]).required(&["port"]);
static TCP: Shape = Shape::of(&[("host", Type::Text), ("port", Type::IntOrText)]).required(&["port"]);
static HTTP: Shape = Shape::of(&[
    ("host", Type::Text),
    ("httpHeaders", Type::List(&Type::Object(&HEADER))),
    ("path", Type::Text),
    ("port", Type::IntOrText),
    ("scheme", Type::Word(&["HTTP", "HTTPS"])),
])
.required(&["port"]);
static HEADER: Shape = Shape::of(&[("name", Type::Text), ("value", Type::Text)]).required(&["name", "value"]);

static SECURITY: Shape = Shape::of(&[
    ("allowPrivilegeEscalation", Type::Flag),
    ("appArmorProfile", Type::Object(&PROFILE)),
    ("capabilities", Type::Object(&CAPABILITIES)),
    ("privileged", Type::Flag),
    ("procMount", Type::Word(&["Default", "Unmasked"])),
    ("readOnlyRootFilesystem", Type::Flag),
    ("runAsGroup", Type::Int(0, MOST)),
    ("runAsNonRoot", Type::Flag),
    ("runAsUser", Type::Int(0, MOST)),
    ("seLinuxOptions", Type::Object(&SELINUX)),
    ("seccompProfile", Type::Object(&PROFILE)),
    ("windowsOptions", Type::Object(&WINDOWS)),
]);
static CAPABILITIES: Shape =
    Shape::of(&[("add", Type::List(&Type::Text)), ("drop", Type::List(&Type::Text))]);
