//! Leases: when a manager may call one lapsed.

use crate::sim::clock::HostClock;
use crate::sim::fleet::job::SimulatedJob;
use crate::sim::invariants::observation::Observation;
use crate::sim::invariants::violation::{Verdict, violation};
use meridian_shared::ids::{Fence, Leadership, Uid};
use meridian_shared::protocol::OnLoss;
use meridian_shared::time::{Millis, Mono};
use std::collections::BTreeMap;

/// The last answer that carried a lease.
#[derive(Clone, Copy, Debug)]
struct LastAnswer {
    leadership: Leadership,
    /// When it was composed, by the manager's clock.
    at: Mono,
    /// When the manager may call the lease lapsed, in true time.
    lapses: u64,
}

/// Leaderships, and the last answer for each lease.
#[derive(Debug, Default)]
pub(crate) struct Leases {
    /// When each leadership began, by its manager's clock.
    led: BTreeMap<Leadership, Mono>,
    /// The leadership that another one continues after a failed commit.
    continues: BTreeMap<Leadership, Leadership>,
    answers: BTreeMap<Fence, LastAnswer>,
}

impl Leases {
    /// A leadership begins, or continues another one after its process read back what is durable.
    pub(crate) fn led(&mut self, leadership: Leadership, now: Mono, continues: Option<Leadership>) {
        self.led.insert(leadership, now);
        self.continues.extend(continues.map(|from| (leadership, from)));
    }

    /// A leadership, and the earlier ones that it continues.
    fn chain(&self, leadership: Leadership) -> impl Iterator<Item = Leadership> + '_ {
        std::iter::successors(Some(leadership), |of| self.continues.get(of).copied())
    }

    /// An answer with a lease is composed: the lease counts from now.
    pub(crate) fn answered(
        &mut self,
        fence: Fence,
        leadership: Leadership,
        term: Millis,
        clock: &HostClock,
        now: Mono,
    ) {
        let lapses = clock.when(Mono(now.0 + with_drift(term)));
        self.answers.insert(fence, LastAnswer { leadership, at: now, lapses });
    }

    /// When the manager may call a lease lapsed, in true time, by the last answer that carried it.
    pub(crate) fn manager_lapse(&self, fence: Fence) -> Option<u64> {
        self.answers.get(&fence).map(|answer| answer.lapses)
    }

    /// Whether a term and its drift bound have passed since a leadership began.
    pub(crate) fn full_term_passed(&self, leadership: Leadership, now: Mono, term: Millis) -> bool {
        self.led.get(&leadership).is_some_and(|led| now.0 >= led.0 + with_drift(term))
    }

    /// A lease lapses only after its term and the drift bound, counted from the last answer that carried it
    /// and from the start of the leadership.
    pub(crate) fn check_lapse(
        &self,
        observation: &Observation<'_>,
        job: &SimulatedJob,
        uid: Uid,
        fence: Fence,
    ) -> Verdict {
        if job.on_loss == OnLoss::Wait {
            return violation("lapse", format!("{uid} waits for its cluster, and fence {fence} lapses"));
        }
        let chain: Vec<Leadership> = self.chain(observation.before.leadership).collect();
        let led = chain.last().and_then(|first| self.led.get(first)).copied().unwrap_or(Mono(0));
        let counted_from = self
            .answers
            .get(&fence)
            .filter(|answer| chain.contains(&answer.leadership))
            .map_or(led, |answer| answer.at.max(led));
        let until = counted_from.0 + with_drift(job.term);
        let now = observation.now.0;
        if now < until {
            let details = format!(
                "the lease of {uid} (fence {fence}) lapses {} ms early, at {now} by the manager's clock",
                until - now
            );
            return violation("lapse", details);
        }
        Ok(())
    }
}

/// A term and its drift bound of 0.1 % and one second, in milliseconds.
fn with_drift(term: Millis) -> u64 {
    term.0 + term.0.div_ceil(1_000) + 1_000
}
