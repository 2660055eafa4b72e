//! The pod template of the Kubernetes API: its fields, their types and their rules.
//!
//! From the public API reference of the core group's `v1`. Volumes and containers have files of their own.

use super::container_schema::{CONTAINER, RESOURCES};
use super::volume_schema::VOLUME;
use crate::fields::schema::Choice::ExactlyOne;
use crate::fields::schema::{Shape, TextRule, Type};
use crate::fields::{Item, names, scheduling};

pub(super) const MOST: i64 = i32::MAX as i64;

pub(super) static DNS_LABEL: TextRule = TextRule {
    holds: names::is_dns_label,
    what: "a name",
    remedy: "use at most 63 lower-case letters, digits and `-`, beginning and ending with a letter or digit",
};
pub(super) static DNS_SUBDOMAIN: TextRule = TextRule {
    holds: |text| text.is_empty() || names::is_dns_subdomain(text),
    what: "a name",
    remedy: "use lower-case letters, digits, `-` and `.`, beginning and ending with a letter or digit",
};
pub(super) static LABEL_KEY: TextRule = TextRule {
    holds: names::is_label_key,
    what: "a label key",
    remedy: "use letters, digits, `-`, `_` and `.`, with at most one `/`",
};
static OPTIONAL_DNS_LABEL: TextRule =
    TextRule { holds: |text| text.is_empty() || names::is_dns_label(text), ..DNS_LABEL_RULE };
const DNS_LABEL_RULE: TextRule = TextRule {
    holds: names::is_dns_label,
    what: "a host name",
    remedy: "use at most 63 lower-case letters, digits and `-`",
};
static IP: TextRule = TextRule {
    holds: |text| text.parse::<core::net::IpAddr>().is_ok(),
    what: "an IP address",
    remedy: "write for example `10.0.0.1`",
};
static HOST: TextRule = TextRule {
    holds: names::is_dns_subdomain,
    what: "a host name",
    remedy: "use lower-case letters, digits, `-` and `.`",
};

static SEARCH_DOMAIN: TextRule = TextRule {
    holds: |text| text == "." || names::is_dns_subdomain(&text.trim_end_matches('.').replace('_', "-")),
    what: "a domain",
    remedy: "use lower-case letters, digits, `-`, `_` and `.`",
};
static SYSCTL_NAME: TextRule = TextRule {
    holds: names::is_sysctl_name,
    what: "the name of a kernel parameter",
    remedy: "write it as `sysctl` does, such as `net.core.somaxconn`",
};
static FINALIZER: TextRule = TextRule {
    holds: names::is_finalizer,
    what: "the name of a finalizer",
    remedy: "write a domain and a name, such as `example.com/cleanup`",
};

pub(super) static NAMED: Type = Type::Object(&Shape::of(&[("name", Type::Rule(&DNS_SUBDOMAIN))]));

/// Metadata of a template. The reader of labels and annotations checks their keys and values.
pub(crate) static TEMPLATE_METADATA: Shape = Shape::of(&[
    ("name", Type::Text),
    ("generateName", Type::Text),
    ("namespace", Type::Text),
    ("labels", Type::Strings),
    ("annotations", Type::Strings),
    ("creationTimestamp", Type::Any),
    ("finalizers", Type::List(&Type::Rule(&FINALIZER))),
    ("ownerReferences", Type::Any),
    ("resourceVersion", Type::Any),
    ("uid", Type::Any),
    ("generation", Type::Any),
    ("managedFields", Type::Any),
]);

/// A pod template, as in Jobs.
pub(crate) static TEMPLATE: Shape =
    Shape::of(&[("metadata", Type::Object(&TEMPLATE_METADATA)), ("spec", Type::Object(&POD_SPEC))]);

