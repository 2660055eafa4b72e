//! The volumes of the Kubernetes API. Sources that few jobs use are known only by name, without their fields.

use super::container_schema::{FIELD_REF, RELATIVE_PATH, RESOURCE_REF};
use super::schema::{DNS_LABEL, DNS_SUBDOMAIN};
use crate::fields::schema::Choice::{AtMostOne, ExactlyOne};
use crate::fields::schema::{Shape, Type};

const SOURCES: &[&str] = &[
    "awsElasticBlockStore",
    "azureDisk",
    "azureFile",
    "cephfs",
    "cinder",
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "fc",
    "flexVolume",
    "flocker",
    "gcePersistentDisk",
    "gitRepo",
    "glusterfs",
    "hostPath",
    "image",
    "iscsi",
    "nfs",
    "persistentVolumeClaim",
    "photonPersistentDisk",
    "portworxVolume",
    "projected",
    "quobyte",
    "rbd",
    "scaleIO",
    "secret",
    "storageos",
    "vsphereVolume",
];

pub(super) static VOLUME: Type = Type::Object(&VOLUME_SHAPE);

static VOLUME_SHAPE: Shape = Shape::of(&[
    ("name", Type::Rule(&DNS_LABEL)),
    ("awsElasticBlockStore", Type::Any),
    ("azureDisk", Type::Any),
    ("azureFile", Type::Any),
    ("cephfs", Type::Any),
    ("cinder", Type::Any),
    ("configMap", Type::Object(&CONFIG_MAP)),
    ("csi", Type::Object(&CSI)),
    ("downwardAPI", Type::Object(&DOWNWARD)),
    ("emptyDir", Type::Object(&EMPTY_DIR)),
    ("ephemeral", Type::Any),
    ("fc", Type::Any),
    ("flexVolume", Type::Any),
    ("flocker", Type::Any),
    ("gcePersistentDisk", Type::Any),
    ("gitRepo", Type::Any),
    ("glusterfs", Type::Any),
    ("hostPath", Type::Object(&HOST_PATH)),
    ("image", Type::Object(&IMAGE)),
    ("iscsi", Type::Any),
    ("nfs", Type::Object(&NFS)),
    ("persistentVolumeClaim", Type::Object(&CLAIM)),
    ("photonPersistentDisk", Type::Any),
    ("portworxVolume", Type::Any),
    ("projected", Type::Object(&PROJECTED)),
    ("quobyte", Type::Any),
    ("rbd", Type::Any),
    ("scaleIO", Type::Any),
    ("secret", Type::Object(&SECRET)),
    ("storageos", Type::Any),
    ("vsphereVolume", Type::Any),
])
.required(&["name"])
.choice(AtMostOne(SOURCES));

/// The mode of a file.
const MODE: Type = Type::Int(0, 0o777);

static ITEM: Shape = Shape::of(&[("key", Type::Text), ("mode", MODE), ("path", Type::Rule(&RELATIVE_PATH))])
    .required(&["key", "path"]);
static CONFIG_MAP: Shape = Shape::of(&[
    ("defaultMode", MODE),
    ("items", Type::List(&Type::Object(&ITEM))),
    ("name", Type::Rule(&DNS_SUBDOMAIN)),
    ("optional", Type::Flag),
])
.required(&["name"]);
static SECRET: Shape = Shape::of(&[
    ("defaultMode", MODE),
    ("items", Type::List(&Type::Object(&ITEM))),
    ("optional", Type::Flag),
    ("secretName", Type::Rule(&DNS_SUBDOMAIN)),
])
.required(&["secretName"]);
static CSI: Shape = Shape::of(&[
    ("driver", Type::Text),
    ("fsType", Type::Text),
    ("nodePublishSecretRef", Type::Any),
    ("readOnly", Type::Flag),
    ("volumeAttributes", Type::Strings),
])
.required(&["driver"]);
static DOWNWARD: Shape =
    Shape::of(&[("defaultMode", MODE), ("items", Type::List(&Type::Object(&DOWNWARD_FILE)))]);
static DOWNWARD_FILE: Shape = Shape::of(&[
    ("fieldRef", Type::Object(&FIELD_REF)),
    ("mode", MODE),
    ("path", Type::Rule(&RELATIVE_PATH)),
    ("resourceFieldRef", Type::Object(&RESOURCE_REF)),
])
.required(&["path"])
.choice(ExactlyOne(&["fieldRef", "resourceFieldRef"]));
static EMPTY_DIR: Shape = Shape::of(&[("medium", Type::Text), ("sizeLimit", Type::Any)]);
static HOST_PATH: Shape = Shape::of(&[
    ("path", Type::Text),
    (
        "type",
        Type::Word(&[
            "",
            "DirectoryOrCreate",
            "Directory",
            "FileOrCreate",
            "File",
            "Socket",
            "CharDevice",
            "BlockDevice",
        ]),
    ),
])
.required(&["path"]);
static IMAGE: Shape =
    Shape::of(&[("pullPolicy", Type::Word(&["Always", "IfNotPresent", "Never"])), ("reference", Type::Text)]);
static NFS: Shape = Shape::of(&[("path", Type::Text), ("readOnly", Type::Flag), ("server", Type::Text)])
    .required(&["path", "server"]);
static CLAIM: Shape = Shape::of(&[("claimName", Type::Rule(&DNS_SUBDOMAIN)), ("readOnly", Type::Flag)])
    .required(&["claimName"]);
static PROJECTED: Shape =
    Shape::of(&[("defaultMode", MODE), ("sources", Type::List(&Type::Object(&PROJECTION)))]);
static PROJECTION: Shape = Shape::of(&[
    ("clusterTrustBundle", Type::Any),
    ("configMap", Type::Object(&CONFIG_MAP)),
    ("downwardAPI", Type::Object(&DOWNWARD)),
    ("podCertificate", Type::Any),
    ("secret", Type::Object(&PROJECTED_SECRET)),
    ("serviceAccountToken", Type::Any),
])
.choice(ExactlyOne(&[
    "clusterTrustBundle",
    "configMap",
    "downwardAPI",
    "podCertificate",
    "secret",
    "serviceAccountToken",
]));
static PROJECTED_SECRET: Shape = Shape::of(&[
    ("items", Type::List(&Type::Object(&ITEM))),
    ("name", Type::Rule(&DNS_SUBDOMAIN)),
    ("optional", Type::Flag),
])
.required(&["name"]);
