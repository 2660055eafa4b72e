//! Size of an elastic job's gang (`kueue.x-k8s.io/elastic-job: "true"`), which may change while the job waits
//! or runs.
//!
//! A waiting job takes the new size at once and keeps its age in the queue. A running gang that is scaled
//! down continues: its agent ends the surplus pods, and their quota and capacity are free once the agent
//! reports their end, as for pods that succeeded. `dispatch::scale_up` decides how a running gang is scaled
//! up, and `link::scale_up` takes the agent's reports.
//!
//! Invariants: admitted pods stay charged until the agent reports that they have ended, whatever size the job
//! asks for; an agent has at most one scale-up of a gang under way.

use crate::facts::submission::{Class, ClassId};
use crate::state::workload::Workload;
use crate::state::workload::phase::Phase;
use meridian_shared::gang::{Gang, PodSet};
use meridian_shared::ids::{ContentHash, RecordNumber};
use meridian_shared::indexes::Indexes;
use meridian_shared::protocol::{Run, ScaleUp, Size};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Size of a gang whose job was resized after quota was charged.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Resized {
    /// The size that the agent is to run now.
    pub size: Size,
    /// Pods admitted per pod set. Never fewer than run, because a pod counts until the agent reports its end.
    pub most: Vec<u32>,
    /// Pods per pod set that the agent is to run now. Empty in snapshots of versions without scale-up: then
    /// the counts of the class apply.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub runs: Vec<u32>,
    /// The size that the job requests, if the agent isn't to run that size yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wants: Option<Wants>,
    /// The scale-up that is under way: quota is charged, but the agent hasn't confirmed the capacity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scale_up: Option<StartedScaleUp>,
    /// Number of the newest scale-up, under way or not.
    #[serde(default)]
    pub last: RecordNumber,
}

impl Resized {
    /// A gang that runs all its admitted pods.
    pub(crate) fn of(admitted: Vec<u32>) -> Self {
        let (size, last) = (total_size(&admitted), RecordNumber(0));
        Self { size, most: admitted.clone(), runs: admitted, wants: None, scale_up: None, last }
    }

    /// Applies the requested size if no pod set grows and no scale-up is under way. A larger size must first
    /// be admitted.
    pub(crate) fn settle(&mut self, requested: &[u32]) {
        let Some(Wants { size, .. }) = self.wants.filter(|_| self.scale_up.is_none()) else { return };
        if self.runs.iter().zip(requested).all(|(runs, requested)| requested <= runs) {
            self.size = if self.runs == requested { self.size } else { size };
            (self.runs, self.wants) = (requested.to_vec(), None);
        }
    }
}

/// A size that a job asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Wants {
    pub size: Size,
    /// The record with the request. It determines the queue position of the scale-up.
    pub asked: RecordNumber,
}

/// A scale-up under way.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct StartedScaleUp {
    /// The record that charged quota for it.
    pub number: RecordNumber,
    /// Pods admitted per pod set before the scale-up.
    pub before: Vec<u32>,
    /// Pods per pod set after the scale-up.
    pub runs: Vec<u32>,
    /// `runs` in the form that is sent to the agent.
    pub size: Size,
}

