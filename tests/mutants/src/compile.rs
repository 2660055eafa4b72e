//! Builds a copy of the tree that has the mutants, without those that the compiler refuses.

use crate::list::Mutant;
use crate::rewrite::{Rewritten, rewrite};
use anyhow::{Context, bail, ensure};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What decides at run time which mutant acts. It is appended to each crate that has mutants.
const SWITCH: &str = include_str!("switch.txt");
/// More builds than this mean that the errors don't come from mutants.
const BUILDS_MAX: usize = 40;

/// An executable with tests.
#[derive(Clone, Debug)]
pub(crate) struct Binary {
    pub(crate) package: String,
    /// Name of the target: the crate for unit tests, the file for others.
    pub(crate) name: String,
    pub(crate) executable: PathBuf,
    /// Folder of the package, where its tests run.
    pub(crate) folder: PathBuf,
}

/// What a build gives.
#[derive(Debug)]
pub(crate) struct Built {
    pub(crate) binaries: Vec<Binary>,
    /// Mutants that the compiler refuses.
    pub(crate) refused: BTreeSet<usize>,
    /// Mutants that have no place behind a switch.
    pub(crate) unplaced: BTreeSet<usize>,
}

/// Copies the files of `root` that git doesn't ignore to `tree`, with `mutants` in them, and builds the tests
/// of `packages`.
pub(crate) fn build(
    root: &Path,
    tree: &Path,
    mutants: &[Mutant],
    packages: &[String],
) -> anyhow::Result<Built> {
    let paths = files_of(root)?;
    remove_others(tree, tree, &paths)?;
    let mut by_file: BTreeMap<&str, Vec<(usize, &Mutant)>> = BTreeMap::new();
    for numbered in mutants.iter().enumerate() {
        by_file.entry(&numbered.1.file).or_default().push(numbered);
    }
    let roots = crate_roots(root, &by_file)?;
    let known_file = tree.with_extension("refused.json");
    let mut known = Known::read(&known_file, hash_of_code(root, &paths)?);
    let mut refused: BTreeSet<usize> =
        (0..mutants.len()).filter(|number| known.refused.contains(&mutants[*number].name)).collect();
    for _ in 0..BUILDS_MAX {
        let mut files: BTreeMap<&str, Rewritten> = BTreeMap::new();
        for path in &paths {
            let source = root.join(path);
            if !source.is_file() {
                continue;
            }
            let mut content = fs::read(&source)?;
            if let Some(mutants) = by_file.get(path.as_str()) {
                let kept: Vec<_> =
                    mutants.iter().copied().filter(|(number, _)| !refused.contains(number)).collect();
                let rewritten = rewrite(std::str::from_utf8(&content)?, &kept, &known.constants)
                    .with_context(|| path.clone())?;
                content = rewritten.text.clone().into_bytes();
                files.insert(path, rewritten);
            }
            if roots.contains(path) {
                content.extend_from_slice(SWITCH.as_bytes());
            }
            write_if_new(&tree.join(path), &source, &content)?;
        }
        match compile(tree, packages)? {
            Ok(binaries) => {
                known.write(&known_file, refused.iter().map(|number| mutants[*number].name.clone()))?;
                let unplaced = files.into_values().flat_map(|file| file.unplaced).collect();
                return Ok(Built { binaries, refused, unplaced });
            }
            Err(errors) => {
                let before = (refused.len(), known.constants.len());
                for error in &errors {
                    match error.called_by_a_constant() {
                        Some(function) => _ = known.constants.insert(function),
                        None => refused.extend(blame(error, &files)),
                    }
                }
                eprintln!("  {} mutants don't compile", refused.len());
                if (refused.len(), known.constants.len()) == before {
                    bail!("the tree doesn't build, and no mutant is the reason:\n{}", texts(&errors));
                }
            }
        }
    }
    bail!("after {BUILDS_MAX} builds there are still errors")
}

