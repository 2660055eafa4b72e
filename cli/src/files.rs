//! The manifests behind `-f`: which files they are, and the objects in them.
//!
//! All problems of all files are collected before anything is sent. `meridian-objects` reads documents; this
//! module reads paths.

pub(crate) use crate::error::files::Error;

use crate::output::streams::Streams;
use meridian_objects::{
    FieldPath, FilePosition, Parsed, ParsedForPlan, SourceText, Strictness, parse_set_with, plan_set,
};
use meridian_shared::counted::counted;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::path::{Path, PathBuf};

/// Largest file in bytes that is read into memory; `meridian-objects` has a lower limit with a better
/// message.
const FILE_BYTES_MAX: u64 = 32 << 20;
/// Files per command; a directory with more is most likely the wrong one.
const FILES_MAX: usize = 10_000;
/// Depth of nested directories; more is most likely a loop of links.
const DEPTH_MAX: usize = 32;
/// Extensions that a file in a directory must have.
const EXTENSIONS: [&str; 3] = ["yaml", "yml", "json"];
/// Name of standard input in messages.
const STDIN_NAME: &str = "<stdin>";

/// The text of every file by name, to locate fields that the manager finds wrong.
#[derive(Debug)]
pub(crate) struct Texts(Vec<(String, String)>);

impl Texts {
    /// File, line and column of fields of objects.
    pub(crate) fn places_of(&self, fields: &[(&FilePosition, &str)]) -> Vec<FilePosition> {
        let mut sources: BTreeMap<&str, SourceText> = BTreeMap::new();
        let place = |(object, field): &(&FilePosition, &str)| {
            let text = self.0.iter().find(|(name, _)| **name == *object.file);
            let (name, text) = text.map_or(("", ""), |(name, text)| (name, text));
            sources
                .entry(name)
                .or_insert_with(|| SourceText::parse(text))
                .place_of(object, &FieldPath::parse(field))
        };
        fields.iter().map(place).collect()
    }
}

/// All objects of `paths` (files, directories, `-` for standard input). Prints warnings; fails with all
/// problems.
pub(crate) fn objects(paths: &[PathBuf], stdin: &mut dyn Read, out: &mut Streams) -> Result<Parsed, Error> {
    objects_with_texts(paths, Strictness::default(), stdin, out).map(|(parsed, _)| parsed)
}

/// As [`objects`], as strict as the user wants, with the texts that they were read from.
pub(crate) fn objects_with_texts(
    paths: &[PathBuf],
    strictness: Strictness,
    stdin: &mut dyn Read,
    out: &mut Streams,
) -> Result<(Parsed, Texts), Error> {
    let texts = texts(paths, stdin)?;
    let parsed = checked(parse_set_with(&borrowed(&texts), strictness), "applied", out)?;
    Ok((parsed, Texts(texts)))
}

/// As [`objects`], but everything that `plan` reads, nodes and pods included.
pub(crate) fn plan_objects(
    paths: &[PathBuf],
    stdin: &mut dyn Read,
    out: &mut Streams,
) -> Result<ParsedForPlan, Error> {
    checked(plan_set(&borrowed(&texts(paths, stdin)?)), "decided", out)
}

fn borrowed(texts: &[(String, String)]) -> Vec<(&str, &str)> {
    texts.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect()
}

fn checked<T>(parsed: Parsed<T>, undone: &'static str, out: &mut Streams) -> Result<Parsed<T>, Error> {
    for warning in &parsed.warnings {
        out.warn(warning.to_string());
    }
    if !parsed.errors.is_empty() {
        let problems = parsed.errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
        return Err(Error::Problems { problems, count: counted(parsed.errors.len(), "problem"), undone });
    }
    if parsed.objects.is_empty() {
        return Err(Error::NoObjects);
    }
    Ok(parsed)
}

/// Name and text of every file, each once, in the order of the command line; directories sorted.
pub(crate) fn texts(paths: &[PathBuf], stdin: &mut dyn Read) -> Result<Vec<(String, String)>, Error> {
    let (mut texts, mut seen) = (Vec::new(), BTreeSet::new());
    for path in paths {
        if let Some(url) =
            path.to_str().filter(|text| text.starts_with("http://") || text.starts_with("https://"))
        {
            return Err(Error::Url { url: url.to_owned() });
        }
        if path.as_os_str() == "-" {
            if seen.insert(path.clone()) {
                texts.push((STDIN_NAME.to_owned(), read(path, STDIN_NAME, stdin)?));
            }
            continue;
        }
        let mut found = Vec::new();
        collect(path, true, 0, &mut found)?;
        if found.is_empty() {
            return Err(Error::EmptyDirectory { path: path.clone() });
        }
        for file in found {
            if !seen.insert(file.clone()) {
                continue;
            }
            if seen.len() > FILES_MAX {
                return Err(too_many_files(path));
            }
            let name = file.display().to_string();
            let mut opened =
                std::fs::File::open(&file).map_err(|source| Error::Read { path: file.clone(), source })?;
            texts.push((name.clone(), read(&file, &name, &mut opened)?));
        }
    }
    Ok(texts)
}

