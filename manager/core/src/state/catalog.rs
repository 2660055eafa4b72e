//! Objects as people wrote them, and the questions that decisions ask of them.
//!
//! Everything that depends on the shape of an object is asked here, so that the rest of the core speaks of queues, flavors,
//! clusters and policies only.

use crate::facts::actor::Actor;
use crate::facts::key::{Key, Named};
use crate::facts::reason::NoRoute;
use crate::facts::submission::Class;
use meridian_objects::job::{SYSTEM_PRIORITIES, USUAL_PRIORITY_CLASS};
use meridian_objects::spec::multikueue::MULTIKUEUE_CONTROLLER;
use meridian_objects::spec::workload::ELASTIC_ANNOTATION;
use meridian_objects::spec::{
    AdmissionCheckSpec, ClusterQueueSpec, ClusterSpec, CohortSpec, DispatchPolicySpec, LimitRangeSpec,
    LocalQueueSpec, MultiKueueConfigSpec, ResidencyPolicySpec, ResourceFlavorSpec, RuntimeClassSpec,
    StopPolicy, TopologySpec,
};
use meridian_objects::{JobWorkload, Kind, Object, Spec};
use meridian_shared::ids::{ClusterName, RecordNumber, Uid};
use meridian_shared::time::Wall;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Cohorts above a queue whose statuses follow at once; also what ends the walk where they are their own ancestors.
const COHORTS_DEEP_MAX: usize = 32;

/// One stored object.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Stored {
    /// As applied.
    pub object: Arc<Object>,
    /// Its uid.
    pub uid: Uid,
    /// When it was created.
    pub created: Wall,
    /// Its newest record: the resourceVersion.
    pub changed: RecordNumber,
    /// The newest record that changed what its status counts.
    #[serde(default)]
    pub touched: RecordNumber,
    /// Grows with every change.
    pub generation: u64,
    /// Who changed it last.
    pub by: Actor,
}

/// All stored objects but the jobs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Catalog {
    #[serde(with = "pairs")]
    objects: BTreeMap<Key, Stored>,
}

