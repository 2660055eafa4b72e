//! Comments that help: no doc comment that only repeats a name, and no pronouns of people for things.

use crate::Violations;
use crate::rust::{Comment, CommentKind, Source};
use crate::tree::{File, Tree};

/// A doc comment with fewer words only repeats the name of its item.
const DOC_WORDS_MIN: usize = 3;
/// Attributes of command-line arguments: their doc comments are help texts and may be short.
const HELP_MARKS: [&str; 3] = ["#[arg", "#[command", "#[value"];
/// Pronouns for people. A workload, a cluster or a lease is named by its noun.
const PRONOUNS: [&str; 3] = ["whom", "whoever", "whomever"];
/// Beginnings of sentences without a subject.
const BEGINNINGS: [&str; 7] = [
    "Who ",
    "What is told",
    "What was told",
    "What is said",
    "What was said",
    "What comes of",
    "What becomes of",
];

/// Doc comments say more than the name of their item.
pub fn short_docs(tree: &Tree) -> Violations {
    let mut violations = Vec::new();
    for file in tree.rust() {
        let source = Source::of(&file.text);
        for block in doc_blocks(&source) {
            let words: usize = block.iter().map(|line| line.text.split_whitespace().count()).sum();
            let last = block[block.len() - 1].line;
            if (1..DOC_WORDS_MIN).contains(&words) && !is_help(&source, last) {
                let first = &block[0];
                violations.push(format!(
                    "{}:{}: `{}` repeats a name: delete it, or say what the name doesn't",
                    file.path, first.line, first.text
                ));
            }
        }
    }
    violations
}

/// Doc comments, each as its lines.
fn doc_blocks(source: &Source) -> Vec<Vec<&Comment>> {
    let mut blocks: Vec<Vec<&Comment>> = Vec::new();
    for comment in source.comments.iter().filter(|comment| comment.kind == CommentKind::Doc) {
        match blocks.last_mut() {
            Some(block) if block[block.len() - 1].line + 1 == comment.line => block.push(comment),
            _ => blocks.push(vec![comment]),
        }
    }
    blocks
}

/// Whether the doc comment that ends at `line` documents a command-line argument.
fn is_help(source: &Source, line: usize) -> bool {
    let attributes = source.code.lines().skip(line).take_while(|code| code.trim_start().starts_with("#["));
    attributes.into_iter().any(|code| HELP_MARKS.iter().any(|mark| code.trim_start().starts_with(mark)))
}

/// Comments name things by their nouns.
pub fn pronouns(tree: &Tree) -> Violations {
    let mut violations = Vec::new();
    for file in tree.rust() {
        let comments = Source::of(&file.text).comments;
        let mut new_sentence = true;
        for (at, comment) in comments.iter().enumerate() {
            let follows = at > 0 && comments[at - 1].line + 1 == comment.line;
            new_sentence |= !follows;
            violations.extend(found_in(file, comment, new_sentence));
            let text = comment.text.trim_end();
            new_sentence = text.is_empty() || text.ends_with(['.', ':', '?', '!']);
        }
    }
    violations
}

fn found_in(file: &File, comment: &Comment, new_sentence: bool) -> Option<String> {
    // Names in backticks are the names of something else.
    let text: String = comment.text.split('`').step_by(2).collect::<Vec<_>>().join("`");
    let is_pronoun = |word: &&str| PRONOUNS.contains(&word.to_lowercase().as_str());
    let pronoun = text.split(|c: char| !c.is_alphanumeric() && c != '\'').find(is_pronoun);
    let begins = |beginning: &&&str| {
        text.match_indices(**beginning)
            .any(|(at, _)| if at == 0 { new_sentence } else { text[..at].ends_with(". ") })
    };
    let word = pronoun.or_else(|| BEGINNINGS.iter().find(begins).copied())?;
    Some(format!(
        "{}:{}: `{}` in a comment: name the workload, the cluster or the caller",
        file.path,
        comment.line,
        word.trim()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finds(rule: fn(&Tree) -> Violations, text: &str, times: usize) {
        let violations = rule(&Tree::of(&[("a/src/lib.rs", text)]));
        assert_eq!(violations.len(), times, "{text}: {violations:?}");
    }

    #[test]
    fn doc_comments_that_repeat_a_name_are_found() {
        finds(short_docs, "/// The workload.\nstruct Workload;", 1);
        finds(short_docs, "struct A {\n    /// When.\n    at: u64,\n}", 1);
        finds(short_docs, "/// Milliseconds, boot time.\nat: u64,", 0);
        finds(short_docs, "/// A queue.\n///\n/// Ordered by priority.\nstruct Queue;", 0);
        finds(short_docs, "// Plain.\nlet a = 1;", 0);
        finds(short_docs, "/// Threads.\n#[arg(long)]\nthreads: usize,", 0);
        finds(short_docs, "/// Threads.\n#[derive(Debug)]\nstruct Threads;", 1);
    }

    #[test]
    fn pronouns_for_things_are_found() {
        finds(pronouns, "// Whoever leads answers.", 1);
        finds(pronouns, "/// The queue whose quota is used.", 0);
        finds(pronouns, "/// Who waits longest.", 1);
        finds(pronouns, "/// It is checked. Who waits is asked.", 1);
        finds(pronouns, "/// What is told to an agent.", 1);
    }

    #[test]
    fn plain_sentences_are_left_alone() {
        finds(pronouns, "/// The user who submitted the job.", 0);
        finds(pronouns, "/// The WHO publishes `whose` and `whom`.", 0);
        finds(pronouns, "// A record of users\n// Who is the name of a struct here", 0);
        finds(pronouns, "let whose = \"whoever\";", 0);
        finds(pronouns, "/// What is needed to start.", 0);
    }
}
