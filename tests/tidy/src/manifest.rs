//! Reads the part of TOML that the workspace's own manifests use: tables, keys, and lists of strings.

use crate::tree::Tree;
use std::collections::BTreeSet;

/// Keys of one table, such as `dependencies`. A table `[dependencies.NAME]` counts as the key NAME.
pub fn keys(text: &str, table: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut inside = false;
    let mut depth = 0_i32;
    for line in text.lines() {
        let line = line.split(" #").next().unwrap_or_default().trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if depth == 0
            && let Some(header) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'))
        {
            inside = header == table;
            found.extend(header.strip_prefix(table).and_then(|rest| rest.strip_prefix('.')).map(plain));
            continue;
        }
        if inside && depth == 0 {
            found.extend(line.split('=').next().and_then(|key| key.split('.').next()).map(plain));
        }
        depth += line
            .chars()
            .map(|c| i32::from(matches!(c, '[' | '{')) - i32::from(matches!(c, ']' | '}')))
            .sum::<i32>();
    }
    found
}

/// Strings of the list `key = [ … ]`.
pub fn list(text: &str, key: &str) -> Vec<String> {
    let start = format!("{key} = [");
    let Some((_, after)) = text.split_once(&start) else { return Vec::new() };
    let inside = after.split(']').next().unwrap_or_default();
    inside.split('"').skip(1).step_by(2).map(str::to_owned).collect()
}

/// Directories of the workspace's crates.
pub fn members(tree: &Tree) -> Vec<String> {
    tree.get("Cargo.toml").map(|file| list(&file.text, "members")).unwrap_or_default()
}

/// The package name in a manifest.
pub fn package(text: &str) -> Option<String> {
    let after = text.split("[package]").nth(1)?;
    let line = after.lines().find(|line| line.starts_with("name = "))?;
    line.split('"').nth(1).map(str::to_owned)
}

fn plain(key: &str) -> String {
    key.trim().trim_matches('"').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"
[package]
name = "x" # its name
[dependencies]
serde.workspace = true
tokio = { version = "1", features = [
  "net",
] }
# hyper = "1"
[dependencies.redb]
version = "4"
[dev-dependencies]
proptest.workspace = true
"#;

    #[test]
    fn tables_and_lists_are_read() {
        assert_eq!(keys(TEXT, "dependencies").into_iter().collect::<Vec<_>>(), ["redb", "serde", "tokio"]);
        assert_eq!(keys(TEXT, "dev-dependencies").into_iter().collect::<Vec<_>>(), ["proptest"]);
        assert_eq!(list("members = [\n  \"a\", # one\n  \"b/c\",\n]\n", "members"), ["a", "b/c"]);
        assert_eq!(package(TEXT).as_deref(), Some("x"));
        assert!(members(&Tree::real()).contains(&"tests/tidy".to_owned()));
    }
}
