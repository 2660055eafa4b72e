//! Stored objects, and typed queries over them.
//!
//! Only this module looks into objects. The rest of the core gets queues, flavors, clusters and policies.

use crate::facts::actor::Actor;
use crate::facts::key::{Key, Named};
use crate::facts::reason::NoRoute;
use crate::facts::submission::Class;
use meridian_objects::job::{SYSTEM_PRIORITIES, USUAL_PRIORITY_CLASS};
use meridian_objects::spec::multikueue::MULTIKUEUE_CONTROLLER;
use meridian_objects::spec::{
    AdmissionCheckSpec, ClusterQueueSpec, ClusterSpec, CohortSpec, DispatchPolicySpec, LimitRangeSpec,
    LocalQueueSpec, MultiKueueConfigSpec, ResidencyPolicySpec, ResourceFlavorSpec, RuntimeClassSpec,
    StopPolicy, TopologySpec,
};
use meridian_objects::{JobWorkload, Kind, Object, Spec, any_job};
use meridian_shared::ids::{ClusterName, RecordNumber, Uid};
use meridian_shared::time::Wall;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Most cohorts above a cluster queue whose statuses are touched with it. Ends the walk if cohorts form a
/// cycle.
const COHORTS_DEEP_MAX: usize = 32;

#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Stored {
    pub object: Arc<Object>,
    pub uid: Uid,
    pub created: Wall,
    /// Record of the newest change of the object.
    pub changed: RecordNumber,
    /// Record of the newest change of what the object's status shows.
    #[serde(default)]
    pub touched: RecordNumber,
    /// Counts changes of the object, from 1.
    pub generation: u64,
    /// The user of the newest change. An operator's cordon of an object of the management cluster doesn't
    /// count: that cluster stays the owner.
    pub by: Actor,
}

/// All stored objects except jobs, which are workloads.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Catalog {
    #[serde(with = "crate::state::pairs")]
    objects: BTreeMap<Key, Stored>,
}

impl Catalog {
    /// In the order of keys.
    pub fn iter(&self) -> impl Iterator<Item = (&Key, &Stored)> {
        self.objects.iter()
    }

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

    /// Notes that the statuses of a local queue, of the cluster queue that it points to, and of the charged
    /// cluster queue changed.
    pub(crate) fn touch_queues(
        &mut self,
        (namespace, name): (&Arc<str>, &str),
        charged: Option<&str>,
        number: RecordNumber,
    ) {
        let local = self.touch(Kind::LocalQueue, Some(namespace), name, number);
        let points_to = match local.as_deref().map(|object| &object.spec) {
            Some(Spec::LocalQueue(spec)) => Some(spec.cluster_queue.as_str()),
            _ => None,
        };
        for queue in points_to.into_iter().chain(charged.filter(|queue| points_to != Some(*queue))) {
            self.touch_cluster_queue(queue, number);
        }
    }

    /// Notes that the status of a local queue changed.
    pub(crate) fn touch_local_queue(&mut self, namespace: &Arc<str>, name: &str, number: RecordNumber) {
        self.touch(Kind::LocalQueue, Some(namespace), name, number);
    }

