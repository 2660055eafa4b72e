//! What a case came to, and how tables count it.

use std::fmt::Debug;

/// What a case came to.
#[derive(Clone, Debug)]
pub(crate) enum Verdict {
    /// As expected.
    Same,
    /// Decided as expected and for the same reason, said in other words.
    SaysOtherwise(String),
    /// Decided as expected, but another reason is recorded, or another event.
    RecordsOtherwise(String),
    /// Otherwise, and how.
    Differs(String),
    /// Not judged, and why.
    Skipped(String),
}

/// How an answer differs from what is expected.
#[derive(Debug, Default)]
pub(crate) struct Differences {
    decisions: Vec<String>,
    records: Vec<String>,
    words: Vec<String>,
}

impl Differences {
    /// Notes a decision that differs.
    pub(crate) fn decision<T: PartialEq + Debug>(&mut self, what: &str, is: &T, expected: &T) {
        if is != expected {
            self.decisions.push(format!("{what}: {is:?}\nexpected: {expected:?}"));
        }
    }

    /// Notes a record (a condition, an event) that differs.
    pub(crate) fn record<T: PartialEq + Debug>(&mut self, what: &str, is: &T, expected: &T) {
        if is != expected {
            self.records.push(format!("{what}: {is:?}\nexpected: {expected:?}"));
        }
    }

    /// Notes other words for the same.
    pub(crate) fn words<T: PartialEq + Debug>(&mut self, what: &str, is: &T, expected: &T) {
        if is != expected {
            self.words.push(format!("{what}: {is:?}\nexpected: {expected:?}"));
        }
    }

    pub(crate) fn verdict(self) -> Verdict {
        let Self { decisions, records, words } = self;
        if !decisions.is_empty() {
            Verdict::Differs(decisions.into_iter().chain(records).collect::<Vec<_>>().join("\n"))
        } else if !records.is_empty() {
            Verdict::RecordsOtherwise(records.join("\n"))
        } else if !words.is_empty() {
            Verdict::SaysOtherwise(words.join("\n"))
        } else {
            Verdict::Same
        }
    }
}

/// What the cases of one table came to.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    /// As expected.
    pub(crate) same: usize,
    /// Looked at.
    pub(crate) judged: usize,
    /// Decided as expected.
    pub(crate) decided: usize,
    /// As expected in other words.
    pub(crate) otherwise: usize,
    /// Not judged.
    pub(crate) skipped: usize,
}

impl Tally {
    pub(crate) fn count(&mut self, verdict: &Verdict) {
        self.judged += usize::from(!matches!(verdict, Verdict::Skipped(_)));
        self.same += usize::from(matches!(verdict, Verdict::Same | Verdict::SaysOtherwise(_)));
        self.decided += usize::from(matches!(
            verdict,
            Verdict::Same | Verdict::SaysOtherwise(_) | Verdict::RecordsOtherwise(_)
        ));
        self.otherwise += usize::from(matches!(verdict, Verdict::SaysOtherwise(_)));
        self.skipped += usize::from(matches!(verdict, Verdict::Skipped(_)));
    }

    /// One line for a table.
    pub(crate) fn line(&self, name: &str) -> String {
        let Self { same, judged, decided, otherwise, skipped } = *self;
        if judged == 0 {
            return format!("{name:<50} not judged ({skipped} cases)");
        }
        let decided =
            if decided == same { String::new() } else { format!(", decisions {decided} of {judged}") };
        let besides = [(otherwise, "in other words"), (skipped, "not judged")];
        let besides: String = besides
            .iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, what)| format!(", {count} {what}"))
            .collect();
        format!("{name:<50} {same:>4} of {judged:>4}{decided}{besides}")
    }
}
