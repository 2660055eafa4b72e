//! The clippy lints that enforce rules of style are on in every crate.

use crate::Violations;
use crate::manifest;
use crate::tree::Tree;

/// Lints that must be on in the workspace, and the rule that each enforces.
const REQUIRED: [(&str, &str); 2] = [
    ("too_many_lines", "a function is at most 70 lines of code"),
    ("too_many_arguments", "a function takes at most 7 arguments"),
];
/// The line that every clippy.toml must have: clippy reads only the nearest one.
const THRESHOLD: &str = "too-many-lines-threshold = 70";

/// The lints are on, every crate follows the workspace, and no clippy.toml loses the threshold.
pub fn size_lints(tree: &Tree) -> Violations {
    let Some(workspace) = tree.get("Cargo.toml") else { return Vec::new() };
    let on = manifest::keys(&workspace.text, "workspace.lints.clippy");
    let mut violations: Violations = REQUIRED
        .iter()
        .filter(|(lint, _)| !on.contains(*lint))
        .map(|(lint, rule)| format!("Cargo.toml: [workspace.lints.clippy] lacks `{lint}`: {rule}"))
        .collect();
    for member in manifest::members(tree) {
        let path = format!("{member}/Cargo.toml");
        if tree.get(&path).is_some_and(|file| !manifest::keys(&file.text, "lints").contains("workspace")) {
            violations.push(format!("{path}: write `workspace = true` under [lints]"));
        }
    }
    for file in tree.files().filter(|file| file.name() == "clippy.toml") {
        if !file.text.lines().any(|line| line.trim() == THRESHOLD) {
            violations.push(format!("{}: write `{THRESHOLD}`", file.path));
        }
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lint_that_is_off_is_found() {
        let on = "[workspace]\nmembers = [\"a\"]\n[workspace.lints.clippy]\n\
                  too_many_lines = \"warn\"\ntoo_many_arguments = \"warn\"\n";
        let follows = "[lints]\nworkspace = true\n";
        let count = |root: &str, member: &str, clippy: &str| {
            size_lints(&Tree::of(&[("Cargo.toml", root), ("a/Cargo.toml", member), ("clippy.toml", clippy)]))
                .len()
        };
        assert_eq!(count(on, follows, THRESHOLD), 0);
        assert_eq!(count("[workspace]\nmembers = [\"a\"]\n", follows, THRESHOLD), 2);
        assert_eq!(count(on, "[package]\n", THRESHOLD), 1);
        assert_eq!(count(on, follows, "too-many-lines-threshold = 200"), 1);
    }
}
