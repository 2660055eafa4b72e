//! Pure cores: the same input gives the same bytes out. Purity is a crate boundary, so it is checked in the
//! manifest and in the clippy.toml of each core, and once more in its source.

use crate::Violations;
use crate::manifest;
use crate::rust::Source;
use crate::tree::{File, Tree};

/// A crate without I/O, and everything that it may depend on.
///
/// A new line here is a decision: no crate on the list may read a clock, a file, the environment or a socket,
/// or iterate in random order.
#[derive(Clone, Copy, Debug)]
pub struct Core {
    /// Path of the crate from the root of the tree.
    pub directory: &'static str,
    /// Packages that its code may use.
    pub dependencies: &'static [&'static str],
}

/// All pure cores of the workspace.
pub const CORES: [Core; 9] = [
    // uuid only parses and prints here: its random and timed constructors are banned by clippy.toml and
    // below.
    Core { directory: "shared", dependencies: &["serde", "serde_json", "uuid", "thiserror", "sha2", "hmac"] },
    // jiff only parses durations and moments here; serde-saphyr reads YAML from text.
    Core {
        directory: "shared/objects",
        dependencies: &[
            "meridian-shared",
            "meridian-topology",
            "serde",
            "serde_json",
            "serde-saphyr",
            "strsim",
            "jiff",
            "thiserror",
        ],
    },
    Core { directory: "shared/topology", dependencies: &["meridian-shared", "serde"] },
    Core {
        directory: "manager/queueing",
        dependencies: &["meridian-shared", "meridian-objects", "meridian-topology", "serde"],
    },
    Core {
        directory: "manager/planning",
        dependencies: &[
            "meridian-shared",
            "meridian-objects",
            "meridian-topology",
            "meridian-queueing",
            "serde",
            "serde_json",
        ],
    },
    Core {
        directory: "manager/core",
        dependencies: &[
            "meridian-shared",
            "meridian-objects",
            "meridian-queueing",
            "meridian-topology",
            "meridian-placement",
            "serde",
            "serde_json",
            "thiserror",
            "indexmap",
            "sha2",
        ],
    },
    Core { directory: "manager/placement", dependencies: &["meridian-shared", "meridian-queueing", "serde"] },
    Core {
        directory: "manager/views",
        dependencies: &[
            "meridian-shared",
            "meridian-objects",
            "meridian-queueing",
            "meridian-topology",
            "meridian-placement",
            "meridian-manager-core",
            "serde",
            "serde_json",
        ],
    },
    Core {
        directory: "worker-agent/core",
        dependencies: &["meridian-shared", "meridian-topology", "serde", "serde_json", "thiserror"],
    },
];

/// Packages that tests of a core may use as well: generators of cases, the other core, and the bench harness.
const TEST_DEPENDENCIES: [&str; 6] =
    ["proptest", "insta", "criterion", "meridian-objects", "meridian-agent-core", "meridian-views"];

/// Names that no core's code may use, each with the reason.
const BANNED_CODE: [(&str, &str); 20] = [
    ("std::fs", "files belong to the shells"),
    ("std::net", "sockets belong to the shells"),
    ("std::thread", "threads belong to the shells"),
    ("std::env", "configuration is an argument"),
    ("std::process", "processes belong to the shells"),
    ("std::os::", "the machine belongs to the shells"),
    ("std::io", "text and bytes are arguments"),
    ("Instant", "time is an argument"),
    ("SystemTime", "time is an argument"),
    ("Timestamp::now", "time is an argument"),
    ("Zoned::now", "time is an argument"),
    ("now_v7", "ids are arguments"),
    ("new_v4", "ids are arguments"),
    ("HashMap", "it iterates in random order: use BTreeMap or IndexMap"),
    ("HashSet", "it iterates in random order: use BTreeSet or IndexSet"),
    ("RandomState", "it is random"),
    ("tokio", "a core is synchronous"),
    ("async fn", "a core is synchronous"),
    ("thread_local!", "state is in the world"),
    ("static mut", "state is in the world"),
];

/// Paths that a core's clippy.toml must ban.
const BANNED_PATHS: [&str; 12] = [
    "std::collections::HashMap",
    "std::collections::HashSet",
    "std::time::Instant",
    "std::time::SystemTime",
    "std::fs::File",
    "std::fs::read",
    "std::fs::read_to_string",
    "std::fs::write",
    "std::env::var",
    "std::thread::spawn",
    "std::thread::sleep",
    "std::net::TcpStream",
];

/// Manifests of cores list only dependencies that are allowed.
pub fn manifests(tree: &Tree) -> Violations {
    let mut violations = Vec::new();
    for core in CORES {
        let path = format!("{}/Cargo.toml", core.directory);
        let Some(file) = tree.get(&path) else {
            violations.push(format!(
                "{path} is missing: is the core listed in tests/tidy/src/purity.rs still there?"
            ));
            continue;
        };
        let extra = |table: &str, allowed: &dyn Fn(&str) -> bool| {
            let keys = manifest::keys(&file.text, table);
            keys.into_iter()
                .filter(|key| !allowed(key))
                .map(|key| {
                    format!("{path}: `{key}` in [{table}] is not on the core's list: keep I/O in the shells")
                })
                .collect::<Vec<_>>()
        };
        violations.extend(extra("dependencies", &|key| core.dependencies.contains(&key)));
        violations.extend(extra("dev-dependencies", &|key| {
            core.dependencies.contains(&key) || TEST_DEPENDENCIES.contains(&key)
        }));
        violations.extend(extra("build-dependencies", &|_| false));
        if file.text.contains("[target.") {
            violations.push(format!(
                "{path}: a core is the same on every machine, so it has no table for a target"
            ));
        }
    }
    violations
}

