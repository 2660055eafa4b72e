//! Where in an object something stands, what is wrong with it, and a reader that collects every problem of an object.
//!
//! [`Fields`] reads one JSON object field by field: it checks types, remembers which fields somebody asked for, and at
//! [`Fields::finish`] reports the rest as unknown. It never stops at the first error. Paths are linked slices of the
//! call stack and are only turned into a [`FieldPath`] when there is something to report.

use crate::quantity;
use crate::suggest;
use meridian_shared::gang::Amounts;
use serde_json::{Map, Value};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fmt;

/// Problems kept per object. A file that is wrong everywhere is the wrong file; more lines help nobody.
pub(crate) const MAX_ISSUES_PER_OBJECT: usize = 100;

/// One step of a [`FieldPath`].
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Segment {
    /// A key of a mapping.
    Key(String),
    /// A position in a list, from 0.
    Index(usize),
}

/// The way from an object's root to one field; shows as `spec.resourceGroups[0].flavors[1].name`.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FieldPath(pub Vec<Segment>);

impl FieldPath {
    /// The same path, as it is seen from one step further out.
    pub(crate) fn below(mut self, step: Segment) -> Self {
        self.0.insert(0, step);
        self
    }

    /// From dotted text of plain keys, such as `spec.cohortName`.
    pub fn of(dotted: &str) -> Self {
        Self(
            dotted.split('.').filter(|key| !key.is_empty()).map(|key| Segment::Key(key.to_owned())).collect(),
        )
    }

    /// From what a path shows as, such as `metadata.labels[kueue.x-k8s.io/queue-name]`.
    pub fn read(shown: &str) -> Self {
        let (mut path, mut rest) = (Self::default(), shown);
        while !rest.is_empty() {
            let bracketed = rest.strip_prefix('[').and_then(|inner| inner.split_once(']'));
            let (segment, after) = if let Some((inner, after)) = bracketed {
                (inner.parse().map_or_else(|_| Segment::Key(inner.to_owned()), Segment::Index), after)
            } else {
                let plain = rest.trim_start_matches(['.', '[']);
                let end = plain.find(['.', '[']).unwrap_or(plain.len());
                (Segment::Key(plain[..end].to_owned()), &plain[end..])
            };
            path.0.push(segment);
            rest = after;
        }
        path
    }

    /// This path and one more key.
    #[must_use]
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.0.push(Segment::Key(key.into()));
        self
    }

    /// This path and one more position.
    #[must_use]
    pub fn index(mut self, index: usize) -> Self {
        self.0.push(Segment::Index(index));
        self
    }

    /// Replaces the leading keys `from` by `to`; says whether the path began with `from`.
    pub(crate) fn replace_prefix(&mut self, from: &str, to: &str) -> bool {
        let (from, to) = (Self::of(from), Self::of(to));
        if !self.0.starts_with(&from.0) {
            return false;
        }
        self.0.splice(..from.0.len(), to.0);
        true
    }
}

impl fmt::Display for FieldPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, segment) in self.0.iter().enumerate() {
            match segment {
                Segment::Index(index) => write!(f, "[{index}]")?,
                Segment::Key(key) if key.contains(['.', '/', '[', ' ']) => write!(f, "[{key}]")?,
                Segment::Key(key) if at == 0 => f.write_str(key)?,
                Segment::Key(key) => write!(f, ".{key}")?,
            }
        }
        Ok(())
    }
}

macro_rules! finding {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name {
            /// The field.
            pub field: FieldPath,
            /// What is the matter.
            pub message: String,
            /// What to do about it; empty when the message says it all.
            pub remedy: String,
        }

        impl $name {
            /// A finding at `field`.
            pub fn new(field: FieldPath, message: impl Into<String>, remedy: impl Into<String>) -> Self {
                Self { field, message: message.into(), remedy: remedy.into() }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                if !self.field.0.is_empty() {
                    write!(f, "{}: ", self.field)?;
                }
                f.write_str(&self.message)?;
                if self.remedy.is_empty() { Ok(()) } else { write!(f, "; {}", self.remedy) }
            }
        }
    };
}

finding! {
    /// Why an object is refused.
    FieldError
}
finding! {
    /// What a person should know about an object that is accepted.
    Warning
}

impl std::error::Error for FieldError {}

/// A path on the call stack.
#[derive(Clone, Copy)]
enum Step<'p> {
    Root,
    Key(&'p Step<'p>, &'p str),
    Index(&'p Step<'p>, usize),
}

