//! Modules depend on each other in one direction.

use crate::Violations;
use crate::modules::{FileUse, ModuleGraph, ModulePath, SiblingUses, circles_of};
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

/// No folders use each other in a circle, directly or through other modules of their parent. A module without
/// submodules counts as a folder if the circle goes through a folder.
pub fn folder_circles(tree: &Tree) -> Violations {
    let mut violations = Vec::new();
    for (src, graph) in ModuleGraph::all(tree) {
        let folders = graph.folders();
        for parent in &folders {
            let uses = graph.inside(parent);
            let circles = circles_of_folders(&folders, &uses);
            violations.extend(circles.iter().map(|circle| describe_folders(&src, &graph, &uses, circle)));
        }
    }
    violations
}

/// Circles with at least one folder. Other circles are of single files in one folder.
fn circles_of_folders(folders: &BTreeSet<ModulePath>, uses: &SiblingUses) -> Vec<Vec<ModulePath>> {
    let mut circles = circles_of(uses);
    circles.retain(|circle| circle.iter().any(|module| folders.contains(module)));
    circles
}

/// The uses among the modules of a circle: the module, the used one, and the files.
fn uses_within<'u>(
    uses: &'u SiblingUses,
    circle: &[ModulePath],
) -> impl Iterator<Item = (&'u ModulePath, &'u ModulePath, &'u Vec<FileUse>)> {
    let inside = uses.iter().filter(|(module, _)| circle.contains(module));
    let all = inside.flat_map(|(module, used)| used.iter().map(move |(used, files)| (module, used, files)));
    all.filter(|(_, used, _)| circle.contains(used))
}

/// Describes each folder of a circle by the lines in which its files use the other folders.
fn describe_folders(src: &str, graph: &ModuleGraph, uses: &SiblingUses, circle: &[ModulePath]) -> String {
    let mut text = format!("{src}: {} folders use each other in a circle:", circle.len());
    for (module, used, files) in uses_within(uses, circle) {
        let one = |used: &FileUse| {
            format!("{}:{} uses {}", short(src, graph, &used.from), used.line, short(src, graph, &used.to))
        };
        let lines: Vec<String> = files.iter().map(one).collect();
        text.push_str(&format!(
            "\n    {} uses {} in {} places: {}",
            module.join("/"),
            used.join("/"),
            files.len(),
            lines.join(", ")
        ));
    }
    text
}

/// The path of a module's file in its crate.
fn short(src: &str, graph: &ModuleGraph, module: &ModulePath) -> String {
    graph.file(module).trim_start_matches(src).trim_start_matches('/').to_owned()
}

/// Names each file of a circle with the lines by which it uses the others.
fn describe(src: &str, graph: &ModuleGraph, circle: &[ModulePath], folders: usize) -> String {
    let short = |module: &ModulePath| short(src, graph, module);
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

    const FOLDERS: [(&str, &str); 6] = [
        ("x/src/lib.rs", "mod a;\nmod b;\n"),
        ("x/src/a.rs", "mod c;\nmod d;"),
        ("x/src/a/c.rs", "\nuse crate::b::B;\n"),
        ("x/src/a/d.rs", ""),
        ("x/src/b.rs", "mod e;"),
        ("x/src/b/e.rs", "use crate::a::d::D;"),
    ];

    #[test]
    fn a_circle_of_folders_without_a_circle_of_files_is_found() {
        let tree = Tree::of(&FOLDERS);
        assert_eq!(circles(&tree), Vec::<String>::new());
        assert_eq!(
            folder_circles(&tree),
            [concat!(
                "x/src: 2 folders use each other in a circle:",
                "\n    a uses b in 1 places: a/c.rs:2 uses b.rs",
                "\n    b uses a in 1 places: b/e.rs:1 uses a/d.rs"
            )]
        );
    }

    #[test]
    fn a_circle_through_a_third_module_is_found_in_its_folder() {
        let inner: Vec<(String, &str)> =
            FOLDERS.iter().map(|(path, text)| (path.replace("src/", "src/inner/"), *text)).collect();
        let mut files: Vec<(&str, &str)> = inner.iter().map(|(path, text)| (path.as_str(), *text)).collect();
        files[0] = ("x/src/lib.rs", "mod inner;");
        files[2].1 = "use super::super::f::F;";
        files[5].1 = "use crate::inner::a::d::D;";
        files.push(("x/src/inner/f.rs", "use super::b::B;"));
        files.push(("x/src/inner.rs", "mod a; mod b; mod f;"));
        let violations = folder_circles(&Tree::of(&files));
        assert_eq!(violations.len(), 1, "{violations:?}");
        assert!(violations[0].starts_with("x/src: 3 folders"), "{violations:?}");
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
