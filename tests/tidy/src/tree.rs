//! The files that the rules check: everything that git tracks or would offer to track, as text.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Directories to skip where git can't say what is tracked.
const UNTRACKED: [&str; 2] = ["target", ".git"];

/// One text file of the tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    /// Path from the root of the tree, with `/`.
    pub path: String,
    /// Content; bytes that aren't UTF-8 are replaced.
    pub text: String,
}

impl File {
    /// The last part of the path.
    pub fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or(&self.path)
    }

    /// The part of the name after its last dot; empty without a dot.
    pub fn extension(&self) -> &str {
        self.name().rsplit_once('.').map_or("", |(_, extension)| extension)
    }

    /// The directory of the file, without a trailing `/`.
    pub fn directory(&self) -> &str {
        self.path.rsplit_once('/').map_or("", |(directory, _)| directory)
    }

    /// Whether this is Rust source.
    pub fn is_rust(&self) -> bool {
        self.extension() == "rs"
    }

    /// Whether the whole file is test code.
    pub fn is_test(&self) -> bool {
        self.path.split('/').any(|part| part == "tests" || part == "tests.rs")
    }
}

/// A set of files by path.
#[derive(Clone, Debug, Default)]
pub struct Tree(BTreeMap<String, File>);

impl Tree {
    /// The tree that this crate is part of.
    pub fn real() -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let paths = tracked(&root).unwrap_or_else(|| walk(&root));
        let files = paths.into_iter().filter_map(|path| {
            // A file that was deleted but not committed yet is tracked and can't be read.
            let bytes = fs::read(root.join(&path)).ok()?;
            Some(File { path, text: String::from_utf8_lossy(&bytes).into_owned() })
        });
        Self(files.map(|file| (file.path.clone(), file)).collect())
    }

    /// A made-up tree of paths and texts.
    pub fn of(files: &[(&str, &str)]) -> Self {
        let file = |(path, text): &(&str, &str)| {
            ((*path).to_owned(), File { path: (*path).to_owned(), text: (*text).to_owned() })
        };
        Self(files.iter().map(file).collect())
    }

    /// The files with a path that starts with one of `prefixes`.
    pub fn within(self, prefixes: &[&str]) -> Self {
        let inside = |path: &str| prefixes.iter().any(|prefix| path.starts_with(prefix));
        Self(self.0.into_iter().filter(|(path, _)| inside(path)).collect())
    }

    /// Every file, ordered by path.
    pub fn files(&self) -> impl Iterator<Item = &File> {
        self.0.values()
    }

    /// Every file of Rust.
    pub fn rust(&self) -> impl Iterator<Item = &File> {
        self.files().filter(|file| file.is_rust())
    }

    /// Every file of Markdown.
    pub fn markdown(&self) -> impl Iterator<Item = &File> {
        self.files().filter(|file| file.extension() == "md")
    }

    /// The file at `path`.
    pub fn get(&self, path: &str) -> Option<&File> {
        self.0.get(path)
    }

    /// Whether `path` is a file, or a directory with files.
    pub fn has(&self, path: &str) -> bool {
        let inside = format!("{path}/");
        path.is_empty()
            || self.0.contains_key(path)
            || self.0.range(inside.clone()..).next().is_some_and(|(found, _)| found.starts_with(&inside))
    }
}

/// What git tracks or would offer to track; `None` if there is no git repository.
fn tracked(root: &Path) -> Option<Vec<String>> {
    let output = Command::new("git")
        .arg("-C")
        .arg(root)
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .output()
        .ok()
        .filter(|output| output.status.success())?;
    let text = String::from_utf8(output.stdout).ok()?;
    Some(text.split_terminator('\0').map(str::to_owned).collect())
        .filter(|paths: &Vec<String>| !paths.is_empty())
}

/// Everything below `root`, for a tree without git.
fn walk(root: &Path) -> Vec<String> {
    let mut open = vec![PathBuf::new()];
    let mut found = Vec::new();
    while let Some(directory) = open.pop() {
        let Ok(entries) = fs::read_dir(root.join(&directory)) else { continue };
        for entry in entries.flatten() {
            let path = directory.join(entry.file_name());
            match entry.file_type() {
                Ok(kind) if kind.is_dir() && !UNTRACKED.iter().any(|name| entry.file_name() == *name) => {
                    open.push(path)
                }
                Ok(kind) if kind.is_file() => found.extend(path.to_str().map(str::to_owned)),
                _ => {}
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_real_tree_is_found() {
        let tree = Tree::real();
        assert!(tree.get("Cargo.toml").is_some_and(|file| file.text.contains("[workspace]")));
        assert!(tree.has("tests/tidy/src") && tree.has("tests/tidy/src/tree.rs") && !tree.has("tests/tid"));
        assert!(tree.files().all(|file| !file.path.starts_with("target/")));
    }

    #[test]
    fn a_part_of_the_tree_is_taken_by_prefixes() {
        let tree = Tree::of(&[("a/x.rs", ""), ("b/y.rs", ""), ("README.md", "")]);
        let paths = |prefixes: &[&str]| tree.clone().within(prefixes).files().count();
        assert_eq!((paths(&["a/"]), paths(&["a/", "README.md"]), paths(&[""]), paths(&[])), (1, 2, 3, 0));
    }

    #[test]
    fn a_tree_without_git_is_walked() {
        let walked = walk(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"));
        assert!(walked.iter().any(|path| path == "tree.rs"), "{walked:?}");
    }
}