impl Step<'_> {
    fn to_path(self) -> FieldPath {
        match self {
            Step::Root => FieldPath::default(),
            Step::Key(parent, key) => parent.to_path().key(key),
            Step::Index(parent, index) => parent.to_path().index(index),
        }
    }
}

/// Collects what is found while one object is read.
#[derive(Default)]
pub(crate) struct Findings {
    errors: RefCell<Vec<FieldError>>,
    warnings: RefCell<Vec<Warning>>,
    strict: Cell<bool>,
    lenient: bool,
    trusting: bool,
}

impl Findings {
    /// Findings of a reader that wants only to understand: what a schema or a rule refuses is let through, and only
    /// what cannot be read at all is reported.
    pub(crate) fn lenient() -> Self {
        Self { lenient: true, ..Self::default() }
    }

    /// Findings of a reader of what was accepted before: it means what it meant then, and no rule refuses it now.
    pub(crate) fn trusting() -> Self {
        Self { trusting: true, ..Self::default() }
    }

    /// Whether rules are let be.
    pub(crate) fn is_lenient(&self) -> bool {
        self.lenient
    }

    /// Reports that a rule is broken.
    pub(crate) fn error(&self, field: FieldPath, message: impl Into<String>, remedy: impl Into<String>) {
        if !self.lenient && !self.trusting {
            self.unreadable(field, message, remedy);
        }
    }

    /// Reports something that no reader can make sense of.
    pub(crate) fn unreadable(&self, field: FieldPath, message: impl Into<String>, remedy: impl Into<String>) {
        let mut errors = self.errors.borrow_mut();
        if errors.len() < MAX_ISSUES_PER_OBJECT {
            errors.push(FieldError::new(field, message, remedy));
        }
    }

    /// Reports a warning.
    pub(crate) fn warn(&self, field: FieldPath, message: impl Into<String>, remedy: impl Into<String>) {
        let mut warnings = self.warnings.borrow_mut();
        if warnings.len() < MAX_ISSUES_PER_OBJECT {
            warnings.push(Warning::new(field, message, remedy));
        }
    }

    /// From here on an unknown field is an error. Our own kinds are read so: a mistyped `deny` must not be a no-op.
    pub(crate) fn set_strict(&self) {
        self.strict.set(true);
    }

    /// Whether an error was reported.
    pub(crate) fn has_errors(&self) -> bool {
        !self.errors.borrow().is_empty()
    }

    /// Everything that was reported.
    pub(crate) fn into_parts(self) -> (Vec<FieldError>, Vec<Warning>) {
        (self.errors.into_inner(), self.warnings.into_inner())
    }
}

/// What kind of JSON value this is, for people.
pub(crate) fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "nothing",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "a mapping",
    }
}

/// One value and where it stands.
#[derive(Clone, Copy)]
pub(crate) struct Item<'p> {
    findings: &'p Findings,
    step: Step<'p>,
    value: &'p Value,
}

impl<'p> Item<'p> {
    /// The path of this value.
    pub(crate) fn path(&self) -> FieldPath {
        self.step.to_path()
    }

    /// Reports an error at this value.
    pub(crate) fn error(&self, message: impl Into<String>, remedy: impl Into<String>) {
        self.findings.error(self.path(), message, remedy);
    }

    /// Reports that this value makes no sense, to a lenient reader too.
    pub(crate) fn unreadable(&self, message: impl Into<String>, remedy: impl Into<String>) {
        self.findings.unreadable(self.path(), message, remedy);
    }

