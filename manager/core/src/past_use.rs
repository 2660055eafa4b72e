//! What local queues used before, for fair sharing of admissions between them.
//!
//! It is a fact like any other: a sample is a record, so that past use survives a restart, and a replay doesn't depend on how it
//! decays today. Every interval what was used decays, and what is used counts. Who is granted is taken down with the next end of
//! a batch, together with what the admission costs; until then the brain has that cost as pending, from the moment at which
//! quota is reserved, and takes it back when the quota goes back without a grant. A restart forgets what is pending, and takes
//! back every question that it was pending for.
//!
//! Elapsed time is calendar time, because it must be known over a restart; a clock that jumps misjudges past use for a while, and
//! nothing else. When it is time is said by boot time.
//!
//! Who uses nothing and of whom nothing is remembered isn't in a sample, and where that is everybody, there is none.

use crate::World;
use crate::input::Key;
use crate::record::{Consumed, Record};
use crate::turn::Turn;
use meridian_objects::{Kind, quantity};
use meridian_queueing::settings::AdmissionFairSharing;
use meridian_queueing::tree::WEIGHT_ONE;
use meridian_queueing::{alpha, decayed, declare, parts};
use meridian_shared::ids::{RecordNumber, Uid};
use meridian_shared::time::{Millis, Mono, Wall};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Local queues in one record at most: with a few resources each, it stays well below a megabyte.
const SAMPLED_MAX: usize = 1_000;

/// What a local queue used, as it counted at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PastUse {
    /// What still counts, by resource.
    pub consumed: Consumed,
    /// When it was taken down.
    pub at: Wall,
}

/// A local queue's key in samples and in the brain, taken apart.
fn names(local_queue: &str) -> Option<(Arc<str>, Arc<str>)> {
    local_queue.split_once('/').map(|(namespace, name)| (Arc::from(namespace), Arc::from(name)))
}

/// The keys of the objects that a sample is about.
pub(crate) fn keys<'a>(local_queues: impl Iterator<Item = &'a Arc<str>>) -> impl Iterator<Item = Key> {
    local_queues.filter_map(|key| names(key)).map(|(namespace, name)| Key {
        scope: None,
        kind: Kind::LocalQueue,
        namespace: Some(namespace),
        name,
    })
}

impl Turn<'_> {
    /// Takes down past use: of everybody when it is time, and at once of who was granted something.
    pub(crate) fn sample(&mut self) {
        let Some(sharing) = self.world.config.admission_fair_sharing.clone() else { return };
        let due = self.now.mono >= self.world.live.sample_at;
        let entered = std::mem::take(&mut self.world.live.entered);
        let counts = due || !entered.is_empty();
        let mut local_queues: BTreeSet<Arc<str>> = entered.keys().cloned().collect();
        if due {
            let interval = u64::try_from(sharing.sampling_ms).map_or(Millis(1), |ms| Millis(ms.max(1)));
            self.world.live.sample_at = self.now.mono + interval;
            local_queues.extend(self.world.users());
        }
        let (mut queues, mut forgotten) = (Vec::new(), Vec::new());
        for name in local_queues {
            match self.world.counts_now(&sharing, &name, entered.get(&name), self.now.wall) {
                Some(consumed) => queues.push((name, consumed)),
                None if self.world.state.past_use.contains_key(&name) => forgotten.push(name),
                None => {}
            }
        }
        let at = self.now.wall;
        while !queues.is_empty() || !forgotten.is_empty() {
            let rest = (
                queues.split_off(SAMPLED_MAX.min(queues.len())),
                forgotten.split_off(SAMPLED_MAX.min(forgotten.len())),
            );
            self.record(Record::Sampled { at, queues: queues.into_iter().collect(), forgotten });
            (queues, forgotten) = rest;
        }
        // What a start counts may put another local queue first (simulation seed 5003879).
        if counts && self.world.orders_by_usage() && self.world.deciding.brain_mut().reorder() {
            self.world.live.dirty = true;
        }
    }
}

impl World {
    /// When past use is taken down next; `None` while there is none.
    pub(crate) fn next_sample(&self) -> Option<Mono> {
        self.config.admission_fair_sharing.as_ref()?;
        let used = crate::workload::Phase::ALL
            .into_iter()
            .any(|phase| phase.granted() && self.tally.phase(phase) > 0);
        (used || !self.state.past_use.is_empty()).then_some(self.live.sample_at)
    }

