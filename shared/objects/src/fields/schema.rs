//! Schemas as data: types, rules and "did you mean" of the fields that no reader interprets.
//!
//! A reader takes only the few fields that decisions depend on. A schema describes what an API server accepts
//! in all fields, so that a wrong file is refused at submission, and not later by the cluster that would run
//! it.

use super::findings::Findings;
use super::item::{Item, PathStep};
use super::suggest;
use serde_json::{Map, Value};
use std::collections::VecDeque;

/// Deepest field that "did you mean" looks for.
const SUGGESTION_DEPTH: usize = 3;

/// Type of a value in a schema.
pub(crate) enum Type {
    Any,
    Text,
    Flag,
    /// A whole number between these bounds, inclusive.
    Int(i64, i64),
    /// A whole number or a string, such as a port's number or name.
    IntOrText,
    Word(&'static [&'static str]),
    Rule(&'static TextRule),
    /// A mapping of strings to strings.
    Strings,
    List(&'static Type),
    /// A list of mappings with different values of this field, where it is written.
    Unique(&'static str, &'static Type),
    Object(&'static Shape),
    /// A function that reads the value and reports all errors.
    Read(fn(&Item<'_>)),
}

/// Rule for a text value.
pub(crate) struct TextRule {
    pub(crate) holds: fn(&str) -> bool,
    /// Noun for a text that satisfies the rule, such as `a name`.
    pub(crate) what: &'static str,
    pub(crate) remedy: &'static str,
}

/// The fields of a mapping.
pub(crate) struct Shape {
    pub(crate) fields: &'static [(&'static str, Type)],
    pub(crate) required: &'static [&'static str],
    pub(crate) choice: Choice,
}

/// How many of a group of fields may be written.
#[derive(Clone, Copy)]
pub(crate) enum Choice {
    Free,
    AtMostOne(&'static [&'static str]),
    ExactlyOne(&'static [&'static str]),
}

impl Shape {
    pub(crate) const fn of(fields: &'static [(&'static str, Type)]) -> Self {
        Self { fields, required: &[], choice: Choice::Free }
    }

    pub(crate) const fn required(self, required: &'static [&'static str]) -> Self {
        Self { required, ..self }
    }

    pub(crate) const fn choice(self, choice: Choice) -> Self {
        Self { choice, ..self }
    }

    fn field(&self, name: &str) -> Option<&'static Type> {
        self.fields.iter().find(|(known, _)| *known == name).map(|(_, of)| of)
    }
}

/// The mappings around a value, innermost first.
struct Around<'a> {
    shape: &'static Shape,
    step: PathStep<'a>,
    outer: Option<&'a Around<'a>>,
}

/// Checks a mapping and all its content.
pub(super) fn check_fields(
    findings: &Findings,
    step: PathStep<'_>,
    map: &Map<String, Value>,
    shape: &'static Shape,
) {
    if findings.enforces_rules() {
        check_map(findings, step, map, shape, None);
    }
}

fn check_value(item: &Item<'_>, of: &'static Type, outer: Option<&Around<'_>>) {
    match of {
        Type::Any => {}
        Type::Text => {
            item.text();
        }
        Type::Flag => {
            item.flag();
        }
        Type::Int(min, max) => {
            item.int(*min, *max);
        }
        Type::IntOrText => {
            if !item.value().is_string() {
                item.int(i64::from(i32::MIN), i64::from(i32::MAX));
            }
        }
        Type::Word(words) => {
            let pairs: Vec<(&str, ())> = words.iter().map(|word| (*word, ())).collect();
            item.word(&pairs);
        }
        Type::Rule(rule) => check_text(item, rule),
        Type::Strings => {
            let Value::Object(map) = item.value() else { return item.wrong("a mapping") };
            for (key, value) in map.iter().filter(|(_, value)| !value.is_null()) {
                item.field(key, value).text();
            }
        }
        Type::List(each) => {
            for (index, value) in item.list().into_iter().flatten().enumerate() {
                check_value(&item.at(index, value), each, outer);
            }
        }
        Type::Unique(key, each) => {
            check_unique(item, key);
            for (index, value) in item.list().into_iter().flatten().enumerate() {
                check_value(&item.at(index, value), each, outer);
            }
        }
        Type::Object(shape) => match item.value() {
            Value::Object(map) => check_map(item.findings(), item.step(), map, shape, outer),
            _ => item.wrong("a mapping"),
        },
        Type::Read(read) => read(item),
    }
}

