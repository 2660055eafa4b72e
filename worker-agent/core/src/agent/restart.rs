//! The start of a session: compares the durable state with the runs that the runner has.

use super::grant::stopped;
use super::{Agent, ReplacementQueue};
use crate::config::Config;
use crate::durable::{Durable, StoredRun};
use crate::elapsed::Elapsed;
use crate::ledger::Ledger;
use crate::leg::Phase;
use crate::link::{CapacityReports, CommandQueue, EventQueue, Transmissions, UsageReports};
use crate::offers::Offers;
use crate::runs::{LiveRun, Runs, StopCause};
use crate::runtime::{Found, FoundState};
use crate::turn::{Effect, Outcome};
use meridian_shared::ids::{Session, Uid};
use meridian_shared::lease::{self, AgentLease};
use meridian_shared::protocol::OnLoss;
use meridian_shared::time::{Mono, Now, Wall};
use std::collections::BTreeMap;

pub(super) fn start(
    config: Config,
    mut durable: Durable,
    found: Vec<Found>,
    random: u64,
    now: Now,
) -> (Agent, Outcome) {
    let mut out = Outcome::default();
    let counter = durable.new_session(out.writes());
    let stored = durable.runs().clone();
    let mut agent = Agent {
        config,
        session: Session { counter, id: random },
        durable,
        ledger: Ledger::default(),
        offers: Offers::default(),
        runs: Runs::default(),
        replacement_queue: ReplacementQueue::default(),
        unavailable_kinds: BTreeMap::new(),
        strays: BTreeMap::new(),
        transmissions: Transmissions::default(),
        commands: CommandQueue::default(),
        events: EventQueue::default(),
        capacity: CapacityReports::default(),
        usage: UsageReports::default(),
        inventory_due: true,
        ranges: Vec::new(),
        poll: lease::poll(lease::TERM_MIN_DEFAULT),
        lost: false,
        due: Mono(0),
        purged: now.wall,
        elapsed: Elapsed::since(now),
    };
    agent.ledger.advance(agent.elapsed.calendar(now.mono));
    let outdated = stored.values().any(|run| agent.elapsed.outdates(run.stamp));
    for (uid, run) in stored {
        agent.adopt(uid, run);
    }
    for found in found {
        agent.on_found(found, &mut out);
    }
    agent.stop_missing(&mut out);
    if outdated {
        agent.store_runs(&mut out);
    }
    agent.on_time(now.mono, now, &mut out);
    (agent, out)
}

impl Agent {
    /// Takes a stored attempt back as *absent*, until the runner is known to have it.
    fn adopt(&mut self, uid: Uid, stored: StoredRun) {
        // A deadline of another boot means nothing. On this boot a pause that no agent saw counts as elapsed.
        let same_boot = stored.boot == self.config.boot;
        let stamp = stored.stamp;
        let missed = self.elapsed.missed_since(stamp);
        let lease = stored.lease.filter(|_| same_boot).map(|l| AgentLease { lapses: l.lapses - missed, ..l });
        // A wall clock that was set back must not lengthen a wait. After a reboot the change of the clock
        // isn't known, so a wait starts now at the latest.
        let now = self.ledger.now();
        let moment = |at: Wall| if same_boot { self.elapsed.translate(at, stamp) } else { at }.min(now);
        let mut record = stored.record;
        record.waiting_since = record.waiting_since.map(moment);
        let toleration = stored.toleration.into_iter().map(|deadline| deadline.translated(moment)).collect();
        self.ledger.add_provided(record.offer, stored.provided);
        self.ledger.adopt(record.offer, stored.allocation);
        self.ledger.adopt_toleration(record.offer, toleration);
        if record.waiting_since.is_some() {
            self.replacement_queue.insert(uid);
        }
        self.runs.insert(uid, LiveRun { record, phase: Phase::Absent, lease });
    }

    fn on_found(&mut self, found: Found, out: &mut Outcome) {
        let Found { uid, fence, nodes, completed, state } = found;
        self.note_completed(uid, fence, &completed);
        match (self.runs.attempt_mut(uid, fence), state) {
            (Some(run), FoundState::Live { running }) => {
                run.phase = if running { Phase::Running } else { Phase::Starting };
                // Without a lease of this boot, or with a stop already ordered, the run must end now.
                let unleased = run.lease.is_none() && run.record.on_loss == OnLoss::Fence;
                if unleased || run.record.stopped_by.is_some() {
                    let cause = run.record.stopped_by.unwrap_or(StopCause::Lapse);
                    return self.order_stop(uid, cause, out);
                }
                if running {
                    self.report_running(uid, fence);
                }
                self.order_open_moves(uid, out);
                self.order_scale_down(uid, out);
            }
            (Some(run), FoundState::Ended { result, pod_failures, ran }) => {
                run.phase = Phase::Running;
                self.end_run(uid, result, pod_failures, ran, out);
            }
            // The lease of this run is unknown, so stop the run, and close its nodes until it has ended. An
            // end in an existing tombstone stays.
            (None, FoundState::Live { .. }) => {
                let tombstone = self.durable.tombstones().get(&(uid, fence));
                let end = tombstone.map_or_else(|| stopped(uid, fence), |tombstone| tombstone.end.clone());
                self.strays.insert((uid, fence), end);
                self.ledger.close(uid, fence, nodes);
                out.act(Effect::Stop { uid, fence });
            }
            (None, FoundState::Ended { .. }) => {}
        }
    }

    /// Makes sure that a stored run that was not found never starts again: occupies its name, then reports
    /// its end.
    fn stop_missing(&mut self, out: &mut Outcome) {
        for uid in self.runs.uids() {
            let Some(run) = self.runs.get_mut(uid).filter(|run| run.phase == Phase::Absent) else { continue };
            run.phase = Phase::Stopping;
            out.act(Effect::Stop { uid, fence: run.record.fence });
        }
    }

    /// Makes the state of a live run durable.
    pub(super) fn store_run(&mut self, uid: Uid, out: &mut Outcome) {
        let Some(run) = self.runs.get(uid) else { return };
        let offer = run.record.offer;
        let stored = StoredRun {
            record: run.record.clone(),
            phase: run.phase,
            lease: run.lease.map(|l| AgentLease { lapses: self.elapsed.boot_time(l.lapses), ..l }),
            boot: self.config.boot,
            stamp: self.elapsed.stamp(),
            allocation: self.ledger.allocation(offer),
            provided: self.ledger.provided(offer),
            toleration: self.ledger.toleration_of(offer).to_vec(),
        };
        self.durable.put_run(uid, stored, out.writes());
    }

    /// Makes the state of all live runs durable.
    pub(super) fn store_runs(&mut self, out: &mut Outcome) {
        for uid in self.runs.uids() {
            self.store_run(uid, out);
        }
    }
}