    /// Whether some queue is ordered by what its local queues used.
    fn orders_by_usage(&self) -> bool {
        self.state.catalog.cluster_queues().any(|(_, spec)| spec.usage_based_admission)
    }

    /// Local queues that use something, or of which something is remembered.
    fn users(&self) -> impl Iterator<Item = Arc<str>> {
        let local_queues = self
            .state
            .catalog
            .local_queues()
            .filter(|(namespace, name, _)| !self.tally.local_queue(namespace, name).used.is_empty());
        local_queues
            .map(|(namespace, name, _)| Arc::from(format!("{namespace}/{name}")))
            .chain(self.state.past_use.keys().cloned())
    }

    /// What counts of a local queue's use at a moment, with what admissions cost it; `None` where nothing is left to remember.
    fn counts_now(
        &self,
        sharing: &AdmissionFairSharing,
        local_queue: &Arc<str>,
        entered: Option<&Consumed>,
        now: Wall,
    ) -> Option<Consumed> {
        let (namespace, name) = names(local_queue)?;
        self.state.catalog.local_queue(&namespace, &name)?;
        // Without a half-life nothing is remembered.
        if sharing.half_life_ms == 0 {
            return None;
        }
        let mut used = Consumed::new();
        for ((_, resource), amount) in &self.tally.local_queue(&namespace, &name).used {
            *used.entry(Arc::from(resource.as_str())).or_insert(0) += parts(resource, (*amount).max(0));
        }
        let past = self.state.past_use.get(local_queue);
        // What nobody has watched yet begins now: what it used until then isn't known.
        let elapsed = past.map_or(Millis(0), |past| now.since(past.at));
        let alpha = alpha(i64::try_from(elapsed.0).unwrap_or(i64::MAX), sharing.half_life_ms);
        let mut consumed = past.map_or_else(Consumed::new, |past| past.consumed.clone());
        used.keys().for_each(|resource| {
            consumed.entry(resource.clone()).or_insert(0);
        });
        for (resource, amount) in &mut consumed {
            *amount = decayed(*amount, used.get(resource).copied().unwrap_or(0), alpha);
        }
        for (resource, cost) in entered.into_iter().flatten() {
            *consumed.entry(resource.clone()).or_insert(0) += cost;
        }
        consumed.retain(|_, amount| *amount > 0);
        (!consumed.is_empty() || !used.is_empty()).then_some(consumed)
    }

    /// Follows what a record says of an admission that costs its local queue something: it came about, or it didn't.
    pub(crate) fn settle_penalty(&mut self, record: &Record) {
        if self.config.admission_fair_sharing.is_none() {
            return;
        }
        match record {
            Record::Granted { uid, .. } => self.enter(*uid),
            // Found running while it was asked for elsewhere.
            Record::Adopted { run, .. } if self.is_penalized(run.uid) => self.enter(run.uid),
            Record::Released { uid, .. } => self.take_back(*uid),
            _ => {}
        }
    }

    fn is_penalized(&self, uid: Uid) -> bool {
        self.deciding.id(uid).is_some_and(|id| self.deciding.brain().is_penalized(id))
    }

    fn take_back(&mut self, uid: Uid) {
        if let Some(id) = self.deciding.id(uid).filter(|id| self.deciding.brain().is_penalized(*id)) {
            self.deciding.brain_mut().take_back_penalty(id);
        }
    }

    /// An admission came about: what it costs is past use from now on.
    fn enter(&mut self, uid: Uid) {
        self.take_back(uid);
        let brain = self.deciding.brain();
        let Some((id, workload)) = self.deciding.id(uid).and_then(|id| Some((id, brain.workload(id)?)))
        else {
            return;
        };
        let (local_queue, penalty) = (workload.local_queue.clone(), brain.entry_penalty(id));
        if penalty.is_empty() {
            return;
        }
        let penalty: Vec<_> = penalty
            .into_iter()
            .map(|(resource, amount)| (brain.resource_name(resource).clone(), amount))
            .collect();
        let entered = self.live.entered.entry(local_queue).or_default();
        for (resource, amount) in penalty {
            *entered.entry(resource).or_insert(0) += amount;
        }
    }