fn check_text(item: &Item<'_>, rule: &TextRule) {
    let Some(text) = item.text() else { return };
    if !(rule.holds)(text) {
        item.error(format!("`{}` is not {}", text.escape_default(), rule.what), rule.remedy);
    }
}

fn check_unique(list: &Item<'_>, key: &str) {
    let mut seen: Vec<&Value> = Vec::new();
    for (index, item) in list.value().as_array().into_iter().flatten().enumerate() {
        let Some(value) = item.get(key).filter(|value| !value.is_null() && **value != "") else { continue };
        if seen.contains(&value) {
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            let at = list.path().index(index).key(key);
            list.findings().error(at, format!("`{text}` appears twice"), "give every entry its own");
        } else {
            seen.push(value);
        }
    }
}

fn check_map(
    findings: &Findings,
    step: PathStep<'_>,
    map: &Map<String, Value>,
    shape: &'static Shape,
    outer: Option<&Around<'_>>,
) {
    let around = Around { shape, step, outer };
    for (name, value) in map {
        let step = PathStep::Key(&step, name);
        match shape.field(name) {
            // Null is the same as absent.
            Some(_) if value.is_null() => {}
            Some(of) => check_value(&Item::new(findings, step, value), of, Some(&around)),
            None => findings.unknown(step.to_path(), intended(name, &around).as_deref()),
        }
    }
    let is_written = |name: &str| map.get(name).is_some_and(|value| !value.is_null());
    for name in shape.required.iter().filter(|name| !is_written(name)) {
        findings.error(step.to_path().key(*name), "is missing", format!("add `{name}`"));
    }
    let (choices, needed) = match shape.choice {
        Choice::Free => return,
        Choice::AtMostOne(choices) => (choices, false),
        Choice::ExactlyOne(choices) => (choices, true),
    };
    let written: Vec<&str> = choices.iter().copied().filter(|name| is_written(name)).collect();
    let list = |names: &[&str]| names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>();
    if written.is_empty() && needed {
        findings.error(step.to_path(), "is empty", format!("write one of {}", list(choices).join(", ")));
    } else if written.len() > 1 {
        let message = format!("has {}", list(&written).join(" and "));
        findings.error(step.to_path(), message, "write only one of them");
    }
}

/// The field that `name` was probably meant to be, with its path from the mapping that `name` is in.
fn intended(name: &str, around: &Around<'_>) -> Option<String> {
    let here = |name: &str| suggest::nearest(name, around.shape.fields.iter().map(|(known, _)| *known));
    let distance = |near: &&str| strsim::osa_distance(&near.to_lowercase(), &name.to_lowercase());
    let near = here(name);
    near.filter(|near| distance(near) <= 1)
        .map(str::to_owned)
        .or_else(|| within(name, around.shape, SUGGESTION_DEPTH, |name, known| name == known))
        .or_else(|| outside(name, around))
        .or_else(|| near.map(str::to_owned))
        .or_else(|| within(name, around.shape, 1, |name, known| suggest::nearest(name, [known]).is_some()))
}

/// The nearest field within the mappings of `shape`, in a form such as `valueFrom.secretKeyRef` or
/// `containers[].image`.
fn within(name: &str, shape: &'static Shape, depth: usize, is: fn(&str, &str) -> bool) -> Option<String> {
    let mut queue = VecDeque::from([(String::new(), shape, depth)]);
    while let Some((path, shape, depth)) = queue.pop_front() {
        for (known, of) in shape.fields {
            if !path.is_empty() && is(name, known) {
                return Some(format!("{path}{known}"));
            }
            let (brackets, of) = match of {
                Type::List(each) | Type::Unique(_, each) => ("[]", *each),
                other => ("", other),
            };
            if let (Type::Object(inner), true) = (of, depth > 0) {
                queue.push_back((format!("{path}{known}{brackets}."), inner, depth - 1));
            }
        }
    }
    None
}

/// The field of this name in a surrounding mapping, as a whole path.
fn outside(name: &str, around: &Around<'_>) -> Option<String> {
    let mut outer = around.outer;
    while let Some(found) = outer {
        if let Some((known, _)) = found.shape.fields.iter().find(|(known, _)| *known == name) {
            return Some(found.step.to_path().key(*known).to_string());
        }
        outer = found.outer;
    }
    None
}
