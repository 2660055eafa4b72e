//! Modules depend on each other in one direction.

use crate::Violations;
use crate::modules::{ModuleGraph, ModulePath};
use crate::tree::Tree;
use std::collections::BTreeSet;

/// Most files that may use each other in a circle, and only within one folder.
const CIRCLE_MAX: usize = 3;

/// No circle of files goes through two folders, and none is larger than [`CIRCLE_MAX`].
pub fn circles(tree: &Tree) -> Violations {
    let mut violations = Vec::new();
    for (src, graph) in ModuleGraph::all(tree) {
        for circle in graph.circles() {
            let folders: BTreeSet<ModulePath> = circle.iter().map(|module| graph.folder(module)).collect();
            if folders.len() > 1 || circle.len() > CIRCLE_MAX {
                violations.push(describe(&src, &graph, &circle, folders.len()));
            }
        }
    }
    violations
}

/// Names each file of a circle with the lines by which it uses the others.
fn describe(src: &str, graph: &ModuleGraph, circle: &[ModulePath], folders: usize) -> String {
    let short =
        |module: &ModulePath| graph.file(module).trim_start_matches(src).trim_start_matches('/').to_owned();
    let mut text = format!("{src}: {} files in {folders} folders use each other in a circle:", circle.len());
    for module in circle {
        let uses: Vec<String> = graph
            .uses(module)
            .iter()
            .filter(|(used, _)| circle.contains(used))
            .map(|(used, line)| format!("{} (line {line})", short(used)))
            .collect();
        text.push_str(&format!("\n    {} uses {}", short(module), uses.join(", ")));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_circle_through_two_folders_is_found() {
        let tree = Tree::of(&[
            ("x/src/lib.rs", "mod a;\nmod b;\n"),
            ("x/src/a.rs", "mod c;\n"),
            ("x/src/a/c.rs", "\nuse crate::b::B;\n"),
            ("x/src/b.rs", "fn f() { crate::a::c::g() }\n"),
        ]);
        let violations = circles(&tree);
        assert_eq!(violations.len(), 1, "{violations:?}");
        assert!(violations[0].contains("a/c.rs uses b.rs (line 2)"), "{violations:?}");
        assert!(violations[0].contains("b.rs uses a/c.rs (line 1)"), "{violations:?}");
    }

    #[test]
    fn a_file_next_to_its_folder_belongs_to_it() {
        let tree = Tree::of(&[
            ("x/src/lib.rs", "mod a;\n"),
            ("x/src/a.rs", "use b::B;\nstruct A;"),
            ("x/src/a/b.rs", "use super::A;\nstruct B;"),
        ]);
        assert_eq!(circles(&tree), Vec::<String>::new());
    }

    #[test]
    fn a_circle_of_four_files_is_found_and_one_of_three_is_not() {
        let three = [
            ("x/src/lib.rs", ""),
            ("x/src/a.rs", "use crate::b::B;"),
            ("x/src/b.rs", "use crate::c::C;"),
            ("x/src/c.rs", "use crate::a::A;"),
        ];
        assert_eq!(circles(&Tree::of(&three)), Vec::<String>::new());
        let mut four = three.to_vec();
        four[3].1 = "use crate::d::D;";
        four.push(("x/src/d.rs", "use crate::a::A;"));
        assert_eq!(circles(&Tree::of(&four)).len(), 1);
    }
}
