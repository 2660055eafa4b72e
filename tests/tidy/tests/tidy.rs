//! Every rule, on the real tree.

use meridian_tidy::{Broken, Tree, documents, names, purity};

fn check(rule: fn(&Tree) -> Broken) {
    let broken = rule(&Tree::real());
    assert!(broken.is_empty(), "{} places:\n  {}", broken.len(), broken.join("\n  "));
}

#[test]
fn manifests_of_pure_cores_hold_no_io_crate() {
    check(purity::manifests);
}

#[test]
fn pure_cores_ban_clocks_files_threads_and_hash_order() {
    check(purity::lints);
}

#[test]
fn source_of_pure_cores_is_pure() {
    check(purity::source);
}

#[test]
fn rooms_say_their_duty() {
    check(names::rooms);
}

#[test]
fn files_stay_readable() {
    check(names::sizes);
}

#[test]
fn nothing_is_left_for_later() {
    check(names::promises);
}

#[test]
fn crates_begin_with_a_module_doc() {
    check(names::module_docs);
}

#[test]
fn metrics_are_named_in_one_file() {
    check(names::metrics);
}

#[test]
fn ignored_tests_have_a_reason() {
    check(names::ignored_tests);
}

#[test]
fn no_path_of_a_machine_is_tracked() {
    check(names::machine_paths);
}

#[test]
fn links_lead_somewhere() {
    check(documents::links);
}

#[test]
fn paths_in_documents_exist() {
    check(documents::paths);
}

#[test]
fn every_planted_bug_is_explained() {
    check(documents::planted_bugs);
}

#[test]
fn every_crate_is_on_the_map() {
    check(documents::code_map);
}

#[test]
fn every_example_is_documented() {
    check(documents::examples);
}

#[test]
fn ci_runs_what_the_readme_promises() {
    check(documents::promised_commands);
}
