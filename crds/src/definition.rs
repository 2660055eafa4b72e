//! The CustomResourceDefinition of a kind. Names and versions come from the table of kinds.

use crate::kinds::{PrinterColumn, columns, schema};
use meridian_objects::Kind;
use meridian_objects::kind::{KUEUE_GROUP, V1BETA1};
use serde_json::{Value, json};

/// Label of definitions that Meridian made. The chart leaves Kueue's kinds alone if a definition exists
/// without this label.
const PART_OF: &str = "app.kubernetes.io/part-of";

/// The definition of a kind; `None` for a kind of Kubernetes.
pub(crate) fn definition(kind: Kind) -> Option<Value> {
    let versions =
        kind.versions().iter().map(|version| version_of(kind, version)).collect::<Option<Vec<_>>>()?;
    let mut names = json!({
        "kind": kind.name(), "listKind": format!("{}List", kind.name()),
        "plural": kind.plural(), "singular": kind.singular(), "categories": [category(kind)],
    });
    if !kind.short_names().is_empty() {
        names["shortNames"] = json!(kind.short_names());
    }
    let mut metadata = json!({
        "name": format!("{}.{}", kind.plural(), kind.group()),
        "labels": {PART_OF: "meridian"},
    });
    // Deleting a definition deletes all objects of the kind, which no uninstallation may do.
    metadata["annotations"] = json!({"helm.sh/resource-policy": "keep"});
    Some(json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": metadata,
        "spec": {
            "group": kind.group(),
            "names": names,
            "scope": if kind.namespaced() { "Namespaced" } else { "Cluster" },
            "versions": versions,
        },
    }))
}

fn category(kind: Kind) -> &'static str {
    if kind.group() == KUEUE_GROUP { "kueue" } else { "meridian" }
}

fn version_of(kind: Kind, version: &'static str) -> Option<Value> {
    let schema = schema(kind, version)?;
    let has_status = schema.pointer("/properties/status").is_some();
    let mut value = json!({
        "name": version, "served": true, "storage": version == kind.storage_version(),
        "schema": {"openAPIV3Schema": schema},
        "additionalPrinterColumns": columns(kind).iter().map(column).collect::<Vec<_>>(),
    });
    if has_status {
        value["subresources"] = json!({"status": {}});
    }
    if version == V1BETA1 {
        value["deprecated"] = json!(true);
        value["deprecationWarning"] = json!(format!(
            "{} {} is deprecated; write {}",
            kind.api_version(version),
            kind.name(),
            kind.api_version(kind.storage_version())
        ));
    }
    Some(value)
}

fn column(column: &PrinterColumn) -> Value {
    let mut value = json!({"name": column.name, "type": column.content, "jsonPath": column.path});
    if column.wide {
        value["priority"] = json!(1);
    }
    value
}
