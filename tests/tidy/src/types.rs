//! One noun means one type.

use crate::Violations;
use crate::rust::Source;
use crate::tree::Tree;
use std::collections::BTreeMap;

/// Modules that may each define a public type of one name.
const MODULES_MAX: usize = 2;

/// Modules that may each define a type of the same name, public or not. The limit for private types is
/// higher, since they are read next to their uses.
const ALL_MODULES_MAX: usize = 4;

/// Names that may repeat, each with the reason.
const REPEATED: [(&str, &str); 6] = [
    ("Error", "`module::Error` is what a module's functions fail with"),
    ("Settings", "each program reads its own"),
    ("Cli", "each program parses its own command line"),
    ("Args", "each command parses its own arguments"),
    ("Config", "each core is started with its own"),
    ("Inner", "what the clones of the type above it share"),
];

/// Words before the name of a type.
const DECLARATIONS: [&str; 5] = ["struct ", "enum ", "trait ", "type ", "union "];

/// A name of a type is defined in few modules.
pub fn repeated_types(tree: &Tree) -> Violations {
    let (mut public, mut all) = (Places::new(), Places::new());
    for file in tree.rust().filter(|file| file.path.contains("src/")) {
        let code = Source::of(&file.text).without_tests();
        let is_counted = !file.is_test() && !file.path.starts_with("tests/");
        for (number, line) in (1..).zip(code.lines()) {
            let Some((is_public, name)) = declared(line) else { continue };
            let place = format!("{}:{number}", file.path);
            if is_public {
                public.entry(name.clone()).or_default().push(place.clone());
            }
            if is_counted {
                all.entry(name).or_default().push(place);
            }
        }
    }
    let mut violations = too_many(&public, MODULES_MAX, "public types");
    violations.extend(too_many(&all, ALL_MODULES_MAX, "types"));
    violations
}

/// Names of types, and where each is defined.
type Places = BTreeMap<String, Vec<String>>;

/// The type that a line declares, and whether it is public. Indented types, such as those of a trait, count
/// only if they are public.
fn declared(line: &str) -> Option<(bool, String)> {
    let (is_public, rest) = match line.trim_start().strip_prefix("pub ") {
        Some(rest) => (true, rest),
        None => (false, without_visibility(line)),
    };
    let declared = DECLARATIONS.iter().find_map(|declaration| rest.strip_prefix(declaration))?;
    let name: String = declared.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
    // A macro's own names aren't known here.
    (!name.is_empty()).then_some((is_public, name))
}

/// The line without `pub(crate)` and the like.
fn without_visibility(line: &str) -> &str {
    line.strip_prefix("pub(").and_then(|rest| rest.split_once(") ")).map_or(line, |(_, rest)| rest)
}

fn too_many(places: &Places, most: usize, of: &str) -> Violations {
    let may_repeat = |name: &str| REPEATED.iter().any(|(repeated, _)| *repeated == name);
    let over = places.iter().filter(|(name, places)| places.len() > most && !may_repeat(name));
    over.map(|(name, places)| {
        format!("`{name}` is {} {of}, name each by what it holds: {}", places.len(), places.join(", "))
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_noun_for_three_types_is_found() {
        let mut files = vec![
            ("a/src/x.rs", "pub struct Change;"),
            ("a/src/y.rs", "pub enum Change {}"),
            ("b/src/z.rs", "struct Change;\n#[cfg(test)]\nmod tests {\n    pub struct Change;\n}"),
        ];
        assert_eq!(repeated_types(&Tree::of(&files)), Vec::<String>::new());
        files.push(("b/src/w.rs", "pub type Change<T> = Vec<T>;"));
        assert_eq!(
            repeated_types(&Tree::of(&files)),
            [concat!(
                "`Change` is 3 public types, name each by what it holds: ",
                "a/src/x.rs:1, a/src/y.rs:1, b/src/w.rs:1"
            )]
        );
    }

    #[test]
    fn one_noun_for_five_types_is_found_if_they_are_not_public() {
        let mut files = vec![
            ("a/src/x.rs", "pub struct Change;"),
            ("a/src/y.rs", "enum Change {}"),
            ("b/src/z.rs", "pub(crate) type Change = u8;"),
            ("b/src/w.rs", "pub(in crate::x) struct Change;"),
            ("b/src/tests.rs", "struct Change;"),
            ("b/src/v.rs", "impl A for B {\n    type Change = u8;\n}"),
        ];
        assert_eq!(repeated_types(&Tree::of(&files)), Vec::<String>::new());
        files.push(("b/src/u.rs", "trait Change {}"));
        let violations = repeated_types(&Tree::of(&files));
        assert_eq!(violations.len(), 1, "{violations:?}");
        assert!(violations[0].starts_with("`Change` is 5 types"), "{violations:?}");
    }

    #[test]
    fn names_that_say_enough_with_their_module_may_repeat() {
        let files = ["a/src/x.rs", "a/src/y.rs", "b/src/z.rs"].map(|path| (path, "pub enum Error {}"));
        assert_eq!(repeated_types(&Tree::of(&files)), Vec::<String>::new());
    }
}
