//! One noun means one type.

use crate::Violations;
use crate::rust::Source;
use crate::tree::Tree;
use std::collections::BTreeMap;

/// Modules that may each define a public type of one name.
const MODULES_MAX: usize = 2;

/// Names that may repeat, each with the reason.
const REPEATED: [(&str, &str); 5] = [
    ("Error", "`module::Error` is what a module's functions fail with"),
    ("Settings", "each program reads its own"),
    ("Cli", "each program parses its own command line"),
    ("Args", "each command parses its own arguments"),
    ("Config", "each core is started with its own"),
];

/// Words before the name of a public type.
const DECLARATIONS: [&str; 5] = ["pub struct ", "pub enum ", "pub trait ", "pub type ", "pub union "];

/// A name of a public type is defined in few modules.
pub fn repeated_types(tree: &Tree) -> Violations {
    let mut modules: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for file in tree.rust().filter(|file| file.path.contains("src/")) {
        let code = Source::of(&file.text).without_tests();
        for (number, line) in (1..).zip(code.lines()) {
            let declared = DECLARATIONS.iter().find_map(|declaration| line.trim().strip_prefix(declaration));
            let Some(declared) = declared else { continue };
            let name: String = declared.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
            // A macro's own names aren't known here.
            if name.is_empty() {
                continue;
            }
            modules.entry(name).or_default().push(format!("{}:{number}", file.path));
        }
    }
    modules.retain(|name, places| {
        places.len() > MODULES_MAX && !REPEATED.iter().any(|(repeated, _)| repeated == name)
    });
    modules
        .into_iter()
        .map(|(name, places)| {
            format!("`{name}` is {} types, name each by what it holds: {}", places.len(), places.join(", "))
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
            ["`Change` is 3 types, name each by what it holds: a/src/x.rs:1, a/src/y.rs:1, b/src/w.rs:1"]
        );
    }

    #[test]
    fn names_that_say_enough_with_their_module_may_repeat() {
        let files = ["a/src/x.rs", "a/src/y.rs", "b/src/z.rs"].map(|path| (path, "pub enum Error {}"));
        assert_eq!(repeated_types(&Tree::of(&files)), Vec::<String>::new());
    }
}
