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
