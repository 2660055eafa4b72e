//! The modules of one crate and which of them uses which, read from `use` lines and from `crate::` and
//! `super::` paths.
//!
//! A re-export isn't a use: it says where an item can be found, and a path through it leads to the file that
//! defines the item. Test code is left out.

use crate::rust::Source;
use crate::tree::{File, Tree};
use std::collections::{BTreeMap, BTreeSet};

/// The path of a module from the root of its crate; the root itself is empty.
pub(crate) type ModulePath = Vec<String>;

/// Most re-exports in one path. A path with more is taken for a circle of re-exports.
const REEXPORTS_MAX: usize = 8;

/// Keywords before the name of an item.
const ITEM_KEYWORDS: [&str; 10] =
    ["struct", "enum", "trait", "union", "type", "fn", "const", "static", "mod", "macro_rules"];

/// One crate's files and their uses of each other.
#[derive(Debug, Default)]
pub(crate) struct ModuleGraph {
    files: BTreeMap<ModulePath, String>,
    uses: BTreeMap<ModulePath, BTreeMap<ModulePath, usize>>,
}

impl ModuleGraph {
    /// The graphs of all crates of a tree, by the directory of their sources.
    pub(crate) fn all(tree: &Tree) -> BTreeMap<String, Self> {
        let roots = tree.rust().filter(|file| matches!(file.name(), "lib.rs" | "main.rs"));
        let directories = roots.map(File::directory).filter(|path| *path == "src" || path.ends_with("/src"));
        let directories: BTreeSet<String> = directories.map(str::to_owned).collect();
        directories.into_iter().map(|src| (src.clone(), Self::of(tree, &src))).collect()
    }

    fn of(tree: &Tree, src: &str) -> Self {
        let has_library = tree.get(&format!("{src}/lib.rs")).is_some();
        let mut parsed = BTreeMap::new();
        let mut files = BTreeMap::new();
        for file in tree.rust() {
            let Some(path) = file.path.strip_prefix(src).and_then(|rest| rest.strip_prefix('/')) else {
                continue;
            };
            let Some(module) = module_of(path, has_library) else { continue };
            parsed.insert(module.clone(), Parsed::of(&Source::of(&file.text).without_tests()));
            files.insert(module, file.path.clone());
        }
        let index = Index::of(parsed);
        let uses = index.modules.keys().map(|module| (module.clone(), index.uses_of(module))).collect();
        Self { files, uses }
    }

    /// The file of a module.
    pub(crate) fn file(&self, module: &ModulePath) -> &str {
        &self.files[module]
    }

    /// Modules that `module` uses, with the line of the first use.
    pub(crate) fn uses(&self, module: &ModulePath) -> &BTreeMap<ModulePath, usize> {
        &self.uses[module]
    }

    /// The folder of a module. `x.rs` next to a folder `x/` belongs to that folder.
    pub(crate) fn folder(&self, module: &ModulePath) -> ModulePath {
        let has_children =
            self.files.keys().any(|other| other.len() > module.len() && other.starts_with(module));
        let parents = if has_children { module.len() } else { module.len().saturating_sub(1) };
        module[..parents].to_vec()
    }

    /// Groups of modules that all use each other, directly or through others of the group; only groups of two
    /// or more.
    pub(crate) fn circles(&self) -> Vec<Vec<ModulePath>> {
        circles_of(&self.uses)
    }

    /// Modules with modules of their own, the root included.
    pub(crate) fn folders(&self) -> BTreeSet<ModulePath> {
        let ancestors =
            |module: &ModulePath| (0..module.len()).map(|depth| module[..depth].to_vec()).collect();
        self.files.keys().flat_map(|module| -> Vec<ModulePath> { ancestors(module) }).collect()
    }

    /// Uses between the modules of one folder. A module includes the modules inside it.
    pub(crate) fn inside(&self, folder: &ModulePath) -> SiblingUses {
        let sibling = |module: &ModulePath| {
            (module.len() > folder.len() && module.starts_with(folder))
                .then(|| module[..=folder.len()].to_vec())
        };
        let mut siblings: SiblingUses = BTreeMap::new();
        for (module, uses) in &self.uses {
            let Some(from) = sibling(module) else { continue };
            let all = siblings.entry(from.clone()).or_default();
            for (used, line) in uses {
                if let Some(to) = sibling(used).filter(|to| *to != from) {
                    let one = FileUse { from: module.clone(), to: used.clone(), line: *line };
                    all.entry(to).or_default().push(one);
                }
            }
        }
        siblings
    }
}

