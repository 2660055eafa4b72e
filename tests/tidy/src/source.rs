//! Source files contain no work left for later, no metric named in several places, and no ignored test
//! without a reason. Every crate begins with a module doc.

use crate::Violations;
use crate::manifest;
use crate::rust::Source;
use crate::tree::Tree;

/// Extensions of files that are searched for work left for later.
const COUNTED: [&str; 7] = ["rs", "md", "toml", "yaml", "yml", "sh", "json"];
/// The prefix of every metric.
const METRIC_PREFIX: &str = "meridian_";
/// The only file of a process that may name metrics.
const METRICS_FILE: &str = "metrics.rs";

/// Nothing is left for later in the source; later work is an issue.
pub fn left_for_later(tree: &Tree) -> Violations {
    let words = [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X"), concat!("HA", "CK")];
    let macros = [concat!("todo", "!"), concat!("unimplemented", "!"), concat!("dbg", "!")];
    let mut violations = Vec::new();
    for file in tree.files().filter(|file| COUNTED.contains(&file.extension())) {
        for (number, line) in (1..).zip(file.text.lines()) {
            let part = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
            for word in words {
                let stands = line.match_indices(word).any(|(at, _)| {
                    !part(line[..at].chars().next_back()) && !part(line[at + word.len()..].chars().next())
                });
                if stands {
                    violations.push(format!("{}:{number}: `{word}`: do it, or write an issue", file.path));
                }
            }
        }
        if file.is_rust() {
            for (number, line) in Source::of(&file.text).lines() {
                violations.extend(
                    macros
                        .iter()
                        .filter(|name| line.contains(*name))
                        .map(|name| format!("{}:{number}: `{name}` left in the code", file.path)),
                );
            }
        }
    }
    violations
}

/// Every crate begins with a module doc that says what it owns.
pub fn module_docs(tree: &Tree) -> Violations {
    let roots = ["src/lib.rs", "src/main.rs"];
    let members = manifest::members(tree);
    let mut violations = Vec::new();
    for member in members {
        for file in roots.iter().filter_map(|root| tree.get(&format!("{member}/{root}"))) {
            if !file.text.starts_with("//! ") {
                violations.push(format!(
                    "{}: begin with a module doc: what it owns, must not know, and its invariants",
                    file.path
                ));
            }
        }
    }
    violations
}

/// Metrics are named in one file per process, with help and labels.
pub fn metrics(tree: &Tree) -> Violations {
    let crates: Vec<String> = manifest::members(tree)
        .iter()
        .filter_map(|member| tree.get(&format!("{member}/Cargo.toml")))
        .filter_map(|file| manifest::package(&file.text))
        .map(|name| name.replace('-', "_"))
        .collect();
    let mut violations = Vec::new();
    for file in tree
        .rust()
        .filter(|file| !is_metrics_file(&file.path) && !file.is_test() && !file.path.starts_with("tests/"))
    {
        // The bench reads a running manager's metrics as any scraper does.
        if file.path.starts_with("cli/src/commands/bench/") {
            continue;
        }
        let source = Source::of(&file.text);
        for (line, text) in &source.strings {
            for (at, _) in text.match_indices(METRIC_PREFIX) {
                let name: String =
                    text[at..].chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect();
                if !crates.contains(&name) {
                    violations.push(format!(
                        "{}:{line}: the metric `{name}` is named outside `{METRICS_FILE}`",
                        file.path
                    ));
                }
            }
        }
        violations.extend(
            source
                .lines()
                .filter(|(_, line)| line.contains("prometheus::"))
                .map(|(n, _)| format!("{}:{n}: `prometheus` is used outside `{METRICS_FILE}`", file.path)),
        );
    }
    violations
}

/// The only places that may name one kind of job. All others ask for the row of a kind, so that another kind
/// of job is added in these places alone.
const JOB_KIND_FILES: [&str; 2] = ["shared/objects/src/kind.rs", "shared/objects/src/job/"];

/// One kind of job is named only where kinds of jobs are defined.
pub fn job_kinds(tree: &Tree) -> Violations {
    let is_elsewhere = |path: &str| !JOB_KIND_FILES.iter().any(|place| path.starts_with(place));
    let files = tree
        .rust()
        .filter(|file| !file.is_test() && !file.path.starts_with("tests/") && is_elsewhere(&file.path));
    let mut violations = Vec::new();
    for file in files {
        for (n, line) in (1..).zip(Source::of(&file.text).without_tests().lines()) {
            let mut named = line.match_indices("Kind::Job").map(|(at, name)| &line[at + name.len()..]);
            if named.any(|rest| !rest.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_')) {
                violations.push(format!(
                    "{}:{n}: `Kind::Job` is named outside `shared/objects/src/job`: ask `Kind::job()`",
                    file.path
                ));
            }
        }
    }
    violations
}

/// `metrics.rs`, or a file of its folder.
fn is_metrics_file(path: &str) -> bool {
    path.ends_with(&format!("/{METRICS_FILE}")) || path.contains("/metrics/")
}

/// Every ignored test has a reason.
pub fn ignored_tests(tree: &Tree) -> Violations {
    let mut violations = Vec::new();
    for file in tree.rust() {
        for (number, line) in Source::of(&file.text).lines() {
            if line.replace(' ', "").contains("#[ignore]") {
                violations.push(format!("{}:{number}: write `#[ignore = \"why\"]`", file.path));
            }
        }
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_of_job_is_named_in_its_module_only() {
        let of = |path: &str, text: &str| job_kinds(&Tree::of(&[(path, text)])).len();
        assert_eq!(of("manager/src/a.rs", "if kind == Kind::Job { b(Kind::JobSet) }"), 1);
        assert_eq!(of("manager/src/a.rs", "#[cfg(test)]\nmod tests { const K: Kind = Kind::Job; }"), 0);
        assert_eq!(of("shared/objects/src/job/batch.rs", "kind: Kind::Job,"), 0);
    }

    fn finds(rule: fn(&Tree) -> Violations, path: &str, text: &str, times: usize) {
        let workspace = "[workspace]\nmembers = [\n  \"a\",\n]\n";
        let violations = rule(&Tree::of(&[
            ("Cargo.toml", workspace),
            ("a/Cargo.toml", "[package]\nname = \"meridian-a\"\n"),
            (path, text),
        ]));
        assert_eq!(violations.len(), times, "{path}: {violations:?}");
    }

    #[test]
    fn work_left_for_later_is_found() {
        finds(left_for_later, "a/src/lib.rs", concat!("// TO", "DO: later\nfn f() { todo", "!() }"), 2);
        finds(left_for_later, "README.md", concat!("FIX", "ME"), 1);
        finds(left_for_later, "a/src/lib.rs", "fn f() { \"todo!()\" }", 0);
    }

    #[test]
    fn crates_without_a_module_doc_are_found() {
        finds(module_docs, "a/src/lib.rs", "#![warn(missing_docs)]\n//! Late.", 1);
        finds(module_docs, "a/src/lib.rs", "//! What it owns.", 0);
    }

    #[test]
    fn metrics_named_outside_of_their_file_are_found() {
        finds(metrics, "a/src/server.rs", "let a = \"meridian_grants_total\";", 1);
        finds(metrics, "a/src/server.rs", "use prometheus::Registry;", 1);
        finds(metrics, "a/src/server.rs", "let a = \"info,meridian_a=debug\"; meridian_a::f()", 0);
        finds(metrics, "a/src/metrics.rs", "let a = \"meridian_grants_total\";", 0);
        finds(metrics, "a/src/server/tests.rs", "let a = \"meridian_grants_total\";", 0);
    }

    #[test]
    fn ignored_tests_without_a_reason_are_found() {
        finds(ignored_tests, "a/src/lib.rs", "#[test]\n#[ignore]\nfn f() {}", 1);
        finds(
            ignored_tests,
            "a/src/lib.rs",
            "#[test]\n#[ignore = \"needs a GPU\"]\nfn f() {} // #[ignore]",
            0,
        );
    }
}
