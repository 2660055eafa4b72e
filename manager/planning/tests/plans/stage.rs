//! A builder for queue state: flavors, cohorts and queues first, workloads after [`Stage::open`].

use meridian_planning::load::{LoadOptions, Loaded, load};
use meridian_planning::{CycleLimits, PlanReport, decide};
use meridian_queueing::capacity_model::UnlimitedCapacity;
use meridian_queueing::model::{
    ClusterQueuePreemption, Flavor, Inactive, Marks, Moment, PodSet, PodSetAdmission, PreemptionRule,
    QueueSetup, ResourceGroup, Shape, WorkloadId,
};
use meridian_queueing::quota::{CohortSetup, Quota};
use meridian_queueing::settings::Settings;
use meridian_queueing::{Amount, NewWorkload, QueueState};
use meridian_shared::gang::{Taint, TaintEffect, Toleration};
use std::collections::BTreeMap;
use std::sync::Arc;

pub(crate) const GPU: &str = "nvidia.com/gpu";

pub(crate) struct Stage {
    state: QueueState,
    cohorts: BTreeMap<Arc<str>, CohortSetup>,
    queues: Vec<QueueSetup>,
    notes: Vec<String>,
    clock: Moment,
}

/// A workload of one pod set.
#[derive(Clone)]
pub(crate) struct Job {
    name: &'static str,
    queue: &'static str,
    shape: Shape,
    marks: Marks,
}

impl Stage {
    pub(crate) fn new(settings: Settings) -> Self {
        Self {
            state: QueueState::new(settings),
            cohorts: BTreeMap::new(),
            queues: Vec::new(),
            notes: Vec::new(),
            clock: 0,
        }
    }

    pub(crate) fn flavor(mut self, name: &str, tainted: bool) -> Self {
        let id = self.state.flavor_id(name);
        let taints = if tainted {
            vec![Taint { key: name.to_owned(), value: String::new(), effect: TaintEffect::NoSchedule }]
        } else {
            Vec::new()
        };
        self.state.set_flavor(id, Some(Flavor { taints, ..Flavor::default() }));
        self
    }

    pub(crate) fn cohort(mut self, name: &str, parent: Option<&str>) -> Self {
        self.cohorts
            .insert(Arc::from(name), CohortSetup { parent: parent.map(Arc::from), ..CohortSetup::default() });
        self
    }

    /// A queue with nominal quotas: flavor, resource, base units.
    pub(crate) fn queue(mut self, name: &str, cohort: Option<&str>, quotas: &[(&str, &str, i64)]) -> Self {
        let mut setup =
            QueueSetup { name: Arc::from(name), cohort: cohort.map(Arc::from), ..QueueSetup::default() };
        let mut group = ResourceGroup::default();
        for (flavor, resource, nominal) in quotas {
            let (flavor, resource) = (self.state.flavor_id(flavor), self.state.resource(resource));
            setup.quotas.insert((flavor, resource), Quota { nominal: Amount(*nominal), ..Quota::default() });
            if !group.flavors.contains(&flavor) {
                group.flavors.push(flavor);
            }
            if !group.resources.contains(&resource) {
                group.resources.push(resource);
            }
        }
        setup.groups = vec![group];
        self.queues.push(setup);
        self
    }

    /// Changes the queue that was added last.
    pub(crate) fn with(mut self, change: impl FnOnce(&mut QueueSetup)) -> Self {
        change(self.queues.last_mut().unwrap());
        self
    }

    pub(crate) fn note(mut self, note: &str) -> Self {
        self.notes.push(note.to_owned());
        self
    }

    /// Declares everything so far.
    pub(crate) fn open(mut self) -> Self {
        self.state.configure(&self.cohorts, self.queues.clone());
        self
    }

