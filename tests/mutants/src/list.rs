//! The mutants of cargo-mutants, as its `--list --json` gives them.

use anyhow::{Context, ensure};
use serde::Deserialize;
use std::process::Command;

/// One change of one place.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Mutant {
    /// Package of the file.
    pub(crate) package: String,
    /// Path from the root of the workspace.
    pub(crate) file: String,
    /// What changes: an operator, a whole body, a match arm.
    pub(crate) genre: Genre,
    /// The text that takes the place of `span`.
    pub(crate) replacement: String,
    /// The text that is replaced.
    pub(crate) span: Span,
    /// File, line, column and the change in words.
    pub(crate) name: String,
}

/// Kinds of changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub(crate) enum Genre {
    /// A function returns a value at once.
    FnValue,
    /// Another operator between two operands.
    BinaryOperator,
    /// A `!` or a `-` is left out.
    UnaryOperator,
    /// A match arm is left out.
    MatchArm,
    /// The guard of an arm is always true, or never.
    MatchArmGuard,
    /// A struct expression with a base doesn't set a field.
    StructField,
}

/// From a place to a place, the end not included.
#[derive(Clone, Copy, Debug, Deserialize)]
pub(crate) struct Span {
    pub(crate) start: Place,
    pub(crate) end: Place,
}

/// A line and a column of characters, both from 1.
#[derive(Clone, Copy, Debug, Deserialize)]
pub(crate) struct Place {
    pub(crate) line: usize,
    pub(crate) column: usize,
}

/// The mutants of `files` with a name that matches one of `patterns`, if there are any.
pub(crate) fn mutants(files: &[String], patterns: &[String]) -> anyhow::Result<Vec<Mutant>> {
    let mut command = Command::new("cargo");
    command.args(["mutants", "--list", "--json"]);
    for file in files {
        command.args(["--file", file]);
    }
    for pattern in patterns {
        command.args(["--re", pattern]);
    }
    let out =
        command.stderr(std::process::Stdio::inherit()).output().context("cargo mutants can't be run")?;
    ensure!(out.status.success(), "cargo mutants --list failed");
    serde_json::from_slice(&out.stdout).context("the list of cargo-mutants can't be read")
}
