//! The objects that hold one offer's capacity, from their creation to their end. Pure.

use crate::objects::Answer;
use meridian_agent_core::runtime::{HoldEvent, HoldOrder};
use meridian_shared::ids::{OfferId, Uid};
use meridian_shared::time::{Millis, Mono};
use std::sync::Arc;

/// Longest wait before a failed request to the API server is repeated.
const REPEAT_MOST: Millis = Millis::secs(10);

/// What to do at the API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// Create the objects that hold the capacity.
    Create,
    /// Delete the created objects.
    Delete,
}

/// State of the objects, as the watches show it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Seen {
    /// The watches haven't shown all objects yet.
    Partly,
    /// The capacity isn't held yet, with the reason.
    Waits(String),
    Holds,
    /// The objects that held the capacity are gone, with the reason.
    Lost(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Creating,
    /// The objects exist since this moment; the capacity isn't held yet.
    Waiting(Mono),
    Held,
    /// The failure was reported. The objects stay until they are given back.
    Failed,
    Deleting,
    Over,
}

/// The objects that hold the capacity of one offer.
#[derive(Clone, Debug)]
pub(super) struct Order {
    pub(super) hold: HoldOrder,
    phase: Phase,
    /// Longest wait of the objects; `None` for a queue, where the manager ends the wait.
    patience: Option<Millis>,
    is_acting: bool,
    /// No action is taken before this moment.
    not_before: Mono,
    repeats: u32,
    /// The last reported reason.
    reported: String,
}

impl Order {
    pub(super) fn new(hold: HoldOrder, patience: Option<Millis>) -> Self {
        Self {
            hold,
            phase: Phase::Creating,
            patience,
            is_acting: false,
            not_before: Mono(0),
            repeats: 0,
            reported: String::new(),
        }
    }

    /// The objects that an earlier agent made for a running gang. The gang's shape isn't known any more.
    pub(super) fn inherited(offer: OfferId, namespace: Arc<str>) -> Self {
        let (gang, placement) = (Arc::default(), Vec::new());
        let hold = HoldOrder { offer, uid: Uid(0), namespace, gang, placement };
        Self { phase: Phase::Held, ..Self::new(hold, None) }
    }

    fn offer(&self) -> OfferId {
        self.hold.offer
    }

    pub(super) fn is_over(&self) -> bool {
        self.phase == Phase::Over
    }

    /// The offer has ended, or the run that used its capacity has.
    pub(super) fn release(&mut self) {
        let is_untouched = self.phase == Phase::Creating && !self.is_acting && self.repeats == 0;
        self.phase = if is_untouched { Phase::Over } else { Phase::Deleting };
        self.not_before = Mono(0);
    }

    /// The action that is due now. [`Order::answered`] must be called with the result.
    pub(super) fn next(&mut self, now: Mono) -> Option<Action> {
        if self.is_acting || now < self.not_before {
            return None;
        }
        let action = match self.phase {
            Phase::Creating => Action::Create,
            Phase::Deleting => Action::Delete,
            Phase::Waiting(_) | Phase::Held | Phase::Failed | Phase::Over => return None,
        };
        self.is_acting = true;
        Some(action)
    }

    pub(super) fn answered(&mut self, now: Mono, action: Action, answer: Answer) -> Option<HoldEvent> {
        self.is_acting = false;
        match (action, answer) {
            (_, Answer::Unknown(why)) => {
                self.repeats += 1;
                let pause = Millis(500 << self.repeats.min(5));
                self.not_before = now + pause.min(REPEAT_MOST);
                self.wait(why)
            }
            (Action::Create, Answer::Done) => {
                self.repeats = 0;
                if self.phase == Phase::Creating {
                    self.phase = Phase::Waiting(now);
                }
                None
            }
            // Some of the objects may exist.
            (Action::Create, Answer::Refused(why)) => {
                self.repeats = 1;
                if self.phase == Phase::Creating { self.fail(why) } else { None }
            }
            (Action::Delete, Answer::Done | Answer::Refused(_)) => {
                self.phase = Phase::Over;
                None
            }
        }
    }

    /// Takes in what the watches show.
    pub(super) fn observe(&mut self, now: Mono, seen: Seen) -> Option<HoldEvent> {
        match (self.phase, seen) {
            (Phase::Waiting(_), Seen::Holds) => {
                self.phase = Phase::Held;
                Some(HoldEvent::Secured { offer: self.offer() })
            }
            (Phase::Waiting(since), Seen::Waits(why)) => {
                if self.patience.is_some_and(|patience| now.since(since) >= patience) {
                    return self.fail(why);
                }
                self.wait(why)
            }
            (Phase::Waiting(_), Seen::Lost(why)) | (Phase::Held, Seen::Lost(why) | Seen::Waits(why)) => {
                self.fail(why)
            }
            _ => None,
        }
    }

