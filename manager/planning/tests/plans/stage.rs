//! Brains built by hand, in few words.

use meridian_planning::load::{Loaded, Options, load};
use meridian_planning::{Limits, Report, decide};
use meridian_queueing::model::{
    Displaces, Flavor, Given, Group, Inactive, Marks, Moment, PodSet, Preemption, QueueSetup, Shape,
    WorkloadId,
};
use meridian_queueing::places::Anywhere;
use meridian_queueing::settings::Settings;
use meridian_queueing::tree::{CohortSetup, Quota};
use meridian_queueing::{Amount, Brain, NewWorkload};
use meridian_shared::gang::{Taint, TaintEffect, Toleration};
use std::collections::BTreeMap;
use std::sync::Arc;

pub(crate) const GPU: &str = "nvidia.com/gpu";

/// A brain in the making.
pub(crate) struct Stage {
    pub(crate) brain: Brain,
    cohorts: BTreeMap<Arc<str>, CohortSetup>,
    queues: Vec<QueueSetup>,
    notes: Vec<String>,
    clock: Moment,
}

/// A workload in the making: one pod set, unless more are added.
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
            brain: Brain::new(settings),
            cohorts: BTreeMap::new(),
            queues: Vec::new(),
            notes: Vec::new(),
            clock: 0,
        }
    }

    pub(crate) fn flavor(mut self, name: &str, tainted: bool) -> Self {
        let id = self.brain.flavor_id(name);
        let taints = if tainted {
            vec![Taint { key: name.to_owned(), value: String::new(), effect: TaintEffect::NoSchedule }]
        } else {
            Vec::new()
        };
        self.brain.set_flavor(id, Some(Flavor { taints, ..Flavor::default() }));
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
        let mut group = Group::default();
        for (flavor, resource, nominal) in quotas {
            let (flavor, resource) = (self.brain.flavor_id(flavor), self.brain.resource(resource));
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

    /// Declares everything so far; workloads come after.
    pub(crate) fn open(mut self) -> Self {
        self.brain.configure(&self.cohorts, self.queues.clone());
        self
    }

    fn new_workload(&mut self, job: Job) -> (NewWorkload, Shape) {
        self.clock += 1_000;
        let new = NewWorkload {
            key: Arc::from(format!("ml/{}", job.name)),
            uid: Arc::from(job.name),
            queue: self.brain.queue_id(job.queue).unwrap(),
            local_queue: Arc::from(format!("ml/{}", job.queue)),
            shape: self.brain.intern(job.shape.clone()),
            since: self.clock,
            marks: (job.marks != Marks::default()).then(|| Box::new(job.marks)),
        };
        (new, job.shape)
    }

    pub(crate) fn waits(mut self, job: Job) -> Self {
        let (new, _) = self.new_workload(job);
        self.brain.wait(new);
        self
    }

    pub(crate) fn aside(mut self, job: Job) -> Self {
        let (new, _) = self.new_workload(job);
        self.brain.wait_aside(new);
        self
    }

    /// A workload that holds a flavor's quota already, and runs.
    pub(crate) fn runs(mut self, job: Job, flavor: &str) -> Self {
        let (new, shape) = self.new_workload(job);
        let flavor = self.brain.flavor_id(flavor);
        let given = shape.pod_sets.iter().map(|set| Given {
            flavors: set.per_pod.iter().map(|(resource, _)| (*resource, flavor)).collect(),
            usage: set
                .per_pod
                .iter()
                .map(|(resource, amount)| (*resource, amount * i64::from(set.count)))
                .collect(),
            count: set.count,
            ..Given::default()
        });
        let (given, since) = (given.collect(), self.clock);
        let _: WorkloadId = self.brain.hold(new, given, since, false, true);
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
        let per_pod = self.brain.requests(&per_pod);
        let main = PodSet { name: Arc::from("main"), count, per_pod, ..PodSet::default() };
        Job {
            name,
            queue,
            shape: Shape { pod_sets: vec![main], priority, ..Shape::default() },
            marks: Marks::default(),
        }
    }

    pub(crate) fn loaded(self) -> Loaded {
        let mut loaded = load(&[], &Options::default());
        (loaded.brain, loaded.notes) = (self.brain, self.notes);
        loaded
    }

    /// Decides and reports.
    pub(crate) fn plan(self, limits: &Limits) -> Report {
        let mut loaded = self.loaded();
        let outcome = decide(&mut loaded, &mut Anywhere, limits);
        Report::new(&loaded, &outcome)
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

/// May take back what it lent, and prefers the important within.
pub(crate) fn reclaims(setup: &mut QueueSetup) {
    setup.preemption = Preemption {
        within_queue: Displaces::LowerPriority,
        reclaim_within_cohort: Displaces::Any,
        borrow_within_cohort: None,
    };
}

pub(crate) fn strict(setup: &mut QueueSetup) {
    setup.strict = true;
}

pub(crate) fn stopped(setup: &mut QueueSetup) {
    setup.inactive = Some(Inactive::Stopped);
}
