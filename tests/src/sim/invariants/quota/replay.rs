//! P3 and P4: quota as the records of one outcome move it.
//!
//! Every reservation and scale-up must fit what was available just before its record. Afterwards the same
//! workloads must hold quota as in the world, and every preemption must be allowed and sufficient.

use crate::sim::fleet::job::SimulatedJob;
use crate::sim::invariants::quota::preemption_rights::{RightsCheck, Seniority};
use crate::sim::invariants::quota::snapshot::{
    ChargedWorkload, ElasticSize, QuotaSnapshot, declares_quota, pods_of,
};
use crate::sim::invariants::quota::state::{
    DecisionBasis, ElasticDemand, Preemption, QuotaHolder, QuotaHolders, reported_pods,
};
use crate::sim::invariants::violation::{Verdict, violation};
use crate::sim::reference_model::quota_forest::QuotaForest;
use meridian_manager_core::World;
use meridian_manager_core::facts::audit::Action;
use meridian_manager_core::facts::end::Preempted;
use meridian_manager_core::facts::flavors::Flavors;
use meridian_manager_core::facts::key::Key;
use meridian_manager_core::facts::record::Record;
use meridian_manager_core::facts::record::{ObjectFact, WorkloadFact};
use meridian_manager_core::facts::submission::Class;
use meridian_manager_core::state::workload::phase::Phase;
use meridian_objects::Kind;
use meridian_shared::ids::{Fence, Uid};
use meridian_shared::protocol::Run;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// Quota while the records of one outcome are applied.
#[derive(Debug)]
pub(crate) struct QuotaReplay<'a> {
    declared: BTreeMap<Key, Value>,
    holders: QuotaHolders,
    jobs: &'a BTreeMap<Uid, SimulatedJob>,
    demand: ElasticDemand,
    fair: bool,
    /// The forest with the usage of all holders; made when it is needed.
    forest: Option<QuotaForest>,
    preemptions: Vec<Preemption>,
    /// The basis of preemptions that are decided together.
    basis: Option<Rc<DecisionBasis>>,
    /// Policies or priorities changed, so the rights to preempt can't be checked.
    policies_changed: bool,
}

impl<'a> QuotaReplay<'a> {
    /// Begins with the quota before the outcome.
    pub(crate) fn new(before: &QuotaSnapshot, jobs: &'a BTreeMap<Uid, SimulatedJob>, fair: bool) -> Self {
        let mut replay = Self {
            declared: before.declared.iter().map(|(key, o)| (key.clone(), o.stored.clone())).collect(),
            holders: BTreeMap::new(),
            jobs,
            demand: ElasticDemand {
                sizes: before.sizes.clone(),
                running_pods: before.running_pods.clone(),
                completed: before.completed.clone(),
                done_before: before.done_before.clone(),
            },
            fair,
            forest: None,
            preemptions: Vec::new(),
            basis: None,
            policies_changed: false,
        };
        for (uid, pods) in &before.pods {
            replay.submitted(*uid, *pods, false);
        }
        for (uid, charged) in &before.charged {
            let ChargedWorkload { flavors, counts, reclaimable, fence, .. } = charged;
            replay.hold(*uid, flavors, counts.as_ref(), *fence);
            replay.reclaim(*uid, reclaimable.as_ref());
            if let Some(holder) = replay.holders.get_mut(uid) {
                (holder.stopping, holder.preemptor) = (charged.stopping, charged.preemptor);
                holder.before_scale_up.clone_from(&charged.before_scale_up);
            }
        }
        replay
    }

    /// A workload takes quota.
    fn hold(&mut self, uid: Uid, flavors: &Flavors, counts: Option<&Vec<u32>>, fence: Option<Fence>) {
        let Some(job) = self.jobs.get(&uid) else { return };
        let gpus = job.gpus_for(counts);
        let holder = QuotaHolder {
            queue: job.queue.clone(),
            amounts: flavors.names().iter().map(|flavor| (flavor.to_string(), gpus)).collect(),
            flavors: flavors.clone(),
            counts: counts.cloned(),
            before_scale_up: None,
            fence,
            stopping: false,
            preemptor: None,
        };
        self.holders.insert(uid, holder);
        self.forest = None;
    }