impl Workload {
    /// The gang of a run that is being adopted, with the pod counts that the run may really have.
    ///
    /// A reported scale-up has the exact pod counts. Otherwise the counts of the reported placement are used
    /// if they are plausible and the job was resized: either the journal has the resize, or the journal is an
    /// old copy and the run has another manifest. All other runs have the admitted gang.
    pub(crate) fn adopted_gang(&self, class: &Class, run: &Run) -> Arc<Gang> {
        if let Some(scale_up) =
            run.scale_up.as_ref().filter(|scale_up| scale_up.places.len() == class.gang.pod_sets.len())
        {
            return Arc::new(class.gang.with_counts(&scale_up.places));
        }
        let reported = run.placement.as_deref().map(|placement| {
            placement
                .pod_sets
                .iter()
                .map(|set| u32::try_from(set.pods()).unwrap_or(u32::MAX))
                .collect::<Vec<_>>()
        });
        let Some(Resized { most, .. }) = self.resized.as_deref() else {
            let other_manifest =
                |reported: &[u32]| run.spec != self.body && (class.elastic || is_other_size(reported, class));
            let is_plausible = |reported: &Vec<u32>| {
                reported.len() == class.gang.pod_sets.len()
                    && reported.iter().all(|pods| (1..=meridian_objects::job::MAX_PODS).contains(pods))
            };
            // Before the run began, indexes may have completed that this journal doesn't know. Quota that is
            // already charged isn't changed.
            let is_rest = |reported: &Vec<u32>| {
                let sets = class.gang.pod_sets.iter().zip(reported);
                self.flavors.is_empty()
                    && class.completions.is_some()
                    && sets.into_iter().all(|(set, pods)| *pods <= set.count)
            };
            let counts = |reported: &Vec<u32>| {
                is_plausible(reported) && (other_manifest(reported) || is_rest(reported))
            };
            return reported.filter(counts).map_or_else(
                || self.given_gang(class),
                |reported| Arc::new(class.gang.with_counts(&reported)),
            );
        };
        let is_plausible = |reported: &Vec<u32>| {
            reported.len() == most.len()
                && reported.iter().zip(most).all(|(pods, most)| (1..=*most).contains(pods))
        };
        Arc::new(class.gang.with_counts(&reported.filter(is_plausible).unwrap_or_else(|| most.clone())))
    }

    /// The requested gang, with the smallest number of pods with which it may start. While quota is charged,
    /// the gang of the class.
    pub fn asked_gang(&self, class: &Class) -> Arc<Gang> {
        let (left, least) = (self.counts_left(class), self.least_counts(class));
        if left.is_none() && least.is_none() {
            return class.gang.clone();
        }
        let mut gang = (*class.gang).clone();
        for (at, set) in gang.pod_sets.iter_mut().enumerate() {
            let of = |counts: &Option<Vec<u32>>| counts.as_ref().and_then(|counts| counts.get(at)).copied();
            set.count = of(&left).unwrap_or(set.count);
            set.min_count = of(&least).or(set.min_count).filter(|least| *least < set.count);
        }
        Arc::new(gang)
    }

    /// Whether an attempt of a job that isn't elastic has other pods than the job asks for now, so that it
    /// must be stopped.
    pub(crate) fn has_other_pods(&self, class: &Class) -> bool {
        if class.elastic || !self.phase.charged() {
            return false;
        }
        self.resized.is_some() || self.counts.as_deref().is_some_and(|pods| is_other_size(pods, class))
    }

    /// Whether quota is charged for another size than the one that the job requests: the job was resized, or
    /// an adopted run has more pods than the job in this journal, an old copy.
    pub(crate) fn is_charged_for_own_size(&self, class: &Class) -> bool {
        let has_more =
            |counts: &Vec<u32>| class.gang.pod_sets.iter().zip(counts).any(|(set, pods)| *pods > set.count);
        self.phase.charged() && (self.resized.is_some() || self.counts.as_ref().is_some_and(has_more))
    }

    /// Whether the pending workload asks for another gang than its class.
    pub(crate) fn has_own_size(&self, class: &Class) -> bool {
        self.counts_left(class).is_some() || self.least_counts(class).is_some()
    }

    /// Pods per pod set with which a pending elastic job may start if its full request doesn't fit: the
    /// counts of its last run. It requests the rest once it runs. `None` if the request hasn't grown since
    /// that run.
    fn least_counts(&self, class: &Class) -> Option<Vec<u32>> {
        if self.phase != Phase::Pending || !class.elastic {
            return None;
        }
        let resized = self.resized.as_ref().map(|resized| &resized.runs).filter(|runs| !runs.is_empty());
        let ran_with = self.ran_with.as_ref().or(resized)?;
        let sets = class.gang.pod_sets.iter().zip(ran_with);
        let least: Vec<u32> = sets.map(|(set, ran_with)| set.count.min(*ran_with)).collect();
        (least != counts_of(&class.gang)).then_some(least)
    }

    /// Keeps the counts of the last run, `pods` per pod set, because the pending job now requests another
    /// size.
    pub(crate) fn remember_size(&mut self, pods: Vec<u32>) {
        self.ran_with.get_or_insert(pods);
    }

