//! Retired words: names that this project invented although the field has a word. Each has a replacement;
//! docs/glossary.md explains the words that are used.

use crate::Violations;
use crate::rust::Source;
use crate::tree::{File, Tree};

/// Where a retired word must not be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scope {
    /// Names of types, traits and variants; elsewhere the word is plain English.
    Types,
    /// Every name in code; in a comment the word is plain English.
    Names,
    /// Every name in code, and comments.
    NamesAndComments,
}

use Scope::{Names, NamesAndComments, Types};

/// A retired word, where it is looked for, and the words to use instead. Several words are joined by `_`.
const RETIRED: &[(&str, Scope, &str)] = &[
    ("brain", NamesAndComments, "queue state"),
    ("brains", NamesAndComments, "queue states"),
    ("deciding", Types, "queue mirror"),
    ("way", Types, "candidate cluster"),
    ("ways", Types, "candidate clusters"),
    ("way_in", Names, "queue route"),
    ("ways_in", Names, "queue routes"),
    ("room", Types, "capacity"),
    ("rooms", Types, "capacity"),
    ("roomless", NamesAndComments, "without capacity"),
    ("vacate", NamesAndComments, "evict"),
    ("vacating", NamesAndComments, "simulated eviction"),
    ("give_way", NamesAndComments, "be preempted"),
    ("gives_way", NamesAndComments, "is preempted"),
    ("giving_way", NamesAndComments, "preemption"),
    ("gave_way", NamesAndComments, "was preempted"),
    ("given_way", NamesAndComments, "been preempted"),
    ("displace", Names, "preempt"),
    ("displaced", Names, "preempted"),
    ("hindrance", NamesAndComments, "pending reason"),
    ("hindrances", NamesAndComments, "pending reasons"),
    ("mind_the_starving", NamesAndComments, "apply the starvation guard"),
    ("essence", NamesAndComments, "fingerprint"),
    ("stir", NamesAndComments, "wake"),
    ("stirs", NamesAndComments, "wakes"),
    ("stirred", NamesAndComments, "capacity changed"),
    ("asleep", Names, "parked"),
    ("awake", Names, "requeued"),
    ("heed", NamesAndComments, "apply"),
    ("heeds", NamesAndComments, "applies"),
    ("heeded", NamesAndComments, "applied"),
    ("untold", NamesAndComments, "unsent"),
    ("told", Names, "reported, sent"),
    ("in_words", Names, "message"),
    ("look_alike", Names, "equivalent workload"),
    ("look_alikes", NamesAndComments, "equivalent workloads"),
    ("lookalikes", NamesAndComments, "equivalent workloads"),
    ("befall", NamesAndComments, "happen to"),
    ("befalls", NamesAndComments, "happens to"),
    ("bury", NamesAndComments, "write a tombstone"),
    ("buried", NamesAndComments, "has a tombstone"),
    ("grave", Names, "tombstone"),
    ("graves", NamesAndComments, "tombstones"),
    ("scribe", NamesAndComments, "committer"),
    ("milestone", NamesAndComments, "lifecycle event"),
    ("milestones", NamesAndComments, "lifecycle events"),
    ("happening", Names, "event, transition"),
    ("concession", NamesAndComments, "partial admission"),
    ("concessions", NamesAndComments, "partial admission"),
    ("tally", NamesAndComments, "queue counts"),
    ("past_use", NamesAndComments, "usage history"),
    ("standing", Types, "status, usage"),
    ("stay", Types, "attempt record, toleration deadline"),
    ("growth", Names, "scale-up"),
    ("grow", Types, "scale up"),
    ("grows", Names, "scales up, can grow"),
    ("grown", Names, "scaled up"),
    ("growing", Names, "scale-up under way"),
    ("judge", Names, "check"),
    ("judges", Names, "checks"),
    ("judged", Names, "checked"),
    ("door", Names, "interface, entry point"),
    ("rank", Types, "priority"),
    ("wish", Types, "request"),
    ("wished", Types, "requested"),
    ("people", Names, "users"),
    ("let_go", Names, "release"),
    ("who", Names, "the noun"),
    ("whom", Names, "the noun"),
];

