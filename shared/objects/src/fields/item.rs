//! One value of an object, with its path.

use super::findings::Findings;
use super::mapping::Fields;
use super::path::{FieldPath, split_pointer};
use super::suggest;
use crate::units::json::type_name;
use crate::units::quantity;
use serde_json::Value;

/// A path on the call stack.
#[derive(Clone, Copy)]
pub(super) enum PathStep<'p> {
    Root,
    Key(&'p PathStep<'p>, &'p str),
    Index(&'p PathStep<'p>, usize),
}

impl PathStep<'_> {
    pub(super) fn to_path(self) -> FieldPath {
        match self {
            PathStep::Root => FieldPath::default(),
            PathStep::Key(parent, key) => parent.to_path().key(key),
            PathStep::Index(parent, index) => parent.to_path().index(index),
        }
    }
}

#[derive(Clone, Copy)]
pub(crate) struct Item<'p> {
    findings: &'p Findings,
    step: PathStep<'p>,
    value: &'p Value,
}

impl<'p> Item<'p> {
    pub(super) fn new(findings: &'p Findings, step: PathStep<'p>, value: &'p Value) -> Self {
        Self { findings, step, value }
    }

    pub(crate) fn path(&self) -> FieldPath {
        self.step.to_path()
    }

    pub(crate) fn error(&self, message: impl Into<String>, remedy: impl Into<String>) {
        self.findings.error(self.path(), message, remedy);
    }

    /// Reports that not even a lenient reader can interpret this value.
    pub(crate) fn unreadable(&self, message: impl Into<String>, remedy: impl Into<String>) {
        self.findings.unreadable(self.path(), message, remedy);
    }