/// One file's use of another.
#[derive(Debug)]
pub(crate) struct FileUse {
    /// The module that uses another.
    pub(crate) from: ModulePath,
    /// The module that is used.
    pub(crate) to: ModulePath,
    /// The line of the first use.
    pub(crate) line: usize,
}

/// The uses of files by which one module of a folder uses another.
pub(crate) type SiblingUses = BTreeMap<ModulePath, BTreeMap<ModulePath, Vec<FileUse>>>;

/// Groups of modules that all use each other, directly or through others of the group; only groups of two or
/// more.
pub(crate) fn circles_of<U>(uses: &BTreeMap<ModulePath, BTreeMap<ModulePath, U>>) -> Vec<Vec<ModulePath>> {
    let reach: BTreeMap<&ModulePath, BTreeSet<&ModulePath>> =
        uses.keys().map(|module| (module, reachable(uses, module))).collect();
    let mut circles = Vec::new();
    let mut placed: BTreeSet<&ModulePath> = BTreeSet::new();
    for (module, reached) in &reach {
        if !reached.contains(module) || placed.contains(module) {
            continue;
        }
        let circle: Vec<&ModulePath> = reached
            .iter()
            .copied()
            .filter(|other| reach.get(other).is_some_and(|back| back.contains(module)))
            .collect();
        placed.extend(&circle);
        circles.push(circle.into_iter().cloned().collect());
    }
    circles
}

fn reachable<'u, U>(
    uses: &'u BTreeMap<ModulePath, BTreeMap<ModulePath, U>>,
    from: &ModulePath,
) -> BTreeSet<&'u ModulePath> {
    let mut reached = BTreeSet::new();
    let mut open: Vec<&ModulePath> = uses.get(from).into_iter().flat_map(BTreeMap::keys).collect();
    while let Some(module) = open.pop() {
        if reached.insert(module) {
            open.extend(uses.get(module).into_iter().flat_map(BTreeMap::keys));
        }
    }
    reached
}

/// The module of a file; `None` for tests and for programs next to a library.
fn module_of(path: &str, has_library: bool) -> Option<ModulePath> {
    let parts: Vec<&str> = path.strip_suffix(".rs")?.split('/').collect();
    match parts.as_slice() {
        ["lib"] => Some(Vec::new()),
        ["main"] => (!has_library).then(Vec::new),
        ["bin", ..] => None,
        parts if parts.contains(&"tests") => None,
        parts => Some(parts.iter().map(|part| (*part).to_owned()).collect()),
    }
}

