//! Documentation that goes stale loudly: links and paths that lead somewhere, and things that must be mentioned.

use crate::Broken;
use crate::manifest;
use crate::tree::{File, Tree};

/// Where the planted bugs are, and the text that must say what each breaks.
const PLANTED: (&str, &str) = ("shared/src/planted.rs", "docs/protocol.md");
/// The map of the code.
const MAP: &str = "ARCHITECTURE.md";
/// Endings of what is taken for a path of the tree when it stands in backticks with a `/` in it.
const PATHS: [&str; 6] = [".rs", ".md", ".toml", ".yaml", ".sh", ".txt"];
/// Where examples are.
const EXAMPLES: &str = "manifests/examples/";

/// Links to files of the tree lead to a file, and to a heading if they name one.
pub fn links(tree: &Tree) -> Broken {
    let mut broken = Vec::new();
    for file in tree.markdown() {
        for (number, line) in prose(&file.text) {
            for target in targets(line) {
                if target.contains("://") || target.starts_with("mailto:") {
                    continue;
                }
                let (path, anchor) =
                    target.split_once('#').map_or((target, None), |(path, anchor)| (path, Some(anchor)));
                let full =
                    if path.is_empty() { Some(file.path.clone()) } else { resolve(file.directory(), path) };
                match full.filter(|full| tree.has(full)) {
                    None => broken.push(format!("{}:{number}: `{target}` leads nowhere", file.path)),
                    Some(full) => {
                        let lacks = anchor.is_some_and(|anchor| {
                            tree.get(&full)
                                .is_some_and(|found| !headings(found).any(|heading| heading == anchor))
                        });
                        if lacks {
                            broken.push(format!(
                                "{}:{number}: `{full}` has no heading for `{target}`",
                                file.path
                            ));
                        }
                    }
                }
            }
        }
    }
    broken
}

/// Paths in backticks exist: from the root, from the document's directory, or as the end of a path.
pub fn paths(tree: &Tree) -> Broken {
    let mut broken = Vec::new();
    for file in tree.markdown() {
        for (number, line) in prose(&file.text) {
            for word in line.split('`').skip(1).step_by(2) {
                let like_a_path = word.contains('/')
                    && PATHS.iter().any(|end| word.ends_with(end))
                    && !word.contains(|c: char| c.is_whitespace() || "<>*{}$~".contains(c));
                let absolute = word.starts_with('/') || word.contains("://");
                if like_a_path
                    && !absolute
                    && !tree.has(word)
                    && !resolve(file.directory(), word).is_some_and(|full| tree.has(&full))
                {
                    broken.push(format!("{}:{number}: there is no `{word}`", file.path));
                }
            }
        }
    }
    broken
}

/// Every planted bug is explained beside its rule.
pub fn planted_bugs(tree: &Tree) -> Broken {
    let (source, document) = PLANTED;
    let text = tree.get(source).map_or("", |file| &file.text);
    let listed = text.split("bugs! {\n").nth(1).and_then(|rest| rest.split("\n}").next()).unwrap_or_default();
    let bugs: Vec<&str> = listed
        .lines()
        .map(str::trim)
        .filter_map(|line| line.strip_suffix(','))
        .filter(|line| line.chars().all(char::is_alphanumeric))
        .collect();
    let words = tree.get(document).map_or("", |file| &file.text);
    let mut broken: Broken = bugs
        .iter()
        .filter(|bug| !words.contains(&format!("`{bug}`")))
        .map(|bug| format!("{document} doesn't say which rule `{bug}` breaks"))
        .collect();
    if bugs.is_empty() {
        broken.push(format!("no planted bugs were found in {source}"));
    }
    broken
}

/// Every crate is on the map.
pub fn code_map(tree: &Tree) -> Broken {
    let map = tree.get(MAP).map_or("", |file| &file.text);
    manifest::members(tree)
        .into_iter()
        .filter(|member| !map.contains(&format!("`{member}/`")))
        .map(|member| format!("{MAP} doesn't mention `{member}/`"))
        .collect()
}

/// Every example is shown to somebody.
pub fn examples(tree: &Tree) -> Broken {
    let shown = |path: &str| tree.markdown().any(|file| file.text.contains(path));
    tree.files()
        .filter(|file| file.path.starts_with(EXAMPLES) && !shown(&file.path))
        .map(|file| format!("no document mentions {}", file.path))
        .collect()
}

