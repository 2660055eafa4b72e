//! Loads topologies, their nodes, and the usage of other pods on the nodes.

use super::Loaded;
use super::queues::planned_objects;
use meridian_objects::plan::PlanObject;
use meridian_objects::spec::{ConditionStatus, NodeObject, PodObject, Spec};
use meridian_shared::gang::Amounts;
use meridian_topology::Node;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Label of pods that Kueue placed by a topology. They are counted with their workloads, not here.
const PLACED_LABEL: &str = "kueue.x-k8s.io/tas";

impl Loaded {
    /// Declares topologies, their nodes, and the usage of pods that no topology placed.
    pub(super) fn declare_nodes(&mut self, objects: &[PlanObject]) {
        let mut levels: BTreeMap<Arc<str>, Vec<String>> = BTreeMap::new();
        for planned in planned_objects(objects) {
            if let Spec::Topology(spec) = &planned.object.spec {
                levels.insert(Arc::from(planned.object.name.as_str()), spec.levels.clone());
            }
        }
        if levels.is_empty() {
            return;
        }
        let (mut nodes, mut other_pods) = (Vec::new(), Vec::new());
        for object in objects {
            match object {
                PlanObject::Node(object) => nodes.push(node(object)),
                PlanObject::Pod(pod) => other_pods.extend(usage_of_other(pod)),
                PlanObject::Object(_) | PlanObject::Workload(_) => {}
            }
        }
        self.state.set_nodes(&levels, &nodes, &other_pods);
    }
}

fn node(object: &NodeObject) -> Node {
    Node {
        name: object.meta.name.clone(),
        labels: object.meta.labels.clone(),
        taints: object.taints.clone(),
        ready: object.ready() == Some(ConditionStatus::True),
        unschedulable: object.unschedulable,
        allocatable: object.allocatable.clone(),
    }
}

/// Node and requests of a running pod that no topology placed.
fn usage_of_other(pod: &PodObject) -> Option<(String, Amounts)> {
    let node = pod
        .template
        .node_name
        .clone()
        .filter(|_| !pod.is_terminal() && !pod.meta.labels.contains_key(PLACED_LABEL))?;
    Some((node, pod.template.requests()))
}
