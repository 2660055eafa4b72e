//! The objects of both sides, as their watches show them.

use meridian_objects::Kind;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Names one object. Both sides use the same names.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ObjectKey {
    pub(crate) kind: Kind,
    /// Empty for a kind without namespaces.
    pub(crate) namespace: String,
    pub(crate) name: String,
}

impl ObjectKey {
    pub(crate) fn of(kind: Kind, object: &Value) -> Self {
        let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
        Self { kind, namespace: text("namespace"), name: text("name") }
    }
}

impl std::fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.namespace.as_str() {
            "" => write!(f, "{} {}", self.kind, self.name),
            namespace => write!(f, "{} {namespace}/{}", self.kind, self.name),
        }
    }
}

/// One of the two API servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Side {
    Cluster,
    Manager,
}

impl Side {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Cluster => "management cluster",
            Self::Manager => "manager",
        }
    }
}

/// News of a watch.
#[derive(Debug)]
pub(crate) enum News {
    ListBegins,
    Listed(Value),
    ListEnds,
    Applied(Value),
    Deleted(Value),
}

/// The objects of one kind on one side.
#[derive(Debug, Default)]
struct Objects {
    current: BTreeMap<ObjectKey, Arc<Value>>,
    /// Objects of a list that isn't complete yet.
    listing: Option<BTreeMap<ObjectKey, Arc<Value>>>,
    /// Whether a list was completed.
    is_complete: bool,
    /// Uids of the first complete list.
    first_list: BTreeSet<String>,
}

/// Everything that was seen of both sides.
#[derive(Debug, Default)]
pub(crate) struct Sides(BTreeMap<(Side, Kind), Objects>);

impl Sides {
    /// Takes news, and returns the objects that may differ now.
    pub(crate) fn take(&mut self, side: Side, kind: Kind, news: News) -> Vec<ObjectKey> {
        let objects = self.0.entry((side, kind)).or_default();
        match news {
            News::ListBegins => {
                objects.listing = Some(BTreeMap::new());
                Vec::new()
            }
            News::Listed(object) => {
                let key = ObjectKey::of(kind, &object);
                objects.listing.get_or_insert_default().insert(key, Arc::new(without_managers(object)));
                Vec::new()
            }
            News::ListEnds => {
                let listed = objects.listing.take().unwrap_or_default();
                if !objects.is_complete {
                    objects.first_list = listed.values().filter_map(|object| uid(object)).collect();
                }
                objects.is_complete = true;
                let before = std::mem::replace(&mut objects.current, listed);
                let mut all: BTreeSet<ObjectKey> = before.into_keys().collect();
                all.extend(objects.current.keys().cloned());
                // what the other side alone has may have been deleted here
                all.extend(self.others(side, kind));
                all.into_iter().collect()
            }
            News::Applied(object) => {
                let key = ObjectKey::of(kind, &object);
                objects.current.insert(key.clone(), Arc::new(without_managers(object)));
                vec![key]
            }
            News::Deleted(object) => {
                let key = ObjectKey::of(kind, &object);
                objects.current.remove(&key);
                vec![key]
            }
        }
    }

    fn others(&self, side: Side, kind: Kind) -> Vec<ObjectKey> {
        let other = match side {
            Side::Cluster => Side::Manager,
            Side::Manager => Side::Cluster,
        };
        self.0
            .get(&(other, kind))
            .map(|objects| objects.current.keys().cloned().collect())
            .unwrap_or_default()
    }

    pub(crate) fn get(&self, side: Side, key: &ObjectKey) -> Option<Arc<Value>> {
        self.0.get(&(side, key.kind))?.current.get(key).cloned()
    }

    /// All objects of a kind on one side.
    pub(crate) fn keys(&self, side: Side, kind: Kind) -> impl Iterator<Item = &ObjectKey> {
        self.0.get(&(side, kind)).into_iter().flat_map(|objects| objects.current.keys())
    }

    /// Whether both sides were listed, so that a missing object is known to be missing.
    pub(crate) fn is_complete(&self, kind: Kind) -> bool {
        [Side::Cluster, Side::Manager]
            .iter()
            .all(|side| self.0.get(&(*side, kind)).is_some_and(|objects| objects.is_complete))
    }

    /// Whether the cluster's first complete list of the kind had this uid.
    pub(crate) fn was_in_first_list(&self, kind: Kind, uid: &str) -> bool {
        self.0.get(&(Side::Cluster, kind)).is_none_or(|objects| objects.first_list.contains(uid))
    }
}

pub(crate) fn uid(object: &Value) -> Option<String> {
    object["metadata"]["uid"].as_str().map(str::to_owned)
}

/// The list of field managers is longer than most objects, and nothing here needs it.
fn without_managers(mut object: Value) -> Value {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
    object
}

#[cfg(test)]
mod tests {
    use super::*;
    use meridian_objects::job::SUBMITTED_KIND;
    use serde_json::json;

    fn job(name: &str) -> Value {
        json!({"metadata": {"namespace": "team", "name": name, "uid": format!("uid-{name}")}})
    }

    #[test]
    fn objects_that_a_new_list_lacks_are_reported() {
        let (mut sides, kind) = (Sides::default(), SUBMITTED_KIND);
        for news in [News::ListBegins, News::Listed(job("a")), News::Listed(job("b")), News::ListEnds] {
            sides.take(Side::Cluster, kind, news);
        }
        assert!(!sides.is_complete(kind), "the manager was not listed");
        sides.take(Side::Manager, kind, News::ListBegins);
        sides.take(Side::Manager, kind, News::Listed(job("c")));
        let touched = sides.take(Side::Manager, kind, News::ListEnds);
        let names = |keys: &[ObjectKey]| keys.iter().map(|key| key.name.clone()).collect::<Vec<_>>();
        assert_eq!(names(&touched), ["a", "b", "c"]);
        assert!(sides.is_complete(kind));
        sides.take(Side::Cluster, kind, News::ListBegins);
        sides.take(Side::Cluster, kind, News::Listed(job("b")));
        let a = ObjectKey::of(kind, &job("a"));
        assert!(sides.get(Side::Cluster, &a).is_some(), "a list that is not complete says nothing");
        assert_eq!(names(&sides.take(Side::Cluster, kind, News::ListEnds)), ["a", "b", "c"]);
        assert!(sides.get(Side::Cluster, &a).is_none());
    }

    #[test]
    fn only_the_first_list_tells_what_is_old() {
        let (mut sides, kind) = (Sides::default(), SUBMITTED_KIND);
        assert!(sides.was_in_first_list(kind, "uid-a"), "nothing was listed, so nothing is known to be new");
        for news in [News::ListBegins, News::Listed(job("a")), News::ListEnds, News::Applied(job("b"))] {
            sides.take(Side::Cluster, kind, news);
        }
        for news in [News::ListBegins, News::Listed(job("a")), News::Listed(job("b")), News::ListEnds] {
            sides.take(Side::Cluster, kind, news);
        }
        assert!(sides.was_in_first_list(kind, "uid-a") && !sides.was_in_first_list(kind, "uid-b"));
    }
}
