//! What may change of a job that is there: its priority class, and of an elastic one (`kueue.x-k8s.io/elastic-job: "true"`) how
//! many pods it has.
//!
//! With another priority a job takes another place in its queue, and whoever runs may be displaced by others, or no longer.
//!
//! An elastic job that waits takes the new number at once and keeps its age. Who runs goes on with fewer: its agent ends the pods that are too
//! many, and quota comes back as the places are told to be empty, like that of pods that have succeeded. How it goes on with more
//! is in `growing`.
//!
//! Invariants: what was given stays charged until the agent has seen it empty, whatever the job says it wants; one change of
//! its size at a time is under way at an agent.

use crate::facts::submission::{Class, ClassId};
use crate::state::workload::Workload;
use crate::state::workload::phase::Phase;
use meridian_shared::gang::Gang;
use meridian_shared::ids::{ContentHash, RecordNumber};
use meridian_shared::protocol::{Growth, Run, Size};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// That a job has another number of pods than the gang that runs of it had at first.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Resized {
    /// What the gang that runs is to have.
    pub size: Size,
    /// What was given to it at most, by pod set.
    pub most: Vec<u32>,
    /// Pods of each pod set that it is to have; none stated by a record from before gangs could grow: what the job wants.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub runs: Vec<u32>,
    /// What the job wants, where that is something else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wants: Option<Wants>,
    /// Quota is charged for more, and its agent isn't known to have the room.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub growing: Option<Growing>,
    /// The latest growth.
    #[serde(default)]
    pub last: RecordNumber,
}

impl Resized {
    /// Of a gang that was given so many places and has all its pods.
    pub(crate) fn of(places: Vec<u32>) -> Self {
        let size = Size { parallelism: places.iter().sum(), completions: None };
        Self { size, most: places.clone(), runs: places, wants: None, growing: None, last: RecordNumber(0) }
    }

    /// What is wanted follows at once where it isn't more and nothing else is under way.
    pub(crate) fn settle(&mut self, wanted: &[u32]) {
        let Some(Wants { size, .. }) = self.wants.filter(|_| self.growing.is_none()) else { return };
        if self.runs.iter().zip(wanted).all(|(runs, wanted)| wanted <= runs) {
            self.size = if self.runs == wanted { self.size } else { size };
            (self.runs, self.wants) = (wanted.to_vec(), None);
        }
    }
}

/// Another size than a gang runs with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Wants {
    /// Which.
    pub size: Size,
    /// The record by which it was asked for: its place in the queue.
    pub asked: RecordNumber,
}

/// A growth that quota is charged for.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Growing {
    /// The record by which it was charged.
    pub number: RecordNumber,
    /// Places of each pod set that were given before.
    pub before: Vec<u32>,
    /// Pods of each pod set that it is to have then.
    pub runs: Vec<u32>,
    /// The same, as its agent is told.
    pub size: Size,
}

impl Workload {
    /// Its gang as an attempt of it has it that is taken over: where it has grown, what it was given with that; where its job was
    /// made smaller or larger, as many pods as its agent tells, if that can be, else the most that were given. Where a journal
    /// that doesn't know of the grant saw another size asked for, that is what the agent tells, too (simulation seed 6002742).
    pub(crate) fn adopted_gang(&self, class: &Class, run: &Run) -> Arc<Gang> {
        if let Some(grown) =
            run.grown.as_ref().filter(|grown| grown.places.len() == class.gang.pod_sets.len())
        {
            return Arc::new(class.gang.of_counts(&grown.places));
        }
        let placement = run.placement.as_deref();
        let told = placement.map(|placement| {
            placement
                .pod_sets
                .iter()
                .map(|set| u32::try_from(set.pods()).unwrap_or(u32::MAX))
                .collect::<Vec<_>>()
        });
        let Some(Resized { most, .. }) = self.resized.as_deref() else {
            let other = class.elastic && run.spec != self.body;
            let can_be = |told: &Vec<u32>| {
                told.len() == class.gang.pod_sets.len()
                    && told.iter().all(|told| (1..=meridian_objects::job::MAX_PODS).contains(told))
            };
            return told
                .filter(|told| other && can_be(told))
                .map_or_else(|| self.given_gang(class), |told| Arc::new(class.gang.of_counts(&told)));
        };
        let can_be = |told: &Vec<u32>| {
            told.len() == most.len() && told.iter().zip(most).all(|(told, most)| (1..=*most).contains(told))
        };
        Arc::new(class.gang.of_counts(&told.filter(can_be).unwrap_or_else(|| most.clone())))
    }

