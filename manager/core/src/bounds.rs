//! How much is remembered of what could go on without end: join tokens that nobody used, attempts of one workload, ledgers of
//! one cluster, verdicts on classes that nobody is of any more.

use crate::queues::ClassId;
use crate::{Member, State, Stay, Token, Workload, World};
use meridian_shared::ids::LedgerId;

/// Join tokens that may be good at once: an operator joins clusters, not thousands of them in an hour. Beyond, the one that
/// expires first is forgotten.
const TOKENS_MAX: usize = 1_000;
/// Attempts of one workload that its history tells of; the oldest goes first.
const HISTORY_MAX: usize = 100;
/// Ledgers that one cluster may have replaced: an agent makes a new one when its disk is lost. Each has to be remembered for as
/// long as a copy of it could come back, so beyond this a new one isn't taken.
pub(crate) const LEDGERS_REPLACED_MAX: usize = 1_000;

impl State {
    pub(crate) fn remember_token(&mut self, hash: &str, token: Token) {
        self.tokens.insert(hash.to_owned(), token);
        if self.tokens.len() > TOKENS_MAX
            && let Some(first) =
                self.tokens.iter().min_by_key(|(_, token)| token.expires).map(|(hash, _)| hash.clone())
        {
            self.tokens.remove(&first);
        }
    }
}

impl Workload {
    /// Another attempt begins, or is learned of.
    pub(crate) fn stay(&mut self, stay: Stay) {
        self.history.push(stay);
        if self.history.len() > HISTORY_MAX {
            self.history.remove(0);
        }
    }
}

impl Member {
    /// Whether this ledger may take the place of the one that is known.
    pub(crate) fn may_replace(&self, ledger: LedgerId) -> bool {
        self.ledger == ledger || self.lost.len() < LEDGERS_REPLACED_MAX
    }
}

impl World {
    /// One workload fewer is of a class; what is remembered of the class goes with the last.
    pub(crate) fn drop_member(&mut self, class: ClassId) {
        if self.queues.drop_member(class) {
            self.live.hindrances.forget(class);
            self.live.audited.remove(&class);
            self.deciding.forget_class(class);
        }
    }
}
