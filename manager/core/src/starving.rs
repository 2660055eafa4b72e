//! Who waits too long, and the room that is kept for it: a large gang that smaller ones always pass by would never start.
//!
//! The head of a queue that has waited as long as the guard says is passed by nobody any more: the queue brain gives the quota
//! that it asks for to nobody else, and one cluster keeps the room that comes free for it. Which workloads have to end there
//! first is foreseen, so that others may still use what it won't need. Who can't be started whatever ends is no such head.
//!
//! All of it is memory: after a restart it is found anew.

use crate::World;
use crate::domains::Gone;
use crate::explain::Why;
use crate::flavors::Flavors;
use crate::places::Candidates;
use crate::queues::NoQuota;
use crate::turn::Turn;
use meridian_queueing::model::{QueueId, WorkloadId};
use meridian_queueing::names::FlavorId;
use meridian_shared::gang::{Amounts, Gang, add_scaled};
use meridian_shared::ids::{ClusterName, Uid};
use meridian_shared::time::{Millis, Wall};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// It is looked for who waits too long so many times in that time.
const LOOKS: u64 = 60;
/// And no more often than this: it costs as much as there are classes that wait.
const LOOK_EVERY_MIN: Millis = Millis::secs(1);
/// Combinations of flavors that are tried for one of them: a queue with more groups than two seldom has as many.
const CHOICES_MAX: usize = 64;
/// Workloads that room is kept for at once: each costs a look at its cluster in every scheduling pass.
const STARVING_MAX: usize = 16;

/// How often it is looked for who waits too long.
fn look_every(guard: Millis) -> Millis {
    Millis(guard.0 / LOOKS).max(LOOK_EVERY_MIN)
}

