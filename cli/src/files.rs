//! The files behind `-f`: which they are, and what is in them.
//!
//! Reading is all or nothing: every problem of every file is collected before anything is sent. What a document means is
//! the objects crate's business; what a path means is this module's.

use crate::out::Out;
use meridian_objects::{FieldPath, Parsed, ParsedForPlan, Place, Source, parse_set, plan_set};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// Largest file in bytes that is taken into memory; the objects crate refuses smaller ones already, with its own words.
const FILE_BYTES_MAX: u64 = 32 << 20;
/// Most files of one command; a directory with more is most likely the wrong one.
const FILES_MAX: usize = 10_000;
/// Deepest directory that is looked into; a tree that is deeper is most likely a loop of links.
const DEPTH_MAX: usize = 32;
/// What objects' files end in, when they are found in a directory.
const ENDINGS: [&str; 3] = ["yaml", "yml", "json"];
/// How standard input shows in messages.
const STDIN_NAME: &str = "<stdin>";

/// Why files were not read, or may not be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// A path that can't be read.
    #[error("can't read `{}`: {source}", path.display())]
    Read {
        /// The path.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A directory without objects.
    #[error("`{}` holds no file that ends in .yaml, .yml or .json", path.display())]
    Empty {
        /// The directory.
        path: PathBuf,
    },
    /// Not text.
    #[error("{name}:{line}:{column}: this is not UTF-8 text; save the file as UTF-8")]
    NotText {
        /// The file.
        name: String,
        /// Where, from 1.
        line: usize,
        /// Where in the line, in characters, from 1.
        column: usize,
    },
    /// More than is sensible.
    #[error("`{}` {what}: name fewer or smaller files", path.display())]
    TooMuch {
        /// The path.
        path: PathBuf,
        /// How.
        what: String,
    },
    /// What is wrong with the objects; one line each.
    #[error("{problems}\n{count} found; nothing was {undone}")]
    Problems {
        /// `file:line:column: field: message; remedy`, a line each.
        problems: String,
        /// `1 problem` or `7 problems`.
        count: String,
        /// What would have been done.
        undone: &'static str,
    },
    /// There is nothing in all the files.
    #[error("there is no object in the given files")]
    Nothing,
}

/// The files as they were read, for problems that are found later.
#[derive(Debug)]
pub(crate) struct Texts(Vec<(String, String)>);

impl Texts {
    /// Where fields of objects stand.
    pub(crate) fn places_of(&self, fields: &[(&Place, &str)]) -> Vec<Place> {
        let mut sources: BTreeMap<&str, Source> = BTreeMap::new();
        let place = |(object, field): &(&Place, &str)| {
            let text = self.0.iter().find(|(name, _)| **name == *object.file);
            let (name, text) = text.map_or(("", ""), |(name, text)| (name, text));
            sources
                .entry(name)
                .or_insert_with(|| Source::read(text))
                .place_of(object, &FieldPath::read(field))
        };
        fields.iter().map(place).collect()
    }
}

/// All objects of `paths` (files, directories, `-` for standard input), or every problem. Warnings are shown.
pub(crate) fn objects(paths: &[PathBuf], stdin: &mut dyn Read, out: &mut Out) -> Result<Parsed, Error> {
    objects_with_texts(paths, stdin, out).map(|(parsed, _)| parsed)
}

/// The same with what they were read from.
pub(crate) fn objects_with_texts(
    paths: &[PathBuf],
    stdin: &mut dyn Read,
    out: &mut Out,
) -> Result<(Parsed, Texts), Error> {
    let texts = texts(paths, stdin)?;
    let parsed = checked(parse_set(&borrowed(&texts)), "applied", out)?;
    Ok((parsed, Texts(texts)))
}

/// The same of everything that a plan looks at.
pub(crate) fn plan_objects(
    paths: &[PathBuf],
    stdin: &mut dyn Read,
    out: &mut Out,
) -> Result<ParsedForPlan, Error> {
    checked(plan_set(&borrowed(&texts(paths, stdin)?)), "decided", out)
}

fn borrowed(texts: &[(String, String)]) -> Vec<(&str, &str)> {
    texts.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect()
}

fn checked<T>(parsed: Parsed<T>, undone: &'static str, out: &mut Out) -> Result<Parsed<T>, Error> {
    for warning in &parsed.warnings {
        out.warn(warning.to_string());
    }
    if !parsed.errors.is_empty() {
        let problems = parsed.errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
        let count = if parsed.errors.len() == 1 {
            "1 problem".to_owned()
        } else {
            format!("{} problems", parsed.errors.len())
        };
        return Err(Error::Problems { problems, count, undone });
    }
    if parsed.objects.is_empty() {
        return Err(Error::Nothing);
    }
    Ok(parsed)
}

