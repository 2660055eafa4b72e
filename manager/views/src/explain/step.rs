//! Obstacles in order, and the texts built from them.

use crate::asker::Asker;
use crate::explain::words::Wording;
use meridian_manager_core::facts::reason::Why;
use std::iter::Peekable;

/// One obstacle to a workload's start, and its remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) reason: String,
    pub(crate) remedy: String,
}

/// All obstacles in the order in which the workload meets them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Steps {
    pub(crate) list: Vec<Step>,
    /// Changes that are each enough by themselves.
    pub(crate) alone: Vec<String>,
}

impl Steps {
    pub(crate) fn one(reason: String, remedy: String) -> Self {
        Self { list: vec![Step { reason, remedy }], alone: Vec::new() }
    }

    pub(crate) fn of(asker: &Asker, why: &Why) -> Self {
        Self::one(why.message(asker), why.remedy(asker))
    }

    pub(crate) fn extend(&mut self, more: Self) {
        self.list.extend(more.list);
    }

    /// The whole reason and the whole remedy.
    pub(crate) fn message(self) -> (String, String) {
        let reasons: Vec<&str> = self.list.iter().map(|step| step.reason.as_str()).collect();
        let reason = reasons.join("; and then: ");
        let remedies: Vec<&str> =
            self.list.iter().map(|step| step.remedy.as_str()).filter(|remedy| !remedy.is_empty()).collect();
        let remedy = match (remedies.as_slice(), self.alone.is_empty()) {
            ([], _) => String::new(),
            ([one], _) => (*one).to_owned(),
            (many, true) => {
                format!("no single change is known to start it; first: {}", many.join("; then: "))
            }
            (many, false) => format!("first: {}", many.join("; then: ")),
        };
        let alone = self.alone.join("; or ");
        let remedy = match (remedy.is_empty(), alone.is_empty()) {
            (_, true) => remedy,
            (true, false) => alone,
            (false, false) => format!("{remedy}; {alone}"),
        };
        (reason, remedy)
    }
}

/// Says that `n` more workloads are ahead in the queue.
pub(crate) fn more_before(n: usize) -> String {
    if n == 1 {
        "; 1 more workload comes before it".to_owned()
    } else {
        format!("; {n} more workloads come before it")
    }
}

/// A sorted list that is searched for ascending keys in one pass.
pub(crate) struct Alongside<I: Iterator>(Peekable<I>);

impl<K: Ord + Copy, V, I: Iterator<Item = (K, V)>> Alongside<I> {
    pub(crate) fn new(list: impl IntoIterator<IntoIter = I>) -> Self {
        Self(list.into_iter().peekable())
    }

    /// The value of `key`, which must be larger than the keys of all previous calls.
    pub(crate) fn at(&mut self, key: K) -> Option<V> {
        while self.0.next_if(|(of, _)| *of < key).is_some() {}
        self.0.next_if(|(of, _)| *of == key).map(|(_, value)| value)
    }
}