    pub(crate) fn value(&self) -> &'p Value {
        self.value
    }

    pub(super) fn wrong(&self, wanted: &str) {
        let remedy = match self.value {
            // The written text is unknown here: it may be `012` for 10, `1.10` for 1.1, or `True`.
            Value::Number(_) | Value::Bool(_) if wanted == "a string" => {
                "quote it as it is written".to_owned()
            }
            Value::String(text) if wanted == "a boolean" && ["yes", "on", "y"].contains(&text.as_str()) => {
                "write `true`".to_owned()
            }
            Value::String(text) if wanted == "a boolean" && ["no", "off", "n"].contains(&text.as_str()) => {
                "write `false`".to_owned()
            }
            Value::String(text) if wanted == "a boolean" && ["true", "false"].contains(&text.as_str()) => {
                format!("remove the quotes: {text}")
            }
            Value::String(text) if wanted == "a whole number" && is_plain_number(text) => {
                format!("remove the quotes: {text}")
            }
            _ => format!("write {wanted} here"),
        };
        let shown = match self.value {
            Value::Number(number) => format!("the number `{number}`"),
            Value::Bool(flag) => format!("the boolean `{flag}`"),
            other => type_name(other).to_owned(),
        };
        self.unreadable(format!("must be {wanted}, not {shown}"), remedy);
    }

    pub(crate) fn text(&self) -> Option<&'p str> {
        match self.value {
            Value::String(text) => Some(text),
            _ => {
                self.wrong("a string");
                None
            }
        }
    }

    pub(crate) fn flag(&self) -> Option<bool> {
        match self.value {
            Value::Bool(flag) => Some(*flag),
            _ => {
                self.wrong("a boolean");
                None
            }
        }
    }

    /// A whole number within `min..=max`.
    pub(crate) fn int(&self, min: i64, max: i64) -> Option<i64> {
        // YAML's `1e3` arrives as a float. A float without a fraction counts as an integer.
        let number = match self.value {
            Value::Number(number) => number
                .as_i64()
                .or_else(|| quantity::parse("", &number.to_string()).ok().filter(|_| is_whole(number))),
            _ => None,
        };
        let Some(number) = number else {
            self.wrong("a whole number");
            return None;
        };
        if number < min {
            self.error(format!("`{number}` is too small"), format!("the least is {min}"));
            self.findings.is_lenient().then_some(number)
        } else if number > max {
            self.error(format!("`{number}` is too large"), format!("the maximum is {max}"));
            self.findings.is_lenient().then_some(number)
        } else {
            Some(number)
        }
    }

    pub(crate) fn list(&self) -> Option<&'p [Value]> {
        match self.value {
            Value::Array(items) => Some(items),
            _ => {
                self.wrong("a list");
                None
            }
        }
    }

    /// An element of this list.
    pub(crate) fn at<'c>(&'c self, index: usize, value: &'c Value) -> Item<'c> {
        Item::new(self.findings, PathStep::Index(&self.step, index), value)
    }

    /// Calls `read` with the value at a JSON pointer below this one, if there is one.
    pub(super) fn at_pointer(&self, pointer: &str, read: &mut dyn FnMut(&Item<'_>)) {
        let Some((first, rest)) = split_pointer(pointer) else { return read(self) };
        match self.value {
            Value::Object(map) => {
                if let Some(value) = map.get(first).filter(|value| !value.is_null()) {
                    self.field(first, value).at_pointer(rest, read);
                }
            }
            Value::Array(items) => {
                let index = first.parse().ok();
                if let Some((index, value)) = index.and_then(|index: usize| Some((index, items.get(index)?)))
                {
                    self.at(index, value).at_pointer(rest, read);
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    /// A field of this mapping.
    pub(super) fn field<'c>(&'c self, name: &'c str, value: &'c Value) -> Item<'c> {
        Item::new(self.findings, PathStep::Key(&self.step, name), value)
    }

    pub(super) fn step(&self) -> PathStep<'p> {
        self.step
    }

    pub(super) fn findings(&self) -> &'p Findings {
        self.findings
    }

    /// The fields of this mapping.
    pub(crate) fn fields(&self) -> Option<Fields<'p>> {
        match self.value {
            Value::Object(map) => Some(Fields::new(self.findings, self.step, map)),
            _ => {
                self.wrong("a mapping");
                None
            }
        }
    }

    /// A quantity of `resource` in base units, not negative. A lenient reader replaces an amount that is too
    /// large by the largest one.
    pub(crate) fn amount(&self, resource: &str) -> Option<i64> {
        match quantity::from_json(resource, self.value) {
            Ok(amount) if amount < 0 => {
                self.error(format!("`{}` is negative", shown(self.value)), "write zero or more");
                self.findings.is_lenient().then_some(amount)
            }
            Ok(amount) => Some(amount),
            Err(quantity::Error::TooLarge(text)) if self.findings.is_lenient() => {
                Some(if text.starts_with('-') { i64::MIN } else { i64::MAX })
            }
            Err(error) => {
                self.unreadable(error.to_string(), error.remedy());
                None
            }
        }
    }

    /// A quota of `resource`. As in Kubernetes, a number that is too large is unlimited.
    pub(crate) fn quota(&self, resource: &str) -> Option<i64> {
        match quantity::from_json(resource, self.value) {
            Err(quantity::Error::TooLarge(text)) if !text.starts_with('-') => Some(i64::MAX),
            _ => self.amount(resource),
        }
    }

    /// One word of a closed set.
    pub(crate) fn word<T: Copy>(&self, words: &[(&str, T)]) -> Option<T> {
        let text = self.text()?;
        if text.is_empty() && self.findings.is_lenient() && words.iter().all(|(word, _)| !word.is_empty()) {
            return None;
        }
        let found = words.iter().find(|(word, _)| *word == text).map(|(_, value)| *value);
        if found.is_none() {
            // if the empty word is a choice, the message lists only the other words
            let named = || words.iter().map(|(word, _)| *word).filter(|word| !word.is_empty());
            let all = named().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ");
            let remedy = match suggest::nearest(text, named()) {
                Some(near) => format!("did you mean `{near}`? the choices are {all}"),
                None => format!("the choices are {all}"),
            };
            self.unreadable(format!("`{text}` is not a choice"), remedy);
        }
        found
    }
}

/// Whether YAML reads the text without its quotes as the same number. It reads `012` as 10.
fn is_plain_number(text: &str) -> bool {
    text.parse::<i64>().is_ok_and(|number| number.to_string() == text)
}

fn is_whole(number: &serde_json::Number) -> bool {
    // Only the presence of a fraction is checked; the amount itself never passes through a float.
    number.as_f64().is_some_and(|float| float.fract() == 0.0)
}

fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}
