//! The fields of one mapping, read by name.

use super::findings::Findings;
use super::item::{Item, PathStep};
use super::path::{FieldPath, split_pointer};
use super::schema::{self, Shape};
use super::suggest;
use crate::units::duration;
use meridian_shared::gang::Amounts;
use meridian_shared::time::Millis;
use serde_json::{Map, Value};
use std::cell::RefCell;
use std::collections::BTreeMap;

/// Longest duration of a field: a year. Longer ones are typing mistakes, and a sum of two durations must not
/// overflow.
const MAX_DURATION: Millis = Millis::mins(366 * 24 * 60);

pub(crate) struct Fields<'p> {
    findings: &'p Findings,
    step: PathStep<'p>,
    map: &'p Map<String, Value>,
    seen: RefCell<Vec<&'static str>>,
}

impl<'p> Fields<'p> {
    pub(crate) fn root(findings: &'p Findings, map: &'p Map<String, Value>) -> Self {
        Self::new(findings, PathStep::Root, map)
    }

    pub(super) fn new(findings: &'p Findings, step: PathStep<'p>, map: &'p Map<String, Value>) -> Self {
        Self { findings, step, map, seen: RefCell::default() }
    }

    pub(crate) fn path(&self) -> FieldPath {
        self.step.to_path()
    }

    pub(crate) fn findings(&self) -> &'p Findings {
        self.findings
    }

    /// The mapping as written.
    pub(crate) fn written(&self) -> &'p Map<String, Value> {
        self.map
    }

    /// This mapping as a value, checked by a schema.
    pub(crate) fn check(&self, shape: &'static Shape) {
        schema::check_fields(self.findings, self.step, self.map, shape);
    }

    pub(crate) fn error(&self, name: &str, message: impl Into<String>, remedy: impl Into<String>) {
        self.findings.error(self.path().key(name), message, remedy);
    }

    pub(crate) fn warn(&self, name: &str, message: impl Into<String>, remedy: impl Into<String>) {
        self.findings.warn(self.path().key(name), message, remedy);
    }

    /// The field, unless it is absent or null, which are the same in Kubernetes.
    pub(crate) fn get<'c>(&'c self, name: &'static str) -> Option<Item<'c>> {
        self.seen.borrow_mut().push(name);
        match self.map.get(name) {
            None | Some(Value::Null) => None,
            Some(value) => Some(Item::new(self.findings, PathStep::Key(&self.step, name), value)),
        }
    }

    /// Whether the field is written, even as null.
    pub(crate) fn is_written(&self, name: &str) -> bool {
        self.map.contains_key(name)
    }

    /// The field; an error if it is absent.
    pub(crate) fn require<'c>(&'c self, name: &'static str) -> Option<Item<'c>> {
        let item = self.get(name);
        if item.is_none() {
            self.error(name, "is missing", format!("add `{name}`"));
        }
        item
    }

    /// The field; if it is absent, not even a lenient reader can interpret the object.
    pub(crate) fn demand<'c>(&'c self, name: &'static str) -> Option<Item<'c>> {
        let item = self.get(name);
        if item.is_none() {
            self.findings.unreadable(self.path().key(name), "is missing", format!("add `{name}`"));
        }
        item
    }

    /// Declares fields that are known but not read here.
    pub(crate) fn known(&self, names: &[&'static str]) {
        self.seen.borrow_mut().extend_from_slice(names);
    }

    pub(crate) fn text<'c>(&'c self, name: &'static str) -> Option<&'c str> {
        self.get(name)?.text()
    }

    /// A string that must be present and not empty.
    pub(crate) fn require_text<'c>(&'c self, name: &'static str) -> Option<&'c str> {
        let text = self.require(name)?.text()?;
        if text.is_empty() {
            self.error(name, "is empty", format!("give `{name}` a value"));
            return None;
        }
        Some(text)
    }

    /// `false` when absent.
    pub(crate) fn flag(&self, name: &'static str) -> bool {
        self.get(name).and_then(|item| item.flag()).unwrap_or(false)
    }

    pub(crate) fn int(&self, name: &'static str, min: i64, max: i64) -> Option<i64> {
        self.get(name)?.int(min, max)
    }

    pub(crate) fn fields<'c>(&'c self, name: &'static str) -> Option<Fields<'c>> {
        self.get(name)?.fields()
    }

    /// Calls `read` with the value at a JSON pointer below this mapping, if there is one.
    pub(crate) fn at_pointer(&self, pointer: &str, read: &mut dyn FnMut(&Item<'_>)) {
        let Some((first, rest)) = split_pointer(pointer) else { return };
        let Some(value) = self.map.get(first).filter(|value| !value.is_null()) else { return };
        Item::new(self.findings, PathStep::Key(&self.step, first), value).at_pointer(rest, read);
    }

    /// Calls `each` for every element of a list. Does nothing when the list is absent.
    pub(crate) fn each(&self, name: &'static str, mut each: impl FnMut(Item<'_>)) {
        let Some(item) = self.get(name) else { return };
        for (index, value) in item.list().unwrap_or_default().iter().enumerate() {
            each(item.at(index, value));
        }
    }

    /// Reads every element of a list of at most `max` elements; unreadable elements are left out.
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
            if count <= max || self.findings.is_lenient() {
                all.extend(read(item));
            }
        });
        if count > max {
            self.error(name, format!("has {count} entries"), format!("the maximum is {max}"));
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
                item.error(format!("`{text}` appears twice"), "remove one of them");
            } else {
                all.push(text.to_owned());
            }
            Some(())
        });
        all
    }

    /// A mapping of strings to strings, such as labels.
    pub(crate) fn strings(&self, name: &'static str) -> BTreeMap<String, String> {
        let mut all = BTreeMap::new();
        let Some(item) = self.get(name) else { return all };
        let Value::Object(map) = item.value() else {
            item.wrong("a mapping");
            return all;
        };
        let at = PathStep::Key(&self.step, name);
        for (key, value) in map {
            let item = Item::new(self.findings, PathStep::Key(&at, key), value);
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

    /// This mapping as resource names and quantities. `unit` maps each name to the resource whose base unit
    /// it has.
    pub(crate) fn each_amount(&self, unit: for<'u> fn(&'u str) -> &'u str) -> Amounts {
        let mut all = Amounts::new();
        for (resource, value) in self.map {
            let item = Item::new(self.findings, PathStep::Key(&self.step, resource), value);
            if let Some(amount) = item.amount(unit(resource)) {
                all.insert(resource.clone(), amount);
            }
        }
        all
    }

    /// Reports every field that was not read.
    pub(crate) fn finish(self) {
        let seen = self.seen.borrow();
        for name in self.map.keys().filter(|name| !seen.contains(&name.as_str())) {
            self.findings.unknown(self.path().key(name), suggest::nearest(name, seen.iter().copied()));
        }
    }
}

impl Fields<'_> {
    /// A positive duration of at most [`MAX_DURATION`].
    pub(crate) fn duration(&self, name: &'static str) -> Option<Millis> {
        let item = self.get(name)?;
        let text = item.text()?;
        match duration::parse(text) {
            Some(millis) if millis > Millis(0) && millis <= MAX_DURATION => Some(millis),
            Some(millis) if millis > MAX_DURATION => {
                item.error(format!("`{text}` is too long"), "the maximum is `8784h`, a year");
                None
            }
            _ => {
                item.error(
                    format!("`{text}` is not a duration"),
                    "write a positive number with a unit, such as `90s`, `15m` or `2h`",
                );
                None
            }
        }
    }
}