    /// Resets the size when quota is charged again, for `admitted` pods per pod set. `None` means all pods of
    /// the class.
    pub(super) fn size_admitted(&mut self, class: &Class, admitted: Option<&Vec<u32>>, number: RecordNumber) {
        let before = self.resized.take();
        let asked = before.and_then(|before| before.wants).map_or(number, |wants| wants.asked);
        self.note_done_before(class, admitted.unwrap_or(&counts_of(&class.gang)));
        let requested = self.requested_counts(class);
        if let Some(admitted) = admitted.filter(|admitted| class.elastic && **admitted != requested) {
            let size = Size { completions: class.completions, ..total_size(&requested) };
            let resized = Resized { wants: Some(Wants { size, asked }), ..Resized::of(admitted.clone()) };
            self.resized = Some(Box::new(resized));
        }
    }

    /// Keeps what the next attempt needs of an attempt that ran and is over.
    pub(super) fn size_ended(&mut self) {
        if let Some(resized) = self.resized.as_ref().filter(|resized| !resized.runs.is_empty()) {
            // Pods that have completed need no quota in the next attempt.
            let spare = |at: usize| self.spare.as_ref().and_then(|spare| spare.get(at)).copied().unwrap_or(0);
            let charged =
                self.counts.iter().flatten().enumerate().map(|(at, pods)| pods - spare(at).min(*pods));
            let mut runs = resized.runs.clone();
            if !self.completed.is_empty() {
                runs.iter_mut().zip(charged).for_each(|(runs, charged)| *runs = (*runs).min(charged).max(1));
            }
            self.ran_with = Some(runs);
        }
    }

    /// Forgets the smaller size of an earlier run once the whole gang runs.
    pub(super) fn size_runs(&mut self) {
        if self.resized.is_none() {
            self.ran_with = None;
        }
    }

    /// Pods per pod set of the next attempt, if fewer completions are left than the job has pods. `None`
    /// unless the job is pending.
    pub(crate) fn counts_left(&self, class: &Class) -> Option<Vec<u32>> {
        if self.phase != Phase::Pending || self.completed.is_empty() {
            return None;
        }
        Some(counts_without(class, &self.completed)).filter(|counts| *counts != counts_of(&class.gang))
    }

    /// Pods per pod set that the job requests in the current attempt: those of the class, without pods of
    /// indexes that had already completed.
    pub fn requested_counts(&self, class: &Class) -> Vec<u32> {
        counts_without(class, &self.done_before)
    }

    /// Notes which indexes had completed when an attempt with `pods` per pod set begins. In older journals,
    /// attempts of elastic jobs also have pods for completed indexes.
    pub(super) fn note_done_before(&mut self, class: &Class, pods: &[u32]) {
        let left = counts_without(class, &self.completed);
        let is_rest = class.elastic && pods.iter().zip(&left).all(|(pods, left)| pods <= left);
        self.done_before = if is_rest { self.completed.clone() } else { Indexes::default() };
    }

    /// Forgets completed indexes that a changed job no longer has. If the job grows again, they run again, as
    /// in Kubernetes.
    pub(crate) fn forget_indexes_beyond(&mut self, class: &Class) {
        let Some(completions) = class.completions else { return };
        self.completed = self.completed.below(completions);
        self.done_before = self.done_before.below(completions);
    }

    /// Pods per pod set that the gang is to run, counting a scale-up under way as succeeded.
    pub fn runs_with(&self, class: &Class) -> Vec<u32> {
        match self.resized.as_deref() {
            Some(Resized { scale_up: Some(started), .. }) => started.runs.clone(),
            Some(Resized { runs, .. }) if !runs.is_empty() => runs.clone(),
            Some(_) => self.requested_counts(class),
            None => counts_of(&self.given_gang(class)),
        }
    }