    /// The raw value.
    pub(crate) fn value(&self) -> &'p Value {
        self.value
    }

    fn wrong(&self, wanted: &str) {
        let remedy = match self.value {
            Value::Number(number) if wanted == "a string" && !number.is_f64() => {
                format!("quote it: \"{number}\"")
            }
            Value::Number(_) if wanted == "a string" => "put it into quotes".to_owned(),
            Value::Bool(flag) if wanted == "a string" => format!("quote it: \"{flag}\""),
            Value::String(text) if wanted == "a boolean" && ["yes", "on", "y"].contains(&text.as_str()) => {
                "write `true`".to_owned()
            }
            Value::String(text) if wanted == "a boolean" && ["no", "off", "n"].contains(&text.as_str()) => {
                "write `false`".to_owned()
            }
            Value::String(text) if wanted == "a boolean" && ["true", "false"].contains(&text.as_str()) => {
                format!("remove the quotes: {text}")
            }
            Value::String(text) if wanted == "a whole number" && text.parse::<i64>().is_ok() => {
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

    /// A string.
    pub(crate) fn text(&self) -> Option<&'p str> {
        match self.value {
            Value::String(text) => Some(text),
            _ => {
                self.wrong("a string");
                None
            }
        }
    }

    /// A boolean.
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
        // YAML's `1e3` arrives as a float; a float that is a whole number is as good as an integer
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
            self.findings.lenient.then_some(number)
        } else if number > max {
            self.error(format!("`{number}` is too large"), format!("the most is {max}"));
            self.findings.lenient.then_some(number)
        } else {
            Some(number)
        }
    }

    /// A list.
    pub(crate) fn list(&self) -> Option<&'p [Value]> {
        match self.value {
            Value::Array(items) => Some(items),
            _ => {
                self.wrong("a list");
                None
            }
        }
    }

    /// The `index`-th element of the list that this is.
    pub(crate) fn at<'c>(&'c self, index: usize, value: &'c Value) -> Item<'c> {
        Item { findings: self.findings, step: Step::Index(&self.step, index), value }
    }

    /// A mapping's fields.
    pub(crate) fn fields(&self) -> Option<Fields<'p>> {
        match self.value {
            Value::Object(map) => {
                Some(Fields { findings: self.findings, step: self.step, map, seen: RefCell::default() })
            }
            _ => {
                self.wrong("a mapping");
                None
            }
        }
    }

    /// A quantity of `resource` in base units, not negative. A lenient reader takes what is too large as the most there is.
    pub(crate) fn amount(&self, resource: &str) -> Option<i64> {
        match quantity::from_json(resource, self.value) {
            Ok(amount) if amount < 0 => {
                self.error(format!("`{}` is negative", shown(self.value)), "write zero or more");
                self.findings.lenient.then_some(amount)
            }
            Ok(amount) => Some(amount),
            Err(quantity::Error::TooLarge(text)) if self.findings.lenient => {
                Some(if text.starts_with('-') { i64::MIN } else { i64::MAX })
            }
            Err(error) => {
                self.unreadable(error.to_string(), error.remedy());
                None
            }
        }
    }

    /// The same of a quota, where more than anybody counts is without limit, as in Kubernetes.
    pub(crate) fn quota(&self, resource: &str) -> Option<i64> {
        match quantity::from_json(resource, self.value) {
            Err(quantity::Error::TooLarge(text)) if !text.starts_with('-') => Some(i64::MAX),
            _ => self.amount(resource),
        }
    }

    /// One of the words of a closed set.
    pub(crate) fn word<T: Copy>(&self, words: &[(&str, T)]) -> Option<T> {
        let text = self.text()?;
        if text.is_empty() && self.findings.lenient && words.iter().all(|(word, _)| !word.is_empty()) {
            return None;
        }
        let found = words.iter().find(|(word, _)| *word == text).map(|(_, value)| *value);
        if found.is_none() {
            let all = words.iter().map(|(word, _)| format!("`{word}`")).collect::<Vec<_>>().join(", ");
            let remedy = match suggest::nearest(text, words.iter().map(|(word, _)| *word)) {
                Some(near) => format!("did you mean `{near}`? the choices are {all}"),
                None => format!("the choices are {all}"),
            };
            self.unreadable(format!("`{text}` is not a choice"), remedy);
        }
        found
    }
}

fn is_whole(number: &serde_json::Number) -> bool {
    // only whether a fraction is there is asked; the amount itself never passes through a float
    number.as_f64().is_some_and(|float| float.fract() == 0.0)
}

fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// The fields of one mapping.
pub(crate) struct Fields<'p> {
    findings: &'p Findings,
    step: Step<'p>,
    map: &'p Map<String, Value>,
    seen: RefCell<Vec<&'static str>>,
}

impl<'p> Fields<'p> {
    /// The root of an object.
    pub(crate) fn root(findings: &'p Findings, map: &'p Map<String, Value>) -> Self {
        Self { findings, step: Step::Root, map, seen: RefCell::default() }
    }

    /// The path of this mapping.
    pub(crate) fn path(&self) -> FieldPath {
        self.step.to_path()
    }

