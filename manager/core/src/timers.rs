//! What time alone changes: lapses, start deadlines, recovery by time, back-off, retention, samples of past use.

use crate::record::Record;
use crate::turn::Turn;
use crate::workload::Phase;
use crate::{World, system};
use meridian_shared::ids::{Fence, Uid};
use meridian_shared::lease::ManagerLease;
use meridian_shared::planted::Bug;
use meridian_shared::protocol::{OnLoss, StopReason};
use meridian_shared::time::{Millis, Mono};

/// How often retention is looked at.
const RETAIN_EVERY: Millis = Millis::secs(10);
/// The same where one turn didn't forget all of them.
const RETAIN_ON: Millis = Millis(100);
/// Workloads forgotten in one turn at most.
const FORGET_MAX: usize = 1_000;

impl Turn<'_> {
    /// Leases that are over, and workloads that are kept no longer.
    pub(crate) fn end_what_is_over(&mut self) {
        let now = self.now.mono;
        // Without a valid claim somebody else may lead: nothing is decided about leases then (simulation seed 656).
        if now >= self.world.live.due && self.claims() {
            self.lapse();
        }
        if now >= self.world.live.retained {
            self.orphans_lapse();
            let more = self.retain();
            self.world.live.retained = now + if more { RETAIN_ON } else { RETAIN_EVERY };
        }
    }

    pub(crate) fn on_time(&mut self) {
        let now = self.now.mono;
        self.end_what_is_over();
        let rested: Vec<Uid> =
            self.world.live.not_before.iter().filter(|(_, t)| **t <= now).map(|(u, _)| *u).collect();
        let reopened = self
            .world
            .live
            .refused
            .iter()
            .filter(|(_, (t, _, _))| *t <= now)
            .map(|(k, _)| k.clone())
            .collect::<Vec<_>>();
        let returned = self.world.end_waits_after_failed_starts(now);
        if !rested.is_empty() || !reopened.is_empty() || returned {
            rested.iter().for_each(|u| {
                self.world.live.not_before.remove(u);
                self.world.live.giving_way.rested(*u);
                self.world.deciding.touch(*u);
            });
            reopened.iter().for_each(|k| {
                self.world.live.refused.remove(k);
            });
            self.stir();
        }
        for uid in self.world.live.giving_way.expire(now) {
            self.world.deciding.look_again(uid);
            self.stir();
        }
        self.look_for_the_starving();
        let late = self.world.live.clusters.iter().filter(|(_, c)| c.outbox.due(now));
        self.out.wake.extend(late.map(|(cluster, _)| cluster.clone()));
        self.give_up_on_the_silent();
        self.recovery_by_time();
        self.sample();
    }

    /// A cluster that isn't heard answers no question: its open legs are taken back, so that others can be asked.
    fn give_up_on_the_silent(&mut self) {
        let now = self.now.mono;
        let limit = meridian_shared::lease::silence(self.world.config.term_min);
        let silent: Vec<_> = self
            .world
            .live
            .clusters
            .iter()
            .filter(|(_, c)| now.since(c.heard) >= limit)
            .map(|(name, _)| name.clone())
            .collect();
        for cluster in silent {
            if self.world.has_open_legs(&cluster) {
                self.withdraw_all(&cluster);
            }
        }
    }

    /// Ends leases whose deadline has passed, and stops gangs that did not start in time.
    fn lapse(&mut self) {
        let now = self.now.mono;
        let mut lapsed = Vec::new();
        let mut late = Vec::new();
        let mut due = Mono(u64::MAX);
        for (fence, lease) in &self.world.live.leases {
            let Some(workload) = self.world.state.workloads.get(&lease.uid) else { continue };
            // Beside a copy the original may go on renewing.
            if workload.on_loss == OnLoss::Fence && !self.world.disputed(workload) {
                if lease.lease.lapsed(now) {
                    lapsed.push((lease.uid, *fence));
                    continue;
                }
                due = due.min(lease.lease.deadline);
            }
            if workload.phase == Phase::Granted {
                if now >= lease.start_by {
                    late.push((lease.uid, *fence));
                } else {
                    due = due.min(lease.start_by);
                }
            }
        }
        self.world.live.due = due;
        for (uid, fence) in lapsed {
            self.world.live.counts.lapses += 1;
            self.record(Record::Lapsed { uid, fence, at: self.now.wall, declared: false, by: None });
            self.freed(uid, fence);
        }
        for (uid, fence) in late {
            if let Some(cluster) =
                self.workload(uid).and_then(|w| w.leg_of(fence)).map(|(_, l)| l.cluster.clone())
            {
                self.failed_start(uid, &cluster);
            }
            self.order_stop(uid, fence, StopReason::StartTimeout, &system());
        }
    }

    /// A lease counts no more once the records so far are durable.
    pub(crate) fn let_go(&mut self, fence: Fence) {
        if let Some(over) = self.world.live.leases.remove(&fence) {
            self.world.live.let_go.insert(fence, (over.lease.deadline, self.world.state.last));
        }
    }

    /// What follows when a right to run is over and the workload isn't: it is forgotten if it was deleted, else it waits again.
    pub(crate) fn freed(&mut self, uid: Uid, fence: Fence) {
        self.let_go(fence);
        let learned = self
            .workload(uid)
            .filter(|w| w.deletion.is_none() && w.phase == Phase::Pending)
            .and_then(|w| w.learned.clone());
        if let Some(result) = learned {
            self.finish_as(uid, result);
        }
        if self.workload(uid).is_some_and(|w| w.deletion.is_some() && w.phase == Phase::Pending) {
            self.record(Record::Forgotten { uid });
        }
        self.stir();
    }

    /// Forgets finished workloads whose time is over. Whether some are left.
    fn retain(&mut self) -> bool {
        let wall = self.now.wall;
        let mut over: Vec<Uid> = Vec::new();
        let kept_max = self.world.config.finished_kept_max;
        let many = self.world.live.finished.len();
        for (i, (at, uid)) in self.world.live.finished.iter().enumerate() {
            let Some(workload) = self.world.state.workloads.get(uid) else { continue };
            let keep = workload.ttl.unwrap_or(self.world.config.finished_kept);
            let crowded = workload.ttl.is_none() && many - i > kept_max;
            if wall.since(*at) >= keep || crowded {
                over.push(*uid);
            }
            if over.len() >= FORGET_MAX {
                break;
            }
        }
        let more = over.len() >= FORGET_MAX;
        for uid in over {
            self.record(Record::Forgotten { uid });
        }
        let workloads = &self.world.state.workloads;
        self.world
            .live
            .failed_starts
            .retain(|(uid, _), _| workloads.get(uid).is_some_and(|workload| workload.finished.is_none()));
        more
    }
}

impl World {
    /// Notes that an answer with this lease was composed.
    pub(crate) fn composed(&mut self, fence: Fence, now: Mono) {
        let planted = self.config.planted;
        if let Some(lease) = self.live.leases.get_mut(&fence) {
            lease.first.get_or_insert(now);
            lease.composed = Some(now);
            if planted.has(Bug::ManagerCountsFromAcknowledgement) {
                return;
            }
            if planted.has(Bug::DeadlineMovesBack) {
                // As if an answer counted from when its command was first composed.
                lease.lease = ManagerLease::from_composed(lease.first.unwrap_or(now), lease.lease.term);
            } else if planted.has(Bug::NoDriftBound) {
                lease.lease.deadline = lease.lease.deadline.max(now + lease.lease.term);
            } else {
                lease.lease.compose(now);
            }
        }
    }
}
