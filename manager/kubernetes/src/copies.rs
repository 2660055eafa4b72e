//! ConfigMaps and Secrets of the management cluster that worker clusters get copies of.
//!
//! An object is read when an agent asks for it, and isn't stored. A Secret is copied only if its owner has
//! set the label [`PERMITTED`]. A list of names in the manager's settings would apply to all namespaces, and
//! changing it would need a restart.

use kube::api::{ApiResource, DynamicObject};
use kube::core::GroupVersionKind;
use kube::{Api, Client};
use meridian_kubernetes::connection::within;
use meridian_kubernetes::error::{Failure, classify};
use meridian_kubernetes::quiet::QuietApi;
use meridian_kubernetes::{Error, Permission};
use meridian_shared::copies::{Content, CopyOutcome, PERMITTED};
use meridian_shared::protocol::{Reference, ReferenceKind};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Annotation of a Secret with a token that the API server signed for a service account of its own cluster.
const ACCOUNT: &str = "kubernetes.io/service-account.name";

/// Permissions that are needed to copy objects of these kinds.
pub(crate) fn permissions(kinds: &BTreeSet<ReferenceKind>) -> Vec<Permission> {
    kinds.iter().filter_map(|kind| Some(("", kind.copied_plural()?, &["get"][..]))).collect()
}

/// Reads objects that may be copied.
#[derive(Clone)]
pub struct CopyReader {
    client: Client,
    kinds: BTreeSet<ReferenceKind>,
}

impl std::fmt::Debug for CopyReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CopyReader").field("kinds", &self.kinds).finish_non_exhaustive()
    }
}

impl CopyReader {
    pub(crate) fn new(client: Client, kinds: BTreeSet<ReferenceKind>) -> Self {
        Self { client, kinds }
    }

    /// Whether an object may be copied, and its content if that is asked for. Fails if the API server doesn't
    /// answer.
    pub async fn read(
        &self,
        namespace: &str,
        reference: &Reference,
        with_content: bool,
    ) -> Result<CopyOutcome, Error> {
        let kind = reference.kind;
        let Some(plural) = kind.copied_plural().filter(|_| self.kinds.contains(&kind)) else {
            let why = format!("`copy-references` of the manager doesn't have {}s", kind.name());
            return Ok(CopyOutcome::Refused(why.into()));
        };
        let gvk = GroupVersionKind::gvk("", "v1", kind.name());
        let resource = ApiResource::from_gvk_with_plural(&gvk, plural);
        let doing = format!("read {} `{namespace}/{}`", kind.name(), reference.name);
        let found = if with_content {
            let api = QuietApi::new(self.client.clone(), &resource, namespace);
            within(doing, api.get(&reference.name)).await
        } else {
            let api: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), namespace, &resource);
            let metadata = within(doing, api.get_metadata(&reference.name)).await;
            metadata.map(|object| serde_json::json!({"metadata": object.metadata}))
        };
        match found {
            Ok(object) => Ok(outcome(kind, &object, with_content)),
            Err(Error::Request { source, .. }) if classify(&source) == Failure::Absent => {
                Ok(CopyOutcome::Refused("the management cluster has none".into()))
            }
            Err(error) => Err(error),
        }
    }
}

/// The fields of an object that an agent gets.
fn outcome(kind: ReferenceKind, object: &Value, with_content: bool) -> CopyOutcome {
    if kind == ReferenceKind::Secret
        && let Some(why) = refusal(&object["metadata"])
    {
        return CopyOutcome::Refused(why.into());
    }
    if !with_content {
        return CopyOutcome::Permitted;
    }
    CopyOutcome::Content(Box::new(Content {
        secret_type: object["type"].as_str().filter(|_| kind == ReferenceKind::Secret).map(str::to_owned),
        data: texts(&object["data"]),
        binary_data: texts(&object["binaryData"]),
    }))
}

/// Why a Secret isn't copied, by its metadata.
fn refusal(metadata: &Value) -> Option<String> {
    let (label, value) = PERMITTED;
    if metadata["labels"].get(label).is_none_or(|is| is != value) {
        return Some(format!("the one in the management cluster has no label `{label}: \"{value}\"`"));
    }
    let is_token = metadata["annotations"].get(ACCOUNT).is_some();
    is_token.then(|| "the one in the management cluster is a token for its own API server".to_owned())
}

fn texts(map: &Value) -> BTreeMap<String, String> {
    let entries = map.as_object().into_iter().flatten();
    entries.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn secret(metadata: &Value) -> Value {
        json!({"metadata": metadata, "type": "Opaque", "data": {"token": "dg=="}})
    }

    #[test]
    fn a_secret_is_copied_only_with_the_label_and_never_a_token_of_the_cluster_itself() {
        let read = |metadata: &Value| outcome(ReferenceKind::Secret, &secret(metadata), true);
        let CopyOutcome::Content(content) = read(&json!({"labels": {"meridian.dev/copy": "true"}})) else {
            panic!("it has the label");
        };
        assert_eq!(content.secret_type.as_deref(), Some("Opaque"));
        assert_eq!(content.data, BTreeMap::from([("token".to_owned(), "dg==".to_owned())]));
        let refused = |metadata: &Value| match read(metadata) {
            CopyOutcome::Refused(why) => why.to_string(),
            other => panic!("{other:?}"),
        };
        let no_label = "the one in the management cluster has no label `meridian.dev/copy: \"true\"`";
        for labels in [json!({}), json!({"meridian.dev/copy": "yes"}), json!({"copy": "true"})] {
            assert_eq!(refused(&json!({"labels": labels})), no_label);
        }
        assert_eq!(refused(&json!({})), no_label);
        let token = json!({
            "labels": {"meridian.dev/copy": "true"},
            "annotations": {"kubernetes.io/service-account.name": "builder"},
        });
        assert_eq!(refused(&token), "the one in the management cluster is a token for its own API server");
    }

    #[test]
    fn a_config_map_needs_no_label_and_before_the_grant_nothing_has_content() {
        let map = json!({"metadata": {}, "data": {"a": "1"}, "binaryData": {"b": "dg=="}, "type": "x"});
        let CopyOutcome::Content(content) = outcome(ReferenceKind::ConfigMap, &map, true) else {
            panic!("it may be copied");
        };
        assert_eq!((content.data["a"].as_str(), content.binary_data["b"].as_str()), ("1", "dg=="));
        assert_eq!(content.secret_type, None);
        assert_eq!(outcome(ReferenceKind::ConfigMap, &map, false), CopyOutcome::Permitted);
        let permitted = json!({"labels": {"meridian.dev/copy": "true"}});
        let outcome = outcome(ReferenceKind::Secret, &secret(&permitted), false);
        assert_eq!(outcome, CopyOutcome::Permitted);
    }

    #[test]
    fn each_kind_needs_one_right() {
        let kinds = BTreeSet::from([ReferenceKind::Secret]);
        assert_eq!(permissions(&kinds), [("", "secrets", &["get"][..])]);
        assert_eq!(permissions(&BTreeSet::new()), []);
    }
}