    /// Pods per pod set that a scale-down removed.
    pub fn no_longer_wanted(&self, class: &Class) -> Vec<u32> {
        let admitted = self.given_gang(class);
        let sets = admitted.pod_sets.iter().zip(self.runs_with(class)).enumerate();
        let spare =
            |index: usize| self.spare.as_ref().and_then(|spare| spare.get(index)).copied().unwrap_or(0);
        sets.map(|(index, (set, runs))| set.count.saturating_sub(runs).min(spare(index))).collect()
    }

    /// Number of surplus pods: still charged, until the agent reports that the scale-down ended them.
    pub fn pods_too_many(&self, class: &Class) -> u32 {
        let charged = self.gang(class);
        let sets = charged.pod_sets.iter().zip(self.runs_with(class));
        sets.map(|(set, runs)| set.count.saturating_sub(runs)).sum()
    }
}

/// Pods per pod set for the completions that are left after `done`; at least one.
fn counts_without(class: &Class, done: &Indexes) -> Vec<u32> {
    let left = class
        .completions
        .filter(|_| !done.is_empty())
        .map_or(u32::MAX, |completions| completions.saturating_sub(done.below(completions).len()).max(1));
    class.gang.pod_sets.iter().map(|set| set.count.min(left)).collect()
}

/// Pods per pod set.
pub fn counts_of(gang: &Gang) -> Vec<u32> {
    gang.pod_sets.iter().map(|set| set.count).collect()
}

impl Workload {
    /// Pods per pod set that the job asks for in addition to those that run. `None` if there are none, or if
    /// the workload can't be scaled up now.
    pub(crate) fn scale_up_counts(&self, class: &Class) -> Option<Vec<u32>> {
        let resized = self
            .resized
            .as_deref()
            .filter(|resized| resized.scale_up.is_none() && resized.wants.is_some())?;
        let can_scale_up = self.phase == Phase::Running
            && self.deletion.is_none()
            && self.inactive.is_none()
            && self.pods_too_many(class) == 0;
        let requested = self.requested_counts(class);
        let added: Vec<u32> =
            requested.iter().zip(&resized.runs).map(|(asked, runs)| asked.saturating_sub(*runs)).collect();
        (can_scale_up && added.iter().any(|pods| *pods > 0)).then_some(added)
    }

    /// The record with the request that a scale-up would serve; the submission if there is no such request.
    pub(crate) fn scale_up_requested(&self) -> RecordNumber {
        self.resized.as_ref().and_then(|resized| resized.wants).map_or(self.submitted, |wants| wants.asked)
    }

    /// The scale-up under way.
    pub fn started_scale_up(&self) -> Option<&StartedScaleUp> {
        self.resized.as_ref()?.scale_up.as_ref()
    }

    /// Records the size of an adopted run: it has `admitted` pods per pod set, by its last scale-up if it had
    /// one. The job asks for `requested` pods.
    pub(super) fn resize_adopted(
        &mut self,
        requested: &[u32],
        admitted: Vec<u32>,
        scale_up: Option<&ScaleUp>,
        number: RecordNumber,
    ) {
        let before = self.resized.take();
        if before.is_none() && scale_up.is_none() && admitted == *self.counts.as_deref().unwrap_or(requested)
        {
            return;
        }
        let size = before
            .as_ref()
            .map_or(total_size(requested), |before| before.wants.map_or(before.size, |wants| wants.size));
        let asked = before.as_ref().and_then(|before| before.wants).map_or(number, |wants| wants.asked);
        let mut resized = before.unwrap_or_else(|| Box::new(Resized::of(admitted.clone())));
        resized.most.clone_from(&admitted);
        (resized.scale_up, resized.last) =
            (None, scale_up.map_or(RecordNumber(0), |scale_up| scale_up.number));
        resized.runs = scale_up
            .map_or_else(|| admitted.clone(), |scale_up| vec![scale_up.size.parallelism; admitted.len()]);
        resized.wants = Some(Wants { size, asked });
        resized.settle(requested);
        (self.counts, self.resized) = (Some(admitted), Some(resized));
    }

    /// Moves the workload to another class and manifest. Returns the hash of the previous manifest.
    pub(crate) fn reclassify(
        &mut self,
        number: RecordNumber,
        class: ClassId,
        body: ContentHash,
        size_changed: bool,
    ) -> ContentHash {
        (self.class, self.changed) = (class, number);
        self.resizes += u32::from(size_changed);
        std::mem::replace(&mut self.body, body)
    }