    /// Pods have exited: the gang holds quota only for the rest.
    fn reclaim(&mut self, uid: Uid, reclaimable: Option<&Vec<u32>>) {
        let (Some(job), Some(holder)) = (self.jobs.get(&uid), self.holders.get_mut(&uid)) else { return };
        let gpus = job.gpus_left(holder.counts.as_ref(), reclaimable);
        holder.amounts = holder.flavors.names().iter().map(|flavor| (flavor.to_string(), gpus)).collect();
        self.forest = None;
    }

    /// Notes the size of an elastic job, and of an orphan that was adopted as what its job became: with
    /// another size than the job began with.
    fn submitted(&mut self, uid: Uid, pods: u32, elastic: bool) {
        let is_other_size = self.jobs.get(&uid).is_some_and(|job| u32::try_from(job.pods) != Ok(pods));
        if elastic || is_other_size {
            self.demand.sizes.insert(uid, ElasticSize { pods, elastic, most: None });
        }
    }

    /// The number of places of a workload changes.
    fn resize(&mut self, uid: Uid, places: &[u32]) {
        let (Some(job), Some(holder)) = (self.jobs.get(&uid), self.holders.get_mut(&uid)) else { return };
        let places = Some(places.to_vec());
        let more = job.gpus_for(places.as_ref()) - job.gpus_for(holder.counts.as_ref());
        holder.amounts.iter_mut().for_each(|(_, amount)| *amount += more);
        holder.counts = places;
        if let Some(size) = self.demand.sizes.get_mut(&uid) {
            size.most = holder.counts.as_ref().map(|counts| counts.iter().sum());
        }
        self.forest = None;
    }

    fn release(&mut self, uid: Uid) {
        self.holders.remove(&uid);
        self.forest = None;
    }

    fn forest(&mut self) -> &mut QuotaForest {
        let (declared, holders) = (&self.declared, &self.holders);
        self.forest.get_or_insert_with(|| {
            let manifests: Vec<Value> = declared.values().cloned().collect();
            let mut forest = QuotaForest::of(&manifests);
            for holder in holders.values() {
                holder.amounts.iter().for_each(|(flavor, gpus)| forest.add(&holder.queue, flavor, *gpus));
            }
            forest
        })
    }

    fn queue_spec(&self, queue: &str) -> Value {
        self.declared
            .get(&Key::global(Kind::ClusterQueue, queue))
            .map_or(Value::Null, |object| object["spec"].clone())
    }

    /// Applies one record.
    pub(crate) fn apply(&mut self, record: &Record) -> Verdict {
        match record {
            Record::Object { key, fact: ObjectFact::Applied { object, .. } } if declares_quota(key) => {
                self.declared.insert(key.clone(), object.stored.clone());
                (self.forest, self.policies_changed) = (None, true);
            }
            Record::Object { key, fact: ObjectFact::Removed { .. } } if declares_quota(key) => {
                self.declared.remove(key);
                (self.forest, self.policies_changed) = (None, true);
            }
            Record::Workload { fact: WorkloadFact::PriorityChanged { .. }, .. } => {
                self.policies_changed = true
            }
            Record::Workload { uid, fact: WorkloadFact::QuotaReserved { flavors, counts, .. } } => {
                self.apply_reserved(*uid, flavors, counts.as_ref())?;
            }
            Record::Workload { fact: WorkloadFact::Adopted { run, flavors, .. }, .. } => {
                self.apply_adopted(run, flavors)
            }
            Record::Workload { uid, fact: WorkloadFact::PodsReclaimed { fence, pods } }
                if self.holders.get(uid).is_some_and(|holder| holder.fence == Some(*fence)) =>
            {
                self.reclaim(*uid, Some(pods));
            }
            Record::Workload { uid, fact: WorkloadFact::Granted { fence, .. } } => {
                if let Some(holder) = self.holders.get_mut(uid) {
                    holder.fence = Some(*fence);
                }
            }
            Record::Workload { uid, fact: WorkloadFact::StopOrdered { preempted, .. } } => {
                self.apply_stop(*uid, preempted.as_ref())
            }
            Record::Audited(line) if line.entry.action == Action::Preempt => {
                let victim = self.jobs.keys().find(|uid| uid.to_string() == line.entry.subject).copied();
                if let (Some(victim), Some(preempted)) = (victim, &line.entry.preempted) {
                    self.preempt(victim, preempted);
                }
            }
            Record::Workload { uid, fact: WorkloadFact::QuotaReleased { .. } } => {
                if let Some(fence) = self.holders.get(uid).and_then(|holder| holder.fence) {
                    return violation("P3", format!("{uid} returns its quota, and fence {fence} isn't over"));
                }
                self.release(*uid);
            }
            Record::Workload { uid, fact: WorkloadFact::Ended { fence, .. } }
            | Record::Workload { uid, fact: WorkloadFact::GrantRefused { fence, .. } }
            | Record::Workload { uid, fact: WorkloadFact::LeaseLapsed { fence, .. } } => {
                if self.holders.get(uid).is_some_and(|holder| holder.fence == Some(*fence)) {
                    self.release(*uid);
                }
            }
            Record::Workload { uid, fact: WorkloadFact::Finished { .. } }
            | Record::Workload { uid, fact: WorkloadFact::Forgotten } => self.release(*uid),
            record => self.apply_size(record)?,
        }
        Ok(())
    }