/// Uses of a retired word that are right: the start of a path, the word, and the reason.
const ALLOWED: &[(&str, &str, &str)] =
    &[("", "no-room", "a verdict in plain English: no cluster has room for the gang")];

/// No name contains a retired word, and no comment contains one that isn't plain English.
pub fn retired_words(tree: &Tree) -> Violations {
    let mut violations = Vec::new();
    for file in tree.rust() {
        let source = Source::of(&file.text);
        let allowed = |word: &str| is_allowed(file, word);
        for (number, line) in source.lines() {
            let names = line.split(|c: char| !c.is_alphanumeric() && c != '_');
            for name in names.filter(|name| name.starts_with(|c: char| c.is_alphabetic() || c == '_')) {
                let of_type = is_type(name);
                let applies = |scope: Scope| scope != Types || of_type;
                violations.extend(
                    retired_in(&words_of_name(name), applies)
                        .filter(|(w, _)| !allowed(w))
                        .map(|(_, instead)| format!("{}:{number}: `{name}`: write {instead}", file.path)),
                );
            }
        }
        for comment in &source.comments {
            let words = words_of_prose(&comment.text);
            let found = retired_in(&words, |scope| scope == NamesAndComments);
            violations.extend(found.filter(|(word, _)| !allowed(word)).map(|(word, instead)| {
                let word = word.replace('_', " ");
                format!("{}:{}: `{word}` in a comment: write {instead}", file.path, comment.line)
            }));
        }
    }
    violations
}

/// No text for users contains a retired word: no string of a program, and no document.
pub fn retired_words_in_texts(tree: &Tree) -> Violations {
    let mut violations = Vec::new();
    let is_program = |file: &&File| {
        !file.is_test() && !file.path.starts_with("tests/") && !file.path.contains("/benches/")
    };
    for file in tree.rust().filter(is_program) {
        let source = Source::of(&file.text);
        for (line, text) in source.strings_without_tests() {
            let found = retired_in_text(text, as_name(text).into_iter())
                .into_iter()
                .filter(|(word, _)| !is_allowed(file, word));
            violations.extend(found.map(|(word, instead)| {
                format!("{}:{line}: `{word}` in a string: write {instead}", file.path)
            }));
        }
    }
    for file in tree.markdown() {
        for (line, text) in (1..).zip(file.text.lines()) {
            let found = retired_in_text(text, names_of_markdown(text))
                .into_iter()
                .filter(|(word, _)| !is_allowed(file, word));
            violations.extend(
                found.map(|(word, instead)| format!("{}:{line}: `{word}`: write {instead}", file.path)),
            );
        }
    }
    violations
}

/// Retired words in a text, with what to write instead. In prose only words that aren't plain English count;
/// in a text with the form of a name, such as `hold.way`, all words that are retired for names.
fn retired_in_text<'t>(text: &str, names: impl Iterator<Item = &'t str>) -> Vec<(String, &'static str)> {
    let mut found: Vec<(String, &str)> = retired_in(&words_of_prose(text), |scope| scope == NamesAndComments)
        .map(|(word, instead)| (word.replace('_', " "), instead))
        .collect();
    for name in names {
        let words: Vec<String> = name.split(['.', '-', '/']).flat_map(words_of_name).collect();
        let applies = |scope: Scope| scope != NamesAndComments;
        found.extend(retired_in(&words, applies).map(|(_, instead)| (name.to_owned(), instead)));
    }
    found
}

/// The words of a sentence, in lower case.
fn words_of_prose(text: &str) -> Vec<String> {
    let words = text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
    words.map(str::to_lowercase).collect()
}

/// The text as a name, if it has the form of one.
fn as_name(text: &str) -> Option<&str> {
    let inside = |c: char| c.is_alphanumeric() || "_.-/".contains(c);
    (text.starts_with(char::is_alphabetic) && text.chars().all(inside)).then_some(text)
}

/// The names in a line of Markdown: texts in backticks that have the form of a name.
fn names_of_markdown(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2).filter_map(as_name)
}

fn is_type(name: &str) -> bool {
    name.starts_with(char::is_uppercase) && name.contains(char::is_lowercase)
}

