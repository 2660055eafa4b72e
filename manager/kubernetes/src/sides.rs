//! The objects of both sides, as their watches show them.
//!
//! A group of pods is one object at the manager; the cluster has only its pods. The group's key is that of
//! the manager's object.

mod groups;
mod workloads;

use crate::pods;
use groups::Groups;
use meridian_objects::Kind;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use workloads::Stopped;

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

/// An event of a watch.
#[derive(Debug)]
pub(crate) enum News {
    ListBegins,
    Listed(Value),
    ListEnds,
    Applied(Value),
    Deleted(Value),
}

/// An object as JSON text, because a parsed value takes several times the memory, and most objects are rarely
/// needed.
#[derive(Debug)]
struct Packed(Box<str>);

impl Packed {
    fn of(object: &Value) -> Self {
        Self(object.to_string().into())
    }

    fn read(&self) -> Value {
        serde_json::from_str(&self.0).expect("a value that was written can be read")
    }
}

/// The objects of one kind on one side.
#[derive(Debug, Default)]
struct Objects {
    current: BTreeMap<ObjectKey, Packed>,
    /// Objects of a list that isn't complete yet.
    listing: Option<BTreeMap<ObjectKey, Packed>>,
    /// Whether a list was completed.
    is_complete: bool,
    /// Uids of the first complete list.
    first_list: BTreeSet<String>,
}

/// The known objects of both sides.
#[derive(Debug, Default)]
pub(crate) struct Sides {
    objects: BTreeMap<(Side, Kind), Objects>,
    /// Groups of the cluster's pods.
    groups: Groups,
    /// Jobs that are stopped by `spec.active: false` of the cluster's Workloads.
    stopped: Stopped,
    /// Like `stopped`, from a list that isn't complete yet.
    listed_stopped: Stopped,
}

/// One object as both sides have it.
#[derive(Debug)]
pub(crate) struct View {
    pub(crate) cluster: Option<Arc<Value>>,
    pub(crate) manager: Option<Arc<Value>>,
    /// For a group, one of its pods, or its Workload: the pods of the group that the manager takes, by name.
    pub(crate) members: Vec<Arc<Value>>,
    /// For a pod in a group: the group at the manager.
    pub(crate) group: Option<Arc<Value>>,
    /// Whether the cluster's first list had the object, or a pod of the group.
    pub(crate) existed: bool,
    /// For a job or a group: somebody stopped it by `spec.active: false` of its Workload.
    pub(crate) is_stopped: bool,
    /// For a Workload that only the cluster has: its job exists and is about to be submitted.
    pub(crate) awaits_job: bool,
}

impl Sides {
    /// Takes an event of a watch, and returns the objects to compare again.
    pub(crate) fn take(&mut self, side: Side, kind: Kind, news: News) -> Vec<ObjectKey> {
        let objects = self.objects.entry((side, kind)).or_default();
        let is_pod = (side, kind) == (Side::Cluster, Kind::Pod);
        let is_workload = (side, kind) == (Side::Cluster, Kind::Workload);
        let (key, before, after) = match news {
            News::ListBegins => {
                if is_workload {
                    self.listed_stopped = Stopped::default();
                }
                objects.listing = Some(BTreeMap::new());
                return Vec::new();
            }
            News::Listed(object) => {
                let key = ObjectKey::of(kind, &object);
                if is_workload {
                    self.listed_stopped.take(&key, Some(&object));
                }
                objects.listing.get_or_insert_default().insert(key, Packed::of(&without_managers(object)));
                return Vec::new();
            }
            News::ListEnds => {
                let listed = objects.listing.take().unwrap_or_default();
                if !objects.is_complete {
                    objects.first_list = listed.values().filter_map(|object| uid(&object.read())).collect();
                }
                objects.is_complete = true;
                let before = std::mem::replace(&mut objects.current, listed);
                if is_workload {
                    self.stopped = std::mem::take(&mut self.listed_stopped);
                }
                if is_pod {
                    self.regroup(&before);
                }
                let mut all: BTreeSet<ObjectKey> = before.into_keys().collect();
                all.extend(self.keys(side, kind).cloned());
                // also compare objects that only the other side has, because they may have been deleted here
                all.extend(self.others(side, kind));
                return all.into_iter().collect();
            }
            News::Applied(object) => {
                let (key, object) = (ObjectKey::of(kind, &object), without_managers(object));
                let before = objects.current.insert(key.clone(), Packed::of(&object));
                (key, before, Some(object))
            }
            News::Deleted(object) => {
                let key = ObjectKey::of(kind, &object);
                let before = objects.current.remove(&key);
                (key, before, None)
            }
        };
        let mut touched = vec![key.clone()];
        if is_pod {
            let before = before.map(|before| before.read());
            touched.extend(self.groups.take(&key, before.as_ref(), after.as_ref()));
        } else if is_workload {
            self.stopped.take(&key, after.as_ref());
        } else if kind == Kind::PodGroup {
            touched.extend(self.groups.pods(&key).cloned());
        }
        touched
    }

