//! Pod templates, as Jobs, Workloads and Pods have them, and the requests of one pod.
//!
//! Effective requests follow the Kubernetes scheduler: the larger of the sum over all containers, and the
//! needs of any init container while it runs. Restartable init containers (sidecars) keep running and count
//! with everything after them. The pod's overhead is added. A limit is also the request if no request is
//! written. Requests of the whole pod, if written, replace the sum for cpu, memory and huge pages; they can't
//! be below the sum. [`crate::requests`] adds the defaults of namespace and runtime class.

mod container_schema;
mod read;
mod rules;
mod schema;
mod volume_schema;

pub(crate) use read::{read_container_resources, read_placement, read_spec, read_submitted, read_template};
pub(crate) use schema::{POD_SPEC, TEMPLATE};

use meridian_shared::gang::{Amounts, Requirement, Toleration, add_scaled};
use std::collections::BTreeMap;

/// Requests and limits as written, without replacing a missing request by the limit.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Resources {
    pub requests: Amounts,
    pub limits: Amounts,
}

impl Resources {
    /// Requests, with limits where no request is written.
    pub fn asked(&self) -> Amounts {
        let mut asked = self.requests.clone();
        for (resource, limit) in &self.limits {
            asked.entry(resource.clone()).or_insert(*limit);
        }
        asked
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Container {
    pub name: String,
    pub resources: Resources,
    /// Whether it has a `command`.
    pub has_command: bool,
    /// Whether it has an `image`.
    pub has_image: bool,
    /// For an init container: whether it keeps running (`restartPolicy: Always`).
    pub sidecar: bool,
}

/// Facts about the pods of one template that scheduling uses.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodTemplate {
    pub labels: BTreeMap<String, String>,
    pub annotations: BTreeMap<String, String>,
    /// Without init containers.
    pub containers: Vec<Container>,
    /// In the order in which they run.
    pub init_containers: Vec<Container>,
    /// Requests and limits of the pod as a whole, where written.
    pub whole_pod: Option<Resources>,
    /// Resources that a pod uses in addition to its containers.
    pub overhead: Amounts,
    pub runtime_class: Option<String>,
    pub priority_class: Option<String>,
    pub node_selector: BTreeMap<String, String>,
    /// Required node affinity: terms are ORed, requirements within a term ANDed. Empty requires nothing.
    pub affinity: Vec<Vec<Requirement>>,
    pub tolerations: Vec<Toleration>,
    /// The node that the pod names directly.
    pub node_name: Option<String>,
    /// Names of the gates that keep the pods from being scheduled.
    pub scheduling_gates: Vec<String>,
}

impl PodTemplate {
    /// Effective requests of one pod. A resource that is written with zero is present with zero.
    pub fn requests(&self) -> Amounts {
        let mut total = self.container_requests();
        for (resource, amount) in self.whole_pod_requests(&total) {
            // Never below the sum, because the containers would use more than the charged quota.
            let most = total.entry(resource).or_insert(0);
            *most = (*most).max(amount);
        }
        add_scaled(&mut total, &self.overhead, 1);
        total
    }

    /// Requests of the pod as a whole. As in Kubernetes, its limit is its request only for a resource that no
    /// container requests.
    pub(crate) fn whole_pod_requests(&self, containers: &Amounts) -> Amounts {
        let Some(whole_pod) = &self.whole_pod else { return Amounts::new() };
        let mut all = whole_pod.requests.clone();
        for (resource, limit) in &whole_pod.limits {
            all.entry(resource.clone())
                .or_insert_with(|| containers.get(resource).copied().unwrap_or(*limit));
        }
        all.retain(|resource, _| is_whole_pod_resource(resource));
        all
    }

    /// Effective requests of the containers alone.
    pub(crate) fn container_requests(&self) -> Amounts {
        let mut sidecars = Amounts::new();
        let mut while_starting = Amounts::new();
        for container in &self.init_containers {
            let mut now = sidecars.clone();
            add_scaled(&mut now, &container.resources.asked(), 1);
            for (resource, amount) in &now {
                let most = while_starting.entry(resource.clone()).or_insert(0);
                *most = (*most).max(*amount);
            }
            if container.sidecar {
                sidecars = now;
            }
        }
        let mut total = sidecars;
        for container in &self.containers {
            add_scaled(&mut total, &container.resources.asked(), 1);
        }
        for (resource, amount) in while_starting {
            let most = total.entry(resource).or_insert(0);
            *most = (*most).max(amount);
        }
        total
    }
}

/// Whether a pod as a whole can have requests and limits of this resource.
pub(crate) fn is_whole_pod_resource(resource: &str) -> bool {
    matches!(resource, "cpu" | "memory") || is_huge_page(resource)
}

pub(crate) fn is_huge_page(resource: &str) -> bool {
    resource.starts_with("hugepages-")
}