/// A path as it is written in a module, `*` for everything.
#[derive(Debug)]
struct Path {
    line: usize,
    /// Inline modules around it.
    inline: Vec<String>,
    parts: Vec<String>,
    /// The name by which a re-export offers it.
    renamed: Option<String>,
    kind: PathKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PathKind {
    Use,
    Reexport,
    InCode,
}

/// The paths and the items of one file.
#[derive(Debug, Default)]
struct Parsed {
    paths: Vec<Path>,
    items: BTreeSet<String>,
}

impl Parsed {
    fn of(code: &str) -> Self {
        let tokens = tokens(code);
        let mut parsed = Self::default();
        let mut inline: Vec<(String, usize)> = Vec::new();
        let (mut at, mut depth) = (0, 0);
        while let Some((line, token)) = tokens.get(at) {
            let next = |by: usize| tokens.get(at + by).map_or("", |(_, token)| *token);
            let around = || inline.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
            match *token {
                "{" => depth += 1,
                "}" => {
                    depth -= 1;
                    inline.retain(|(_, opened)| *opened < depth + 1);
                }
                // Not the captures of an `impl Trait + use<'a>`.
                "use" if next(1) != "<" && (at == 0 || tokens[at - 1].1 != "::") => {
                    let reexports = at > 0 && matches!(tokens[at - 1].1, "pub" | ")");
                    let kind = if reexports { PathKind::Reexport } else { PathKind::Use };
                    let end = tokens[at..].iter().position(|(_, token)| *token == ";").unwrap_or(0);
                    let tree: Vec<&str> = tokens[at + 1..at + end].iter().map(|(_, token)| *token).collect();
                    for (parts, renamed) in use_tree(&tree) {
                        parsed.paths.push(Path { line: *line, inline: around(), parts, renamed, kind });
                    }
                    at += end;
                }
                "crate" | "super" if next(1) == "::" && (at == 0 || tokens[at - 1].1 != "::") => {
                    let mut parts = vec![(*token).to_owned()];
                    while next(2 * parts.len() - 1) == "::" && is_name(next(2 * parts.len())) {
                        parts.push(next(2 * parts.len()).to_owned());
                    }
                    let kind = PathKind::InCode;
                    parsed.paths.push(Path { line: *line, inline: around(), parts, renamed: None, kind });
                }
                "mod" if is_name(next(1)) && next(2) == "{" => {
                    inline.push((next(1).to_owned(), depth + 1));
                    parsed.items.insert(next(1).to_owned());
                }
                keyword if ITEM_KEYWORDS.contains(&keyword) => {
                    let name = if next(1) == "!" { next(2) } else { next(1) };
                    parsed.items.insert(name.to_owned());
                }
                _ => {}
            }
            at += 1;
        }
        parsed
    }
}

/// Names, `::` and single signs, with their lines.
fn tokens(code: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    let (mut rest, mut line) = (code, 1);
    while let Some(first) = rest.chars().next() {
        let name = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
        let length = match first {
            _ if name > 0 => name,
            ':' if rest.starts_with("::") => 2,
            _ => first.len_utf8(),
        };
        let (token, after) = rest.split_at(length);
        line += usize::from(first == '\n');
        if !first.is_whitespace() {
            found.push((line, token));
        }
        rest = after;
    }
    found
}

fn is_name(token: &str) -> bool {
    token.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

/// The paths of a `use` tree, and the name that each is given.
fn use_tree(tokens: &[&str]) -> Vec<(Vec<String>, Option<String>)> {
    let mut paths = Vec::new();
    let mut prefix: Vec<String> = Vec::new();
    let mut at = 0;
    while let Some(token) = tokens.get(at) {
        match *token {
            "{" => {
                for branch in branches(&tokens[at + 1..]) {
                    paths.extend(use_tree(branch).into_iter().map(|(rest, renamed)| {
                        let whole = rest == ["self"];
                        let parts = if whole { prefix.clone() } else { [prefix.clone(), rest].concat() };
                        (parts, renamed)
                    }));
                }
                return paths;
            }
            "as" => return vec![(prefix, tokens.get(at + 1).map(|name| (*name).to_owned()))],
            "::" => {}
            part => prefix.push(part.to_owned()),
        }
        at += 1;
    }
    vec![(prefix, None)]
}

/// The branches of a group up to its closing brace.
fn branches<'t, 's>(tokens: &'s [&'t str]) -> Vec<&'s [&'t str]> {
    let (mut found, mut from, mut depth) = (Vec::new(), 0, 0_usize);
    for (at, token) in tokens.iter().enumerate() {
        let ends = depth == 0 && matches!(*token, "," | "}");
        if ends && at > from {
            found.push(&tokens[from..at]);
        }
        match *token {
            "," if depth == 0 => from = at + 1,
            "}" if depth == 0 => break,
            "{" => depth += 1,
            "}" => depth -= 1,
            _ => {}
        }
    }
    found
}

/// Everything that is needed to find the file behind a path.
struct Index {
    modules: BTreeMap<ModulePath, Parsed>,
    reexports: BTreeMap<ModulePath, Vec<String>>,
    /// Modules that are re-exported with a `*`.
    globs: BTreeMap<ModulePath, Vec<Vec<String>>>,
}

impl Index {
    fn of(modules: BTreeMap<ModulePath, Parsed>) -> Self {
        let mut index = Self { modules, reexports: BTreeMap::new(), globs: BTreeMap::new() };
        let (mut reexports, mut globs) = (BTreeMap::new(), BTreeMap::<_, Vec<_>>::new());
        for (module, parsed) in &index.modules {
            for path in parsed.paths.iter().filter(|path| path.kind == PathKind::Reexport) {
                let Some(mut target) = index.absolute(module, path) else { continue };
                let from = [module.clone(), path.inline.clone()].concat();
                if target.last().is_some_and(|last| last == "*") {
                    target.pop();
                    globs.entry(from).or_default().push(target);
                } else if let Some(name) = path.renamed.clone().or_else(|| target.last().cloned()) {
                    reexports.insert([from, vec![name]].concat(), target);
                }
            }
        }
        (index.reexports, index.globs) = (reexports, globs);
        index
    }

    /// A path from the root of the crate; `None` for another crate.
    fn absolute(&self, module: &ModulePath, path: &Path) -> Option<Vec<String>> {
        let mut base = [module.clone(), path.inline.clone()].concat();
        let mut rest = path.parts.as_slice();
        match rest.first()?.as_str() {
            "crate" => (base, rest) = (Vec::new(), &rest[1..]),
            "self" => rest = &rest[1..],
            "super" => {
                while rest.first().is_some_and(|part| part == "super") {
                    base.pop();
                    rest = &rest[1..];
                }
            }
            child => {
                let own = [base.clone(), vec![child.to_owned()]].concat();
                if !self.modules.contains_key(&own) {
                    return None;
                }
            }
        }
        Some([base.as_slice(), rest].concat())
    }