/// What the compiler refused in an earlier build of the same code, so that a later one needn't find it again.
#[derive(Debug, Default, Deserialize, Serialize)]
struct Known {
    /// Hash of the code, the compiler and this tool.
    of: u64,
    /// Functions that constants call, so that they stay `const`.
    constants: BTreeSet<String>,
    /// Names of the mutants that the compiler refuses.
    refused: BTreeSet<String>,
}

impl Known {
    fn read(path: &Path, of: u64) -> Self {
        let known: Option<Self> = fs::read(path).ok().and_then(|text| serde_json::from_slice(&text).ok());
        known.filter(|known| known.of == of).unwrap_or(Self { of, ..Self::default() })
    }

    fn write(&mut self, path: &Path, refused: impl Iterator<Item = String>) -> anyhow::Result<()> {
        self.refused.extend(refused);
        fs::write(path, serde_json::to_vec(self)?)?;
        Ok(())
    }
}

/// Hash of everything that decides whether a mutant compiles. Tests don't.
fn hash_of_code(root: &Path, paths: &BTreeSet<String>) -> anyhow::Result<u64> {
    let mut hasher = DefaultHasher::new();
    let is_code = |path: &&String| {
        (path.ends_with(".rs") && !path.contains("/tests/") && !path.ends_with("/tests.rs"))
            || path.ends_with("Cargo.toml")
            || path.ends_with("Cargo.lock")
    };
    for path in paths.iter().filter(is_code) {
        (path, fs::read(root.join(path)).unwrap_or_default()).hash(&mut hasher);
    }
    Command::new("rustc").arg("-V").output().context("rustc can't be run")?.stdout.hash(&mut hasher);
    fs::read(std::env::current_exe()?)?.hash(&mut hasher);
    Ok(hasher.finish())
}

fn files_of(root: &Path) -> anyhow::Result<BTreeSet<String>> {
    let list = ["ls-files", "-z", "--cached", "--others", "--exclude-standard"];
    let out = Command::new("git").args(list).current_dir(root).output().context("git can't be run")?;
    ensure!(out.status.success(), "git ls-files failed");
    Ok(String::from_utf8(out.stdout)?
        .split('\0')
        .filter(|path| !path.is_empty())
        .map(str::to_owned)
        .collect())
}

/// Drops what an earlier run copied and the tree doesn't have any more.
fn remove_others(tree: &Path, folder: &Path, files: &BTreeSet<String>) -> anyhow::Result<()> {
    if !folder.exists() {
        return Ok(());
    }
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            remove_others(tree, &path, files)?;
        } else if !path.strip_prefix(tree)?.to_str().is_some_and(|path| files.contains(path)) {
            fs::remove_file(&path)?;
        }
    }
    Ok(())
}

/// Root files of the crates that have mutants.
fn crate_roots(
    root: &Path,
    by_file: &BTreeMap<&str, Vec<(usize, &Mutant)>>,
) -> anyhow::Result<BTreeSet<String>> {
    let mut roots = BTreeSet::new();
    for file in by_file.keys() {
        let (package, _) =
            file.split_once("/src/").with_context(|| format!("{file} isn't in a folder src"))?;
        let lib = format!("{package}/src/lib.rs");
        let is_of_library =
            root.join(&lib).is_file() && !file.ends_with("/main.rs") && !file.contains("/src/bin/");
        ensure!(is_of_library, "{file} is no part of a library, so its mutants have no switch");
        roots.insert(lib);
    }
    Ok(roots)
}

/// A file that stays as it is keeps its time, so that nothing is built twice.
fn write_if_new(path: &Path, source: &Path, content: &[u8]) -> anyhow::Result<()> {
    if fs::read(path).is_ok_and(|old| old == content) {
        return Ok(());
    }
    fs::create_dir_all(path.parent().context("a file without a folder")?)?;
    fs::write(path, content)?;
    fs::set_permissions(path, fs::metadata(source)?.permissions())?;
    Ok(())
}

#[derive(Debug, Deserialize)]
#[serde(tag = "reason", rename_all = "kebab-case")]
enum Line {
    CompilerMessage {
        message: Diagnostic,
    },
    CompilerArtifact {
        manifest_path: PathBuf,
        package_id: String,
        target: Target,
        executable: Option<PathBuf>,
        profile: Profile,
    },
    #[serde(other)]
    Other,
}

