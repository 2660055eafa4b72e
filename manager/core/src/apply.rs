//! The only entry point for inputs.

use crate::dispatch::{manifests, pass, starts, usage};
use crate::facts::input::Input;
use crate::facts::outcome::{Bodies, Outcome};
use crate::leadership::timers;
use crate::link::{copies, sync};
use crate::requests::{operator, write};
use crate::world::World;
use crate::world::turn::Turn;
use meridian_shared::time::{Mono, Now};

fn end_of_batch(turn: &mut Turn<'_>) {
    timers::on_time(turn);
    pass::refresh_capacity(turn);
    if turn.world.live_mut().pass_mut().take_request() {
        pass::schedule(turn);
    }
}

impl World {
    /// Applies one input. The caller must commit the outcome's records before it sends the reply.
    pub fn apply(&mut self, now: Now, input: Input, bodies: &dyn Bodies) -> Outcome {
        let mut turn = Turn::new(self, now, bodies);
        match input {
            Input::Write(write) => write::write(&mut turn, *write),
            Input::Sync { cluster, request, may_park } => sync::sync(&mut turn, cluster, *request, may_park),
            Input::Unpark { cluster, session, transmission } => {
                sync::unpark(&mut turn, cluster, session, transmission)
            }
            Input::Copies { cluster, request } => copies::permit(&mut turn, &cluster, &request),
            Input::Operator { actor, action } => operator::operate(&mut turn, actor, action),
            Input::ManifestsRead(found) => manifests::note_read(&mut turn, &found),
            Input::Turn => end_of_batch(&mut turn),
            Input::Lapse => timers::end_overdue(&mut turn),
        }
        turn.finish()
    }

    /// When the next [`Input::Turn`] is due; `None` while no timer runs.
    pub fn next_deadline(&self, now: Now) -> Option<Mono> {
        let volatile = self
            .live()
            .backoffs()
            .next_end()
            .into_iter()
            .chain(self.live().refusals().next_deadline())
            .chain(self.live().provider_failures().next_deadline())
            .chain(self.live().reservations().next_deadline())
            .chain(usage::next_sample(self))
            .chain(starts::next_wait_after_failed_starts(self))
            .min();
        let disconnect = self
            .live()
            .clusters()
            .iter()
            .filter(|(name, _)| self.has_open_legs(name))
            .map(|(_, c)| c.heard() + meridian_shared::lease::disconnect_after(self.config().term_min))
            .min();
        let resend = self.live().clusters().values().filter_map(|c| c.outbox().resend_at(now.mono)).min();
        let starvation_check = self
            .config()
            .starvation_guard
            .filter(|_| self.queues().waiting_classes().next().is_some())
            .map(|_| self.live().starvation_checks().next());
        let unfinished_turn = self.undecided().then_some(now.mono);
        let release = self
            .state()
            .recovery()
            .as_ref()
            .filter(|recovery| !recovery.restored)
            .map(|_| self.live().recovery().next_release_check());
        [
            Some(self.live().leases().due()),
            volatile,
            disconnect,
            resend,
            starvation_check,
            release,
            unfinished_turn,
        ]
        .into_iter()
        .flatten()
        .filter(|d| *d < Mono(u64::MAX))
        .min()
    }
}