    fn fail(&mut self, reason: String) -> Option<HoldEvent> {
        self.phase = Phase::Failed;
        Some(HoldEvent::Failed { offer: self.offer(), reason })
    }

    /// Reports why the offer waits, if the reason has changed.
    fn wait(&mut self, reason: String) -> Option<HoldEvent> {
        if self.reported == reason || !matches!(self.phase, Phase::Creating | Phase::Waiting(_)) {
            return None;
        }
        self.reported.clone_from(&reason);
        Some(HoldEvent::Waiting { offer: self.offer(), reason })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Mono = Mono(10_000);
    const OFFER: OfferId = OfferId { epoch: 1, leadership: 1, counter: 1 };
    const PATIENCE: Millis = Millis::secs(30);

    fn order() -> Order {
        let hold = HoldOrder {
            offer: OFFER,
            uid: Uid(7),
            namespace: "ml".into(),
            gang: Arc::default(),
            placement: Vec::new(),
        };
        Order::new(hold, Some(PATIENCE))
    }

    /// An order whose objects were created.
    fn created() -> Order {
        let mut order = order();
        assert_eq!(order.next(NOW), Some(Action::Create));
        assert_eq!(order.next(NOW), None, "one action at a time");
        assert_eq!(order.answered(NOW, Action::Create, Answer::Done), None);
        order
    }

    fn waiting(reason: &str) -> Option<HoldEvent> {
        Some(HoldEvent::Waiting { offer: OFFER, reason: reason.to_owned() })
    }

    fn failed(reason: &str) -> Option<HoldEvent> {
        Some(HoldEvent::Failed { offer: OFFER, reason: reason.to_owned() })
    }

    #[test]
    fn room_is_held_when_the_watches_show_it_and_not_when_the_create_is_answered() {
        let mut order = created();
        assert_eq!(order.observe(NOW, Seen::Partly), None);
        assert_eq!(order.observe(NOW, Seen::Waits("1 of 2".into())), waiting("1 of 2"));
        assert_eq!(order.observe(NOW, Seen::Waits("1 of 2".into())), None, "the reason is the same");
        assert_eq!(order.observe(NOW, Seen::Holds), Some(HoldEvent::Secured { offer: OFFER }));
        assert_eq!(order.observe(NOW, Seen::Holds), None);
    }

    #[test]
    fn what_does_not_get_its_room_in_time_fails_with_the_last_reason() {
        let mut order = created();
        assert_eq!(order.observe(NOW, Seen::Waits("no room".into())), waiting("no room"));
        assert_eq!(order.observe(NOW + PATIENCE, Seen::Waits("no room".into())), failed("no room"));
        assert_eq!(order.observe(NOW + PATIENCE, Seen::Holds), None, "the failure was reported");
    }

    #[test]
    fn room_that_is_lost_is_reported_once() {
        let mut order = created();
        order.observe(NOW, Seen::Holds);
        assert_eq!(order.observe(NOW, Seen::Lost("evicted".into())), failed("evicted"));
        assert_eq!(order.observe(NOW, Seen::Lost("evicted".into())), None);
        assert_eq!(order.next(NOW), None, "a run may still be ending there");
        order.release();
        assert_eq!(order.next(NOW), Some(Action::Delete));
        order.answered(NOW, Action::Delete, Answer::Done);
        assert!(order.is_over());
    }

    #[test]
    fn a_request_without_an_answer_is_repeated() {
        let mut order = order();
        order.next(NOW);
        let lost = Answer::Unknown("no answer".into());
        assert_eq!(order.answered(NOW, Action::Create, lost.clone()), waiting("no answer"));
        assert_eq!(order.next(NOW), None);
        let later = NOW + Millis::secs(1);
        assert_eq!(order.next(later), Some(Action::Create));
        // The offer ends meanwhile: what was created is deleted, however often that takes.
        order.release();
        assert_eq!(order.answered(later, Action::Create, Answer::Done), None);
        assert_eq!(order.next(later), Some(Action::Delete));
        order.answered(later, Action::Delete, lost);
        assert!(!order.is_over());
        assert_eq!(order.next(later + REPEAT_MOST), Some(Action::Delete));
    }

    #[test]
    fn a_refused_create_fails_and_deletes_what_exists() {
        let mut order = order();
        order.next(NOW);
        let refused = Answer::Refused("no PriorityClass with name low was found".into());
        let reason = "no PriorityClass with name low was found";
        assert_eq!(order.answered(NOW, Action::Create, refused), failed(reason));
        order.release();
        assert_eq!(order.next(NOW), Some(Action::Delete));
    }

    #[test]
    fn an_offer_that_ends_before_anything_was_asked_leaves_nothing() {
        let mut order = order();
        order.release();
        assert!(order.is_over());
    }
}
