//! The files of the setting `objects`: manifests that declare clusters, written by Terraform for example.
//!
//! They are applied once this manager leads, and when they change: all in one transaction, or none.
//! `requests::file_objects` of the core decides what they may declare, and what happens to an object that no
//! file declares any more. A bad file doesn't end the manager, because leases must be renewed: `/readyz` and
//! the log say what is wrong.

use crate::engine::Handle;
use crate::random;
use meridian_manager_core::facts::actor::Actor;
use meridian_manager_core::facts::input::{Change, Input, PutMode, Write};
use meridian_manager_core::facts::outcome::{Rejection, Reply, WriteResult, Written};
use meridian_manager_core::requests::file_objects;
use meridian_objects::{
    FieldPath, FieldValidation, Kind, Located, MAX_FILE_BYTES, Object, Parsed, SourceText, Strictness,
    parse_set_with,
};
use meridian_shared::ids::Uid;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

#[cfg(test)]
mod tests;

/// Time between two reads of the files. Kubernetes takes about a minute to replace the files of a ConfigMap.
const LOOK_EVERY: Duration = Duration::from_secs(10);
/// Maximum number of files. A directory with more of them is probably the wrong one.
const FILES_MAX: usize = 1_000;
/// Maximum number of problems in a probe's answer. The log has all of them.
const PROBLEMS_SHOWN_MAX: usize = 5;
/// Extensions of manifests.
const EXTENSIONS: [&str; 3] = ["yaml", "yml", "json"];
/// A file with a misspelt field is refused, so that it is corrected before it matters.
const STRICT: Strictness = Strictness { validation: FieldValidation::Strict, refuse_foreign: true };

/// Path and content of every file, in the order of names.
type Texts = Vec<(String, String)>;

/// Keeps the manager's objects as the files of a directory declare them.
pub(super) struct ObjectFiles {
    directory: PathBuf,
    engine: Handle,
    /// Why the files aren't applied.
    problem: watch::Sender<Option<String>>,
}

impl ObjectFiles {
    pub(super) fn new(directory: PathBuf, engine: Handle) -> Self {
        Self { directory, engine, problem: watch::Sender::new(None) }
    }

    /// Why the files aren't applied, for probes.
    pub(super) fn problem(&self) -> watch::Receiver<Option<String>> {
        self.problem.subscribe()
    }

    pub(super) async fn run(self, stop: CancellationToken) {
        let mut applied = None;
        loop {
            tokio::select! {
                () = self.engine.led() => applied = self.look(applied).await,
                () = stop.cancelled() => return,
            }
            tokio::select! {
                () = tokio::time::sleep(LOOK_EVERY) => {}
                () = stop.cancelled() => return,
            }
        }
    }

    /// Applies the files if they differ from those `applied` last. Returns the files that are applied now.
    async fn look(&self, applied: Option<Texts>) -> Option<Texts> {
        let directory = self.directory.clone();
        let texts = match tokio::task::spawn_blocking(move || read(&directory)).await {
            Ok(Ok(texts)) => texts,
            Ok(Err(problem)) => {
                self.report(&[problem]);
                return applied;
            }
            Err(_) => return applied,
        };
        if applied.as_ref() == Some(&texts) {
            self.report(&[]);
            return applied;
        }
        match self.apply(&texts).await {
            Ok(true) => {
                self.report(&[]);
                Some(texts)
            }
            // a manager that doesn't lead now tries again
            Ok(false) => applied,
            Err(problems) => {
                self.report(&problems);
                applied
            }
        }
    }

    /// Returns whether the manager could answer. Fails with every problem of the files.
    async fn apply(&self, texts: &Texts) -> Result<bool, Vec<String>> {
        let files = texts.clone();
        let parsing = tokio::task::spawn_blocking(move || {
            let parsed = parse(&files)?;
            let write = write(&parsed.objects)?;
            Ok::<_, Vec<String>>((parsed, write))
        });
        let (parsed, write) = parsing.await.map_err(|error| vec![error.to_string()])??;
        match self.engine.ask(Input::Write(Box::new(write))).await {
            Ok(Reply::Written(written)) => {
                for warning in &parsed.warnings {
                    tracing::warn!(%warning, "applied an object of the setting `objects`");
                }
                written.iter().for_each(log);
                Ok(true)
            }
            Ok(Reply::Rejected(why)) => Err(located(&why, &parsed.objects, texts)),
            Ok(_) | Err(_) => Ok(false),
        }
    }

    fn report(&self, problems: &[String]) {
        let shown = &problems[..problems.len().min(PROBLEMS_SHOWN_MAX)];
        let more = match problems.len() - shown.len() {
            0 => String::new(),
            more => format!("; and {more} more, in the log"),
        };
        let directory = self.directory.display();
        let text = (!problems.is_empty())
            .then(|| format!("the objects in `{directory}` are not applied: {}{more}", shown.join("; ")));
        let changed = self.problem.send_if_modified(|known| {
            let differs = *known != text;
            *known = text;
            differs
        });
        if changed && problems.is_empty() {
            tracing::info!(%directory, "the objects in the directory are applied again");
        }
        for problem in problems.iter().filter(|_| changed) {
            tracing::error!(%directory, problem, "the objects in the directory are not applied");
        }
    }
}