    /// Notes that the status of a cluster queue changed, and the share of every cohort above it.
    pub(crate) fn touch_cluster_queue(&mut self, name: &str, number: RecordNumber) {
        let mut object = self.touch(Kind::ClusterQueue, None, name, number);
        for _ in 0..COHORTS_DEEP_MAX {
            let parent = match object.as_deref().map(|object| &object.spec) {
                Some(Spec::ClusterQueue(spec)) => spec.cohort.as_deref(),
                Some(Spec::Cohort(spec)) => spec.parent.as_deref(),
                _ => None,
            };
            let Some(name) = parent else { return };
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

    /// Global objects of a kind. Visits no others, because keys are ordered by scope and kind first.
    pub(crate) fn all(&self, kind: Kind) -> impl Iterator<Item = (&Key, &Stored)> {
        let first = Key::global(kind, "");
        self.objects.range(first..).take_while(move |(k, _)| k.kind == kind && k.scope.is_none())
    }

    pub fn cluster_queue(&self, name: &str) -> Option<&ClusterQueueSpec> {
        match self.spec(Kind::ClusterQueue, None, name)?.1 {
            Spec::ClusterQueue(spec) => Some(spec),
            _ => None,
        }
    }

    /// The cluster queue as it was applied for one worker cluster: its quotas cap what the queue may use
    /// there.
    pub fn cap(&self, cluster: &ClusterName, queue: &str) -> Option<&ClusterQueueSpec> {
        let key = (Some(cluster.as_str()), Kind::ClusterQueue, None, queue);
        match &self.objects.get(&key as &dyn Named)?.object.spec {
            Spec::ClusterQueue(spec) => Some(spec),
            _ => None,
        }
    }

    pub fn local_queue(&self, namespace: &str, name: &str) -> Option<&LocalQueueSpec> {
        match self.spec(Kind::LocalQueue, Some(namespace), name)?.1 {
            Spec::LocalQueue(spec) => Some(spec),
            _ => None,
        }
    }

    /// Name of the cluster queue that the local queue of a class points to; empty if the local queue doesn't
    /// exist.
    pub(crate) fn leads_to(&self, class: &Class) -> Arc<str> {
        self.local_queue(&class.namespace, &class.queue)
            .map_or_else(|| Arc::from(""), |queue| Arc::from(queue.cluster_queue.as_str()))
    }

    pub fn flavors(&self) -> impl Iterator<Item = (&Arc<str>, &ResourceFlavorSpec)> {
        self.all(Kind::ResourceFlavor).filter_map(|(key, stored)| match &stored.object.spec {
            Spec::ResourceFlavor(spec) => Some((&key.name, spec)),
            _ => None,
        })
    }

    /// Cohorts that have an object. A cohort exists without one if a cluster queue names it.
    pub fn cohorts(&self) -> impl Iterator<Item = (&Arc<str>, &CohortSpec)> {
        self.all(Kind::Cohort).filter_map(|(key, stored)| match &stored.object.spec {
            Spec::Cohort(spec) => Some((&key.name, spec)),
            _ => None,
        })
    }

    pub fn cluster_queues(&self) -> impl Iterator<Item = (&Arc<str>, &ClusterQueueSpec)> {
        self.all(Kind::ClusterQueue).filter_map(|(key, stored)| match &stored.object.spec {
            Spec::ClusterQueue(spec) => Some((&key.name, &**spec)),
            _ => None,
        })
    }

    /// Limit ranges of a namespace, in the order of their names.
    pub fn limit_ranges(&self, namespace: &str) -> Vec<LimitRangeSpec> {
        let ranges =
            self.all(Kind::LimitRange).filter(|(key, _)| key.namespace.as_deref() == Some(namespace));
        ranges
            .filter_map(|(_, stored)| {
                if let Spec::LimitRange(spec) = &stored.object.spec { Some(spec.clone()) } else { None }
            })
            .collect()
    }

    pub fn runtime_class(&self, name: &str) -> Option<&RuntimeClassSpec> {
        match self.spec(Kind::RuntimeClass, None, name)?.1 {
            Spec::RuntimeClass(spec) => Some(spec),
            _ => None,
        }
    }

    /// `None` for a cohort without an object, see [`Self::cohorts`].
    pub fn cohort(&self, name: &str) -> Option<&CohortSpec> {
        match self.spec(Kind::Cohort, None, name)?.1 {
            Spec::Cohort(spec) => Some(spec),
            _ => None,
        }
    }

    /// Whether the parents of a cohort lead back to it.
    pub fn cohort_is_its_ancestor(&self, name: &str) -> bool {
        let parents = self
            .cohorts()
            .map(|(name, spec)| (name.clone(), spec.parent.as_deref().map(Arc::from)))
            .collect();
        meridian_queueing::quota::cyclic(&parents).contains(name)
    }

    /// Cohorts above a cluster queue, the nearest first. In a cycle of cohorts, each is listed once.
    pub fn cohorts_above(&self, cluster_queue: &str) -> Vec<&str> {
        let mut above: Vec<&str> = Vec::new();
        let mut next = self.cluster_queue(cluster_queue).and_then(|spec| spec.cohort.as_deref());
        while let Some(name) = next.filter(|name| !above.contains(name)) {
            above.push(name);
            next = self.cohort(name).and_then(|spec| spec.parent.as_deref());
        }
        above
    }

    /// Namespace, name and spec of every local queue.
    pub fn local_queues(&self) -> impl Iterator<Item = (&Arc<str>, &Arc<str>, &LocalQueueSpec)> {
        self.all(Kind::LocalQueue).filter_map(|(key, stored)| match &stored.object.spec {
            Spec::LocalQueue(spec) => Some((key.namespace.as_ref()?, &key.name, spec)),
            _ => None,
        })
    }

    pub fn admission_check(&self, name: &str) -> Option<&AdmissionCheckSpec> {
        match self.spec(Kind::AdmissionCheck, None, name)?.1 {
            Spec::AdmissionCheck(spec) => Some(spec),
            _ => None,
        }
    }

    pub fn flavor(&self, name: &str) -> Option<&ResourceFlavorSpec> {
        match self.spec(Kind::ResourceFlavor, None, name)?.1 {
            Spec::ResourceFlavor(spec) => Some(spec),
            _ => None,
        }
    }

    /// A topology: node labels of its levels, the widest first.
    pub fn topology(&self, name: &str) -> Option<&TopologySpec> {
        match self.spec(Kind::Topology, None, name)?.1 {
            Spec::Topology(spec) => Some(spec),
            _ => None,
        }
    }

    pub fn cluster(&self, name: &ClusterName) -> Option<&ClusterSpec> {
        match self.spec(Kind::Cluster, None, name.as_str())?.1 {
            Spec::Cluster(spec) => Some(spec),
            _ => None,
        }
    }

    pub fn clusters(&self) -> impl Iterator<Item = (ClusterName, &ClusterSpec)> {
        self.all(Kind::Cluster).filter_map(|(key, stored)| match &stored.object.spec {
            Spec::Cluster(spec) => Some((ClusterName::new(&key.name), &**spec)),
            _ => None,
        })
    }

    /// Name, version and spec of every residency policy.
    pub fn residency_policies(&self) -> impl Iterator<Item = (&str, RecordNumber, &ResidencyPolicySpec)> {
        self.all(Kind::ResidencyPolicy).filter_map(|(key, stored)| match &stored.object.spec {
            Spec::ResidencyPolicy(spec) => Some((&*key.name, stored.changed, &**spec)),
            _ => None,
        })
    }

    /// The dispatch policy for a cluster queue. A policy that names the queue takes precedence over a policy
    /// for `*`; among equals, the first by name.
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

    /// Labels of a namespace. A namespace without an object has only the label with its name.
    pub fn namespace_labels(&self, namespace: &str) -> BTreeMap<String, String> {
        let mut labels = match self.spec(Kind::Namespace, None, namespace) {
            Some((_, Spec::Namespace(spec))) => spec.labels.clone(),
            _ => BTreeMap::new(),
        };
        labels.insert("kubernetes.io/metadata.name".into(), namespace.into());
        labels
    }

    /// The cluster queue that admits jobs of this namespace and local queue. Fails if a queue doesn't exist
    /// or is stopped, or if the cluster queue doesn't select the namespace.
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

    /// Fails if the namespace selector of a cluster queue doesn't match the namespace.
    pub fn selected(
        &self,
        cluster_queue: &str,
        spec: &ClusterQueueSpec,
        namespace: &Arc<str>,
    ) -> Result<(), NoRoute> {
        let Some(selector) = &spec.namespace_selector else {
            return Err(NoRoute::SelectsNoNamespace { cluster_queue: cluster_queue.to_owned() });
        };
        match selector.matches(&self.namespace_labels(namespace)) {
            true => Ok(()),
            false => Err(NoRoute::NamespaceNotSelected {
                cluster_queue: cluster_queue.to_owned(),
                namespace: namespace.clone(),
            }),
        }
    }

    pub fn workers_config(&self, name: &str) -> Option<&MultiKueueConfigSpec> {
        match self.spec(Kind::MultiKueueConfig, None, name)?.1 {
            Spec::MultiKueueConfig(spec) => Some(spec),
            _ => None,
        }
    }

    /// Name of the MultiKueueConfig that an admission check refers to, if that config doesn't exist.
    pub(crate) fn missing_config_of(&self, check: &str) -> Option<&str> {
        let multikueue =
            self.admission_check(check).filter(|spec| spec.controller_name == MULTIKUEUE_CONTROLLER)?;
        let config = &multikueue.parameters.as_ref()?.name;
        self.workers_config(config).is_none().then_some(config)
    }

    /// The first admission check of a cluster queue with a missing MultiKueueConfig, and the name of that
    /// config.
    pub fn missing_config(&self, cluster_queue: &str) -> Option<(&str, &str)> {
        let mut checks = self.cluster_queue(cluster_queue)?.admission_checks.iter();
        checks.find_map(|rule| Some((rule.name.as_str(), self.missing_config_of(&rule.name)?)))
    }

    /// Clusters that a cluster queue may use, in the order of its MultiKueueConfig. `None` if the queue names
    /// no config: then it may use all clusters.
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
            // Fail closed: a check with a missing config allows no cluster.
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

    /// The workload priority class that applies to a job: the one that the job names, otherwise the one
    /// called `default` if that exists.
    pub fn priority_class<'a>(&self, named: Option<&'a str>) -> Option<&'a str> {
        named.or_else(|| self.workload_priority(USUAL_PRIORITY_CLASS).map(|_| USUAL_PRIORITY_CLASS))
    }