/// Name and content of every file, each once, in the order of the command line; directories sorted.
fn texts(paths: &[PathBuf], stdin: &mut dyn Read) -> Result<Vec<(String, String)>, Error> {
    let (mut texts, mut seen) = (Vec::new(), BTreeSet::new());
    for path in paths {
        if path.as_os_str() == "-" {
            if seen.insert(path.clone()) {
                texts.push((STDIN_NAME.to_owned(), read(path, STDIN_NAME, stdin)?));
            }
            continue;
        }
        let mut found = Vec::new();
        collect(path, true, 0, &mut found)?;
        if found.is_empty() {
            return Err(Error::Empty { path: path.clone() });
        }
        for file in found {
            if !seen.insert(file.clone()) {
                continue;
            }
            if seen.len() > FILES_MAX {
                return Err(Error::TooMuch {
                    path: path.clone(),
                    what: format!("holds more than {FILES_MAX} files"),
                });
            }
            let name = file.display().to_string();
            let mut opened =
                std::fs::File::open(&file).map_err(|source| Error::Read { path: file.clone(), source })?;
            texts.push((name.clone(), read(&file, &name, &mut opened)?));
        }
    }
    Ok(texts)
}

/// The files at `path`. One that is named is taken whatever its ending; those in a directory need a known one.
fn collect(path: &Path, named: bool, depth: usize, found: &mut Vec<PathBuf>) -> Result<(), Error> {
    let failed = |source| Error::Read { path: path.to_owned(), source };
    if depth > DEPTH_MAX {
        return Err(Error::TooMuch {
            path: path.to_owned(),
            what: format!("is nested deeper than {DEPTH_MAX} directories"),
        });
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
                return Err(Error::TooMuch {
                    path: path.to_owned(),
                    what: format!("holds more than {FILES_MAX} files"),
                });
            }
        }
    } else if named || path.extension().is_some_and(|ending| ENDINGS.iter().any(|known| ending == *known)) {
        found.push(path.to_owned());
    }
    Ok(())
}

fn read(path: &Path, name: &str, from: &mut dyn Read) -> Result<String, Error> {
    let mut bytes = Vec::new();
    from.take(FILE_BYTES_MAX + 1)
        .read_to_end(&mut bytes)
        .map_err(|source| Error::Read { path: path.to_owned(), source })?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(Error::TooMuch {
            path: path.to_owned(),
            what: format!("has more than {FILE_BYTES_MAX} bytes"),
        });
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

    const FLAVOR: &str = "apiVersion: kueue.x-k8s.io/v1beta2\nkind: ResourceFlavor\nmetadata: {name: NAME}\n";

    #[test]
    fn directories_are_read_in_order_and_every_file_once() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("b")).unwrap();
        for (path, name) in [("c.yml", "c"), ("a.yaml", "a"), ("b/inner.json.yaml", "b"), ("notes.txt", "x")]
        {
            std::fs::write(root.path().join(path), FLAVOR.replace("NAME", name)).unwrap();
        }
        let (mut out, _, notes) = Out::captured();
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
        let text = "apiVersion: kueue.x-k8s.io/v1\nkind: ClusterQueue\nmetadata: {name: q}\n---\napiVersion: batch/v1\nkind: Jobb\nmetadata: {name: j}\n";
        let (mut out, answers, _) = Out::captured();
        let error = objects(&["-".into()], &mut text.as_bytes(), &mut out).unwrap_err().to_string();
        let lines: Vec<&str> = error.lines().collect();
        assert_eq!(lines.len(), 3, "{error}");
        assert!(
            lines[0].starts_with("<stdin>:1:") && lines[0].contains("`ClusterQueue` has no version `v1`"),
            "{error}"
        );
        assert!(lines[1].starts_with("<stdin>:5:") || lines[1].starts_with("<stdin>:6:"), "{error}");
        assert!(lines[1].contains("did you mean `Job`?"), "{error}");
        assert_eq!(lines[2], "2 problems found; nothing was applied");
        assert_eq!(answers.text(), "");
    }

    #[test]
    fn empty_and_missing_places_are_errors() {
        let root = tempfile::tempdir().unwrap();
        let (mut out, _, _) = Out::captured();
        assert!(matches!(
            objects(&[root.path().to_owned()], &mut io::empty(), &mut out),
            Err(Error::Empty { .. })
        ));
        assert!(matches!(
            objects(&[root.path().join("x.yaml")], &mut io::empty(), &mut out),
            Err(Error::Read { .. })
        ));
        assert!(matches!(
            objects(&["-".into()], &mut "---\n---\n".as_bytes(), &mut out),
            Err(Error::Nothing)
        ));
        let place = |bytes: &[u8]| {
            objects(&["-".into()], &mut { bytes }, &mut Out::captured().0).unwrap_err().to_string()
        };
        assert_eq!(place(&[0xff, 0xfe]), "<stdin>:1:1: this is not UTF-8 text; save the file as UTF-8");
        assert!(place(b"kind: Job\n\nname: \xc3\xa4\xff\n").starts_with("<stdin>:3:8: "));
    }
}
