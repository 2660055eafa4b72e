use meridian_objects::Kind;
use meridian_shared::ids::ClusterName;
use serde::{Deserialize, Serialize};
use std::borrow::Borrow;
use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

/// Name of one object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Key {
    /// Set for an object that configures one worker cluster only (`apply --cluster NAME`). A global object of
    /// the same kind and name may exist as well.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<ClusterName>,
    pub kind: Kind,
    /// `None` for kinds without namespaces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<Arc<str>>,
    pub name: Arc<str>,
}

impl Key {
    pub fn namespaced(kind: Kind, namespace: &str, name: &str) -> Self {
        Self { scope: None, kind, namespace: Some(Arc::from(namespace)), name: Arc::from(name) }
    }

    /// Key of an object without a namespace.
    pub fn global(kind: Kind, name: &str) -> Self {
        Self { scope: None, kind, namespace: None, name: Arc::from(name) }
    }
}

impl Named for Key {
    fn parts(&self) -> (Option<&str>, Kind, Option<&str>, &str) {
        (self.scope.as_ref().map(ClusterName::as_str), self.kind, self.namespace.as_deref(), &self.name)
    }
}

impl<'a> Borrow<dyn Named + 'a> for Key {
    fn borrow(&self) -> &(dyn Named + 'a) {
        self
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} `", self.kind)?;
        if let Some(namespace) = &self.namespace {
            write!(f, "{namespace}/")?;
        }
        write!(f, "{}`", self.name)?;
        if let Some(scope) = &self.scope {
            write!(f, " of cluster `{scope}`")?;
        }
        Ok(())
    }
}

/// The parts of a key, in its sort order. Used to search maps by [`Key`] without building a key.
pub(crate) trait Named {
    fn parts(&self) -> (Option<&str>, Kind, Option<&str>, &str);
}

impl Named for (Option<&str>, Kind, Option<&str>, &str) {
    fn parts(&self) -> (Option<&str>, Kind, Option<&str>, &str) {
        *self
    }
}

impl PartialEq for dyn Named + '_ {
    fn eq(&self, other: &Self) -> bool {
        self.parts() == other.parts()
    }
}

impl Eq for dyn Named + '_ {}

impl PartialOrd for dyn Named + '_ {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for dyn Named + '_ {
    fn cmp(&self, other: &Self) -> Ordering {
        self.parts().cmp(&other.parts())
    }
}
