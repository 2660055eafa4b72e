//! `edit`: opens an object in the user's editor, again and again until the manager accepts the result or the
//! user gives up.
//!
//! No change of other users is lost: if the object changed meanwhile, the user's changes are applied to its
//! newest version and shown once more.

mod merge_patch;

use crate::args::{EditArgs, targets};
use crate::client::Client;
use crate::commands::results::Results;
use crate::error::Error;
use crate::objects::fields::text;
use crate::output::references::reference;
use crate::output::streams;
use crate::session::Session;
use meridian_objects::Kind;
use serde_json::Value;
use std::fmt::Write as _;
use std::io;
use std::path::Path;
use tempfile::NamedTempFile;
use tokio::signal::unix::{SignalKind, signal};

/// Variables that name the editor, in order of precedence.
const EDITOR_VARIABLES: [&str; 3] = ["MERIDIAN_EDITOR", "KUBE_EDITOR", "EDITOR"];
/// Fields that must stay as they are.
const IDENTITY: [&str; 4] = ["/apiVersion", "/kind", "/metadata/name", "/metadata/namespace"];

/// Why the editor is opened again.
enum Notice {
    /// The text or the object is wrong.
    Problem(String),
    /// Somebody else has changed the object.
    Conflict,
}

pub(in crate::commands) async fn run(session: &mut Session, args: EditArgs) -> Result<(), Error> {
    let named = EDITOR_VARIABLES.iter().filter_map(|name| std::env::var(name).ok());
    let editor = named.into_iter().find(|editor| !editor.trim().is_empty());
    edit_with(session, args, editor.as_deref().unwrap_or("vi")).await
}

/// As [`run`], with this editor: a command line of `sh`.
pub(in crate::commands) async fn edit_with(
    session: &mut Session,
    args: EditArgs,
    editor: &str,
) -> Result<(), Error> {
    let targets = targets::parse_named(&args.targets)?;
    let [(kind, name)] = targets.as_slice() else {
        return Err(Error::Usage("`edit` takes one object at a time".to_owned()));
    };
    let namespace = if kind.namespaced() { Some(session.namespace()?) } else { None };
    let client = session.client()?.of_cluster(args.cluster);
    let edited = EditedObject { client, kind: *kind, namespace, name: name.clone() };
    let file = tempfile::Builder::new().prefix("meridian-edit-").suffix(".yaml").tempfile();
    let file = file.map_err(|error| cannot("make a file to edit", &error))?;
    let mut base = edited.newest().await?;
    let mut text = streams::yaml(&base)?;
    let mut notice = None;
    loop {
        let header = header(&reference(*kind, name), notice.as_ref());
        let written = open_editor(editor, &file, &format!("{header}{text}")).await?;
        let is_unchanged = written == text;
        match &notice {
            _ if written.trim().is_empty() => {
                session.out.note("edit cancelled: the file is empty");
                return Ok(());
            }
            None if is_unchanged => {
                session.out.note("edit cancelled: nothing was changed");
                return Ok(());
            }
            Some(Notice::Problem(_)) if is_unchanged => {
                return Err(kept(file, "edit cancelled: the object is still not valid"));
            }
            _ => text = written,
        }
        let object = match parse(&text, &base) {
            Ok(object) => object,
            Err(why) => {
                notice = Some(Notice::Problem(why));
                continue;
            }
        };
        match edited.client.replace(*kind, edited.namespace.as_deref(), name, &object).await {
            Ok(replaced) => {
                replaced.warnings.iter().for_each(|warning| session.out.warn(warning));
                return Results::of(*kind, name, "edited", replaced.object).show(session);
            }
            Err(error) => match error.status().map(|status| status.code) {
                Some(409) => {
                    let newest = edited.newest().await?;
                    if version(&newest) == version(&base) {
                        notice = Some(Notice::Problem(error.to_string()));
                        continue;
                    }
                    let changes = merge_patch::difference(&base, &object);
                    let mut merged = newest.clone();
                    changes.iter().for_each(|changes| merge_patch::apply(&mut merged, changes));
                    (base, text, notice) = (newest, streams::yaml(&merged)?, Some(Notice::Conflict));
                }
                Some(400 | 422) => notice = Some(Notice::Problem(error.to_string())),
                _ => return Err(kept(file, &error.to_string())),
            },
        }
    }
}