fn is_allowed(file: &File, word: &str) -> bool {
    ALLOWED.iter().any(|(path, of, _)| file.path.starts_with(path) && *of == word)
}

/// Retired words among `words`, with what to write instead.
fn retired_in(
    words: &[String],
    applies: impl Fn(Scope) -> bool,
) -> impl Iterator<Item = (&'static str, &'static str)> {
    RETIRED
        .iter()
        .filter(move |(word, scope, _)| {
            let retired: Vec<&str> = word.split('_').collect();
            applies(*scope) && words.windows(retired.len()).any(|part| part == retired)
        })
        .map(|(word, _, instead)| (*word, *instead))
}

/// The words of a name in snake case or camel case, in lower case.
fn words_of_name(name: &str) -> Vec<String> {
    let mut words: Vec<String> = vec![String::new()];
    let mut after_lower = false;
    for c in name.chars() {
        if c == '_' || (c.is_uppercase() && after_lower) {
            words.push(String::new());
        }
        if c != '_' {
            words.last_mut().expect("it is never empty").extend(c.to_lowercase());
        }
        after_lower = c.is_lowercase() || c.is_numeric();
    }
    words.retain(|word| !word.is_empty());
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finds(text: &str, times: usize) {
        let violations = retired_words(&Tree::of(&[("a/src/lib.rs", text)]));
        assert_eq!(violations.len(), times, "{text}: {violations:?}");
    }

    #[test]
    fn names_are_split_into_words() {
        assert_eq!(words_of_name("giving_way"), ["giving", "way"]);
        assert_eq!(words_of_name("GivingWay2"), ["giving", "way2"]);
        assert_eq!(words_of_name("LINES_MAX"), ["lines", "max"]);
    }

    #[test]
    fn retired_words_in_names_are_found() {
        finds("let brain = 1;", 1);
        finds("struct GivingWay;", 2);
        finds("fn mind_the_starving() {}", 1);
        finds("enum E { NoRoom }", 1);
        finds("let told_to_stop = who_waits;", 2);
    }

    #[test]
    fn retired_words_in_comments_are_found() {
        finds("/// A victim gives way.\nlet brainstorm = 1;", 1);
        finds("// look-alikes are kept per class", 1);
    }

    #[test]
    fn plain_english_is_left_alone() {
        finds("// A way to make room, as users are told.", 0);
        finds("let room = 1; let (ways, stay, wish) = (2, 3, 4);", 0);
        finds("let text = \"brain\"; const WAYS: [u8; 0] = [];", 0);
        finds("fn scale_up() { rooms() }", 0);
    }

    #[test]
    fn retired_words_in_strings_and_documents_are_found() {
        let finds = |path: &str, text: &str, names: &[&str]| {
            let violations = retired_words_in_texts(&Tree::of(&[(path, text)]));
            let of = |violation: &String| violation.split('`').nth(1).unwrap_or_default().to_owned();
            assert_eq!(violations.iter().map(of).collect::<Vec<_>>(), names, "{text}");
        };
        finds("a/src/lib.rs", "let text = \"the brain waits\";", &["brain"]);
        finds(
            "a/src/lib.rs",
            "let (code, flag) = (\"NotWished\", \"hold.way\");",
            &["NotWished", "hold.way"],
        );
        finds("a/src/lib.rs", "let text = \"a way to make room\"; let code = \"no-room\";", &[]);
        finds("a/src/lib.rs", "#[cfg(test)]\nmod tests { const T: &str = \"brain\"; }", &[]);
        finds("a/tests/brain.rs", "const T: &str = \"brain\";", &[]);
        finds("docs/a.md", "Set `hold.way`: it gives way.", &["gives way", "hold.way"]);
        finds("docs/a.md", "The way to make room is `make a way`.", &[]);
    }

    #[test]
    fn the_message_names_the_replacement() {
        let violations = retired_words(&Tree::of(&[("a/src/lib.rs", "// one\nlet hindrances = 1;")]));
        assert_eq!(violations, ["a/src/lib.rs:2: `hindrances`: write pending reasons"]);
    }

    #[test]
    fn every_exception_has_a_reason() {
        assert!(ALLOWED.iter().all(|(_, _, reason)| reason.split_whitespace().count() >= 3));
    }
}
