//! Files of Rust that no module names. The compiler never reads them, so no error shows that they are
//! outdated.
//!
//! The rule starts at the files that cargo compiles by their place or by a manifest, and follows `mod`,
//! `#[path]` and `include!`. It reads lines as rustfmt writes them.

use crate::Violations;
use crate::tree::{File, Tree};
use std::collections::BTreeSet;

/// Files that cargo compiles by their place, from the directory of a manifest.
const ROOTS: [&str; 3] = ["src/lib.rs", "src/main.rs", "build.rs"];
/// Directories in which each file, and each `main.rs` of a directory, is a root.
const ROOT_DIRECTORIES: [&str; 4] = ["src/bin/", "tests/", "benches/", "examples/"];

/// Every file of Rust is part of a crate.
pub fn orphans(tree: &Tree) -> Violations {
    let roots = roots(tree);
    let mut reached: BTreeSet<String> = BTreeSet::new();
    let mut open: Vec<String> = roots.iter().cloned().collect();
    while let Some(path) = open.pop() {
        let Some(file) = tree.get(&path) else { continue };
        if reached.insert(path) {
            open.extend(named_by(file, roots.contains(&file.path)));
        }
    }
    let orphans = tree.rust().filter(|file| !reached.contains(&file.path));
    orphans.map(|file| format!("{}: no module names it: declare it, or delete it", file.path)).collect()
}

/// The files at which crates begin.
fn roots(tree: &Tree) -> BTreeSet<String> {
    let mut roots = BTreeSet::new();
    for manifest in tree.files().filter(|file| file.name() == "Cargo.toml") {
        let prefix = match manifest.directory() {
            "" => String::new(),
            directory => format!("{directory}/"),
        };
        let inside = tree.rust().filter_map(|file| Some((&file.path, file.path.strip_prefix(&prefix)?)));
        roots.extend(inside.filter(|(_, rest)| is_root(rest)).map(|(path, _)| path.clone()));
        let named = manifest.text.lines().filter_map(|line| line.strip_prefix("path = "));
        roots.extend(named.map(|path| joined(manifest.directory(), path.trim_matches('"'))));
    }
    roots
}

/// Whether a file is a root by its place, given from the directory of its manifest.
fn is_root(path: &str) -> bool {
    ROOTS.contains(&path)
        || ROOT_DIRECTORIES.iter().filter_map(|directory| path.strip_prefix(directory)).any(|rest| {
            let depth = rest.matches('/').count();
            depth == 0 || (depth == 1 && rest.ends_with("/main.rs"))
        })
}

/// Paths that a file declares as modules or includes; those that don't exist are for the compiler to report.
fn named_by(file: &File, is_root: bool) -> Vec<String> {
    let directory = file.directory();
    let stem = file.name().trim_end_matches(".rs");
    let own = if is_root { directory.to_owned() } else { joined(directory, stem) };
    let (mut named, mut explicit) = (Vec::new(), None);
    // Inline modules around the line, with their indentation.
    let mut inline: Vec<(usize, &str)> = Vec::new();
    for line in file.text.lines() {
        let text = line.trim_start();
        let indentation = line.len() - text.len();
        if text == "}" {
            inline.retain(|(opened, _)| *opened < indentation);
        }
        if let Some(path) = between(text, "#[path = \"", "\"]") {
            explicit = Some(path);
            continue;
        }
        if let Some(path) = between(text, "include!(\"", "\")") {
            named.push(joined(directory, path));
        }
        match module(text) {
            Some((name, false)) => {
                let below = inline.iter().fold(own.clone(), |path, (_, name)| joined(&path, name));
                named.push(match explicit {
                    Some(path) => joined(directory, path),
                    None => joined(&below, &format!("{name}.rs")),
                });
            }
            Some((name, true)) => inline.push((indentation, name)),
            None => {}
        }
        if !text.starts_with("#[") {
            explicit = None;
        }
    }
    named
}

/// The module that a line declares, and whether its body follows inline.
fn module(line: &str) -> Option<(&str, bool)> {
    let after = if line.starts_with("pub") { line.split_once(' ')?.1 } else { line };
    let declared = after.strip_prefix("mod ")?;
    let end = declared.find([' ', ';'])?;
    match &declared[end..] {
        ";" => Some((&declared[..end], false)),
        " {" => Some((&declared[..end], true)),
        _ => None,
    }
}

/// The text between `before` and `after`.
fn between<'t>(text: &'t str, before: &str, after: &str) -> Option<&'t str> {
    Some(text.split_once(before)?.1.split_once(after)?.0)
}

/// `path` as seen from `directory`, without `..`.
fn joined(directory: &str, path: &str) -> String {
    let mut parts: Vec<&str> = directory.split('/').filter(|part| !part.is_empty()).collect();
    for part in path.split('/') {
        match part {
            "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(files: &[(&str, &str)]) -> Vec<String> {
        let path = |violation: String| violation.split(':').next().unwrap_or_default().to_owned();
        orphans(&Tree::of(files)).into_iter().map(path).collect()
    }

    #[test]
    fn a_file_that_no_module_names_is_found() {
        let files = [
            ("a/Cargo.toml", "[package]\n"),
            ("a/src/lib.rs", "mod used;\npub(crate) mod shown;\n// mod unused;\n"),
            ("a/src/used.rs", "mod below;\n"),
            ("a/src/used/below.rs", ""),
            ("a/src/shown.rs", ""),
            ("a/src/unused.rs", "mod below;\n"),
            ("a/src/unused/below.rs", ""),
            ("a/tests/whole.rs", "mod part;\n"),
            ("a/tests/part.rs", ""),
            ("a/tests/races/copy.rs", ""),
        ];
        assert_eq!(found(&files), ["a/src/unused.rs", "a/src/unused/below.rs", "a/tests/races/copy.rs"]);
    }

    #[test]
    fn files_named_by_a_path_a_manifest_an_inclusion_or_inside_an_inline_module_are_part_of_a_crate() {
        let files = [
            ("Cargo.toml", "[workspace]\n"),
            ("a/Cargo.toml", "[[test]]\nname = \"extra\"\npath = \"checks/extra.rs\"\n"),
            ("a/build.rs", ""),
            ("a/checks/extra.rs", "include!(\"../table.rs\");\n"),
            ("a/table.rs", ""),
            ("a/src/main.rs", "#[path = \"odd/name.rs\"]\n#[cfg(test)]\nmod name;\n"),
            ("a/src/odd/name.rs", ""),
            ("a/src/bin/tool/main.rs", "mod outer {\n    mod inner;\n}\nmod beside;\n"),
            ("a/src/bin/tool/outer/inner.rs", ""),
            ("a/src/bin/tool/beside.rs", ""),
            ("a/src/bin/tool/outer/beside.rs", ""),
        ];
        assert_eq!(found(&files), ["a/src/bin/tool/outer/beside.rs"]);
    }
}