impl Turn<'_> {
    /// Time alone makes a wait too long.
    pub(crate) fn look_for_the_starving(&mut self) {
        let live = &mut self.world.live;
        if let Some(guard) = self.world.config.starvation_guard
            && self.now.mono >= live.starving_due
        {
            live.starving_due = self.now.mono + look_every(guard);
            (live.look_for_starving, live.dirty) = (true, true);
        }
    }

    /// Finds who waits too long, when it is time to, and brings what is kept for them in line with what runs.
    pub(crate) fn mind_the_starving(&mut self) {
        let Some(guard) = self.world.config.starvation_guard else { return };
        if std::mem::take(&mut self.world.live.look_for_starving) {
            self.find_the_starving(guard);
            return;
        }
        let starving: Vec<WorkloadId> = self.world.deciding.brain().all_starving().collect();
        let mut starving: Vec<(Wall, Uid)> = starving
            .into_iter()
            .filter_map(|id| self.world.waits_since(self.world.deciding.uid(id)?))
            .collect();
        starving.sort_unstable();
        for (since, uid) in starving {
            self.keep_for_the_starving(uid, since);
        }
    }

    fn find_the_starving(&mut self, guard: Millis) {
        let brain = self.world.deciding.brain();
        let queues: Vec<QueueId> = brain.queue_list().map(|(_, id)| id).collect();
        let too_long = |queue: &QueueId| {
            // What a gang grows by waits as long as it takes: the gang runs.
            let id = brain.first_waiting(*queue, |id| !self.world.deciding.is_growth(id))?;
            let (since, uid) = self.world.waits_since(self.world.deciding.uid(id)?)?;
            (self.now.wall.since(since) >= guard && !self.world.is_hopeless(uid))
                .then_some((since, uid, *queue, id))
        };
        let mut found: Vec<(Wall, Uid, QueueId, WorkloadId)> = queues.iter().filter_map(too_long).collect();
        found.sort_unstable();
        let mut chosen: BTreeMap<QueueId, WorkloadId> = BTreeMap::new();
        for (since, uid, queue, id) in found {
            if chosen.len() < STARVING_MAX && self.keep_for_the_starving(uid, since) {
                chosen.insert(queue, id);
            }
        }
        for queue in queues {
            let starving = chosen.get(&queue).copied();
            if self.world.deciding.brain().starving(queue) != starving {
                self.world.live.counts.starved += u64::from(starving.is_some());
                self.world.deciding.brain_mut().set_starving(queue, starving);
            }
        }
    }

    /// Keeps room in one cluster, where the gang would fit once enough has ended. False where there is no such cluster.
    fn keep_for_the_starving(&mut self, uid: Uid, since: Wall) -> bool {
        let before = self.world.kept_for(uid);
        if before.is_some_and(|(_, starving)| !starving) {
            // Others stop for it, and what they free is kept for it.
            return true;
        }
        let Some(gang) = self.world.gang_of(uid) else { return false };
        let home = before.map(|(cluster, _)| cluster.clone());
        let candidates = self.candidates_for(uid, Candidates::WhoeverRefused);
        // Where there is never room for all of it, the fewest pods that do have to start, too.
        let sizes = [Some(gang.clone()), gang.least().map(Arc::new)];
        // Its nodes are those of one flavor, and which that will be is seen when it is admitted: the first that could have it anywhere.
        let choices = self.world.flavors_it_may_get(uid);
        let found = sizes.into_iter().flatten().find_map(|gang| {
            choices.iter().find_map(|flavors| {
                let gang = self.world.with_flavors(&gang, flavors);
                Some((self.best_home((since, uid), home.as_ref(), &gang, &candidates)?, gang))
            })
        });
        let Some(((cluster, gone), gang)) = found else { return false };
        self.world.keep_room_for_the_starving(uid, since, cluster, gang, gone);
        true
    }

    /// The cluster in which the least has to end before the gang fits, the one where room was kept before rather than another;
    /// and who has to end there.
    fn best_home(
        &self,
        who: (Wall, Uid),
        home: Option<&ClusterName>,
        gang: &Arc<Gang>,
        candidates: &[ClusterName],
    ) -> Option<(ClusterName, BTreeSet<Uid>)> {
        let world = &*self.world;
        let scarce = gang.scarcest().map_or_else(String::new, str::to_owned);
        let weight = |gone: &BTreeSet<Uid>| {
            gone.iter()
                .filter_map(|u| world.gang_of(*u)?.total().get(&scarce).copied())
                .fold(0, i64::saturating_add)
        };
        let in_the_way =
            candidates.iter().filter_map(|cluster| Some((cluster, self.in_its_way(who, gang, cluster)?)));
        let (cluster, gone) =
            in_the_way.min_by_key(|(cluster, gone)| (home != Some(*cluster), weight(gone)))?;
        Some((cluster.clone(), gone))
    }

    /// Who has to end in a cluster before the gang fits there, beside what is kept for those who come first: those that will
    /// end first, by what is known. `None` where it never fits.
    fn in_its_way(
        &self,
        (since, uid): (Wall, Uid),
        gang: &Arc<Gang>,
        cluster: &ClusterName,
    ) -> Option<BTreeSet<Uid>> {
        let world = &*self.world;
        let rooms = &world.live.clusters.get(cluster)?.rooms;
        let kept = world.kept_room_before(cluster, uid, Some((since, uid)));
        let ends = |uid: &Uid| {
            let workload = world.state.workloads.get(uid)?;
            let begun = workload.history.last().map_or(workload.since, |stay| stay.granted);
            let most =
                world.queues.class(workload.class).gang.max_run.map(|most| most.saturating_sub(workload.ran));
            Some((most.is_none(), most.map_or(begun, |most| begun + most), *uid))
        };
        let sooner = kept.all_victims();
        let here = world.loads.get(cluster).into_iter().flatten().map(|(uid, _)| uid);
        let mut there: Vec<_> = here
            .filter(|uid| world.runs_in(**uid, cluster) && !sooner.contains(uid))
            .filter_map(ends)
            .collect();
        there.sort_unstable();
        let gangs: Vec<Arc<Gang>> = there.iter().filter_map(|(_, _, uid)| world.gang_of(*uid)).collect();
        let kept_gangs = kept.all_gangs();
        let caps = world.caps_for_the_starving(uid, cluster, &kept);
        let fits = |n: usize| {
            let within = caps.as_ref().is_none_or(|caps| {
                caps.without(world, there[..n].iter().map(|(_, _, uid)| *uid)).judge(gang).is_ok()
            });
            if !within {
                return false;
            }
            let gone: Vec<Arc<Gang>> =
                sooner.iter().filter_map(|v| world.gang_of(*v)).chain(gangs[..n].iter().cloned()).collect();
            let mut freed = Amounts::new();
            gone.iter().for_each(|gang| add_scaled(&mut freed, &gang.total(), 1));
            rooms.fits_without(gang, &gone, &kept_gangs)
                && world.has_domains(gang, cluster, Gone::Having(&freed))
        };
        // Where gangs really lie is guessed, so more that end may fit worse: the whole is asked before the parts.
        if !fits(gangs.len()) {
            return None;
        }
        let (mut low, mut high) = (0, gangs.len());
        while low < high {
            let middle = usize::midpoint(low, high);
            if fits(middle) { high = middle } else { low = middle + 1 }
        }
        Some(there[..high].iter().map(|(_, _, uid)| *uid).collect())
    }
}