pub(crate) static POD_SPEC: Shape = Shape::of(&[
    ("activeDeadlineSeconds", Type::Int(1, MOST)),
    ("affinity", Type::Object(&AFFINITY)),
    ("automountServiceAccountToken", Type::Flag),
    ("containers", Type::List(&Type::Object(&CONTAINER))),
    ("dnsConfig", Type::Object(&DNS_CONFIG)),
    ("dnsPolicy", Type::Word(&["ClusterFirst", "ClusterFirstWithHostNet", "Default", "None"])),
    ("enableServiceLinks", Type::Flag),
    ("ephemeralContainers", Type::Any),
    ("hostAliases", Type::List(&Type::Object(&HOST_ALIAS))),
    ("hostIPC", Type::Flag),
    ("hostNetwork", Type::Flag),
    ("hostPID", Type::Flag),
    ("hostUsers", Type::Flag),
    ("hostname", Type::Rule(&OPTIONAL_DNS_LABEL)),
    ("hostnameOverride", Type::Text),
    ("imagePullSecrets", Type::List(&NAMED)),
    ("initContainers", Type::List(&Type::Object(&CONTAINER))),
    ("nodeName", Type::Rule(&DNS_SUBDOMAIN)),
    ("nodeSelector", Type::Strings),
    ("os", Type::Object(&OS)),
    ("overhead", Type::Any),
    ("preemptionPolicy", Type::Word(&["PreemptLowerPriority", "Never"])),
    ("priority", Type::Int(-MOST - 1, MOST)),
    ("priorityClassName", Type::Rule(&DNS_SUBDOMAIN)),
    ("readinessGates", Type::List(&Type::Object(&READINESS_GATE))),
    ("resourceClaims", Type::Unique("name", &Type::Object(&RESOURCE_CLAIM))),
    ("resources", Type::Object(&RESOURCES)),
    ("restartPolicy", Type::Text),
    ("runtimeClassName", Type::Rule(&DNS_SUBDOMAIN)),
    ("schedulerName", Type::Text),
    ("schedulingGates", Type::Unique("name", &Type::Object(&SCHEDULING_GATE))),
    ("schedulingGroup", Type::Any),
    ("securityContext", Type::Object(&POD_SECURITY)),
    ("serviceAccount", Type::Rule(&DNS_SUBDOMAIN)),
    ("serviceAccountName", Type::Rule(&DNS_SUBDOMAIN)),
    ("setHostnameAsFQDN", Type::Flag),
    ("shareProcessNamespace", Type::Flag),
    ("subdomain", Type::Rule(&OPTIONAL_DNS_LABEL)),
    ("terminationGracePeriodSeconds", Type::Int(0, MOST)),
    ("tolerations", Type::Any),
    ("topologySpreadConstraints", Type::List(&Type::Object(&SPREAD))),
    ("volumes", Type::Unique("name", &VOLUME)),
    ("workloadRef", Type::Any),
]);

static DNS_CONFIG: Shape = Shape::of(&[
    ("nameservers", Type::List(&Type::Rule(&IP))),
    ("options", Type::List(&Type::Object(&Shape::of(&[("name", Type::Text), ("value", Type::Text)])))),
    ("searches", Type::List(&Type::Rule(&SEARCH_DOMAIN))),
]);
static HOST_ALIAS: Shape =
    Shape::of(&[("ip", Type::Rule(&IP)), ("hostnames", Type::List(&Type::Rule(&HOST)))]).required(&["ip"]);
static OS: Shape = Shape::of(&[("name", Type::Word(&["linux", "windows"]))]).required(&["name"]);
static READINESS_GATE: Shape =
    Shape::of(&[("conditionType", Type::Rule(&LABEL_KEY))]).required(&["conditionType"]);
static SCHEDULING_GATE: Shape = Shape::of(&[("name", Type::Rule(&LABEL_KEY))]).required(&["name"]);
static RESOURCE_CLAIM: Shape = Shape::of(&[
    ("name", Type::Rule(&DNS_LABEL)),
    ("resourceClaimName", Type::Rule(&DNS_SUBDOMAIN)),
    ("resourceClaimTemplateName", Type::Rule(&DNS_SUBDOMAIN)),
])
.required(&["name"])
.choice(ExactlyOne(&["resourceClaimName", "resourceClaimTemplateName"]));

fn read_selector(item: &Item<'_>) {
    scheduling::selector(item);
}

fn read_node_requirement(item: &Item<'_>) {
    scheduling::requirement(item, true);
}

static SPREAD: Shape = Shape::of(&[
    ("labelSelector", Type::Read(read_selector)),
    ("matchLabelKeys", Type::List(&Type::Rule(&LABEL_KEY))),
    ("maxSkew", Type::Int(1, MOST)),
    ("minDomains", Type::Int(1, MOST)),
    ("nodeAffinityPolicy", Type::Word(&["Honor", "Ignore"])),
    ("nodeTaintsPolicy", Type::Word(&["Honor", "Ignore"])),
    ("topologyKey", Type::Rule(&LABEL_KEY)),
    ("whenUnsatisfiable", Type::Word(&["DoNotSchedule", "ScheduleAnyway"])),
])
.required(&["maxSkew", "topologyKey", "whenUnsatisfiable"]);