fn log(written: &Written) {
    let Written { key, result, warnings, .. } = written;
    if *result != WriteResult::Unchanged {
        tracing::info!(object = %key, result = result.word(), "applied an object of the setting `objects`");
    }
    for warning in warnings {
        tracing::warn!(object = %key, warning, "applied an object of the setting `objects`");
    }
}

/// The manifests of a directory. Names that begin with a dot are a ConfigMap's own.
fn read(directory: &Path) -> Result<Texts, String> {
    let failed = |path: &Path, error: &io::Error| format!("`{}` can't be read: {error}", path.display());
    let mut paths = Vec::new();
    for entry in fs::read_dir(directory).map_err(|error| failed(directory, &error))? {
        let path = entry.map_err(|error| failed(directory, &error))?.path();
        let is_hidden = path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
        let is_known = path.extension().is_some_and(|found| EXTENSIONS.iter().any(|known| found == *known));
        // A file that can't be read must not count as absent, which would release its objects.
        if is_known && !is_hidden && fs::metadata(&path).map_err(|error| failed(&path, &error))?.is_file() {
            paths.push(path);
        }
    }
    paths.sort();
    match paths.len() {
        0 => Err(format!(
            "`{}` has no manifest (`.yaml`, `.yml` or `.json`): remove the setting `objects` if there is \
             nothing to declare",
            directory.display()
        )),
        many if many > FILES_MAX => {
            Err(format!("`{}` has {many} manifests: at most {FILES_MAX} are read", directory.display()))
        }
        _ => paths
            .into_iter()
            .map(|path| match text(&path) {
                Ok(text) => Ok((path.display().to_string(), text)),
                Err(error) => Err(failed(&path, &error)),
            })
            .collect(),
    }
}

/// The content of a file. Of a file that is too large for the parser, reads just enough for the parser to say
/// so.
fn text(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    File::open(path)?.take(MAX_FILE_BYTES as u64 + 1).read_to_string(&mut text)?;
    Ok(text)
}

/// The objects of all files. Objects that others refer to come first. Fails with every problem and its place.
fn parse(texts: &Texts) -> Result<Parsed, Vec<String>> {
    let files: Vec<(&str, &str)> = texts.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
    let mut parsed = parse_set_with(&files, STRICT);
    let unnamed = parsed
        .objects
        .iter()
        .filter(|object| object.value.name.is_empty())
        .map(|object| format!("{}: metadata.name: is missing; write the object's name", object.place));
    let problems: Vec<String> = parsed.errors.iter().map(ToString::to_string).chain(unnamed).collect();
    if !problems.is_empty() {
        return Err(problems);
    }
    if parsed.objects.is_empty() {
        let files = texts.iter().map(|(path, _)| path.as_str()).collect::<Vec<_>>().join("`, `");
        return Err(vec![format!("`{files}`: no object in it")]);
    }
    parsed.objects.sort_by_key(|object| Kind::ALL.iter().position(|kind| *kind == object.value.kind));
    Ok(parsed)
}

/// The transaction that declares these objects and no others.
fn write(objects: &[Located<Object>]) -> Result<Write, Vec<String>> {
    let mut changes = Vec::with_capacity(objects.len());
    for Located { place, value } in objects {
        let file = Path::new(&*place.file).file_name().unwrap_or_default().to_string_lossy();
        let object = file_objects::declared_in(value, &file)
            .map_err(|errors| errors.iter().map(|error| format!("{place}: {error}")).collect::<Vec<_>>())?;
        let uid = Uid(u128::from_be_bytes(random::bytes().map_err(|error| vec![error.to_string()])?));
        changes.push(Change::Put { object: Box::new(object), scope: None, uid, mode: PutMode::Apply });
    }
    Ok(Write::new(Actor::System, changes, false).of_files())
}

/// Each rejection with file, line and column.
fn located(rejections: &[Rejection], objects: &[Located<Object>], texts: &Texts) -> Vec<String> {
    let located = |rejection: &Rejection| {
        let Rejection { index, field, message, .. } = rejection;
        let Some(Located { place, value }) = objects.get(*index) else { return message.clone() };
        let text = texts.iter().find(|(path, _)| **path == *place.file).map_or("", |(_, text)| text);
        let field = field.as_deref().unwrap_or_default();
        let place = SourceText::parse(text).place_of(place, &FieldPath::parse(field));
        let field = if field.is_empty() { String::new() } else { format!("{field}: ") };
        format!("{place}: `{}`: {field}{message}", value.title())
    };
    rejections.iter().map(located).collect()
}
