//! Jobs that wait as workloads: those that no workload stands for yet.

use super::catalog::holds;
use super::queues::planned;
use super::{HeldBack, Loaded, shapes};
use meridian_objects::job::POD_SET;
use meridian_objects::plan::{PlanObject, PlannedObject};
use meridian_objects::spec::Spec;
use meridian_objects::{JobWorkload, Kind};
use meridian_queueing::NewWorkload;
use meridian_queueing::model::{Marks, NO_MOMENT, PodSet, QueueId, Shape};
use std::sync::Arc;

/// The fewest pods that do.
const LEAST_ANNOTATION: &str = "kueue.x-k8s.io/job-min-parallelism";

impl Loaded {
    pub(super) fn enlist_jobs(&mut self, objects: &[PlanObject]) {
        for of in planned(objects) {
            if let Spec::Job(job) = &of.object.spec {
                self.place_job(of, job);
            }
        }
    }

    fn place_job(&mut self, of: &PlannedObject, job: &JobWorkload) {
        let (name, namespace) = (&of.object.name, of.object.namespace_or_default().unwrap_or_default());
        let owner = (Kind::Job.to_string(), namespace.to_owned(), name.clone());
        let over = holds(&of.conditions, "Complete").or_else(|| holds(&of.conditions, "Failed"));
        if over.is_some()
            || self.catalog.owners.contains(&owner)
            || job.queue.is_empty()
            || job.parallelism == 0
        {
            return;
        }
        let local_queue = format!("{namespace}/{}", job.queue);
        let Some((queue, stopped)) = self.queue_of(&local_queue, &format!("job `{namespace}/{name}`")) else {
            return;
        };
        let priority =
            self.catalog.job_priority(job.priority_class.as_deref(), job.pod_priority_class.as_deref());
        let shape =
            Shape { priority: *priority.as_ref().unwrap_or(&0), ..self.job_shape(of, job, namespace, queue) };
        let (wrong_namespace, stranger) = self.stranger(namespace, queue);
        let unfit = stranger.or_else(|| self.broken(&job.template, namespace)).or(priority.err());
        let marks = unfit
            .map(|why| Box::new(Marks { wrong_namespace, unfit: Some(Arc::from(why)), ..Marks::default() }));
        // A workload of the same name may be another job's.
        let key = format!("{namespace}/{name}");
        let key = if self.brain.find(&key).is_some() { format!("{namespace}/job-{name}") } else { key };
        let new = NewWorkload {
            key: Arc::from(key),
            uid: Arc::from(of.uid.as_str()),
            queue,
            local_queue: Arc::from(local_queue),
            shape: self.brain.intern(shape),
            since: of.created.unwrap_or(NO_MOMENT),
            marks,
        };
        self.begin_to_wait(new, stopped.then_some(HeldBack::LocalQueueStopped));
    }

    fn job_shape(&mut self, of: &PlannedObject, job: &JobWorkload, namespace: &str, queue: QueueId) -> Shape {
        // All pod sets are of the one template, which the namespace and a runtime class add to.
        let asked = self.filled(&job.template, namespace).requests();
        let template = &of.object.stored["spec"]["template"];
        let least = of.object.annotations.get(LEAST_ANNOTATION).and_then(|text| text.parse().ok());
        let mut pod_sets = Vec::with_capacity(job.gang.pod_sets.len());
        for set in &job.gang.pod_sets {
            pod_sets.push(PodSet {
                name: Arc::from(set.name.as_str()),
                count: set.count,
                min_count: least.filter(|least| set.name == POD_SET && *least < set.count),
                per_pod: self.requests(&asked, queue),
                on_node: asked.clone(),
                node_selector: set.node_selector.clone(),
                affinity: set.affinity.clone(),
                tolerations: set.tolerations.clone(),
                preferred: shapes::preferred(template),
                topology: set.topology.clone(),
                group: set.group.clone(),
            });
        }
        Shape { pod_sets, ..Shape::default() }
    }
}