    fn new_workload(&mut self, job: Job) -> (NewWorkload, Shape) {
        self.clock += 1_000;
        let new = NewWorkload {
            key: Arc::from(format!("ml/{}", job.name)),
            uid: Arc::from(job.name),
            queue: self.state.queue_id(job.queue).unwrap(),
            local_queue: Arc::from(format!("ml/{}", job.queue)),
            shape: self.state.intern(job.shape.clone()),
            since: self.clock,
            marks: (job.marks != Marks::default()).then(|| Box::new(job.marks)),
        };
        (new, job.shape)
    }

    pub(crate) fn pending(mut self, job: Job) -> Self {
        let (new, _) = self.new_workload(job);
        self.state.add_pending(new);
        self
    }

    pub(crate) fn parked(mut self, job: Job) -> Self {
        let (new, _) = self.new_workload(job);
        self.state.add_parked(new);
        self
    }

    /// Adds a workload that is admitted with quota of `flavor`.
    pub(crate) fn running(mut self, job: Job, flavor: &str) -> Self {
        let (new, shape) = self.new_workload(job);
        let flavor = self.state.flavor_id(flavor);
        let given = shape.pod_sets.iter().map(|set| PodSetAdmission {
            flavors: set.per_pod.iter().map(|(resource, _)| (*resource, flavor)).collect(),
            usage: set
                .per_pod
                .iter()
                .map(|(resource, amount)| (*resource, amount * i64::from(set.count)))
                .collect(),
            count: set.count,
            ..PodSetAdmission::default()
        });
        let (given, since) = (given.collect(), self.clock);
        let _: WorkloadId = self.state.add_holder(new, given, since, false, true);
        self
    }

    /// A job of `count` pods with these requests each.
    pub(crate) fn job(
        &mut self,
        name: &'static str,
        queue: &'static str,
        priority: i64,
        count: u32,
        requests: &[(&str, i64)],
    ) -> Job {
        let per_pod: BTreeMap<String, i64> = requests.iter().map(|(r, a)| ((*r).to_owned(), *a)).collect();
        let per_pod = self.state.requests(&per_pod);
        let main = PodSet { name: Arc::from("main"), count, per_pod, ..PodSet::default() };
        Job {
            name,
            queue,
            shape: Shape { pod_sets: vec![main], priority, ..Shape::default() },
            marks: Marks::default(),
        }
    }

    fn loaded(self) -> Loaded {
        let mut loaded = load(&[], &LoadOptions::default());
        (loaded.state, loaded.notes) = (self.state, self.notes);
        loaded
    }

    pub(crate) fn plan(self, limits: &CycleLimits) -> PlanReport {
        let mut loaded = self.loaded();
        let decisions = decide(&mut loaded, &mut UnlimitedCapacity, limits);
        PlanReport::new(&loaded, &decisions)
    }
}

impl Job {
    pub(crate) fn at_least(mut self, least: u32) -> Self {
        self.shape.pod_sets[0].min_count = Some(least);
        self
    }

    pub(crate) fn tolerates(mut self, taint: &str) -> Self {
        self.shape.pod_sets[0].tolerations.push(Toleration {
            key: Some(taint.to_owned()),
            exists: true,
            value: String::new(),
            effect: None,
            seconds: None,
        });
        self
    }

    pub(crate) fn marked(mut self, change: impl FnOnce(&mut Marks)) -> Self {
        change(&mut self.marks);
        self
    }
}

/// Preempts lower priorities within the queue, and reclaims lent quota from any workload.
pub(crate) fn reclaims(setup: &mut QueueSetup) {
    setup.preemption = ClusterQueuePreemption {
        within_queue: PreemptionRule::LowerPriority,
        reclaim_within_cohort: PreemptionRule::Any,
        borrow_within_cohort: None,
    };
}

pub(crate) fn strict(setup: &mut QueueSetup) {
    setup.strict = true;
}

pub(crate) fn stopped(setup: &mut QueueSetup) {
    setup.inactive = Some(Inactive::Stopped);
}
