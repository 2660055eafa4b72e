//! Events of this session that the manager has not acknowledged.

use meridian_shared::protocol::{EVENTS_BYTES_MAX, EVENTS_MAX, Event};
use std::collections::VecDeque;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct EventQueue {
    waiting: VecDeque<Event>,
    /// Number of the first waiting event, from 1.
    first: u64,
}

impl Default for EventQueue {
    fn default() -> Self {
        Self { waiting: VecDeque::new(), first: 1 }
    }
}

impl EventQueue {
    pub(crate) fn push(&mut self, event: Event) {
        self.waiting.push_back(event);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Number of the first waiting event.
    pub(crate) fn first(&self) -> u64 {
        self.first
    }

    /// Number of the newest event of this session.
    pub(crate) fn last(&self) -> u64 {
        self.first + self.waiting.len() as u64 - 1
    }

    /// Drops the events that the manager acknowledged.
    pub(crate) fn acknowledge(&mut self, through: u64) {
        while self.first <= through && self.waiting.pop_front().is_some() {
            self.first += 1;
        }
    }

    /// The first events, as many as one request carries, and at least one.
    pub(crate) fn batch(&self) -> Vec<Event> {
        let mut bytes = 0;
        let fits = |(at, event): &(usize, &Event)| {
            bytes += event.weight();
            *at == 0 || bytes <= EVENTS_BYTES_MAX
        };
        self.waiting
            .iter()
            .take(EVENTS_MAX)
            .enumerate()
            .take_while(fits)
            .map(|(_, event)| event.clone())
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use meridian_shared::ids::{OfferId, Uid};

    const OFFER: OfferId = OfferId { epoch: 1, leadership: 1, counter: 1 };

    fn gone(number: u64) -> Event {
        Event::Gone { offer: OfferId { counter: number, ..OFFER }, uid: Uid(1), expired: false }
    }

    /// An event of this weight, which is even.
    fn waiting(weight: usize) -> Event {
        let empty = Event::Waiting { offer: OFFER, uid: Uid(1), reason: String::new(), estimate: None };
        let reason = "r".repeat((weight - empty.weight()) / 2);
        Event::Waiting { offer: OFFER, uid: Uid(1), reason, estimate: None }
    }

    fn queue(events: impl IntoIterator<Item = Event>) -> EventQueue {
        let mut queue = EventQueue::default();
        events.into_iter().for_each(|event| queue.push(event));
        queue
    }

    #[test]
    fn events_wait_until_they_are_acknowledged() {
        let mut queue = queue((1..=3).map(gone));
        assert_eq!((queue.first(), queue.last()), (1, 3));
        queue.acknowledge(0);
        assert_eq!((queue.first(), queue.last()), (1, 3));
        queue.acknowledge(2);
        assert_eq!((queue.first(), queue.last(), queue.batch()), (3, 3, vec![gone(3)]));
        assert!(!queue.is_empty());
        // A manager can't acknowledge what it was never sent.
        queue.acknowledge(99);
        assert_eq!((queue.first(), queue.last()), (4, 3));
        assert!(queue.is_empty() && queue.batch().is_empty());
    }

    #[test]
    fn a_backlog_is_sent_in_parts() {
        assert_eq!(queue((0..EVENTS_MAX as u64 + 5).map(gone)).batch().len(), EVENTS_MAX);
        let half = waiting(EVENTS_BYTES_MAX / 2);
        assert_eq!(queue([half.clone(), half, gone(1)]).batch().len(), 2);
        let large = waiting(2 * EVENTS_BYTES_MAX);
        assert_eq!(queue([large.clone(), large]).batch().len(), 1, "at least one event is sent");
    }
}
