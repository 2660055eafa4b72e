//! Errors and warnings of one object, collected while it is read.

use super::path::FieldPath;
use std::cell::{Cell, RefCell};
use std::fmt;

/// Problems kept per object. A file with more is the wrong file; further lines don't help.
pub(crate) const MAX_ISSUES_PER_OBJECT: usize = 100;

macro_rules! finding {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name {
            pub field: FieldPath,
            /// What is wrong.
            pub message: String,
            /// What to write; empty when the message is enough.
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
    /// What users should know about an object that is accepted.
    Warning
}

impl std::error::Error for FieldError {}

#[derive(Default)]
pub(crate) struct Findings {
    errors: RefCell<Vec<FieldError>>,
    warnings: RefCell<Vec<Warning>>,
    strict: Cell<bool>,
    lenient: bool,
    trusting: bool,
}

impl Findings {
    /// For a reader that only has to understand: schemas and rules are not enforced. Only what can't be read
    /// at all is an error.
    pub(crate) fn lenient() -> Self {
        Self { lenient: true, ..Self::default() }
    }

    /// For a reader of stored objects: they were accepted before, and today's rules must not refuse them.
    pub(crate) fn trusting() -> Self {
        Self { trusting: true, ..Self::default() }
    }

    /// Whether rules are ignored.
    pub(crate) fn is_lenient(&self) -> bool {
        self.lenient
    }

    /// Reports a broken rule.
    pub(crate) fn error(&self, field: FieldPath, message: impl Into<String>, remedy: impl Into<String>) {
        if !self.lenient && !self.trusting {
            self.unreadable(field, message, remedy);
        }
    }

    /// Reports something that not even a lenient reader can interpret.
    pub(crate) fn unreadable(&self, field: FieldPath, message: impl Into<String>, remedy: impl Into<String>) {
        let mut errors = self.errors.borrow_mut();
        if errors.len() < MAX_ISSUES_PER_OBJECT {
            errors.push(FieldError::new(field, message, remedy));
        }
    }

    pub(crate) fn warn(&self, field: FieldPath, message: impl Into<String>, remedy: impl Into<String>) {
        let mut warnings = self.warnings.borrow_mut();
        if warnings.len() < MAX_ISSUES_PER_OBJECT {
            warnings.push(Warning::new(field, message, remedy));
        }
    }

    pub(crate) fn is_strict(&self) -> bool {
        self.strict.get()
    }

    /// Makes unknown fields errors from here on, as for Meridian's own kinds: a mistyped `deny` must not be a
    /// no-op.
    pub(crate) fn set_strict(&self) {
        self.strict.set(true);
    }

    pub(crate) fn has_errors(&self) -> bool {
        !self.errors.borrow().is_empty()
    }

    pub(crate) fn into_parts(self) -> (Vec<FieldError>, Vec<Warning>) {
        (self.errors.into_inner(), self.warnings.into_inner())
    }
}