static AFFINITY: Shape = Shape::of(&[
    ("nodeAffinity", Type::Object(&NODE_AFFINITY)),
    ("podAffinity", Type::Object(&POD_AFFINITY)),
    ("podAntiAffinity", Type::Object(&POD_AFFINITY)),
]);
static NODE_AFFINITY: Shape = Shape::of(&[
    // The scheduling reader checks this field.
    ("requiredDuringSchedulingIgnoredDuringExecution", Type::Any),
    ("preferredDuringSchedulingIgnoredDuringExecution", Type::List(&Type::Object(&PREFERRED_NODES))),
]);
static PREFERRED_NODES: Shape = Shape::of(&[("weight", Type::Int(1, 100)), ("preference", NODE_TERM)])
    .required(&["weight", "preference"]);
const NODE_TERM: Type = Type::Object(&Shape::of(&[
    ("matchExpressions", Type::List(&Type::Read(read_node_requirement))),
    ("matchFields", Type::List(&Type::Read(read_node_requirement))),
]));
static POD_AFFINITY: Shape = Shape::of(&[
    ("requiredDuringSchedulingIgnoredDuringExecution", Type::List(&Type::Object(&POD_TERM))),
    ("preferredDuringSchedulingIgnoredDuringExecution", Type::List(&Type::Object(&PREFERRED_PODS))),
]);
static PREFERRED_PODS: Shape =
    Shape::of(&[("weight", Type::Int(1, 100)), ("podAffinityTerm", Type::Object(&POD_TERM))])
        .required(&["weight", "podAffinityTerm"]);
static POD_TERM: Shape = Shape::of(&[
    ("labelSelector", Type::Read(read_selector)),
    ("matchLabelKeys", Type::List(&Type::Rule(&LABEL_KEY))),
    ("mismatchLabelKeys", Type::List(&Type::Rule(&LABEL_KEY))),
    ("namespaceSelector", Type::Read(read_selector)),
    ("namespaces", Type::List(&Type::Rule(&DNS_LABEL))),
    ("topologyKey", Type::Rule(&LABEL_KEY)),
])
.required(&["topologyKey"]);

pub(super) static PROFILE: Shape = Shape::of(&[
    ("type", Type::Word(&["Localhost", "RuntimeDefault", "Unconfined"])),
    ("localhostProfile", Type::Text),
])
.required(&["type"]);

pub(super) static SELINUX: Shape =
    Shape::of(&[("level", Type::Text), ("role", Type::Text), ("type", Type::Text), ("user", Type::Text)]);

pub(super) static WINDOWS: Shape = Shape::of(&[
    ("gmsaCredentialSpec", Type::Text),
    ("gmsaCredentialSpecName", Type::Text),
    ("hostProcess", Type::Flag),
    ("runAsUserName", Type::Text),
]);

static POD_SECURITY: Shape = Shape::of(&[
    ("appArmorProfile", Type::Object(&PROFILE)),
    ("fsGroup", Type::Int(0, MOST)),
    ("fsGroupChangePolicy", Type::Word(&["Always", "OnRootMismatch"])),
    ("runAsGroup", Type::Int(0, MOST)),
    ("runAsNonRoot", Type::Flag),
    ("runAsUser", Type::Int(0, MOST)),
    ("seLinuxChangePolicy", Type::Word(&["MountOption", "Recursive"])),
    ("seLinuxOptions", Type::Object(&SELINUX)),
    ("seccompProfile", Type::Object(&PROFILE)),
    ("supplementalGroups", Type::List(&Type::Int(0, MOST))),
    ("supplementalGroupsPolicy", Type::Word(&["Merge", "Strict"])),
    ("sysctls", Type::Unique("name", &Type::Object(&SYSCTL))),
    ("windowsOptions", Type::Object(&WINDOWS)),
]);
static SYSCTL: Shape =
    Shape::of(&[("name", Type::Rule(&SYSCTL_NAME)), ("value", Type::Text)]).required(&["name", "value"]);
