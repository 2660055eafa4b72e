//! How the tree is laid out: names of folders and files, how long files and lines may be, no path of one
//! machine.

use crate::Violations;
use crate::tree::{File, Tree};

/// Names that don't say what a folder or file owns.
const EMPTY_NAMES: [&str; 8] =
    ["util", "utils", "helper", "helpers", "common", "misc", "shared_utils", "stuff"];
/// Extensions of files with a limited length.
const COUNTED: [&str; 7] = ["rs", "md", "toml", "yaml", "yml", "sh", "json"];
/// Most lines of a file of Rust.
const RUST_LINES_MAX: usize = 500;
/// Most lines of any other counted file.
const LINES_MAX: usize = 800;
/// Files that may be longer, each with the reason.
const LONGER: &[(&str, &str)] = &[
    (
        "docs/guide/operator.md",
        "every task stands with its commands and their real output, which a test runs",
    ),
    (
        "manifests/kustomize/manager-kubernetes/manager.yaml",
        "is written from the chart, with the definitions of kinds and the admission policies",
    ),
];
/// Most columns of a line of Rust, comments and strings included. rustfmt wraps neither.
const RUST_COLUMNS_MAX: usize = 110;
/// Most columns of a line of Markdown outside of tables, which can't be wrapped.
const MARKDOWN_COLUMNS_MAX: usize = 140;

/// Folders and files have names that say what they own.
pub fn folder_names(tree: &Tree) -> Violations {
    let mut violations = Vec::new();
    for file in tree.rust() {
        if file.name() == "mod.rs" {
            violations.push(format!("{}: write `foo.rs` next to `foo/`, not `foo/mod.rs`", file.path));
        }
        let parts = file.path.split('/').map(|part| part.strip_suffix(".rs").unwrap_or(part));
        violations.extend(
            parts
                .filter(|part| EMPTY_NAMES.contains(part))
                .map(|part| format!("{}: `{part}` doesn't say what it owns", file.path)),
        );
    }
    violations
}

/// Files are short enough to be read, or have a reason not to be.
pub fn file_lengths(tree: &Tree) -> Violations {
    lengths(tree, LONGER)
}

fn lengths(tree: &Tree, longer: &[(&str, &str)]) -> Violations {
    let excused = |file: &File| longer.iter().any(|(path, _)| *path == file.path);
    let most = |file: &File| if file.is_rust() { RUST_LINES_MAX } else { LINES_MAX };
    let counted = tree.files().filter(|file| COUNTED.contains(&file.extension()) && !excused(file));
    let mut violations: Violations = counted
        .map(|file| (file, file.text.lines().count()))
        .filter(|(file, lines)| *lines > most(file))
        .map(|(file, lines)| {
            format!(
                "{}: {lines} lines, at most {}: split it, or say in `LONGER` why not",
                file.path,
                most(file)
            )
        })
        .collect();
    for (path, reason) in longer {
        let is_long = |file: &File| file.text.lines().count() > most(file);
        if reason.split_whitespace().count() < 3 || tree.get(path).is_some_and(|file| !is_long(file)) {
            violations.push(format!("{path}: the exception in `LONGER` has no reason, or isn't needed"));
        }
    }
    violations
}

/// Lines are short enough for two files side by side.
pub fn columns(tree: &Tree) -> Violations {
    let mut violations = Vec::new();
    for file in tree.files() {
        let most = match file.extension() {
            "rs" => RUST_COLUMNS_MAX,
            "md" => MARKDOWN_COLUMNS_MAX,
            _ => continue,
        };
        for (number, line) in (1..).zip(file.text.lines()) {
            let columns = line.chars().count();
            if columns > most && !cannot_be_wrapped(file, line) {
                violations.push(format!("{}:{number}: {columns} columns, at most {most}", file.path));
            }
        }
    }
    violations
}

/// Whether a line has no place to break it: a row of a Markdown table, or one long word such as a URL.
fn cannot_be_wrapped(file: &File, line: &str) -> bool {
    let row = file.extension() == "md" && line.trim_start().starts_with('|');
    let words = line.split_whitespace().filter(|word| word.chars().any(char::is_alphanumeric)).count();
    row || words <= 1
}