    /// The priority of a job: the value of its workload priority class or, if none applies, of its pods'
    /// priority class. `None` if that class doesn't exist.
    pub fn job_priority(&self, job: &JobWorkload) -> Option<i64> {
        match (self.priority_class(job.priority_class.as_deref()), job.pod_priority_class.as_deref()) {
            (Some(class), _) => self.workload_priority(class),
            (None, Some(class)) => self.pod_priority(class),
            (None, None) => Some(self.default_pod_priority()),
        }
    }

    fn pod_priority(&self, class: &str) -> Option<i64> {
        match self.spec(Kind::PriorityClass, None, class) {
            Some((_, Spec::PriorityClass(spec))) => Some(i64::from(spec.value)),
            _ => SYSTEM_PRIORITIES.into_iter().find(|(name, _)| *name == class).map(|(_, value)| value),
        }
    }

    /// Priority of pods without a priority class: the value of the class that is the global default. If
    /// several are, the lowest value counts, as in Kubernetes.
    fn default_pod_priority(&self) -> i64 {
        let defaults = self.all(Kind::PriorityClass).filter_map(|(_, stored)| match &stored.object.spec {
            Spec::PriorityClass(spec) if spec.global_default => Some(i64::from(spec.value)),
            _ => None,
        });
        defaults.min().unwrap_or(0)
    }

    /// Whether objects of this kind configure quotas, queue routes or the order of flavors.
    pub fn is_declaration(kind: Kind) -> bool {
        use Kind::{
            AdmissionCheck, Cluster, ClusterQueue, Cohort, DispatchPolicy, LocalQueue, MultiKueueConfig,
            Namespace, ResourceFlavor, Topology,
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
                | DispatchPolicy
                | Cluster
        )
    }

    /// Whether objects of this kind can change where workloads may run, or how much they may use.
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
            | any_job!()
            | Kind::PriorityClass
            | Kind::Role
            | Kind::ClusterRole
            | Kind::RoleBinding
            | Kind::ClusterRoleBinding => false,
        }
    }

    /// Names of clusters that have a Cluster or a MultiKueueCluster object, joined or not.
    pub fn promised_clusters(&self) -> BTreeSet<ClusterName> {
        let promised = self.all(Kind::MultiKueueCluster).map(|(k, _)| ClusterName::new(&k.name));
        promised.chain(self.clusters().map(|(name, _)| name)).collect()
    }
}
