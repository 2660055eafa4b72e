//! Queues the jobs that have no workload yet.

use super::queues::planned_objects;
use super::{Loaded, ParkReason, shapes};
use meridian_objects::JobWorkload;
use meridian_objects::job::JobKind;
use meridian_objects::plan::{PlanObject, PlannedObject};
use meridian_objects::spec::Spec;
use meridian_queueing::NewWorkload;
use meridian_queueing::model::{Marks, NO_MOMENT, PodSet, QueueId, Shape};
use std::sync::Arc;

impl Loaded {
    pub(super) fn add_jobs(&mut self, objects: &[PlanObject]) {
        for planned in planned_objects(objects) {
            if let Spec::Job(job) = &planned.object.spec {
                self.add_job(planned, job);
            }
        }
    }

    fn add_job(&mut self, planned: &PlannedObject, job: &JobWorkload) {
        let name = planned.object.name.as_str();
        let namespace = planned.object.namespace_or_default().unwrap_or_default();
        let Some(kind) = planned.object.kind.job() else { return };
        if kind.status_has_ended(&planned.status)
            || self.catalog.is_owner(kind.name(), namespace, name)
            || job.queue.is_empty()
            || job.gang.pod_sets.iter().all(|set| set.count == 0)
        {
            return;
        }
        let local_queue = format!("{namespace}/{}", job.queue);
        let Some((queue, stopped)) = self.route(&local_queue, &format!("job `{namespace}/{name}`")) else {
            return;
        };
        let priority =
            self.catalog.job_priority(job.priority_class.as_deref(), job.pod_priority_class.as_deref());
        let shape = Shape {
            priority: *priority.as_ref().unwrap_or(&0),
            ..self.job_shape(kind, planned, job, namespace, queue)
        };
        let access = self.namespace_access(namespace, queue);
        let unfit = access.unfit.or_else(|| self.job_limits_broken(job, namespace)).or(priority.err());
        let marks = unfit.map(|why| {
            Box::new(Marks {
                wrong_namespace: access.not_selected,
                unfit: Some(Arc::from(why)),
                ..Marks::default()
            })
        });
        // A workload with this name may belong to another job.
        let key = format!("{namespace}/{name}");
        let key = if self.state.find(&key).is_some() { format!("{namespace}/job-{name}") } else { key };
        let new = NewWorkload {
            key: Arc::from(key),
            uid: Arc::from(planned.uid.as_str()),
            queue,
            local_queue: Arc::from(local_queue),
            shape: self.state.intern(shape),
            since: planned.created.unwrap_or(NO_MOMENT),
            marks,
        };
        self.enqueue(new, stopped.then_some(ParkReason::LocalQueueStopped));
    }

    fn job_shape(
        &mut self,
        kind: &JobKind,
        planned: &PlannedObject,
        job: &JobWorkload,
        namespace: &str,
        queue: QueueId,
    ) -> Shape {
        let written = kind.templates(&planned.object.stored);
        let mut pod_sets = Vec::with_capacity(job.gang.pod_sets.len());
        for ((set, template), written) in job.gang.pod_sets.iter().zip(&job.templates).zip(written) {
            // complete the template first: the namespace and the runtime class add requests
            let requested = self.complete_template(template, namespace).requests();
            pod_sets.push(PodSet {
                name: Arc::from(set.name.as_str()),
                count: set.count,
                min_count: set.min_count,
                per_pod: self.quota_requests(&requested, queue),
                on_node: requested,
                node_selector: set.node_selector.clone(),
                affinity: set.affinity.clone(),
                tolerations: set.tolerations.clone(),
                preferred: shapes::preferred_terms(written),
                topology: set.topology.clone(),
                group: set.group.clone(),
            });
        }
        Shape { pod_sets, ..Shape::default() }
    }

    /// The limit that the pods of a job break; `None` if the pods could be created.
    fn job_limits_broken(&self, job: &JobWorkload, namespace: &str) -> Option<String> {
        job.templates.iter().find_map(|template| self.broken_limits(template, namespace))
    }
}