/// The files at `path`. A file that is named may have any extension, one in a directory only a known one.
fn collect(path: &Path, named: bool, depth: usize, found: &mut Vec<PathBuf>) -> Result<(), Error> {
    let failed = |source| Error::Read { path: path.to_owned(), source };
    if depth > DEPTH_MAX {
        let what = format!("is nested deeper than {DEPTH_MAX} directories");
        return Err(Error::TooMuch { path: path.to_owned(), what });
    }
    if std::fs::metadata(path).map_err(failed)?.is_dir() {
        let mut entries = std::fs::read_dir(path)
            .map_err(failed)?
            .map(|entry| entry.map(|entry| entry.path()))
            .collect::<Result<Vec<_>, _>>()
            .map_err(failed)?;
        entries.sort();
        for entry in entries {
            collect(&entry, false, depth + 1, found)?;
            if found.len() > FILES_MAX {
                return Err(too_many_files(path));
            }
        }
    } else if named || path.extension().is_some_and(|found| EXTENSIONS.iter().any(|known| found == *known)) {
        found.push(path.to_owned());
    }
    Ok(())
}

fn too_many_files(path: &Path) -> Error {
    Error::TooMuch { path: path.to_owned(), what: format!("has more than {FILES_MAX} files") }
}

fn read(path: &Path, name: &str, from: &mut dyn Read) -> Result<String, Error> {
    let mut bytes = Vec::new();
    from.take(FILE_BYTES_MAX + 1)
        .read_to_end(&mut bytes)
        .map_err(|source| Error::Read { path: path.to_owned(), source })?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        let what = format!("is larger than {} MiB", FILE_BYTES_MAX >> 20);
        return Err(Error::TooMuch { path: path.to_owned(), what });
    }
    String::from_utf8(bytes).map_err(|error| {
        let good = String::from_utf8_lossy(&error.as_bytes()[..error.utf8_error().valid_up_to()]);
        let (before, last) =
            good.rsplit_once('\n').map_or((None, &*good), |(before, last)| (Some(before), last));
        let line = before.map_or(1, |before| before.matches('\n').count() + 2);
        Error::NotText { name: name.to_owned(), line, column: last.chars().count() + 1 }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;

    const FLAVOR: &str = "apiVersion: kueue.x-k8s.io/v1beta2\nkind: ResourceFlavor\nmetadata: {name: NAME}\n";

    #[test]
    fn directories_are_read_in_order_and_every_file_once() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("b")).unwrap();
        for (path, name) in [("c.yml", "c"), ("a.yaml", "a"), ("b/inner.json.yaml", "b"), ("notes.txt", "x")]
        {
            std::fs::write(root.path().join(path), FLAVOR.replace("NAME", name)).unwrap();
        }
        let (mut out, _, notes) = Streams::captured();
        let paths = [
            PathBuf::from("-"),
            root.path().to_owned(),
            root.path().join("a.yaml"),
            root.path().join("notes.txt"),
        ];
        let parsed = objects(&paths, &mut FLAVOR.replace("NAME", "stdin").as_bytes(), &mut out).unwrap();
        let names: Vec<&str> = parsed.objects.iter().map(|object| object.value.name.as_str()).collect();
        assert_eq!(names, ["stdin", "a", "b", "c", "x"]);
        assert_eq!(notes.text(), "");
    }

    #[test]
    fn every_problem_is_shown_with_its_place() {
        let text = "apiVersion: kueue.x-k8s.io/v1\nkind: ClusterQueue\nmetadata: {name: q}\n---\n\
                    apiVersion: batch/v1\nkind: Jobb\nmetadata: {name: j}\n";
        let (mut out, answers, _) = Streams::captured();
        let error = objects(&["-".into()], &mut text.as_bytes(), &mut out).unwrap_err().to_string();
        let lines: Vec<&str> = error.lines().collect();
        assert_eq!(lines.len(), 3, "{error}");
        assert!(lines[0].starts_with("<stdin>:1:") && lines[0].contains("`v1`"), "{error}");
        assert!(lines[1].starts_with("<stdin>:5:") || lines[1].starts_with("<stdin>:6:"), "{error}");
        assert!(lines[1].contains("`Job`"), "{error}");
        assert_eq!(lines[2], "2 problems found; nothing was applied");
        assert_eq!(answers.text(), "");
    }

    #[test]
    fn empty_missing_and_binary_files_are_errors() {
        let root = tempfile::tempdir().unwrap();
        let read = |path: PathBuf, stdin: &[u8]| {
            objects(&[path], &mut { stdin }, &mut Streams::captured().0).unwrap_err()
        };
        assert!(matches!(read(root.path().to_owned(), b""), Error::EmptyDirectory { .. }));
        let missing = read(root.path().join("x.yaml"), b"");
        assert!(matches!(&missing, Error::Read { source, .. } if source.kind() == io::ErrorKind::NotFound));
        assert!(matches!(read("-".into(), b"---\n---\n"), Error::NoObjects));
        let url = read("https://example.org/job.yaml".into(), b"").to_string();
        // The help is the same for every command that reads files, so it must not name a command.
        assert!(url.contains("`curl -fsSL https://example.org/job.yaml -o FILE`"), "{url}");
        assert!(!url.contains("meridian apply"), "{url}");
        let message = |stdin: &[u8]| read("-".into(), stdin).to_string();
        assert_eq!(message(&[0xff, 0xfe]), "<stdin>:1:1: not UTF-8 text; save the file as UTF-8");
        assert!(message(b"kind: Job\n\nname: \xc3\xa4\xff\n").starts_with("<stdin>:3:8: "));
    }
}
