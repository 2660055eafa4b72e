use crate::dispatch::{pass, starts, usage};
use crate::facts::input::Input;
use crate::facts::outcome::{Bodies, Outcome};
use crate::leadership::timers;
use crate::link::sync;
use crate::requests::{operator, write};
use crate::world::World;
use crate::world::turn::Turn;
use meridian_shared::time::{Mono, Now};

fn end_of_batch(turn: &mut Turn<'_>) {
    timers::on_time(turn);
    pass::refresh_rooms(turn);
    if std::mem::take(&mut turn.world.live.dirty) {
        pass::schedule(turn);
    }
}

impl World {
    /// The one door.
    pub fn apply(&mut self, now: Now, input: Input, bodies: &dyn Bodies) -> Outcome {
        let mut turn = Turn::new(self, now, bodies);
        match input {
            Input::Write(write) => write::write(&mut turn, *write),
            Input::Sync { cluster, request, may_park } => sync::sync(&mut turn, cluster, *request, may_park),
            Input::Unpark { cluster, session, transmission } => {
                sync::unpark(&mut turn, cluster, session, transmission)
            }
            Input::Operator { actor, action } => operator::operate(&mut turn, actor, action),
            Input::Turn => end_of_batch(&mut turn),
            Input::Lapse => timers::end_what_is_over(&mut turn),
        }
        turn.finish()
    }

    /// When `Turn` is next needed; `None` while nothing is timed.
    pub fn next_deadline(&self, now: Now) -> Option<Mono> {
        let soonest = self
            .live
            .backoff_until
            .values()
            .copied()
            .chain(self.live.refused.values().map(|(t, _, _)| *t))
            .chain(self.live.reservations.next_deadline())
            .chain(usage::next_sample(self))
            .chain(starts::next_wait_after_failed_starts(self))
            .min();
        let silent = self
            .live
            .clusters
            .iter()
            .filter(|(name, _)| self.has_open_legs(name))
            .map(|(_, c)| c.heard + meridian_shared::lease::silence(self.config.term_min))
            .min();
        let again = self.live.clusters.values().filter_map(|c| c.outbox.resend_at(now.mono)).min();
        let starving = self
            .config
            .starvation_guard
            .filter(|_| self.queues.waiting_classes().next().is_some())
            .map(|_| self.live.next_starvation_check);
        let undecided = self.undecided().then_some(now.mono);
        let released = self
            .state
            .recovery()
            .as_ref()
            .filter(|recovery| !recovery.restored)
            .map(|_| self.live.released_at);
        [Some(self.live.due), soonest, silent, again, starving, released, undecided]
            .into_iter()
            .flatten()
            .filter(|d| *d < Mono(u64::MAX))
            .min()
    }
}
