//! Paths of objects, `/api/v1/...` and `/apis/GROUP/VERSION/...`, resolved by the table of kinds.

use crate::api::response::error::Subject;
use meridian_manager_core::facts::key::Key;
use meridian_objects::Kind;
use meridian_shared::ids::ClusterName;
use std::sync::Arc;

/// The objects that a path names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ResourcePath {
    pub(crate) kind: Kind,
    /// The API version in the path.
    pub(crate) version: &'static str,
    /// `None` for kinds without namespace, and for all namespaces.
    pub(crate) namespace: Option<String>,
    /// `None` for a collection.
    pub(crate) name: Option<String>,
}

impl ResourcePath {
    /// Parses `path`; `None` unless it is the path of an object or a collection.
    pub(crate) fn parse(path: &str) -> Option<Self> {
        let mut segments = path.trim_matches('/').split('/').map(decode).collect::<Option<Vec<String>>>()?;
        if segments.iter().any(String::is_empty) {
            return None;
        }
        let (group, version) = match segments.first()?.as_str() {
            "api" if segments.len() > 2 => (String::new(), segments.drain(..2).nth(1)?),
            "apis" if segments.len() > 3 => {
                let mut root = segments.drain(..3).skip(1);
                (root.next()?, root.next()?)
            }
            _ => return None,
        };
        let (namespace, rest) = match segments.as_slice() {
            // `namespaces/NAME` is a namespace, `namespaces/NAME/PLURAL` is a collection in it
            [first, namespace, rest @ ..] if first == "namespaces" && !rest.is_empty() => {
                (Some(namespace.clone()), rest)
            }
            rest => (None, rest),
        };
        let (plural, name) = match rest {
            [plural] => (plural, None),
            [plural, name] => (plural, Some(name.clone())),
            _ => return None,
        };
        let (kind, version) = Kind::from_plural(&group, &version, plural)?;
        // an object of a namespaced kind needs a namespace, and other kinds have none
        let placed =
            if kind.namespaced() { namespace.is_some() || name.is_none() } else { namespace.is_none() };
        placed.then_some(Self { kind, version, namespace, name })
    }

    /// The key of the object `name` at this path.
    pub(crate) fn key(&self, name: &str, scope: Option<&ClusterName>) -> Key {
        Key {
            scope: scope.cloned(),
            kind: self.kind,
            namespace: self.namespace.as_deref().map(Arc::from),
            name: Arc::from(name),
        }
    }

    pub(crate) fn subject(&self) -> Subject {
        Subject::new(self.kind, self.name.as_deref().unwrap_or_default())
    }

    /// `apiVersion` as the path names it.
    pub(crate) fn api_version(&self) -> String {
        self.kind.api_version(self.version)
    }
}

/// Decodes percent escapes (RFC 3986, section 2.1).
fn decode(segment: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(segment.len());
    let mut rest = segment.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let mut digit = || char::from(rest.next()?).to_digit(16);
        let (high, low) = (digit()?, digit()?);
        bytes.push(u8::try_from(high * 16 + low).ok()?);
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_resolved_by_the_table_of_kinds() {
        let check = |path: &str, expect: Option<(Kind, &str, Option<&str>, Option<&str>)>| {
            let found = ResourcePath::parse(path);
            let found =
                found.as_ref().map(|t| (t.kind, t.version, t.namespace.as_deref(), t.name.as_deref()));
            assert_eq!(found, expect, "{path}");
        };
        check("/api/v1/namespaces", Some((Kind::Namespace, "v1", None, None)));
        check("/api/v1/namespaces/a", Some((Kind::Namespace, "v1", None, Some("a"))));
        check("/apis/batch/v1/jobs", Some((Kind::Job, "v1", None, None)));
        check("/apis/batch/v1/namespaces/a/jobs/", Some((Kind::Job, "v1", Some("a"), None)));
        check("/apis/batch/v1/namespaces/a/jobs/x%2dy", Some((Kind::Job, "v1", Some("a"), Some("x-y"))));
        check(
            "/apis/kueue.x-k8s.io/v1beta1/clusterqueues/q",
            Some((Kind::ClusterQueue, "v1beta1", None, Some("q"))),
        );
        for wrong in [
            "/",
            "/api/v1",
            "/apis/batch/v1",
            "/apis/batch/v2/jobs",
            "/apis/batch/v1/jobs/x",
            "/apis/batch/v1/namespaces/a/jobs/x/status",
            "/apis/batch/v1/namespaces/a//jobs",
            "/apis/kueue.x-k8s.io/v1beta2/namespaces/a/clusterqueues",
            "/apis/batch/v1/namespaces/a/jobs/%zz",
            "/apis/batch/v1/namespaces/a/jobs/%ff",
            "/apis/batch/v1/namespaces/a/jobs/%",
        ] {
            check(wrong, None);
        }
    }
}