#[derive(Debug, Deserialize)]
struct Target {
    name: String,
}

#[derive(Debug, Deserialize)]
struct Profile {
    test: bool,
}

#[derive(Debug, Deserialize)]
struct Diagnostic {
    level: String,
    message: String,
    spans: Vec<DiagnosticSpan>,
    rendered: Option<String>,
}

impl Diagnostic {
    /// The function that a constant calls and that is no `const fn` any more.
    fn called_by_a_constant(&self) -> Option<String> {
        let (_, called) = self.message.split_once("cannot call non-const ")?;
        let path = called.split('`').nth(1)?;
        Some(path.rsplit("::").next().unwrap_or(path).to_owned())
    }
}

#[derive(Debug, Deserialize)]
struct DiagnosticSpan {
    file_name: String,
    byte_start: usize,
    byte_end: usize,
    is_primary: bool,
    expansion: Option<Box<Expansion>>,
}

#[derive(Debug, Deserialize)]
struct Expansion {
    span: DiagnosticSpan,
}

/// Builds the tests of `packages`: their binaries, or the errors of the compiler.
fn compile(tree: &Path, packages: &[String]) -> anyhow::Result<Result<Vec<Binary>, Vec<Diagnostic>>> {
    let mut command = Command::new("cargo");
    command.args(["build", "--tests", "--keep-going", "--locked", "--quiet", "--message-format=json"]);
    for package in packages {
        command.args(["--package", package]);
    }
    // A folder of its own: the copy's packages have the same names there as the tree's.
    command.env("CARGO_TARGET_DIR", tree.with_extension("target"));
    let out = command.current_dir(tree).stderr(Stdio::piped()).output().context("cargo can't be run")?;
    let (mut binaries, mut errors) = (Vec::new(), Vec::new());
    for line in out.stdout.split(|byte| *byte == b'\n').filter(|line| line.starts_with(b"{")) {
        match serde_json::from_slice(line).context("a line of cargo can't be read")? {
            Line::CompilerMessage { message } if message.level == "error" => errors.push(message),
            Line::CompilerArtifact {
                manifest_path,
                package_id,
                target,
                executable: Some(executable),
                profile,
            } if profile.test => {
                let folder = manifest_path.parent().context("a manifest without a folder")?.to_owned();
                let package = package_of(&package_id);
                binaries.push(Binary { package, name: target.name, executable, folder });
            }
            _ => {}
        }
    }
    if out.status.success() {
        return Ok(Ok(binaries));
    }
    ensure!(!errors.is_empty(), "cargo build failed:\n{}", String::from_utf8_lossy(&out.stderr));
    Ok(Err(errors))
}

/// The package of an id of cargo: `path+file:///…/shared#meridian-shared@0.1.0`.
fn package_of(id: &str) -> String {
    let name = id.rsplit('#').next().unwrap_or_default();
    name.split('@').next().unwrap_or_default().to_owned()
}

/// The mutants that an error comes from: by its main places, or else by any place it shows.
fn blame(error: &Diagnostic, files: &BTreeMap<&str, Rewritten>) -> BTreeSet<usize> {
    let of = |primary: bool| -> BTreeSet<usize> {
        let spans = error.spans.iter().filter(|span| span.is_primary == primary);
        spans
            .flat_map(|span| places(span))
            .filter_map(|(file, at)| Some(files.get(file)?.blamed(&at)))
            .flatten()
            .collect()
    };
    let first = of(true);
    if first.is_empty() { of(false) } else { first }
}

/// The place of a span, and those of the macros that it is in.
fn places(span: &DiagnosticSpan) -> Vec<(&str, Range<usize>)> {
    let mut places = vec![(span.file_name.as_str(), span.byte_start..span.byte_end)];
    if let Some(expansion) = &span.expansion {
        places.extend(self::places(&expansion.span));
    }
    places
}

fn texts(errors: &[Diagnostic]) -> String {
    errors.iter().filter_map(|error| error.rendered.as_deref()).collect()
}