impl World {
    /// The flavors that its queue may give a workload, one for each of its resources, in the order in which they are tried.
    fn flavors_it_may_get(&self, uid: Uid) -> Vec<Flavors> {
        let brain = self.deciding.brain();
        let Some(queue) =
            self.deciding.id(uid).and_then(|id| brain.workload(id)).map(|w| brain.queue(w.queue))
        else {
            return vec![Flavors::default()];
        };
        let mut choices: Vec<BTreeMap<String, Arc<str>>> = vec![BTreeMap::new()];
        for group in &queue.setup.groups {
            let with = |choice: &BTreeMap<String, Arc<str>>, flavor: &FlavorId| {
                let mut choice = choice.clone();
                choice.extend(group.resources.iter().map(|resource| {
                    (brain.resource_name(*resource).to_string(), brain.flavor_name(*flavor).clone())
                }));
                choice
            };
            let more = choices
                .iter()
                .flat_map(|choice| group.flavors.iter().map(move |flavor| with(choice, flavor)))
                .take(CHOICES_MAX)
                .collect::<Vec<_>>();
            if !more.is_empty() {
                choices = more;
            }
        }
        choices.into_iter().map(Flavors::from).collect()
    }

    /// Since when a workload waits, and who it is: since it was submitted, last ran, or was last put back into the queue.
    fn waits_since(&self, uid: Uid) -> Option<(Wall, Uid)> {
        let workload = self.state.workloads.get(&uid)?;
        let ran = workload.history.last().and_then(|stay| stay.over);
        let back = workload.reactivated.as_ref().map(|reactivated| reactivated.at);
        Some((ran.into_iter().chain(back).fold(workload.created, Wall::max), uid))
    }

    /// Whether the end of others can't help a workload, as far as is known.
    fn is_hopeless(&self, uid: Uid) -> bool {
        let Some(id) = self.state.workloads.get(&uid).map(|w| w.class) else { return false };
        match self.live.hindrances.before(id) {
            Some(Why::Quota(NoQuota::NotCovered { .. } | NoQuota::NoMatchingFlavor { .. })) => true,
            // So it was when it was looked at last: its queue may have been opened since.
            Some(Why::Route(_) | Why::Inactive { .. }) => {
                let brain = self.deciding.brain();
                let queue =
                    self.deciding.id(uid).and_then(|id| brain.workload(id)).map(|w| brain.queue(w.queue));
                queue.is_none_or(|queue| queue.setup.inactive.is_some())
            }
            // Fewer pods may do.
            Some(Why::Quota(NoQuota::ExceedsQuota { resource, nominal, .. })) => {
                self.queues.class(id).gang.least().is_none_or(|least| {
                    let asks = self.config.resources.total(&least).get(resource).copied().unwrap_or(0);
                    asks > *nominal
                })
            }
            _ => false,
        }
    }
}