    /// Records that the job, while quota is charged, asks for another size: `requested` pods per pod set.
    /// `admitted` pods stay charged, and `runs` pods are to run until the new size is taken over.
    pub(crate) fn resize(
        &mut self,
        number: RecordNumber,
        size: Size,
        requested: &[u32],
        admitted: Vec<u32>,
        runs: Vec<u32>,
    ) {
        let mut resized = self.resized.take().unwrap_or_else(|| Box::new(Resized::of(admitted.clone())));
        if resized.scale_up.is_none() {
            resized.runs = runs;
        }
        resized.most.clone_from(&admitted);
        resized.wants = Some(Wants { size, asked: number });
        resized.settle(requested);
        (self.counts, self.resized) = (Some(admitted), Some(resized));
    }

    /// Quota is charged for `admitted` pods per pod set, which is more than before.
    pub(super) fn begin_scale_up(&mut self, admitted: Vec<u32>, scale_up: StartedScaleUp) {
        let Some(resized) = self.resized.as_mut() else { return };
        (resized.most, resized.last) = (admitted.clone(), scale_up.number);
        resized.scale_up = Some(scale_up);
        self.counts = Some(admitted);
    }

    /// The agent has the capacity of a scale-up. The job asks for `requested` pods per pod set.
    pub(super) fn finish_scale_up(&mut self, requested: &[u32], scale_up: &ScaleUp, number: RecordNumber) {
        let admitted = &scale_up.places;
        let mut resized = self.resized.take().unwrap_or_else(|| Box::new(Resized::of(admitted.clone())));
        resized.wants.get_or_insert(Wants { size: total_size(requested), asked: number });
        (resized.scale_up, resized.last) = (None, scale_up.number);
        (resized.runs, resized.size) = (vec![scale_up.size.parallelism; admitted.len()], scale_up.size);
        resized.most.clone_from(admitted);
        resized.settle(requested);
        (self.counts, self.resized) = (Some(admitted.clone()), Some(resized));
    }

    /// The agent refused the scale-up under way. The gang continues with the pods that it had.
    pub(super) fn cancel_scale_up(&mut self, requested: &[u32]) {
        let Some(resized) = self.resized.as_mut() else { return };
        let Some(StartedScaleUp { before, .. }) = resized.scale_up.take() else { return };
        resized.most.clone_from(&before);
        resized.settle(requested);
        self.counts = Some(before);
    }
}

impl Workload {
    /// The gang as charged: the admitted gang without reclaimable pods.
    pub fn gang(&self, class: &Class) -> Arc<Gang> {
        let admitted = self.given_gang(class);
        let Some(spare) = &self.spare else { return admitted };
        let counts: Vec<u32> = admitted
            .pod_sets
            .iter()
            .zip(spare)
            .map(|(set, spare)| set.count.saturating_sub(*spare))
            .collect();
        Arc::new(admitted.with_counts(&counts))
    }

    pub fn reclaimable_pods(&self) -> u32 {
        self.spare.iter().flatten().sum()
    }
}

/// Reclaimable pods per pod set, from a report by pod set name. At most as many as the gang has.
pub(crate) fn reclaimable_of(gang: &Gang, pods: &BTreeMap<String, u32>) -> Vec<u32> {
    gang.pod_sets.iter().map(|set| pods.get(&set.name).copied().unwrap_or(0).min(set.count)).collect()
}

/// Whether `pods` per pod set are those of another size of the job. Fewer pods may also be a partial
/// admission, or what is left of completions.
fn is_other_size(pods: &[u32], class: &Class) -> bool {
    let differs = |(pods, set): (&u32, &PodSet)| {
        *pods > set.count || (*pods < set.count && set.min_count.is_none() && class.completions.is_none())
    };
    pods.iter().zip(&class.gang.pod_sets).any(differs)
}

/// The size of a gang with these pods per pod set, without a change of completions.
fn total_size(pods: &[u32]) -> Size {
    Size { parallelism: pods.iter().sum(), completions: None }
}