    /// Where findings go.
    pub(crate) fn findings(&self) -> &'p Findings {
        self.findings
    }

    /// Reports an error at the field `name` of this mapping.
    pub(crate) fn error(&self, name: &str, message: impl Into<String>, remedy: impl Into<String>) {
        self.findings.error(self.path().key(name), message, remedy);
    }

    /// Reports a warning at the field `name` of this mapping.
    pub(crate) fn warn(&self, name: &str, message: impl Into<String>, remedy: impl Into<String>) {
        self.findings.warn(self.path().key(name), message, remedy);
    }

    /// The field, unless it is absent or null, which Kubernetes treats alike.
    pub(crate) fn get<'c>(&'c self, name: &'static str) -> Option<Item<'c>> {
        self.seen.borrow_mut().push(name);
        match self.map.get(name) {
            None | Some(Value::Null) => None,
            Some(value) => Some(Item { findings: self.findings, step: Step::Key(&self.step, name), value }),
        }
    }

    /// Whether the field is written, even as null.
    pub(crate) fn is_written(&self, name: &str) -> bool {
        self.map.contains_key(name)
    }

    /// The field; its absence is an error.
    pub(crate) fn require<'c>(&'c self, name: &'static str) -> Option<Item<'c>> {
        let item = self.get(name);
        if item.is_none() {
            self.error(name, "is missing", format!("add `{name}`"));
        }
        item
    }

    /// The field, without which even a lenient reader cannot say what is meant.
    pub(crate) fn demand<'c>(&'c self, name: &'static str) -> Option<Item<'c>> {
        let item = self.get(name);
        if item.is_none() {
            self.findings.unreadable(self.path().key(name), "is missing", format!("add `{name}`"));
        }
        item
    }

    /// Fields that are known, and whose content is not looked at here.
    pub(crate) fn known(&self, names: &[&'static str]) {
        self.seen.borrow_mut().extend_from_slice(names);
    }

    /// A string.
    pub(crate) fn text<'c>(&'c self, name: &'static str) -> Option<&'c str> {
        self.get(name)?.text()
    }

    /// A string that must be there and not be empty.
    pub(crate) fn require_text<'c>(&'c self, name: &'static str) -> Option<&'c str> {
        let text = self.require(name)?.text()?;
        if text.is_empty() {
            self.error(name, "is empty", format!("give `{name}` a value"));
            return None;
        }
        Some(text)
    }

    /// A boolean; `false` when absent.
    pub(crate) fn flag(&self, name: &'static str) -> bool {
        self.get(name).and_then(|item| item.flag()).unwrap_or(false)
    }

    /// A whole number.
    pub(crate) fn int(&self, name: &'static str, min: i64, max: i64) -> Option<i64> {
        self.get(name)?.int(min, max)
    }

    /// A mapping.
    pub(crate) fn fields<'c>(&'c self, name: &'static str) -> Option<Fields<'c>> {
        self.get(name)?.fields()
    }

    /// Calls `each` for every element of a list; absent is empty.
    pub(crate) fn each(&self, name: &'static str, mut each: impl FnMut(Item<'_>)) {
        let Some(item) = self.get(name) else { return };
        for (index, value) in item.list().unwrap_or_default().iter().enumerate() {
            each(item.at(index, value));
        }
    }

    /// The results of `read` for every element of a list of at most `max` elements; unreadable ones are left out.
    pub(crate) fn list<T>(
        &self,
        name: &'static str,
        max: usize,
        mut read: impl FnMut(Item<'_>) -> Option<T>,
    ) -> Vec<T> {
        let mut all = Vec::new();
        let mut count = 0;
        self.each(name, |item| {
            count += 1;
            if count <= max || self.findings.lenient {
                all.extend(read(item));
            }
        });
        if count > max {
            self.error(name, format!("has {count} entries"), format!("the most is {max}"));
        }
        all
    }

    /// A list of distinct, non-empty strings.
    pub(crate) fn names(&self, name: &'static str, max: usize) -> Vec<String> {
        let mut all: Vec<String> = Vec::new();
        self.list(name, max, |item| {
            let text = item.text()?;
            if text.is_empty() {
                item.error("is empty", "write a name or remove the entry");
            } else if all.iter().any(|other| other == text) {
                item.error(format!("`{text}` is there twice"), "remove one of them");
            } else {
                all.push(text.to_owned());
            }
            Some(())
        });
        all
    }

    /// A mapping of strings to strings, as labels and selectors are.
    pub(crate) fn strings(&self, name: &'static str) -> BTreeMap<String, String> {
        let mut all = BTreeMap::new();
        let Some(item) = self.get(name) else { return all };
        let Value::Object(map) = item.value() else {
            item.wrong("a mapping");
            return all;
        };
        for (key, value) in map {
            let item = Item { findings: self.findings, step: Step::Key(&item.step, key), value };
            if let Some(text) = item.text() {
                all.insert(key.clone(), text.to_owned());
            }
        }
        all
    }

    /// A mapping of resource names to quantities, in base units.
    pub(crate) fn amounts(&self, name: &'static str) -> Amounts {
        self.fields(name).map(|amounts| amounts.each_amount(|resource| resource)).unwrap_or_default()
    }

    /// This mapping as resource names and quantities, each in the base unit of the resource that `unit` says.
    pub(crate) fn each_amount(&self, unit: for<'u> fn(&'u str) -> &'u str) -> Amounts {
        let mut all = Amounts::new();
        for (resource, value) in self.map {
            let item = Item { findings: self.findings, step: Step::Key(&self.step, resource), value };
            if let Some(amount) = item.amount(unit(resource)) {
                all.insert(resource.clone(), amount);
            }
        }
        all
    }

    /// Reports every field that nobody asked for.
    pub(crate) fn finish(self) {
        let seen = self.seen.borrow();
        for name in self.map.keys().filter(|name| !seen.contains(&name.as_str())) {
            let near = suggest::nearest(name, seen.iter().copied());
            let remedy = near.map(|near| format!("did you mean `{near}`?"));
            if self.findings.strict.get() {
                let remedy = remedy.unwrap_or_else(|| "remove it or correct its name".to_owned());
                self.error(name, "is not a field of this kind", remedy);
            } else {
                self.warn(name, "is not a field we know; it is kept as it is", remedy.unwrap_or_default());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(value: &Value, read: impl FnOnce(&Fields<'_>)) -> (Vec<String>, Vec<String>) {
        let findings = Findings::default();
        let fields = Fields::root(&findings, value.as_object().unwrap());
        read(&fields);
        fields.finish();
        let (errors, warnings) = findings.into_parts();
        (errors.iter().map(ToString::to_string).collect(), warnings.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn paths_show_as_people_write_them() {
        let path = FieldPath::of("spec.groups").index(2).key("name");
        assert_eq!(path.to_string(), "spec.groups[2].name");
        assert_eq!(
            FieldPath::of("metadata.annotations").key("a.b/c").to_string(),
            "metadata.annotations[a.b/c]"
        );
        for path in
            [FieldPath::default(), path, FieldPath::of("metadata.annotations").key("a.b/c").index(0).key("x")]
        {
            assert_eq!(FieldPath::read(&path.to_string()), path);
        }
        for broken in ["[", "a[", ".", "a..b", "[]", "]"] {
            // whatever it is, it is read
            FieldPath::read(broken);
        }
        let mut path = FieldPath::of("spec.cohortName");
        assert!(
            path.replace_prefix("spec.cohortName", "spec.cohort") && !path.replace_prefix("spec.other", "x")
        );
        assert_eq!(path.to_string(), "spec.cohort");
    }

    #[test]
    fn wrong_types_say_what_to_do() {
        let value = json!({"a": 600, "b": "yes", "c": "7", "d": [], "e": 1.5, "f": 1e3});
        let (errors, warnings) = read(&value, |fields| {
            assert!(fields.text("a").is_none());
            assert!(!fields.flag("b"));
            assert!(fields.int("c", 0, 9).is_none());
            assert!(fields.fields("d").is_none());
            assert!(fields.int("e", 0, 9).is_none());
            assert_eq!(fields.int("f", 0, 1_000), Some(1_000));
        });
        assert_eq!(warnings, Vec::<String>::new());
        assert_eq!(
            errors,
            [
                "a: must be a string, not the number `600`; quote it: \"600\"",
                "b: must be a boolean, not a string; write `true`",
                "c: must be a whole number, not a string; remove the quotes: 7",
                "d: must be a mapping, not a list; write a mapping here",
                "e: must be a whole number, not the number `1.5`; write a whole number here",
            ]
        );
    }

    #[test]
    fn unknown_fields_are_warned_with_a_guess() {
        let (errors, warnings) =
            read(&json!({"stopPolcy": 1, "zzz": 2}), |fields| fields.known(&["stopPolicy"]));
        assert!(errors.is_empty());
        assert_eq!(
            warnings,
            [
                "stopPolcy: is not a field we know; it is kept as it is; did you mean `stopPolicy`?",
                "zzz: is not a field we know; it is kept as it is"
            ]
        );
    }
}