    /// Pods of each pod set that the gang which runs is to have, once nothing that was decided of it is under way.
    pub(crate) fn runs_with(&self, class: &Class) -> Vec<u32> {
        match self.resized.as_deref() {
            Some(Resized { growing: Some(growing), .. }) => growing.runs.clone(),
            Some(Resized { runs, .. }) if !runs.is_empty() => runs.clone(),
            Some(_) => counts_of(&class.gang),
            None => counts_of(&self.given_gang(class)),
        }
    }

    /// Pods that the gang isn't to have any more and that were ended, by pod set.
    pub(crate) fn no_longer_wanted(&self, class: &Class) -> Vec<u32> {
        let given = self.given_gang(class);
        let sets = given.pod_sets.iter().zip(self.runs_with(class)).enumerate();
        let spare = |at: usize| self.spare.as_ref().and_then(|spare| spare.get(at)).copied().unwrap_or(0);
        sets.map(|(at, (given, runs))| given.count.saturating_sub(runs).min(spare(at))).collect()
    }

    /// Pods that the gang isn't to have any more, of those that haven't given back what they had.
    pub(crate) fn pods_too_many(&self, class: &Class) -> u32 {
        let has = self.gang(class);
        has.pod_sets.iter().zip(self.runs_with(class)).map(|(has, runs)| has.count.saturating_sub(runs)).sum()
    }
}

/// Pods of each pod set.
pub(crate) fn counts_of(gang: &Gang) -> Vec<u32> {
    gang.pod_sets.iter().map(|set| set.count).collect()
}

impl Workload {
    /// Pods of each pod set that are to be added to the gang that runs, as things are.
    pub(crate) fn scale_up_counts(&self, class: &Class) -> Option<Vec<u32>> {
        let resized =
            self.resized.as_deref().filter(|resized| resized.growing.is_none() && resized.wants.is_some())?;
        let settled = self.phase == Phase::Running
            && self.deletion.is_none()
            && self.inactive.is_none()
            && self.pods_too_many(class) == 0;
        let more: Vec<u32> = class
            .gang
            .pod_sets
            .iter()
            .zip(&resized.runs)
            .map(|(set, runs)| set.count.saturating_sub(*runs))
            .collect();
        (settled && more.iter().any(|more| *more > 0)).then_some(more)
    }

    /// By which record the larger size was asked for.
    pub(crate) fn scale_up_requested(&self) -> RecordNumber {
        self.resized.as_ref().and_then(|resized| resized.wants).map_or(self.submitted, |wants| wants.asked)
    }

    /// What is under way, with the size before and after.
    pub(crate) fn growing(&self) -> Option<&Growing> {
        self.resized.as_ref()?.growing.as_ref()
    }

    /// Takes in how large the gang is that was taken over.
    pub(super) fn resize_adopted(
        &mut self,
        wanted: &[u32],
        places: Vec<u32>,
        grown: Option<&Growth>,
        number: RecordNumber,
    ) {
        let before = self.resized.take();
        if before.is_none() && grown.is_none() && places == *self.counts.as_deref().unwrap_or(wanted) {
            return;
        }
        let known =
            before.as_ref().map_or(whole(wanted), |before| before.wants.map_or(before.size, |w| w.size));
        let asked = before.as_ref().and_then(|before| before.wants).map_or(number, |wants| wants.asked);
        let mut resized = before.unwrap_or_else(|| Box::new(Resized::of(places.clone())));
        resized.most.clone_from(&places);
        (resized.growing, resized.last) = (None, grown.map_or(RecordNumber(0), |grown| grown.number));
        resized.runs =
            grown.map_or_else(|| places.clone(), |grown| vec![grown.size.parallelism; places.len()]);
        resized.wants = Some(Wants { size: known, asked });
        resized.settle(wanted);
        (self.counts, self.resized) = (Some(places), Some(resized));
    }

