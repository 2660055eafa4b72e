//! The result of a case, and the summary of a table.

use std::fmt::Debug;

#[derive(Clone, Debug)]
pub(crate) enum Verdict {
    Same,
    /// The same decision for the same reason, but a message with other words.
    OtherWording(String),
    /// The same decision, but another condition, event or status field.
    OtherRecord(String),
    Differs(String),
    NotCompared(String),
}

/// Differences between the result and the expected one.
#[derive(Debug, Default)]
pub(crate) struct Differences {
    decisions: Vec<String>,
    records: Vec<String>,
    wordings: Vec<String>,
}

impl Differences {
    pub(crate) fn decision<T: PartialEq + Debug>(&mut self, what: &str, is: &T, expected: &T) {
        self.decisions.extend(difference(what, is, expected));
    }

    /// Compares conditions, events or status fields.
    pub(crate) fn record<T: PartialEq + Debug>(&mut self, what: &str, is: &T, expected: &T) {
        self.records.extend(difference(what, is, expected));
    }

    pub(crate) fn wording<T: PartialEq + Debug>(&mut self, what: &str, is: &T, expected: &T) {
        self.wordings.extend(difference(what, is, expected));
    }

    pub(crate) fn verdict(self) -> Verdict {
        let Self { decisions, records, wordings } = self;
        if !decisions.is_empty() {
            Verdict::Differs(decisions.into_iter().chain(records).collect::<Vec<_>>().join("\n"))
        } else if !records.is_empty() {
            Verdict::OtherRecord(records.join("\n"))
        } else if !wordings.is_empty() {
            Verdict::OtherWording(wordings.join("\n"))
        } else {
            Verdict::Same
        }
    }
}

fn difference<T: PartialEq + Debug>(what: &str, is: &T, expected: &T) -> Option<String> {
    (is != expected).then(|| format!("{what}: {is:?}\nexpected: {expected:?}"))
}

/// Numbers of cases.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TableSummary {
    compared: usize,
    /// Same decisions and same records.
    same: usize,
    /// The decisions are the same; the records differ.
    decided: usize,
    other_wording: usize,
    not_compared: usize,
}

impl TableSummary {
    pub(crate) fn count(&mut self, verdict: &Verdict) {
        match verdict {
            Verdict::NotCompared(_) => {
                self.not_compared += 1;
                return;
            }
            Verdict::Same => self.same += 1,
            Verdict::OtherWording(_) => {
                self.same += 1;
                self.other_wording += 1;
            }
            Verdict::OtherRecord(_) | Verdict::Differs(_) => {}
        }
        self.compared += 1;
        self.decided += usize::from(!matches!(verdict, Verdict::Differs(_)));
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.compared += other.compared;
        self.same += other.same;
        self.decided += other.decided;
        self.other_wording += other.other_wording;
        self.not_compared += other.not_compared;
    }

    /// One line for a table.
    pub(crate) fn line(&self, name: &str) -> String {
        let Self { compared, same, decided, other_wording, not_compared } = *self;
        if compared == 0 {
            return format!("{name:<50} not compared ({not_compared} cases)");
        }
        let mut line = format!("{name:<50} {same:>4} of {compared:>4}");
        if decided != same {
            line += &format!(", decisions {decided} of {compared}");
        }
        for (count, what) in [(other_wording, "in other wording"), (not_compared, "not compared")] {
            if count > 0 {
                line += &format!(", {count} {what}");
            }
        }
        line
    }
}
