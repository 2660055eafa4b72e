//! Names and words of source files: rooms that say their duty, sizes, promises to do something later, where metrics are named.

use crate::Broken;
use crate::manifest;
use crate::rust::Source;
use crate::tree::Tree;

/// Rooms whose name says nothing about their duty.
const EMPTY_NAMES: [&str; 8] =
    ["util", "utils", "helper", "helpers", "common", "misc", "shared_utils", "stuff"];
/// A longer file is asking to be two.
const LINES_MAX: usize = 800;
/// Longer files that must be, with the reason.
const LONG: [(&str, &str); 0] = [];
/// What is counted.
const COUNTED: [&str; 7] = ["rs", "md", "toml", "yaml", "yml", "sh", "json"];
/// The prefix of every metric.
const METRIC_PREFIX: &str = "meridian_";
/// The only file that may name metrics, once per process.
const METRICS_FILE: &str = "metrics.rs";

/// No room is named after nothing.
pub fn rooms(tree: &Tree) -> Broken {
    let mut broken = Vec::new();
    for file in tree.rust() {
        if file.name() == "mod.rs" {
            broken.push(format!("{}: a module is `foo.rs` with `foo/` beside it, not `mod.rs`", file.path));
        }
        let parts = file.path.split('/').map(|part| part.strip_suffix(".rs").unwrap_or(part));
        broken.extend(
            parts
                .filter(|part| EMPTY_NAMES.contains(part))
                .map(|part| format!("{}: `{part}` doesn't say what it owns", file.path)),
        );
    }
    broken
}

/// Files stay small enough to be read.
pub fn sizes(tree: &Tree) -> Broken {
    let counted = tree.files().filter(|file| {
        COUNTED.contains(&file.extension()) && !LONG.iter().any(|(path, _)| *path == file.path)
    });
    counted
        .map(|file| (file, file.text.lines().count()))
        .filter(|(_, lines)| *lines > LINES_MAX)
        .map(|(file, lines)| {
            format!("{}: {lines} lines, at most {LINES_MAX}: it is asking to be two", file.path)
        })
        .collect()
}

/// Nothing is left for later in the source; later work is an issue.
pub fn promises(tree: &Tree) -> Broken {
    let words = [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X"), concat!("HA", "CK")];
    let macros = [concat!("todo", "!"), concat!("unimplemented", "!"), concat!("dbg", "!")];
    let mut broken = Vec::new();
    for file in tree.files().filter(|file| COUNTED.contains(&file.extension())) {
        for (number, line) in (1..).zip(file.text.lines()) {
            let part = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
            for word in words {
                let stands = line.match_indices(word).any(|(at, _)| {
                    !part(line[..at].chars().next_back()) && !part(line[at + word.len()..].chars().next())
                });
                if stands {
                    broken.push(format!("{}:{number}: `{word}`: do it, or write an issue", file.path));
                }
            }
        }
        if file.is_rust() {
            for (number, line) in Source::of(&file.text).lines() {
                broken.extend(
                    macros
                        .iter()
                        .filter(|name| line.contains(*name))
                        .map(|name| format!("{}:{number}: `{name}` is no answer", file.path)),
                );
            }
        }
    }
    broken
}

/// Every crate says first what it owns.
pub fn module_docs(tree: &Tree) -> Broken {
    let roots = ["src/lib.rs", "src/main.rs"];
    let members = manifest::members(tree);
    let mut broken = Vec::new();
    for member in members {
        for file in roots.iter().filter_map(|root| tree.get(&format!("{member}/{root}"))) {
            if !file.text.starts_with("//! ") {
                broken.push(format!("{}: begins without a module doc: say what it owns, what it must not know, its invariants", file.path));
            }
        }
    }
    broken
}

/// Names of metrics stand in one file per process, with help and labels.
pub fn metrics(tree: &Tree) -> Broken {
    let crates: Vec<String> = manifest::members(tree)
        .iter()
        .filter_map(|member| tree.get(&format!("{member}/Cargo.toml")))
        .filter_map(|file| manifest::package(&file.text))
        .map(|name| name.replace('-', "_"))
        .collect();
    let mut broken = Vec::new();
    for file in tree
        .rust()
        .filter(|file| file.name() != METRICS_FILE && !file.is_test() && !file.path.starts_with("tests/"))
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
                    broken.push(format!(
                        "{}:{line}: the metric `{name}` is named outside `{METRICS_FILE}`",
                        file.path
                    ));
                }
            }
        }
        broken.extend(
            source
                .lines()
                .filter(|(_, line)| line.contains("prometheus::"))
                .map(|(n, _)| format!("{}:{n}: `prometheus` is used outside `{METRICS_FILE}`", file.path)),
        );
    }
    broken
}

