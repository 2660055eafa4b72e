//! Every rule, on the real tree.

use meridian_tidy::{STYLED, Tree, Violations};
use meridian_tidy::{
    charts, circles, comments, documents, layout, lints, orphans, purity, scripts, source, types, vocabulary,
};

fn check(rule: fn(&Tree) -> Violations) {
    expect_none(&rule(&Tree::real()));
}

/// Checks a rule of style, which applies to a part of the tree.
fn check_style(rule: fn(&Tree) -> Violations) {
    expect_none(&rule(&Tree::real().within(STYLED)));
}

fn expect_none(violations: &[String]) {
    assert!(violations.is_empty(), "{} violations:\n  {}", violations.len(), violations.join("\n  "));
}

#[test]
fn manifests_of_pure_cores_list_no_io_crate() {
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
fn folders_and_files_are_named_by_what_they_own() {
    check(layout::folder_names);
}

#[test]
fn every_file_of_rust_is_part_of_a_crate() {
    check(orphans::orphans);
}

#[test]
fn no_path_of_a_machine_is_tracked() {
    check(layout::machine_paths);
}

#[test]
fn nothing_is_left_for_later() {
    check(source::left_for_later);
}

#[test]
fn crates_begin_with_a_module_doc() {
    check(source::module_docs);
}

#[test]
fn metrics_are_named_in_one_file() {
    check(source::metrics);
}

#[test]
fn kinds_of_jobs_are_named_in_one_place() {
    check(source::job_kinds);
}

#[test]
fn charts_list_the_same_kinds_of_jobs() {
    check(charts::job_kinds);
}

#[test]
fn ignored_tests_have_a_reason() {
    check(source::ignored_tests);
}

#[test]
fn links_lead_to_files_and_headings() {
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
fn ci_runs_the_commands_of_the_readme() {
    check(documents::promised_commands);
}

#[test]
fn pipes_of_scripts_read_to_the_end() {
    check(scripts::early_ends);
}

#[test]
fn modules_depend_on_each_other_in_one_direction() {
    check_style(circles::circles);
}

#[test]
fn folders_depend_on_each_other_in_one_direction() {
    check_style(circles::folder_circles);
}

#[test]
fn retired_words_are_not_used() {
    check_style(vocabulary::retired_words);
}

#[test]
fn retired_words_are_not_used_in_strings_and_documents() {
    check_style(vocabulary::retired_words_in_texts);
}

#[test]
fn doc_comments_say_more_than_a_name() {
    check_style(comments::short_docs);
}

#[test]
fn comments_name_things_by_their_nouns() {
    check_style(comments::pronouns);
}

#[test]
fn lines_are_short_enough() {
    check_style(layout::columns);
}

#[test]
fn files_are_short_enough() {
    check_style(layout::file_lengths);
}

#[test]
fn size_lints_are_on() {
    check_style(lints::size_lints);
}

#[test]
fn one_noun_is_one_type() {
    check_style(types::repeated_types);
}

#[test]
fn the_glossary_matches_the_tree() {
    check_style(documents::glossary);
}