    /// Compares the groups with a new list of pods.
    fn regroup(&mut self, before: &BTreeMap<ObjectKey, Packed>) {
        let Some(pods) = self.objects.get(&(Side::Cluster, Kind::Pod)) else { return };
        for (key, pod) in before {
            let after = pods.current.get(key).map(Packed::read);
            self.groups.take(key, Some(&pod.read()), after.as_ref());
        }
        for (key, pod) in &pods.current {
            let before = before.get(key).map(Packed::read);
            self.groups.take(key, before.as_ref(), Some(&pod.read()));
        }
    }

    /// Keys of the objects with which a new list of a kind is compared. Pods and groups of pods are compared
    /// with each other's lists too.
    fn others(&self, side: Side, kind: Kind) -> Vec<ObjectKey> {
        if [Kind::Pod, Kind::PodGroup].contains(&kind) {
            let listed = LISTS_OF_PODS.iter().flat_map(|(side, kind)| self.keys(*side, *kind));
            return listed.chain(self.groups.keys()).cloned().collect();
        }
        let other = match side {
            Side::Cluster => Side::Manager,
            Side::Manager => Side::Cluster,
        };
        self.keys(other, kind).cloned().collect()
    }

    pub(crate) fn get(&self, side: Side, key: &ObjectKey) -> Option<Arc<Value>> {
        self.objects.get(&(side, key.kind))?.current.get(key).map(|object| Arc::new(object.read()))
    }

    /// An object as both sides have it; `None` while a list isn't complete. Nothing is missed then, because
    /// the end of a list triggers a comparison of every object.
    pub(crate) fn view(&self, key: &ObjectKey) -> Option<View> {
        if !self.is_complete(key.kind) {
            return None;
        }
        let (cluster, manager) = (self.get(Side::Cluster, key), self.get(Side::Manager, key));
        let group = match key.kind {
            Kind::PodGroup => Some(key.clone()),
            Kind::Pod => cluster.as_deref().and_then(groups::key),
            Kind::Workload => manager.as_deref().and_then(group_of_workload),
            _ => None,
        };
        let members: Vec<Arc<Value>> = group.iter().flat_map(|group| self.members(group)).collect();
        let (uids, kind) = match key.kind {
            Kind::PodGroup => (members.iter().filter_map(|pod| uid(pod)).collect(), Kind::Pod),
            kind => (cluster.as_deref().and_then(uid).into_iter().collect::<Vec<_>>(), kind),
        };
        let job_uid = match key.kind {
            Kind::PodGroup => Some(crate::groups::uid_of(&members)),
            _ => cluster.as_deref().and_then(uid),
        };
        let orphaned = cluster.as_deref().filter(|_| key.kind == Kind::Workload && manager.is_none());
        Some(View {
            is_stopped: job_uid.is_some_and(|uid| self.is_stopped(&key.namespace, &uid)),
            awaits_job: orphaned.is_some_and(|workload| self.awaits_job(workload)),
            existed: uids.is_empty() || uids.iter().any(|uid| self.was_in_first_list(kind, uid)),
            group: group.filter(|_| key.kind == Kind::Pod).and_then(|group| self.get(Side::Manager, &group)),
            cluster,
            manager,
            members,
        })
    }

    /// The pods of a group that the manager takes, by name.
    fn members(&self, group: &ObjectKey) -> impl Iterator<Item = Arc<Value>> {
        let pods = self.groups.pods(group).filter_map(|key| self.get(Side::Cluster, key));
        pods.filter(|pod| pods::is_taken(pod))
    }

    /// All objects of a kind on one side.
    pub(crate) fn keys(&self, side: Side, kind: Kind) -> impl Iterator<Item = &ObjectKey> {
        self.objects.get(&(side, kind)).into_iter().flat_map(|objects| objects.current.keys())
    }

