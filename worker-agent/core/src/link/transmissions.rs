//! Transmissions and their sending times: leases count from them.

use meridian_shared::time::Mono;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash, Hasher};

/// Transmissions with a remembered sending time; an answer to an older one is ignored.
const SENT_MAX: usize = 64;

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Transmissions {
    last: u64,
    sent: BTreeMap<u64, Mono>,
    answered: u64,
}

impl Transmissions {
    /// Numbers a transmission that is sent at `at`. Every one has a new number, unless a test planted
    /// `reused`.
    pub(crate) fn next(&mut self, at: Mono, reused: bool) -> u64 {
        if !(reused && self.is_any_open()) {
            self.last += 1;
        }
        self.sent.insert(self.last, at);
        while self.sent.len() > SENT_MAX {
            self.sent.pop_first();
        }
        self.last
    }

    fn is_any_open(&self) -> bool {
        self.last > self.answered + 1
    }

    /// When a transmission was sent; `None` if it is too old or was never sent.
    pub(crate) fn sent_at(&self, number: u64) -> Option<Mono> {
        self.sent.get(&number).copied()
    }

    /// The largest number that was answered.
    pub(crate) fn answered(&self) -> u64 {
        self.answered
    }

    pub(crate) fn note_answer(&mut self, number: u64) {
        self.answered = self.answered.max(number);
    }

    /// Feeds the order of numbers, and the age of those that may still be answered (`in_flight`).
    pub(crate) fn hash_fingerprint(
        &self,
        now: Mono,
        in_flight: &BTreeSet<u64>,
        number: &dyn Fn(u64) -> u64,
        into: &mut impl Hasher,
    ) {
        (number(self.answered), self.is_any_open()).hash(into);
        for (sent, at) in self.sent.iter().filter(|(sent, _)| in_flight.contains(sent)) {
            (number(*sent), now.since(*at)).hash(into);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_transmission_has_a_number_and_a_sending_time_of_its_own() {
        let mut transmissions = Transmissions::default();
        let numbers: Vec<u64> = (1..=4).map(|at| transmissions.next(Mono(10 * at), false)).collect();
        assert_eq!(numbers, [1, 2, 3, 4], "whether or not earlier ones were answered");
        assert_eq!(transmissions.sent_at(3), Some(Mono(30)));
        assert_eq!(transmissions.sent_at(5), None, "it was never sent");
    }

    #[test]
    fn the_newest_sending_times_are_remembered() {
        let mut transmissions = Transmissions::default();
        (1..=SENT_MAX as u64 + 1).for_each(|at| {
            transmissions.next(Mono(at), false);
        });
        assert_eq!(transmissions.sent_at(1), None);
        assert_eq!(transmissions.sent_at(2), Some(Mono(2)));
    }

    #[test]
    fn answers_arrive_in_any_order() {
        let mut transmissions = Transmissions::default();
        assert_eq!(transmissions.answered(), 0);
        transmissions.note_answer(3);
        transmissions.note_answer(2);
        assert_eq!(transmissions.answered(), 3);
    }

    #[test]
    fn a_planted_bug_reuses_the_number_of_an_open_transmission() {
        let mut transmissions = Transmissions::default();
        let mut next = || transmissions.next(Mono(1), true);
        assert_eq!([next(), next(), next()], [1, 2, 2], "one is always open");
        transmissions.note_answer(1);
        assert_eq!(transmissions.next(Mono(1), true), 3);
    }
}
