//! Nodes, and pods that run on them beside what topologies place.

use super::Loaded;
use super::queues::planned;
use meridian_objects::plan::PlanObject;
use meridian_objects::spec::{ConditionStatus, NodeObject, PodObject, Spec};
use meridian_shared::gang::Amounts;
use meridian_topology::Node;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Marks pods that a topology placed: their workloads count them.
const PLACED_LABEL: &str = "kueue.x-k8s.io/tas";

impl Loaded {
    /// Tells the brain which topologies there are, and what their nodes have free.
    pub(super) fn survey(&mut self, objects: &[PlanObject]) {
        let mut levels: BTreeMap<Arc<str>, Vec<String>> = BTreeMap::new();
        for of in planned(objects) {
            if let Spec::Topology(spec) = &of.object.spec {
                levels.insert(Arc::from(of.object.name.as_str()), spec.levels.clone());
            }
        }
        if levels.is_empty() {
            return;
        }
        let (mut nodes, mut others) = (Vec::new(), Vec::new());
        for object in objects {
            match object {
                PlanObject::Node(of) => nodes.push(node(of)),
                PlanObject::Pod(pod) => others.extend(beside(pod)),
                PlanObject::Object(_) | PlanObject::Workload(_) => {}
            }
        }
        self.brain.set_nodes(&levels, &nodes, &others);
    }
}

fn node(of: &NodeObject) -> Node {
    Node {
        name: of.meta.name.clone(),
        labels: of.meta.labels.clone(),
        taints: of.taints.clone(),
        ready: of.ready() == Some(ConditionStatus::True),
        unschedulable: of.unschedulable,
        allocatable: of.allocatable.clone(),
    }
}

/// The node of a pod that no topology placed, and what it takes there.
fn beside(pod: &PodObject) -> Option<(String, Amounts)> {
    let node = pod
        .template
        .node_name
        .clone()
        .filter(|_| !pod.is_terminal() && !pod.meta.labels.contains_key(PLACED_LABEL))?;
    Some((node, pod.template.requests()))
}
