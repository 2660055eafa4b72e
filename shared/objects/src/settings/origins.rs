//! Sources of settings' values, for errors about them.

use super::key_at;

#[derive(Debug)]
pub struct Origins<'f> {
    /// Flags that were given on the command line or as environment variables.
    pub said: Vec<&'static str>,
    /// The environment variable of a flag, if it is set.
    pub variable: fn(&str) -> Option<String>,
    /// The file's name and its text.
    pub file: Option<(&'f str, &'f str)>,
}

impl Origins<'_> {
    /// The start of an error about a setting: its source.
    pub fn of(&self, flag: &str) -> String {
        if self.said.contains(&flag) {
            // Clap does not tell which of the two was used.
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

/// A setting with a value that it can't have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {what}", from.clone().unwrap_or_else(|| format!("`--{flag}`")))]
pub struct Invalid {
    flag: &'static str,
    /// Source of the value, once known.
    from: Option<String>,
    what: String,
}

impl Invalid {
    /// Error in the value of a flag, and its remedy.
    pub fn new(flag: &'static str, what: impl Into<String>) -> Self {
        Self { flag, from: None, what: what.into() }
    }

    /// Adds the source of the value.
    #[must_use]
    pub fn with_origin(self, origins: &Origins<'_>) -> Self {
        Self { from: self.from.or_else(|| Some(origins.of(self.flag))), ..self }
    }

    /// Adds an alternative to the remedy.
    #[must_use]
    pub fn or(self, other: &str) -> Self {
        Self { what: format!("{}; or {other}", self.what), ..self }
    }
}
