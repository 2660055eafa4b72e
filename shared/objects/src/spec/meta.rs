//! The metadata that decisions look at: identity, age, labels and owners. Objects of the manager's own API carry theirs
//! in [`crate::Object`]; these are those of workloads, nodes and pods that somebody else made.

use super::scheduling::labels;
use crate::field::Fields;
use crate::names;
use jiff::Timestamp;
use std::collections::BTreeMap;

/// Most owners of an object that are read.
const MAX_OWNERS: usize = 100;

/// Who made an object.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Owner {
    /// API version of the owner, such as `batch/v1`.
    pub api_version: String,
    /// Its kind.
    pub kind: String,
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
    /// Whether it is the one that manages the object; at most one is.
    pub controller: bool,
}

/// Metadata of an object that somebody else made.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Meta {
    /// Namespace; empty when none is written.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// Uid; empty when none is written.
    pub uid: String,
    /// When it was made, in milliseconds since 1970. None is older than everything, as Kubernetes' zero time is.
    pub created: Option<i64>,
    /// When its deletion was asked for, in milliseconds since 1970.
    pub deleted: Option<i64>,
    /// How often its spec changed.
    pub generation: i64,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// Annotations.
    pub annotations: BTreeMap<String, String>,
    /// Owners, as listed.
    pub owners: Vec<Owner>,
}

impl Meta {
    /// `namespace/name`, as Kueue writes it: with the slash even where there is no namespace.
    pub fn key(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    /// The owner that manages the object.
    pub fn controller(&self) -> Option<&Owner> {
        self.owners.iter().find(|owner| owner.controller)
    }
}

/// Reads the metadata of an object of a kind that has a namespace or has none.
pub(crate) fn read(root: &Fields<'_>, namespaced: bool) -> Meta {
    let Some(metadata) = root.require("metadata").and_then(|item| item.fields()) else {
        return Meta::default();
    };
    metadata.known(&[
        "generateName",
        "resourceVersion",
        "deletionGracePeriodSeconds",
        "finalizers",
        "managedFields",
        "selfLink",
    ]);
    let read = Meta {
        namespace: metadata.text("namespace").unwrap_or_default().to_owned(),
        name: metadata.require_text("name").unwrap_or_default().to_owned(),
        uid: metadata.text("uid").unwrap_or_default().to_owned(),
        created: time(&metadata, "creationTimestamp"),
        deleted: time(&metadata, "deletionTimestamp"),
        generation: metadata.int("generation", 0, i64::MAX).unwrap_or_default(),
        labels: labels(&metadata, "labels"),
        annotations: metadata.strings("annotations"),
        owners: metadata.list("ownerReferences", MAX_OWNERS, |item| {
            let owner = item.fields()?;
            owner.known(&["blockOwnerDeletion"]);
            let text = |name: &'static str| owner.text(name).unwrap_or_default().to_owned();
            let read = Owner {
                api_version: text("apiVersion"),
                kind: text("kind"),
                name: text("name"),
                uid: text("uid"),
                controller: owner.flag("controller"),
            };
            owner.finish();
            Some(read)
        }),
    };
    if !read.name.is_empty() && !names::is_dns_subdomain(&read.name) {
        metadata.error(
            "name",
            format!("`{}` is not a name", read.name),
            "use lower-case letters, digits, `-` and `.`",
        );
    }
    if namespaced && !read.namespace.is_empty() && !names::is_dns_label(&read.namespace) {
        metadata.error(
            "namespace",
            format!("`{}` is not a namespace's name", read.namespace),
            "use at most 63 lower-case letters, digits and `-`",
        );
    }
    metadata.finish();
    read
}

/// A moment (RFC 3339) in milliseconds since 1970; finer parts are cut off.
pub(crate) fn time(fields: &Fields<'_>, name: &'static str) -> Option<i64> {
    let item = fields.get(name)?;
    let text = item.text()?;
    let moment = text.parse::<Timestamp>().ok();
    if moment.is_none() {
        item.unreadable(format!("`{text}` is not a time"), "write it as `2026-06-01T12:00:00Z`");
    }
    // floor, so that a moment before 1970 does not round towards its successor
    moment.map(|moment| {
        i64::try_from(moment.as_nanosecond().div_euclid(1_000_000)).expect("jiff's years end at 9999")
    })
}

/// A moment, in milliseconds since 1970, as objects have it.
pub fn written_moment(at: i64) -> String {
    Timestamp::from_millisecond(at).map_or_else(|_| format!("{at} ms"), |at| at.to_string())
}