/// The commands that README promises are the ones that `.ci/run` runs, letter for letter.
pub fn promised_commands(tree: &Tree) -> Broken {
    let promised = ["cargo test --workspace", "cargo run --release --bin meridian -- demo"];
    let mut broken = Vec::new();
    for path in ["README.md", ".ci/run"] {
        let text = tree.get(path).map_or("", |file| &file.text);
        broken.extend(
            promised
                .iter()
                .filter(|command| {
                    !text
                        .lines()
                        .any(|line| line.trim() == **command || line.contains(&format!("\"{command}\"")))
                })
                .map(|command| format!("{path} doesn't hold the command `{command}` in a line of its own")),
        );
    }
    broken
}

/// Lines outside fenced blocks, with their numbers.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    (1..).zip(text.lines()).filter(move |(_, line)| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        !fenced && !fence
    })
}

fn targets(line: &str) -> impl Iterator<Item = &str> {
    line.match_indices("](").filter_map(|(at, open)| line[at + open.len()..].split(')').next())
}

fn resolve(directory: &str, path: &str) -> Option<String> {
    let mut parts: Vec<&str> = directory.split('/').filter(|part| !part.is_empty()).collect();
    for part in path.trim_end_matches('/').split('/') {
        match part {
            "." | "" => {}
            ".." => {
                parts.pop()?;
            }
            name => parts.push(name),
        }
    }
    Some(parts.join("/"))
}

/// Anchors as forges make them from headings.
fn headings(file: &File) -> impl Iterator<Item = String> {
    prose(&file.text).filter(|(_, line)| line.starts_with('#')).map(|(_, line)| {
        let title = line.trim_start_matches('#').trim().to_lowercase();
        title
            .chars()
            .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'))
            .map(|c| if c == ' ' { '-' } else { c })
            .collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dead_links_and_paths_are_found() {
        let text = "[a](docs/b.md) [b](docs/b.md#two-words) [c](../out.md) [d](docs/none.md) [e](docs/b.md#three) [f](https://x.y) `src/a.rs` `docs/gone.md`\n```\n[g](h.md)\n```\n";
        let tree = Tree::of(&[
            ("README.md", text),
            ("docs/b.md", "# B\n## Two words\n[r](../README.md) [s](#two-words)"),
            ("src/a.rs", ""),
        ]);
        assert_eq!(links(&tree).len(), 3, "{:?}", links(&tree));
        assert_eq!(paths(&tree), ["README.md:1: there is no `docs/gone.md`"]);
    }

    #[test]
    fn unexplained_bugs_are_found() {
        let bugs = "macro_rules! bugs { }\nbugs! {\n    /// One.\n    One,\n    /// Two.\n    Two,\n}\n";
        let tree = Tree::of(&[(PLANTED.0, bugs), (PLANTED.1, "`One` breaks it")]);
        assert_eq!(planted_bugs(&tree), ["docs/protocol.md doesn't say which rule `Two` breaks"]);
        assert_eq!(planted_bugs(&Tree::of(&[])).len(), 1);
    }

    #[test]
    fn unmapped_crates_and_hidden_examples_are_found() {
        let tree = Tree::of(&[
            ("Cargo.toml", "members = [\"a\", \"b\"]"),
            (MAP, "`a/` does"),
            ("manifests/examples/x.yaml", ""),
            ("manifests/examples/y.yaml", ""),
        ]);
        assert_eq!(code_map(&tree), ["ARCHITECTURE.md doesn't mention `b/`"]);
        assert_eq!(examples(&tree).len(), 2);
    }

    #[test]
    fn broken_promises_are_found() {
        let both = "```\ncargo test --workspace\ncargo run --release --bin meridian -- demo\n```";
        assert_eq!(
            promised_commands(&Tree::of(&[("README.md", both), (".ci/run", both)])),
            Vec::<String>::new()
        );
        assert_eq!(
            promised_commands(&Tree::of(&[
                ("README.md", both),
                (".ci/run", "cargo test --workspace -- --skip slow")
            ]))
            .len(),
            2
        );
    }
}