/// The object that is being edited.
struct EditedObject {
    client: Client,
    kind: Kind,
    namespace: Option<String>,
    name: String,
}

impl EditedObject {
    /// The manager's version, without read-only fields.
    async fn newest(&self) -> Result<Value, Error> {
        let mut object = self.client.get(self.kind, self.namespace.as_deref(), &self.name).await?;
        if let Value::Object(fields) = &mut object {
            fields.remove("status");
        }
        Ok(object)
    }
}

fn version(object: &Value) -> &str {
    text(object, "/metadata/resourceVersion")
}

/// Comments above the object.
fn header(reference: &str, notice: Option<&Notice>) -> String {
    let mut header = format!(
        "# Edit {reference}, save the file and leave the editor. Without a change, or with an empty file,\n\
         # nothing happens. Lines that begin with `#` up here are left out.\n"
    );
    match notice {
        None => {}
        Some(Notice::Problem(why)) => {
            header.push_str("#\n# It was not accepted:\n");
            for line in why.lines() {
                writeln!(header, "#   {line}").expect("writing to a string can't fail");
            }
        }
        Some(Notice::Conflict) => header.push_str(
            "#\n# Somebody else has changed the object meanwhile. Below are your changes, made to its\n\
             # newest version: look through them and save again. An empty file cancels.\n",
        ),
    }
    header.push_str("#\n");
    header
}

/// Lets the user edit `text`; returns it without the comments on top.
async fn open_editor(editor: &str, file: &NamedTempFile, text: &str) -> Result<String, Error> {
    let path = file.path();
    std::fs::write(path, text).map_err(|error| cannot("write the file to edit", &error))?;
    // An interrupt is for the editor, which runs in the same terminal.
    let _interrupts = signal(SignalKind::interrupt());
    let mut command = tokio::process::Command::new("sh");
    command.args(["-c", &format!("{editor} \"$1\""), "sh"]).arg(path);
    let status = command.status().await.map_err(|error| cannot("start the editor", &error))?;
    if !status.success() {
        return Err(Error::Refused(format!(
            "the editor `{editor}` ended with {status}; name another one in EDITOR"
        )));
    }
    let written = read(path)?;
    let mut rest = written.as_str();
    while rest.starts_with('#') {
        rest = rest.split_once('\n').map_or("", |(_, rest)| rest);
    }
    Ok(rest.to_owned())
}

fn read(path: &Path) -> Result<String, Error> {
    std::fs::read_to_string(path).map_err(|error| cannot("read the edited file", &error))
}

/// The object in the text. Fails if it isn't the same object any more.
fn parse(text: &str, base: &Value) -> Result<Value, String> {
    let object: Value = serde_saphyr::from_str(text).map_err(|error| error.to_string())?;
    let changed = IDENTITY.iter().find(|field| object.pointer(field) != base.pointer(field));
    match changed {
        Some(field) => {
            let before = base.pointer(field).and_then(Value::as_str).unwrap_or_default();
            Err(format!("{} can't be changed: it was `{before}`", field[1..].replace('/', ".")))
        }
        None => Ok(object),
    }
}

fn cannot(what: &str, error: &io::Error) -> Error {
    Error::Refused(format!("can't {what}: {error}"))
}

/// The error, with the place of the user's text.
fn kept(file: NamedTempFile, why: &str) -> Error {
    match file.keep() {
        Ok((_, path)) => Error::Refused(format!("{why}\nyour changes are in `{}`", path.display())),
        Err(_) => Error::Refused(why.to_owned()),
    }
}