/// Every core bans clocks, environment, files, threads and hash order in a clippy.toml of its own. A crate in
/// a folder below a core has one too, because clippy reads the nearest one upwards.
pub fn lints(tree: &Tree) -> Violations {
    let mut violations = Vec::new();
    for core in CORES {
        let path = format!("{}/clippy.toml", core.directory);
        let text = tree.get(&path).map_or("", |file| &file.text);
        violations.extend(
            BANNED_PATHS
                .iter()
                .filter(|banned| !text.contains(&format!("\"{banned}\"")))
                .map(|banned| format!("{path} doesn't ban `{banned}`")),
        );
    }
    for member in manifest::members(tree) {
        let below = CORES.iter().any(|core| member.starts_with(&format!("{}/", core.directory)));
        let own = format!("{member}/clippy.toml");
        if below && tree.get(&own).is_none() {
            violations
                .push(format!("{own} is missing: without it clippy applies the bans of the core above"));
        }
    }
    violations
}

/// The source of a core names no clock, file, thread, socket, environment, runtime or hash order.
pub fn source(tree: &Tree) -> Violations {
    let mut violations = Vec::new();
    for file in tree.rust().filter(|file| in_core(file)) {
        let source = Source::of(&file.text);
        for (number, line) in source.lines() {
            // `use std::{fs, …}` hides a path from a plain search.
            let grouped =
                line.contains("std::{").then(|| line.replace("std::{", "std::{ ").replace(',', " , "));
            for (banned, why) in BANNED_CODE {
                let hidden = banned.strip_prefix("std::").is_some_and(|name| {
                    grouped.as_ref().is_some_and(|line| has_word(line, name.trim_end_matches(':')))
                });
                if has_word(line, banned) || hidden {
                    violations.push(format!("{}:{number}: `{banned}` in a pure core: {why}", file.path));
                }
            }
        }
    }
    violations
}

fn in_core(file: &File) -> bool {
    CORES
        .iter()
        .any(|core| file.path.strip_prefix(core.directory).is_some_and(|rest| rest.starts_with("/src/")))
}

/// Whether `word` occurs in `line` other than as a part of a longer name.
fn has_word(line: &str, word: &str) -> bool {
    let part = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
    line.match_indices(word).any(|(at, _)| {
        let (before, after) = (line[..at].chars().next_back(), line[at + word.len()..].chars().next());
        !part(before) && (!part(after) || !word.ends_with(|c: char| c.is_alphanumeric()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_io_crate_is_found() {
        let tree = Tree::of(&[
            (
                "shared/Cargo.toml",
                "[dependencies]\nserde.workspace = true\ntokio = { workspace = true }\n\
                 [dev-dependencies]\nproptest.workspace = true\n",
            ),
            ("shared/objects/Cargo.toml", "[dev-dependencies]\ntempfile.workspace = true\n"),
            ("shared/topology/Cargo.toml", "[dependencies]\n"),
            ("manager/queueing/Cargo.toml", "[dependencies]\n"),
            ("manager/planning/Cargo.toml", "[dependencies]\n"),
            ("manager/placement/Cargo.toml", "[dependencies]\n"),
            ("manager/views/Cargo.toml", "[dependencies]\n"),
            ("manager/core/Cargo.toml", "[target.'cfg(unix)'.dependencies]\nlibc = \"0.2\"\n"),
            ("worker-agent/core/Cargo.toml", "[build-dependencies]\ncc = \"1\"\n"),
        ]);
        let violations = manifests(&tree);
        for crate_name in ["tokio", "tempfile", "cc", "target"] {
            assert!(
                violations.iter().any(|message| message.contains(crate_name)),
                "{crate_name}: {violations:?}"
            );
        }
        assert_eq!(violations.len(), 4, "{violations:?}");
    }

    #[test]
    fn a_missing_ban_is_found() {
        let good: String = BANNED_PATHS.iter().map(|path| format!("{{ path = \"{path}\" }},\n")).collect();
        let files = CORES.map(|core| format!("{}/clippy.toml", core.directory));
        let mut all: Vec<(&str, &str)> = files.iter().map(|path| (path.as_str(), good.as_str())).collect();
        assert_eq!(lints(&Tree::of(&all)), Vec::<String>::new());
        all[2].1 = "disallowed-types = []";
        assert_eq!(lints(&Tree::of(&all)).len(), BANNED_PATHS.len());
        all[2].1 = &good;
        all.push(("Cargo.toml", "[workspace]\nmembers = [\"shared\", \"shared/files\"]\n"));
        assert_eq!(
            lints(&Tree::of(&all)),
            ["shared/files/clippy.toml is missing: without it clippy applies the bans of the core above"]
        );
    }

    #[test]
    fn impure_code_is_found_and_comments_are_not() {
        let check = |text: &str, finds: usize| {
            let violations = source(&Tree::of(&[("manager/core/src/x.rs", text)]));
            assert_eq!(violations.len(), finds, "{text}: {violations:?}");
        };
        check("use std::collections::BTreeMap; // not a HashMap\nlet a = \"std::fs\";", 0);
        check("struct Instantly; fn instants() {}", 0);
        check("use std::time::Instant;", 1);
        check("use std::collections::{BTreeMap, HashMap};", 1);
        check("use std::{fmt, fs, thread};", 2);
        check("std::fs::read(x)", 1);
        check("async fn f() { tokio::spawn(g) }", 2);
        assert_eq!(source(&Tree::of(&[("manager/src/x.rs", "use std::fs;")])), Vec::<String>::new());
    }
}
