//! Metadata of objects that a cluster made: workloads, nodes and pods. The metadata of objects of the
//! manager's own API is in [`crate::Object`].

use crate::fields::Fields;
use crate::fields::names;
use crate::fields::scheduling::labels;
use jiff::Timestamp;
use std::collections::BTreeMap;

const MAX_OWNERS: usize = 100;

/// The owner of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Owner {
    /// API version, such as `batch/v1`.
    pub api_version: String,
    pub kind: String,
    pub name: String,
    pub uid: String,
    /// Whether it manages the object; at most one owner does.
    pub controller: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Meta {
    /// Empty when none is written.
    pub namespace: String,
    pub name: String,
    /// Empty when none is written.
    pub uid: String,
    /// Creation time in milliseconds since 1970. `None` counts as older than all others, like Kubernetes'
    /// zero time.
    pub created: Option<i64>,
    /// When deletion was requested, in milliseconds since 1970.
    pub deleted: Option<i64>,
    /// Number of changes of the spec.
    pub generation: i64,
    pub labels: BTreeMap<String, String>,
    pub annotations: BTreeMap<String, String>,
    pub owners: Vec<Owner>,
}

impl Meta {
    /// `namespace/name`, in Kueue's form: with the slash even without a namespace.
    pub fn key(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    /// The owner that manages the object.
    pub fn controller(&self) -> Option<&Owner> {
        self.owners.iter().find(|owner| owner.controller)
    }
}

/// Reads the metadata of an object of a kind with or without namespaces.
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

/// A time (RFC 3339) in milliseconds since 1970; finer parts are cut off.
pub(crate) fn time(fields: &Fields<'_>, name: &'static str) -> Option<i64> {
    let item = fields.get(name)?;
    let text = item.text()?;
    let moment = text.parse::<Timestamp>().ok();
    if moment.is_none() {
        item.unreadable(format!("`{text}` is not a time"), "write it as `2026-06-01T12:00:00Z`");
    }
    // Floor, so that a time before 1970 isn't rounded up.
    moment.map(|moment| {
        i64::try_from(moment.as_nanosecond().div_euclid(1_000_000)).expect("jiff's years end at 9999")
    })
}

/// The text form in objects (RFC 3339) of a time in milliseconds since 1970.
pub fn format_time(at: i64) -> String {
    Timestamp::from_millisecond(at).map_or_else(|_| format!("{at} ms"), |at| at.to_string())
}