/// A test that doesn't run says why.
pub fn ignored_tests(tree: &Tree) -> Broken {
    let mut broken = Vec::new();
    for file in tree.rust() {
        for (number, line) in Source::of(&file.text).lines() {
            if line.replace(' ', "").contains("#[ignore]") {
                broken.push(format!("{}:{number}: write `#[ignore = \"why\"]`", file.path));
            }
        }
    }
    broken
}

/// No path of somebody's machine.
pub fn machine_paths(tree: &Tree) -> Broken {
    let roots = [concat!("/wo", "rk/"), concat!("/ro", "ot/"), concat!("/home", "/"), concat!("/Us", "ers/")];
    let mut broken = Vec::new();
    for file in tree.files() {
        for (number, line) in (1..).zip(file.text.lines()) {
            for root in roots {
                // Part of a longer path, such as `pod/work/`, is nobody's root.
                let own = |at: usize| {
                    !line[..at].ends_with(|c: char| {
                        c.is_alphanumeric() || matches!(c, '.' | '_' | '-' | '}' | '>' | '~' | '{' | ')')
                    })
                };
                if line.match_indices(root).any(|(at, _)| own(at)) {
                    broken.push(format!("{}:{number}: `{root}…` is a path of one machine", file.path));
                }
            }
        }
    }
    broken
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finds(rule: fn(&Tree) -> Broken, path: &str, text: &str, times: usize) {
        let workspace = "[workspace]\nmembers = [\n  \"a\",\n]\n";
        let broken = rule(&Tree::of(&[
            ("Cargo.toml", workspace),
            ("a/Cargo.toml", "[package]\nname = \"meridian-a\"\n"),
            (path, text),
        ]));
        assert_eq!(broken.len(), times, "{path}: {broken:?}");
    }

    #[test]
    fn rooms_without_a_duty_are_found() {
        finds(rooms, "a/src/utils.rs", "", 1);
        finds(rooms, "a/src/common/parse.rs", "", 1);
        finds(rooms, "a/src/mod.rs", "", 1);
        finds(rooms, "a/src/commons.rs", "", 0);
    }

    #[test]
    fn long_files_are_found() {
        finds(sizes, "a/src/lib.rs", &"x\n".repeat(LINES_MAX), 0);
        finds(sizes, "a/src/lib.rs", &"x\n".repeat(LINES_MAX + 1), 1);
        finds(sizes, "Cargo.lock", &"x\n".repeat(LINES_MAX + 1), 0);
    }

    #[test]
    fn things_left_for_later_are_found() {
        finds(promises, "a/src/lib.rs", concat!("// TO", "DO: later\nfn f() { todo", "!() }"), 2);
        finds(promises, "README.md", concat!("FIX", "ME"), 1);
        finds(promises, "a/src/lib.rs", "fn f() { \"todo!()\" }", 0);
    }

    #[test]
    fn crates_without_a_word_are_found() {
        finds(module_docs, "a/src/lib.rs", "#![warn(missing_docs)]\n//! Late.", 1);
        finds(module_docs, "a/src/lib.rs", "//! What it owns.", 0);
    }

    #[test]
    fn metrics_elsewhere_are_found() {
        finds(metrics, "a/src/server.rs", "let a = \"meridian_grants_total\";", 1);
        finds(metrics, "a/src/server.rs", "use prometheus::Registry;", 1);
        finds(metrics, "a/src/server.rs", "let a = \"info,meridian_a=debug\"; meridian_a::f()", 0);
        finds(metrics, "a/src/metrics.rs", "let a = \"meridian_grants_total\";", 0);
        finds(metrics, "a/src/server/tests.rs", "let a = \"meridian_grants_total\";", 0);
    }

    #[test]
    fn tests_ignored_without_a_reason_are_found() {
        finds(ignored_tests, "a/src/lib.rs", "#[test]\n#[ignore]\nfn f() {}", 1);
        finds(
            ignored_tests,
            "a/src/lib.rs",
            "#[test]\n#[ignore = \"needs a GPU\"]\nfn f() {} // #[ignore]",
            0,
        );
    }

    #[test]
    fn paths_of_a_machine_are_found() {
        finds(machine_paths, "README.md", concat!("see `/wo", "rk/main`"), 1);
        finds(machine_paths, "a/src/lib.rs", concat!("pod-0/{wo", "rk/, output.log} dir/wo", "rk/x"), 0);
    }
}
