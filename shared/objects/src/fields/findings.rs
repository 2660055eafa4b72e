//! Errors and warnings of one object, collected while it is read.

use super::path::FieldPath;
use std::cell::{Cell, RefCell};
use std::fmt;

/// Treatment of an unknown field, like `fieldValidation` of the Kubernetes API. Meridian's own kinds are
/// always read strictly.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FieldValidation {
    /// The field is kept without a warning.
    Ignore,
    /// The field is kept, with a warning.
    #[default]
    Warn,
    /// An error in the spec of a job, where it would decide what runs; elsewhere a warning.
    StrictJobs,
    /// An error everywhere.
    Strict,
}

impl FieldValidation {
    /// The level that `fieldValidation` names; `None` for another word.
    pub fn from_word(word: &str) -> Option<Self> {
        match word {
            "Ignore" => Some(Self::Ignore),
            "" | "Warn" => Some(Self::Warn),
            "Strict" => Some(Self::Strict),
            _ => None,
        }
    }
}

/// Most problems kept per object. A file with more is probably the wrong file, so further problems don't
/// help.
pub(crate) const MAX_ISSUES_PER_OBJECT: usize = 100;

macro_rules! finding {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name {
            pub field: FieldPath,
            /// Description of the error.
            pub message: String,
            /// Remedy; empty if the message is enough.
            pub remedy: String,
        }

        impl $name {
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
    /// Warning about an accepted object.
    Warning
}

impl std::error::Error for FieldError {}

#[derive(Default)]
pub(crate) struct Findings {
    errors: RefCell<Vec<FieldError>>,
    warnings: RefCell<Vec<Warning>>,
    strict: Cell<bool>,
    validation: FieldValidation,
    planned: bool,
    lenient: bool,
    trusting: bool,
}

impl Findings {
    /// For a lenient reader: schemas and rules aren't enforced. Only values that can't be read at all are
    /// errors.
    pub(crate) fn lenient() -> Self {
        Self { lenient: true, ..Self::default() }
    }

    /// For a reader of stored objects, which were accepted before, so that newer rules must not refuse them.
    pub(crate) fn trusting() -> Self {
        Self { trusting: true, ..Self::default() }
    }

    /// For a reader that treats unknown fields as `validation` says.
    pub(crate) fn with(validation: FieldValidation) -> Self {
        let strict = Cell::new(validation == FieldValidation::Strict);
        Self { validation, strict, ..Self::default() }
    }

    /// For a reader of plans, whose jobs are not submitted.
    pub(crate) fn planned(validation: FieldValidation) -> Self {
        Self { planned: true, ..Self::with(validation) }
    }

    /// Whether the object will be stored, so that all rules of an API server apply.
    pub(crate) fn is_submission(&self) -> bool {
        self.enforces_rules() && !self.planned
    }

    /// Whether rules are enforced.
    pub(crate) fn enforces_rules(&self) -> bool {
        !self.lenient && !self.trusting
    }

    /// Whether rules are ignored.
    pub(crate) fn is_lenient(&self) -> bool {
        self.lenient
    }

    /// Reports a broken rule.
    pub(crate) fn error(&self, field: FieldPath, message: impl Into<String>, remedy: impl Into<String>) {
        if self.enforces_rules() {
            self.unreadable(field, message, remedy);
        }
    }

    /// Reports something that not even a lenient reader can interpret.
    pub(crate) fn unreadable(&self, field: FieldPath, message: impl Into<String>, remedy: impl Into<String>) {
        let mut errors = self.errors.borrow_mut();
        let error = FieldError::new(field, message, remedy);
        // Without duplicates, because schema and reader may both find a wrong type.
        if errors.len() < MAX_ISSUES_PER_OBJECT && !errors.contains(&error) {
            errors.push(error);
        }
    }

    /// Reports a field that no schema has, with the name that was probably intended.
    pub(crate) fn unknown(&self, field: FieldPath, intended: Option<&str>) {
        let remedy = intended.map(|intended| format!("did you mean `{intended}`?"));
        if self.strict.get() {
            let remedy = remedy.unwrap_or_else(|| "remove it or correct its name".to_owned());
            self.error(field, "is an unknown field", remedy);
        } else if self.validation != FieldValidation::Ignore {
            self.warn(field, "is an unknown field, kept as it is", remedy.unwrap_or_default());
        }
    }

    pub(crate) fn warn(&self, field: FieldPath, message: impl Into<String>, remedy: impl Into<String>) {
        let mut warnings = self.warnings.borrow_mut();
        if warnings.len() < MAX_ISSUES_PER_OBJECT {
            warnings.push(Warning::new(field, message, remedy));
        }
    }

    /// Makes unknown fields errors from now on, as for Meridian's own kinds, where a mistyped `deny` must not
    /// be ignored.
    pub(crate) fn set_strict(&self) {
        self.strict.set(true);
    }

    /// Reads the spec of a job, in which unknown fields may be errors, depending on the validation.
    pub(crate) fn in_job_spec<T>(&self, read: impl FnOnce() -> T) -> T {
        let before = self.strict.replace(self.strict.get() || self.validation == FieldValidation::StrictJobs);
        let value = read();
        self.strict.set(before);
        value
    }

    pub(crate) fn has_errors(&self) -> bool {
        !self.errors.borrow().is_empty()
    }

    pub(crate) fn into_parts(self) -> (Vec<FieldError>, Vec<Warning>) {
        (self.errors.into_inner(), self.warnings.into_inner())
    }
}