    /// Applies a record about the size of an elastic job.
    fn apply_size(&mut self, record: &Record) -> Verdict {
        match record {
            Record::Workload { uid, fact: WorkloadFact::Submitted(s) } => {
                self.submitted(*uid, pods_of(&s.class), s.class.elastic);
            }
            Record::Workload { uid, fact: WorkloadFact::IndexesCompleted { completed, .. } } => {
                self.demand.completed.insert(*uid, completed.clone());
            }
            Record::Workload { uid, fact: WorkloadFact::Resized { class, .. } } => {
                self.apply_resized(*uid, class)
            }
            Record::Workload { uid, fact: WorkloadFact::ScaleUpStarted { places, runs, .. } } => {
                self.check_preemptions_suffice()?;
                self.check_scale_up(*uid, places)?;
                let before = self.holders.get(uid).and_then(|holder| holder.counts.clone());
                self.resize(*uid, places);
                self.demand.running_pods.insert(*uid, runs.iter().sum());
                if let Some(holder) = self.holders.get_mut(uid) {
                    holder.before_scale_up = before;
                }
            }
            Record::Workload { uid, fact: WorkloadFact::ScaledUp { scale_up, .. } } => {
                self.resize(*uid, &scale_up.places);
                let requested = self.demand.requested_pods(*uid).unwrap_or(u32::MAX);
                self.demand.running_pods.insert(*uid, scale_up.size.parallelism.min(requested));
                if let Some(holder) = self.holders.get_mut(uid) {
                    holder.before_scale_up = None;
                }
            }
            Record::Workload { uid, fact: WorkloadFact::ScaleUpRefused { .. } } => {
                let before = self.holders.get_mut(uid).and_then(|holder| holder.before_scale_up.take());
                if let Some(before) = before {
                    self.resize(*uid, &before);
                    self.demand.running_pods.insert(*uid, u32::MAX);
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn apply_reserved(&mut self, uid: Uid, flavors: &Flavors, counts: Option<&Vec<u32>>) -> Verdict {
        // Later decisions of this turn treat the victims as stopping.
        self.check_preemptions_suffice()?;
        let counts = self.demand.counts(uid, counts);
        self.check_reserved(uid, flavors, counts.as_ref())?;
        self.hold(uid, flavors, counts.as_ref(), None);
        self.demand.attempt_begins(uid);
        if let Some(size) = self.demand.sizes.get_mut(&uid) {
            size.most = None;
        }
        Ok(())
    }

    fn apply_resized(&mut self, uid: Uid, class: &Class) {
        let holder = self.holders.get(&uid);
        let pods = self.jobs.get(&uid).map_or(0, |job| u32::try_from(job.pods).unwrap_or(u32::MAX));
        let admitted = holder.map(|holder| holder.counts.as_ref().map_or(pods, |counts| counts.iter().sum()));
        self.demand
            .resized(uid, ElasticSize { pods: pods_of(class), elastic: class.elastic, most: admitted });
        let requested = self.demand.requested_pods(uid).unwrap_or(u32::MAX);
        if let Some(admitted) = admitted {
            // A scale-up under way is answered first.
            let scales_up = holder.is_some_and(|holder| holder.before_scale_up.is_some());
            let running = self.demand.running_pods.entry(uid).or_insert(admitted);
            *running = if scales_up { *running } else { (*running).min(requested) };
        }
    }

    /// A run that a cluster reported becomes a leg, and holds the quota of the pods that it has.
    fn apply_adopted(&mut self, run: &Run, flavors: &Flavors) {
        match self.holders.get_mut(&run.uid) {
            Some(holder) => (holder.fence, holder.stopping) = (Some(run.fence), false),
            None => {
                self.demand.attempt_begins(run.uid);
                let counts = self.demand.adopted_counts(run);
                self.hold(run.uid, flavors, counts.as_ref(), Some(run.fence));
            }
        }
        if let Some(holder) = self.holders.get_mut(&run.uid) {
            let size = self.demand.sizes.get_mut(&run.uid);
            if let Some(most) = size.as_ref().and_then(|size| size.most) {
                let pods = reported_pods(run).filter(|pods| (1..=most).contains(pods)).unwrap_or(most);
                holder.counts = Some(vec![pods]);
            }
            if let Some(scaled_up) = &run.scale_up {
                (holder.counts, holder.before_scale_up) = (Some(scaled_up.places.clone()), None);
                if let Some(size) = size {
                    size.most = Some(scaled_up.places.iter().sum());
                }
            }
        }
        let exited = run.spare.values().copied().collect();
        self.reclaim(run.uid, Some(&exited));
    }

    fn apply_stop(&mut self, uid: Uid, preempted: Option<&Preempted>) {
        if let Some(preempted) = preempted {
            self.preempt(uid, preempted);
        }
        if let Some(holder) = self.holders.get_mut(&uid) {
            (holder.stopping, holder.preemptor) = (true, preempted.map(|p| p.by));
        }
    }

    fn preempt(&mut self, victim: Uid, preempted: &Preempted) {
        let basis = match &self.basis {
            Some(basis) => basis.clone(),
            None => Rc::new(DecisionBasis { forest: self.forest().clone(), holders: self.holders.clone() }),
        };
        self.basis = Some(basis.clone());
        self.preemptions.push(Preemption {
            victim,
            preemptor: preempted.by,
            reason: preempted.reason,
            basis,
        });
    }

    /// P4: a reservation fits what is available, whatever is lent and borrowed. A stopped queue admits
    /// nothing.
    fn check_reserved(&mut self, uid: Uid, flavors: &Flavors, counts: Option<&Vec<u32>>) -> Verdict {
        let Some(job) = self.jobs.get(&uid) else { return Ok(()) };
        let queue = &job.queue;
        let stop = self.queue_spec(queue)["stopPolicy"].as_str().unwrap_or("None").to_owned();
        if stop != "None" {
            let details = format!("{uid} is admitted, and queue `{queue}` is stopped: {stop}");
            return violation("P4", details);
        }
        if self.holders.contains_key(&uid) {
            return violation("P4", format!("{uid} is admitted, and holds quota already"));
        }
        let gpus = job.gpus_for(counts);
        let sizes = self.demand.min_gpus(uid, job)..=self.demand.max_gpus(uid, job);
        let elastic = self.demand.sizes.contains_key(&uid);
        if (elastic || job.sizes.is_empty()) && !sizes.contains(&gpus) {
            let details = format!(
                "{uid} is admitted with {counts:?} of {} pods, and may have {sizes:?} accelerators",
                job.pods
            );
            return violation("P3", details);
        }
        for flavor in flavors.names() {
            let available = self.forest().available(queue, flavor);
            if available.is_none_or(|available| available < gpus) {
                let details = format!(
                    "{uid} takes {gpus} of `{flavor}` in queue `{queue}`, and {available:?} is available: {}",
                    self.forest().describe()
                );
                return violation("P4", details);
            }
        }
        Ok(())
    }

    /// P4: the additional pods of a scale-up fit what is available.
    fn check_scale_up(&mut self, uid: Uid, places: &[u32]) -> Verdict {
        let (Some(job), Some(holder)) = (self.jobs.get(&uid), self.holders.get(&uid).cloned()) else {
            return Ok(());
        };
        let queue = &holder.queue;
        let gpus = job.gpus_for(Some(&places.to_vec())) - job.gpus_for(holder.counts.as_ref());
        let stop = self.queue_spec(queue);
        let is_stopped = stop["stopPolicy"].as_str().is_some_and(|stop| stop != "None");
        if gpus <= 0 || holder.stopping || holder.before_scale_up.is_some() || is_stopped {
            let details = format!("{uid} is scaled up by {gpus} accelerators in queue `{queue}`: {holder:?}");
            return violation("P4", details);
        }
        for flavor in holder.flavors.names() {
            let available = self.forest().available(queue, flavor);
            if available.is_none_or(|available| available < gpus) {
                let details = format!(
                    "{uid} is scaled up by {gpus} of `{flavor}` in queue `{queue}`, and {available:?} \
                     is available"
                );
                return violation("P4", details);
            }
        }
        Ok(())
    }

    /// After all records: the same workloads hold quota as in the world, and preemptions are allowed and
    /// sufficient.
    pub(crate) fn check_end(&mut self, world: &World) -> Verdict {
        let workloads = &world.state().workloads();
        let charged: BTreeSet<Uid> = workloads
            .iter()
            .filter(|(u, w)| w.phase().charged() && self.jobs.contains_key(u))
            .map(|(u, _)| *u)
            .collect();
        let only_here = self.holders.keys().find(|u| !charged.contains(u));
        let only_there = || charged.iter().find(|u| !self.holders.contains_key(u));
        if let Some(uid) = only_here.or_else(only_there) {
            let details = format!(
                "{uid} holds {:?} by its records, and is {:?}",
                self.holders.get(uid),
                workloads.get(uid).map(|w| w.phase())
            );
            return violation("P3", details);
        }
        self.check_preemptions_suffice()?;
        if self.policies_changed {
            return Ok(());
        }
        let seniority = |uid: &Uid| {
            let workload = workloads.get(uid)?;
            Some(Seniority { submitted: workload.submitted(), priority: workload.priority() })
        };
        let is_pending = |uid: &Uid| workloads.get(uid).is_some_and(|w| w.phase() == Phase::Pending);
        let rights = RightsCheck {
            jobs: self.jobs,
            demand: &self.demand,
            fair: self.fair,
            preemptions: &self.preemptions,
            is_pending: &is_pending,
        };
        for preemption in &self.preemptions {
            let pair = seniority(&preemption.victim).zip(seniority(&preemption.preemptor));
            let queue = self.jobs.get(&preemption.preemptor).map(|job| job.queue.as_str());
            if let Some((victim, preemptor)) = pair {
                let spec = self.queue_spec(queue.unwrap_or_default());
                rights.check(preemption, victim, preemptor, &spec)?;
            }
        }
        Ok(())
    }

    /// Preemptors and victims of this outcome.
    pub(crate) fn preemption_pairs(&self) -> Vec<(Uid, Uid)> {
        self.preemptions.iter().map(|p| (p.preemptor, p.victim)).collect()
    }

    /// P7: once all victims have stopped, every preemptor of the last decision fits. No victim is stopped
    /// without need.
    fn check_preemptions_suffice(&mut self) -> Verdict {
        let Some(basis) = self.basis.take() else { return Ok(()) };
        let flavor = |victim: &Uid| {
            basis.holders.get(victim).and_then(|holder| holder.amounts.first()).map(|(f, _)| f.clone())
        };
        let together = self.preemptions.iter().filter(|p| Rc::ptr_eq(&p.basis, &basis));
        let preemptors: BTreeMap<Uid, String> =
            together.filter_map(|p| Some((p.preemptor, flavor(&p.victim)?))).collect();
        let mut forest = self.forest().clone();
        for holder in self.holders.values().filter(|holder| holder.stopping) {
            holder.amounts.iter().for_each(|(flavor, gpus)| forest.add(&holder.queue, flavor, -gpus));
        }
        // A victim that was only just admitted returns to its queue. In a strict queue it is first again, and
        // gets the capacity that was freed for workloads behind it (seed 201895).
        let is_victim = |uid: &Uid| self.preemptions.iter().any(|p| p.victim == *uid);
        let strict = |queue: &str| self.queue_spec(queue)["queueingStrategy"] == "StrictFIFO";
        let waiting = preemptors.iter().filter(|(uid, _)| !self.holders.contains_key(uid));
        let (first, others): (Vec<_>, Vec<_>) = waiting.partition(|(uid, _)| is_victim(uid));
        let mut served_first: BTreeSet<&str> = BTreeSet::new();
        for (uid, flavor) in first.into_iter().chain(others) {
            let Some(job) = self.jobs.get(uid) else { continue };
            let queue = &*job.queue;
            let available = forest.available(queue, flavor);
            let needed = self.demand.min_gpus(*uid, job);
            if available.is_none_or(|available| available < needed) {
                if served_first.contains(queue) {
                    continue;
                }
                let details = format!(
                    "victims stop for {uid}, which needs {needed} of `{flavor}` in queue `{queue}`, and \
                     once they are gone {available:?} is available"
                );
                return violation("P7", details);
            }
            forest.add(queue, flavor, needed);
            if is_victim(uid) && strict(queue) {
                served_first.insert(queue);
            }
        }
        Ok(())
    }
}
