//! The reader refuses everything that API servers refuse by our definitions and policies, with the same
//! words.
//!
//! The files are those that `tests/crds/run` sends to a real API server, which must say the same.

use meridian_objects::Object;
use serde_json::Value;
use std::path::Path;

/// Mark of a document that only API servers refuse: the manager needs no such rule.
const ADMISSION_ONLY: &str = "# admission only";

/// Documents of a file of `tests/crds`, each with the words of its refusal.
fn refused(name: &str) -> Vec<(String, String)> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/crds").join(name);
    let text = std::fs::read_to_string(path).unwrap();
    let document = |text: &str| {
        let says =
            text.lines().find_map(|line| line.strip_prefix("# says: ")).expect("has a line with the words");
        (says.to_owned(), text.to_owned())
    };
    text.split("\n---\n").map(document).collect()
}

fn check(file: &str) {
    let all = refused(file);
    assert!(all.len() > 5, "{file} has few documents");
    for (says, text) in all {
        if text.lines().any(|line| line == ADMISSION_ONLY) {
            continue;
        }
        let written: Value = serde_saphyr::from_str(&text).unwrap();
        let errors = Object::from_value(written).err().unwrap_or_default();
        let words: Vec<String> = errors.iter().map(ToString::to_string).collect();
        assert!(words.iter().any(|said| said.contains(&says)), "{text}\nis refused with {words:?}");
    }
}

#[test]
fn the_reader_refuses_objects_with_the_words_of_the_definitions() {
    check("refused.yaml");
}

#[test]
fn the_reader_refuses_jobs_with_the_words_of_the_policies() {
    check("refused-by-policy.yaml");
}
