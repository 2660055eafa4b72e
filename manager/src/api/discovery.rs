//! Discovery: the documents that `kubectl` reads first, generated from the table of kinds.

use super::access::Verb;
use super::reviews;
use meridian_objects::Kind;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// The Kubernetes version that the API follows; clients compare it with their own.
const KUBERNETES: (&str, &str) = ("1", "33");

/// The document at `/api`.
pub(crate) fn core_versions() -> Value {
    json!({"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []})
}

/// The document at `/apis`.
pub(crate) fn groups() -> Value {
    let named = Kind::ALL.iter().map(|kind| kind.group()).filter(|group| !group.is_empty());
    let names: BTreeSet<&str> = named.chain([reviews::GROUP]).collect();
    let groups: Vec<Value> = names.into_iter().filter_map(group_document).collect();
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
}

/// The document at `/apis/GROUP`.
pub(crate) fn group(name: &str) -> Option<Value> {
    let mut document = group_document(name)?;
    document["kind"] = json!("APIGroup");
    document["apiVersion"] = json!("v1");
    Some(document)
}

fn group_document(name: &str) -> Option<Value> {
    if name == reviews::GROUP {
        let version = reviews::VERSION;
        let version = json!({"groupVersion": format!("{name}/{version}"), "version": version});
        return Some(json!({"name": name, "versions": [version], "preferredVersion": version}));
    }
    // The kinds of one group may have different versions.
    let mut versions: Vec<Value> = Vec::new();
    for kind in Kind::ALL.into_iter().filter(|kind| kind.group() == name && !name.is_empty()) {
        for version in kind.versions() {
            let version = json!({"groupVersion": kind.api_version(version), "version": version});
            if !versions.contains(&version) {
                versions.push(version);
            }
        }
    }
    let preferred = versions.first()?.clone();
    Some(json!({"name": name, "versions": versions, "preferredVersion": preferred}))
}

/// The document at `/api/VERSION` or `/apis/GROUP/VERSION`.
pub(crate) fn resources(group: &str, version: &str) -> Option<Value> {
    let kinds = Kind::ALL.into_iter().filter(|kind| kind.group() == group && kind.served(version).is_some());
    let resources: Vec<Value> = kinds
        .map(|kind| {
            let verbs: Vec<&str> = Verb::of(kind).iter().map(|verb| verb.name()).collect();
            let mut resource = json!({
                "name": kind.plural(), "singularName": kind.singular(), "namespaced": kind.namespaced(),
                "kind": kind.name(),
                "verbs": verbs, "shortNames": kind.short_names(),
            });
            if kind.is_job() {
                resource["categories"] = json!(["all"]);
            }
            resource
        })
        .collect();
    let review = |(plural, kind): (&str, &str)| {
        json!({
            "name": plural, "singularName": kind.to_lowercase(), "namespaced": false, "kind": kind,
            "verbs": ["create"],
        })
    };
    let is_reviews = group == reviews::GROUP && version == reviews::VERSION;
    let reviews = reviews::KINDS.into_iter().filter(|_| is_reviews).map(review);
    let resources: Vec<Value> = resources.into_iter().chain(reviews).collect();
    let group_version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
    (!resources.is_empty()).then(|| {
        json!({
            "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version,
            "resources": resources,
        })
    })
}

/// The document at `/version`.
pub(crate) fn version() -> Value {
    let (major, minor) = KUBERNETES;
    let own = env!("CARGO_PKG_VERSION");
    json!({
        "major": major, "minor": minor, "gitVersion": format!("v{major}.{minor}.0+meridian.{own}"),
        "gitCommit": "", "gitTreeState": "", "buildDate": "1970-01-01T00:00:00Z", "goVersion": "",
        "compiler": "rustc", "platform": format!("{}/{}", std::env::consts::OS, std::env::consts::ARCH),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_is_found_through_discovery() {
        let groups = groups();
        for kind in Kind::ALL {
            for version in kind.versions() {
                if !kind.group().is_empty() {
                    let group = group(kind.group()).unwrap();
                    let versions = group["versions"].as_array().unwrap();
                    assert!(versions.iter().any(|of| of["version"] == **version), "{kind}");
                }
                let resources = resources(kind.group(), version).unwrap();
                let found = resources["resources"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .find(|r| r["kind"] == kind.name())
                    .unwrap();
                assert_eq!(
                    (found["name"].as_str(), found["namespaced"].as_bool()),
                    (Some(kind.plural()), Some(kind.namespaced()))
                );
                assert_eq!(found["verbs"].as_array().unwrap().iter().any(|v| v == "create"), kind.writable());
            }
            if !kind.group().is_empty() {
                let listed =
                    groups["groups"].as_array().unwrap().iter().find(|g| g["name"] == kind.group()).unwrap();
                // the kinds of a group may have different versions
                let versions = listed["versions"].as_array().unwrap();
                assert!(
                    versions.iter().any(|version| version["version"] == kind.storage_version()),
                    "{kind}"
                );
                assert_eq!(listed["preferredVersion"], versions[0]);
                assert_eq!(group(kind.group()).unwrap()["kind"], "APIGroup");
            }
        }
        assert_eq!(group("authorization.k8s.io").unwrap()["versions"][0]["version"], "v1");
        assert_eq!(
            resources("authorization.k8s.io", "v1").unwrap()["resources"][0]["verbs"],
            json!(["create"])
        );
        assert_eq!(resources("batch", "v2"), None);
        assert_eq!(resources("apps", "v1"), None);
        assert_eq!(group(""), None);
    }
}