impl Catalog {
    /// Every object, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&Key, &Stored)> {
        self.objects.iter()
    }

    /// One object.
    pub fn get(&self, key: &Key) -> Option<&Stored> {
        self.objects.get(key)
    }

    pub(crate) fn put(
        &mut self,
        key: Key,
        object: Object,
        uid: Uid,
        at: Wall,
        number: RecordNumber,
        by: Actor,
    ) {
        let (uid, created, generation, touched) = self
            .objects
            .get(&key)
            .map_or((uid, at, 1, number), |s| (s.uid, s.created, s.generation + 1, s.touched));
        self.objects.insert(
            key,
            Stored { object: Arc::new(object), uid, created, changed: number, touched, generation, by },
        );
    }

    fn touch(
        &mut self,
        kind: Kind,
        namespace: Option<&Arc<str>>,
        name: &str,
        number: RecordNumber,
    ) -> Option<Arc<Object>> {
        let key = (None, kind, namespace.map(|n| &**n), name);
        let stored = self.objects.get_mut(&key as &dyn Named)?;
        stored.touched = number;
        Some(Arc::clone(&stored.object))
    }

    /// What these queues count has changed: a local one, the cluster queue where it leads, and the one that is charged.
    pub(crate) fn touch_queues(
        &mut self,
        (namespace, name): (&Arc<str>, &str),
        charged: Option<&str>,
        number: RecordNumber,
    ) {
        let local = self.touch(Kind::LocalQueue, Some(namespace), name, number);
        let leads_to = match local.as_deref().map(|object| &object.spec) {
            Some(Spec::LocalQueue(spec)) => Some(spec.cluster_queue.as_str()),
            _ => None,
        };
        for queue in leads_to.into_iter().chain(charged.filter(|queue| leads_to != Some(*queue))) {
            self.touch_cluster_queue(queue, number);
        }
    }

    /// What a local queue shows has changed.
    pub(crate) fn touch_local_queue(&mut self, namespace: &Arc<str>, name: &str, number: RecordNumber) {
        self.touch(Kind::LocalQueue, Some(namespace), name, number);
    }

    /// What a cluster queue counts has changed, and with it the share of every cohort above.
    pub(crate) fn touch_cluster_queue(&mut self, name: &str, number: RecordNumber) {
        let mut object = self.touch(Kind::ClusterQueue, None, name, number);
        for _ in 0..COHORTS_DEEP_MAX {
            let above = match object.as_deref().map(|object| &object.spec) {
                Some(Spec::ClusterQueue(spec)) => spec.cohort.as_deref(),
                Some(Spec::Cohort(spec)) => spec.parent.as_deref(),
                _ => None,
            };
            let Some(name) = above else { return };
            object = self.touch(Kind::Cohort, None, name, number);
        }
    }

    pub(crate) fn remove(&mut self, key: &Key) {
        self.objects.remove(key);
    }

    fn spec(&self, kind: Kind, namespace: Option<&str>, name: &str) -> Option<(&Stored, &Spec)> {
        let key = (None, kind, namespace, name);
        self.objects.get(&key as &dyn Named).map(|s| (s, &s.object.spec))
    }

    /// Global objects of a kind. Keys are ordered by scope and kind first, so no others are looked at.
    fn all(&self, kind: Kind) -> impl Iterator<Item = (&Key, &Stored)> {
        let first = Key::global(kind, "");
        self.objects.range(first..).take_while(move |(k, _)| k.kind == kind && k.scope.is_none())
    }

    /// A cluster queue.
    pub fn cluster_queue(&self, name: &str) -> Option<&ClusterQueueSpec> {
        match self.spec(Kind::ClusterQueue, None, name)?.1 {
            Spec::ClusterQueue(spec) => Some(spec),
            _ => None,
        }
    }

    /// What a worker's own file says of this cluster queue: caps for that cluster.
    pub fn cap(&self, cluster: &ClusterName, queue: &str) -> Option<&ClusterQueueSpec> {
        let key = (Some(cluster.as_str()), Kind::ClusterQueue, None, queue);
        match &self.objects.get(&key as &dyn Named)?.object.spec {
            Spec::ClusterQueue(spec) => Some(spec),
            _ => None,
        }
    }

    /// A local queue.
    pub fn local_queue(&self, namespace: &str, name: &str) -> Option<&LocalQueueSpec> {
        match self.spec(Kind::LocalQueue, Some(namespace), name)?.1 {
            Spec::LocalQueue(spec) => Some(spec),
            _ => None,
        }
    }

    /// The cluster queue to which the local queue of a class leads; of no name where there is none.
    pub(crate) fn leads_to(&self, class: &Class) -> Arc<str> {
        self.local_queue(&class.namespace, &class.queue)
            .map_or_else(|| Arc::from(""), |queue| Arc::from(queue.cluster_queue.as_str()))
    }

    /// Every flavor.
    pub fn flavors(&self) -> impl Iterator<Item = (&Arc<str>, &ResourceFlavorSpec)> {
        self.all(Kind::ResourceFlavor).filter_map(|(key, stored)| match &stored.object.spec {
            Spec::ResourceFlavor(spec) => Some((&key.name, spec)),
            _ => None,
        })
    }

    /// Every cohort that is declared.
    pub fn cohorts(&self) -> impl Iterator<Item = (&Arc<str>, &CohortSpec)> {
        self.all(Kind::Cohort).filter_map(|(key, stored)| match &stored.object.spec {
            Spec::Cohort(spec) => Some((&key.name, spec)),
            _ => None,
        })
    }

    /// Every cluster queue.
    pub fn cluster_queues(&self) -> impl Iterator<Item = (&Arc<str>, &ClusterQueueSpec)> {
        self.all(Kind::ClusterQueue).filter_map(|(key, stored)| match &stored.object.spec {
            Spec::ClusterQueue(spec) => Some((&key.name, &**spec)),
            _ => None,
        })
    }

    /// Limit ranges of a namespace, by name.
    pub fn limit_ranges(&self, namespace: &str) -> Vec<LimitRangeSpec> {
        let ranges =
            self.all(Kind::LimitRange).filter(|(key, _)| key.namespace.as_deref() == Some(namespace));
        ranges
            .filter_map(|(_, stored)| {
                if let Spec::LimitRange(spec) = &stored.object.spec { Some(spec.clone()) } else { None }
            })
            .collect()
    }

    /// A runtime class.
    pub fn runtime_class(&self, name: &str) -> Option<&RuntimeClassSpec> {
        match self.spec(Kind::RuntimeClass, None, name)?.1 {
            Spec::RuntimeClass(spec) => Some(spec),
            _ => None,
        }
    }

    /// A cohort that is declared.
    pub fn cohort(&self, name: &str) -> Option<&CohortSpec> {
        match self.spec(Kind::Cohort, None, name)?.1 {
            Spec::Cohort(spec) => Some(spec),
            _ => None,
        }
    }

    /// Whether a cohort is above itself.
    pub fn cohort_is_its_ancestor(&self, name: &str) -> bool {
        let parents = self
            .cohorts()
            .map(|(name, spec)| (name.clone(), spec.parent.as_deref().map(Arc::from)))
            .collect();
        meridian_queueing::tree::cyclic(&parents).contains(name)
    }

    /// Cohorts above a cluster queue, the nearest first; of those that are their own ancestors each once.
    pub fn cohorts_above(&self, cluster_queue: &str) -> Vec<&str> {
        let mut above: Vec<&str> = Vec::new();
        let mut at = self.cluster_queue(cluster_queue).and_then(|spec| spec.cohort.as_deref());
        while let Some(name) = at.filter(|name| !above.contains(name)) {
            above.push(name);
            at = self.cohort(name).and_then(|spec| spec.parent.as_deref());
        }
        above
    }

    /// Every local queue, with namespace and name.
    pub fn local_queues(&self) -> impl Iterator<Item = (&Arc<str>, &Arc<str>, &LocalQueueSpec)> {
        self.all(Kind::LocalQueue).filter_map(|(key, stored)| match &stored.object.spec {
            Spec::LocalQueue(spec) => Some((key.namespace.as_ref()?, &key.name, spec)),
            _ => None,
        })
    }

    /// An admission check.
    pub fn admission_check(&self, name: &str) -> Option<&AdmissionCheckSpec> {
        match self.spec(Kind::AdmissionCheck, None, name)?.1 {
            Spec::AdmissionCheck(spec) => Some(spec),
            _ => None,
        }
    }

    /// A flavor.
    pub fn flavor(&self, name: &str) -> Option<&ResourceFlavorSpec> {
        match self.spec(Kind::ResourceFlavor, None, name)?.1 {
            Spec::ResourceFlavor(spec) => Some(spec),
            _ => None,
        }
    }

    /// Node labels of a topology's levels, the widest first.
    pub fn topology(&self, name: &str) -> Option<&TopologySpec> {
        match self.spec(Kind::Topology, None, name)?.1 {
            Spec::Topology(spec) => Some(spec),
            _ => None,
        }
    }

    /// A worker cluster.
    pub fn cluster(&self, name: &ClusterName) -> Option<&ClusterSpec> {
        match self.spec(Kind::Cluster, None, name.as_str())?.1 {
            Spec::Cluster(spec) => Some(spec),
            _ => None,
        }
    }

    /// Every worker cluster.
    pub fn clusters(&self) -> impl Iterator<Item = (ClusterName, &ClusterSpec)> {
        self.all(Kind::Cluster).filter_map(|(key, stored)| match &stored.object.spec {
            Spec::Cluster(spec) => Some((ClusterName::new(&key.name), &**spec)),
            _ => None,
        })
    }

    /// Every residency policy with its version.
    pub fn residency_policies(&self) -> impl Iterator<Item = (&str, RecordNumber, &ResidencyPolicySpec)> {
        self.all(Kind::ResidencyPolicy).filter_map(|(key, stored)| match &stored.object.spec {
            Spec::ResidencyPolicy(spec) => Some((&*key.name, stored.changed, &**spec)),
            _ => None,
        })
    }

    /// The dispatch policy for a cluster queue: one that names it beats one that says `*`; then by name.
    pub fn dispatch_policy(&self, cluster_queue: &str) -> Option<&DispatchPolicySpec> {
        let policies = || {
            self.all(Kind::DispatchPolicy).filter_map(|(_, stored)| match &stored.object.spec {
                Spec::DispatchPolicy(spec) => Some(&**spec),
                _ => None,
            })
        };
        let named = policies().find(|p| p.queues.iter().any(|q| q == cluster_queue));
        named.or_else(|| policies().find(|p| p.queues.iter().any(|q| q == "*")))
    }

    /// Labels of a namespace. One that nobody declared has its name only.
    pub fn namespace_labels(&self, namespace: &str) -> BTreeMap<String, String> {
        let mut labels = match self.spec(Kind::Namespace, None, namespace) {
            Some((_, Spec::Namespace(spec))) => spec.labels.clone(),
            _ => BTreeMap::new(),
        };
        labels.insert("kubernetes.io/metadata.name".into(), namespace.into());
        labels
    }

    /// The cluster queue that a job of this namespace and queue goes to.
    pub fn route(&self, namespace: &Arc<str>, queue: &Arc<str>) -> Result<Arc<str>, NoRoute> {
        let local = self
            .local_queue(namespace, queue)
            .ok_or_else(|| NoRoute::NoLocalQueue { namespace: namespace.clone(), queue: queue.clone() })?;
        let name = &local.cluster_queue;
        let spec = self
            .cluster_queue(name)
            .ok_or_else(|| NoRoute::NoClusterQueue { cluster_queue: name.clone() })?;
        if local.stop_policy != StopPolicy::None {
            return Err(NoRoute::Stopped { what: format!("local queue `{namespace}/{queue}`") });
        }
        if spec.stop_policy != StopPolicy::None {
            return Err(NoRoute::Stopped { what: format!("cluster queue `{name}`") });
        }
        self.selected(name, spec, namespace)?;
        Ok(Arc::from(name.as_str()))
    }

    /// Whether a cluster queue admits from a namespace.
    pub(crate) fn selected(
        &self,
        cluster_queue: &str,
        spec: &ClusterQueueSpec,
        namespace: &Arc<str>,
    ) -> Result<(), NoRoute> {
        match spec.namespace_selector.as_ref().is_some_and(|s| s.matches(&self.namespace_labels(namespace))) {
            true => Ok(()),
            false => Err(NoRoute::NamespaceNotSelected {
                cluster_queue: cluster_queue.to_owned(),
                namespace: namespace.clone(),
            }),
        }
    }

    /// A list of worker clusters.
    pub fn workers_config(&self, name: &str) -> Option<&MultiKueueConfigSpec> {
        match self.spec(Kind::MultiKueueConfig, None, name)?.1 {
            Spec::MultiKueueConfig(spec) => Some(spec),
            _ => None,
        }
    }

    /// The list of worker clusters that an admission check names, where it isn't there.
    pub(crate) fn missing_config_of(&self, check: &str) -> Option<&str> {
        let of_workers =
            self.admission_check(check).filter(|spec| spec.controller_name == MULTIKUEUE_CONTROLLER)?;
        let named = &of_workers.parameters.as_ref()?.name;
        self.workers_config(named).is_none().then_some(named)
    }

    /// The same of a cluster queue, with the check.
    pub(crate) fn missing_config(&self, cluster_queue: &str) -> Option<(&str, &str)> {
        let mut checks = self.cluster_queue(cluster_queue)?.admission_checks.iter();
        checks.find_map(|rule| Some((rule.name.as_str(), self.missing_config_of(&rule.name)?)))
    }

    /// Clusters that a cluster queue may use, in the order of its MultiKueueConfig; `None` when it names none, which means all.
    pub fn clusters_of(&self, cluster_queue: &str) -> Option<Vec<ClusterName>> {
        let spec = self.cluster_queue(cluster_queue)?;
        let mut listed: Option<Vec<ClusterName>> = None;
        for check in &spec.admission_checks {
            let Some((_, Spec::AdmissionCheck(check))) = self.spec(Kind::AdmissionCheck, None, &check.name)
            else {
                continue;
            };
            if check.controller_name != MULTIKUEUE_CONTROLLER {
                continue;
            }
            let Some(parameters) = &check.parameters else { continue };
            // A check whose configuration is missing allows no cluster: fail closed.
            let clusters =
                self.workers_config(&parameters.name).into_iter().flat_map(|config| &config.clusters);
            listed.get_or_insert_default().extend(clusters.cloned());
        }
        listed
    }

    /// The value of a workload priority class.
    pub fn workload_priority(&self, class: &str) -> Option<i64> {
        match self.spec(Kind::WorkloadPriorityClass, None, class)?.1 {
            Spec::WorkloadPriorityClass(spec) => Some(i64::from(spec.value)),
            _ => None,
        }
    }

    /// The workload priority class of a job that names this one, or none: then the one that is called `default`, where there is one.
    pub fn priority_class<'a>(&self, named: Option<&'a str>) -> Option<&'a str> {
        named.or_else(|| self.workload_priority(USUAL_PRIORITY_CLASS).map(|_| USUAL_PRIORITY_CLASS))
    }

    /// The priority of a job: that of its workload priority class or, failing that, of its pods' class. `None` where there is no
    /// such class.
    pub fn job_priority(&self, job: &JobWorkload) -> Option<i64> {
        match (self.priority_class(job.priority_class.as_deref()), job.pod_priority_class.as_deref()) {
            (Some(class), _) => self.workload_priority(class),
            (None, Some(class)) => self.pod_priority(class),
            (None, None) => Some(self.usual_pod_priority()),
        }
    }

    fn pod_priority(&self, class: &str) -> Option<i64> {
        match self.spec(Kind::PriorityClass, None, class) {
            Some((_, Spec::PriorityClass(spec))) => Some(i64::from(spec.value)),
            _ => SYSTEM_PRIORITIES.into_iter().find(|(name, _)| *name == class).map(|(_, value)| value),
        }
    }

    /// Of pods without a class. Of several classes for all the lowest counts, as in Kubernetes.
    fn usual_pod_priority(&self) -> i64 {
        let for_all = self.all(Kind::PriorityClass).filter_map(|(_, stored)| match &stored.object.spec {
            Spec::PriorityClass(spec) if spec.global_default => Some(i64::from(spec.value)),
            _ => None,
        });
        for_all.min().unwrap_or(0)
    }

    /// Whether an object of this kind says who may have how much, or which way leads to a queue.
    pub fn is_declaration(kind: Kind) -> bool {
        use Kind::{
            AdmissionCheck, ClusterQueue, Cohort, LocalQueue, MultiKueueConfig, Namespace, ResourceFlavor,
            Topology,
        };
        matches!(
            kind,
            ClusterQueue
                | Cohort
                | LocalQueue
                | ResourceFlavor
                | Topology
                | AdmissionCheck
                | MultiKueueConfig
                | Namespace
        )
    }

    /// Whether an object of this kind can change where workloads may go, or how much they may use.
    pub(crate) fn is_rule(kind: Kind) -> bool {
        match kind {
            Kind::ResidencyPolicy
            | Kind::ClusterQueue
            | Kind::Cohort
            | Kind::LocalQueue
            | Kind::ResourceFlavor
            | Kind::AdmissionCheck
            | Kind::MultiKueueConfig
            | Kind::Namespace
            | Kind::Cluster
            | Kind::DispatchPolicy
            | Kind::Topology
            | Kind::LimitRange
            | Kind::RuntimeClass => true,
            Kind::WorkloadPriorityClass
            | Kind::MultiKueueCluster
            | Kind::ProvisioningRequestConfig
            | Kind::Workload
            | Kind::Job
            | Kind::PriorityClass => false,
        }
    }

    /// Names of every cluster that any object speaks of: known ones, and those that files promise.
    pub fn promised_clusters(&self) -> BTreeSet<ClusterName> {
        let promised = self.all(Kind::MultiKueueCluster).map(|(k, _)| ClusterName::new(&k.name));
        promised.chain(self.clusters().map(|(name, _)| name)).collect()
    }
}

/// JSON keys are strings, so a map with other keys travels as a list of pairs.
pub(crate) mod pairs {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};
    use std::collections::BTreeMap;

    pub(crate) fn serialize<K: Serialize, V: Serialize, S: Serializer>(
        map: &BTreeMap<K, V>,
        s: S,
    ) -> Result<S::Ok, S::Error> {
        s.collect_seq(map)
    }

    pub(crate) fn deserialize<'de, K: Deserialize<'de> + Ord, V: Deserialize<'de>, D: Deserializer<'de>>(
        d: D,
    ) -> Result<BTreeMap<K, V>, D::Error> {
        Ok(Vec::<(K, V)>::deserialize(d)?.into_iter().collect())
    }
}

impl Catalog {
    /// Whether a job says that its number of pods may change.
    pub(crate) fn is_elastic(object: &Object) -> bool {
        object.annotations.get(ELASTIC_ANNOTATION).is_some_and(|value| value == "true")
    }
}