    fn uses_of(&self, module: &ModulePath) -> BTreeMap<ModulePath, usize> {
        let mut uses = BTreeMap::new();
        for path in self.modules[module].paths.iter().filter(|path| path.kind != PathKind::Reexport) {
            if let Some(target) = self.absolute(module, path) {
                let file = self.resolve(&target, 0);
                if file != *module {
                    uses.entry(file).or_insert(path.line);
                }
            }
        }
        uses
    }

    /// The module of the file that defines what `path` names.
    fn resolve(&self, path: &[String], reexports: usize) -> ModulePath {
        let mut at: ModulePath = Vec::new();
        for (depth, part) in path.iter().enumerate() {
            let next = [at.clone(), vec![part.clone()]].concat();
            let rest = &path[depth + 1..];
            if self.modules.contains_key(&next) {
                at = next;
            } else if reexports < REEXPORTS_MAX && self.reexports.contains_key(&next) {
                return self.resolve(&[&self.reexports[&next], rest].concat(), reexports + 1);
            } else if let Some(target) = self.behind_glob(&at, part).filter(|_| reexports < REEXPORTS_MAX) {
                return self.resolve(&[target.as_slice(), &path[depth..]].concat(), reexports + 1);
            } else {
                break;
            }
        }
        at
    }

    fn behind_glob(&self, module: &ModulePath, name: &str) -> Option<&Vec<String>> {
        let own = self.modules.get(module).is_some_and(|parsed| parsed.items.contains(name));
        let defines = |target: &&Vec<String>| {
            self.modules.get(*target).is_some_and(|parsed| parsed.items.contains(name))
        };
        self.globs.get(module).filter(|_| !own)?.iter().find(defines)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> ModulePath {
        text.split('/').filter(|part| !part.is_empty()).map(str::to_owned).collect()
    }

    fn uses(files: &[(&str, &str)], module: &str) -> Vec<String> {
        let files: Vec<(String, &str)> =
            files.iter().map(|(name, text)| (format!("a/src/{name}"), *text)).collect();
        let files: Vec<(&str, &str)> = files.iter().map(|(name, text)| (name.as_str(), *text)).collect();
        let graphs = ModuleGraph::all(&Tree::of(&files));
        graphs["a/src"].uses(&path(module)).keys().map(|used| used.join("/")).collect()
    }

    #[test]
    fn captures_of_an_opaque_type_are_no_import() {
        let text = "fn f<'a>() -> impl Sized + use<'a> { g() }\nuse crate::b::B;\n";
        assert_eq!(uses(&[("lib.rs", ""), ("a.rs", text), ("b.rs", "")], "a"), ["b"]);
    }

    #[test]
    fn use_trees_and_paths_in_code_lead_to_files() {
        let text = "use crate::b::{self, C, d::{E, F as G}};\nuse super::h;\nuse std::fs;\n\
                    fn f() { crate::i::g(); let x = \"crate::no\"; } // crate::no\n";
        let files = [
            ("lib.rs", ""),
            ("a.rs", text),
            ("b.rs", ""),
            ("b/d.rs", ""),
            ("h.rs", ""),
            ("i.rs", ""),
            ("no.rs", ""),
        ];
        assert_eq!(uses(&files, "a"), ["b", "b/d", "h", "i"]);
    }

    #[test]
    fn reexports_lead_to_the_file_that_defines_the_item() {
        let files = [
            ("lib.rs", "mod b;\nmod d;\npub use b::C;\npub use d::*;\nuse b::X;\nstruct Own;"),
            ("a.rs", "use crate::{C, E, Own};"),
            ("b.rs", "pub(crate) use self::deep::C; struct X;"),
            ("b/deep.rs", "pub struct C;"),
            ("d.rs", "pub enum E {}"),
        ];
        assert_eq!(uses(&files, "a"), ["", "b/deep", "d"]);
        assert_eq!(uses(&files, ""), ["b"]);
        assert_eq!(uses(&files, "b"), Vec::<String>::new());
    }

    #[test]
    fn inline_modules_and_tests_do_not_count_as_files() {
        let files = [
            ("lib.rs", "pub mod b;"),
            (
                "b.rs",
                "mod inner { use super::x; use super::super::c::Y; }\n\
                 #[cfg(test)]\nmod t { use crate::d::Z; }",
            ),
            ("c.rs", ""),
            ("d.rs", ""),
            ("b/tests.rs", "use crate::d::Z;"),
        ];
        assert_eq!(uses(&files, "b"), ["c"]);
    }
}