/// No file contains a path of one machine.
pub fn machine_paths(tree: &Tree) -> Violations {
    let roots = [concat!("/wo", "rk/"), concat!("/ro", "ot/"), concat!("/home", "/"), concat!("/Us", "ers/")];
    let mut violations = Vec::new();
    for file in tree.files() {
        for (number, line) in (1..).zip(file.text.lines()) {
            for root in roots {
                // Part of a longer path, such as `pod/work/`, isn't a root.
                let is_root = |at: usize| {
                    !line[..at].ends_with(|c: char| {
                        c.is_alphanumeric() || matches!(c, '.' | '_' | '-' | '}' | '>' | '~' | '{' | ')')
                    })
                };
                if line.match_indices(root).any(|(at, _)| is_root(at)) {
                    violations.push(format!("{}:{number}: `{root}…` is a path of one machine", file.path));
                }
            }
        }
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finds(rule: fn(&Tree) -> Violations, path: &str, text: &str, times: usize) {
        let violations = rule(&Tree::of(&[(path, text)]));
        assert_eq!(violations.len(), times, "{path}: {violations:?}");
    }

    #[test]
    fn names_that_say_nothing_are_found() {
        finds(folder_names, "a/src/utils.rs", "", 1);
        finds(folder_names, "a/src/common/parse.rs", "", 1);
        finds(folder_names, "a/src/mod.rs", "", 1);
        finds(folder_names, "a/src/commons.rs", "", 0);
    }

    #[test]
    fn long_files_are_found() {
        finds(file_lengths, "a/src/lib.rs", &"x\n".repeat(RUST_LINES_MAX), 0);
        finds(file_lengths, "a/src/lib.rs", &"x\n".repeat(RUST_LINES_MAX + 1), 1);
        finds(file_lengths, "docs/cli.md", &"x\n".repeat(LINES_MAX), 0);
        finds(file_lengths, "docs/cli.md", &"x\n".repeat(LINES_MAX + 1), 1);
        finds(file_lengths, "Cargo.lock", &"x\n".repeat(LINES_MAX + 1), 0);
    }

    #[test]
    fn a_longer_file_needs_a_reason_and_an_exception_needs_a_longer_file() {
        let (long, short) = ("x\n".repeat(RUST_LINES_MAX + 1), "x\n");
        let count = |text: &str, reason| lengths(&Tree::of(&[("a.rs", text)]), &[("a.rs", reason)]).len();
        assert_eq!(count(&long, "one table of cases"), 0);
        assert_eq!(count(&long, ""), 1);
        assert_eq!(count(short, "one table of cases"), 1);
    }

    #[test]
    fn long_lines_are_found() {
        let words = |columns: usize| "a ".repeat(columns / 2);
        finds(columns, "a/src/lib.rs", &words(RUST_COLUMNS_MAX), 0);
        finds(columns, "a/src/lib.rs", &words(RUST_COLUMNS_MAX + 2), 1);
        finds(columns, "README.md", &words(MARKDOWN_COLUMNS_MAX), 0);
        finds(columns, "README.md", &words(MARKDOWN_COLUMNS_MAX + 2), 1);
        finds(columns, "README.md", &format!("| {} |", words(MARKDOWN_COLUMNS_MAX + 2)), 0);
        finds(columns, "a/src/lib.rs", &format!("// https://{}", "a".repeat(RUST_COLUMNS_MAX)), 0);
        finds(columns, "a.yaml", &words(2 * MARKDOWN_COLUMNS_MAX), 0);
    }

    #[test]
    fn paths_of_a_machine_are_found() {
        finds(machine_paths, "README.md", concat!("see `/wo", "rk/main`"), 1);
        finds(machine_paths, "a/src/lib.rs", concat!("pod-0/{wo", "rk/, output.log} dir/wo", "rk/x"), 0);
    }
}
