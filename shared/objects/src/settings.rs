//! Files of settings and of fleets: YAML into typed values, with every slip at its place, in words and with a remedy.

use crate::field::FieldPath;
use crate::suggest;
use crate::text::node::At;
use crate::text::yaml;
use serde::de::DeserializeOwned;
use serde_saphyr::Error;
use std::fmt;

/// Why such a file can't be used. Shows as `LINE:COLUMN: FIELD: what is wrong; what to do`, to follow the file's name and a colon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slip {
    /// Where, from 1; 0 where the whole file is meant.
    pub line: u32,
    /// Where in the line, from 1, in characters.
    pub column: u32,
    /// The field that stands there, or nothing where that can't be told.
    pub field: FieldPath,
    /// What is wrong.
    pub message: String,
    /// What to do about it; empty when the message says it all.
    pub remedy: String,
}

impl fmt::Display for Slip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.line > 0 {
            write!(f, "{}:{}: ", self.line, self.column)?;
        }
        if !self.field.0.is_empty() {
            write!(f, "{}: ", self.field)?;
        }
        f.write_str(&self.message)?;
        if self.remedy.is_empty() { Ok(()) } else { write!(f, "; {}", self.remedy) }
    }
}

impl std::error::Error for Slip {}

/// Reads the text of such a file.
pub fn read<T: DeserializeOwned>(text: &str) -> Result<T, Slip> {
    serde_saphyr::from_str_with_options(text, serde_saphyr::options! { with_snippet: false })
        .map_err(|error| slip(text, &error))
}

/// Where the values of settings came from, for errors about them.
#[derive(Debug)]
pub struct Origins<'f> {
    /// The flags that were said: on the command line, or by a variable in their place.
    pub said: Vec<&'static str>,
    /// The variable of a flag, where it is set.
    pub variable: fn(&str) -> Option<String>,
    /// The file's name and its text.
    pub file: Option<(&'f str, &'f str)>,
}

impl Origins<'_> {
    /// What an error about a setting begins with.
    pub fn of(&self, flag: &str) -> String {
        if self.said.contains(&flag) {
            // which of the two it was is not told any more
            return (self.variable)(flag)
                .map_or_else(|| format!("`--{flag}`"), |variable| format!("`--{flag}` or `{variable}`"));
        }
        let stands = self.file.and_then(|(name, text)| Some((name, key_at(text, flag)?)));
        stands.map_or_else(
            || format!("`--{flag}`"),
            |(name, at)| format!("{name}:{}:{}: {flag}", at.line, at.column),
        )
    }
}

/// That a setting can't be as it was said.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {what}", from.clone().unwrap_or_else(|| format!("`--{flag}`")))]
pub struct Invalid {
    flag: &'static str,
    /// Where its value came from, once that is known.
    from: Option<String>,
    what: String,
}

impl Invalid {
    /// What is wrong with the value of a flag, and what to do.
    pub fn new(flag: &'static str, what: impl Into<String>) -> Self {
        Self { flag, from: None, what: what.into() }
    }

    /// The same with where the value came from.
    #[must_use]
    pub fn told(self, origins: &Origins<'_>) -> Self {
        Self { from: self.from.or_else(|| Some(origins.of(self.flag))), ..self }
    }

    /// The same where something else would do, too.
    #[must_use]
    pub fn or(self, other: &str) -> Self {
        Self { what: format!("{}; or {other}", self.what), ..self }
    }
}

/// Where the value of a key of the whole file begins, also where it is written as Kubernetes writes keys.
fn key_at(text: &str, key: &str) -> Option<At> {
    let nodes = yaml::read(text).ok()?;
    let camel = camel(key);
    let value = nodes.first().and_then(|node| node.get(key).or_else(|| node.get(&camel)))?;
    Some(value.at)
}

fn camel(kebab: &str) -> String {
    let mut words = kebab.split('-');
    let first = words.next().unwrap_or_default().to_owned();
    words.fold(first, |all, word| {
        all + &word[..word.len().min(1)].to_uppercase() + word.get(1..).unwrap_or_default()
    })
}

fn slip(text: &str, error: &Error) -> Slip {
    let inner = yaml::innermost(error);
    let at = error.location().map(yaml::at).unwrap_or_default();
    let (message, remedy) = in_words(inner).unwrap_or_else(|| {
        let broken = yaml::broken(text, error);
        (broken.message, broken.remedy)
    });
    Slip { line: at.line, column: at.column, field: field_at(text, at), message, remedy }
}

fn field_at(text: &str, at: At) -> FieldPath {
    let nodes = yaml::read(text).unwrap_or_default();
    nodes.first().and_then(|node| node.path_at(at)).unwrap_or_default()
}

