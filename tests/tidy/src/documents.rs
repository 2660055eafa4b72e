//! Documentation is checked against the tree: links and paths lead to files, and certain things must be
//! mentioned.

use crate::Violations;
use crate::manifest;
use crate::tree::{File, Tree};
use std::collections::BTreeSet;

/// The file that lists the planted bugs, and the document that must say which rule each breaks.
const PLANTED: (&str, &str) = ("shared/src/planted.rs", "docs/protocol.md");
/// The document with the map of the code.
const MAP: &str = "ARCHITECTURE.md";
/// Text in backticks with a `/` and one of these endings is taken for a path of the tree.
const PATHS: [&str; 6] = [".rs", ".md", ".toml", ".yaml", ".sh", ".txt"];
/// The folder of the examples.
const EXAMPLES: &str = "manifests/examples/";
/// The folder of the documents for users and operators.
const DOCS: &str = "docs";
/// The document that explains the words of the project.
const GLOSSARY: &str = "docs/glossary.md";

/// Links to files of the tree lead to an existing file, and to an existing heading if they name one.
pub fn links(tree: &Tree) -> Violations {
    let mut violations = Vec::new();
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
                    None => violations.push(format!("{}:{number}: `{target}` leads nowhere", file.path)),
                    Some(full) => {
                        let lacks = anchor.is_some_and(|anchor| {
                            tree.get(&full)
                                .is_some_and(|found| !headings(found).any(|heading| heading == anchor))
                        });
                        if lacks {
                            violations.push(format!(
                                "{}:{number}: `{full}` has no heading for `{target}`",
                                file.path
                            ));
                        }
                    }
                }
            }
        }
    }
    violations
}

/// Paths in backticks exist: from the root, from the document's directory, or as the end of a path.
pub fn paths(tree: &Tree) -> Violations {
    let mut violations = Vec::new();
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
                    violations.push(format!("{}:{number}: there is no `{word}`", file.path));
                }
            }
        }
    }
    violations
}

/// Every planted bug is named next to the rule that it breaks.
pub fn planted_bugs(tree: &Tree) -> Violations {
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
    let mut violations: Violations = bugs
        .iter()
        .filter(|bug| !words.contains(&format!("`{bug}`")))
        .map(|bug| format!("{document} doesn't say which rule `{bug}` breaks"))
        .collect();
    if bugs.is_empty() {
        violations.push(format!("no planted bugs were found in {source}"));
    }
    violations
}

/// Every crate is on the map.
pub fn code_map(tree: &Tree) -> Violations {
    let map = tree.get(MAP).map_or("", |file| &file.text);
    manifest::members(tree)
        .into_iter()
        .filter(|member| !map.contains(&format!("`{member}/`")))
        .map(|member| format!("{MAP} doesn't mention `{member}/`"))
        .collect()
}

/// Every example is mentioned in a document.
pub fn examples(tree: &Tree) -> Violations {
    let is_mentioned = |path: &str| tree.markdown().any(|file| file.text.contains(path));
    tree.files()
        .filter(|file| file.path.starts_with(EXAMPLES) && !is_mentioned(&file.path))
        .map(|file| format!("no document mentions {}", file.path))
        .collect()
}

/// The commands that README promises are the ones that `.ci/run` runs, letter for letter.
pub fn promised_commands(tree: &Tree) -> Violations {
    let promised = ["cargo test --workspace", "cargo run --release --bin meridian -- demo"];
    let mut violations = Vec::new();
    for path in ["README.md", ".ci/run"] {
        let text = tree.get(path).map_or("", |file| &file.text);
        violations.extend(
            promised
                .iter()
                .filter(|command| {
                    !text
                        .lines()
                        .any(|line| line.trim() == **command || line.contains(&format!("\"{command}\"")))
                })
                .map(|command| format!("{path} doesn't contain the command `{command}` on a separate line")),
        );
    }
    violations
}

/// The glossary exists, and every term that it explains, which is every term in bold, is used in the tree.
pub fn glossary(tree: &Tree) -> Violations {
    let Some(file) = tree.get(GLOSSARY) else {
        let missing = tree.has(DOCS).then(|| format!("{GLOSSARY} is missing"));
        return missing.into_iter().collect();
    };
    let terms: BTreeSet<&str> = prose(&file.text).flat_map(|(_, line)| bold(line)).collect();
    if terms.is_empty() {
        return vec![format!("{GLOSSARY} explains no term: write terms in bold")];
    }
    let others = tree.files().filter(|other| other.path != GLOSSARY);
    let texts: Vec<String> = others
        .filter(|other| other.is_rust() || other.extension() == "md")
        .map(|f| squeeze(&f.text))
        .collect();
    terms
        .into_iter()
        .filter(|term| !texts.iter().any(|text| text.contains(&squeeze(term))))
        .map(|term| format!("{GLOSSARY} explains **{term}**, which is used nowhere"))
        .collect()
}

/// Text in bold within one line.
fn bold(line: &str) -> impl Iterator<Item = &str> {
    let closed = line.matches("**").count() / 2;
    line.split("**").skip(1).step_by(2).take(closed)
}

/// Text without case, spaces and signs, so that `ClusterQueue`, `cluster_queue` and "cluster queue" are the
/// same.
fn squeeze(text: &str) -> String {
    text.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).collect()
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
        let text = "[a](docs/b.md) [b](docs/b.md#two-words) [c](../out.md) [d](docs/none.md) \
                    [e](docs/b.md#three) [f](https://x.y) `src/a.rs` `docs/gone.md`\n```\n[g](h.md)\n```\n";
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
    fn glossary_terms_that_the_tree_doesnt_use_are_found() {
        let text = "**cluster queue**: a queue.\n**grant**: a right.\n```\n**not prose**\n```\n";
        let code = ("a/src/lib.rs", "struct ClusterQueue;");
        let tree = Tree::of(&[("docs/glossary.md", text), code]);
        assert_eq!(glossary(&tree), ["docs/glossary.md explains **grant**, which is used nowhere"]);
        assert_eq!(glossary(&Tree::of(&[("docs/api.md", ""), code])), ["docs/glossary.md is missing"]);
        assert_eq!(glossary(&Tree::of(&[("docs/glossary.md", "words"), code])).len(), 1);
    }

    #[test]
    fn promised_commands_that_ci_does_not_run_are_found() {
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