    /// Whether both sides were listed, so that a missing object is known to be missing.
    pub(crate) fn is_complete(&self, kind: Kind) -> bool {
        let both = [(Side::Cluster, kind), (Side::Manager, kind)];
        let lists = if [Kind::Pod, Kind::PodGroup].contains(&kind) { &LISTS_OF_PODS[..] } else { &both[..] };
        lists.iter().all(|list| self.objects.get(list).is_some_and(|objects| objects.is_complete))
    }

    /// Whether the cluster's first complete list of the kind had this uid.
    fn was_in_first_list(&self, kind: Kind, uid: &str) -> bool {
        self.objects.get(&(Side::Cluster, kind)).is_none_or(|objects| objects.first_list.contains(uid))
    }
}

/// The lists that must be complete before a pod or a group counts as missing.
const LISTS_OF_PODS: [(Side, Kind); 3] =
    [(Side::Cluster, Kind::Pod), (Side::Manager, Kind::Pod), (Side::Manager, Kind::PodGroup)];

/// The group that a Workload of the manager belongs to.
fn group_of_workload(workload: &Value) -> Option<ObjectKey> {
    let metadata = &workload["metadata"];
    let owner = metadata["ownerReferences"].as_array()?.first()?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    (owner["kind"] == Kind::PodGroup.name()).then(|| ObjectKey {
        kind: Kind::PodGroup,
        namespace: text(&metadata["namespace"]),
        name: text(&owner["name"]),
    })
}

pub(crate) fn uid(object: &Value) -> Option<String> {
    object["metadata"]["uid"].as_str().map(str::to_owned)
}

/// Removes the list of field managers, which is longer than most objects and isn't needed here.
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

    fn pod(name: &str, group: &str) -> Value {
        let mut pod = json!({"metadata": {"namespace": "team", "name": name, "uid": format!("uid-{name}"),
            "labels": {"kueue.x-k8s.io/queue-name": "main"}},
            "spec": {"schedulingGates": [{"name": "kueue.x-k8s.io/admission"}]}});
        if !group.is_empty() {
            pod["metadata"]["labels"]["kueue.x-k8s.io/pod-group-name"] = json!(group);
        }
        pod
    }

    #[test]
    fn a_group_is_looked_at_when_its_pods_change_and_its_pods_when_it_does() {
        let mut sides = Sides::default();
        let group = ObjectKey::of(Kind::PodGroup, &json!({"metadata": {"namespace": "team", "name": "g"}}));
        let names = |keys: Vec<ObjectKey>| -> Vec<String> { keys.iter().map(ToString::to_string).collect() };
        sides.take(Side::Cluster, Kind::Pod, News::ListBegins);
        sides.take(Side::Cluster, Kind::Pod, News::Listed(pod("a", "g")));
        let touched = sides.take(Side::Cluster, Kind::Pod, News::ListEnds);
        assert_eq!(names(touched), ["Pod team/a", "PodGroup team/g"]);
        assert!(sides.view(&group).is_none(), "the manager was not listed");
        for kind in [Kind::Pod, Kind::PodGroup] {
            sides.take(Side::Manager, kind, News::ListBegins);
            let touched = sides.take(Side::Manager, kind, News::ListEnds);
            assert_eq!(names(touched), ["Pod team/a", "PodGroup team/g"], "each list completes the others");
        }
        let touched = sides.take(Side::Cluster, Kind::Pod, News::Applied(pod("b", "g")));
        assert_eq!(names(touched), ["Pod team/b", "PodGroup team/g"]);
        let view = sides.view(&group).unwrap();
        assert_eq!((view.members.len(), view.existed), (2, true), "one of the pods was in the first list");
        let mut status = pod("b", "g");
        status["status"] = json!({"phase": "Running"});
        let touched = sides.take(Side::Cluster, Kind::Pod, News::Applied(status));
        assert_eq!(names(touched), ["Pod team/b"], "a status makes no difference to a group");
        let held = json!({"metadata": {"namespace": "team", "name": "g"}});
        let touched = sides.take(Side::Manager, Kind::PodGroup, News::Applied(held));
        assert_eq!(names(touched), ["PodGroup team/g", "Pod team/a", "Pod team/b"]);
        let view = sides.view(&ObjectKey::of(Kind::Pod, &pod("b", "g"))).unwrap();
        assert!(view.group.is_some() && view.manager.is_none() && !view.existed);
        sides.take(Side::Cluster, Kind::Pod, News::Applied(pod("b", "")));
        let touched = sides.take(Side::Cluster, Kind::Pod, News::Deleted(pod("a", "g")));
        assert_eq!(names(touched), ["Pod team/a", "PodGroup team/g"]);
        assert!(sides.view(&group).unwrap().members.is_empty());
    }
}