/// What doesn't fit the type that is read, with a remedy; `None` for what isn't YAML.
fn in_words(error: &Error) -> Option<(String, String)> {
    let known = |word: &str, expected: &[&'static str]| match suggest::nearest(word, expected.iter().copied())
    {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!(
            "the known ones are {}",
            expected.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ")
        ),
    };
    Some(match error {
        Error::SerdeUnknownField { field, expected, .. } => {
            (format!("`{field}` is not known here"), known(field, expected))
        }
        Error::SerdeUnknownVariant { variant, expected, .. } => {
            (format!("`{variant}` is not a choice"), known(variant, expected))
        }
        Error::SerdeMissingField { field, .. } => (format!("`{field}` is missing"), "add it".to_owned()),
        Error::InvalidScalar { ty, .. } => (format!("this is not {}", kind(ty)), String::new()),
        Error::SerdeInvalidType { expected, .. } | Error::SerdeInvalidValue { expected, .. } => {
            (format!("this is not {}", kind(expected)), String::new())
        }
        Error::Unexpected { expected, .. } => (format!("this is not {}", kind(expected)), String::new()),
        Error::InvalidBooleanStrict { .. } => ("this is not `true` or `false`".to_owned(), String::new()),
        Error::NullIntoString { .. } => {
            ("there is no value".to_owned(), "write one, or leave the field out".to_owned())
        }
        Error::Eof { .. } => (
            "there is nothing in it".to_owned(),
            "write what it should say, or leave the file out".to_owned(),
        ),
        Error::MultipleDocuments { .. } => {
            ("there is more than one document in it".to_owned(), "keep one".to_owned())
        }
        Error::Message { msg, .. } => (msg.clone(), String::new()),
        _ => return None,
    })
}

/// What the reader's words for a type mean to a person.
fn kind(expected: &str) -> String {
    let has = |part: &str| expected.contains(part);
    let words = match expected {
        "u8" => "a whole number from 0 to 255",
        "u16" => "a whole number from 0 to 65535",
        "u32" => "a whole number from 0 to 4294967295",
        "u64" | "usize" => "a whole number from 0 on",
        "i8" | "i16" | "i32" | "i64" => "a whole number",
        "f32" | "f64" | "floating point" => "a number",
        "bool" | "boolean" => "`true` or `false`",
        _ if has("mapping") || has("struct") || expected == "a map" => "a mapping",
        _ if has("sequence") => "a list",
        _ if has("string") || has("scalar") => "a single value",
        other => other,
    };
    words.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;

    #[derive(Debug, Deserialize)]
    #[serde(rename_all = "kebab-case", deny_unknown_fields)]
    struct File {
        #[expect(dead_code, reason = "only whether it can be read matters")]
        term: Option<String>,
        #[expect(dead_code, reason = "only whether it can be read matters")]
        nodes: Vec<Node>,
    }

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Node {
        #[expect(dead_code, reason = "only whether it can be read matters")]
        count: u32,
        #[expect(dead_code, reason = "only whether it can be read matters")]
        #[serde(default)]
        ready: bool,
    }

    #[test]
    fn slips_have_a_place_a_field_and_a_remedy_and_no_words_of_the_reader() {
        for (text, says) in [
            ("nodes: [{count: 2x}]", "1:17: nodes[0].count: this is not a whole number from 0 to 4294967295"),
            (
                "nodes:\n- count: -1\n",
                "2:10: nodes[0].count: this is not a whole number from 0 to 4294967295",
            ),
            ("nodes:\n- cuont: 1\n", "2:3: nodes[0].cuont: `cuont` is not known here; did you mean `count`?"),
            ("term: a\nterm: b\n", "2:1: the key `term` is there twice; write the key once"),
            ("nodes: 7", "1:8: nodes: this is not a list"),
            ("nodes: [{count: 1, ready: perhaps}]", "1:27: nodes[0].ready: this is not `true` or `false`"),
        ] {
            assert_eq!(read::<File>(text).unwrap_err().to_string(), says, "{text}");
        }
        let missing = read::<File>("term: a\n").unwrap_err().to_string();
        assert!(missing.ends_with("`nodes` is missing; add it"), "{missing}");
    }

    #[test]
    fn a_value_is_laid_at_the_door_it_came_by() {
        let origins = Origins {
            said: vec!["hold", "speed"],
            variable: |flag| (flag == "hold").then(|| "HOLD".to_owned()),
            file: Some(("s.yaml", "a: 1\nterm-min: 5\nfairSharing: x\n")),
        };
        for (flag, from) in [
            ("hold", "`--hold` or `HOLD`"),
            ("speed", "`--speed`"),
            ("term-min", "s.yaml:2:11: term-min"),
            ("fair-sharing", "s.yaml:3:14: fair-sharing"),
            ("term", "`--term`"),
        ] {
            assert_eq!(origins.of(flag), from);
        }
    }
}
