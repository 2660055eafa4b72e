use super::rewrite;
use crate::list::{Genre, Mutant, Place, Span};
use std::collections::BTreeSet;

/// The mutant that puts `replacement` in the place of `old`, which stands once in `text`.
fn mutant(text: &str, genre: Genre, old: &str, replacement: &str) -> Mutant {
    let at = text.find(old).expect("the text has it");
    let place = |at: usize| {
        let line_start = text[..at].rfind('\n').map_or(0, |before| before + 1);
        Place { line: text[..at].matches('\n').count() + 1, column: text[line_start..at].chars().count() + 1 }
    };
    let span = Span { start: place(at), end: place(at + old.len()) };
    let (package, file, name) = (String::new(), String::new(), String::new());
    Mutant { package, file, genre, replacement: replacement.to_owned(), span, name }
}

fn written(text: &str, mutants: &[Mutant]) -> String {
    let numbered: Vec<_> = mutants.iter().enumerate().collect();
    rewrite(text, &numbered, &BTreeSet::new()).expect("the text is Rust").text
}

#[test]
fn an_operator_has_its_expression_twice() {
    let text = "fn f(é: u8) -> bool { é < 2 }";
    let less = mutant(text, Genre::BinaryOperator, "<", "==");
    let expected = "fn f(é: u8) -> bool { (if crate::mutation::on(0) { é == 2 } else { é < 2 }) }";
    assert_eq!(written(text, &[less]), expected);
}

#[test]
fn nested_mutants_copy_the_text_as_it_was() {
    let text = "fn f(a: u8) -> bool { !(a + 1 < 3) }";
    let mutants = [
        mutant(text, Genre::UnaryOperator, "!", ""),
        mutant(text, Genre::BinaryOperator, "+", "-"),
        mutant(text, Genre::BinaryOperator, "+", "*"),
    ];
    let sum =
        "(if crate::mutation::on(1) { a - 1 } else { (if crate::mutation::on(2) { a * 1 } else { a + 1 }) })";
    let expected = format!(
        "fn f(a: u8) -> bool {{ (if crate::mutation::on(0) {{ (a + 1 < 3) }} else {{ !({sum} < 3) }}) }}"
    );
    assert_eq!(written(text, &mutants), expected);
}

#[test]
fn a_body_is_left_at_once_and_its_function_is_not_const() {
    let text = "const fn f() -> u8 {\n    4\n}";
    let value = mutant(text, Genre::FnValue, "4", "0");
    let expected = "/*const*/ fn f() -> u8 { if crate::mutation::on(0) { return 0; }\n    4\n}";
    assert_eq!(written(text, &[value]), expected);
}

#[test]
fn arms_get_guards() {
    let text = "fn f(a: u8) -> u8 { match a { 1 => 2, 3 if a > 2 => 4, _ => 5 } }";
    let mutants = [
        mutant(text, Genre::MatchArm, "1 => 2", ""),
        mutant(text, Genre::MatchArm, "3 if a > 2 => 4", ""),
        mutant(text, Genre::MatchArmGuard, "a > 2", "true"),
        mutant(text, Genre::MatchArmGuard, "a > 2", "false"),
    ];
    let new = written(text, &mutants);
    assert!(new.contains("1 if !crate::mutation::on(0) => 2"), "{new}");
    let own = "(crate::mutation::on(2) || ((!crate::mutation::on(3) && (a > 2))))";
    assert!(new.contains(&format!("3 if !crate::mutation::on(1) && ({own}) => 4")), "{new}");
}

#[test]
fn a_field_comes_from_the_base() {
    let text = "fn f(b: S) -> S { S { x: 1, y: 2, ..b } }";
    let field = mutant(text, Genre::StructField, "x: 1,", "");
    let new = written(text, &[field]);
    assert!(
        new.contains("(if crate::mutation::on(0) { S {  y: 2, ..b } } else { S { x: 1, y: 2, ..b } })"),
        "{new}"
    );
}

#[test]
fn a_constant_and_a_chain_with_let_have_no_place() {
    let text = "const N: u8 = 1 + 2; fn f(a: Option<u8>) { if let Some(1) = a && true { f(None) } }";
    let mutants =
        [mutant(text, Genre::BinaryOperator, "+", "-"), mutant(text, Genre::BinaryOperator, "&&", "||")];
    let numbered: Vec<_> = mutants.iter().enumerate().collect();
    let rewritten = rewrite(text, &numbered, &BTreeSet::new()).expect("the text is Rust");
    assert_eq!((rewritten.text.as_str(), rewritten.unplaced.as_slice()), (text, &[0, 1][..]));
}

#[test]
fn an_error_is_blamed_on_the_mutant_that_made_the_text() {
    let text = "fn f(a: u8) -> u8 { a + 1 }";
    let mutants = [mutant(text, Genre::BinaryOperator, "+", "-"), mutant(text, Genre::FnValue, "a + 1", "0")];
    let numbered: Vec<_> = mutants.iter().enumerate().collect();
    let rewritten = rewrite(text, &numbered, &BTreeSet::new()).expect("the text is Rust");
    let blamed = |part: &str| {
        let at = rewritten.text.rfind(part).expect("the text has it");
        rewritten.blamed(&(at..at + part.len()))
    };
    assert_eq!(blamed("a - 1"), [0], "its own text");
    assert_eq!(blamed("a + 1"), [0], "the original inside of it");
    assert_eq!(blamed("return 0"), [1], "its own text");
    assert!(blamed("fn f").is_empty(), "no mutant made it");
}