    /// Absorbs a sample.
    pub(crate) fn absorb_sampled(
        &mut self,
        number: RecordNumber,
        at: Wall,
        queues: &BTreeMap<Arc<str>, Consumed>,
        forgotten: &[Arc<str>],
    ) {
        for (local_queue, consumed) in queues {
            self.state.past_use.insert(local_queue.clone(), PastUse { consumed: consumed.clone(), at });
        }
        for local_queue in forgotten {
            self.state.past_use.remove(local_queue);
        }
        for local_queue in queues.keys().chain(forgotten) {
            if let Some((namespace, name)) = names(local_queue) {
                self.state.catalog.touch_local_queue(&namespace, &name, number);
            }
            if self.config.admission_fair_sharing.is_some() {
                self.recall(local_queue.clone());
            }
        }
    }

    /// A local queue is gone, and what it used with it.
    pub(crate) fn forget_past_use(&mut self, key: &Key) {
        if let (Kind::LocalQueue, None, Some(namespace)) = (key.kind, &key.scope, &key.namespace) {
            self.state.past_use.remove(&*format!("{namespace}/{}", key.name));
        }
    }

    /// Tells the brain what every local queue used and weighs.
    pub(crate) fn recall_all(&mut self) {
        if self.config.admission_fair_sharing.is_none() {
            return;
        }
        let there: BTreeSet<Arc<str>> = self
            .state
            .catalog
            .local_queues()
            .map(|(namespace, name, _)| Arc::from(format!("{namespace}/{name}")))
            .collect();
        self.deciding.brain_mut().retain_local_queues(|name| there.contains(name));
        there.into_iter().for_each(|local_queue| self.recall(local_queue));
    }

    #[expect(clippy::cast_precision_loss, reason = "weights are only compared")]
    fn recall(&mut self, local_queue: Arc<str>) {
        let spec = names(&local_queue)
            .and_then(|(namespace, name)| self.state.catalog.local_queue(&namespace, &name));
        let weight =
            declare::weight(spec.and_then(|spec| spec.fair_sharing.as_ref())) as f64 / WEIGHT_ONE as f64;
        let consumed =
            self.state.past_use.get(&local_queue).map(|past| past.consumed.clone()).unwrap_or_default();
        let brain = self.deciding.brain_mut();
        let consumed =
            consumed.into_iter().map(|(resource, amount)| (brain.resource(&resource), amount)).collect();
        brain.recall(local_queue, consumed, weight);
    }

    /// What a local queue used by its weight, as its workloads are ordered by it; `None` where nothing is.
    pub(crate) fn weighted_use(&self, local_queue: &str) -> Option<f64> {
        self.config.admission_fair_sharing.as_ref()?;
        Some(self.deciding.brain().local_usage_value(local_queue))
    }

    /// Kueue's status of it; `None` where nothing is remembered.
    pub(crate) fn past_use_status(&self, local_queue: &str) -> Option<Value> {
        self.config.admission_fair_sharing.as_ref()?;
        let past = self.state.past_use.get(local_queue)?;
        let consumed: BTreeMap<&str, String> = past
            .consumed
            .iter()
            .map(|(resource, amount)| (&**resource, quantity::format_nano(*amount)))
            .collect();
        Some(json!({"consumedResources": consumed, "lastUpdate": crate::view::timestamp(past.at)}))
    }

    /// Where the brain is in line, it knows what is remembered, and nothing is pending but for who was promised quota and isn't
    /// granted.
    pub(crate) fn check_past_use(&self) -> Result<(), String> {
        if self.config.admission_fair_sharing.is_none() || !self.deciding.in_line() {
            return Ok(());
        }
        let brain = self.deciding.brain();
        for (local_queue, past) in &self.state.past_use {
            let known = brain.local_usage(local_queue).map(|usage| &usage.consumed);
            let known: Option<Consumed> = known.map(|parts| {
                parts.iter().map(|(r, amount)| (brain.resource_name(*r).clone(), *amount)).collect()
            });
            if known.as_ref() != Some(&past.consumed) {
                return Err(format!(
                    "the brain remembers {known:?} of `{local_queue}`, which used {:?}",
                    past.consumed
                ));
            }
        }
        for id in brain.penalized() {
            let phase = self.deciding.uid(id).and_then(|uid| self.state.workloads.get(&uid)).map(|w| w.phase);
            if !phase.is_some_and(|phase| phase.charged() && !phase.granted()) {
                return Err(format!("an admission is pending of a workload that is {phase:?}"));
            }
        }
        Ok(())
    }
}