    /// Gives the workload another class and body. Returns the old body.
    pub(crate) fn reclassify(
        &mut self,
        number: RecordNumber,
        class: ClassId,
        body: ContentHash,
        resized: bool,
    ) -> ContentHash {
        (self.class, self.changed) = (class, number);
        self.resizes += u32::from(resized);
        std::mem::replace(&mut self.body, body)
    }

    /// Notes that the job wants another number of pods. What was admitted stays charged.
    pub(crate) fn resize(
        &mut self,
        number: RecordNumber,
        size: Size,
        wanted: &[u32],
        given: Vec<u32>,
        runs: Vec<u32>,
    ) {
        let mut resized = self.resized.take().unwrap_or_else(|| Box::new(Resized::of(given.clone())));
        if resized.growing.is_none() {
            resized.runs = runs;
        }
        resized.most.clone_from(&given);
        resized.wants = Some(Wants { size, asked: number });
        resized.settle(wanted);
        (self.counts, self.resized) = (Some(given), Some(resized));
    }

    /// Quota is charged for more pods.
    pub(super) fn begin_scale_up(&mut self, places: Vec<u32>, growing: Growing) {
        let Some(resized) = self.resized.as_mut() else { return };
        (resized.most, resized.last) = (places.clone(), growing.number);
        resized.growing = Some(growing);
        self.counts = Some(places);
    }

    /// Its agent has the room.
    pub(super) fn finish_scale_up(&mut self, wanted: &[u32], growth: &Growth, number: RecordNumber) {
        let mut resized = self.resized.take().unwrap_or_else(|| Box::new(Resized::of(growth.places.clone())));
        resized.wants.get_or_insert(Wants { size: whole(wanted), asked: number });
        (resized.growing, resized.last) = (None, growth.number);
        (resized.runs, resized.size) = (vec![growth.size.parallelism; growth.places.len()], growth.size);
        resized.most.clone_from(&growth.places);
        resized.settle(wanted);
        (self.counts, self.resized) = (Some(growth.places.clone()), Some(resized));
    }

    /// Its agent goes on with what there is.
    pub(super) fn cancel_scale_up(&mut self, wanted: &[u32]) {
        let Some(resized) = self.resized.as_mut() else { return };
        let Some(Growing { before, .. }) = resized.growing.take() else { return };
        resized.most.clone_from(&before);
        resized.settle(wanted);
        self.counts = Some(before);
    }
}

impl Workload {
    /// Its gang as it is charged: what it was given, less what it doesn't need any more.
    pub(crate) fn gang(&self, class: &Class) -> Arc<Gang> {
        let given = self.given_gang(class);
        let Some(spare) = &self.spare else { return given };
        let left: Vec<u32> =
            given.pod_sets.iter().zip(spare).map(|(set, spare)| set.count.saturating_sub(*spare)).collect();
        Arc::new(given.of_counts(&left))
    }

    /// How many of its pods gave back what they had.
    pub(crate) fn reclaimable_pods(&self) -> u32 {
        self.spare.iter().flatten().sum()
    }
}

/// How many pods of each pod set are spare, no more than there are.
pub(crate) fn reclaimable_of(gang: &Gang, pods: &BTreeMap<String, u32>) -> Vec<u32> {
    gang.pod_sets.iter().map(|set| pods.get(&set.name).copied().unwrap_or(0).min(set.count)).collect()
}

/// So many pods at once, whatever has to succeed.
pub(crate) fn whole(pods: &[u32]) -> Size {
    Size { parallelism: pods.iter().sum(), completions: None }
}
